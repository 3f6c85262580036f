"""Agent definitions, the registry, and the one function that runs an agent."""
