"""What several ask for at once is as if each had asked alone, on every store."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import one_run
from horae.core.decide import decide
from horae.core.ports import EntryStep, Process
from horae.core.receipt import Status
from reasons import because
from store.ledger_suite import NINE, NOW, asked, history, story, taken, workflow

if TYPE_CHECKING:
    from horae.store.ledger import SqlLedger, Transaction


@story
async def test_of_many_who_start_run_end_or_settle_one_receipt_one_does(ledger: SqlLedger) -> None:
    [entry] = await taken(ledger, workflow())
    [filed] = await ledger.add(entry.number, [asked("manual:1", NOW)], now=NOW, term=1)
    starts = (one_run.start(ledger, filed.number, now=NOW, term=1) for _ in range(20))
    [run] = [each for each in await asyncio.gather(*starts) if each]
    goes = (one_run.running(ledger, run.number, Process(1, n), now=NOW, term=1) for n in range(9))
    assert sum(await asyncio.gather(*goes)) == 1
    ends = (
        one_run.end(ledger, run.number, Status.DONE, reason=because(f"{n}"), now=NOW, term=1)
        for n in range(9)
    )
    assert len([each for each in await asyncio.gather(*ends) if each]) == 1
    settled = (ledger.settle([filed.number] * 2, now=NOW, term=1) for _ in range(9))
    assert sum(await asyncio.gather(*settled)) == 1
    told = [each.facts for each in await ledger.events_after(0) if each.kind == "receipt"]
    assert [each["status"] for each in told] == ["waiting", "starting", "running", "done"]


@story
async def test_the_attempts_and_numbers_of_runs_go_on(ledger: SqlLedger) -> None:
    [entry] = await taken(ledger, workflow())
    keys = [asked(f"manual:{n}", NOW) for n in range(6)]
    filed = await ledger.add(entry.number, keys, now=NOW, term=1)
    for attempt in (1, 2, 3):
        runs = await asyncio.gather(
            *(one_run.start(ledger, f.number, now=NOW, term=1) for f in filed)
        )
        begun = [each for each in runs if each]
        assert {each.attempt for each in begun} == {attempt}
        assert {each.number for each in begun} == {*range(6 * attempt - 5, 6 * attempt + 1)}
        backs = (ledger.give_back(r.number, reason=because("no"), now=NOW, term=1) for r in begun)
        assert all(await asyncio.gather(*backs))


@story
async def test_a_key_that_many_ask_for_is_one_receipt(ledger: SqlLedger) -> None:
    entries = await taken(ledger, workflow("A"), workflow("B"))
    calls = (
        ledger.add(each.number, [asked(f"manual:{n % 3}", NOW)], now=NOW, term=1)
        for n in range(30)
        for each in entries
    )
    assert {filed.number for [filed] in await asyncio.gather(*calls)} == set(range(1, 7))


@story
async def test_runs_of_one_entry_that_end_at_once_all_count(ledger: SqlLedger) -> None:
    [entry] = await taken(ledger, workflow())
    adds = (
        ledger.add(entry.number, [asked(f"manual:{n}", NOW)], now=NOW, term=1) for n in range(12)
    )
    filed = [each for [each] in await asyncio.gather(*adds)]
    started = await asyncio.gather(
        *(one_run.start(ledger, f.number, now=NOW, term=1) for f in filed)
    )
    runs = [each for each in started if each is not None]
    await asyncio.gather(
        *(one_run.running(ledger, run.number, Process(1, 1), now=NOW, term=1) for run in runs)
    )
    await asyncio.gather(
        *(
            one_run.end(ledger, run.number, Status.FAILED, reason=because("no"), now=NOW, term=1)
            for run in runs
        )
    )
    found = await ledger.entry(entry.number)
    assert found is not None
    assert found.failures == 12


@story
async def test_what_is_decided_twice_and_paused_at_once_has_one_receipt_each(
    ledger: SqlLedger,
) -> None:
    entries = await taken(ledger, *(workflow(f"W{n}") for n in range(12)))
    calls: list[Any] = [
        ledger.decide([EntryStep(each, decide(each, now=NINE))], now=NINE, term=1)
        for each in (*entries, *entries)
    ]
    calls += [ledger.pause(each.number, now=NINE, term=1) for each in entries[::3]]
    calls += [ledger.note("x", now=NINE, term=7) for _ in range(3)]
    random.Random(4).shuffle(calls)
    said = await asyncio.gather(*calls, return_exceptions=True)
    assert sum(isinstance(each, Exception) for each in said) == 3  # those of another term
    for each in entries:
        assert len(await history(ledger, each)) == 1
    starts = (one_run.start(ledger, number, now=NINE, term=1) for number in range(1, 20))
    assert sum(each is not None for each in await asyncio.gather(*starts)) == 8


@story
async def test_one_that_fails_spoils_nobody(ledger: SqlLedger) -> None:
    [entry] = await taken(ledger, workflow())

    def wrong(book: Transaction) -> None:
        book.tell("wrong", now=NOW)
        book.execute("SELECT * FROM nowhere")

    def odd(book: Transaction) -> None:
        book.tell("odd", now=NOW)
        raise ValueError("odd")

    adds = (
        ledger.add(entry.number, [asked(f"manual:{n}", NOW)], now=NOW, term=1) for n in range(5)
    )
    said = await asyncio.gather(
        *adds,
        ledger.write(1, wrong),
        ledger.write(1, odd),
        ledger.note("fine", now=NOW, term=1),
        return_exceptions=True,
    )
    assert [isinstance(each, Exception) for each in said] == [False] * 5 + [True] * 2 + [False]
    kinds = [each.kind for each in await ledger.events_after(0)]
    assert not {"wrong", "odd"}.intersection(kinds)
    assert (kinds.count("fine"), kinds.count("receipt")) == (1, 5)
