"""The org reader, one file per construct."""
