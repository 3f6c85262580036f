import os
from typing import TYPE_CHECKING, Final

from horae.sources import late

PATHS: Final = r"/api/v1/board"  # below which its routes are
TASKS: Final = "board/tasks"
ELSEWHERE: Final = ".batty/team_config/board/tasks"  # of Batty

if TYPE_CHECKING:
    from horae.sources.board import (
        commands as commands,
        dispatch as dispatch,
        recycle as recycle,
        routes as routes,
        rules as rules,
        runner as runner,
        source as source,
        tasks as tasks,
    )
else:
    __getattr__ = late(__name__)


def find_tasks(root: str | os.PathLike[str], *, board: str | None = None) -> str:
    """Return the directory of the tasks, relative to the root: as set, else the one that exists."""
    if board is not None:
        return f"{board.strip('/')}/tasks"
    is_elsewhere = os.path.isdir(f"{os.fspath(root)}/{ELSEWHERE}")
    is_here = os.path.isdir(f"{os.fspath(root)}/{TASKS}")
    return ELSEWHERE if is_elsewhere and not is_here else TASKS
