"""Rules in the syntax of other schedulers, and units for service managers."""
