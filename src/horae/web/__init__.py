"""The HTTP side of an engine. Here is only where its socket is: a client loads no server."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from horae.errors import Exit, HoraeError

if TYPE_CHECKING:
    from collections.abc import Iterator

SOCKET: Final = "socket"  # in the data directory
RUN: Final = "horae-run"  # the header by which a command says in which run it is
ACTOR: Final = "horae-actor"  # those by which a node of a cluster names the caller
SCOPES: Final = "horae-scopes"
LONGEST: Final = 100  # bytes of a socket's address that every system takes

_DESCRIPTORS: Final = Path("/proc/self/fd")


class SocketPathError(HoraeError, code="socket_path", exit_code=Exit.USAGE):
    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(
            f"{path}: the path is too long for a Unix socket on this system;"
            " use a data directory with a shorter path (--data, HORAE_DATA)"
        )


@contextmanager
def address(directory: Path, *, descriptors: Path = _DESCRIPTORS) -> Iterator[str]:
    """Give the address of the socket in a directory; on Linux it is short for any path."""
    if not descriptors.is_dir():
        path = str(directory / SOCKET)
        if len(os.fsencode(path)) > LONGEST:
            raise SocketPathError(path)
        yield path
        return
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"{descriptors}/{descriptor}/{SOCKET}"
    finally:
        os.close(descriptor)
