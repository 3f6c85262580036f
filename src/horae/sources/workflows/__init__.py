"""Code blocks of a plan as workflows: data flow, steps, languages and records."""
