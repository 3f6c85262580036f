"""Agents that tick at an interval: manifest, lifecycle, briefing and diary."""
