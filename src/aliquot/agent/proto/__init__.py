"""Messages generated from the .proto files next to them by `make proto`."""
