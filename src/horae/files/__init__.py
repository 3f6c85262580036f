"""Plan files on disk and in git: found, read, edited, watched."""
