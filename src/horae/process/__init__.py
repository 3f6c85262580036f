"""Processes: how a command is started, watched and ended with all that it started."""
