"""Where entries come from, one package per feature."""
