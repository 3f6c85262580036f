"""Optional parts, which core, sources and store do not import."""
