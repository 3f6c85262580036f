"""The engine decides every moment once, in order and never early, whatever the clock does."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from core.world import (
    DAY,
    HOUR,
    MINUTE,
    NINE,
    NOW,
    SECOND,
    YEARS,
    cron,
    stamped,
    story,
    world,
)
from horae.core.engine import LONGEST_REST
from horae.core.entry import Entry
from horae.core.ports import EntryStep, LedgerBusyError, LedgerWriteError, StaleTermError
from horae.core.receipt import Filed, Receipt, Status
from horae.testing import Ending
from reasons import because
from scale import scaled

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from horae.core.ports import ReceiptPage
    from horae.core.source import Scan


# The life of a moment


@story
async def test_an_entry_goes_from_its_line_to_its_end_through_one_loop_and_one_ledger() -> None:
    async with world(cron("Digest", "0 9 * * *")) as here:
        assert await here.history() == []
        await here.until(NINE)
        [filed] = await here.receipts()
        assert (filed.receipt.key, filed.status) == ("cron:2026-04-01T09:00:00Z", Status.DONE)
        assert (str(filed.origin), filed.decided_at, filed.ended_at) == ("plan.org:1", NINE, NINE)
        events = await here.ledger.events_after(0)
        assert [each.facts["status"] for each in events if each.kind == "receipt"] == [
            "waiting",
            "starting",
            "running",
            "done",
        ]


@story
async def test_nothing_starts_early_not_even_by_a_microsecond() -> None:
    async with world(cron("Digest", "0 9 * * *")) as here:
        await here.until(NINE - timedelta(microseconds=1))
        await here.engine.turn()
        assert await here.history() == []
        await here.advance(timedelta(microseconds=1))
        assert await here.history() == [("04-01 09:00", "done")]


@story
async def test_a_turn_with_nothing_due_writes_nothing() -> None:
    async with world(cron("Digest", "0 9 * * *"), stamped("Water", "<2026-04-02 .+1d>")) as here:
        before = here.ledger._writer.total_changes
        await here.advance(30 * MINUTE)
        assert await here.engine.turn() == here.clock.now() + LONGEST_REST
        assert here.ledger._writer.total_changes == before


@story
async def test_it_never_rests_longer_than_half_a_minute_and_never_past_a_moment() -> None:
    async with world(cron("Digest", "0 9 * * *"), cron("Never", "", ":ID: x")) as here:
        assert await here.engine.turn() == NOW + timedelta(seconds=30)
        await here.until(NINE - 10 * SECOND)
        assert await here.engine.turn() == NINE


@story
async def test_what_is_written_while_it_rests_is_kept_at_once() -> None:
    async with world() as here:
        await here.advance(SECOND)
        await here.write(cron("Soon", "5 0 8 * * *"))
        await here.advance(4 * SECOND)
        assert await here.history() == [("04-01 08:00", "done")]


@story
async def test_a_retry_is_offered_again_when_its_wait_is_over() -> None:
    endings = iter([Ending(Status.FAILED), Ending(Status.FAILED), Ending()])
    async with world(
        cron("Digest", "0 9 * * *", ":RETRY: 2 30s"), script=lambda _: next(endings)
    ) as here:
        await here.until(NINE + 2 * MINUTE)
        assert [now - NINE for now, _ in here.started] == [0 * SECOND, 30 * SECOND, 90 * SECOND]
        assert await here.history() == [("04-01 09:00", "done")]


@story
async def test_a_moment_that_comes_while_the_last_run_goes_on_is_skipped_and_says_so() -> None:
    async with world(cron("Long", "0 * * * *"), script=lambda _: Ending(after=90 * MINUTE)) as here:
        await here.until(NINE + 2 * HOUR)
        assert await here.history() == [
            ("04-01 09:00", "done"),
            ("04-01 10:00", "skipped"),
            ("04-01 11:00", "running"),
        ]
        assert "overlap is skip" in (await here.receipts())[1].receipt.reason


@story
async def test_a_rule_that_counts_from_completion_is_silent_until_there_is_one() -> None:
    async with world(
        stamped("Water", "<2026-04-01 Wed 09:00 .+1d>"), script=lambda _: Ending(after=3 * DAY)
    ) as here:
        await here.until(NINE + 3 * DAY - SECOND)
        assert await here.history() == [("04-01 09:00", "running")]
        await here.until(NINE + 4 * DAY)
        assert await here.history() == [("04-01 09:00", "done"), ("04-05 09:00", "running")]


@story
async def test_a_manual_run_does_not_move_the_next_slot() -> None:
    async with world(stamped("Water", "<2026-04-01 Wed 09:00 .+24h>")) as here:
        await here.until(NINE + HOUR)
        asked = Receipt("manual:1", Status.WAITING, because("requested"), NINE + HOUR, NINE + HOUR)
        here.engine.offer(await here.ledger.add(1, [asked], now=NINE + HOUR, term=1))
        await here.advance(DAY)
        assert here.runs() == [
            "04-01 09:00 at 04-01 09:00",
            "04-01 10:00 at 04-01 10:00",
            "04-02 09:00 at 04-02 09:00",
        ]


# Outages


@pytest.mark.parametrize(
    ("repeater", "missed", "then"),
    [
        ("+1d", ["04-02 09:00", "04-03 09:00", "04-04 09:00"], "04-05 09:00"),
        ("++1d", ["04-04 09:00"], "04-05 09:00"),
        (".+1d", ["04-02 09:00"], "04-05 09:00"),
        (".+24h", ["04-02 09:00"], "04-05 12:00"),
    ],
)
@story
async def test_after_three_days_away_each_repeater_makes_good_what_it_promises(
    repeater: str, missed: list[str], then: str
) -> None:
    async with world(stamped("Water", f"<2026-04-01 Wed 09:00 {repeater}>")) as here:
        await here.until(NINE + HOUR)
        await here.outage(3 * DAY + 2 * HOUR)
        late = [f"{planned} at 04-04 12:00" for planned in missed]
        assert here.runs() == ["04-01 09:00 at 04-01 09:00", *late]
        await here.advance(DAY)
        assert here.runs()[1 + len(late) :] == [f"{then} at {then}"]


@story
async def test_six_missed_hours_leave_six_receipts_one_late_and_five_coalesced_into_it() -> None:
    async with world(stamped("Poll", "<2026-04-01 Wed 09:00 ++1h>")) as here:
        await here.outage(6 * HOUR + 30 * MINUTE)
        receipts = await here.receipts()
        assert [each.status for each in receipts] == [Status.COALESCED] * 5 + [Status.DONE]
        runs = "replaced by the run of 2026-04-01T14:00:00Z, as catch-up is latest"
        assert [each.receipt.reason for each in receipts[:5]] == [runs] * 5
        events = await here.ledger.events_after(0)
        said = [each.facts["reason"] for each in events if each.facts.get("status") == "waiting"]
        assert said == ["the scheduled time was 30m ago; catch-up is latest"]
        assert {str(each.origin) for each in receipts} == {"plan.org:1"}


@story
async def test_ten_years_away_cost_a_few_rows_and_the_entry_goes_on() -> None:
    async with world(
        cron("Poll", "* * * * *"),
        cron("All", "* * * * *", ":CATCHUP: all"),
        cron("Leap", "0 0 29 2 *"),
    ) as here:
        await here.outage(YEARS)
        receipts = await here.receipts()
        assert len(receipts) <= 2 + 11 + 3
        assert sum(each.receipt.count for each in receipts) == 2 * (YEARS // MINUTE) + 3
        assert len(here.started) == 1 + 10
        await here.advance(MINUTE)
        assert len(here.started) == 2 + 11


@story
async def test_what_an_engine_left_waiting_is_offered_by_the_next_in_planned_order() -> None:
    async with world(cron("Late", "30 9 * * *"), cron("Early", "0 9 * * *")) as here:
        await here.down()
        blind = here.new_engine()
        await blind.start()
        blind._is_admitting = False
        await here.advance(2 * HOUR)
        await blind.turn()
        assert [status for _, status in await here.history()] == ["waiting", "waiting"]
        await here.up()
        assert here.runs() == ["04-01 09:00 at 04-01 10:00", "04-01 09:30 at 04-01 10:00"]


# Edits


@story
async def test_a_changed_rule_fires_nothing_past_and_keeps_its_history() -> None:
    async with world(cron("Digest", "0 9 * * *")) as here:
        await here.until(NINE)
        await here.down()
        here.source.files["plan.org"] = cron("Digest", "0 7 * * *")
        await here.advance(3 * DAY)
        await here.up()
        assert await here.history() == [("04-01 09:00", "done"), ("04-02 09:00", "skipped")]
        assert (await here.receipts())[1].receipt.count == 3
        await here.advance(DAY)
        assert await here.history() == [
            ("04-01 09:00", "done"),
            ("04-02 09:00", "skipped"),
            ("04-05 07:00", "done"),
        ]
        assert {each.entry for each in await here.receipts()} == {1}


@story
async def test_an_entry_that_is_removed_is_silent_and_comes_back_as_itself_without_its_past() -> (
    None
):
    async with world(cron("Digest", "0 9 * * *")) as here:
        await here.until(NINE)
        await here.write()
        await here.advance(3 * DAY)
        assert await here.history() == [("04-01 09:00", "done")]
        await here.write(cron("Digest", "0 9 * * *"))
        await here.advance(0 * DAY)
        [_, away] = await here.receipts()
        assert (away.status, away.receipt.count) == (Status.SKIPPED, 3)
        await here.advance(DAY)
        assert here.runs() == ["04-01 09:00 at 04-01 09:00", "04-05 09:00 at 04-05 09:00"]
        assert await here.numbers() == {"Digest": 1}


@story
async def test_a_new_title_and_a_new_file_keep_the_number_and_fire_nothing() -> None:
    text = cron("Digest", "0 9 * * *")
    async with world(text, cron("Other", "0 12 * * *")) as here:
        await here.until(NINE)
        await here.write(text.replace("* Digest", "* Morning digest"), cron("Other", "0 12 * * *"))
        assert await here.numbers() == {"Morning digest": 1, "Other": 2}
        here.source.files["new.org"] = text.replace("* Digest", "* Morning digest")
        await here.write(cron("Other", "0 12 * * *"))
        assert await here.numbers() == {"Morning digest": 1, "Other": 2}
        await here.until(NINE + HOUR)
        assert await here.history() == [("04-01 09:00", "done")]
        await here.until(NINE + DAY)
        assert [str(each.origin) for each in await here.receipts() if each.entry == 1] == [
            "plan.org:1",
            "new.org:1",
        ]


@story
async def test_a_paused_entry_rests_and_goes_on_with_what_comes() -> None:
    async with world(cron("Digest", "0 9 * * *")) as here:
        assert await here.ledger.pause(1, now=here.clock.now(), term=1) == 0
        await here.advance(2 * DAY)
        assert await here.history() == []
        assert await here.ledger.resume(1, now=here.clock.now(), term=1)
        here.engine.poke()
        await here.advance(2 * HOUR)
        assert here.runs() == ["04-03 09:00 at 04-03 09:00"]
        assert [each.receipt.count for each in await here.receipts()] == [2, 1]


@story
async def test_a_pause_ends_by_itself_when_it_was_said_until_when() -> None:
    async with world(cron("Digest", "0 9 * * *")) as here:
        until = NINE + DAY + HOUR
        assert await here.ledger.pause(1, now=here.clock.now(), term=1, until=until) == 0
        await here.advance(4 * DAY)
        assert here.runs() == ["04-03 09:00 at 04-03 09:00", "04-04 09:00 at 04-04 09:00"]
        [entry] = await here.ledger.entries()
        assert entry.pause is None


@story
async def test_an_entry_that_is_only_gone_for_a_moment_was_never_gone() -> None:
    text = cron("Digest", "0 9 * * *")
    async with world(text) as here:
        await here.until(NINE - SECOND)
        await here.write()
        await here.advance(SECOND)
        await here.write(text)
        await here.advance(HOUR)
        assert await here.history() == [("04-01 09:00", "done")]
        kinds = [each.kind for each in await here.ledger.events_after(0)]
        assert "entry_gone" not in kinds


# What the plans no longer hold


@story
async def test_what_was_deleted_while_no_engine_ran_does_not_start_at_the_next_start() -> None:
    async with world(cron("Digest", "0 9 * * *"), cron("Other", "0 22 * * *")) as here:
        await here.down()
        await here.advance(2 * HOUR)
        here.source.files["plan.org"] = cron("Other", "0 22 * * *")
        await here.up()
        await here.advance(MINUTE)
        assert here.started == []
        [filed] = await here.receipts()
        assert (filed.status, filed.receipt.reason) == (Status.SKIPPED, "no longer in the plan")
        assert await here.numbers() == {"Other": 2}


@story
async def test_what_waited_when_the_engine_went_is_skipped_if_it_is_deleted_meanwhile() -> None:
    digest = cron("Digest", "0 9 * * *", ":JITTER: 30m")
    async with world(digest) as here:
        await here.until(NINE)
        assert await here.history() == [("04-01 09:00", "waiting")]
        await here.down()
        here.source.files["plan.org"] = ""
        await here.up()
        await here.advance(HOUR)
        assert here.started == []
        [filed] = await here.receipts()
        assert (filed.status, filed.receipt.reason) == (Status.SKIPPED, "no longer in the plan")


@story
async def test_what_moved_to_another_file_while_no_engine_ran_keeps_its_number() -> None:
    digest = cron("Digest", "0 9 * * *")
    async with world(digest) as here:
        await here.down()
        here.source.files = {"other.org": digest}
        await here.up()
        assert await here.numbers() == {"Digest": 1}
        await here.advance(2 * HOUR)
        assert here.runs() == ["04-01 09:00 at 04-01 09:00"]


@story
async def test_what_the_newest_scan_misses_is_not_decided_until_it_is_there_again() -> None:
    digest = cron("Digest", "0 9 * * *")
    async with world(digest) as here:
        await here.until(NINE - timedelta(seconds=0.5))
        await here.write()
        await here.advance(SECOND)
        assert await here.history() == []
        await here.write(digest)
        await here.advance(0 * SECOND)
        assert await here.history() == [("04-01 09:00", "done")]
        await here.until(NINE + DAY - timedelta(seconds=0.5))
        await here.write()
        await here.advance(MINUTE)
        assert len(here.started) == 1
        assert (await here.receipts())[-1].receipt.reason == "no longer in the plan"


@story
async def test_what_waits_does_not_start_while_the_newest_scan_misses_it() -> None:
    digest = cron("Digest", "0 9 * * *", ":JITTER: 30m")
    async with world(digest) as here:
        await here.until(NINE)
        [filed] = await here.receipts()
        await here.until(filed.receipt.start_at - timedelta(seconds=0.5))
        await here.write()
        await here.advance(SECOND)
        assert here.started == []
        await here.write(digest)
        await here.advance(0 * SECOND)
        assert await here.history() == [("04-01 09:00", "done")]


@story
async def test_without_any_plan_nothing_is_decided_until_one_appears() -> None:
    digest = cron("Digest", "0 9 * * *")
    async with world(digest) as here:
        await here.down()
        here.source.files, here.source.is_bare = {}, True
        await here.up()
        assert here.engine.is_blank
        await here.advance(2 * HOUR)
        assert await here.history() == []
        assert await here.numbers() == {"Digest": 1}
        here.source.is_bare = False
        await here.write(digest)
        await here.advance(SECOND)
        assert here.runs() == ["04-01 09:00 at 04-01 10:00"]


@story
async def test_a_plan_that_is_meant_to_be_empty_lets_its_entries_go() -> None:
    async with world(cron("Digest", "0 9 * * *")) as here:
        await here.down()
        here.source.files, here.source.is_bare = {}, True
        here.engine = here.new_engine()
        here.engine.may_be_empty = True
        await here.engine.start()
        assert not here.engine.is_blank
        assert await here.numbers() == {}


@story
async def test_no_plan_is_no_trouble_if_the_ledger_never_knew_one() -> None:
    async with world() as here:
        here.source.is_bare = True
        await here.write()
        assert not here.engine.is_blank


# What can no longer be read


@story
async def test_what_breaks_runs_its_last_good_text_and_an_alert_follows_once() -> None:
    alert = cron("Tell", "0 0 1 1 *").replace(":SCHEDULE: 0 0 1 1 *", ":AFTER: broken of Digest")
    digest, broken = cron("Digest", "0 9 * * *"), cron("Digest", "0 9 * *")
    async with world(digest, alert) as here:
        await here.write(broken, alert)
        await here.advance(MINUTE)
        await here.write(broken, "\n", alert)
        await here.outage(MINUTE)
        [(_, told)] = here.started
        assert told.receipt.reason.startswith(
            "after Digest (broken): the edited entry cannot be read"
        )
        assert [each.mark.title for each in here.engine.broken] == ["Digest"]
        await here.until(NINE + MINUTE)
        assert [each.title for _, each in here.started] == ["Tell", "Digest"]
        assert await here.ledger.text(here.started[1][1].digest) == digest


# The clock is set


@pytest.mark.parametrize("by", [SECOND, HOUR, DAY, YEARS])
@story
async def test_a_clock_set_forward_is_caught_up_with_once(by: timedelta) -> None:
    async with world(cron("Poll", "0 * * * *")) as here:
        await here.until(NINE)
        here.clock.step(by)
        await here.advance(31 * SECOND)
        assert await here.steps() == [by]
        receipts = await here.receipts()
        assert sum(each.receipt.count for each in receipts) == 1 + by // HOUR
        assert len(here.started) == (1 if by < HOUR else 2)
        assert len(receipts) <= 1 + 24


@pytest.mark.parametrize("by", [SECOND, HOUR, DAY, YEARS])
@story
async def test_a_clock_set_back_fires_nothing_again_and_silences_nobody(by: timedelta) -> None:
    async with world(cron("Poll", "0 * * * *")) as here:
        await here.until(NINE + MINUTE)
        here.clock.step(-by)
        await here.advance(31 * SECOND)
        assert await here.steps() == [-by]
        assert await here.history() == [("04-01 09:00", "done")]
        await here.advance(HOUR)
        again = 0 if by == HOUR else 1  # nine o'clock is over; it does not come a second time
        assert len(here.started) == 1 + again
        await here.advance(HOUR)
        assert len(here.started) == 2 + again
        assert len({each.receipt.planned_at for _, each in here.started}) == len(here.started)


@pytest.mark.parametrize("repeater", ["+1h", "++1h", ".+1h"])
@story
async def test_a_clock_that_was_ten_years_ahead_for_a_while_silences_nobody(repeater: str) -> None:
    async with world(stamped("Poll", f"<2026-04-01 Wed 09:00 {repeater}>")) as here:
        await here.until(NINE + MINUTE)
        here.clock.step(YEARS)
        await here.advance(10 * MINUTE)
        here.clock.step(-YEARS)
        await here.advance(31 * SECOND)
        before = len(here.started)
        await here.advance(2 * HOUR)
        assert len(here.started) >= before + 1
        planned = [each.receipt.planned_at for _, each in here.started]
        assert len(set(planned)) == len(planned)


@story
async def test_a_clock_that_is_only_slewed_is_not_a_step() -> None:
    async with world() as here:
        for _ in range(20):
            here.clock.step(timedelta(milliseconds=15))
            await here.advance(30 * SECOND)
        assert await here.steps() == []


# Many at once


@story
async def test_a_thousand_entries_of_one_second_are_decided_in_one_turn_in_planned_order() -> None:
    many = [cron(f"Job {n}", f"{1 - n % 2} 0 9 * * *") for n in range(1000)]
    async with world() as here:
        await here.down()
        here.source.files["plan.org"] = "".join(many)
        engine = here.new_engine(slots=1000)
        await engine.start()
        await here.until(NINE + SECOND)
        await engine.turn()
        await engine.launch.rest()
        planned = [each.receipt.planned_at for _, each in here.started]
        assert planned == [NINE] * 500 + [NINE + SECOND] * 500
        assert [each.number for _, each in here.started] == [*range(1, 1001)]
        assert [each.entry for _, each in here.started[:3]] == [2, 4, 6]


@story
async def test_more_than_one_batch_is_still_one_turn() -> None:
    count = scaled(40_000) + 1001
    async with world() as here:
        await here.down()
        here.source.files["plan.org"] = "".join(cron(f"Job {n}", "0 9 * * *") for n in range(count))
        engine = here.new_engine()
        await engine.start()
        engine._is_admitting = False
        await here.until(NINE)
        assert await engine.turn() == NINE + LONGEST_REST
        await here.advance(DAY)
        await engine.turn()  # none of them has run, so all of them are in the way
        statuses = [each.status for each in await here.receipts()]
        assert statuses == [Status.WAITING] * count + [Status.SKIPPED] * count


@story
async def test_two_engines_on_one_ledger_decide_each_moment_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    roll = random.Random(1)
    async with world() as here:
        await here.down()
        decide = here.ledger.decide

        async def slow(steps: Sequence[EntryStep], *, now: datetime, term: int) -> list[Filed]:
            await asyncio.sleep(0)  # so that both have read before either writes
            return await decide(steps, now=now, term=term)

        monkeypatch.setattr(here.ledger, "decide", slow)
        here.source.files["plan.org"] = cron("Poll", "*/10 * * * *", ":OVERLAP: allow")
        both = [here.new_engine(), here.new_engine()]
        for engine in both:
            await engine.start()
        for _ in range(36):
            await here.advance(10 * MINUTE)
            roll.shuffle(both)
            wakes = await asyncio.gather(*(engine.turn() for engine in both))
            assert min(wakes) > here.clock.now()
            await asyncio.gather(*(engine.launch.rest() for engine in both))
        planned = [each.receipt.planned_at for _, each in here.started]
        assert planned == [NOW + n * 10 * MINUTE for n in range(1, 37)]
        assert len(await here.receipts()) == 36


# A ledger in trouble


@pytest.mark.parametrize("is_kept", [False, True])
@story
async def test_a_ledger_that_cannot_be_written_makes_runs_late_but_loses_none(
    is_kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [
        LedgerBusyError("ledger", "is locked", remedy="wait"),
        LedgerWriteError("ledger", "the disk reports an error", remedy="look at it"),
    ]
    async with world(cron("Digest", "0 9 * * *")) as here:
        decide = here.ledger.decide

        async def unsteady(steps: Sequence[EntryStep], *, now: datetime, term: int) -> list[Filed]:
            if failures and is_kept:
                await decide(steps, now=now, term=term)  # only the answer is lost
            if failures:
                raise failures.pop()
            return await decide(steps, now=now, term=term)

        monkeypatch.setattr(here.ledger, "decide", unsteady)
        await here.until(NINE)
        assert here.trouble() == "ledger_write"
        assert here.runs() == []
        await here.advance(2 * SECOND)
        assert here.trouble() is None
        assert await here.history() == [("04-01 09:00", "done")]
        assert [now - NINE for now, _ in here.started] == [(1 if is_kept else 2) * SECOND]


@story
async def test_an_engine_whose_term_is_over_stops() -> None:
    async with world(cron("Digest", "0 9 * * *")) as here:
        await here.down()
        with pytest.raises(StaleTermError):
            await here.new_engine(term=2).start()


# All of it together


@pytest.mark.parametrize("seed", range(scaled(400, few=8)))
@story
async def test_whatever_happens_every_moment_has_one_receipt_and_none_is_early(seed: int) -> None:
    roll = random.Random(seed)
    text = cron("Poll", "0 * * * *", ":CATCHUP: all", ":ID: poll")
    async with world(text, script=lambda _: Ending(after=roll.choice([0, 5, 90]) * MINUTE)) as here:
        for _ in range(12):
            match roll.randrange(9):
                case 0:
                    await here.outage(roll.randrange(30) * HOUR)
                case 1:
                    here.clock.step(roll.choice([-SECOND, SECOND, HOUR, DAY]))
                case 2:
                    await here.write(text + f"Said {roll.random()}.\n")
                case 3:
                    await here.write(text.replace("Poll", f"Poll {roll.random()}", 1))
                case 4:
                    await here.write()
                    await here.advance(roll.randrange(300) * MINUTE)
                    await here.write(text)
                case 5:
                    await here.ledger.pause(1, now=here.clock.now(), term=1)
                    await here.advance(roll.randrange(300) * MINUTE)
                    await here.ledger.resume(1, now=here.clock.now(), term=1)
                    here.engine.poke()
                case _:
                    await here.advance(roll.randrange(1, 600) * MINUTE)
        await here.advance(MINUTE)
        receipts = await here.receipts()
        [known] = await here.ledger.entries()
        assert isinstance(known.item, Entry)
        watermark = known.item.accounted_to
        assert watermark is not None
        assert sum(each.receipt.count for each in receipts) == (watermark - NOW) // HOUR
        ends = [each.receipt.through_at or each.receipt.planned_at for each in receipts]
        starts = [each.receipt.planned_at for each in receipts]
        assert all(start > end for start, end in zip(starts[1:], ends, strict=False))
        assert all(each.lateness >= 0 * SECOND for each in receipts)
        assert watermark >= here.clock.now() - HOUR


# Scans that are asked for


@story
async def test_what_is_asked_for_while_a_scan_goes_on_is_read_by_another_scan() -> None:
    async with world(cron("Digest", "0 9 * * *")) as here:
        read, slow = here.source.scan, asyncio.Event()
        reads: list[int] = []

        async def scan(index: Mapping[str, str]) -> Scan:
            found = await read(index)  # the files are read here, and what comes after is late
            reads.append(len(found.entries))
            if len(reads) == 1:
                await slow.wait()
            return found

        here.source.scan = scan  # type: ignore[method-assign]
        here.engine.request("org")
        await here.advance(SECOND)
        here.source.files["plan.org"] += cron("Soon", "0 9 * * *")
        for _ in range(5):
            here.engine.request("org")
        await here.advance(SECOND)
        slow.set()
        await here.advance(SECOND)
        assert reads == [1, 2]  # one more is enough for all who asked
        titles = [each.mark.title for each in await here.ledger.entries()]
        assert titles == ["Digest", "Soon"]


@story
async def test_what_is_asked_for_as_a_scan_ends_is_not_lost() -> None:
    async with world(cron("Digest", "0 9 * * *")) as here:
        read = here.source.scan
        reads: list[int] = []

        async def scan(index: Mapping[str, str]) -> Scan:
            reads.append(1)
            return await read(index)

        here.source.scan = scan  # type: ignore[method-assign]
        here.engine.request("org")
        task = here.engine._readers["org"].request
        assert task is not None
        # The first callback of a task that is done runs before all that it wakes.
        task.add_done_callback(lambda _: here.engine.request("org"))
        await here.advance(SECOND)
        assert len(reads) == 2


# Alerts


ALARM = "* Alarm :workflow:\n:PROPERTIES:\n:AFTER: failed of all\n:END:\nTell somebody.\n"


def fails(filed: Filed) -> Ending:
    return Ending(Status.DONE if filed.title == "Alarm" else Status.FAILED)


@story
async def test_an_alarm_whose_rest_is_over_is_told_again() -> None:
    async with world(cron("Hourly", "0 * * * *"), ALARM, script=fails) as here:
        await here.until(NINE + MINUTE)  # by now the engine knows who follows whom
        [alarm] = [e.number for e in await here.ledger.entries() if e.mark.title == "Alarm"]
        until = NINE + 90 * MINUTE
        await here.ledger.pause(alarm, now=here.clock.now(), term=1, until=until)
        here.engine.note_change()
        await here.until(NINE + 2 * HOUR + MINUTE)
        told = [each for each in await here.receipts() if each.title == "Alarm"]
        assert [each.decided_at for each in told] == [NINE, NINE + 2 * HOUR]


@story
async def test_a_scan_while_an_alert_is_looked_for_does_not_end_the_engine() -> None:
    async with world(cron("Digest", "0 9 * * *"), ALARM, script=fails) as here:
        receipts = here.ledger.receipts

        async def scanned(**asked: Any) -> ReceiptPage:
            if asked.get("cursor") is not None:  # what came before the one that failed
                await here.engine.rescan("org")
            return await receipts(**asked)

        here.ledger.receipts = scanned  # type: ignore[method-assign]
        await here.until(NINE + MINUTE)
        here.ledger.receipts = receipts  # type: ignore[method-assign]
        told = [each.title for each in await here.receipts()]
        assert told == ["Digest", "Alarm"]
