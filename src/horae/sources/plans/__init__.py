"""Org headlines with a schedule: commands, claims and edits."""
