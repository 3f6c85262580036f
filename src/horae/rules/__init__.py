"""What should happen? Pure decisions."""
