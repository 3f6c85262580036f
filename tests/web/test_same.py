"""The next hundred fires are the same on the command line, the API, the page, the ICS feed, in the
simulator and in the engine itself: for every example plan, for an app with a board and triggers
beside it, whatever is paused, and after runs from whose ends rules count.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from contextlib import asynccontextmanager, suppress
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from html import unescape
from itertools import groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import httpx
import pytest
from click.testing import CliRunner

import one_run
from core.world import story
from horae.cli.export import ics
from horae.cli.simulate import simulate
from horae.cli.times import agenda, next_
from horae.core.engine import Engine
from horae.core.entry import Entry
from horae.core.gate import Capacity
from horae.core.ports import Process
from horae.core.receipt import Status, is_planned
from horae.core.service import Service
from horae.core.views import EngineFacts, EntryStateError
from horae.sources.board.recycle import trigger_of
from horae.sources.board.source import BoardSource
from horae.sources.board.tasks import Board
from horae.sources.crew.rules import agent_state
from horae.sources.plans.source import OrgSource
from horae.sources.triggers.service import Triggers
from horae.sources.triggers.source import TriggerSource, sync
from horae.sources.triggers.store import TriggerStore
from horae.store.database import DATABASE, MARK
from horae.store.sqlite import SqliteLedger
from horae.testing import ManualClock, ScriptedRunner
from horae.web.api import asgi_app
from horae.web.front import Front
from horae.web.keys import Keys
from horae.web.page.routes import routes
from horae.web.page.timeline import FEW
from reasons import because
from scale import SCALE
from web.test_ics import occurrences

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    import click

    from horae.core.source import Source

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PLANS = sorted(EXAMPLES.rglob("*.org"))
COUNT = 100
NOW = datetime(2026, 4, 1, 12, 34, 56, 500_000, tzinfo=UTC)
FAR = NOW + timedelta(days=366 * 40)
TINY = timedelta(microseconds=1)

# Every kind of rule, both clock changes of a zone, and one moment at which many meet.
PLAN = """* Morning :workflow:
:PROPERTIES:
:SCHEDULE: 30 2 * * SUN; 0 9 * * MON-FRI
:TZ: Europe/Berlin
:COMMAND: true
:END:
* Water :workflow:
SCHEDULED: <2026-03-30 Mon 09:00 +2d>
:PROPERTIES:
:COMMAND: true
:END:
* Feed :workflow:
SCHEDULED: <2026-01-01 Thu 09:00 ++1w>
:PROPERTIES:
:COMMAND: true
:END:
* Turn :workflow:
SCHEDULED: <2026-04-03 Fri 09:00 .+10d>
:PROPERTIES:
:COMMAND: true
:END:
* Once :workflow:
SCHEDULED: <2026-04-20 Mon 17:45>
:PROPERTIES:
:COMMAND: true
:END:
* Often :workflow:
:PROPERTIES:
:SCHEDULE: 0 */2 3 4 *
:COMMAND: true
:END:
* Until :workflow:
:PROPERTIES:
:PAUSE-AFTER: 1
:SCHEDULE: 0 9 * * *
:UNTIL: 2026-04-10
:COMMAND: true
:END:
* Asked for :workflow:
:PROPERTIES:
:COMMAND: true
:END:
"""
BESIDE = {
    "board/tasks/001-sweep.md": (
        "---\nid: 1\ntitle: Sweep\nstatus: done\ncron_schedule: '0 9 * * MON'\n"
        "timezone: Europe/Berlin\n---\n"
    ),
    "board/tasks/002-prune.md": (
        "---\nid: 2\ntitle: Prune\nstatus: done\ncron_schedule: '15 7 15 * *'\n---\n"
    ),
    "board/tasks/003-sow.md": "---\nid: 3\ntitle: Sow\nstatus: todo\n---\n",
    ".agentd/agents/worker.yml": "name: worker\ncommand: cat\n",
    ".agentd/workflows/report.yml": (
        "name: report\nagent: worker\nsource:\n  type: cron\n  expression: '0 9 * * *'\n"
        "  timezone: America/New_York\nprompt_template: Report.\n"
    ),
    ".agentd/workflows/later.yml": (
        'name: later\nagent: worker\nsource: {type: delay, run_at: "2026-04-20T17:45:00Z"}\n'
        "prompt_template: Later.\n"
    ),
}


Act: TypeAlias = "Callable[[App], Awaitable[None]]"


class Fire(NamedTuple):
    """A moment of an entry, as every face can tell it."""

    at: datetime
    title: str


class App:
    """A whole app at a moment that stays until its engine is let go."""

    def __init__(self, front: Front, clock: ManualClock, client: httpx.AsyncClient) -> None:
        self.front = front
        self.clock = clock
        self.client = client

    async def api(self, end: datetime = FAR, *, count: int | None = COUNT) -> list[dict[str, Any]]:
        """Return what the API says will come, page by page; without a count all of it."""
        found: list[dict[str, Any]] = []
        query = {"to": end.isoformat(), "limit": str(count or 1000)}
        while True:
            answer = await self.client.get("/api/v1/agenda", params=query)
            assert answer.status_code == 200, answer.text
            found += answer.json()["fires"]
            query["cursor"] = answer.json()["cursor"]
            if count is not None or query["cursor"] is None:
                return found

    async def day(self, day: date) -> list[tuple[datetime, datetime | None, int, str]]:
        """Return what the page of a day shows that is still to come."""
        answer = await self.client.get(f"/timeline?at={day}")
        assert answer.status_code == 200, answer.text
        rows = re.findall(
            r'<li data-at="([^"]*)" data-through="([^"]*)" data-count="(\d+)".*?'
            r'class="title"[^>]*>(.*?)</a>',
            answer.text,
            re.DOTALL,
        )
        return [
            (
                datetime.fromisoformat(at),
                datetime.fromisoformat(through) if through else None,
                int(count),
                unescape(title),
            )
            for at, through, count, title in rows
        ]

    async def feed(self, end: datetime) -> list[datetime]:
        """Return the moments that a calendar program finds in the feed."""
        now = self.clock.now()
        return occurrences((await self.client.get("/calendar.ics")).text, now, end)

    async def timeline(self) -> dict[str, int]:
        """Return how often the timeline of a month says that an entry is to come, by its title."""
        query = {"at": f"{self.clock.now():%Y-%m}", "lanes": "entry"}
        answer = await self.client.get("/timeline", params=query)
        assert answer.status_code == 200, answer.text
        rows = re.findall(r'aria-label="([^"]*): (?:[^"]*, )?([0-9,]+) upcoming"', answer.text)
        ahead = {unescape(title): int(count.replace(",", "")) for title, count in rows}
        return {title: count for title, count in ahead.items() if count}

    async def lived(self, end: datetime) -> list[tuple[Fire, str]]:
        """Let the engine live until a moment, and return what it decided for which moments."""
        engine, ledger = self.front.engine, self.front.ledger
        assert ledger is not None
        # From one thing to the next: that nothing is due in between, the ledger says itself.
        began = self.clock.now()
        while (due_at := await ledger.wake_at()) is not None and due_at <= end:
            await self.clock.advance(max(due_at - self.clock.now(), timedelta(0)))
            await engine.turn()
            await self.clock.advance(timedelta(0))  # until what it started is over
            await engine.turn()
        page = await ledger.receipts(since=began, limit=100_000)
        # Nobody brings a task back here, and so its nets are still there; elsewhere none is shown.
        planned = [
            each
            for each in reversed(page.receipts)
            if is_planned(each.receipt.key)
            and trigger_of(each.receipt.key, each.receipt.planned_at) == each.receipt.planned_at
            and each.status is not Status.SKIPPED  # while it was paused
        ]
        assert all(each.receipt.through_at is None for each in planned)
        return sorted(
            (Fire(each.receipt.planned_at, each.title), each.receipt.key) for each in planned
        )

    @asynccontextmanager
    async def on_disk(self, root: Path, *, is_kept: bool) -> AsyncIterator[None]:
        """Let the ledger of this moment lie in a root, with an engine that keeps it or without."""
        data, ledger = root / ".horae", self.front.ledger
        assert isinstance(ledger, SqliteLedger)
        data.mkdir()
        await ledger.backup(data / DATABASE)
        (data / MARK).touch()
        if is_kept:
            other_process(str(data))
        try:
            yield
        finally:
            if is_kept:
                other_process("")
            shutil.rmtree(data)


KEEPER = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from horae.store.lock import Lock
for line in sys.stdin:
    if line.strip():
        lock = Lock.acquire(Path(line.strip()), now=datetime.now(UTC))
    else:
        lock.release()
    print(flush=True)
"""


@lru_cache(maxsize=1)
def keeper() -> subprocess.Popen[str]:
    """Return a process that can have the lock of a data directory, as an engine has it."""
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", KEEPER], stdin=pipe, stdout=pipe, text=True)


def other_process(line: str) -> None:
    """Let another process take the lock of a directory, or give it back."""
    stdin, stdout = keeper().stdin, keeper().stdout
    assert stdin is not None
    assert stdout is not None
    stdin.write(f"{line}\n")
    stdin.flush()
    stdout.readline()


@pytest.fixture(scope="module", autouse=True)
def _end_keeper() -> Iterator[None]:
    yield
    if keeper.cache_info().currsize:
        keeper().communicate()
        keeper.cache_clear()  # a worker may come back to this module


@asynccontextmanager
async def app(root: Path, data: Path) -> AsyncIterator[App]:
    """Give an app with plans, board and triggers, in a time of our own."""
    clock, ledger = ManualClock(NOW), await SqliteLedger.in_memory()
    store = TriggerStore(ledger)
    triggers = Triggers(store=store, ledger=ledger, clock=clock, ids=_numbers())
    sources: list[Source] = [
        OrgSource(root, zone_name="UTC"),
        BoardSource(Board.below(root), now=clock.now),
        TriggerSource(store),
    ]
    engine = Engine(
        clock=clock,
        ledger=ledger,
        runner=ScriptedRunner(clock=clock),
        sources=sources,
        capacity=Capacity(1000),
    )
    assert (await sync(str(root), triggers, environ={})).wrong == []
    await engine.start()
    front = Front(
        service=Service(ledger=ledger, clock=clock, ids=_numbers(), agent_state=agent_state),
        engine=engine,
        facts=lambda: EngineFacts(True, ""),
        log_of=lambda _: root,
        clock=clock,
        ledger=ledger,
        keys=Keys(data, clock=clock),
    )
    wire = httpx.ASGITransport(asgi_app(front, pages=lambda: routes(front)))
    async with httpx.AsyncClient(transport=wire, base_url="http://localhost") as client:
        yield App(front, clock, client)
    await engine.stop(within=timedelta(0))
    await ledger.close()


def _numbers() -> Any:
    """Return a maker of names."""
    count = iter(range(10**6))
    return lambda: f"id-{next(count)}"


async def command_line(command: click.Command, root: Path, *args: str) -> str:
    """Return what a command prints about a root."""
    words = [str(root), "--tz", "UTC", *args]
    result = await asyncio.to_thread(CliRunner().invoke, command, words, standalone_mode=False)
    assert result.exception is None, result.exception
    assert not result.return_value, result.stderr
    return str(result.stdout)


def fires(told: list[dict[str, Any]]) -> list[Fire]:
    """Return what a face said, in the form that all can be compared in."""
    return [Fire(datetime.fromisoformat(each["at"]), each["title"]) for each in told]


def by_day(told: list[Fire]) -> Iterator[tuple[date, list[tuple[Any, ...]]]]:
    """Yield each day with its lines as a calendar has them: a busy entry has one."""
    for day, some in groupby(told, key=lambda fire: fire.at.date()):
        lines: list[tuple[Any, ...]] = []
        of_title: dict[str, list[datetime]] = {}
        for fire in some:
            of_title.setdefault(fire.title, []).append(fire.at)
        for title, moments in of_title.items():
            if len(moments) <= FEW:
                lines += [(at, None, 1, title) for at in moments]
            else:
                lines.append((moments[0], moments[-1], len(moments), title))
        yield day, sorted(lines, key=lambda line: (line[0], line[3]))


async def nothing(_: App) -> None:
    """Let all be as it is written."""


def resting(*, until: datetime | None, most: int | None = None) -> Act:
    """Return an act that pauses the first entries, or all."""

    async def pausing(here: App) -> None:
        assert here.front.ledger is not None
        for each in islice(await here.front.ledger.entries(), most):
            with suppress(EntryStateError):  # a part of a task is paused with the task
                await here.front.service.pause(str(each.number), until=until)

    return pausing


async def failing(here: App) -> None:
    """Let the first run of everything fail, so that what must not fail once is paused."""
    ledger, now = here.front.ledger, here.clock.now()
    assert ledger is not None
    for each in await ledger.entries():
        if isinstance(each.item, Entry) and each.item.policy.pause_after == 1:
            line = await here.front.service.run_now(str(each.number))
            run = await one_run.start(ledger, line.receipt, now=now, term=1)
            assert run is not None
            await one_run.running(ledger, run.number, Process(1, 1), now=now, term=1)
            await one_run.end(
                ledger, run.number, Status.FAILED, reason=because("it failed"), now=now, term=1
            )
            again = await ledger.entry(each.number)
            assert again is not None
            assert again.pause is not None, "it must not fail once"


async def a_week(here: App) -> None:
    """Let the engine live for a week and a bit, so that rules count from real ends."""
    end = NOW + timedelta(days=8, hours=3, seconds=7)
    await here.lived(end)
    await here.clock.advance(end - here.clock.now())


async def play(here: App, root: Path, end: datetime, expected: list[Fire]) -> None:
    """Hold the simulator against what is expected to run until a moment."""
    now = here.clock.now()
    args = ("--days", str((end - now).days + 1), "--from", now.isoformat(), "--jsonl")
    async with here.on_disk(root, is_kept=False):
        text = await command_line(simulate, root, *args)
    lines = [json.loads(line) for line in text.splitlines()]
    ran = fires([each for each in lines if each["what"] == "ran"])
    assert sorted(each for each in ran if each.at <= end) == sorted(expected), "the simulator"


async def compare(root: Path, data: Path, act: Act = nothing) -> list[Fire]:
    """Hold every face against the API, and return what they all say."""
    async with app(root, data) as here:
        await act(here)
        now = here.clock.now()
        told = await here.api()
        same = fires(told)
        names = ("at", "zone", "title", "line", "key", "estimate")
        shown = [[each[name] for name in names] for each in told]
        end = max((each.at for each in same), default=now)
        edge, at = min(end, now + timedelta(days=365)), ("--at", now.isoformat())
        midnight = datetime(end.year, end.month, end.day, tzinfo=UTC) + timedelta(days=1)
        whole = fires(await here.api(midnight, count=None))
        near = sorted(each.at for each in whole if each.at <= edge)
        month = min(edge, now + timedelta(days=30))
        soon = [each for each in whole if each.at <= month]
        span = ("--days", str((edge - now).days + 1))
        for is_kept in (True, False):
            async with here.on_disk(root, is_kept=is_kept):
                text = await command_line(next_, root, "-n", str(COUNT), *at, "--json")
                spoken = [[each[name] for name in names] for each in json.loads(text)]
                assert spoken == shown, f"next, {is_kept=}"

                text = await command_line(agenda, root, *span, *at, "--json")
                lines = [each for each in json.loads(text) if each["what"] in {"fires", "estimate"}]
                last = now + timedelta(days=int(span[1])) + TINY
                spoken_of = sum(each["count"] for each in lines)
                assert spoken_of == len(await here.api(last, count=None)), f"agenda, {is_kept=}"

                text = await command_line(ics, root, *span, *at)
                assert occurrences(text, now, edge) == near, f"export ics, {is_kept=}"

        if told:
            await play(here, root, month, soon)

        days = dict(by_day(whole))
        quiet = (now.date() + timedelta(days=n) for n in range(1, (midnight - now).days))
        busy = islice(days, None if act is nothing else 12)
        for day in {*busy, *islice((each for each in quiet if each not in days), 3)}:
            found = sorted(await here.day(day), key=lambda line: (line[0], line[3]))
            assert found == days.get(day, []), f"the page of {day}"

        assert await here.feed(edge) == near, "the feed"
        drawn, month = (
            await here.timeline(),
            (now.replace(day=1) + timedelta(days=32)).replace(day=1),
        )
        month = month.replace(hour=0, minute=0, second=0, microsecond=0)
        rest = fires(await here.api(month, count=None))
        assert drawn == Counter(each.title for each in rest), "the timeline"

        # Last, for now time passes.
        lived = await here.lived(end)
        assert [fire for fire, _ in lived] == sorted(each for each in whole if each.at <= end)
        foretold = {(fire, each["key"]) for fire, each in zip(same, told, strict=True)}
        assert foretold <= set(lived), "each under the key that was foretold"
        return same


def test_there_are_examples() -> None:
    assert len(PLANS) > 5


# Until a moment at which much fires, for ever, of one entry, and after a failure.
ACTS = {
    "as-written": nothing,
    "all-until": resting(until=datetime(2026, 4, 20, 9, tzinfo=UTC)),
    "all-for-ever": resting(until=None),
    "one-for-ever": resting(until=None, most=1),
    "quarantine": failing,
    "later": a_week,
}


def combinations() -> Iterator[Any]:
    """Yield every example as written and under one act, or under all of them at full size."""
    first, *others = ACTS
    for number, plan in enumerate(PLANS):
        for act in ACTS if SCALE >= 1 else (first, others[number % len(others)]):
            yield pytest.param(plan, act, id=f"{plan.parent.name}-{plan.stem}-{act}")


@pytest.mark.parametrize(("plan", "act"), [*combinations()])
def test_the_next_hundred_of_an_example_are_the_same_everywhere(
    plan: Path, act: str, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    text = plan.read_text()
    if act == "quarantine":
        text = text.replace(":PROPERTIES:\n", ":PROPERTIES:\n:PAUSE-AFTER: 1\n")
        text = re.sub(r"(?m)^:RETRY:.*\n", "", text)  # a retry is not a failure yet
    (root / "plan.org").write_text(text)

    @story
    async def look() -> None:
        await compare(root, tmp_path, ACTS[act])

    look()


def whole_house(root: Path) -> None:
    """Write an app with a board and triggers."""
    for name, text in {"plan.org": PLAN, **BESIDE}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


@pytest.mark.parametrize("act", [each for each in ACTS if each != "as-written"])
def test_the_next_hundred_of_a_house_are_the_same_everywhere(act: str, tmp_path: Path) -> None:
    root = tmp_path / "root"
    whole_house(root)

    @story
    async def look() -> None:
        await compare(root, tmp_path, ACTS[act])

    look()


def test_the_next_hundred_of_a_house_with_board_and_triggers_are_the_same_everywhere(
    tmp_path: Path,
) -> None:
    root = tmp_path / "root"
    whole_house(root)
    seen: list[Fire] = []

    @story
    async def look() -> None:
        seen.extend(await compare(root, tmp_path))

    look()
    assert len(seen) == COUNT
    titles = {each.title for each in seen}
    assert {"Morning", "Water", "Feed", "Turn", "Once", "Often", "Until"} <= titles
    assert {"Sweep", "Prune", "report", "later"} <= titles, "the board's and the triggers', too"
