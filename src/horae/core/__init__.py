"""Entries, receipts and runs: what is due, what is decided, what starts. Knows no source."""
