"""Entries, receipts and runs: what is due, what is decided, what starts. Imports no source."""
