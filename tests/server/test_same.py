"""The next hundred fires are the same on the command line, the API, the page, the ICS feed and in
the engine itself: for every example plan, and for a house with a board and triggers beside it.
"""

from __future__ import annotations

import json
import re
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime, timedelta
from html import unescape
from itertools import groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import httpx
import pytest
from click.testing import CliRunner

from engine.world import story
from horae.cli.times import next_
from horae.engine.almanac import Almanac
from horae.engine.desk import Desk, EngineFacts
from horae.engine.triggers import Triggers
from horae.rules.gate import Capacity
from horae.rules.receipt import is_planned
from horae.rules.recycle import trigger_of
from horae.server.api import Front, app
from horae.server.keys import Keys
from horae.server.page import routes
from horae.server.page.calendar import FEW
from horae.store.sqlite import SqliteLedger
from horae.store.triggers import BookTriggers, TriggerSource
from horae.testing import ManualClock, ScriptedRunner
from horae.workspace.agentd import sync
from horae.workspace.board import BoardSource
from horae.workspace.org import OrgSource
from rules.test_ics import occurrences

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from horae.engine.source import Source

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PLANS = sorted(EXAMPLES.rglob("*.org"))
COUNT = 100
NOW = datetime(2026, 4, 1, 12, 34, 56, 500_000, tzinfo=UTC)
FAR = NOW + timedelta(days=366 * 40)
YEAR = NOW + timedelta(days=365)

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


class Fire(NamedTuple):
    """A moment of an entry, as every face can tell it."""

    at: datetime
    title: str


class House:
    """A whole house at a moment that stays until its engine is let go."""

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
        answer = await self.client.get(f"/calendar?day={day}")
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
        return occurrences((await self.client.get("/calendar.ics")).text, NOW, end)

    async def lived(self, end: datetime) -> list[tuple[Fire, str]]:
        """Let the engine live until a moment, and return what it decided for which moments."""
        almanac, ledger = self.front.almanac, self.front.ledger
        assert ledger is not None
        # From one thing to the next: that nothing is due in between, the ledger says itself.
        while (due_at := await ledger.wake_at()) is not None and due_at <= end:
            await self.clock.advance(max(due_at - self.clock.now(), timedelta(0)))
            await almanac.turn()
            await self.clock.advance(timedelta(0))  # until what it started is over
            await almanac.turn()
        page = await ledger.receipts(since=NOW, limit=100_000)
        # Nobody brings a task back here, and so its nets are still there; elsewhere none is shown.
        planned = [
            each
            for each in reversed(page.receipts)
            if is_planned(each.receipt.key)
            and trigger_of(each.receipt.key, each.receipt.planned_at) == each.receipt.planned_at
        ]
        assert all(each.receipt.through_at is None for each in planned)
        return sorted(
            (Fire(each.receipt.planned_at, each.title), each.receipt.key) for each in planned
        )


@asynccontextmanager
async def house(root: Path, data: Path) -> AsyncIterator[House]:
    """Give a house with plans, board and triggers, in a time of our own."""
    clock, ledger = ManualClock(NOW), await SqliteLedger.in_memory()
    store = BookTriggers(ledger)
    triggers = Triggers(store=store, ledger=ledger, clock=clock, ids=_numbers())
    sources: list[Source] = [
        OrgSource(root, zone_name="UTC"),
        BoardSource(root, now=clock.now),
        TriggerSource(ledger, triggers=store),
    ]
    almanac = Almanac(
        clock=clock,
        ledger=ledger,
        runner=ScriptedRunner(clock=clock),
        sources=sources,
        capacity=Capacity(1000),
    )
    _, wrong = await sync(str(root), triggers, store, environ={})
    assert wrong == []
    await almanac.start()
    front = Front(
        desk=Desk(ledger=ledger, clock=clock, ids=_numbers()),
        almanac=almanac,
        facts=lambda: EngineFacts(True, ""),
        log_of=lambda _: root,
        clock=clock,
        ledger=ledger,
        keys=Keys(data, clock=clock),
    )
    wire = httpx.ASGITransport(app(front, pages=routes(front)))
    async with httpx.AsyncClient(transport=wire, base_url="http://localhost") as client:
        yield House(front, clock, client)
    await almanac.stop(within=timedelta(0))
    await ledger.close()


def _numbers() -> Any:
    """Return a maker of names."""
    count = iter(range(10**6))
    return lambda: f"id-{next(count)}"


def command_line(root: Path) -> list[dict[str, Any]]:
    """Return what the command line says will come."""
    args = [str(root), "-n", str(COUNT), "--at", NOW.isoformat(), "--tz", "UTC", "--json"]
    result = CliRunner().invoke(next_, args, standalone_mode=False)
    assert result.exception is None, result.exception
    told: list[dict[str, Any]] = json.loads(result.stdout)
    return told


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


async def compare(root: Path, data: Path) -> list[Fire]:
    """Hold every face against the API, and return what they all say."""
    async with house(root, data) as here:
        told = await here.api()
        same = fires(told)
        names = ("at", "zone", "title", "line", "key", "estimate")
        spoken, shown = (
            [[_known(each[name]) for name in names] for each in some]
            for some in (command_line(root), told)
        )
        assert spoken == shown, "the command line"

        end = max((each.at for each in same), default=NOW)
        midnight = datetime(end.year, end.month, end.day, tzinfo=UTC) + timedelta(days=1)
        whole = fires(await here.api(midnight, count=None))
        days = dict(by_day(whole))
        quiet = (NOW.date() + timedelta(days=n) for n in range(1, (midnight - NOW).days))
        for day in {*days, *islice((each for each in quiet if each not in days), 3)}:
            found = sorted(await here.day(day), key=lambda line: (line[0], line[3]))
            assert found == days.get(day, []), f"the page of {day}"

        edge = min(end, YEAR)
        near = sorted(each.at for each in whole if each.at <= edge)
        assert await here.feed(edge) == near, "the feed"

        # Last, for now time passes.
        lived = await here.lived(end)
        assert [fire for fire, _ in lived] == sorted(each for each in whole if each.at <= end)
        foretold = {(fire, each["key"]) for fire, each in zip(same, told, strict=True)}
        assert foretold <= set(lived), "each under the key that was foretold"
        return same


def _known(value: Any) -> Any:
    """Return a value without what only the engine knows: the id that a delay was given."""
    return "delay:" if str(value).startswith("delay:") else value


def test_there_are_examples() -> None:
    assert len(PLANS) > 5


@pytest.mark.parametrize("plan", PLANS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_the_next_hundred_of_an_example_are_the_same_on_all_five(
    plan: Path, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "plan.org").write_bytes(plan.read_bytes())

    @story
    async def look() -> None:
        await compare(root, tmp_path)

    look()


def test_the_next_hundred_of_a_house_with_board_and_triggers_are_the_same_on_all_five(
    tmp_path: Path,
) -> None:
    root = tmp_path / "root"
    for name, text in {"plan.org": PLAN, **BESIDE}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    seen: list[Fire] = []

    @story
    async def look() -> None:
        seen.extend(await compare(root, tmp_path))

    look()
    assert len(seen) == COUNT
    titles = {each.title for each in seen}
    assert {"Morning", "Water", "Feed", "Turn", "Once", "Often", "Until"} <= titles
    assert {"Sweep", "Prune", "report", "later"} <= titles, "the board's and the triggers', too"
