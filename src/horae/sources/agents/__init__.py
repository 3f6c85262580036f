from typing import TYPE_CHECKING, Final

from horae.sources import late

PATHS: Final = r"/api/run"  # below which its routes are

if TYPE_CHECKING:
    from horae.sources.agents import (
        routes as routes,
        runner as runner,
        source as source,
        transcript as transcript,
    )
else:
    __getattr__ = late(__name__)
