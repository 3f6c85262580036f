"""Replacement of the program that an engine's process runs, also by a newer version.

The process id stays, and so do locks, lifelines and launchers; the new image gets the numbers of
their descriptors.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from horae import __version__
from horae.core.ports import Process
from horae.core.views import RestartAnswer, StopAnswer
from horae.errors import Exit, HoraeError

if TYPE_CHECKING:
    from collections.abc import Iterator

log = logging.getLogger(__name__)

FORMAT: Final = 1  # of the handed-over data
UNBOUNDED: Final = timedelta(days=36500)
VARIABLE: Final = "HORAE_HANDOVER"  # the descriptor of the data, or `try FORMAT`
_TRY: Final = "try "
_PATIENCE: Final = 300.0  # seconds for a new image to check that it can start
_SHOWN: Final = 300  # characters of the error


class RestartError(HoraeError, code="cannot_restart", exit_code=Exit.CONFLICT):
    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"the engine is not restarted and continues as it is: {reason}")


class HandedRun(msgspec.Struct, frozen=True):
    number: int
    protocol: int  # of its supervisor
    channel: int
    process: Process
    launcher: int | None
    directory: str
    environment: dict[str, str]  # marks the processes that it has started
    heard: bytes  # of an incomplete message
    address_space: int | None
    grace: timedelta
    overdue_at: float | None  # by the clock of the loop, which is the machine's


class HandedToken(msgspec.Struct, frozen=True):
    run: int
    digest: str
    actor: str
    scopes: tuple[str, ...]


class HandedProcesses(msgspec.Struct, frozen=True):
    lock: int
    descriptors: int  # limit of open files for each run
    launchers: dict[int, int]  # process id and descriptor of the control socket
    runs: tuple[HandedRun, ...]


class HandOver(msgspec.Struct, frozen=True):
    count: int  # restarts of the process
    lock: int  # descriptor of the lock on the data directory
    processes: HandedProcesses
    tokens: tuple[HandedToken, ...]
    listeners: dict[str, int]  # descriptors by address; the control socket has none
    stops_at: float | None = None  # by the clock of the loop
    error: str = ""  # why the old image continues

    @property
    def descriptors(self) -> Iterator[int]:
        yield from (self.lock, self.processes.lock, *self.processes.launchers.values())
        yield from (each.channel for each in self.processes.runs)
        yield from self.listeners.values()


@dataclass(eq=False)
class EngineControl:
    stop: asyncio.Event
    usual_drain: timedelta
    drain: timedelta = field(init=False)  # how long runs that would be ended may continue
    restart: asyncio.Event = field(default_factory=asyncio.Event)
    handed: HandOver | None = None

    def __post_init__(self) -> None:
        self.drain = self.usual_drain

    async def ask_restart(self, *, wait: bool) -> RestartAnswer:
        version = await try_image()
        if self.stop.is_set():
            raise RestartError("it is stopping")
        self.drain = UNBOUNDED if wait else self.usual_drain
        self.restart.set()
        return RestartAnswer(pid=os.getpid(), version=__version__, new_version=version)

    def ask_stop(self, *, wait: bool) -> StopAnswer:
        self.end()
        self.drain = UNBOUNDED if wait else self.drain
        return StopAnswer(pid=os.getpid())

    def end(self) -> None:
        if not self.stop.is_set():  # else the duration is set already
            self.drain = self.usual_drain
        self.restart.clear()
        self.stop.set()


async def try_image() -> str:
    if not hasattr(os, "memfd_create"):
        raise RestartError("this needs Linux; use `horae stop` and `horae up`")
    environ = {**os.environ, VARIABLE: f"{_TRY}{FORMAT}"}
    try:
        process = await asyncio.create_subprocess_exec(
            *_argv(),
            env=environ,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        raise RestartError(f"{sys.executable}: {error.strerror}") from None
    try:
        async with asyncio.timeout(_PATIENCE):
            said, errors = await process.communicate()
    except TimeoutError:
        process.kill()
        raise RestartError(f"the new image did not start within {_PATIENCE:.0f} s") from None
    words = said.decode(errors="replace").split()
    if process.returncode or len(words) != 2 or words[0] != _TRY.strip():
        why = " ".join(errors.decode(errors="replace").split()).removeprefix("horae: ")[-_SHOWN:]
        raise RestartError(why or f"the new image ended with exit code {process.returncode}")
    return words[1]


def is_trial() -> bool:
    """Return whether to check only that this image could start; RestartError if not."""
    asked = os.environ.get(VARIABLE, "")
    if asked.startswith(_TRY) and asked != f"{_TRY}{FORMAT}":
        raise RestartError(f"horae {__version__} cannot take over from the version that runs")
    return asked.startswith(_TRY)


def trial_answer() -> str:
    return f"{_TRY}{__version__}"


def handed_over() -> HandOver | None:
    number = os.environ.pop(VARIABLE, "")
    if not number:
        return None
    with os.fdopen(int(number), "rb") as file:
        file.seek(0)
        given = msgspec.json.decode(file.read(), type=HandOver)
    for each in given.descriptors:
        os.set_inheritable(each, False)
    return given


def execute(given: HandOver | None) -> HandOver | None:
    argv = _argv()
    descriptors = [] if given is None else [*given.descriptors]
    try:
        if given is not None:
            descriptors.append(os.memfd_create("handover"))
            os.write(descriptors[-1], msgspec.json.encode(given))
            os.environ[VARIABLE] = str(descriptors[-1])
        for each in descriptors:
            os.set_inheritable(each, True)
        os.execv(argv[0], argv)  # noqa: S606 - our own program
    except OSError as error:
        os.environ.pop(VARIABLE, None)
        for each in descriptors:
            os.set_inheritable(each, False)
        why = RestartError(f"{argv[0]}: {error.strerror}")
        log.warning("%s", why)
        return None if given is None else msgspec.structs.replace(given, error=why.reason)


def _argv() -> list[str]:
    return [sys.executable, *sys.orig_argv[1:]]
