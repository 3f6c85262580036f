"""The service answers what is, what was and why, and files what people ask for."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import wraps
from itertools import count
from typing import TYPE_CHECKING, ParamSpec

import pytest
from hypothesis import example, given, strategies as st
from msgspec import to_builtins

import one_run
from horae.core.actor import acting
from horae.core.decide import GRACE, decide
from horae.core.entry import Entry, Origin, Policy, Unarmed, key_time
from horae.core.explain import AskedMomentError, WhyQuestion, answers, line_of, parse_ask
from horae.core.ports import EntryStep, Listed, Process
from horae.core.project import Moment, project
from horae.core.receipt import Filed, Reason, ReasonCode, Receipt, Status
from horae.core.service import MOST, Service
from horae.core.source import Mark, Scan
from horae.core.views import (
    AmbiguousEntryError,
    EngineFacts,
    EntryNotFoundError,
    EntryStateError,
    RequestError,
    RunNotFoundError,
    RunStateError,
)
from horae.errors import HoraeError
from horae.org.document import read
from horae.sources.plans.arming import scan_plan
from horae.store.sqlite import SqliteLedger
from horae.testing import ManualClock
from reasons import because
from scale import scaled

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from horae.core.views import WhyLines

P = ParamSpec("P")

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
DEEDS = ("remove", "bring back", "pause", "resume", "pass", "fail")
ENGINE = EngineFacts(is_running=True, directory=".horae", pid=7, since="2026-04-01T08:00:00Z")


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


NOW = at("2026-04-01T08:00Z")
NINE = at("2026-04-01T09:00Z")


def story(test: Callable[P, Coroutine[object, object, None]]) -> Callable[P, None]:
    """Run a test that waits for things."""

    @wraps(test)
    def told(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return told


def cron(title: str = "Digest", when: str = "0 9 * * *", *properties: str) -> str:
    drawer = "".join(f"{each}\n" for each in (f":SCHEDULE: {when}", *properties))
    return f"* {title} :workflow:\n:PROPERTIES:\n{drawer}:END:\nDo it: {title}.\n"


class Office:
    """A service on a ledger of its own, in a time of our own."""

    def __init__(self, ledger: SqliteLedger) -> None:
        self.ledger = ledger
        self.clock = ManualClock(NOW)
        self.pokes = 0
        names = count(1)
        self.service = Service(
            ledger=ledger, clock=self.clock, ids=lambda: f"id{next(names)}", poke=self._poke
        )

    def _poke(self) -> None:
        self.pokes += 1

    async def scan(self, *workflows: str, file: str = "plan.org") -> None:
        """Let the ledger take over a plan; what is missing from it is gone at once."""
        found = scan_plan(read("".join(workflows)), file=file, zone_name="UTC")
        scan, now = Scan(tuple(found)), self.clock.now()
        await self.ledger.scan("org", scan, now=now, term=1)
        await self.ledger.scan("org", scan, now=now, term=1, patience=timedelta(0))

    async def decide(self, to: datetime) -> list[Filed]:
        """Let time pass to a moment, and decide what has come due then."""
        self.clock.step(to - self.clock.now())
        steps = [
            EntryStep(due.entry, decide(due.entry, now=to, is_busy=due.is_busy))
            for due in await self.ledger.due(now=to)
        ]
        return await self.ledger.decide(steps, now=to, term=1)

    async def filed_now(self, title: str) -> Filed:
        return await self.service.filed((await self.service.run_now(title)).receipt)

    async def run(
        self,
        filed: Filed,
        outcome: Status | None = Status.DONE,
        reason: Reason | None = None,
    ) -> None:
        """Start a run, and end it a minute later unless it goes on."""
        now = self.clock.now()
        run = await one_run.start(self.ledger, filed.number, now=now, term=1)
        assert run is not None
        await one_run.running(self.ledger, run.number, Process(1, 1), now=now, term=1)
        if outcome is not None:
            self.clock.step(MINUTE)
            now = self.clock.now()
            why = reason or because("so it went")
            await one_run.end(self.ledger, run.number, outcome, reason=why, now=now, term=1)

    async def why(self, text: str) -> WhyLines:
        said = await self.service.why(parse_ask(text))
        json.dumps(to_builtins(said))
        return said

    async def said(self, text: str) -> list[str]:
        return [each.said for each in (await self.why(text)).answers]

    async def keys(self, word: str) -> list[str]:
        lines = (await self.service.history(word)).receipts
        return [line.key for line in reversed(lines)]


@asynccontextmanager
async def office(*workflows: str) -> AsyncIterator[Office]:
    ledger = await SqliteLedger.in_memory()
    opened = Office(ledger)
    if workflows:
        await opened.scan(*workflows)
    try:
        yield opened
    finally:
        await ledger.close()


# Names


@story
async def test_an_entry_goes_by_number_id_title_and_place() -> None:
    async with office(cron("Water"), cron("Digest", "0 9 * * *", ":ID: digest-1")) as here:
        number = (await here.service.named("Digest")).number
        for word in (str(number), "digest-1", "plan.org:6", "DIGEST"):
            assert (await here.service.named(word)).number == number


@story
async def test_a_name_of_several_entries_lists_them() -> None:
    async with office() as here:
        found = (
            *scan_plan(read(cron()), file="a.org", zone_name="UTC"),
            *scan_plan(read("\n" + cron()), file="b.org", zone_name="UTC"),
        )
        await here.ledger.scan("org", Scan(found), now=NOW, term=1)
        with pytest.raises(AmbiguousEntryError) as error:
            await here.service.named("Digest")
        assert [each["file"] for each in error.value.candidates] == ["a.org", "b.org"]
        assert "a.org:1" in str(error.value)
        assert "b.org:2" in str(error.value)
        assert json.dumps(error.value.data())


@story
async def test_one_that_is_still_there_is_meant_before_one_that_is_gone() -> None:
    async with office(cron("Digest", "0 9 * * *")) as here:
        await here.scan()
        await here.scan("* Other :workflow:\n", cron("Digest", "0 7 * * MON"), file="new.org")
        assert (await here.service.named("Digest")).item.origin.file == "new.org"


@story
async def test_an_unknown_name_is_answered_with_near_ones() -> None:
    async with office(cron("Nightly digest"), cron("Water the beans")) as here:
        with pytest.raises(EntryNotFoundError, match="did you mean 'Nightly digest'"):
            await here.service.named("nightly digst")
        with pytest.raises(EntryNotFoundError, match="'Water the beans'"):
            await here.service.named("BEANS")
        with pytest.raises(EntryNotFoundError, match="`horae list` shows"):
            await here.service.named("7")


# Status


@story
async def test_a_status_says_what_runs_waits_and_comes() -> None:
    async with office(cron("Digest"), cron("Water"), cron("Late one", "30 9 * * *")) as here:
        [one, _] = await here.decide(NINE)
        await here.run(one, None)
        stands = await here.service.status(ENGINE)
        assert stands.counts == {
            Status.WAITING: 1,
            Status.HELD: 0,
            Status.STARTING: 0,
            Status.RUNNING: 1,
        }
        assert [line.title for line in stands.running] == ["Digest"]
        assert [line.title for line in stands.waiting] == ["Water"]
        assert [(each.title, each.next_at) for each in stands.next] == [
            ("Late one", at("2026-04-01T09:30Z")),
            ("Digest", NINE + DAY),
            ("Water", NINE + DAY),
        ]
        assert (stands.entries, stands.problems) == (3, ())
        assert to_builtins(stands)["engine"]["running"] is True


@story
async def test_a_status_says_what_was_late_missed_or_failed_in_the_last_day() -> None:
    async with office(
        cron("Digest"), cron("Poll", "0 * * * *", ":CATCHUP: none"), cron("Fail")
    ) as here:
        filed = await here.decide(NINE + timedelta(minutes=5))
        for each in filed:
            if each.title == "Fail":
                await here.run(each, Status.FAILED)
            if each.title == "Digest":
                await here.run(each, Status.KILLED, Reason(ReasonCode.CANCELLED, "cancelled"))
        stands = await here.service.status(ENGINE)
        assert [line.title for line in stands.late] == ["Fail", "Digest"]
        assert stands.late[0].late == timedelta(minutes=5)
        assert [line.title for line in stands.missed] == ["Poll"]
        assert [line.title for line in stands.failed] == ["Fail"]
        await here.decide(NINE + 3 * HOUR)
        [poll] = (await here.service.status(ENGINE)).missed
        assert (poll.times, poll.planned_at) == (3, NINE + 2 * HOUR)
        here.clock.step(DAY + 4 * HOUR)
        stands = await here.service.status(ENGINE)
        assert (stands.missed, stands.failed) == ((), ())


@story
async def test_a_status_says_what_rests_and_what_is_not_armed_and_why() -> None:
    async with office(cron("Digest"), cron("Never", "0 0 30 2 *")) as here:
        await here.service.pause("Digest", note="away")
        stands = await here.service.status(ENGINE)
        [rests] = stands.paused
        assert rests.pause is not None
        assert (rests.title, rests.pause.note) == ("Digest", "away")
        [never] = stands.unarmed
        assert never.title == "Never"
        assert never.reason
        assert (stands.entries, stands.next) == (0, ())


@story
async def test_what_has_come_and_is_not_decided_is_a_problem() -> None:
    async with office(cron("Digest")) as here:
        here.clock.step(2 * HOUR)
        nobody = EngineFacts(is_running=False, directory=".horae")
        [problem] = (await here.service.status(nobody)).problems
        assert problem == (
            "1 entry has scheduled times that passed without a decision: "
            "no engine is running; start one with `horae up`"
        )


@story
async def test_an_engine_has_a_minute_to_decide_about_what_came_before_it() -> None:
    async with office(cron("Digest")) as here:
        here.clock.step(2 * HOUR)
        now = here.clock.now()
        begins = EngineFacts(True, ".horae", since=key_time(now - GRACE / 2))
        assert (await here.service.status(begins)).problems == ()
        begun = replace(begins, since=key_time(now - 2 * GRACE))
        [problem] = (await here.service.status(begun)).problems
        assert problem.endswith("passed without a decision: the engine is falling behind")


@story
async def test_an_entry_that_fails_again_and_again_is_a_problem() -> None:
    async with office(cron("Digest")) as here:
        for day in range(3):
            [filed] = await here.decide(NINE + day * DAY)
            await here.run(filed, Status.FAILED)
        [problem] = (await here.service.status(ENGINE)).problems
        assert problem.startswith("Digest (plan.org:1) failed 3 times in a row")


@story
async def test_a_status_shows_no_more_than_it_was_asked_for() -> None:
    many = scaled(200) + 5
    async with office(*(cron(f"Entry {n}") for n in range(many))) as here:
        await here.decide(NINE + HOUR)
        stands = await here.service.status(ENGINE, limit=4)
        assert [len(each) for each in (stands.waiting, stands.next, stands.late)] == [4, 4, 4]
        assert stands.counts[Status.WAITING] == many


@story
async def test_a_status_reads_no_entry_that_it_does_not_show() -> None:
    async with office(*(cron(f"Task {n}", f"0 {9 + n % 9} * * *") for n in range(60))) as here:
        listed = here.ledger.entries

        async def refuse(**_: object) -> list[Listed]:
            raise AssertionError("every entry is read")

        here.ledger.entries = refuse  # type: ignore[method-assign]
        stands = await here.service.status(ENGINE, limit=5)
        here.ledger.entries = listed  # type: ignore[method-assign]
        assert (stands.entries, len(stands.next)) == (60, 5)


@given(st.lists(st.tuples(st.sampled_from(DEEDS), st.integers(0, 7)), max_size=25))
def test_a_status_counts_what_a_look_at_every_entry_counts(deeds: list[tuple[str, int]]) -> None:
    asyncio.run(counted(deeds))


async def counted(deeds: list[tuple[str, int]]) -> None:
    plans = [cron(f"Task {n}", f"0 {9 + n % 3} * * *", f":ID: t{n}") for n in range(6)]
    plans += [
        cron("Odd", "0 25 * * *", ":ID: t6"),
        "* Asked :workflow:\n",
        cron("End", "0 9 * * *"),
    ]
    there = dict.fromkeys(range(len(plans)))
    async with office(*plans) as here:
        for deed, which in deeds:
            await do(here, deed, which, plans, there)
        now = here.clock.now()
        stands = await here.service.status(ENGINE, limit=100)
        entries = [each for each in await here.ledger.entries() if each.gone_at is None]
        armed = [each for each in entries if each.is_armed]
        late = [each for each in armed if each.next_at and each.next_at < now - GRACE]
        assert stands.entries == len(armed)
        assert {each.entry for each in stands.next} == {e.number for e in armed if e.next_at}
        assert [each.entry for each in stands.paused] == [e.number for e in entries if e.pause]
        assert [each.entry for each in stands.unarmed] == [
            each.number for each in entries if not isinstance(each.item, Entry)
        ]
        said = [each for each in stands.problems if "passed without a decision" in each]
        assert [each.split()[0] for each in said] == [str(len(late))] * bool(late)
        failing = [each for each in stands.problems if "times in a row" in each]
        assert len(failing) == sum(each.failures >= 3 for each in entries)


async def do(here: Office, deed: str, which: int, plans: list[str], there: dict[int, None]) -> None:
    """Do one of the things that change how an entry stands."""
    now = here.clock.now()
    match deed:
        case "remove" | "bring back":
            there.pop(which, None) if deed == "remove" else there.setdefault(which)
            await here.scan(*(plans[each] for each in sorted(there)))
        case "pause":
            await here.ledger.pause(which + 1, now=now, term=1)
        case "resume":
            await here.ledger.resume(which + 1, now=now, term=1)
        case "pass":
            here.clock.step(which * HOUR)
        case "fail":
            for filed in await here.decide(now):
                if filed.status is Status.WAITING:
                    await here.run(filed, Status.FAILED)


# why


@story
async def test_why_tells_what_was_decided_and_how_its_runs_went() -> None:
    async with office(cron("Digest", "0 9 * * *", ":RETRY: 3 30s")) as here:
        [filed] = await here.decide(NINE + timedelta(minutes=7))
        await here.run(filed)
        [answer] = (await here.why("Digest@2026-04-01T09:00")).answers
        assert answer.said == "done: so it went"
        assert [run.outcome for run in answer.runs or ()] == [Status.DONE]
        [data] = to_builtins(await here.why("Digest@2026-04-01T09:00"))["answers"]
        assert data["late_seconds"] == 420
        assert (data["file"], data["line"], data["key"]) == (
            "plan.org",
            1,
            "cron:2026-04-01T09:00:00Z",
        )
        assert "up to 3 retries" in str(data["policy"])


@story
async def test_a_range_answers_for_every_moment_in_it() -> None:
    async with office(cron("Poll", "* * * * *")) as here:
        await here.decide(NOW + 10 * HOUR)
        [answer] = (await here.why("Poll@2026-04-01T11:11")).answers
        assert answer.count == 599
        assert answer.said.startswith("coalesced: ")


@story
async def test_a_time_that_is_no_moment_is_told_its_neighbours() -> None:
    async with office(cron("Digest")) as here:
        said = await here.why("Digest@2026-04-03T12:00")
        assert [each.said for each in said.answers] == ["not a scheduled time of the rule"]
        assert (said.before, said.after) == (NINE + 2 * DAY, NINE + 3 * DAY)


@story
async def test_a_moment_to_come_is_said_to_come() -> None:
    async with office(cron("Digest")) as here:
        assert await here.said("Digest@2026-04-01T09:00") == ["scheduled in 1h"]


@story
async def test_a_moment_from_before_the_entry_was_seen_is_not_run() -> None:
    async with office(cron("Digest")) as here:
        [said] = await here.said("Digest@2026-03-30T09:00")
        assert said.startswith("the entry was first seen later, at 2026-04-01 Wed 08:00 UTC")


@story
async def test_a_moment_under_a_pause_is_said_to_be_skipped() -> None:
    async with office(cron("Digest")) as here:
        with acting("token:ops"):
            await here.service.pause("Digest", note="away")
        [coming] = await here.said("Digest@2026-04-02T09:00")
        assert (
            "is paused by token ops, since 2026-04-01 Wed 08:00 UTC (away): this time will be"
            in coming
        )
        here.clock.step(2 * HOUR)
        [past] = await here.said("Digest@2026-04-01T09:00")
        assert past.endswith("this time is skipped on resume")
        await here.service.resume("Digest")
        [skipped] = await here.said("Digest@2026-04-01T09:00")
        assert skipped.startswith("skipped: paused from")


@story
async def test_a_pause_that_ends_before_a_moment_does_not_skip_it() -> None:
    async with office(cron("Digest")) as here:
        await here.service.pause("Digest", until=timedelta(hours=2))
        assert await here.said("Digest@2026-04-02T09:00") == ["scheduled in 1d1h"]


@story
async def test_a_moment_that_has_come_and_is_not_decided_says_so() -> None:
    async with office(cron("Digest")) as here:
        here.clock.step(2 * HOUR)
        [said] = await here.said("Digest@2026-04-01T09:00")
        assert said.startswith("due 1h ago and not decided yet")


@story
async def test_a_moment_after_the_entry_is_gone_says_so() -> None:
    async with office(cron("Digest")) as here:
        await here.scan()
        assert await here.said("Digest@2026-04-01T09:00") == [
            "the entry was removed at 2026-04-01 Wed 08:00 UTC"
        ]


@story
async def test_an_entry_that_is_not_armed_says_why() -> None:
    async with office(cron("Never", "0 0 30 2 *")) as here:
        [said] = await here.said("Never@2026-04-01T09:00")
        assert said.startswith("the entry is not armed: ")


@story
async def test_a_receipt_of_an_older_rule_says_that_the_rule_was_another() -> None:
    async with office(cron("Digest", "0 9 * * *")) as here:
        await here.decide(NINE)
        here.clock.step(HOUR)
        await here.scan(cron("Digest", "30 10 * * *"))
        [old] = await here.said("Digest@2026-04-01T09:00")
        assert old.endswith("the current rule does not include this time")


@story
async def test_a_moment_that_only_the_new_rule_names_has_no_receipt_and_says_why() -> None:
    async with office(cron("Digest", "0 9 * * *")) as here:
        here.clock.step(10 * HOUR)
        await here.scan(cron("Digest", "30 10 * * *"))
        [said] = await here.said("Digest@2026-04-01T10:30")
        assert said.startswith("the entry had another rule at that time")


@story
async def test_a_time_without_a_zone_is_in_the_zone_of_the_entry() -> None:
    async with office(cron("Digest", "0 9 * * *", ":TZ: America/New_York")) as here:
        await here.decide(at("2026-04-01T13:00Z"))
        for when in ("2026-04-01T09:00", "2026-04-01T13:00:00Z", "2026-04-01T15:00:00+02:00"):
            [answer] = (await here.why(f"Digest@{when}")).answers
            assert answer.receipt is not None
            [told] = to_builtins(await here.why(f"Digest@{when}"))["answers"]
            assert told["at"] == "2026-04-01T09:00:00-04:00"


@story
async def test_a_date_alone_asks_for_the_whole_day_of_the_zone() -> None:
    async with office(cron("Digest", "0 */8 * * *", ":TZ: America/New_York")) as here:
        await here.decide(at("2026-04-01T12:00Z"))
        said = await here.why("Digest@2026-04-01")
        assert [each.at for each in said.answers] == [
            at("2026-04-01T04:00Z"),
            at("2026-04-01T12:00Z"),
            at("2026-04-01T20:00Z"),
        ]


@story
async def test_a_name_alone_asks_for_the_last_moment_and_the_next() -> None:
    async with office(cron("Digest")) as here:
        assert await here.said("Digest") == ["scheduled in 1h"]
        [filed] = await here.decide(NINE)
        await here.run(filed)
        last_and_next = ["done: so it went", "scheduled in 23h59m"]
        assert await here.said("Digest") == last_and_next
        await here.service.backfill("Digest", start=NOW - 9 * DAY)
        assert await here.said("Digest") == last_and_next


@story
async def test_the_next_moment_may_have_come_already() -> None:
    async with office(cron("Digest")) as here:
        here.clock.step(2 * HOUR)
        [said] = await here.said("Digest")
        assert said.startswith("due 1h ago and not decided yet")


@story
async def test_a_moment_that_followed_an_end_is_not_taken_for_another_rule() -> None:
    async with office("* Rest :workflow:\nSCHEDULED: <2026-04-01 Wed 09:00 .+2d>\n") as here:
        [filed] = await here.decide(NINE)
        await here.run(filed)
        assert await here.said("Rest@2026-04-01T09:00") == ["done: so it went"]
        [_, coming] = await here.said("Rest")
        assert coming.startswith("scheduled in ")


@story
async def test_a_long_answer_is_cut_and_says_so() -> None:
    async with office(cron("Poll", "* * * * *")) as here:
        said = await here.service.why(parse_ask("Poll@2026-04-02"), limit=5)
        assert (len(said.answers), said.more) == (5, True)


@given(
    word=st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1).filter(
        lambda text: text == text.strip()
    ),
    moment=st.datetimes(),
)
def test_whatever_stands_before_the_last_at_sign_is_the_name(word: str, moment: datetime) -> None:
    second = moment.replace(microsecond=0)
    assert parse_ask(f"{word}@{second.isoformat()}") == WhyQuestion(word, second)
    aware = second.replace(tzinfo=UTC)
    assert parse_ask(f"{word}@{second.isoformat()}Z") == WhyQuestion(word, aware)
    day = second.replace(hour=0, minute=0, second=0)
    assert parse_ask(f"{word}@{second.date().isoformat()}") == WhyQuestion(word, day, DAY)


@pytest.mark.parametrize("when", ["2026-13-01", "2026-04-01T25:00", "2026-04-01T09", "2026-04"])
def test_what_looks_like_a_date_and_is_none_is_refused(when: str) -> None:
    with pytest.raises(AskedMomentError, match="is not a time; write it like"):
        parse_ask(f"Digest@{when}")


def test_an_hour_that_a_clock_change_leaves_out_still_asks_for_some_time() -> None:
    ask = parse_ask("Digest@2026-03-29T02:30")
    window = ask.window("Europe/Berlin")
    assert window is not None
    assert window.start == at("2026-03-29T01:00Z")
    assert window.end > window.start


@given(
    receipts=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20), st.booleans())),
    asked=st.integers(0, 80),
)
@example(receipts=[(5, 3, True)], asked=8)
@example(receipts=[(0, 20, True), (5, 3, True)], asked=15)
def test_a_moment_is_kept_if_any_receipt_of_the_plan_reaches_over_it(
    receipts: list[tuple[int, int, bool]], asked: int
) -> None:
    def filed(start: int, length: int, *, is_own: bool) -> Filed:
        planned = NOW + start * MINUTE
        through = planned + length * MINUTE if length else None
        key = f"{'cron' if is_own else 'manual'}:{start}"
        receipt = Receipt(key, Status.MISSED, because(""), planned, planned, through, length + 1)
        return Filed(1, 1, receipt, NOW, Origin("plan.org", 1), "", None, Policy())

    told = [line_of(filed(start, length, is_own=own), [], "UTC") for start, length, own in receipts]
    reaches = [start <= asked <= start + length for start, length, own in receipts if own]
    mark = Mark("plan.org::Digest", "Digest", "", "")
    unarmed = Unarmed(mark.address, Origin("plan.org", 1), "Digest", "it is not an entry")
    found = Listed(1, "org", mark, unarmed, NOW)
    moment = Moment(NOW + asked * MINUTE, "cron:asked")
    said = answers(found, told, [moment], now=NOW + 90 * MINUTE)
    assert all(each.receipt is not None for each in said) is any(reaches)


# History


@story
async def test_an_edit_that_cannot_be_read_hides_no_run() -> None:
    async with office(cron()) as here:
        [first] = await here.decide(NINE)
        await here.run(first)
        await here.scan(cron(when="61 * * * *"))
        [edit, _] = (await here.service.history("Digest")).receipts
        assert edit.key.startswith("broken:")
        last = await here.service.last(first.entry)
        assert (last and last.receipt, (await here.said("Digest"))[0]) == (
            first.number,
            "done: so it went",
        )
        edited = f"Digest@{edit.planned_at:%Y-%m-%d}"
        assert any(each.startswith("edited: ") for each in await here.said(edited))


@story
async def test_a_history_is_newest_first_and_its_cursor_leads_through_all_of_it() -> None:
    async with office(cron("Digest"), cron("Water")) as here:
        days = scaled(100) + 4
        for day in range(days):
            await here.decide(NINE + day * DAY)
        seen: list[int] = []
        cursor = None
        while True:
            page = await here.service.history("Water", limit=3, cursor=cursor)
            seen += [line.receipt for line in page.receipts]
            cursor = page.cursor
            if cursor is None:
                break
        assert len(seen) == len(set(seen)) == days
        assert seen == sorted(seen, reverse=True)


@story
async def test_a_history_can_be_narrowed() -> None:
    async with office(cron("Digest"), cron("Poll", "0 * * * *", ":CATCHUP: none")) as here:
        await here.decide(NINE + 5 * MINUTE)
        await here.decide(NINE + 65 * MINUTE)
        missed = await here.service.history(statuses=[Status.MISSED])
        assert [line.title for line in missed.receipts] == ["Poll", "Poll"]
        early = await here.service.history(until=NINE)
        assert {line.planned_at for line in early.receipts} == {NINE}
        with pytest.raises(RequestError, match=r"the period .* is empty|the period is empty"):
            await here.service.history(since=NINE, until=NOW)


# Requests


@story
async def test_a_pause_may_last_for_a_while_and_pokes_the_engine() -> None:
    async with office(cron("Digest")) as here:
        rest = await here.service.pause("Digest", note="away", until=timedelta(hours=2))
        assert rest.pause is not None
        assert (rest.changed, rest.pause.until) == (True, NOW + 2 * HOUR)
        assert here.pokes == 1
        assert to_builtins(rest)["pause"]["until"] == "2026-04-01T10:00:00Z"


@story
async def test_pausing_twice_changes_nothing_and_to_pause_otherwise_is_refused() -> None:
    async with office(cron("Digest")) as here:
        await here.service.pause("Digest")
        assert (await here.service.pause("Digest")).changed is False
        with pytest.raises(
            EntryStateError, match=r"already paused by the engine, since .*; resume it before"
        ):
            await here.service.pause("Digest", note="another reason")


@story
async def test_a_pause_says_how_many_waiting_runs_it_skips() -> None:
    async with office(cron()) as here:
        await here.service.backfill("Digest", start=NOW - 3 * DAY)
        said = await here.service.pause("Digest")
        assert (said.changed, said.skipped, to_builtins(said)["skipped"]) == (True, 3, 3)
        assert (await here.service.pause("Digest")).skipped == 0
        assert "skipped" not in to_builtins(await here.service.resume("Digest"))


@story
async def test_a_pause_cannot_end_in_the_past() -> None:
    async with office(cron("Digest")) as here:
        with pytest.raises(RequestError, match="2026-04-01 Wed 08:00 UTC is in the past"):
            await here.service.pause("Digest", until=NOW)


@story
async def test_what_is_gone_neither_rests_nor_goes_on_nor_runs() -> None:
    async with office(cron("Digest")) as here:
        await here.scan()
        for asked in (
            here.service.pause("Digest"),
            here.service.resume("Digest"),
            here.service.run_now("Digest"),
            here.service.backfill("Digest", start=NOW - DAY),
        ):
            with pytest.raises(EntryStateError, match="the entry was removed at"):
                await asked


@story
async def test_a_resumed_entry_goes_on_from_now() -> None:
    async with office(cron("Digest")) as here:
        assert (await here.service.resume("Digest")).changed is False
        await here.service.pause("Digest")
        here.clock.step(2 * HOUR)
        rest = await here.service.resume("Digest")
        assert rest.changed is True
        assert (rest.pause, rest.next_at) == (None, NINE + DAY)


@story
async def test_a_manual_run_is_a_receipt_of_its_own_and_moves_no_slot() -> None:
    async with office(cron("Digest")) as here:
        with acting("cli:ada"):
            one = await here.service.run_now("Digest", note="to see it")
        two = await here.service.run_now("Digest")
        assert await here.keys("Digest") == ["manual:id1", "manual:id2"]
        assert one.reason == "requested by ada, on the command line: to see it"
        assert two.late == timedelta(0)
        assert (await here.service.entry("Digest")).next_at == NINE
        assert here.pokes == 2


@story
async def test_the_same_idempotency_key_is_the_same_run() -> None:
    async with office(cron("Digest")) as here:
        one = await here.service.run_now("Digest", idempotency_key="abc")
        two = await here.service.run_now("Digest", idempotency_key="abc")
        assert one.receipt == two.receipt
        assert await here.keys("Digest") == ["idem:abc"]
        with pytest.raises(RequestError, match="1 to 200 printable characters"):
            await here.service.run_now("Digest", idempotency_key="a\nb")


@story
async def test_what_is_not_armed_cannot_be_run() -> None:
    async with office(cron("Never", "0 0 30 2 *")) as here:
        with pytest.raises(
            EntryStateError, match=r"the entry is not armed .* `horae explain plan.org:1`"
        ):
            await here.service.run_now("Never")


@story
async def test_what_rests_is_neither_run_nor_made_good() -> None:
    async with office(cron("Digest")) as here:
        await here.service.backfill("Digest", start=NOW - DAY, name="spring")
        await here.service.pause("Digest")
        for asked in (
            here.service.run_now("Digest"),
            here.service.backfill("Digest", start=NOW - DAY),
            here.service.backfill("Digest", start=NOW - 2 * DAY, name="spring"),
        ):
            with pytest.raises(
                EntryStateError,
                match=r"the entry is paused by the engine, since .* `horae resume 1` first",
            ):
                await asked


@story
async def test_a_backfill_files_every_moment_of_its_window_oldest_first() -> None:
    async with office(cron("Digest")) as here:
        progress: list[tuple[int, int]] = []
        done = await here.service.backfill(
            "Digest",
            start=NINE - 3 * DAY,
            end=NINE - DAY,
            progress=lambda filed, total: progress.append((filed, total)),
        )
        assert await here.keys("Digest") == [
            "backfill:id1:2026-03-29T09:00:00Z",
            "backfill:id1:2026-03-30T09:00:00Z",
        ]
        lines = [await here.service.receipt(each) for each in done.receipts]
        assert [line.status for line in lines] == [Status.WAITING, Status.WAITING]
        assert {line.start_at for line in lines} == {NOW}
        assert (progress, here.pokes) == ([(2, 2)], 1)


@story
async def test_the_same_backfill_again_gives_the_same_receipts() -> None:
    async with office(cron("Digest")) as here:
        start = NOW - 3 * DAY
        once = await here.service.backfill("Digest", start=start, end=NOW, name="spring")
        again = await here.service.backfill("Digest", start=start, end=NOW, name="spring")
        assert once == again
        assert len(await here.keys("Digest")) == 3


@story
async def test_a_dry_run_files_nothing() -> None:
    async with office(cron("Digest")) as here:
        plan = await here.service.backfill("Digest", start=NOW - 3 * DAY, dry_run=True)
        assert plan.moments == (NINE - 3 * DAY, NINE - 2 * DAY, NINE - DAY)
        assert (await here.keys("Digest"), here.pokes) == ([], 0)


@pytest.mark.parametrize(
    ("workflow", "total"),
    [
        (cron("Poll", "* * * * * *"), "315,532,800"),
        ("* Poll :workflow:\nSCHEDULED: <2016-04-01 Fri 08:00 +1h>\n", "87,648"),
    ],
)
def test_too_long_a_backfill_is_refused_with_its_number(workflow: str, total: str) -> None:
    async def asked() -> None:
        async with office(workflow) as here:
            with pytest.raises(
                RequestError, match=f"the period has {total} scheduled times, .* at most 10,000"
            ):
                await here.service.backfill("Poll", start=at("2016-04-01T08:00Z"))
            assert await here.keys("Poll") == []

    asyncio.run(asked())


@story
async def test_a_backfill_of_as_many_as_may_be_is_filed() -> None:
    most = MOST if scaled(100) == 100 else 1500
    async with office(cron("Poll", "* * * * *")) as here:
        done = await here.service.backfill("Poll", start=NOW - most * MINUTE)
        assert len(done.receipts) == most
        assert [*done.receipts] == sorted(set(done.receipts))


@story
async def test_a_backfill_lies_in_the_past() -> None:
    async with office(cron("Digest")) as here:
        with pytest.raises(RequestError, match="is in the future"):
            await here.service.backfill("Digest", start=NOW, end=NOW + DAY)
        with pytest.raises(RequestError, match=r"the period .* is empty|the period is empty"):
            await here.service.backfill("Digest", start=NOW, end=NOW - DAY)


@story
async def test_what_counts_from_its_own_ends_has_no_moments_to_make_good() -> None:
    async with office("* Rest :workflow:\nSCHEDULED: <2026-04-02 Thu .+2d>\n") as here:
        done = await here.service.backfill("Rest", start=NOW - 9 * DAY)
        assert done.moments == ()


@story
async def test_an_alert_that_follows_no_entry_says_so() -> None:
    alert = "* {0}\n:PROPERTIES:\n:COMMAND: true\n:AFTER: failed of {1}\n:END:\n"
    plan = f"* Deploy :workflow:\n{alert.format('Tell', 'Deploy')}{alert.format('Lost', 'Deplyo')}"
    async with office(plan) as here:
        [lost] = (await here.service.why(parse_ask("Lost"))).answers
        assert lost.said == (
            "no entry is called 'Deplyo', so this entry never runs;"
            " write the :ID: or the title of an entry, or all"
        )
        [tell] = (await here.service.why(parse_ask("Tell"))).answers
        assert tell.said == "the entry runs after other entries and has no schedule of its own"


@story
async def test_what_has_no_schedule_has_no_moments_to_make_good() -> None:
    alert = "* Tell\n:PROPERTIES:\n:COMMAND: true\n:AFTER: failed\n:END:\n"
    once = "* Once :workflow:\nSCHEDULED: <2020-04-02 Thu>\n"
    async with office(f"* Deploy :workflow:\n{alert}{once}") as here:
        for name in ("Deploy", "Tell", "Once"):
            assert (await here.service.backfill(name, start=NOW - 9 * DAY)).moments == ()


@given(
    hour=st.integers(0, 23),
    step=st.sampled_from(["*", "*/2", "MON-FRI", "SUN"]),
    start=st.integers(0, 90 * 24),
    length=st.integers(1, 30 * 24),
)
def test_a_backfill_is_exactly_the_projection_of_its_window(
    hour: int, step: str, start: int, length: int
) -> None:
    first = NOW - start * HOUR - length * HOUR
    last = first + length * HOUR

    async def asked() -> None:
        async with office(cron("Digest", f"0 {hour} * * {step}", ":TZ: Europe/Berlin")) as here:
            plan = await here.service.backfill("Digest", start=first, end=last, dry_run=True)
            entry = (await here.service.named("Digest")).item
            assert isinstance(entry, Entry)
            within = [each.at for each in project(entry, first - DAY, last + DAY)]
            assert list(plan.moments) == [each for each in within if first <= each < last]

    asyncio.run(asked())


@story
async def test_only_the_past_is_pruned() -> None:
    async with office(cron("Digest")) as here:
        with pytest.raises(RequestError, match="is in the future; prune needs a past time"):
            await here.service.prune(before=NOW + DAY)
        assert (await here.service.prune(before=NOW, dry_run=True)).receipts == 0


@story
async def test_what_is_asked_for_is_no_account_of_a_moment() -> None:
    async with office(cron("Digest")) as here:
        asked = Receipt("manual:1", Status.WAITING, because("requested"), NINE, NINE)
        number = (await here.service.named("Digest")).number
        await here.ledger.add(number, [asked], now=NOW, term=1)
        assert await here.said("Digest@2026-04-01T09:00") == [
            "scheduled in 1h",
            "waiting: requested",
        ]


# Runs


@story
async def test_a_receipt_and_a_run_are_told_by_their_numbers() -> None:
    async with office(cron()) as here:
        [filed] = await here.decide(NINE)
        await here.run(filed)
        told = to_builtins(await here.service.receipt(filed.number))
        json.dumps(told)
        assert (told["title"], told["status"]) == ("Digest", "done")
        [run] = (await here.service.receipt(filed.number)).runs
        about = to_builtins(await here.service.run(run.run))
        assert (about["receipt"], about["title"], about["outcome"]) == (
            filed.number,
            "Digest",
            "done",
        )
        with pytest.raises(HoraeError, match="there is no receipt 99"):
            await here.service.receipt(99)
        with pytest.raises(RunNotFoundError, match="there is no run 99"):
            await here.service.run(99)


@story
async def test_the_last_run_of_an_entry_is_the_one_that_was_started_last() -> None:
    async with office(cron(), cron("Never", "0 10 * * *")) as here:
        [first] = await here.decide(NINE)
        later = await here.filed_now("Digest")
        await here.run(later)
        await here.run(first)
        last = await here.service.last_run("digest")
        assert (last.run, last.receipt) == (2, first.number)
        await here.service.backfill("Digest", start=NOW - 40 * DAY)  # newer, without a run
        assert (await here.service.last_run("digest")).run == 2
        with pytest.raises(RunNotFoundError, match="Never has no run"):
            await here.service.last_run("Never")


@story
async def test_the_one_run_that_goes_on_is_found_by_its_entry() -> None:
    async with office(cron("Digest", "0 9 * * *", ":OVERLAP: allow")) as here:
        with pytest.raises(RunStateError, match="no run is in progress"):
            await here.service.last_run("Digest", going=True)
        await here.run(await here.filed_now("Digest"), None)
        assert (await here.service.last_run("Digest", going=True)).run == 1
        await here.run(await here.filed_now("Digest"), None)
        with pytest.raises(
            RunStateError, match="several runs are in progress; name one: 1, 2"
        ) as told:
            await here.service.last_run("Digest", going=True)
        assert sorted(told.value.runs) == [1, 2]


@story
async def test_a_run_is_cancelled_once_and_only_while_it_goes_on() -> None:
    async with office(cron()) as here:
        filed = await here.filed_now("Digest")
        await here.run(filed, None)
        asked: list[tuple[int, str]] = []

        def end(receipt: int, reason: str) -> bool:
            asked.append((receipt, reason))
            return len(asked) == 1

        with acting("token:ops"):
            assert (await here.service.cancel(1, end=end, reason="enough")).changed
        assert not (await here.service.cancel(1, end=end)).changed
        assert asked[0] == (filed.number, "cancelled by token ops: enough")
        now = here.clock.now()
        await one_run.end(
            here.ledger, 1, Status.KILLED, reason=because("so it went"), now=now, term=1
        )
        with pytest.raises(RunStateError, match="run 1 already ended at 2026-04-01"):
            await here.service.cancel(1, end=end)
        assert len(asked) == 2, "nobody is asked to end what is over"


@story
async def test_who_would_cancel_what_waits_to_be_tried_again_is_told_how() -> None:
    async with office(cron("Digest", "0 9 * * *", ":RETRY: 3 1h")) as here:
        filed = await here.filed_now("Digest")
        await here.run(filed, Status.FAILED)
        remedy = f"receipt {filed.number} is waiting to start at .*`horae pause {filed.entry}`"
        with pytest.raises(RunStateError, match=f"no run is in progress; {remedy}"):
            await here.service.last_run("Digest", going=True)
        with pytest.raises(RunStateError, match=f"run 1 already ended at .*; {remedy}"):
            await here.service.cancel(1, end=lambda _, __: True)
        await here.service.pause("Digest")
        told = to_builtins(await here.service.receipt(filed.number))
        assert told["status"] == "skipped", "what is said to help does"
        with pytest.raises(RunStateError, match="no run is in progress; see `horae status`"):
            await here.service.last_run("Digest", going=True)


@story
async def test_only_a_run_that_goes_on_has_a_slot_to_ride_in() -> None:
    async with office(cron(), cron("Child", "0 9 * * *")) as here:
        parent = await here.filed_now("Digest")
        await here.run(parent, None)
        inside = await here.service.run_now("Child", parent_run=1)
        assert inside.parent == parent.number
        await one_run.end(
            here.ledger, 1, Status.DONE, reason=because(""), now=here.clock.now(), term=1
        )
        assert (await here.service.run_now("Child", parent_run=1)).parent is None
        with pytest.raises(RunNotFoundError):
            await here.service.run_now("Child", parent_run=99)


@story
async def test_entries_and_events_come_in_pages_without_a_gap() -> None:
    async with office(*(cron(f"Entry {number}") for number in range(7))) as here:
        seen, cursor = [], 0
        while True:
            roll = await here.service.entries(limit=3, cursor=cursor)
            seen += [each.entry for each in roll.entries]
            if roll.cursor is None:
                break
            cursor = roll.cursor
        assert seen == [1, 2, 3, 4, 5, 6, 7]
        await here.scan(cron("Entry 0"))
        assert len((await here.service.entries()).entries) == 1
        assert len((await here.service.entries(with_gone=True)).entries) == 7
        happened = (await here.service.events(limit=1000)).events
        first = await here.service.events(limit=3)
        rest = await here.service.events(after=first.after, limit=1000)
        assert (*first.events, *rest.events) == happened
        assert (await here.service.events(after=rest.after)).after == rest.after


@pytest.mark.parametrize(
    "text", ["Digest@0001-01-01", "Digest@9999-12-31", "Digest@9999-12-31T23:59:59Z"]
)
@story
async def test_where_the_calendar_ends_there_is_nothing_to_ask(text: str) -> None:
    async with office(cron()) as here:
        with pytest.raises(RequestError, match="the year must be from 2 to 9998"):
            await here.why(text)
