"""An edit of our own: under git it is committed at once, that file alone, without hooks.

The commit is by whoever requested the edit; what the engine does by itself is by horae.
Unless a person has uncommitted work in the file: then the edit stands beside that work, and the
person commits both.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, TypeVar

from horae.core.actor import current_actor
from horae.files.git.calls import GitError
from horae.files.git.repository import CommitResult, Git, repository_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from horae.files.read import StrPath

T = TypeVar("T")


async def edit_and_commit(
    path: StrPath, make: Callable[[], T], *, message: Callable[[T], str]
) -> tuple[T, CommitResult]:
    """Let *make* edit a file once; return what it returns, and the commit or why there is none.

    *message* names the commit; an empty one means that nothing was changed. The edit is made
    whatever git says.
    """
    top = repository_of(path)
    if top is None:
        return await asyncio.to_thread(make), CommitResult(None)
    git, absolute = Git(top), os.path.abspath(path)
    made: list[T] = []
    try:
        async with git.held():
            was = await git.status(absolute)
            made.append(await asyncio.to_thread(make))
            said = message(made[0])
            if not said:
                return made[0], CommitResult(None)
            author = await git.author_of(current_actor())
            return made[0], await git.commit(absolute, message=said, author=author, was=was)
    except GitError as error:
        edited = made[0] if made else await asyncio.to_thread(make)
        return edited, CommitResult(None, error.reason)
