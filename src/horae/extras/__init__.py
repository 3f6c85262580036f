"""Optional parts: nothing in the core, the sources or the store imports them."""
