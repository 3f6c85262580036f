"""Org headlines with a schedule: commands, claims and edits."""

from typing import TYPE_CHECKING, Final

from horae.sources import late

PATHS: Final = r"/api/v1/(?:entries/.+/schedule|edits/undo)"  # below which its routes are

if TYPE_CHECKING:
    from horae.sources.plans import check as check, routes as routes, source as source
else:
    __getattr__ = late(__name__)
