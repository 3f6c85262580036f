"""A world of one engine after another on one ledger, in a time of our own."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from functools import wraps
from typing import TYPE_CHECKING

from horae.core.engine import Engine
from horae.core.gate import Capacity
from horae.core.source import Scan
from horae.core.spending import Spending
from horae.org.document import read
from horae.sources.plans.arming import scan_plan
from horae.store.sqlite import SqliteLedger
from horae.testing import Ending, ManualClock, ScriptedRunner, at_once

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Mapping

    from horae.core.receipt import Filed

SECOND, MINUTE, HOUR, DAY = (
    timedelta(seconds=1),
    timedelta(minutes=1),
    timedelta(hours=1),
    timedelta(days=1),
)
YEARS = 3653 * DAY  # ten of them


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


NOW = at("2026-04-01T08:00Z")
NINE = at("2026-04-01T09:00Z")


def cron(title: str, when: str, *properties: str) -> str:
    drawer = "".join(f"{each}\n" for each in (f":SCHEDULE: {when}", *properties))
    return f"* {title} :workflow:\n:PROPERTIES:\n{drawer}:END:\nDo it: {title}.\n"


def stamped(title: str, stamp: str) -> str:
    return f"* {title} :workflow:\nSCHEDULED: {stamp}\nDo it: {title}.\n"


class Written:
    """A source of plans that are written in the test itself."""

    name = "org"

    def __init__(self) -> None:
        self.files: dict[str, str] = {}
        self.is_bare: bool | None = None

    async def scan(self, index: Mapping[str, str]) -> Scan:  # noqa: ARG002
        found = (
            each
            for file, text in self.files.items()
            for each in scan_plan(read(text), file=file, zone_name="UTC")
        )
        return Scan(tuple(found), is_bare=self.is_bare)

    async def settle(self, receipt: Filed) -> None:
        """Nothing follows."""


class World:
    """One engine after another on one ledger, in a time of our own."""

    def __init__(
        self,
        ledger: SqliteLedger,
        *,
        now: datetime = NOW,
        script: Callable[[Filed], Ending],
        shared: Mapping[str, str | None] | None = None,
    ) -> None:
        self.ledger = ledger
        self.clock = ManualClock(now)
        self.spending = Spending(ledger, self.clock, shared=shared or {})
        self.source = Written()
        self.started: list[tuple[datetime, Filed]] = []
        self._script = script
        self._turns: asyncio.Task[None] | None = None
        self.engine = self.new_engine()

    def new_engine(self, *, slots: int = 4, term: int = 1) -> Engine:
        """Return an engine that has not read anything yet."""
        runner = ScriptedRunner(clock=self.clock, script=self._script, spending=self.spending)
        runner.started = self.started
        return Engine(
            clock=self.clock,
            ledger=self.ledger,
            runner=runner,
            sources=[self.source],
            capacity=Capacity(slots=slots),
            term=term,
            spending=self.spending,
        )

    async def up(self) -> None:
        """Start an engine: take over what was left, read the plans, go on."""
        self.engine = self.new_engine()
        await self.engine.start()
        self._turns = asyncio.create_task(self.engine.run())
        await self.advance(0 * SECOND)

    async def down(self) -> None:
        """Kill the engine, and with it all that runs."""
        tasks = [*self.engine.launch._tasks, *filter(None, [self._turns])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._turns = None

    async def outage(self, length: timedelta) -> None:
        await self.down()
        await self.advance(length)
        await self.up()

    async def advance(self, length: timedelta) -> None:
        await self.clock.advance(length)
        if self._turns is not None and self._turns.done():
            self._turns.result()

    async def pass_by(self, length: timedelta) -> None:
        """Wait inside the world while others let time pass."""
        await self.clock.wait(asyncio.Event(), until=self.clock.now() + length)

    async def until(self, moment: datetime) -> None:
        await self.advance(moment - self.clock.now())

    async def write(self, *workflows: str, file: str = "plan.org") -> None:
        self.source.files[file] = "".join(workflows)
        await self.engine.rescan("org")

    async def receipts(self) -> list[Filed]:
        """Return every receipt, oldest first."""
        return [*reversed((await self.ledger.receipts(limit=100_000)).receipts)]

    async def history(self) -> list[tuple[str, str]]:
        """Return when each receipt was planned and where it stands, oldest first."""
        return [
            (f"{each.receipt.planned_at:%m-%d %H:%M}", each.status)
            for each in await self.receipts()
        ]

    async def numbers(self) -> dict[str, int]:
        """Return the numbers of the entries that are there, by title."""
        known = await self.ledger.entries()
        return {each.mark.title: each.number for each in known if each.gone_at is None}

    async def steps(self) -> list[timedelta]:
        """Return by how much the clock was set, each time that was noticed."""
        return [
            timedelta(seconds=float(str(each.facts["by"])))
            for each in await self.ledger.events_after(0)
            if each.kind == "clock_step"
        ]

    def trouble(self) -> str | None:
        """Return what keeps the engine from writing."""
        return None if self.engine.trouble is None else self.engine.trouble.code

    def runs(self) -> list[str]:
        """Return when each run was planned, and when it started."""
        return [
            f"{each.receipt.planned_at:%m-%d %H:%M} at {now:%m-%d %H:%M}"
            for now, each in self.started
        ]


@asynccontextmanager
async def world(
    *workflows: str,
    now: datetime = NOW,
    script: Callable[[Filed], Ending] = at_once,
    shared: Mapping[str, str | None] | None = None,
) -> AsyncIterator[World]:
    """Give a world in which these workflows are written, and an engine is up."""
    ledger = await SqliteLedger.in_memory()
    made = World(ledger, now=now, script=script, shared=shared)
    made.source.files["plan.org"] = "".join(workflows)
    await made.up()
    yield made
    await made.down()
    await ledger.close()


def story(test: Callable[..., Coroutine[object, object, None]]) -> Callable[..., None]:
    """Run a test that waits for things."""

    @wraps(test)
    def told(*args: object, **kwargs: object) -> None:
        asyncio.run(test(*args, **kwargs))

    return told
