"""What every ledger promises, whatever it is made of.

A test module that has a `ledger` fixture runs all of it:

    class TestLedger(LedgerSuite): ...
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec

import pytest

from horae.engine.ports import Process, StaleTermError, Step
from horae.kernel.org.document import read
from horae.rules.armed import Scanned, scan_plan
from horae.rules.entry import Entry, OnceRule, Origin, Policy, Retry, Unarmed
from horae.rules.identity import Mark
from horae.rules.misfire import Receipt, Status, decide
from scale import scaled

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from horae.engine.ports import Filed, Ledger

P = ParamSpec("P")

SECOND, MINUTE, HOUR, DAY = (
    timedelta(seconds=1),
    timedelta(minutes=1),
    timedelta(hours=1),
    timedelta(days=1),
)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


NOW = at("2026-04-01T08:00Z")
NINE = at("2026-04-01T09:00Z")


def story(
    test: Callable[P, Coroutine[object, object, None]],
) -> Callable[P, None]:
    """Run a test that waits for things."""

    @wraps(test)
    def told(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return told


def workflow(
    title: str = "Digest", when: str = "0 9 * * *", body: str = "", *properties: str
) -> str:
    """Return a workflow with a cron rule, as it is written."""
    drawer = "".join(f"{each}\n" for each in (f":SCHEDULE: {when}", *properties))
    return f"* {title} :workflow:\n:PROPERTIES:\n{drawer}:END:\n{body}"


def plan(*workflows: str, file: str = "plan.org") -> list[Scanned]:
    """Return what a scan finds in a plan of these workflows."""
    return scan_plan(read("".join(workflows)), file=file, zone_name="UTC")


def delay(title: str, when: datetime, *, name: str | None = None) -> Scanned:
    """Return what a scan finds of a delay; it has another name each time it is enabled."""
    mark = Mark(f"trigger:{title}", title, f"at {when} {name}", "")
    rule = OnceRule(when, name or title)
    return Scanned(mark, Entry(mark.address, Origin("triggers", 1), title, rule))


def asked(key: str, now: datetime) -> Receipt:
    """Return the receipt of a request."""
    return Receipt(key, Status.WAITING, "somebody asked", now, now)


async def taken(
    ledger: Ledger, *workflows: str, now: datetime = NOW, file: str = "plan.org"
) -> list[Entry]:
    """Let the ledger take over a plan of these workflows."""
    return await ledger.scan("org", plan(*workflows, file=file), now=now, term=1)


async def decided(ledger: Ledger, entry: Entry, now: datetime) -> list[Filed]:
    """Decide what has come due of an entry, and write it."""
    return await ledger.decide([Step(entry, decide(entry, now=now))], now=now, term=1)


async def waiting(ledger: Ledger, *properties: str) -> tuple[Entry, Filed]:
    """Return a daily entry and its receipt of nine o'clock, which waits."""
    [entry] = await taken(ledger, workflow("Digest", "0 9 * * *", "", *properties))
    [filed] = await decided(ledger, entry, NINE)
    return entry, filed


async def known(ledger: Ledger, number: int) -> Entry:
    """Return an entry as the ledger knows it now."""
    [found] = [each for each in await ledger.entries() if each.number == number]
    assert isinstance(found.item, Entry)
    return found.item


async def history(ledger: Ledger, entry: Entry) -> list[str]:
    """Return the receipts of an entry in words, oldest first."""
    page = await ledger.receipts(entry=entry.number)
    return [
        f"{each.receipt.count} {each.status}: {each.receipt.reason}"
        for each in reversed(page.receipts)
    ]


async def status(ledger: Ledger, filed: Filed) -> Status:
    found = await ledger.receipt(filed.number)
    assert found is not None
    return found.status


async def last_event(ledger: Ledger) -> int:
    return max((each.number for each in await ledger.events_after(0)), default=0)


class ScanSuite:
    """What a scan does to what is known."""

    @story
    async def test_a_new_entry_has_a_number_and_begins_now(self, ledger: Ledger) -> None:
        [digest, water] = await taken(ledger, workflow("Digest"), workflow("Water"))
        assert 0 < digest.number < water.number
        assert digest.accounted_to == NOW
        assert await history(ledger, digest) == []

    @story
    async def test_what_is_known_can_be_armed_without_a_scan(self, ledger: Ledger) -> None:
        found = plan(
            workflow(
                "Digest", "0 9 * * *; 30 17 * * FRI", "", ":TZ: Europe/Berlin", ":RETRY: 3 30s"
            ),
            workflow(
                "Poll", "0 */5 * * * *", "", ":UNTIL: 2026-12-31", ":JITTER: 5m", ":TIMEOUT: 1h"
            ),
            "* Water :workflow:\nSCHEDULED: <2026-04-02 Thu 07:00 ++1d>\n",
            "* Rest :workflow:\nSCHEDULED: <2026-04-02 Thu .+2d/4d> DEADLINE: <2026-05-01 Fri>\n",
            "* Once :workflow:\nSCHEDULED: <2026-04-02 Thu 07:00>\n",
            "* Asked :workflow:\n:PROPERTIES:\n:PAUSE-AFTER: 5\n:OVERLAP: queue\n:CATCHUP: none\n:END:\n",
        )
        armed = await ledger.scan("org", found, now=NOW, term=1)
        assert len(armed) == 6
        assert [each.item for each in await ledger.entries()] == armed

    @story
    async def test_a_scan_that_finds_nothing_new_writes_nothing(self, ledger: Ledger) -> None:
        armed = await taken(ledger, workflow("Digest"), workflow("Water"))
        before = await last_event(ledger)
        again = await taken(ledger, workflow("Digest"), workflow("Water"), now=NOW + DAY)
        assert again == armed
        assert await last_event(ledger) == before

    @story
    async def test_history_follows_an_entry_that_is_edited_moved_and_retitled(
        self, ledger: Ledger
    ) -> None:
        entry, _ = await waiting(ledger)
        body = "Some text.\n"
        [edited] = await taken(ledger, workflow("Digest", body=body), now=NINE)
        [moved] = await taken(ledger, workflow("Digest", body=body), now=NINE, file="other.org")
        retitled = workflow("The digest", body=body)
        [last] = await taken(ledger, retitled, now=NINE, file="other.org")
        assert {each.number for each in (edited, moved, last)} == {entry.number}
        assert last.title == "The digest"
        assert last.origin == Origin("other.org", 1)
        assert last.accounted_to == NINE
        assert await history(ledger, last) == ["1 waiting: its time has come"]

    @story
    async def test_a_changed_rule_closes_the_old_one_without_firing(self, ledger: Ledger) -> None:
        [entry] = await taken(ledger, workflow("Digest", "0 9 * * *"))
        later = NOW + 3 * DAY
        [changed] = await taken(ledger, workflow("Digest", "*/10 * * * *"), now=later)
        assert changed.number == entry.number
        assert changed.accounted_to == later
        assert await history(ledger, entry) == ["3 skipped: its rule was changed"]
        [filed] = await decided(ledger, changed, later + 10 * MINUTE)
        assert filed.receipt.planned_at == later + 10 * MINUTE

    @pytest.mark.parametrize("properties", [(":TZ: Asia/Tokyo",), (":UNTIL: 2027-01-01",)])
    @story
    async def test_another_zone_or_end_is_another_rule(
        self, ledger: Ledger, properties: tuple[str, ...]
    ) -> None:
        [entry] = await taken(ledger, workflow("Digest"))
        later = NOW + DAY
        changed = workflow("Digest", "0 9 * * *", "", *properties)
        assert (await taken(ledger, changed, now=later))[0].accounted_to == later
        assert await history(ledger, entry) == ["1 skipped: its rule was changed"]

    @story
    async def test_another_catch_up_is_the_same_rule(self, ledger: Ledger) -> None:
        [entry] = await taken(ledger, workflow("Digest"))
        changed = workflow("Digest", "0 9 * * *", "", ":CATCHUP: none")
        [again] = await taken(ledger, changed, now=NOW + DAY)
        assert again.accounted_to == entry.accounted_to
        assert await history(ledger, entry) == []

    @story
    async def test_what_is_gone_fires_no_more_and_what_waits_of_it_is_skipped(
        self, ledger: Ledger
    ) -> None:
        entry, filed = await waiting(ledger)
        assert await taken(ledger, now=NINE + DAY) == []
        assert await status(ledger, filed) is Status.SKIPPED
        assert await history(ledger, entry) == [
            "1 skipped: it is no longer there",
            "1 skipped: it is no longer there",
        ]
        [found] = await ledger.entries()
        assert found.gone_at == NINE + DAY
        assert not found.is_armed
        assert await decided(ledger, entry, NINE + 2 * DAY) == []

    @story
    async def test_what_comes_back_goes_on_from_now_with_one_receipt_that_says_so(
        self, ledger: Ledger
    ) -> None:
        [entry] = await taken(ledger, workflow("Digest"))
        await taken(ledger, now=NOW)
        [back] = await taken(ledger, workflow("Digest"), now=NOW + 5 * DAY)
        assert back.number == entry.number
        assert back.accounted_to == NOW + 5 * DAY
        assert await history(ledger, entry) == [
            "5 skipped: it was not there from 2026-04-01T08:00:00Z to 2026-04-06T08:00:00Z"
        ]

    @story
    async def test_one_that_went_long_ago_is_not_taken_for_a_new_one(self, ledger: Ledger) -> None:
        [entry] = await taken(ledger, workflow("Digest"))
        await taken(ledger, now=NOW + SECOND)
        [other] = await taken(ledger, workflow("Digest"), now=NOW + DAY, file="other.org")
        assert other.number != entry.number

    @story
    async def test_of_two_with_one_address_the_known_one_is_armed(self, ledger: Ledger) -> None:
        [entry] = await taken(ledger, workflow("Digest", body="a\n"))
        doubles = [workflow("Digest", body="b\n"), workflow("Digest", body="a\n")]
        [armed] = await taken(ledger, *doubles)
        assert (armed.number, armed.digest) == (entry.number, entry.digest)

    @story
    async def test_what_is_done_is_kept_but_not_armed_and_can_be_armed_again(
        self, ledger: Ledger
    ) -> None:
        [entry] = await taken(ledger, workflow("Digest"))
        assert await taken(ledger, workflow("DONE Digest"), now=NOW + DAY) == []
        [found] = await ledger.entries()
        assert isinstance(found.item, Unarmed)
        assert found.item.reason == "its state is DONE"
        [again] = await taken(ledger, workflow("Digest"), now=NOW + 3 * DAY)
        assert again == replace(entry, accounted_to=NOW + 3 * DAY)
        assert await history(ledger, entry) == ["1 skipped: it is not armed: its state is DONE"]

    @story
    async def test_a_single_moment_written_too_late_is_missed(self, ledger: Ledger) -> None:
        [entry] = await taken(ledger, "* Once :workflow:\nSCHEDULED: <2026-04-01 Wed 07:00>\n")
        assert await history(ledger, entry) == ["1 missed: it was written 1h after its time"]
        assert await decided(ledger, entry, NOW + DAY) == []

    @story
    async def test_a_delay_is_due_as_long_as_its_key_has_no_receipt(self, ledger: Ledger) -> None:
        found = [delay("tea", NINE)]
        [entry] = await ledger.scan("triggers", found, now=NOW, term=1)
        await ledger.scan("triggers", [], now=NOW + MINUTE, term=1)
        [back] = await ledger.scan("triggers", found, now=NINE + DAY, term=1)
        assert back.number == entry.number
        [filed] = await decided(ledger, back, NINE + DAY)
        assert (filed.receipt.key, filed.status) == ("delay:tea", Status.WAITING)
        await ledger.scan("triggers", [], now=NINE + DAY, term=1)
        [again] = await ledger.scan("triggers", found, now=NINE + 2 * DAY, term=1)
        assert again.accounted_to == NINE + DAY
        assert await decided(ledger, again, NINE + 3 * DAY) == []

    @story
    async def test_one_source_does_not_touch_the_entries_of_another(self, ledger: Ledger) -> None:
        [org] = await taken(ledger, workflow("Digest"))
        [board] = await ledger.scan("board", plan(workflow("Digest")), now=NOW, term=1)
        assert org.number != board.number
        assert await ledger.scan("board", [], now=NOW, term=1) == []
        assert [each.number for each in await ledger.entries(source="org")] == [org.number]
        assert (await ledger.entries(source="org"))[0].is_armed

    @story
    async def test_a_title_that_no_database_takes_stops_no_other(self, ledger: Ledger) -> None:
        armed = await taken(ledger, workflow("Half \ud800 a pair"), workflow("Digest"))
        assert len(armed) == 2
        assert [each.mark.title for each in await ledger.entries()] == [
            "Half \\ud800 a pair",
            "Digest",
        ]
        before = await last_event(ledger)
        await taken(ledger, workflow("Half \ud800 a pair"), workflow("Digest"))
        assert await last_event(ledger) == before

    @story
    async def test_a_watermark_never_goes_back(self, ledger: Ledger) -> None:
        entry, _ = await waiting(ledger)
        past = NOW - 365 * DAY
        await taken(ledger, workflow("Digest", "*/5 * * * *"), now=past)
        await ledger.pause(entry.number, now=past, term=1)
        await ledger.resume(entry.number, now=past, term=1)
        await taken(ledger, now=past)
        await taken(ledger, workflow("Digest"), now=past)
        await taken(ledger, workflow("DONE Digest"), now=past)
        [last] = await taken(ledger, workflow("Digest"), now=past)
        assert last.accounted_to == NINE


class DecideSuite:
    """One watermark, one receipt for a key."""

    @story
    async def test_a_receipt_says_where_its_text_stood_and_which_it_was(
        self, ledger: Ledger
    ) -> None:
        found = plan(workflow("Digest", "0 9 * * *", "Text.\n", ":RETRY: 3 30s"))
        [entry] = await ledger.scan("org", found, now=NOW, term=1, commit="c0ffee")
        [filed] = await decided(ledger, entry, NINE + SECOND)
        assert filed == await ledger.receipt(filed.number)
        assert filed.receipt.key == "cron:2026-04-01T09:00:00Z"
        assert filed.lateness == SECOND
        assert (filed.origin, filed.digest) == (Origin("plan.org", 1), entry.digest)
        assert filed.commit == "c0ffee"
        assert filed.policy == Policy(retry=Retry(3, timedelta(seconds=30)))

    @story
    async def test_the_same_key_is_decided_once(self, ledger: Ledger) -> None:
        [entry] = await taken(ledger, workflow("Digest"))
        assert await decided(ledger, entry, NINE)
        assert not await decided(ledger, entry, NINE)
        assert (await known(ledger, entry.number)).accounted_to == NINE

    @story
    async def test_of_fifty_who_decide_at_once_one_is_first(self, ledger: Ledger) -> None:
        [entry] = await taken(ledger, workflow("Digest"))
        answers = await asyncio.gather(*(decided(ledger, entry, NINE) for _ in range(50)))
        assert sorted(len(each) for each in answers) == [0] * 49 + [1]
        assert len(await history(ledger, entry)) == 1

    @story
    async def test_a_decision_from_an_old_reading_changes_nothing(self, ledger: Ledger) -> None:
        stamp = "* Rest :workflow:\nSCHEDULED: <2026-04-01 Wed 09:00 .+1d>\n"
        [entry] = await taken(ledger, stamp)
        [filed] = await decided(ledger, entry, NINE)
        read_before_the_end = await known(ledger, entry.number)
        run = await ledger.start(filed.number, now=NINE, term=1)
        assert run
        await ledger.running(run.number, Process(1, 1), now=NINE, term=1)
        await ledger.end(run.number, Status.DONE, reason="it ended", now=NINE + HOUR, term=1)
        skipped = Receipt("at:never", Status.SKIPPED, "why not", NINE + DAY, NINE + DAY)
        step = decide(read_before_the_end, now=NINE)
        step = replace(step, receipts=(skipped,), accounted_to=NINE + DAY)
        stale = Step(read_before_the_end, step)
        assert await ledger.decide([stale], now=NINE + DAY, term=1) == []
        assert await known(ledger, entry.number) == replace(
            read_before_the_end, ended_at=NINE + HOUR
        )

    @story
    async def test_what_was_decided_before_another_was_first_is_not_written(
        self, ledger: Ledger
    ) -> None:
        [entry] = await taken(ledger, workflow("Digest"))
        assert await decided(ledger, entry, NINE)
        # Of two days, read before the first was decided: not even the second is written.
        assert await decided(ledger, entry, NINE + DAY) == []
        assert await history(ledger, entry) == ["1 waiting: its time has come"]

    @story
    async def test_a_key_that_has_a_receipt_gets_no_second_one(self, ledger: Ledger) -> None:
        [entry] = await taken(ledger, workflow("Digest"))
        key = "cron:2026-04-01T09:00:00Z"
        first = await ledger.add(entry.number, asked(key, NOW), now=NOW, term=1)
        assert first
        assert await decided(ledger, entry, NINE) == []
        assert await ledger.receipt(first.number) == first
        assert (await known(ledger, entry.number)).accounted_to == NINE

    @story
    async def test_nothing_is_decided_about_what_rests(self, ledger: Ledger) -> None:
        [entry] = await taken(ledger, workflow("Digest"))
        await ledger.pause(entry.number, now=NOW, term=1)
        assert await decided(ledger, entry, NINE) == []
        assert await history(ledger, entry) == []

    @story
    async def test_a_thousand_entries_are_decided_in_one_step(self, ledger: Ledger) -> None:
        entries = await taken(ledger, *(workflow(f"Digest {n}") for n in range(1000)))
        steps = [Step(entry, decide(entry, now=NINE)) for entry in entries]
        filed = await ledger.decide(steps, now=NINE, term=1)
        assert [each.entry for each in filed] == [entry.number for entry in entries]
        assert await ledger.decide(steps, now=NINE, term=1) == []

    @story
    async def test_many_moments_are_one_receipt_with_a_range(self, ledger: Ledger) -> None:
        [entry] = await taken(ledger, workflow("Poll", "* * * * *"))
        later = NOW + 10 * 365 * DAY
        missed, late = await decided(ledger, entry, later)
        found = await ledger.receipt(missed.number)
        assert found
        assert found.receipt.count == 10 * 365 * 24 * 60 - 1
        assert found.receipt.planned_at == NOW + MINUTE
        assert found.receipt.through_at == later - MINUTE
        assert late.receipt.planned_at == later

    @story
    async def test_the_same_request_gives_the_same_receipt_and_moves_no_watermark(
        self, ledger: Ledger
    ) -> None:
        [entry] = await taken(ledger, workflow("Digest"))
        request = asked("idem:order-7", NINE)
        answers = await asyncio.gather(
            *(ledger.add(entry.number, request, now=NINE, term=1) for _ in range(scaled(2000)))
        )
        assert len({each.number for each in answers if each}) == 1
        assert await known(ledger, entry.number) == entry
        assert await ledger.add(99, request, now=NINE, term=1) is None
        assert await decided(ledger, entry, NINE)
        await taken(ledger, now=NINE)
        other = asked("idem:order-8", NINE)
        assert await ledger.add(entry.number, other, now=NINE, term=1) is None


class RunSuite:
    """The life of a receipt."""

    @story
    async def test_a_run_is_held_until_its_process_is_written_down(self, ledger: Ledger) -> None:
        entry, filed = await waiting(ledger)
        run = await ledger.start(filed.number, now=NINE, term=1)
        assert run
        assert await status(ledger, filed) is Status.STARTING
        assert await ledger.running(run.number, Process(4711, 99), now=NINE, term=1)
        assert await status(ledger, filed) is Status.RUNNING
        ended = await ledger.end(
            run.number, Status.DONE, reason="it ended", exit_code=0, now=NINE + HOUR, term=1
        )
        assert ended
        assert (ended.status, ended.attempts, ended.ended_at) == (Status.DONE, 1, NINE + HOUR)
        [only] = await ledger.runs_of(filed.number)
        assert only.process == Process(4711, 99)
        assert (only.started_at, only.ended_at) == (NINE, NINE + HOUR)
        assert (only.outcome, only.exit_code, only.reason) == (Status.DONE, 0, "it ended")
        assert (await known(ledger, entry.number)).ended_at == NINE + HOUR

    @story
    async def test_of_fifty_who_start_at_once_one_is_first(self, ledger: Ledger) -> None:
        _, filed = await waiting(ledger)
        answers = await asyncio.gather(
            *(ledger.start(filed.number, now=NINE, term=1) for _ in range(50))
        )
        assert sum(run is not None for run in answers) == 1
        assert len(await ledger.runs_of(filed.number)) == 1

    @story
    async def test_what_was_never_let_go_waits_again_and_counts_for_nothing(
        self, ledger: Ledger
    ) -> None:
        _, filed = await waiting(ledger)
        first = await ledger.start(filed.number, now=NINE, term=1)
        assert first
        assert await ledger.give_back(first.number, reason="the engine died", now=NINE, term=1)
        assert not await ledger.give_back(first.number, reason="again", now=NINE, term=1)
        second = await ledger.start(filed.number, now=NINE, term=1)
        assert second
        assert (second.attempt, await status(ledger, filed)) == (2, Status.STARTING)
        assert not await ledger.running(first.number, Process(1, 1), now=NINE, term=1)
        assert await ledger.running(second.number, Process(2, 1), now=NINE, term=1)
        assert not await ledger.give_back(second.number, reason="too late", now=NINE, term=1)
        found = await ledger.receipt(filed.number)
        assert found
        assert found.attempts == 1
        assert (await ledger.runs_of(filed.number))[0].outcome is None

    @pytest.mark.parametrize("outcome", [Status.FAILED, Status.KILLED, Status.INTERRUPTED])
    @story
    async def test_a_bad_end_is_tried_again_as_often_as_retry_says(
        self, ledger: Ledger, outcome: Status
    ) -> None:
        entry, filed = await waiting(ledger, ":RETRY: 2 30s")
        starts = []
        for _ in range(3):
            run = await ledger.start(filed.number, now=NINE, term=1)
            assert run
            assert (await known(ledger, entry.number)).ended_at is None
            await ledger.running(run.number, Process(1, 1), now=NINE, term=1)
            after = await ledger.end(run.number, outcome, reason="bad luck", now=NINE, term=1)
            assert after
            starts.append((after.status, after.receipt.start_at - NINE))
        assert starts == [
            (Status.WAITING, 30 * SECOND),
            (Status.WAITING, 60 * SECOND),
            (outcome, 60 * SECOND),
        ]
        assert [run.outcome for run in await ledger.runs_of(filed.number)] == [outcome] * 3
        assert (await known(ledger, entry.number)).ended_at == NINE

    @story
    async def test_a_good_end_is_not_tried_again(self, ledger: Ledger) -> None:
        _, filed = await waiting(ledger, ":RETRY: 2 30s")
        run = await ledger.start(filed.number, now=NINE, term=1)
        assert run
        await ledger.running(run.number, Process(1, 1), now=NINE, term=1)
        after = await ledger.end(run.number, Status.NO_WORK, reason="none", now=NINE, term=1)
        assert after
        assert after.status is Status.NO_WORK

    @story
    async def test_a_run_that_cannot_be_made_has_failed(self, ledger: Ledger) -> None:
        _, filed = await waiting(ledger, ":RETRY: 1 30s")
        for then in (Status.WAITING, Status.FAILED):
            run = await ledger.start(filed.number, now=NINE, term=1)
            assert run
            reason = "no such program"
            after = await ledger.end(run.number, Status.FAILED, reason=reason, now=NINE, term=1)
            assert after
            assert (after.status, after.receipt.reason) == (then, reason)

    @story
    async def test_what_is_over_stays_as_it_is(self, ledger: Ledger) -> None:
        entry, filed = await waiting(ledger)
        run = await ledger.start(filed.number, now=NINE, term=1)
        assert run
        await ledger.running(run.number, Process(1, 1), now=NINE, term=1)
        done = await ledger.end(run.number, Status.DONE, reason="it ended", now=NINE, term=1)
        late = NINE + HOUR
        assert await ledger.end(run.number, Status.FAILED, reason="no", now=late, term=1) is None
        assert await ledger.start(filed.number, now=late, term=1) is None
        assert not await ledger.hold(filed.number, reason="no", now=late, term=1)
        assert not await ledger.release(filed.number, reason="no", now=late, term=1)
        assert await ledger.receipt(filed.number) == done
        assert (await known(ledger, entry.number)).ended_at == NINE

    @story
    async def test_a_manual_run_does_not_move_the_end_that_rules_count_from(
        self, ledger: Ledger
    ) -> None:
        [entry] = await taken(ledger, workflow("Digest"))
        filed = await ledger.add(entry.number, asked("manual:1", NOW), now=NOW, term=1)
        assert filed
        run = await ledger.start(filed.number, now=NOW, term=1)
        assert run
        await ledger.running(run.number, Process(1, 1), now=NOW, term=1)
        assert await ledger.end(run.number, Status.DONE, reason="it ended", now=NOW, term=1)
        assert await known(ledger, entry.number) == entry

    @story
    async def test_what_is_held_does_not_start_until_it_is_released(self, ledger: Ledger) -> None:
        _, filed = await waiting(ledger)
        assert await ledger.hold(filed.number, reason="no command", now=NINE, term=1)
        assert await ledger.start(filed.number, now=NINE, term=1) is None
        assert await ledger.release(filed.number, reason="there is one", now=NINE, term=1)
        assert await ledger.start(filed.number, now=NINE, term=1)
        assert not await ledger.release(filed.number, reason="again", now=NINE, term=1)

    @story
    async def test_pausing_skips_what_waits_and_resuming_goes_on_from_now(
        self, ledger: Ledger
    ) -> None:
        entry, filed = await waiting(ledger)
        until = NINE + 9 * DAY
        assert await ledger.pause(entry.number, now=NINE, term=1, note="holiday", until=until)
        assert not await ledger.pause(entry.number, now=NINE, term=1)
        assert await status(ledger, filed) is Status.SKIPPED
        edited = workflow("Digest", body="It rests, also when it is edited.\n")
        assert await taken(ledger, edited, now=NINE + DAY) == []
        assert await taken(ledger, workflow("Digest"), now=NINE + DAY) == []
        [found] = await ledger.entries()
        assert found.pause
        assert (found.pause.note, found.pause.until) == ("holiday", until)
        assert await ledger.resume(entry.number, now=NINE + 3 * DAY + HOUR, term=1)
        assert not await ledger.resume(entry.number, now=NINE + 4 * DAY, term=1)
        assert await history(ledger, entry) == [
            "1 skipped: it is paused: holiday",
            "3 skipped: it was paused from 2026-04-01T09:00:00Z to 2026-04-04T10:00:00Z",
        ]
        [again] = await taken(ledger, workflow("Digest"), now=NINE + 4 * DAY)
        assert again.accounted_to == NINE + 3 * DAY + HOUR

    @story
    async def test_what_is_not_settled_is_listed_until_it_is(self, ledger: Ledger) -> None:
        entry, filed = await waiting(ledger)
        assert await ledger.unsettled() == []
        assert await ledger.settle([filed.number], now=NINE, term=1) == 0
        await ledger.pause(entry.number, now=NINE, term=1)
        assert [each.number for each in await ledger.unsettled()] == [filed.number]
        assert await ledger.settle([filed.number], now=NINE, term=1) == 1
        assert await ledger.settle([filed.number], now=NINE, term=1) == 0
        assert await ledger.unsettled() == []


class ReadingSuite:
    """What is read, kept and folded."""

    @story
    async def test_receipts_are_read_page_by_page_newest_first(self, ledger: Ledger) -> None:
        [poll, digest] = await taken(
            ledger, workflow("Poll", "0 * * * *", "", ":CATCHUP: all"), workflow("Digest")
        )
        await decided(ledger, poll, NOW + 10 * HOUR)
        await decided(ledger, digest, NINE)
        seen: list[int] = []
        cursor = None
        while True:
            page = await ledger.receipts(entry=poll.number, cursor=cursor, limit=4)
            seen += [each.number for each in page.receipts]
            cursor = page.cursor
            if cursor is None:
                break
        assert seen == sorted(seen, reverse=True)
        assert len(seen) == 10
        window = await ledger.receipts(since=NINE, until=NINE)
        assert {each.entry for each in window.receipts} == {poll.number, digest.number}
        assert not (await ledger.receipts(statuses=[Status.DONE])).receipts
        assert len((await ledger.receipts(statuses=[Status.WAITING])).receipts) == 11
        both = await ledger.receipts(statuses=[Status.WAITING, Status.DONE], limit=11)
        assert (len(both.receipts), both.cursor) == (11, None)

    @story
    async def test_every_change_is_an_event_in_order(self, ledger: Ledger) -> None:
        entry, filed = await waiting(ledger)
        run = await ledger.start(filed.number, now=NINE, term=1)
        assert run
        await ledger.give_back(run.number, reason="the engine died", now=NINE, term=1)
        await ledger.pause(entry.number, now=NINE, term=1)
        events = await ledger.events_after(0)
        assert [(each.kind, each.facts.get("status")) for each in events] == [
            ("entry_new", None),
            ("receipt", "waiting"),
            ("receipt", "starting"),
            ("receipt", "waiting"),
            ("receipt", "skipped"),
            ("paused", None),
        ]
        assert await ledger.events_after(events[2].number, limit=1) == [events[3]]

    @story
    async def test_a_text_is_kept_under_its_digest(self, ledger: Ledger) -> None:
        odd = "Half \ud800 a pair, \0 and a nothing\r\n"
        await ledger.keep_texts({"d1": odd, "d2": ""}, now=NOW, term=1)
        await ledger.keep_texts({"d1": odd}, now=NOW, term=1)
        assert await ledger.text("d1") == odd
        assert await ledger.text("d2") == ""
        assert await ledger.text("d3") is None

    @story
    async def test_old_receipts_are_folded_and_the_moments_stay_accounted_for(
        self, ledger: Ledger
    ) -> None:
        [entry, idle] = await taken(
            ledger,
            workflow("Poll", "0 * * * *", "", ":CATCHUP: all"),
            "* Asked :workflow:\n",
        )
        texts = {"old": "gone text", entry.digest: "text", idle.digest: "idle text"}
        await ledger.keep_texts(texts, now=NOW, term=1)
        old = await decided(ledger, entry, NOW + 10 * HOUR)
        for filed in old[:-1]:
            run = await ledger.start(filed.number, now=NOW, term=1)
            assert run
            await ledger.running(run.number, Process(1, 1), now=NOW, term=1)
            await ledger.end(run.number, Status.DONE, reason="it ended", now=NOW, term=1)
        await ledger.settle([each.number for each in old[:-2]], now=NOW, term=1)
        year = NOW + 400 * DAY
        before = (await ledger.receipts(entry=entry.number), await ledger.events_after(0))
        dry = await ledger.prune(before=year, now=year, term=1, dry_run=True)
        assert before == (await ledger.receipts(entry=entry.number), await ledger.events_after(0))
        assert await ledger.prune(before=year, now=year, term=1) == dry
        assert (dry.receipts, dry.runs, dry.texts) == (7, 8, 1)
        open_one, unsettled, folded = (await ledger.receipts(entry=entry.number)).receipts
        assert open_one.status is Status.WAITING
        assert unsettled.number == old[-2].number
        assert folded.receipt.count == 8
        assert folded.receipt.planned_at == NOW + HOUR
        assert folded.receipt.through_at == NOW + 8 * HOUR
        assert len(await ledger.runs_of(unsettled.number)) == 1
        kept = [await ledger.text(digest) for digest in texts]
        assert kept == [None, "text", "idle text"]
        assert [each.kind for each in await ledger.events_after(0)] == ["pruned"]
        current = await known(ledger, entry.number)
        assert await decided(ledger, current, NOW + 10 * HOUR) == []

    @story
    async def test_a_delay_that_was_kept_is_never_folded_away(self, ledger: Ledger) -> None:
        year = NOW + 400 * DAY
        for name in ("1", "2", "1", "2"):
            found = [delay("tea", NINE, name=name)]
            for entry in await ledger.scan("triggers", found, now=NOW, term=1):
                await decided(ledger, entry, NINE)
            await ledger.scan("triggers", [], now=NINE, term=1)
            numbers = [each.number for each in await ledger.unsettled()]
            await ledger.settle(numbers, now=NINE, term=1)
            await ledger.prune(before=year, now=year, term=1)
        keys = [each.receipt.key for each in (await ledger.receipts()).receipts]
        assert keys == ["delay:2", "delay:1"]

    @story
    async def test_a_stale_term_changes_nothing(self, ledger: Ledger) -> None:
        entry, filed = await waiting(ledger)
        run = await ledger.start(filed.number, now=NINE, term=1)
        assert run
        number = filed.number

        async def everything() -> object:
            return (
                await ledger.entries(),
                await ledger.receipts(),
                await ledger.runs_of(number),
                await ledger.events_after(0),
                await ledger.text("d"),
            )

        before = await everything()
        late = NINE + DAY
        step = Step(entry, decide(entry, now=late))
        for stale in (0, 2):
            for write in (
                ledger.scan("org", [], now=late, term=stale),
                ledger.decide([step], now=late, term=stale),
                ledger.add(entry.number, asked("manual:1", late), now=late, term=stale),
                ledger.start(number, now=late, term=stale),
                ledger.running(run.number, Process(1, 1), now=late, term=stale),
                ledger.give_back(run.number, reason="", now=late, term=stale),
                ledger.end(run.number, Status.FAILED, reason="", now=late, term=stale),
                ledger.hold(number, reason="", now=late, term=stale),
                ledger.release(number, reason="", now=late, term=stale),
                ledger.settle([number], now=late, term=stale),
                ledger.pause(entry.number, now=late, term=stale),
                ledger.resume(entry.number, now=late, term=stale),
                ledger.keep_texts({"d": "text"}, now=late, term=stale),
                ledger.prune(before=late, now=late, term=stale),
            ):
                with pytest.raises(StaleTermError):
                    await write
        assert await everything() == before


class LedgerSuite(ScanSuite, DecideSuite, RunSuite, ReadingSuite):
    """All that a ledger promises."""
