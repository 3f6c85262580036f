"""Git repositories of plans: called, trusted, pulled, committed to, delivered into."""
