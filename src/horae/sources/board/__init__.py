"""Markdown tasks: rules, dispatch, recycling, commands, routes and page."""
