"""Makes happen what the rules decide."""
