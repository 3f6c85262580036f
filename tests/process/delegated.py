"""A cgroup for tests: one as systemd would delegate it, and an engine that is started in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from horae.process.cgroup import own_cgroup, standing
from horae.process.tree import kill, remove

if TYPE_CHECKING:
    from collections.abc import Sequence

HORAE = [sys.executable, "-m", "horae.cli.main"]
# A shell goes in and becomes the program, so that nothing of it is ever outside.
_ENTER = 'echo 0 > "$0/cgroup.procs" && exec "$@"'
_numbers = count()


def base() -> Path | None:
    """Return a cgroup below which tests may make their own; None where there is none."""
    given = os.environ.get("HORAE_TEST_CGROUP", "")
    own = own_cgroup()
    mount = None if own is None else _mount(own)
    for place in (Path(given) if given else None, standing().path, mount):
        if place is not None and all(
            os.access(each, os.W_OK) for each in (place, place / "cgroup.procs")
        ):
            return place
    return None


def _mount(own: Path) -> Path:
    """Return the outermost cgroup around one that is to be seen here."""
    while (own.parent / "cgroup.procs").exists():
        own = own.parent
    return own


class Delegated:
    """A delegated cgroup of its own, with `engine` in it."""

    def __init__(self, place: Path) -> None:
        self.path = place / f"horae-test-{os.getpid()}-{next(_numbers)}"
        self.home = self.path / "engine"
        self.home.mkdir(parents=True)
        os.setxattr(self.path, "user.delegate", b"1")
        self._started: list[subprocess.Popen[str]] = []

    def controllers(self) -> list[str]:
        """Return what can be limited in it."""
        return (self.path / "cgroup.controllers").read_text().split()

    def pens(self) -> list[Path]:
        """Return the cgroups of runs in it."""
        return sorted(self.path.glob("run-*"))

    def start(self, argv: Sequence[str], *, inside: Path | None = None) -> subprocess.Popen[str]:
        """Start a program in the engine's place, or in another."""
        started = subprocess.Popen(
            ["sh", "-c", _ENTER, str(inside or self.home), *argv],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "HORAE_LISTEN": "127.0.0.1:0"},
        )
        self._started.append(started)
        return started

    def up(self, root: Path) -> subprocess.Popen[str]:
        """Start an engine in its place."""
        return self.start([*HORAE, "up", str(root)])

    def clear(self) -> None:
        """Kill all that is in it, and remove it."""
        kill(os.fsencode(self.path))
        for each in self._started:
            each.communicate(timeout=30)
        assert remove(os.fsencode(self.path), tries=2000), f"{self.path} is not empty"


def ask(*words: str) -> Any:
    """Return what a command of ours answers."""
    done = subprocess.run(
        [*HORAE, *words, "--json"], capture_output=True, text=True, check=False, timeout=60
    )
    return json.loads(done.stdout)
