"""What starts agents from outside of a plan: webhooks, GitHub, schedules and requests."""

from typing import TYPE_CHECKING, Final

from horae.sources import late

FOLDER: Final = ".agentd"  # of its files in a plan root

# Below which its routes are.
PATHS: Final = (
    r"/(?:health|workflows|webhooks|agents|api/v1/(?:trigger(?:s|-agents|-files)|approvals))"
)

if TYPE_CHECKING:
    from horae.sources.triggers import (
        client as client,
        files as files,
        routes as routes,
        rules as rules,
        source as source,
    )
else:
    __getattr__ = late(__name__)
