"""Agents that tick at an interval: manifest, lifecycle, briefing and diary."""

from typing import TYPE_CHECKING, Final

from horae.sources import late

PATHS: Final = r"/api/v1/agents"  # below which its routes are

if TYPE_CHECKING:
    from horae.sources.crew import (
        routes as routes,
        rules as rules,
        runner as runner,
        source as source,
    )
else:
    __getattr__ = late(__name__)
