"""When is that? Pure arithmetic of moments."""
