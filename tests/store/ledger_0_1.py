"""A ledger as version 0.1 left it (`ledger_0_1.sql`): each rule, each property, open receipts."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from horae.core.entry import (
    AfterRule,
    CadenceRule,
    CatchUp,
    Entry,
    Occasion,
    OnceRule,
    OnDemandRule,
    Origin,
    Overlap,
    Policy,
    RepeaterRule,
    Retry,
    Work,
    cron_rule,
)
from horae.core.ports import Trait, micros
from horae.core.receipt import Status
from horae.core.source import Mark, Scan, Scanned
from horae.store.codec import next_at
from horae.store.database import DATABASE, MARK
from horae.timing.repeater import parse_repeater

if TYPE_CHECKING:
    from collections.abc import Iterator

    from horae.core.entry import Rule
    from horae.core.ports import Ledger

DUMP: Final = Path(__file__).with_name("ledger_0_1.sql")
VERSION: Final = 9  # of its schema
STATUSES: Final = {
    "Careful": Status.WAITING,
    "Overlaps": Status.DONE,
    "Requested": Status.HELD,
    "Seconds": Status.RUNNING,
    "Task": Status.STARTING,
}
NEXT: Final = {
    "Nightly": "2026-04-02T01:30:00Z",
    "Several": "2026-04-01T09:00:00Z",
    "Seconds": "2026-04-01T08:00:20Z",
    "Daily": "2026-04-02T07:00:00Z",
    "Monthly": "2026-04-03T00:00:00Z",
    "Habit": "2026-04-01T22:00:00Z",
    "Once": "2026-04-02T07:00:00Z",
    "Delay": "2026-04-02T07:00:00.000001Z",
    "Keeper": "2026-04-01T08:05:00Z",
    "Careful": "2026-04-02T09:00:00Z",
    "Overlaps": "2026-04-02T09:00:00Z",
    "Forever": "2026-04-01T09:00:00Z",
}


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _entry(title: str, line: int, rule: Rule, **more: Any) -> Entry:
    origin = Origin("plan.org", line)
    return Entry(f"plan.org::{title}", origin, title, rule, digest="d", **more)


_MINUTE = timedelta(minutes=1)
_NIGHTLY = cron_rule("30 3 * * *", zone_name="Europe/Berlin")
ENTRIES: Final = (
    _entry("Nightly", 1, _NIGHTLY, work=Work.COMMAND, zone="Europe/Berlin"),
    _entry("Several", 2, cron_rule("0 9 * * MON-FRI; 30 17 * * FRI", zone_name="UTC")),
    _entry("Seconds", 3, cron_rule("*/10 * * * * *", zone_name="America/New_York")),
    _entry("Daily", 4, RepeaterRule(at("2026-04-02T07:00"), parse_repeater("++1d"))),
    _entry("Monthly", 5, RepeaterRule(at("2026-01-31T00:00"), parse_repeater("+1m"))),
    _entry(
        "Habit",
        6,
        RepeaterRule(at("2026-04-02T00:00"), parse_repeater(".+2d/4d")),
        deadline=at("2026-05-01T22:00Z"),
        zone="Europe/Berlin",
    ),
    _entry("Once", 7, OnceRule(at("2026-04-02T07:00Z"))),
    _entry("Delay", 8, OnceRule(at("2026-04-02T07:00:00.000001Z"), "trigger 1:1")),
    _entry(
        "Keeper",
        9,
        CadenceRule(20 * _MINUTE, at("2026-04-01T08:05Z"), 3, 2, 1),
        work=Work.TICK,
        agents=("keeper", "Zoë"),
    ),
    _entry("Requested", 10, OnDemandRule(), work=Work.PROMPT, agents=("keeper",)),
    _entry("Alert", 11, AfterRule((Occasion.FAILED, Occasion.LATE)), work=Work.POST),
    _entry("After", 12, AfterRule((Occasion.RECOVERED,), 'Say "grüß" – 1')),
    _entry("Paused", 13, _NIGHTLY, policy=Policy(catchup=CatchUp.NONE)),
    _entry("Paused for a week", 14, _NIGHTLY, policy=Policy(catchup=CatchUp.LATEST)),
    _entry(
        "Careful",
        15,
        cron_rule("0 9 * * *", zone_name="UTC"),
        policy=Policy(
            catchup=CatchUp.ALL,
            overlap=Overlap.QUEUE,
            retry=Retry(3, timedelta(seconds=30)),
            timeout=15 * _MINUTE,
            jitter=5 * _MINUTE,
            pause_after=5,
            from_at=at("2026-01-01T00:00Z"),
            until=at("2026-12-31T23:59:59.999999Z"),
            requires=("gpu", "berlin"),
            api=("read", "run"),
        ),
    ),
    _entry(
        "Overlaps",
        16,
        cron_rule("0 9 * * *", zone_name="UTC"),
        policy=Policy(overlap=Overlap.ALLOW),
    ),
    _entry(
        "Task",
        17,
        OnDemandRule(),
        work=Work.DISPATCH,
        policy=Policy(retry=Retry(1, timedelta(days=3, microseconds=1))),
    ),
    _entry(
        "Forever",
        18,
        cron_rule("0 9 * * *", zone_name="UTC"),
        policy=Policy(until=at("9999-12-31T23:59:59.999999Z")),
    ),
)


def put_into(directory: Path) -> None:
    """Write the ledger into a data directory."""
    directory.mkdir(parents=True)
    with closing(sqlite3.connect(directory / DATABASE)) as raw:
        raw.executescript(DUMP.read_text())
    (directory / MARK).touch()


async def verify(ledger: Ledger) -> None:
    """Look whether an opened ledger has what version 0.1 has left in it."""
    known = {each.mark.title: each for each in await ledger.entries()}
    for entry in ENTRIES:
        found = known[entry.title]
        assert isinstance(found.item, Entry)
        assert replace(found.item, number=0, accounted_to=None, ended_at=None, pause=None) == entry
        coming = NEXT.get(entry.title)
        assert found.next_at == (None if coming is None else at(coming))
        if found.pause is None:
            assert next_at(found.item) == micros(found.next_at)
    pauses = {title: each.pause for title, each in known.items() if each.pause is not None}
    assert {title: (each.note, each.until, each.by) for title, each in pauses.items()} == {
        "Paused": ("away", None, "ada"),
        "Paused for a week": ("", at("2026-04-08T08:00Z"), "ada"),
    }
    filed = (await ledger.receipts()).receipts
    assert {each.title: each.status for each in filed} == STATUSES
    policies = {each.title: each.policy for each in ENTRIES}
    assert all(each.policy == policies[each.title] for each in filed)
    assert [each.mark.title for each in await ledger.followers()] == ["Alert", "After"]
    agents = await ledger.entries_that_are(Trait.AGENT, limit=9)
    assert [each.mark.title for each in agents] == ["Keeper"]
    # To scan the same entries again changes nothing.
    newest = await ledger.newest_event()
    marks = [Mark(each.address, each.title, f"rule {each.origin.line}", "body") for each in ENTRIES]
    again = tuple(Scanned(*pair) for pair in zip(marks, ENTRIES, strict=True))
    now = at("2026-04-01T10:00Z")
    await ledger.scan("org", Scan(again, standing=("",)), now=now, term=1)
    assert await ledger.newest_event() == newest
    assert {each.mark.title: each.next_at for each in await ledger.entries()} == {
        title: each.next_at for title, each in known.items()
    }


def inserts(directory: Path) -> Iterator[str]:
    """Yield the statements that put its entries and receipts into another database."""
    with closing(sqlite3.connect(directory / DATABASE)) as raw:
        for table in ("entry", "receipt"):
            columns = [row[1] for row in raw.execute(f"PRAGMA table_info({table})")]
            values = " || ', ' || ".join(f"quote({column})" for column in columns)
            for (row,) in raw.execute(f"SELECT {values} FROM {table}").fetchall():
                yield f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({row})"
