"""Plans on disk and in git."""
