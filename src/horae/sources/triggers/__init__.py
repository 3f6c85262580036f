"""What starts agents from outside of a plan: webhooks, GitHub, schedules and requests."""
