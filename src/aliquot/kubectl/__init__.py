"""The kubectl plug-ins. Importing them must stay cheap: people run them many times a day."""
