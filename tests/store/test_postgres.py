"""Many machines share one ledger on PostgreSQL, and none can write what is not its own."""

from __future__ import annotations

import asyncio
import re
import socket
import subprocess
import sys
import threading
import time
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

import one_run
from horae.core.access import Token, Tokens
from horae.core.actor import Scope
from horae.core.decide import decide
from horae.core.inbox import InboxState
from horae.core.lease import NodeDescription, QueueJob
from horae.core.ports import (
    ANYBODY,
    Ended,
    EntryStep,
    LedgerBusyError,
    LedgerDamagedError,
    LedgerError,
    LedgerNewerError,
    LedgerWriteError,
    Process,
    RunEnd,
    StaleTermError,
)
from horae.core.receipt import Reason, ReasonCode, Status
from horae.core.source import Scan
from horae.sources.triggers.store import TriggerStore
from horae.store import carrier, moving, pg_schema, pg_wire, postgres
from horae.store.leases import LeaseOverError
from horae.store.ledger import NodeJoin
from horae.store.pg_wire import heard
from horae.store.postgres import PostgresLedger
from horae.store.sql import migrations, named
from horae.store.sqlite import SqliteLedger
from reasons import because
from scale import scaled
from store.ledger_0_1 import inserts, put_into, verify
from store.ledger_suite import (
    DAY,
    NINE,
    NOW,
    SECOND,
    add_trigger,
    asked,
    plan,
    status,
    story,
    taken,
    waiting,
    workflow,
)
from store.server import SCHEMA, TABLES, fresh, server
from waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence
    from datetime import datetime
    from pathlib import Path

    from horae.core.receipt import Filed
    from horae.store.ledger import Transaction
    from horae.store.pg_wire import Timeouts

LONG = timedelta(minutes=5)
EAST = NodeDescription("east", "http://east:8787", ("gpu", "linux"), "1.0", 4)
WEST = NodeDescription("west")
# What is asked for each run.
BY_KEY = (
    "entry.standing", "entry.over_as_planned_many", "receipt.several", "receipt.move_many",
    "run.close_many", "run.identify_many", "run.open_of", "several.starting",
    "several.ending", "several.goes_on", "several.move", "several.moved",
)  # fmt: skip


@pytest.fixture
def url() -> str:
    return fresh()


@asynccontextmanager
async def opened(url: str, *, send: Any = None, **how: Any) -> AsyncIterator[PostgresLedger]:
    """Give a ledger; *send* puts jobs into the queue instead of PgQueuer."""
    ledger = await PostgresLedger.open(url, **how)
    with pytest.MonkeyPatch.context() as patch:
        if send is not None:
            patch.setattr(carrier, "enqueue", send)
        try:
            yield ledger
        finally:
            await ledger.close()


def short(**lengths: timedelta) -> Timeouts:
    """Return timeouts that a test can wait for."""
    from horae.store.pg_wire import Timeouts

    times = Timeouts(connect=2 * SECOND, statement=SECOND, lock=SECOND / 2, silence=SECOND)
    return replace(times, **lengths)


async def joined(
    ledger: PostgresLedger, member: NodeDescription = EAST
) -> tuple[PostgresLedger, int]:
    """Return a ledger as a new member writes it, and the member's generation."""
    generation = await ledger.leases.join(member, LONG)
    return ledger.for_member(member.name, generation), generation


async def handed(ledger: PostgresLedger, key: str) -> Filed:
    """Return a receipt that waits."""
    entries = await ledger.entries() or await taken_listed(ledger, workflow())
    [filed] = await ledger.add(entries[0].number, [asked(key, NOW)], now=NOW, term=ANYBODY)
    return filed


async def taken_listed(ledger: PostgresLedger, *workflows: str) -> list[Any]:
    await taken(ledger, *workflows)
    return await ledger.entries()


class TestLeading:
    """One leads, in a term that nobody had before."""

    @story
    async def test_of_two_the_first_leads_and_the_other_is_told_who(self, url: str) -> None:
        async with opened(url) as one, opened(url) as other:
            assert await one.leases.leader() is None
            term = await one.leases.lead("one", LONG)
            assert term is not None
            assert await other.leases.lead("other", LONG) is None
            leader = await other.leases.leader()
            assert leader is not None
            assert (leader.holder, leader.term) == ("one", term)
            assert timedelta(0) < leader.until - await other.leases.now() <= LONG

    @story
    async def test_a_new_leader_fences_the_former_at_once(self, url: str) -> None:
        async with opened(url) as one, opened(url) as other:
            first = await one.leases.lead("one", timedelta(milliseconds=1))
            assert first is not None
            await until(lambda: other.leases.lead("other", LONG))
            leader = await one.leases.leader()
            assert leader is not None
            assert leader.term > first
            with pytest.raises(StaleTermError):
                await one.scan("org", Scan(()), now=NOW, term=first)
            generation = await one.leases.join(EAST, LONG)
            renewed = await one.leases.renew("east", generation, LONG, term=first)
            assert renewed is not None
            assert renewed.leader == leader
            await one.leases.resign(first)  # which is no longer its to give up
            assert await one.leases.leader() == leader
            await other.note("noted", now=NOW, term=leader.term)

    @story
    async def test_a_leader_that_begins_again_under_its_name_fences_itself(self, url: str) -> None:
        async with opened(url) as one, opened(url) as again:
            terms = [await each.leases.lead("one", LONG) for each in (one, again)]
            assert terms[0] is not None
            assert terms[1] == terms[0] + 1
            with pytest.raises(StaleTermError):
                await one.note("noted", now=NOW, term=terms[0])

    @story
    async def test_a_renewal_that_is_late_counts_if_nobody_was_faster(self, url: str) -> None:
        async with opened(url) as one, opened(url) as other:
            term = await one.leases.lead("one", timedelta(milliseconds=1))
            assert term is not None
            await asyncio.sleep(0.01)
            assert await one.leases.leader() is None
            generation = await one.leases.join(EAST, LONG)
            renewed = await one.leases.renew("east", generation, LONG, term=term)
            assert renewed is not None
            assert renewed.leader is not None
            assert await other.leases.lead("other", LONG) is None

    @story
    async def test_who_resigns_can_be_followed_at_once(self, url: str) -> None:
        async with opened(url) as one, opened(url) as other:
            term = await one.leases.lead("one", LONG)
            assert term is not None
            await one.leases.resign(term)
            assert await other.leases.lead("other", LONG) == term + 1

    @story
    async def test_of_many_who_want_to_lead_exactly_one_does(self, url: str) -> None:
        async with opened(url) as one, opened(url) as two, opened(url) as three:
            last = 0
            for _ in range(scaled(100)):
                terms = await asyncio.gather(
                    *(each.leases.lead(f"{n}", LONG) for n, each in enumerate((one, two, three)))
                )
                [term] = [each for each in terms if each is not None]
                assert term > last
                last = term
                await one.leases.resign(term)

    @story
    async def test_a_person_may_ask_whoever_leads(self, url: str) -> None:
        async with opened(url) as ledger:
            [entry] = await taken(ledger, workflow())
            await ledger.leases.lead("one", LONG)
            assert await ledger.add(entry.number, [asked("manual:1", NOW)], now=NOW, term=ANYBODY)


class TestMembers:
    """A machine writes of its own runs, as long as its lease is not over."""

    @story
    async def test_a_member_is_known_as_it_describes_itself(self, url: str) -> None:
        async with opened(url) as ledger:
            generation = await ledger.leases.join(EAST, LONG)
            await ledger.leases.join(WEST, timedelta(milliseconds=1))
            await asyncio.sleep(0.01)
            east, west = await ledger.leases.members()
            assert (east.member, east.generation, east.is_alive) == (EAST, generation, True)
            assert (west.member, west.is_alive, west.is_draining) == (WEST, False, False)
            assert east.until - east.joined_at >= LONG - SECOND
            assert await ledger.leases.drain("west")
            assert not await ledger.leases.drain("north")
            assert [each.is_draining for each in await ledger.leases.members()] == [False, True]

    @story
    async def test_each_time_a_member_joins_it_is_of_a_new_generation(self, url: str) -> None:
        async with opened(url) as ledger:
            old, first = await joined(ledger)
            await ledger.leases.leave("east", first)
            new, second = await joined(ledger)
            assert second > first
            assert not await ledger.leases.renew("east", first, LONG)
            assert await ledger.leases.renew("east", second, LONG)
            filed = await handed(ledger, "manual:1")
            with pytest.raises(LeaseOverError, match=r"the lease of east \(\d+\) has expired"):
                await one_run.start(old, filed.number, now=NOW, term=1)
            assert await status(ledger, filed) is Status.WAITING
            assert await one_run.start(new, filed.number, now=NOW, term=1)

    @story
    async def test_a_lease_that_is_over_can_be_renewed_until_its_work_is_given_away(
        self, url: str
    ) -> None:
        async with opened(url) as ledger:
            moment = timedelta(milliseconds=1)
            generation = await ledger.leases.join(EAST, moment)
            east = ledger.for_member("east", generation)
            await asyncio.sleep(0.01)
            await east.note("noted", now=NOW, term=1)  # what it has not told yet
            assert await ledger.leases.renew("east", generation, LONG)
            assert await ledger.lost() == []
            assert await ledger.leases.renew("east", generation, moment)
            await asyncio.sleep(0.01)
            assert await ledger.reap("east", generation, now=NOW, term=1) == []
            assert not await ledger.leases.renew("east", generation, LONG)
            with pytest.raises(LeaseOverError):
                await east.note("noted", now=NOW, term=1)

    @story
    async def test_a_patient_member_is_reaped_early_only_by_who_it_has_listed(
        self, url: str
    ) -> None:
        async with opened(url) as ledger:
            leases, moment = ledger.leases, timedelta(milliseconds=1)
            generation = await leases.join(EAST, LONG)
            known = await leases.join(WEST, LONG)
            joiner = await leases.join(NodeDescription("north"), LONG)
            filed = await handed(ledger, "manual:1")
            east = ledger.for_member("east", generation)
            run = await one_run.start(east, filed.number, now=NOW, term=1)
            assert run is not None
            assert await one_run.running(east, run.number, Process(1, 1), now=NOW, term=1)
            listed: dict[str, Any] = {"patience": LONG, "peers": [generation, known]}
            assert await leases.renew("east", generation, moment, **listed)
            await asyncio.sleep(0.01)
            assert await ledger.lost(joiner) == []
            assert await ledger.reap("east", generation, now=NOW, term=1, reaper=joiner) == []
            assert await ledger.lost(generation) == []  # none reaps itself
            assert await ledger.lost(known) == [NodeJoin("east", generation)]

            # After its patience its runs have ended, whoever was asked.
            listed["patience"] = timedelta(milliseconds=200)
            assert await leases.renew("east", generation, moment, **listed)
            assert await ledger.lost(joiner) == []
            await until(lambda: ledger.lost(joiner))
            taken = await ledger.reap("east", generation, now=NOW, term=1, reaper=joiner)
            assert taken == [filed.number]

    @story
    async def test_who_joins_anew_is_listed_by_none(self, url: str) -> None:
        async with opened(url) as ledger:
            leases, moment = ledger.leases, timedelta(milliseconds=1)
            generation, known = await leases.join(EAST, LONG), await leases.join(WEST, LONG)
            assert await leases.renew("east", generation, moment, patience=LONG, peers=[known])
            again = await leases.join(WEST, LONG)
            await asyncio.sleep(0.01)
            assert await ledger.lost(again) == []
            assert await leases.join(EAST, moment) > again  # and has no patience yet
            await asyncio.sleep(0.01)
            assert [each.name for each in await ledger.lost(again)] == ["east"]

    @story
    async def test_who_left_writes_nothing_more(self, url: str) -> None:
        async with opened(url) as ledger:
            east, generation = await joined(ledger)
            await ledger.leases.leave("east", generation)
            with pytest.raises(LeaseOverError):
                await east.note("noted", now=NOW, term=1)
            assert not await ledger.leases.renew("east", generation, LONG)

    @story
    async def test_of_two_machines_that_claim_a_receipt_one_has_it(self, url: str) -> None:
        async with opened(url) as ledger:
            east, _ = await joined(ledger)
            west, _ = await joined(ledger, WEST)
            filed = await handed(ledger, "manual:1")
            assert filed.machine == ""
            run = await one_run.start(east, filed.number, now=NOW, term=1)
            assert run is not None
            assert run.member == "east"
            assert await one_run.start(west, filed.number, now=NOW, term=1) is None
            [under_way] = await ledger.under_way()
            assert (under_way.number, under_way.machine) == (filed.number, "east")
            assert await ledger.several([filed.number, 99]) == [under_way]
            assert [made.number for _, made in await east.open_runs()] == [run.number]
            assert [made.number for made in await west.open_runs_of([filed.number])] == [run.number]
            assert await west.open_runs() == []
            assert await one_run.running(east, run.number, Process(1, 1), now=NOW, term=1)
            ended = await one_run.end(
                east, run.number, Status.DONE, reason=because(""), now=NOW, term=1
            )
            assert ended is not None
            assert ended.status is Status.DONE
            assert await ledger.under_way() == []
            [again] = await ledger.runs_of(filed.number)
            assert again.member == "east"

    @story
    async def test_what_a_leader_before_has_queued_is_not_claimed(self, url: str) -> None:
        async with opened(url) as ledger:
            east, _ = await joined(ledger)
            filed = await handed(ledger, "manual:1")
            first = await ledger.leases.lead("one", LONG)
            assert first is not None
            await ledger.leases.resign(first)
            term = await ledger.leases.lead("two", LONG)
            assert term is not None
            assert await one_run.start(east, filed.number, now=NOW, term=first) is None
            assert await one_run.start(east, filed.number, now=NOW, term=term)

    @story
    async def test_machines_that_claim_at_once_share_the_receipts_and_none_is_claimed_twice(
        self, url: str
    ) -> None:
        async with opened(url) as one, opened(url) as two:
            east, _ = await joined(one)
            west, _ = await joined(two, WEST)
            for n in range(scaled(200)):
                filed = [await handed(one, f"manual:{n}-{each}") for each in range(4)]
                numbers = [each.number for each in filed]
                claimed = await asyncio.gather(
                    *(
                        each.start_many([one_run.stub(n) for n in some], now=NOW, term=1)
                        for each, some in ((east, numbers), (west, reversed(numbers)))
                    )
                )
                made = [job.filed.number for jobs in claimed for job in jobs if job is not None]
                assert sorted(made) == numbers
            assert len(await one.under_way()) == 4 * scaled(200)

    @story
    async def test_what_waits_again_waits_for_no_machine(self, url: str) -> None:
        async with opened(url) as ledger:
            east, _ = await joined(ledger)
            filed = await handed(ledger, "manual:1")
            run = await one_run.start(east, filed.number, now=NOW, term=1)
            assert run is not None
            assert await east.give_back(run.number, reason=because(""), now=NOW, term=1)
            again = await ledger.receipt(filed.number)
            assert again is not None
            assert (again.status, again.machine) == (Status.WAITING, "")

    @story
    async def test_receipts_are_queued_in_one_transaction_of_their_leader(self, url: str) -> None:
        sent = []

        def send(connection: Any, jobs: Any) -> None:
            sent.append((jobs, connection.info.transaction_status.name))

        jobs = [QueueJob((1,), "any", 2), QueueJob((2, 3), "host:east", 2)]
        async with opened(url, send=send) as ledger:
            term = await ledger.leases.lead("one", LONG)
            assert term is not None
            with pytest.raises(StaleTermError):
                await ledger.enqueue(jobs, term=term - 1)
            await ledger.enqueue(jobs, term=term)
            assert sent == [(jobs, "INTRANS")]

    @story
    async def test_what_is_decided_and_may_start_is_queued_in_the_same_commit(
        self, url: str
    ) -> None:
        sent: list[Any] = []
        asked_in: list[threading.Thread] = []

        def send(connection: Any, jobs: Any) -> None:
            sent.append((jobs, connection.execute("SELECT pg_current_xact_id()::text").fetchone()))

        def jobs_of(filed: Sequence[Filed]) -> list[QueueJob]:
            asked_in.append(threading.current_thread())
            return [QueueJob((each.number,), "any", term) for each in filed]

        def spoil(_: Any) -> None:
            raise ValueError

        async def steps(now: datetime) -> list[EntryStep]:
            due = await ledger.due(now=now)
            return [EntryStep(each.entry, decide(each.entry, now=now)) for each in due]

        async with opened(url, send=send) as ledger:
            await taken(ledger, workflow())
            term = await ledger.leases.lead("one", LONG) or 0
            first = await steps(NINE)
            with pytest.raises(StaleTermError):
                await ledger.decide_and_enqueue(first, jobs_of, now=NINE, term=term - 1)
            [filed] = await ledger.decide_and_enqueue(first, jobs_of, now=NINE, term=term)
            [(jobs, [commit])] = sent
            assert jobs == [QueueJob((filed.number,), "any", term)]
            query = f"SELECT xmin::text FROM receipt WHERE number = {filed.number}"
            assert await ledger.read(lambda tx: tx.execute(query).fetchone()[0]) == commit

            # What another call in the same commit spoils is asked for again, by itself.
            later = NINE + DAY
            second = await steps(later)
            blocking = ledger.write(term, lambda _: time.sleep(0.05))
            deciding = ledger.decide_and_enqueue(second, jobs_of, now=later, term=term)
            found = await asyncio.gather(
                blocking, deciding, ledger.write(term, spoil), return_exceptions=True
            )
            assert isinstance(found[2], ValueError)
            assert asked_in == [threading.current_thread()] * 3

    @story
    async def test_a_member_that_left_without_open_runs_is_not_said_to_be_lost(
        self, url: str
    ) -> None:
        async with opened(url) as ledger:
            for name in ("east", "west"):
                lease = LONG if name == "east" else SECOND / 10
                generation = await ledger.leases.join(NodeDescription(name), lease)
                if name == "east":
                    await ledger.leases.leave(name, generation)
                await until(ledger.lost)
                assert await ledger.reap(name, generation, now=NOW, term=1) == []
                assert await ledger.lost() == []
            events = await ledger.events_after(0)
            lost = [each.facts["member"] for each in events if each.kind == "member_lost"]
            assert lost == ["west"]

    @story
    async def test_an_agent_is_at_home_where_it_ran_last(self, url: str) -> None:
        async with opened(url) as ledger:
            east, _ = await joined(ledger)
            west, _ = await joined(ledger, WEST)
            [entry] = await taken(ledger, workflow())
            for n, where in enumerate((east, west)):
                [filed] = await ledger.add(
                    entry.number, [asked(f"manual:{n}", NOW)], now=NOW, term=1, agents=("ada",)
                )
                assert await one_run.start(where, filed.number, now=NOW, term=1)
            assert await ledger.homes() == {"ada": "west"}

    @story
    async def test_the_work_of_a_lost_machine_is_given_away(self, url: str) -> None:
        async with opened(url) as ledger:
            east, generation = await joined(ledger)
            waits, starts, runs = [await handed(ledger, f"manual:{n}") for n in range(3)]
            assert await one_run.start(east, starts.number, now=NOW, term=1)
            run = await one_run.start(east, runs.number, now=NOW, term=1)
            assert run is not None
            assert await one_run.running(east, run.number, Process(1, 1), now=NOW, term=1)
            assert await ledger.lost() == []
            assert await ledger.reap("east", generation, now=NOW, term=1) == []
            await ledger.leases.leave("east", generation)
            assert await ledger.lost() == [NodeJoin("east", generation)]
            touched = await ledger.reap("east", generation, now=NOW, term=1)
            assert sorted(touched) == [starts.number, runs.number]
            assert await ledger.lost() == []
            found = [await ledger.receipt(each.number) for each in (waits, starts, runs)]
            assert [(each.status, each.machine) for each in found if each] == [
                (Status.WAITING, ""),
                (Status.WAITING, ""),
                (Status.INTERRUPTED, "east"),
            ]
            assert found[2] is not None
            assert found[2].receipt.reason == "east was lost during the run"

    @story
    async def test_what_a_machine_that_is_back_had_left_is_its_own_matter(self, url: str) -> None:
        async with opened(url) as ledger:
            old, first = await joined(ledger)
            starts, runs = [await handed(ledger, f"manual:{n}") for n in (1, 2)]
            assert await one_run.start(old, starts.number, now=NOW, term=1)
            run = await one_run.start(old, runs.number, now=NOW, term=1)
            assert run is not None
            assert await one_run.running(old, run.number, Process(1, 1), now=NOW, term=1)
            new, second = await joined(ledger)
            assert await ledger.lost() == []
            for generation in (first, second):
                assert await ledger.reap("east", generation, now=NOW, term=1) == []
            found = await new.open_runs()
            assert [each.number for each, _ in found] == [starts.number, runs.number]
            await new.give_back(found[0][1].number, reason=because("never ran"), now=NOW, term=1)
            assert await one_run.end(
                new, run.number, Status.DONE, reason=because("it did"), now=NOW, term=1
            )
            assert await status(ledger, starts) is Status.WAITING
            assert await status(ledger, runs) is Status.DONE

    @story
    async def test_what_a_machine_left_is_given_away_when_it_is_gone_again(self, url: str) -> None:
        async with opened(url) as ledger:
            old, first = await joined(ledger)
            left = await handed(ledger, "manual:1")
            assert await one_run.start(old, left.number, now=NOW, term=1)
            _, second = await joined(ledger)
            await ledger.leases.leave("east", second)
            assert await ledger.lost() == [
                NodeJoin("east", first),
                NodeJoin("east", second),
            ]
            assert await ledger.reap("east", first, now=NOW, term=1) == [left.number]
            assert await ledger.reap("east", second, now=NOW, term=1) == []
            assert await ledger.lost() == []


class TestSharing:
    """What one member writes the others see, once and in order."""

    @story
    async def test_members_that_decide_the_same_moments_decide_each_once(self, url: str) -> None:
        entries = scaled(400)
        async with opened(url) as one, opened(url) as two, opened(url) as three:
            await taken(one, *(workflow(f"Water {n}", "*/10 * * * *") for n in range(entries)))

            async def decided(ledger: PostgresLedger) -> list[Filed]:
                due = await ledger.due(now=NINE, limit=10_000)
                steps = [EntryStep(each.entry, decide(each.entry, now=NINE)) for each in due]
                return await ledger.decide(steps, now=NINE, term=1)

            found = [
                each
                for some in await asyncio.gather(*map(decided, (one, two, three)))
                for each in some
            ]
            keys = [(each.entry, each.receipt.key) for each in found]
            assert len(keys) == len(set(keys))
            assert len({each.number for each in found}) == len(found)
            page = await two.receipts(limit=100_000)
            assert len(page.receipts) == len(found)
            assert await three.due(now=NINE) == []

    @story
    async def test_who_follows_the_events_misses_none(self, url: str) -> None:
        writers, each = 3, scaled(600)
        async with opened(url) as reader, opened(url) as one, opened(url) as two:
            seen: list[int] = []

            async def write(ledger: PostgresLedger, name: int) -> None:
                for n in range(each):
                    await ledger.note("noted", now=NOW, term=1, facts={"by": name, "n": n})

            async def follow() -> None:
                while len(seen) < writers * each:
                    last = seen[-1] if seen else 0
                    seen.extend(event.number for event in await reader.events_after(last))
                    await asyncio.sleep(0)

            work = [write(one, 0), write(two, 1), write(two, 2), follow()]
            async with asyncio.timeout(60):
                await asyncio.gather(*work)
            assert len(set(seen)) == writers * each

    @story
    async def test_an_event_that_is_written_late_is_read_before_those_after_it(
        self, url: str
    ) -> None:
        begun, may_end = threading.Event(), threading.Event()

        def slowly(book: Transaction) -> None:
            book.tell("early", now=NOW)
            begun.set()
            may_end.wait(60)

        async with opened(url) as one, opened(url) as two, opened(url) as reader:
            await one.note("first", now=NOW, term=1)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(postgres, "_NARROW", postgres._NARROW | {slowly})
                writing = asyncio.create_task(one.write(1, slowly))
                await asyncio.to_thread(begun.wait, 60)
                await two.note("late", now=NOW, term=1)  # which waits for nobody
            assert [each.kind for each in await reader.events_after(0)] == ["first"]
            assert await reader.newest_event() == (await reader.events_after(0))[-1].number
            own, _ = await reader.of_node(0, "east", leads=True, is_last=True)
            assert [each.kind for each in own] == ["first", "late"]  # a node ends without waiting
            may_end.set()
            await writing
            found = [each.kind for each in await reader.events_after(0)]
            assert found == ["first", "early", "late"]

    @story
    async def test_nodes_read_what_they_must_obey_and_what_became_of_their_runs(
        self, url: str
    ) -> None:
        async with opened(url) as ledger:
            east, _ = await joined(ledger)
            filed, other = [await handed(ledger, f"manual:{n}") for n in range(2)]
            last = await ledger.newest_event()
            assert await one_run.start(east, filed.number, now=NOW, term=1)
            await ledger.note("cancel", now=NOW, term=1, receipt=filed.number)
            await ledger.note("receipt", now=NOW, term=1, receipt=other.number)
            await ledger.note("noted", now=NOW, term=1)
            assert [each.kind for each in await ledger.for_nodes(last)] == ["cancel"]

            async def kinds(name: str, *, leads: bool) -> list[tuple[str, int | None]]:
                found, looked_at = await ledger.of_node(last, name, leads=leads)
                assert looked_at == await ledger.newest_event()
                return [(each.kind, each.receipt) for each in found]

            own: list[tuple[str, int | None]] = [("receipt", filed.number)]
            rest = [("cancel", filed.number), ("receipt", other.number), ("noted", None)]
            assert await kinds("east", leads=False) == own
            assert await kinds("east", leads=True) == own + rest
            assert await kinds("west", leads=False) == []
            assert await kinds("west", leads=True) == rest

    @story
    async def test_who_listens_hears_of_ends_and_not_of_claims(self, url: str) -> None:
        async with opened(url) as ledger:
            east, _ = await joined(ledger)
            filed = await handed(ledger, "manual:1")
            told: list[str | None] = []

            async def listen() -> None:
                async for each in heard(ledger.address, ("horae",), pulse=SECOND):
                    told.append(None if each is None else each.payload)  # noqa: PERF401

            task = asyncio.create_task(listen())
            try:
                await until(lambda: told == [None])
                run = await one_run.start(east, filed.number, now=NOW, term=1)
                assert run is not None
                assert await one_run.running(east, run.number, Process(1, 1), now=NOW, term=1)
                assert await one_run.end(
                    east, run.number, Status.DONE, reason=because(""), now=NOW, term=1
                )
                await ledger.settle([filed.number], now=NOW, term=1)
                await ledger.note("cancel", now=NOW, term=1)
                await until(lambda: told == [None, "", "", "nodes"])
            finally:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    @story
    async def test_a_secret_is_made_once_for_all(self, url: str) -> None:
        async with opened(url) as one, opened(url) as other:
            made = await asyncio.gather(
                one.secret("token", lambda: "first"), other.secret("token", lambda: "second")
            )
            assert len(set(made)) == 1
            assert await one.secret("token", lambda: "third") == made[0]

    @story
    async def test_small_logs_are_kept(self, url: str) -> None:
        async with opened(url) as ledger:
            _, filed = await waiting(ledger)
            run = await one_run.start(ledger, filed.number, now=NOW, term=1)
            assert run is not None
            assert await ledger.log(run.number) is None
            await ledger.keep_log(run.number, b"\0out")
            assert await ledger.log(run.number) == b"\0out"


class TestOneCommit:
    """Calls that wait together share a commit, and none spoils the others."""

    @story
    async def test_a_call_that_fails_takes_nobody_with_it(self, url: str) -> None:
        def spoil(book: Transaction) -> None:
            book.tell("spoiled", now=NOW)
            book.execute("SELECT 1 / 0")

        def stumble(book: Transaction) -> None:
            book.tell("stumbled", now=NOW)
            raise LookupError("not of the database")

        async with opened(url) as ledger:
            notes = [ledger.note("noted", now=NOW, term=1) for _ in range(5)]
            bad = [ledger.write(1, spoil), ledger.write(1, stumble), ledger.write(7, spoil)]
            done = await asyncio.gather(*notes, *bad, return_exceptions=True)
            assert done[:5] == [None] * 5
            assert "division by zero" in str(done[5])
            assert isinstance(done[6], LookupError)
            assert isinstance(done[7], StaleTermError)
            assert [each.kind for each in await ledger.events_after(0)] == ["noted"] * 5

    @story
    async def test_what_only_tries_leaves_nothing(self, url: str) -> None:
        async with opened(url) as ledger:
            _, filed = await waiting(ledger)
            before = await ledger.events_after(0)
            await asyncio.gather(
                ledger.prune(before=NINE + DAY, now=NINE, term=1, dry_run=True),
                ledger.write(1, lambda book: book.tell("tried", now=NOW), keep=False),
            )
            assert await ledger.events_after(0) == before
            assert await status(ledger, filed) is Status.WAITING


class Proxy:
    """Stands between a client and the server; it can fall silent, or lose an answer."""

    def __init__(self) -> None:
        self.is_silent = False
        self.lose: bytes | None = None  # what the client says whose answer is lost
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        port = self._listener.getsockname()[1]
        return f"postgresql://postgres:s3cret@127.0.0.1:{port}/postgres?sslmode=disable"

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._sockets.append(client)
                there = socket.socket(socket.AF_UNIX)
                there.connect(server().socket)
                self._sockets.append(there)
                for one, other in ((client, there), (there, client)):
                    pump = threading.Thread(target=self._pump, args=(one, other), daemon=True)
                    pump.start()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                is_asked = source.family == socket.AF_INET
                if self.is_silent and not (is_asked and self.lose):
                    continue
                if is_asked and self.lose is not None and self.lose in data:
                    self.is_silent = True
                target.sendall(data)
            target.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


@contextmanager
def proxied() -> Iterator[Proxy]:
    proxy = Proxy()
    try:
        yield proxy
    finally:
        proxy.close()


class TestTrouble:
    """A server that is slow, silent, restarted or gone delays work and never wedges it."""

    @pytest.mark.usefixtures("url")
    @story
    async def test_a_server_that_says_nothing_is_given_up(self) -> None:
        with proxied() as proxy:
            proxy.is_silent = True
            with pytest.raises(LedgerWriteError, match="the database cannot be reached") as caught:
                await PostgresLedger.open(proxy.url, timeouts=short())
            assert "s3cret" not in str(caught.value)

    @pytest.mark.usefixtures("url")
    @story
    async def test_a_server_that_falls_silent_is_given_up_and_asked_again(self) -> None:
        with proxied() as proxy:
            async with opened(proxy.url, timeouts=short(), lease_timeouts=short()) as ledger:
                await ledger.note("first", now=NOW, term=1)
                await ledger.events_after(0)
                await ledger.leases.now()
                proxy.is_silent = True
                calls = (ledger.note("lost", now=NOW, term=1), ledger.events_after(0))
                said = await asyncio.gather(*calls, ledger.leases.now(), return_exceptions=True)
                assert [type(each) for each in said] == [LedgerWriteError] * 3
                assert all("the database does not answer" in str(each) for each in said)
                proxy.is_silent = False
                await ledger.note("second", now=NOW, term=1)
                assert [each.kind for each in await ledger.events_after(0)] == ["first", "second"]
                await ledger.leases.now()

    @pytest.mark.usefixtures("url")
    @story
    async def test_a_server_that_falls_silent_within_a_write_is_given_up_too(self) -> None:
        with proxied() as proxy:

            def hush(book: Transaction) -> None:
                book.execute("SELECT 1")
                proxy.is_silent = True
                book.execute("SELECT 1")

            async with opened(proxy.url, timeouts=short()) as ledger:
                with pytest.raises(LedgerWriteError, match="the database does not answer"):
                    await ledger.write(1, hush)
                proxy.is_silent = False
                await ledger.note("noted", now=NOW, term=1)

    @pytest.mark.usefixtures("url")
    @story
    async def test_a_commit_whose_answer_is_lost_is_no_success(self) -> None:
        with proxied() as proxy:
            async with opened(proxy.url, timeouts=short()) as ledger:
                await ledger.note("first", now=NOW, term=1)
                proxy.lose = b"COMMIT"
                with pytest.raises(LedgerWriteError, match="the result is not known"):
                    await ledger.note("second", now=NOW, term=1)
                proxy.lose, proxy.is_silent = None, False
                found = [each.kind for each in await ledger.events_after(0)]
                assert found == ["first", "second"]

    @story
    async def test_a_connection_that_was_cut_while_idle_is_opened_again(self, url: str) -> None:
        async with opened(url) as ledger:
            await ledger.note("first", now=NOW, term=1)
            await ledger.events_after(0)
            await ledger.leases.now()
            cut_all()
            await ledger.note("second", now=NOW, term=1)
            assert len(await ledger.events_after(0)) == 2
            await ledger.leases.now()

    @story
    async def test_a_connection_that_is_cut_while_it_writes_has_written_nothing(
        self, url: str
    ) -> None:
        def cut(book: Transaction) -> None:
            book.tell("lost", now=NOW)
            book.execute("SELECT pg_terminate_backend(pg_backend_pid())")

        async with opened(url) as ledger:
            with pytest.raises(LedgerWriteError, match="nothing was recorded"):
                await ledger.write(1, cut)
            await ledger.note("kept", now=NOW, term=1)
            assert [each.kind for each in await ledger.events_after(0)] == ["kept"]

    @story
    async def test_a_server_that_is_restarted_delays_and_loses_nothing(self, url: str) -> None:
        async with opened(url, timeouts=short()) as ledger:
            await ledger.note("first", now=NOW, term=1)
            server().stop()
            try:
                with pytest.raises(LedgerWriteError, match="the database cannot be reached"):
                    await ledger.note("lost", now=NOW, term=1)
                with pytest.raises(LedgerWriteError, match="the database cannot be reached"):
                    await ledger.events_after(0)
            finally:
                server().start()
            await ledger.note("second", now=NOW, term=1)
            assert [each.kind for each in await ledger.events_after(0)] == ["first", "second"]

    @story
    async def test_who_waits_for_another_writer_gives_up_in_time(self, url: str) -> None:
        import psycopg

        async with opened(url, timeouts=short()) as ledger:
            with psycopg.connect(url) as holder:
                holder.execute(f"SELECT 1 FROM {SCHEMA}.term FOR UPDATE".encode())
                with pytest.raises(LedgerBusyError, match="another node is writing to the ledger"):
                    await ledger.note("noted", now=NOW, term=1)
                await ledger.events_after(0)  # which waits for nobody
            await ledger.note("noted", now=NOW, term=1)

    @story
    async def test_a_statement_that_takes_too_long_is_given_up(self, url: str) -> None:
        async with opened(url, timeouts=short()) as ledger:
            for call in (
                ledger.write(1, lambda book: book.execute("SELECT pg_sleep(60)")),
                ledger.read(lambda book: book.execute("SELECT pg_sleep(60)")),
            ):
                with pytest.raises(LedgerBusyError, match="the query timed out"):
                    await call
            await ledger.note("noted", now=NOW, term=1)

    @story
    async def test_who_is_frozen_while_it_writes_keeps_others_waiting_only_so_long(
        self, url: str
    ) -> None:
        frozen, thaw = threading.Event(), threading.Event()

        def freeze(book: Transaction) -> None:
            book.tell("lost", now=NOW)
            frozen.set()
            thaw.wait(60)
            book.tell("lost", now=NOW)

        async with opened(url, timeouts=short(idle=SECOND)) as one, opened(url) as other:
            stuck = asyncio.create_task(one.write(1, freeze))
            await asyncio.to_thread(frozen.wait, 60)
            await other.note("kept", now=NOW, term=1)
            thaw.set()
            with pytest.raises(LedgerWriteError, match="nothing was recorded"):
                await stuck
            assert [each.kind for each in await one.events_after(0)] == ["kept"]

    @pytest.mark.parametrize(
        ("address", "said"),
        [
            ("postgresql://ada:s3cret@127.0.0.1:1/x", "the database cannot be reached"),
            ("postgresql://ada:s3cret@[::1", "the address of the database cannot be read"),
            ("host=/nowhere password=s3cret dbname=x", "the database cannot be reached"),
        ],
    )
    @pytest.mark.usefixtures("url")
    @story
    async def test_no_message_tells_a_secret(self, address: str, said: str) -> None:
        with pytest.raises(LedgerError, match=said) as caught:
            await PostgresLedger.open(address, timeouts=short())
        chain = [caught.value, caught.value.__cause__, caught.value.__context__]
        assert "s3cret" not in str(caught.value)
        assert caught.value.__cause__ is None
        assert all("s3cret" not in str(each) for each in chain[:2])

    @story
    async def test_a_database_that_is_not_there_is_named(self, url: str) -> None:
        with pytest.raises(LedgerError, match=r"the database rejects the login \(.*nowhere"):
            await PostgresLedger.open(url.replace("/postgres?", "/nowhere?"))

    @story
    async def test_a_schema_has_a_plain_name(self, url: str) -> None:
        with pytest.raises(LedgerError, match="is not a valid schema name"):
            await PostgresLedger.open(url, schema='a"; DROP TABLE term; --')

    @story
    async def test_a_backup_is_the_matter_of_the_database(self, url: str, tmp_path: Path) -> None:
        async with opened(url) as ledger:
            with pytest.raises(LedgerError, match="pg_dump --schema=horae"):
                await ledger.backup(tmp_path / "ledger.db")


def cut_all() -> None:
    """End every connection but our own, and wait until they are gone."""
    others = "FROM pg_stat_activity WHERE application_name = 'horae'"
    server().do(f"SELECT pg_terminate_backend(pid, 10000) {others}")


class TestSchema:
    """The schema is made once, moves forward, and is refused if it is not ours."""

    @story
    async def test_members_that_start_at_once_make_it_once(self, url: str) -> None:
        server().drop("race")
        ledgers = await asyncio.gather(*(PostgresLedger.open(url, schema="race") for _ in range(4)))
        try:
            await asyncio.gather(*(each.note("noted", now=NOW, term=1) for each in ledgers))
            assert len(await ledgers[0].events_after(0)) == 4
        finally:
            for each in ledgers:
                await each.close()
            server().drop("race")

    @story
    async def test_a_ledger_of_version_0_1_opens_with_the_same_entries_and_next_times(
        self, url: str, tmp_path: Path
    ) -> None:
        put_into(tmp_path / "data")
        owner = server()
        owner.drop("old")
        owner.do('CREATE SCHEMA "old"')
        version, script = next(iter(migrations("postgres").items()))
        owner.do(script, schema="old")
        owner.do(f"UPDATE term SET version = {version}", schema="old")
        owner.do(*inserts(tmp_path / "data"), schema="old")
        try:
            async with opened(url, schema="old") as ledger:
                await verify(ledger)
        finally:
            server().drop("old")

    @story
    async def test_a_schema_from_before_version_0_1_is_refused_and_stays_as_it_is(
        self, url: str
    ) -> None:
        server().drop("old")
        async with opened(url, schema="old"):
            server().do("UPDATE term SET version = 3", schema="old")
        try:
            with pytest.raises(LedgerError, match="version 3, and this horae supports 6 to"):
                await PostgresLedger.open(url, schema="old")
            assert server().do("SELECT version FROM term", schema="old") == [(3,)]
        finally:
            server().drop("old")

    @story
    async def test_a_newer_schema_is_refused_also_while_it_is_used(self, url: str) -> None:
        async with opened(url) as ledger:
            server().do("UPDATE term SET version = 99, oldest = 99")
            try:
                known = max(migrations("postgres"))
                message = (
                    f"the schema needs support for version 99, and this horae supports {known}"
                )
                with pytest.raises(LedgerNewerError, match=message):
                    await ledger.note("noted", now=NOW, term=1)
                with pytest.raises(LedgerNewerError, match=message):
                    await PostgresLedger.open(url)
                cut_all()
                with pytest.raises(LedgerNewerError, match=message):
                    await ledger.entries()
            finally:
                server().do(f"UPDATE term SET version = {known}, oldest = {known}")
            await ledger.note("noted", now=NOW, term=1)

    @story
    async def test_an_older_node_goes_on_until_a_migration_is_not_for_it(
        self, url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        known = migrations("postgres")
        newest = max(known)
        expand = f"-- oldest: {newest}\nCREATE TABLE more (number BIGINT);"
        contract = "DROP TABLE more;"

        async def upgrade(*scripts: str) -> None:
            later = known | dict(enumerate(scripts, start=newest + 1))
            with monkeypatch.context() as patch:
                for module in (pg_schema, pg_wire):
                    patch.setattr(module, "migrations", lambda _: later)
                await (await PostgresLedger.open(url, schema="future")).close()

        server().drop("future")
        async with opened(url, schema="future") as ledger:
            await upgrade(expand)
            await ledger.note("noted", now=NOW, term=1)
            async with opened(url, schema="future") as another:
                assert len(await another.events_after(0)) == 1
            await upgrade(expand, contract)
            with pytest.raises(LedgerNewerError):
                await ledger.note("noted", now=NOW, term=1)
            with pytest.raises(LedgerNewerError):
                await PostgresLedger.open(url, schema="future")
        server().drop("future")

    @story
    async def test_what_a_member_has_prepared_survives_a_change_of_the_schema(
        self, url: str
    ) -> None:
        async with opened(url) as ledger:
            [entry] = await taken(ledger, workflow())
            for _ in range(10):  # until the server has it ready
                await ledger.entries()
            server().do("ALTER TABLE entry ADD COLUMN extra TEXT")
            try:
                assert [each.item for each in await ledger.entries()] == [entry]
            finally:
                server().do("ALTER TABLE entry DROP COLUMN extra")

    @story
    async def test_a_schema_that_is_dropped_under_us_is_said_so(self, url: str) -> None:
        server().drop("dropped")
        async with opened(url, schema="dropped") as ledger:
            server().drop("dropped")
            with pytest.raises(LedgerDamagedError, match="the tables do not match the schema"):
                await ledger.note("noted", now=NOW, term=1)

    @story
    async def test_a_role_that_may_only_write_is_enough(self, url: str) -> None:
        await (await PostgresLedger.open(url)).close()
        server().do(
            "DROP OWNED BY worker" if server().do(ROLE) else "CREATE ROLE worker LOGIN",
            f"GRANT USAGE ON SCHEMA {SCHEMA} TO worker",
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {SCHEMA} TO worker",
            f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA {SCHEMA} TO worker",
        )
        as_worker = url.replace("//postgres:", "//worker:")
        assert as_worker != url
        async with opened(as_worker) as ledger:
            east, _ = await joined(ledger)
            filed = await handed(ledger, "manual:1")
            assert await one_run.start(east, filed.number, now=NOW, term=1)
            assert await ledger.leases.lead("east", LONG)
        with pytest.raises(LedgerError, match="the database role cannot change it"):
            await PostgresLedger.open(as_worker, schema="elsewhere")

    def test_every_query_can_be_asked(self, url: str) -> None:
        import psycopg

        from horae.store.pg_wire import DIALECT, _placed

        asyncio.run(close_again(url))
        wrong = []
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"SET search_path TO {SCHEMA}".encode())
            for name, query in named(DIALECT).items():
                try:
                    connection.execute(b"PREPARE asked AS " + numbered(_placed(query)))
                    connection.execute(b"DEALLOCATE asked")
                except psycopg.Error as error:
                    wrong.append(f"{name}: {query!r}: {error}")
        assert wrong == []

    @pytest.mark.parametrize("name", BY_KEY)
    @story
    async def test_rows_are_found_by_their_keys_also_if_the_table_was_small_when_it_was_planned(
        self, url: str, name: str
    ) -> None:
        import psycopg

        from horae.store.pg_wire import DIALECT, _placed

        query = numbered(_placed(named(DIALECT)[name]))
        async with opened(url) as ledger:
            with psycopg.connect(url, autocommit=True) as connection:
                # As before the first statistics, which may be made at any moment.
                unknown = f"UPDATE pg_class SET reltuples = -1, relpages = 0 WHERE relnamespace = '{SCHEMA}'::regnamespace"
                connection.execute(f"{unknown} AND relkind = 'r'".encode())
            asked = b"EXPLAIN (GENERIC_PLAN, COSTS OFF) " + query
            plan = await ledger.read(
                lambda tx: tx.connection.raw.cursor().execute(asked).fetchall()
            )
        lines = [row[0].strip() for row in plan]
        scans = [line for line in lines if re.search(r"Scan.* on (receipt|run|entry)$", line)]
        assert scans
        assert not [line for line in scans if "Seq Scan" in line], lines
        by_key = [line for line in lines if line.startswith("Index Cond") or "run_open" in line]
        assert len(by_key) >= len(scans), lines


ROLE = "SELECT 1 FROM pg_roles WHERE rolname = 'worker'"


async def close_again(url: str) -> None:
    await (await PostgresLedger.open(url)).close()


def numbered(text: str) -> bytes:
    """Return a query with the places for values as PostgreSQL numbers them."""
    names: dict[str, int] = {}
    put = re.sub(
        r"%\((\w+)\)s", lambda found: f"${names.setdefault(found[1], len(names) + 1)}", text
    )
    return put.replace("%%", "%").encode()


async def lived(directory: Path) -> None:
    """Leave a ledger on SQLite that has seen a bit of everything."""
    ledger = await SqliteLedger.open(directory, now=NOW)
    found = plan(
        workflow("Digest – ü", "0 9 * * *", "Body \0 \ud800\n"), workflow("Poll", "* * * * *")
    )
    await ledger.scan("org", Scan(tuple(found), index={"plan.org": "1"}), now=NOW, term=1)
    [entry, _] = await ledger.entries()
    due = await ledger.due(now=NINE)
    steps = [EntryStep(each.entry, decide(each.entry, now=NINE)) for each in due]
    decided = await ledger.decide(steps, now=NINE, term=1)
    filed = next(each for each in decided if each.status is Status.WAITING)
    run = await one_run.start(ledger, filed.number, now=NINE, term=1)
    assert run is not None
    assert await one_run.running(ledger, run.number, Process(1, 2), now=NINE, term=1)
    await one_run.end(
        ledger, run.number, Status.FAILED, reason=because("é"), now=NINE, term=1, exit_code=1
    )
    other = next(each for each in decided if each is not filed and each.status is Status.WAITING)
    run = await one_run.start(ledger, other.number, now=NINE, term=1)
    assert run is not None
    assert await one_run.running(ledger, run.number, Process(1, 3), now=NINE, term=1)
    limit = Reason(ReasonCode.USAGE_LIMIT, "You have hit your limit")
    ended = Ended(Status.LIMITED, limit, account="claude", facts={"cost": 0.5})
    assert await ledger.end_many([RunEnd(run.number, ended)], now=NINE, term=1) != [None]
    await ledger.pause(entry.number, now=NINE, term=1, note="it rains", until=NINE + DAY)
    failing = InboxState.FAILING
    await ledger.acknowledge(entry.number, now=NINE, term=1, state=failing, since=NOW, note="ü")
    spec = {"kind": "cron", "cron_expr": "0 9 * * *", "agent": "ada", "prompt": "Go."}
    for name in ("one", "two", "three"):
        assert await add_trigger(ledger, name, name=name, spec=spec, now=NINE, term=1)
    assert await TriggerStore(ledger).remove("two", now=NINE)
    assert await Tokens(ledger).add(Token("ops", (Scope.READ,), NINE), "ab" * 32)
    session = "INSERT INTO session VALUES ('cd', 'ops', 1, 1, 2, 'a browser')"
    await ledger.write(1, lambda book: book.execute(session))
    await ledger.close()


class TestMoving:
    """A ledger moves from SQLite to PostgreSQL with its history, or not at all."""

    @story
    async def test_it_is_the_same_after_it_was_moved(self, url: str, tmp_path: Path) -> None:
        data = tmp_path / ".horae"
        await lived(data)
        async with opened(url) as target:
            moved = await moving.move(data, target, now=NINE)
            assert {each.table for each in moved} == set(TABLES) - {"run_log"}
            assert all(each.rows > 0 for each in moved)
            source = await SqliteLedger.open(data, now=NINE)
            try:
                for ask in (
                    lambda ledger: ledger.entries(),
                    lambda ledger: ledger.receipts(limit=1000),
                    lambda ledger: ledger.runs_of(1),
                    lambda ledger: ledger.events_after(0),
                    lambda ledger: ledger.index("org"),
                    lambda ledger: TriggerStore(ledger).page(limit=10, offset=0),
                ):
                    there, here = [await ask(each) for each in (source, target)]
                    assert there == here
                for each in await source.entries():
                    digest = getattr(each.item, "digest", "")
                    assert await source.text(digest) == await target.text(digest)
                # And it goes on with the numbers that come next.
                for ledger in (source, target):
                    await ledger.scan("new", Scan(tuple(plan(workflow("New")))), now=NINE, term=1)
                new = [(await each.entries())[-1].number for each in (source, target)]
                assert new[0] == new[1]
                newest = [await each.newest_event() for each in (source, target)]
                assert newest[0] == newest[1]
                for ledger in (source, target):
                    [filed] = await ledger.add(new[0], [asked("manual:1", NINE)], now=NINE, term=1)
                    assert await one_run.start(ledger, filed.number, now=NINE, term=1)
                runs = [[run for _, run in await each.open_runs()] for each in (source, target)]
                assert runs[0] == runs[1]
            finally:
                await source.close()

    @story
    async def test_it_moves_only_where_nothing_is(self, url: str, tmp_path: Path) -> None:
        data = tmp_path / ".horae"
        await lived(data)
        async with opened(url) as target:
            await target.note("noted", now=NOW, term=1)
            with pytest.raises(LedgerError, match=r"the database is not empty \(rows in event\)"):
                await moving.move(data, target, now=NINE)
            assert await target.entries() == []

    @story
    async def test_what_is_not_the_same_is_not_kept(
        self, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        data = tmp_path / ".horae"
        await lived(data)
        put = moving._put

        def careless(wire: Any, table: Any, names: str, rows: Any) -> None:
            put(wire, table, names, rows[:-1] if table == "event" else rows)

        monkeypatch.setattr(moving, "_put", careless)
        async with opened(url) as target:
            with pytest.raises(LedgerError, match="event differs after the copy"):
                await moving.move(data, target, now=NINE)
            assert await target.entries() == []


def test_without_a_shared_database_nothing_of_it_is_loaded() -> None:
    code = "import sys, horae.app, horae.web.app; assert 'psycopg' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_without_its_library_it_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "horae.toml").write_text('store = "postgresql://localhost/x"\n')
    code = "import sys; sys.modules['psycopg'] = None\nfrom horae.cli.main import main\nmain()"
    for command in (["up"], ["status", "--root"]):
        words = [sys.executable, "-c", code, *command, str(tmp_path)]
        ended = subprocess.run(words, capture_output=True, text=True, check=False)
        said = "horae: psycopg is not installed; install Horae with its extra: `pip install '.[postgres]'` in its clone\n"
        assert (ended.returncode, ended.stderr) == (1, said), ended
