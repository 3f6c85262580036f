"""Whatever is asked of a ledger at once, it holds what it would had each waited for the other."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import one_run
from horae.core.decide import decide
from horae.core.ports import Ended, EntryStep, Process, RunEnd
from horae.core.receipt import Status
from horae.store.sqlite import SqliteLedger
from reasons import because
from scale import scaled
from store.ledger_suite import DAY, NINE, NOW, SECOND, armed, asked, story, taken, workflow

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime
    from pathlib import Path

    from horae.core.entry import Entry
    from horae.store.ledger import SqlLedger, Transaction

ENDS = (Status.DONE, Status.FAILED, Status.NO_WORK, Status.KILLED)


class Ask(NamedTuple):
    """Something that is asked of a ledger, and what may matter to it."""

    kind: str
    receipt: int
    run: int
    entry: int
    now: datetime
    chance: int


def _spoilt(ask: Ask) -> Callable[[Transaction], None]:
    """Return work that fails after it has written."""

    def work(book: Transaction) -> None:
        book.tell("spoilt", now=ask.now)
        book.start_many([one_run.stub(ask.receipt)], now=ask.now)
        raise ValueError("it cannot be done")

    return work


def _tried(ask: Ask) -> Callable[[Transaction], bool]:
    """Return work that tells whether a receipt could start."""
    return lambda book: book.start_many([one_run.stub(ask.receipt)], now=ask.now)[0] is not None


def _decided(entry: Entry, ask: Ask) -> list[EntryStep]:
    return [EntryStep(entry, decide(entry, now=NINE + ask.chance % 4 * DAY))]


ANSWERS: dict[str, Callable[[SqlLedger, Ask, Entry], Awaitable[object]]] = {
    "start": lambda to, ask, _: one_run.start(to, ask.receipt, now=ask.now, term=1),
    "running": lambda to, ask, _: one_run.running(
        to, ask.run, Process(ask.run, ask.chance), now=ask.now, term=1
    ),
    "give back": lambda to, ask, _: to.give_back(
        ask.run, reason=because(f"{ask.chance}"), now=ask.now, term=1
    ),
    "end": lambda to, ask, _: to.end_many(
        [RunEnd(ask.run, Ended(ENDS[ask.chance % len(ENDS)], because(f"{ask.chance}")))],
        now=ask.now,
        term=1,
    ),
    "hold": lambda to, ask, _: to.hold(ask.receipt, reason=because("no room"), now=ask.now, term=1),
    "release": lambda to, ask, _: to.release(
        ask.receipt, reason=because("room"), now=ask.now, term=1
    ),
    "add": lambda to, ask, entry: to.add(
        entry.number, [asked(f"manual:{ask.chance}", ask.now)], now=ask.now, term=1
    ),
    "decide": lambda to, ask, entry: to.decide(_decided(entry, ask), now=ask.now, term=1),
    "pause": lambda to, ask, entry: to.pause(entry.number, now=ask.now, term=1),
    "resume": lambda to, ask, entry: to.resume(entry.number, now=ask.now, term=1),
    "settle": lambda to, ask, _: to.settle([ask.receipt, ask.receipt + 1], now=ask.now, term=1),
    "stale": lambda to, ask, _: one_run.start(to, ask.receipt, now=ask.now, term=9),
    "spoilt": lambda to, ask, _: to.write(1, _spoilt(ask)),
    "tried": lambda to, ask, _: to.write(1, _tried(ask), keep=False),
}
ODD = ("stale", "spoilt", "tried")
WELL = (*("start", "running") * 4, *(kind for kind in ANSWERS if kind not in ODD))


def answer(ledger: SqlLedger, ask: Ask, entries: list[Entry]) -> Awaitable[object]:
    """Ask it."""
    return ANSWERS[ask.kind](ledger, ask, entries[ask.entry % len(entries)])


def some(dice: random.Random, rows: dict[str, list[Any]], step: int) -> list[Ask]:
    """Return things to ask, of receipts and runs that are there, and of a few that are not."""
    kinds = WELL + ODD * dice.randrange(2)
    now = NOW + step * timedelta(minutes=1)
    asks = []
    for _ in range(dice.choice([1, 3, 20, 60, 300])):
        now += SECOND * dice.randrange(2)
        receipt = dice.randint(1, len(rows["receipt"]) + 2)
        run = dice.randint(1, len(rows["run"]) + 2)
        asks.append(
            Ask(dice.choice(kinds), receipt, run, dice.randrange(6), now, dice.randrange(40))
        )
    return sorted(asks, key=lambda ask: ask.kind) if dice.randrange(2) else asks


async def rows_of(ledger: SqlLedger) -> dict[str, list[Any]]:
    """Return all that a ledger holds."""

    def look(book: Transaction) -> dict[str, list[Any]]:
        named = book.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
        return {
            name: sorted((tuple(row) for row in book.execute(f"SELECT * FROM {name}")), key=repr)
            for (name,) in named
        }

    return await ledger.read(look)


async def begun(place: Path) -> SqliteLedger:
    """Return a ledger with a few entries, each with a few receipts."""
    ledger = await SqliteLedger.open(place, now=NOW)
    retry = [(), (":RETRY: 3 30s",)]
    flows = [workflow(f"W{n}", "0 9 * * *", "", *retry[n % 2]) for n in range(6)]
    for entry in await taken(ledger, *flows):
        receipts = [asked(f"manual:{n}", NOW) for n in range(5)]
        await ledger.add(entry.number, receipts, now=NOW, term=1)
    return ledger


async def heard(asking: Awaitable[object]) -> object:
    """Return an answer, or the kind of error that it was."""
    try:
        return await asking
    except Exception as error:
        return type(error)


@pytest.mark.parametrize("seed", range(scaled(200)))
@story
async def test_at_once_is_as_one_after_the_other(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    at_once, in_turn = await begun(tmp_path / "at-once"), await begun(tmp_path / "in-turn")
    try:
        for step in range(dice.randint(3, 8)):
            asks = some(dice, await rows_of(at_once), step)
            entries = await armed(at_once, "org"), await armed(in_turn, "org")
            if not entries[0]:
                break
            together = await asyncio.gather(
                *(heard(answer(at_once, ask, entries[0])) for ask in asks)
            )
            alone = [await heard(answer(in_turn, ask, entries[1])) for ask in asks]
            assert together == alone
            assert await rows_of(at_once) == await rows_of(in_turn)
    finally:
        await at_once.close()
        await in_turn.close()
