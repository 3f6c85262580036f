"""Code blocks of a plan as workflows: data flow, steps, languages and records."""

from typing import TYPE_CHECKING, Final

from horae.sources import late

PATHS: Final = r"/api/workflow"  # below which its routes are

if TYPE_CHECKING:
    from horae.sources.workflows import commands as commands, routes as routes, runner as runner
else:
    __getattr__ = late(__name__)
