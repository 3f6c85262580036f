"""The pen: a cgroup of a run's own, below one that was delegated to us.

The supervisor uses this, so only what is written in C is imported.
"""

from __future__ import annotations

import os

from horae.runner.output import quietly


class Pen:
    """A cgroup of the run's own, below one that was delegated to us."""

    __slots__ = ("_home", "_path", "is_inside")

    def __init__(self, path: bytes, home: bytes) -> None:
        self._path = path
        self._home = home
        self.is_inside = False  # whether we could not get out again

    @classmethod
    def made(
        cls, above: bytes, home: bytes, limits: list[tuple[bytes, bytes]], *, run: int
    ) -> Pen | None:
        """Make one with these limits; None if the system does not let us."""
        path = above + b"/run-%d-%d" % (run, os.getpid())  # steps of one run are several
        try:
            os.mkdir(path)  # noqa: PTH102 (pathlib would be loaded)
        except OSError:
            return None
        for name, value in limits:
            quietly(_overwrite, path + b"/" + name, value)
        return cls(path, home)

    def enter(self) -> None:
        """Go in, so that the command is born there."""
        quietly(_overwrite, self._path + b"/cgroup.procs", b"0")

    def leave(self) -> None:
        """Go out again: the supervisor must outlive what is in there."""
        self.is_inside = True
        try:
            _overwrite(self._home + b"/cgroup.procs", b"0")
        except OSError:
            return
        self.is_inside = False

    def kill(self) -> None:
        """Kill all that is in there, at once."""
        if not self.is_inside:
            quietly(_overwrite, self._path + b"/cgroup.kill", b"1")

    def remove(self) -> None:
        """Take it away again."""
        quietly(os.rmdir, self._path)


def _overwrite(path: bytes, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, data)
    finally:
        os.close(descriptor)
