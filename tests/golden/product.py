"""The only module of the records that names parts of Horae.

When code is moved or renamed, mend it here; what is recorded does not change by that.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import traceback
from contextlib import asynccontextmanager
from platform import python_version
from typing import TYPE_CHECKING, Any, TextIO

import click

from calling import Ending
from horae import __version__
from horae.process.processes import can_kill_trees
from horae.web.api import operation_of, operations
from walks.stage import Engine, Ground, engine

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping
    from datetime import datetime, timedelta
    from pathlib import Path

__all__ = [
    "Engine",
    "Terminal",
    "can_kill_trees",
    "commands",
    "engine_at",
    "pass_by",
    "program",
    "route_of",
    "routes",
    "settle",
    "versions",
]

PROGRAMS = ("horae", "wb", "batty", "agent")


def versions() -> dict[str, str]:
    """Return what is replaced where it occurs: versions of Horae and of Python."""
    return {__version__: "<version>", f"Python {python_version()}": "Python <version>"}


def program(name: str) -> click.Command:
    """Return the click command of an installed program."""
    if name == "horae":
        from horae.cli.group import horae

        return horae
    if name == "wb":
        from horae.cli.wb import wb

        return wb
    if name == "batty":
        from horae.sources.board.batty import batty

        return batty
    from horae.sources.triggers.agent_cli import agent

    return agent


def call(name: str, args: list[str]) -> int:
    """Call a program in this process, and return its exit code."""
    if name == "batty":
        from horae.sources.board.batty import tell

        return tell(args)
    from horae.cli.run import run

    return run(program(name), name=name, args=args)


def stop_clock(now: datetime) -> None:
    """Let the machine's clock show one moment in this process."""
    from horae.core.clock import SystemClock

    SystemClock.now = lambda self: now  # type: ignore[method-assign]  # noqa: ARG005


def commands() -> Iterator[tuple[str, click.Command]]:
    """Yield every command of every program with its words, groups aside."""
    for name in PROGRAMS:
        top = program(name)
        yield from _below(name, top, click.Context(top, info_name=name))


def _below(words: str, command: click.Command, ctx: click.Context) -> Iterator[tuple[str, Any]]:
    if not isinstance(command, click.Group):
        yield words, command
        return
    for name in command.list_commands(ctx):
        below = command.get_command(ctx, name)
        assert below is not None
        if not below.hidden:
            yield from _below(f"{words} {name}", below, click.Context(below, parent=ctx))


def routes() -> list[str]:
    """Return every route of the API as method and path."""
    return [f"{each.method} {each.path}" for each in operations()]


def route_of(method: str, path: str) -> str | None:
    """Return the route that a request means; None if there is none."""
    found = operation_of(method, path.partition("?")[0])
    return None if found is None else f"{found.method} {found.path}"


@asynccontextmanager
async def engine_at(root: Path, side: Path, now: datetime) -> AsyncIterator[Engine]:
    """Give an engine with everything in it, whose clock is set by hand.

    Changes of files are not told to it in real time, which would be at another moment each time.
    """
    quiet = {"HORAE_WATCH_QUIET": "1h"}
    async with engine(Ground(root, side), now=now, environ=quiet) as here:
        _let_one_look(here)
        yield here


def _let_one_look(here: Engine) -> None:
    """Let nobody look at the board while somebody else does: `settle` does, and the engine."""
    dispatcher = here.app.dispatcher
    if dispatcher is None:
        return
    look, turn = dispatcher.look, asyncio.Lock()

    async def looked(now: datetime) -> Any:
        async with turn:
            return await look(now)

    dispatcher.look = looked  # type: ignore[method-assign]


async def settle(here: Engine, *, busy: int = 0) -> None:
    """Return when all that has come due is done, what the dispatcher hands out included."""
    while True:
        before = await here.app.ledger.newest_event()
        await here.rest(busy=busy)
        dispatcher = here.app.dispatcher
        filed = [] if dispatcher is None else await dispatcher.look(here.now)
        here.app.engine.offer(filed)
        if not filed and await here.app.ledger.newest_event() == before:
            return


async def pass_by(here: Engine, length: timedelta, *, step: timedelta) -> None:
    """Let time pass from one thing to the next, and the files be read after each.

    Also to the next time on the board: later, the dispatcher and the engine would race for a member.
    """
    end, dispatcher = here.now + length, here.app.dispatcher
    while here.now < end:
        board_at = None if dispatcher is None else dispatcher.next_at
        times = (await here.app.ledger.wake_at(), board_at, here.now + step, end)
        here.clock.set(min(at for at in times if at is not None and at > here.now))
        await settle(here)
        await here.reread()
        await settle(here)


# Commands are called in another process than the engine's: it must find the engine's lock taken.


class Terminal:
    """A process in which one command is called after the other, each at its own moment.

    It is a fork of this one, which must not have a loop yet: another would load Horae again.
    """

    def __init__(self) -> None:
        (heard, asked), (answered, answers) = os.pipe(), os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(asked)
            os.close(answered)
            try:
                _serve(os.fdopen(heard), os.fdopen(answers, "w"))
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(0)  # what follows is for the other one to do
        os.close(heard)
        os.close(answers)
        self._asked, self._answers = os.fdopen(asked, "w"), os.fdopen(answered)

    async def call(
        self, words: list[str], *, at: Path, now: datetime, stdin: str, env: Mapping[str, str]
    ) -> Ending:
        """Call a command, and return how it ended."""
        asked = json.dumps([words, str(at), now.isoformat(), stdin, dict(env)])
        return await asyncio.to_thread(self._call, asked)

    def _call(self, asked: str) -> Ending:
        self._asked.write(asked + "\n")
        self._asked.flush()
        line = self._answers.readline()
        assert line, f"the process ended: {asked}"
        return Ending(*json.loads(line))

    def close(self) -> None:
        self._asked.close()
        self._answers.close()
        os.waitpid(self._pid, 0)


def _serve(asked: TextIO, answers: TextIO) -> None:
    """Call what comes in line by line; stdout and stderr of the process itself stay clean."""
    import io
    import tempfile
    from datetime import datetime

    environ = dict(os.environ)
    for line in asked:
        words, at, now, stdin, env = json.loads(line)
        os.chdir(at)
        os.environ.clear()
        os.environ.update(environ | env)
        stop_clock(datetime.fromisoformat(now))
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            # Real files: a command hands its descriptors on to what it starts.
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            sys.stdin = io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8")
            sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False), encoding="utf-8")
            sys.stderr = io.TextIOWrapper(io.FileIO(2, "w", closefd=False), encoding="utf-8")
            code = call(words[0], words[1:])
            sys.stdout.flush()
            sys.stderr.flush()
            said = []
            for file in (out, err):
                file.seek(0)
                said.append(file.read().decode(errors="surrogateescape"))
        answers.write(json.dumps([int(code), *said]) + "\n")
        answers.flush()
