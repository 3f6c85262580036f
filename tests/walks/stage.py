"""What the walks stand on: a plan root with real files, real git and real agents; a real engine
whose clock is turned by hand; and the commands as a shell calls them.

An hour passes as fast as what comes due in it is done. Processes live in real time: what a run
does, the clock by hand does not see.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import TYPE_CHECKING, Any

import httpx
from msgspec import to_builtins

from commands import run_command
from horae.app import build, keep
from horae.config import load
from horae.web import SOCKET
from horae.web.app import open_server
from waiting import settled

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
    from pathlib import Path

    from calling import Ending
    from horae.app import App
    from horae.core.receipt import Filed, Status

SECOND, MINUTE, HOUR, DAY = (
    timedelta(seconds=1),
    timedelta(minutes=1),
    timedelta(hours=1),
    timedelta(days=1),
)
EIGHT = datetime(2026, 4, 1, 8, tzinfo=UTC)  # a Wednesday, when every walk begins
LIMIT = 60.0  # seconds that anything may take on a busy machine
PERSON = {
    "GIT_AUTHOR_NAME": "ada",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_COMMITTER_NAME": "ada",
    "GIT_COMMITTER_EMAIL": "ada@example.org",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
}


def story(test: Callable[..., Coroutine[object, object, None]]) -> Callable[..., None]:
    """Run a test that waits for things."""

    @wraps(test)
    def told(*args: object, **kwargs: object) -> None:
        asyncio.run(test(*args, **kwargs))

    return told


# Commands as a shell calls them


def typed(name: str, *args: str, at: Path, stdin: str = "", **environ: str) -> Ending:
    """Call a script by its name in a directory, and return how it ended."""
    variables = {**os.environ, "HORAE_ZONE": "UTC", "COLUMNS": "200", **environ}
    return run_command(name, *args, at=at, environ=variables, told=stdin)


async def type_(name: str, *args: str, at: Path, **environ: str) -> Ending:
    """Call a script beside an engine that runs in this process."""
    return await asyncio.to_thread(typed, name, *args, at=at, **environ)


def git(*args: str, at: Path) -> str:
    """Call git as a person does."""
    command = ["git", "-c", "init.defaultBranch=main", "-c", "protocol.file.allow=always", *args]
    environ = {**os.environ, **PERSON}
    done = subprocess.run(command, cwd=at, capture_output=True, check=True, text=True, env=environ)
    return done.stdout


# A plan root


@dataclass(frozen=True)
class Ground:
    """A plan root, and a place beside it where agents leave what they want to be seen."""

    root: Path
    side: Path

    @property
    def data(self) -> Path:
        return self.root / ".horae"

    @property
    def origin(self) -> Path:
        return self.side / "origin.git"

    def write(self, name: str, text: str) -> Path:
        """Write a file of the plan root."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def agent(self, script: str, *lines: str, name: str = "wren") -> Path:
        """Let an agent be a shell script; SIDE in it is the place beside the root."""
        program = self.side / f"{name}.sh"
        mine = f"git -c user.name={name} -c user.email={name}@example.org commit"
        program.write_text(script.replace("SIDE", str(self.side)).replace("git commit", mine))
        drawer = "".join(f"{line}\n" for line in (f":COMMAND: sh {program}", *lines))
        heading = f"* {name} :agent:\n:PROPERTIES:\n{drawer}:END:\n"
        return self.write(f"{name}.org", f"{heading}** System prompt\nYou are {name}.\n")

    def crew(self, **members: str) -> None:
        """Write a manifest; each member has these lines in its drawer, one per semicolon."""
        self.write("crew.org", "".join(member(name, text) for name, text in members.items()))

    def seen(self, name: str) -> str:
        """Return what an agent left beside the root."""
        path = self.side / name
        return path.read_text() if path.exists() else ""

    def state(self, name: str) -> str:
        """Return what a file of state says."""
        return (self.data / name).read_text().strip()

    def repository(self, *, origin: bool = False) -> None:
        """Put all that is there under git, with a bare origin if one is wanted."""
        self.write(".gitignore", ".horae/\n")
        git("init", "-q", at=self.root)
        self.commit("Begin")
        if origin:
            git("init", "-q", "--bare", str(self.origin), at=self.side)
            git("remote", "add", "origin", str(self.origin), at=self.root)
            git("push", "-q", "-u", "origin", "main", at=self.root)

    def commit(self, subject: str, *, at: Path | None = None) -> None:
        """Commit all there is, as a person does."""
        git("add", "-A", at=at or self.root)
        git("commit", "-qm", subject, at=at or self.root)

    def clone(self, name: str) -> Path:
        """Return a clone of the origin, as somebody else has it."""
        git("clone", "-q", str(self.origin), str(self.side / name), at=self.side)
        return self.side / name


def member(name: str, text: str) -> str:
    """Return the heading of a member, with one property per semicolon."""
    lines = "".join(f"{line.strip()}\n" for line in text.split(";") if line.strip())
    return f"* {name}\n:PROPERTIES:\n:DEF: {name}.org\n{lines}:END:\n"


# An engine


class HandClock:
    """A clock that stands still until somebody sets it to a later moment."""

    def __init__(self, now: datetime) -> None:
        self._now = self._begin = now
        self._alarms: list[tuple[datetime, asyncio.Future[None]]] = []

    def now(self) -> datetime:
        return self._now

    def elapsed(self) -> timedelta:
        return self._now - self._begin

    def set(self, moment: datetime) -> None:
        """Let it be later; whoever waits for a moment until then goes on."""
        self._now = max(self._now, moment)
        for until, rung in self._alarms:
            if until <= self._now and not rung.done():
                rung.set_result(None)

    async def wait(self, event: asyncio.Event, *, until: datetime) -> None:
        """Return when the moment has come or the event is set."""
        rung = asyncio.get_running_loop().create_future()
        alarm = until, rung
        self._alarms.append(alarm)
        told = asyncio.ensure_future(event.wait())
        try:
            self.set(self._now)  # the moment may be over
            await asyncio.wait([rung, told], return_when=asyncio.FIRST_COMPLETED)
        finally:
            told.cancel()
            self._alarms.remove(alarm)


class Engine:
    """An engine that keeps a plan root, and a client on its socket."""

    def __init__(self, app: App, clock: HandClock) -> None:
        self.app = app
        self.clock = clock
        self.turns = 0
        self._turned = asyncio.Event()
        self.url = ""  # where everybody on this machine can ask
        self.keeping: asyncio.Task[None] | None = None
        # To load the certificates of the machine costs as much as to start the engine.
        wire = httpx.AsyncHTTPTransport(uds=str(app.data / SOCKET), verify=False)
        self.client = httpx.AsyncClient(
            transport=wire, base_url="http://localhost", timeout=LIMIT, trust_env=False
        )

    def turned(self) -> None:
        self.turns += 1
        self._turned.set()

    @property
    def now(self) -> datetime:
        return self.clock.now()

    # Time

    async def rest(self, *, busy: int = 0) -> None:
        """Return when all that has come due is done, but for so many runs that go on."""
        running = self.app.engine.launch
        async with asyncio.timeout(LIMIT):
            while True:
                await self._turn()
                await self._turn()  # the first may have begun before it was asked for
                if len(running.receipts) <= busy:
                    await self._turn()
                    if len(running.receipts) <= busy:
                        return
                while len(running.receipts) > busy:
                    await asyncio.sleep(0.005)

    async def _turn(self) -> None:
        self._turned.clear()
        self.app.engine.poke()
        turned = asyncio.ensure_future(self._turned.wait())
        await asyncio.wait({turned, self.keeping or turned}, return_when=asyncio.FIRST_COMPLETED)
        if not turned.done() and self.keeping is not None:
            turned.cancel()
            self.keeping.result()

    async def until(self, moment: datetime, *, busy: int = 0) -> None:
        """Let it be later, with all that comes due until then, each thing at its own moment."""
        await self.rest(busy=busy)
        while (at := await self.app.ledger.wake_at()) is not None and self.now < at <= moment:
            self.clock.set(at)
            await self.rest(busy=busy)
        self.clock.set(moment)
        await self.rest(busy=busy)

    async def advance(self, length: timedelta, *, busy: int = 0) -> None:
        await self.until(self.now + length, busy=busy)

    async def meanwhile(self, asked: Coroutine[object, object, Ending]) -> Ending:
        """Return how a command ended, while the clock goes on by itself for once."""
        ending = asyncio.ensure_future(asked)
        while not ending.done():
            self.clock.set(self.now + SECOND / 100)
            await asyncio.sleep(0.01)
        return await ending

    # What is asked for and found

    async def reread(self) -> None:
        """Let the plans be read again, as after an edit."""
        # Only what runs already may go on: the loop begins, beside a scan, what that found due.
        busy = len(self.app.engine.launch.receipts)
        for name in self.app.engine.sources:
            await self.app.engine.rescan(name)
        await self.rest(busy=busy)

    async def tick(self, name: str = "wren") -> Filed:
        """Let an agent tick now, and return its receipt when that is over."""
        asked = await self.app.service.tick(name)
        return await self.over(asked.receipt)

    async def over(self, number: int) -> Filed:
        """Return a receipt when it is final, and all that follows from it is done."""
        return await settled(self.app.ledger, number)

    async def agent(self, name: str = "wren") -> dict[str, Any]:
        """Return how an agent is, as everybody is told."""
        standing = await self.app.service.status(self.app.facts(), limit=100)
        [found] = [each for each in standing.agents if each.agent == name]
        told: dict[str, Any] = to_builtins(found)
        return told

    async def next_run(self, name: str = "wren") -> datetime:
        """Return when an agent ticks next."""
        return datetime.fromisoformat((await self.agent(name))["next_run"]).astimezone(UTC)

    async def wait_for_next(self, name: str = "wren") -> timedelta:
        """Return how long an agent still waits."""
        return await self.next_run(name) - self.now

    async def receipts(self, title: str) -> list[Filed]:
        """Return the receipts of whatever has this title, oldest first."""
        known = [each for each in await self.app.ledger.entries() if each.mark.title == title]
        [entry] = [each for each in known if each.gone_at is None] or known
        page = await self.app.ledger.receipts(entry=entry.number, limit=1000)
        return [*reversed(page.receipts)]

    async def statuses(self, title: str) -> list[Status]:
        return [each.status for each in await self.receipts(title)]

    async def get(self, path: str) -> Any:
        answer = await self.client.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def post(self, path: str, body: Mapping[str, object] | None = None) -> httpx.Response:
        return await self.client.post(path, json=dict(body or {}))


@asynccontextmanager
async def engine(
    ground: Ground, *, now: datetime = EIGHT, environ: Mapping[str, str] | None = None
) -> AsyncIterator[Engine]:
    """Give an engine that keeps a plan root, and begins at a moment."""
    clock, stop = HandClock(now), asyncio.Event()
    config = load(ground.root, environ={**os.environ, **(environ or {})})
    async with build(config, clock=clock) as app:
        here = Engine(app, clock)
        server = await open_server(app)
        keeping = asyncio.create_task(keep(app, stop=stop, turned=here.turned))
        serving = asyncio.create_task(server.serve(stop))
        here.keeping, here.url = keeping, server.keys.url
        try:
            async with asyncio.timeout(LIMIT):
                while here.turns == 0 or not (app.data / SOCKET).exists():
                    if keeping.done():
                        keeping.result()
                    await asyncio.sleep(0.005)
            await here.rest()
            yield here
        finally:
            await here.client.aclose()
            stop.set()
            await keeping
            await serving
