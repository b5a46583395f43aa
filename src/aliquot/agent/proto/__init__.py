"""Messages generated from the .proto files beside them by `make proto`."""
