"""What every ledger promises, whatever it is made of.

A test module that has a `ledger` fixture runs all of it:

    class TestLedger(LedgerSuite): ...
"""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from functools import partial, wraps
from typing import TYPE_CHECKING, ParamSpec

import pytest
from msgspec.structs import replace

import one_run
from horae.core.actor import acting
from horae.core.budget import Usage, parse_budget
from horae.core.decide import decide
from horae.core.entry import (
    AfterRule,
    CadenceRule,
    Entry,
    Occasion,
    OnceRule,
    Origin,
    Pause,
    Policy,
    Retry,
    Unarmed,
    Work,
)
from horae.core.inbox import Acknowledged, InboxState
from horae.core.ports import (
    DueEntry,
    Ended,
    EntryStep,
    Process,
    ReceiptFilter,
    RunEnd,
    StaleTermError,
    Trait,
)
from horae.core.project import next_time
from horae.core.receipt import Reason, ReasonCode, Receipt, Status
from horae.core.source import Mark, Revision, Scan, Scanned
from horae.core.text import written_rule
from horae.errors import HoraeError
from horae.org.document import read
from horae.sources.plans.arming import scan_plan
from horae.sources.triggers.kinds import kind_of
from horae.sources.triggers.rules import TriggerDefinition, checked
from horae.sources.triggers.store import TriggerStore
from reasons import because
from scale import scaled

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping

    from horae.core.ports import Ledger
    from horae.core.receipt import Filed
    from horae.store.ledger import SqlLedger

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
STARTING = "the run is being started"
LIMIT = Reason(ReasonCode.USAGE_LIMIT, "You have reached your limit")


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
    return Receipt(key, Status.WAITING, because("requested"), now, now)


async def armed(ledger: Ledger, source: str) -> list[Entry]:
    """Return the entries of a source that may fire, the longest known first."""
    return [
        each.item
        for each in await ledger.entries()
        if each.source == source and each.is_armed and isinstance(each.item, Entry)
    ]


async def scanned(
    ledger: Ledger,
    source: str,
    found: Iterable[Scanned],
    *,
    now: datetime = NOW,
    commit: str | None = None,
    patience: timedelta = timedelta(0),
) -> list[Entry]:
    """Let the ledger take over all that a source holds; return what may fire of it."""
    scan = Scan(tuple(found))
    revision = None if commit is None else Revision(commit)
    await ledger.scan(source, scan, now=now, term=1, revision=revision, patience=patience)
    return await armed(ledger, source)


async def taken(
    ledger: Ledger, *workflows: str, now: datetime = NOW, file: str = "plan.org"
) -> list[Entry]:
    """Let the ledger take over a plan of these workflows; what is missing is gone at once."""
    return await scanned(ledger, "org", plan(*workflows, file=file), now=now)


async def decided(ledger: Ledger, entry: Entry, now: datetime) -> list[Filed]:
    """Decide what has come due of an entry, and write it."""
    return await ledger.decide([EntryStep(entry, decide(entry, now=now))], now=now, term=1)


async def waiting(ledger: Ledger, *properties: str) -> tuple[Entry, Filed]:
    """Return a daily entry and its receipt of nine o'clock, which waits."""
    [entry] = await taken(ledger, workflow("Digest", "0 9 * * *", "", *properties))
    [filed] = await decided(ledger, entry, NINE)
    return entry, filed


async def several_waiting(ledger: Ledger, count: int) -> list[Filed]:
    """Return the receipts of nine o'clock of several entries, which wait."""
    entries = await taken(ledger, *(workflow(f"Digest {number}") for number in range(count)))
    return [filed for entry in entries for filed in await decided(ledger, entry, NINE)]


async def begun(ledger: Ledger, filed: Filed, *, now: datetime = NINE) -> int:
    """Let a receipt run; return the number of its run."""
    run = await one_run.start(ledger, filed.number, now=now, term=1)
    assert run is not None
    assert await one_run.running(ledger, run.number, Process(4711, 99), now=now, term=1)
    return run.number


async def over_with(
    ledger: Ledger,
    run: int,
    outcome: Status,
    *,
    now: datetime = NINE,
    reason: Reason = LIMIT,
    until: datetime | None = None,
    has_other: bool = False,
) -> None:
    """Let a run of the account `claude` end."""
    ended = Ended(outcome, reason, account="claude", until=until, has_other=has_other)
    assert await ledger.end_many([RunEnd(run, ended)], now=now, term=1) != [None]


async def used(ledger: Ledger, filed: Filed, outcome: Status, *, now: datetime = NINE) -> None:
    """Let a receipt run, and end so."""
    reason = because("it ended")
    await over_with(ledger, await begun(ledger, filed, now=now), outcome, now=now, reason=reason)


async def limited(
    ledger: Ledger,
    filed: Filed,
    *,
    now: datetime = NINE,
    until: datetime | None = None,
    has_other: bool = False,
) -> Filed:
    """Let a receipt run into the usage limit of its account; return it as that leaves it."""
    run = await begun(ledger, filed, now=now)
    await over_with(ledger, run, Status.LIMITED, now=now, until=until, has_other=has_other)
    found = await ledger.receipt(filed.number)
    assert found is not None
    return found


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
    async def test_many_new_entries_are_each_what_was_found(self, ledger: Ledger) -> None:
        # One in seven is not armed, so that no column is the same in all rows.
        rules = ["0 9 30 2 *" if n % 7 == 0 else f"{n % 60} 9 * * *" for n in range(507)]
        found = plan(*(workflow(f"Digest {n}", rule) for n, rule in enumerate(rules)))
        await scanned(ledger, "org", found)
        entries = await ledger.entries()
        assert [each.mark for each in entries] == [each.mark for each in found]
        assert [each.number for each in entries] == [*range(1, 508)]
        for each, scanned_entry in zip(entries, found, strict=True):
            assert type(each.item) is type(scanned_entry.item)
            if isinstance(each.item, Entry):
                assert await ledger.text(each.item.digest) == scanned_entry.text
        told = [each.entry for each in await ledger.events_after(0)]
        assert told == [*range(1, 508)]

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
        found_armed = await scanned(ledger, "org", found, now=NOW)
        assert len(found_armed) == 6
        assert [each.item for each in await ledger.entries()] == found_armed

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
        assert await history(ledger, last) == ["1 waiting: the scheduled time was reached"]

    @story
    async def test_a_changed_rule_closes_the_old_one_without_firing(self, ledger: Ledger) -> None:
        [entry] = await taken(ledger, workflow("Digest", "0 9 * * *"))
        later = NOW + 3 * DAY
        [changed] = await taken(ledger, workflow("Digest", "*/10 * * * *"), now=later)
        assert changed.number == entry.number
        assert changed.accounted_to == later
        assert await history(ledger, entry) == ["3 skipped: the rule was changed"]
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
        assert await history(ledger, entry) == ["1 skipped: the rule was changed"]

    @story
    async def test_words_without_a_first_day_count_from_when_they_are_first_read(
        self, ledger: Ledger
    ) -> None:
        fridays = workflow("Digest", "every other Friday at 17:30")
        [entry] = await taken(ledger, fridays)
        assert written_rule(entry.rule) == "<2026-04-03 Fri 17:30 ++2w>"
        again = workflow("Digest", "every second week on Friday at 17:30")
        for text, later in ((fridays, NOW + 3 * DAY), (again, NOW + 11 * DAY)):
            [same] = await taken(ledger, text, now=later)
            assert same.rule == entry.rule
        [other] = await taken(ledger, workflow("Digest", "every other Monday at 9"), now=later)
        assert written_rule(other.rule) == "<2026-04-13 Mon 09:00 ++2w>"

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
            "1 skipped: no longer in the plan",
            "1 skipped: no longer in the plan",
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
            "5 skipped: the entry was not in the plan from 2026-04-01T08:00:00Z to 2026-04-06T08:00:00Z"
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
    async def test_a_summary_has_the_newest_receipt_that_runs_or_is_final(
        self, ledger: Ledger
    ) -> None:
        digest, mail = await taken(ledger, workflow("Digest"), workflow("Mail", "0 10 * * *"))
        [filed] = await decided(ledger, digest, NINE)
        summaries = {each.title: each for each in await ledger.summaries()}
        assert summaries["Digest"].last_status is None, "it waits"
        run = await one_run.start(ledger, filed.number, now=NINE, term=1)
        assert run is not None
        summaries = {each.title: each for each in await ledger.summaries()}
        digest_last = summaries["Digest"].last_at, summaries["Digest"].last_status
        assert digest_last == (NINE, Status.STARTING)
        assert (summaries["Mail"].last_at, summaries["Mail"].source) == (None, "org")
        [found] = await ledger.entries_at([mail.number])
        assert found.mark.title == "Mail"
        await taken(ledger, workflow("Digest"), now=NINE + MINUTE)
        assert [each.title for each in await ledger.summaries()] == ["Digest"]
        gone = {each.title: each.is_gone for each in await ledger.summaries(with_gone=True)}
        assert gone == {"Digest": False, "Mail": True}

    @story
    async def test_what_is_done_is_kept_but_not_armed_and_can_be_armed_again(
        self, ledger: Ledger
    ) -> None:
        [entry] = await taken(ledger, workflow("Digest"))
        assert await taken(ledger, workflow("DONE Digest"), now=NOW + DAY) == []
        [found] = await ledger.entries()
        assert isinstance(found.item, Unarmed)
        assert found.item.reason == "the state is DONE"
        [again] = await taken(ledger, workflow("Digest"), now=NOW + 3 * DAY)
        assert again == replace(entry, accounted_to=NOW + 3 * DAY)
        assert await history(ledger, entry) == ["1 skipped: not armed: the state is DONE"]

    @pytest.mark.parametrize(
        "broken",
        [
            workflow("Digest", "0 9 * *"),
            workflow("Digest", "0 9 * * *", "", ":TIMEOUT: soon"),
            workflow("Digest", "0 9 * * *", "", ":TZ: Nowhere"),
            workflow("Digest", "0 9 * * *", "", ":COMMAND: echo 'a"),
            workflow("Digest", "0 9 * * *", "", "a stray line"),
        ],
    )
    @story
    async def test_what_can_no_longer_be_read_goes_on_as_it_was_and_says_so_once(
        self, ledger: Ledger, broken: str
    ) -> None:
        [entry] = await taken(ledger, workflow("Digest", body="Text.\n"))
        later = NOW + MINUTE
        for _ in range(2):
            assert await taken(ledger, broken, now=later) == [entry]
        [found] = await ledger.entries()
        assert found.broken
        assert found.broken_at == later
        assert await ledger.entries_that_are(Trait.BROKEN, limit=9) == [found]
        [said] = (await ledger.receipts()).receipts
        assert said.receipt.key == "broken:2026-04-01T08:01:00Z"
        assert (said.status, said.digest) == (Status.SKIPPED, entry.digest)
        [filed] = await decided(ledger, entry, NINE)
        assert (filed.digest, filed.status) == (entry.digest, Status.WAITING)
        assert await ledger.text(filed.digest) == workflow("Digest", body="Text.\n")

    @story
    async def test_what_is_mended_goes_on_without_a_gap(self, ledger: Ledger) -> None:
        [entry] = await taken(ledger, workflow("Digest"))
        await taken(ledger, workflow("Digest", "0 9 * *"), now=NOW + MINUTE)
        assert await taken(ledger, workflow("Digest"), now=NINE + MINUTE) == [entry]
        [found] = await ledger.entries()
        assert (found.broken, found.broken_at) == ("", None)
        assert await ledger.due(now=NINE + MINUTE) == [DueEntry(entry)]
        await taken(ledger, workflow("Digest", "0 9 * *"), now=NINE + 2 * MINUTE)
        assert len((await ledger.receipts()).receipts) == 2  # it broke twice

    @story
    async def test_what_is_broken_keeps_its_number_when_it_moves(self, ledger: Ledger) -> None:
        broken = workflow("Digest", "0 9 * *", "Text.\n")
        [entry] = await taken(ledger, workflow("Digest", body="Text.\n"))
        await taken(ledger, broken, now=NOW + MINUTE)
        [moved] = await taken(ledger, broken, now=NOW + HOUR / 2, file="other.org")
        assert (moved.number, moved.digest) == (entry.number, entry.digest)
        assert moved.origin == Origin("other.org", 1)

    @pytest.mark.parametrize(
        "meant",
        [
            workflow("DONE Digest", "0 9 * *"),
            workflow("COMMENT Digest", "0 9 * *"),
            workflow("Digest", "0 0 30 2 *"),
            "* Digest :workflow:\nSCHEDULED: [2026-04-01 Wed 09:00]\n",
            "* Digest :workflow:\n",
        ],
    )
    @story
    async def test_what_somebody_meant_to_rest_is_not_broken(
        self, ledger: Ledger, meant: str
    ) -> None:
        await taken(ledger, workflow("Digest"))
        for before in (workflow("Digest", "0 9 * *"), workflow("Digest")):
            await taken(ledger, before, now=NOW)
            await taken(ledger, meant, now=NOW + MINUTE)
            assert await ledger.wake_at() is None
            assert await ledger.entries_that_are(Trait.BROKEN, limit=9) == []

    @story
    async def test_what_was_never_good_is_a_problem_and_not_armed(self, ledger: Ledger) -> None:
        for when in ("0 9 * *", "0 8 * *"):
            assert await taken(ledger, workflow("Digest", when)) == []
        [found] = await ledger.entries_that_are(Trait.BROKEN, limit=9)
        assert found.broken_at is None
        assert isinstance(found.item, Unarmed)
        assert (await ledger.receipts()).receipts == ()
        [entry] = await taken(ledger, workflow("Digest"))
        assert (await taken(ledger, workflow("Digest", "0 9 * *"), now=NOW + MINUTE)) == [entry]

    @story
    async def test_a_file_that_cannot_be_understood_breaks_what_a_clock_drives_in_it(
        self, ledger: Ledger
    ) -> None:
        [entry, _] = await taken(ledger, workflow("Digest"), "* On demand :workflow:\n")
        scan = Scan((), standing=("plan.org",), broken={"plan.org": "line 3: no"})
        for _ in range(2):
            await ledger.scan("org", scan, now=NOW + MINUTE, term=1)
        [found] = await ledger.entries_that_are(Trait.BROKEN, limit=9)
        assert (found.number, found.broken) == (entry.number, "line 3: no")
        assert len((await ledger.receipts()).receipts) == 1

    @story
    async def test_a_single_moment_written_too_late_is_missed(self, ledger: Ledger) -> None:
        [entry] = await taken(ledger, "* Once :workflow:\nSCHEDULED: <2026-04-01 Wed 07:00>\n")
        assert await history(ledger, entry) == [
            "1 missed: the entry was added 1h after its scheduled time"
        ]
        assert await decided(ledger, entry, NOW + DAY) == []

    @story
    async def test_a_delay_is_due_as_long_as_its_key_has_no_receipt(self, ledger: Ledger) -> None:
        found = [delay("tea", NINE)]
        [entry] = await scanned(ledger, "triggers", found, now=NOW)
        await scanned(ledger, "triggers", [], now=NOW + MINUTE)
        [back] = await scanned(ledger, "triggers", found, now=NINE + DAY)
        assert back.number == entry.number
        [filed] = await decided(ledger, back, NINE + DAY)
        assert (filed.receipt.key, filed.status) == ("delay:tea", Status.WAITING)
        await scanned(ledger, "triggers", [], now=NINE + DAY)
        [again] = await scanned(ledger, "triggers", found, now=NINE + 2 * DAY)
        assert again.accounted_to == NINE + DAY
        assert await decided(ledger, again, NINE + 3 * DAY) == []

    @story
    async def test_one_source_does_not_touch_the_entries_of_another(self, ledger: Ledger) -> None:
        [org] = await taken(ledger, workflow("Digest"))
        [board] = await scanned(ledger, "board", plan(workflow("Digest")), now=NOW)
        assert org.number != board.number
        assert await scanned(ledger, "board", [], now=NOW) == []
        known = {each.number: each.is_armed for each in await ledger.entries()}
        assert known[org.number]

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
        [entry] = await scanned(ledger, "org", found, commit="c0ffee")
        [filed] = await decided(ledger, entry, NINE + SECOND)
        assert filed == await ledger.receipt(filed.number)
        assert filed.receipt.key == "cron:2026-04-01T09:00:00Z"
        assert filed.lateness == SECOND
        assert (filed.origin, filed.digest) == (Origin("plan.org", 1), entry.digest)
        assert filed.commit == "c0ffee"
        assert filed.policy == Policy(retry=Retry(3, timedelta(seconds=30)))
        assert (filed.source, filed.title) == ("org", "Digest")
        assert (filed.work, filed.agents) == (Work.WORKFLOW, ())

    @story
    async def test_the_commit_is_the_first_in_which_a_text_stands(self, ledger: Ledger) -> None:
        async def commits(scan: Scan, *files: str, commit: str = "c0ffee") -> list[str | None]:
            revision = Revision(commit, frozenset(files))
            await ledger.scan("org", scan, now=NOW, term=1, revision=revision)
            found = []
            for each in await ledger.entries():
                key = f"manual:{commit}{len(files)}"
                [filed] = await ledger.add(each.number, [asked(key, NOW)], now=NOW, term=1)
                found.append(filed.commit)
            return found

        index = {"a.org": "1", "b.org": "1"}
        one, other = (
            Scanned(each.mark, replace(each.item, origin=Origin(file, 1)), each.text)
            for file, title in (("a.org", "A"), ("b.org", "B"))
            for each in plan(workflow(title), file=file)
        )
        assert await commits(Scan((one, other), index=index), "a.org") == ["c0ffee", None]
        assert await ledger.loose("org") == ["b.org"]
        stands = Scan((), standing=("a.org", "b.org"), index=index)
        # What was not read because it stands is found in the commit that came meanwhile.
        assert await commits(stands, "a.org", "b.org", commit="later") == ["c0ffee", "later"]
        assert await ledger.loose("org") == []
        # A file that cannot be read is not what its entries were read from.
        [again] = plan(workflow("B", body="Other.\n"), file="b.org")
        assert await commits(Scan((one, again), index=index), commit="no") == ["c0ffee", None]
        broken = Scan((), standing=("a.org", "b.org"), index={"a.org": "1"})
        assert await commits(broken, "a.org", "b.org", commit="bad") == ["c0ffee", None]

    @story
    async def test_what_a_file_no_longer_holds_is_in_no_commit_of_it(self, ledger: Ledger) -> None:
        both = Scan(tuple(plan(workflow("A"), workflow("B"))), index={"plan.org": "1"})
        await ledger.scan("org", both, now=NOW, term=1)
        less = Scan(tuple(plan(workflow("B"))), index={"plan.org": "2"})
        await ledger.scan("org", less, now=NOW + SECOND, term=1)
        committed = Revision("c0ffee", frozenset({"plan.org"}))
        stands = Scan((), standing=("plan.org",), index={"plan.org": "2"})
        await ledger.scan("org", stands, now=NOW + SECOND, term=1, revision=committed)
        found = {}
        for each in await ledger.entries():
            [filed] = await ledger.add(each.number, [asked("manual:1", NOW)], now=NOW, term=1)
            found[each.item.title] = filed.commit
        assert found == {"A": None, "B": "c0ffee"}, found

    @story
    async def test_a_receipt_says_what_is_to_be_done_and_by_whom(self, ledger: Ledger) -> None:
        [found] = plan(workflow("Digest"))
        assert isinstance(found.item, Entry)
        item = replace(found.item, work=Work.PROMPT, agents=("iris", "hermes"))
        [entry] = await scanned(ledger, "org", [found._replace(item=item)])
        assert (entry.work, entry.agents) == (Work.PROMPT, ("iris", "hermes"))
        [filed] = await decided(ledger, entry, NINE)
        assert (filed.work, filed.agents) == (Work.PROMPT, ("iris", "hermes"))
        assert await ledger.receipt(filed.number) == filed
        retitled = found._replace(item=replace(item, title="News"))
        retitled = retitled._replace(mark=found.mark._replace(title="News"))
        await scanned(ledger, "org", [retitled])
        again = await ledger.receipt(filed.number)
        assert again
        assert again.title == "News"

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
        run = await one_run.start(ledger, filed.number, now=NINE, term=1)
        assert run
        await one_run.running(ledger, run.number, Process(1, 1), now=NINE, term=1)
        await one_run.end(
            ledger, run.number, Status.DONE, reason=because("it ended"), now=NINE + HOUR, term=1
        )
        skipped = Receipt("at:never", Status.SKIPPED, because("why not"), NINE + DAY, NINE + DAY)
        step = decide(read_before_the_end, now=NINE)
        step = replace(step, receipts=(skipped,), accounted_to=NINE + DAY)
        stale = EntryStep(read_before_the_end, step)
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
        assert await history(ledger, entry) == ["1 waiting: the scheduled time was reached"]

    @story
    async def test_a_key_that_has_a_receipt_gets_no_second_one(self, ledger: Ledger) -> None:
        [entry] = await taken(ledger, workflow("Digest"))
        key = "cron:2026-04-01T09:00:00Z"
        [first] = await ledger.add(entry.number, [asked(key, NOW)], now=NOW, term=1)
        assert await decided(ledger, entry, NINE) == []
        assert await ledger.receipt(first.number) == first
        assert (await known(ledger, entry.number)).accounted_to == NINE

    @story
    async def test_in_one_step_what_is_as_it_was_is_written_and_the_rest_is_left_alone(
        self, ledger: Ledger
    ) -> None:
        titles = ("Digest", "Water", "Sweep", "Feed", "Rest")
        digest, water, sweep, feed, rest = await taken(ledger, *map(workflow, titles))
        key = "cron:2026-04-01T09:00:00Z"
        await decided(ledger, water, NINE)
        await ledger.pause(sweep.number, now=NOW, term=1)
        [before] = await ledger.add(feed.number, [asked(key, NOW)], now=NOW, term=1)
        last = await last_event(ledger)
        everyone = (digest, water, sweep, feed, digest, rest)
        steps = [EntryStep(each, decide(each, now=NINE)) for each in everyone]
        filed = await ledger.decide(steps, now=NINE, term=1)
        assert [each.title for each in filed] == ["Digest", "Rest"]
        assert [each.number for each in filed] == [before.number + 1, before.number + 2]
        assert [await ledger.receipt(each.number) for each in filed] == filed
        events = await ledger.events_after(last)
        assert [(each.entry, each.receipt) for each in events] == [
            (each.entry, each.number) for each in filed
        ]
        assert {each.facts["key"] for each in events} == {key}
        marks = [(await known(ledger, each.number)).accounted_to for each in everyone]
        assert marks == [NINE, NINE, NOW, NINE, NINE, NINE]

    @story
    async def test_nothing_is_decided_about_what_rests(self, ledger: Ledger) -> None:
        [entry] = await taken(ledger, workflow("Digest"))
        await ledger.pause(entry.number, now=NOW, term=1)
        assert await decided(ledger, entry, NINE) == []
        assert await history(ledger, entry) == []

    @story
    async def test_a_thousand_entries_are_decided_in_one_step(self, ledger: Ledger) -> None:
        entries = await taken(ledger, *(workflow(f"Digest {n}") for n in range(1000)))
        steps = [EntryStep(entry, decide(entry, now=NINE)) for entry in entries]
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
            *(ledger.add(entry.number, [request], now=NINE, term=1) for _ in range(scaled(2000)))
        )
        assert len({each.number for [each] in answers}) == 1
        assert await known(ledger, entry.number) == entry
        assert await ledger.add(99, [request], now=NINE, term=1) == []
        assert await decided(ledger, entry, NINE)
        await taken(ledger, now=NINE)
        other = asked("idem:order-8", NINE)
        assert await ledger.add(entry.number, [other], now=NINE, term=1) == []
        [again] = await ledger.add(entry.number, [request, other], now=NINE, term=1)
        assert again.receipt.key == request.key

    @story
    async def test_several_requests_are_filed_together_and_know_whose_run_asked(
        self, ledger: Ledger
    ) -> None:
        [entry, other] = await taken(ledger, workflow("Digest"), workflow("Water"))
        [parent] = await ledger.add(other.number, [asked("manual:1", NOW)], now=NOW, term=1)
        requests = [asked(f"backfill:7:{hour}", NOW - hour * HOUR) for hour in (2, 1)]
        filed = await ledger.add(entry.number, requests, now=NOW, term=1, parent=parent.number)
        assert [each.receipt for each in filed] == requests
        assert [each.parent for each in filed] == [parent.number] * 2
        again = await ledger.add(entry.number, requests, now=NOW, term=1)
        assert again == filed
        assert [await ledger.receipt(each.number) for each in filed] == filed

    @story
    async def test_nothing_is_filed_for_what_rests(self, ledger: Ledger) -> None:
        [entry] = await taken(ledger, workflow("Digest"))
        await ledger.pause(entry.number, now=NOW, term=1)
        assert await ledger.add(entry.number, [asked("manual:1", NOW)], now=NOW, term=1) == []


class RunSuite:
    """The life of a receipt."""

    @story
    async def test_a_run_is_held_until_its_process_is_written_down(self, ledger: Ledger) -> None:
        entry, filed = await waiting(ledger)
        run = await one_run.start(ledger, filed.number, now=NINE, term=1)
        assert run
        assert await status(ledger, filed) is Status.STARTING
        assert await one_run.running(ledger, run.number, Process(4711, 99), now=NINE, term=1)
        assert await status(ledger, filed) is Status.RUNNING
        ended = await one_run.end(
            ledger,
            run.number,
            Status.DONE,
            reason=because("it ended"),
            exit_code=0,
            facts={"tokens": 12, "cost": 0.5},
            now=NINE + HOUR,
            term=1,
        )
        assert ended
        assert (ended.status, ended.attempts, ended.ended_at) == (Status.DONE, 1, NINE + HOUR)
        [only] = await ledger.runs_of(filed.number)
        assert only.process == Process(4711, 99)
        assert (only.started_at, only.ended_at) == (NINE, NINE + HOUR)
        assert (only.outcome, only.exit_code, only.reason) == (Status.DONE, 0, "it ended")
        assert only.facts == {"tokens": 12, "cost": 0.5}
        assert await ledger.run(run.number) == only
        assert await ledger.run(99) is None
        assert (await known(ledger, entry.number)).ended_at == NINE + HOUR

    @story
    async def test_of_fifty_who_start_at_once_one_is_first(self, ledger: Ledger) -> None:
        _, filed = await waiting(ledger)
        answers = await asyncio.gather(
            *(one_run.start(ledger, filed.number, now=NINE, term=1) for _ in range(50))
        )
        assert sum(run is not None for run in answers) == 1
        assert len(await ledger.runs_of(filed.number)) == 1

    @story
    async def test_what_was_never_let_go_waits_again_and_counts_for_nothing(
        self, ledger: Ledger
    ) -> None:
        _, filed = await waiting(ledger)
        first = await one_run.start(ledger, filed.number, now=NINE, term=1)
        assert first
        assert await ledger.give_back(
            first.number, reason=because("the engine died"), now=NINE, term=1
        )
        assert not await ledger.give_back(first.number, reason=because("again"), now=NINE, term=1)
        second = await one_run.start(ledger, filed.number, now=NINE, term=1)
        assert second
        assert (second.attempt, await status(ledger, filed)) == (2, Status.STARTING)
        assert not await one_run.running(ledger, first.number, Process(1, 1), now=NINE, term=1)
        assert await one_run.running(ledger, second.number, Process(2, 1), now=NINE, term=1)
        found = await ledger.receipt(filed.number)
        assert found
        assert (found.attempts, found.deaths) == (1, 0)
        assert (await ledger.runs_of(filed.number))[0].outcome is None

    @story
    async def test_one_that_is_written_down_as_running_may_still_be_given_back(
        self, ledger: Ledger
    ) -> None:
        _, filed = await waiting(ledger)
        for deaths in (1, 2):
            run = await one_run.start(ledger, filed.number, now=NINE, term=1)
            assert run
            await one_run.running(ledger, run.number, Process(1, 1), now=NINE, term=1)
            reason = "the engine died before it was let go"
            assert await ledger.give_back(
                run.number, reason=because(reason), now=NINE, term=1, died=True
            )
            found = await ledger.receipt(filed.number)
            assert found
            assert (found.status, found.attempts, found.deaths) == (Status.WAITING, 0, deaths)
        assert await ledger.open_runs() == []

    @pytest.mark.parametrize("outcome", [Status.FAILED, Status.KILLED, Status.INTERRUPTED])
    @story
    async def test_a_bad_end_is_tried_again_as_often_as_retry_says(
        self, ledger: Ledger, outcome: Status
    ) -> None:
        entry, filed = await waiting(ledger, ":RETRY: 2 30s")
        starts = []
        for _ in range(3):
            run = await one_run.start(ledger, filed.number, now=NINE, term=1)
            assert run
            assert (await known(ledger, entry.number)).ended_at is None
            await one_run.running(ledger, run.number, Process(1, 1), now=NINE, term=1)
            after = await one_run.end(
                ledger, run.number, outcome, reason=because("bad luck"), now=NINE, term=1
            )
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
    async def test_a_last_end_is_not_tried_again_whatever_retry_says(self, ledger: Ledger) -> None:
        _, filed = await waiting(ledger, ":RETRY: 2 30s")
        run = await one_run.start(ledger, filed.number, now=NINE, term=1)
        assert run
        after = await one_run.end(
            ledger,
            run.number,
            Status.FAILED,
            reason=because("set aside"),
            now=NINE,
            term=1,
            is_last=True,
        )
        assert after
        assert (after.status, after.receipt.reason) == (Status.FAILED, "set aside")

    @story
    async def test_a_good_end_is_not_tried_again(self, ledger: Ledger) -> None:
        _, filed = await waiting(ledger, ":RETRY: 2 30s")
        run = await one_run.start(ledger, filed.number, now=NINE, term=1)
        assert run
        await one_run.running(ledger, run.number, Process(1, 1), now=NINE, term=1)
        after = await one_run.end(
            ledger, run.number, Status.NO_WORK, reason=because("none"), now=NINE, term=1
        )
        assert after
        assert after.status is Status.NO_WORK

    @story
    async def test_a_run_that_cannot_be_made_has_failed(self, ledger: Ledger) -> None:
        _, filed = await waiting(ledger, ":RETRY: 1 30s")
        for then in (Status.WAITING, Status.FAILED):
            run = await one_run.start(ledger, filed.number, now=NINE, term=1)
            assert run
            reason = "no such program"
            after = await one_run.end(
                ledger, run.number, Status.FAILED, reason=because(reason), now=NINE, term=1
            )
            assert after
            assert (after.status, after.receipt.reason) == (then, reason)

    @story
    async def test_what_is_over_stays_as_it_is(self, ledger: Ledger) -> None:
        entry, filed = await waiting(ledger)
        run = await one_run.start(ledger, filed.number, now=NINE, term=1)
        assert run
        await one_run.running(ledger, run.number, Process(1, 1), now=NINE, term=1)
        done = await one_run.end(
            ledger, run.number, Status.DONE, reason=because("it ended"), now=NINE, term=1
        )
        late = NINE + HOUR
        assert (
            await one_run.end(
                ledger, run.number, Status.FAILED, reason=because("no"), now=late, term=1
            )
            is None
        )
        assert await one_run.start(ledger, filed.number, now=late, term=1) is None
        assert not await ledger.hold(filed.number, reason=because("no"), now=late, term=1)
        assert not await ledger.release(filed.number, reason=because("no"), now=late, term=1)
        assert await ledger.receipt(filed.number) == done
        assert (await known(ledger, entry.number)).ended_at == NINE

    @story
    async def test_a_manual_run_does_not_move_the_end_that_rules_count_from(
        self, ledger: Ledger
    ) -> None:
        [entry] = await taken(ledger, workflow("Digest"))
        [filed] = await ledger.add(entry.number, [asked("manual:1", NOW)], now=NOW, term=1)
        run = await one_run.start(ledger, filed.number, now=NOW, term=1)
        assert run
        await one_run.running(ledger, run.number, Process(1, 1), now=NOW, term=1)
        assert await one_run.end(
            ledger, run.number, Status.DONE, reason=because("it ended"), now=NOW, term=1
        )
        assert await known(ledger, entry.number) == entry

    @story
    async def test_every_code_of_a_reason_is_kept_with_its_receipt_and_its_event(
        self, ledger: Ledger
    ) -> None:
        [entry] = await taken(ledger, workflow("Digest"))
        asks = [
            Receipt(f"manual:{code}", Status.SKIPPED, Reason(code, f"as {code}"), NOW, NOW)
            for code in ReasonCode
        ]
        filed = await ledger.add(entry.number, asks, now=NOW, term=1)
        for each, code in zip(filed, ReasonCode, strict=True):
            again = await ledger.receipt(each.number)
            assert again is not None
            assert again.receipt.reason == f"as {code}"
            assert again.receipt.reason.code == each.receipt.reason.code == code
        told = [each.facts for each in await ledger.events_after(0) if each.kind == "receipt"]
        assert [each["reason_code"] for each in told] == list(ReasonCode)

    @story
    async def test_the_code_of_a_reason_moves_with_a_receipt_and_stays_with_its_runs(
        self, ledger: Ledger
    ) -> None:
        _, filed = await waiting(ledger)
        number = filed.number

        async def code() -> str:
            found = await ledger.receipt(number)
            assert found is not None
            return found.receipt.reason.code

        assert await code() == ReasonCode.DUE
        lacks = Reason(ReasonCode.NOT_READY, "no command")
        assert await ledger.hold(number, reason=lacks, now=NINE, term=1)
        assert await code() == ReasonCode.NOT_READY
        ready = Reason(ReasonCode.READY, "there is one")
        assert await ledger.release(number, reason=ready, now=NINE, term=1)
        assert await code() == ReasonCode.READY
        run = await one_run.start(ledger, number, now=NINE, term=1)
        assert run
        assert await code() == ReasonCode.STARTING
        lost = Reason(ReasonCode.LAUNCHER_LOST, "the launcher ended")
        assert await ledger.give_back(run.number, reason=lost, now=NINE, term=1)
        assert await code() == ReasonCode.LAUNCHER_LOST
        again = await one_run.start(ledger, number, now=NINE, term=1)
        assert again
        assert await one_run.running(ledger, again.number, Process(1, 1), now=NINE, term=1)
        assert await code() == ReasonCode.STARTED
        limit = Reason(ReasonCode.TIME_LIMIT, "exceeded the time limit of 5s")
        ended = await one_run.end(
            ledger, again.number, Status.KILLED, reason=limit, now=NINE, term=1
        )
        assert ended
        assert ended.receipt.reason.code == await code() == ReasonCode.TIME_LIMIT
        runs = await ledger.runs_of(number)
        codes = [ReasonCode.LAUNCHER_LOST, ReasonCode.TIME_LIMIT]
        assert [each.reason.code for each in runs] == codes

    @story
    async def test_a_code_of_a_newer_version_is_read_as_it_is(self, ledger: Ledger) -> None:
        _, filed = await waiting(ledger)
        newer = Reason("out_of_tea", "there is no tea")
        assert await ledger.hold(filed.number, reason=newer, now=NINE, term=1)
        again = await ledger.receipt(filed.number)
        assert again is not None
        assert again.receipt.reason.code == "out_of_tea"

    @story
    async def test_what_is_held_does_not_start_until_it_is_released(self, ledger: Ledger) -> None:
        _, filed = await waiting(ledger)
        assert await ledger.hold(filed.number, reason=because("no command"), now=NINE, term=1)
        assert await one_run.start(ledger, filed.number, now=NINE, term=1) is None
        assert await ledger.release(filed.number, reason=because("there is one"), now=NINE, term=1)
        assert await one_run.start(ledger, filed.number, now=NINE, term=1)
        assert not await ledger.release(filed.number, reason=because("again"), now=NINE, term=1)

    @story
    async def test_a_run_that_a_limit_ended_is_no_attempt_and_its_receipt_is_held(
        self, ledger: Ledger
    ) -> None:
        entry, filed = await waiting(ledger)
        over = await limited(ledger, filed, until=NINE + 2 * HOUR)
        assert (over.status, over.attempts, over.ended_at) == (Status.HELD, 0, None)
        assert str(over.receipt.reason) == "until 2026-04-01T11:00:00Z: usage limit of claude"
        assert over.receipt.reason.code == ReasonCode.USAGE_LIMIT
        [run] = await ledger.runs_of(filed.number)
        assert (run.outcome, run.ended_at) == (Status.LIMITED, NINE)
        listed = await ledger.entry(entry.number)
        assert listed is not None
        assert listed.failures == 0
        assert (await known(ledger, entry.number)).ended_at is None
        assert not await ledger.open_runs()

    @story
    async def test_an_entry_is_bad_since_the_first_bad_result_after_the_last_good_one(
        self, ledger: Ledger
    ) -> None:
        entry, filed = await waiting(ledger)
        await used(ledger, filed, Status.FAILED)
        numbers = [filed.number]
        for day, outcome in enumerate((Status.DONE, Status.FAILED, Status.KILLED), 1):
            [filed] = await decided(ledger, await known(ledger, entry.number), NINE + day * DAY)
            await used(ledger, filed, outcome, now=NINE + day * DAY)
            numbers.append(filed.number)
        [bad] = await ledger.bad_results()
        assert (bad.filed.number, bad.since, bad.times) == (numbers[-1], NINE + 2 * DAY, 2)
        [filed] = await decided(ledger, await known(ledger, entry.number), NINE + 4 * DAY)
        run, cancelled = await begun(ledger, filed), Reason(ReasonCode.CANCELLED, "enough")
        await over_with(ledger, run, Status.KILLED, reason=cancelled)
        [bad] = await ledger.bad_results()
        assert bad.times == 2, "what a user cancelled is no result"
        await ledger.pause(entry.number, now=NINE + 4 * DAY, term=1)
        assert await ledger.bad_results() == []
        await ledger.resume(entry.number, now=NINE + 4 * DAY, term=1)
        [filed] = await decided(ledger, await known(ledger, entry.number), NINE + 5 * DAY)
        await used(ledger, filed, Status.NO_WORK, now=NINE + 5 * DAY)
        assert await ledger.bad_results() == [], "it has recovered"

    @story
    async def test_outcomes_are_counted_by_parts_of_a_period(self, ledger: Ledger) -> None:
        first, second = await several_waiting(ledger, 2)
        await used(ledger, first, Status.FAILED)
        await used(ledger, second, Status.DONE)
        entry = await known(ledger, first.entry)
        [filed] = await decided(ledger, entry, NINE + DAY)
        await used(ledger, filed, Status.DONE, now=NINE + DAY)
        look = partial(ledger.outcomes, since=NINE - HOUR, until=NINE + 2 * DAY)
        found = await look(step=HOUR)
        assert sorted(each[:4] for each in found) == [
            (NINE, Status.DONE, 1, ""),
            (NINE, Status.FAILED, 1, ""),
            (NINE + DAY, Status.DONE, 1, ""),
        ]
        assert await ledger.outcomes(since=NINE + HOUR, until=NINE + DAY, step=HOUR) == []
        found = await look(
            step=4 * DAY, lane="entry", which=ReceiptFilter(frozenset({first.entry}))
        )
        assert {each.lane for each in found} == {str(first.entry)}
        assert [each[4:] for each in found if each.status is Status.DONE] == [
            (NINE + DAY, NINE + DAY, filed.number)
        ]
        failed = ReceiptFilter(statuses=(Status.FAILED,))
        found = await look(step=4 * DAY, lane="file", which=failed)
        assert [(each.lane, each.times) for each in found] == [(first.origin.file, 1)]
        some = partial(ledger.first_entries, since=NINE - HOUR, until=NINE + 2 * DAY)
        assert await some(limit=9) == [first.entry, second.entry]
        assert await some(limit=1) == [first.entry]
        assert await some(limit=9, which=failed) == [first.entry]

    @story
    async def test_the_spans_of_a_period_are_its_receipts_with_their_runs(
        self, ledger: Ledger
    ) -> None:
        first, second = await several_waiting(ledger, 2)
        await used(ledger, first, Status.FAILED)
        look = partial(ledger.spans, since=NINE - HOUR, until=NINE + HOUR)
        found = await look(limit=9)
        assert [each.receipt for each in found] == [second.number, first.number]
        assert (found[0].run, found[0].begun_at, found[0].status) == (None, None, Status.WAITING)
        [run] = await ledger.runs_of(first.number)
        assert (found[1].run, found[1].outcome) == (run.number, Status.FAILED)
        assert (found[1].begun_at, found[1].over_at) == (run.started_at, run.ended_at)
        assert await look(limit=1) == found[:1]
        assert await look(limit=9, which=ReceiptFilter(frozenset({first.entry}))) == found[1:]
        assert await ledger.spans(since=NINE + HOUR, until=NINE + DAY, limit=9) == []

    @story
    async def test_an_acknowledgement_replaces_the_one_before_and_is_taken_back(
        self, ledger: Ledger
    ) -> None:
        entry, _ = await waiting(ledger)
        acknowledge = partial(ledger.acknowledge, entry.number, now=NOW, term=1, since=NINE)
        await acknowledge(state=InboxState.FAILING)
        with acting("session:ana"):
            await acknowledge(state=InboxState.LATE, until=NINE + DAY, note="I know")
        [about] = await ledger.acknowledged()
        assert about == Acknowledged(
            entry.number, InboxState.LATE, NINE, NOW, NINE + DAY, "I know", "session:ana"
        )
        told = [each for each in await ledger.events_after(0) if each.kind == "acknowledged"]
        assert told[-1].facts == {
            "state": "late",
            "note": "I know",
            "until": "2026-04-02T09:00:00Z",
        }
        await acknowledge(state=None)
        assert await ledger.acknowledged() == []

    @story
    async def test_when_a_limit_is_over_one_receipt_goes_first_and_the_others_follow_its_good_end(
        self, ledger: Ledger
    ) -> None:
        filed = await several_waiting(ledger, 4)
        await limited(ledger, filed[0], until=NINE + HOUR)
        for each in filed[1:]:
            found = await ledger.ask_account("claude", each.number, now=NINE, term=1)
            assert found is not None
            await ledger.hold(
                each.number, reason=found.reason(), account="claude", now=NINE, term=1
            )
        assert await ledger.ask_account("claude (work)", 99, now=NINE, term=1) is None
        assert await ledger.free_limited(now=NINE + 59 * MINUTE, term=1) == []
        free = partial(ledger.free_limited, now=NINE + HOUR, term=1)
        ask = partial(ledger.ask_account, "claude", now=NINE + HOUR, term=1)
        assert await free() == [filed[0].number]
        assert await free() == []
        assert await ask(filed[0].number) is None
        assert await ask(filed[1].number) is not None
        await used(ledger, filed[0], Status.FAILED, now=NINE + HOUR)
        assert await free() == [filed[1].number]
        await used(ledger, filed[1], Status.DONE, now=NINE + HOUR)
        assert await ledger.limits() == []
        assert await free() == [each.number for each in filed[2:]]

    @story
    async def test_without_a_time_a_limit_is_tried_after_one_two_four_up_to_sixty_minutes(
        self, ledger: Ledger
    ) -> None:
        _, filed = await waiting(ledger)
        now, waits = NINE, []
        for _ in range(9):
            await limited(ledger, filed, now=now)
            [limit] = await ledger.limits()
            waits.append(int((limit.until_at - now) / MINUTE))
            now = limit.until_at
            assert await ledger.free_limited(now=now, term=1) == [filed.number]
        assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]

    @story
    async def test_a_limit_that_is_met_for_eight_days_fails_its_receipt(
        self, ledger: Ledger
    ) -> None:
        _, filed = await waiting(ledger)
        await limited(ledger, filed, until=NINE + 30 * DAY)
        [limit] = await ledger.limits()
        assert limit.until_at == NINE + 8 * DAY
        assert await ledger.free_limited(now=limit.until_at, term=1) == [filed.number]
        over = await limited(ledger, filed, now=limit.until_at)
        assert (over.status, over.receipt.reason.code) == (Status.FAILED, ReasonCode.USAGE_LIMIT)
        assert str(over.receipt.reason) == ("usage limit of claude since 2026-04-01T09:00:00Z (8d)")

    @story
    async def test_what_began_before_a_limit_says_nothing_about_its_end(
        self, ledger: Ledger
    ) -> None:
        one, other, third = await several_waiting(ledger, 3)
        runs = [await begun(ledger, each) for each in (other, third)]
        await limited(ledger, one)
        await over_with(ledger, runs[0], Status.LIMITED)
        await over_with(ledger, runs[1], Status.DONE)
        [limit] = await ledger.limits()
        assert (limit.until_at, limit.tries) == (NINE + MINUTE, 0)

    @story
    async def test_what_has_another_program_waits_for_it_and_no_attempt_is_used(
        self, ledger: Ledger
    ) -> None:
        _, filed = await waiting(ledger)
        over = await limited(ledger, filed, has_other=True)
        assert (over.status, over.attempts, over.receipt.start_at) == (Status.WAITING, 0, NINE)
        run = await begun(ledger, filed)
        failed = Reason(ReasonCode.PROVIDER_ERROR, "502")
        await over_with(ledger, run, Status.FAILED, reason=failed, has_other=True)
        assert await status(ledger, filed) is Status.WAITING
        run = await begun(ledger, filed)
        await over_with(ledger, run, Status.FAILED, has_other=True)
        assert await status(ledger, filed) is Status.FAILED

    @story
    async def test_a_clock_that_is_set_back_forgets_the_limits_of_the_future(
        self, ledger: Ledger
    ) -> None:
        _, filed = await waiting(ledger)
        await limited(ledger, filed, now=NINE + 900 * DAY)
        await ledger.set_back(now=NINE, term=1)
        assert await ledger.limits() == []
        assert await ledger.free_limited(now=NINE, term=1) == [filed.number]

    @story
    async def test_pausing_skips_what_waits_and_resuming_goes_on_from_now(
        self, ledger: Ledger
    ) -> None:
        entry, filed = await waiting(ledger)
        until = NINE + 9 * DAY
        with acting("token:ops"):
            skipped = await ledger.pause(
                entry.number, now=NINE, term=1, note="holiday", until=until
            )
        assert skipped == 1
        assert await ledger.pause(entry.number, now=NINE, term=1) is None
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
            "1 skipped: did not run before the entry was paused by token ops: holiday",
            "3 skipped: paused from 2026-04-01T09:00:00Z to 2026-04-04T10:00:00Z",
        ]
        [again] = await taken(ledger, workflow("Digest"), now=NINE + 4 * DAY)
        assert again.accounted_to == NINE + 3 * DAY + HOUR

    @story
    async def test_times_before_a_pause_are_not_called_paused(self, ledger: Ledger) -> None:
        entry, filed = await waiting(ledger)
        with acting("token:ops"):
            assert await ledger.pause(entry.number, now=NINE + 2 * DAY, term=1, note="holiday")
        assert await ledger.resume(entry.number, now=NINE + 3 * DAY, term=1)
        assert await status(ledger, filed) is Status.SKIPPED
        assert await history(ledger, entry) == [
            "1 skipped: did not run before the entry was paused by token ops: holiday",
            "2 skipped: did not run before the entry was paused by token ops: holiday",
            "1 skipped: paused from 2026-04-03T09:00:00Z to 2026-04-04T09:00:00Z",
        ]

    @story
    async def test_what_is_not_settled_is_listed_until_it_is(self, ledger: Ledger) -> None:
        entry, filed = await waiting(ledger)
        assert await ledger.unsettled() == []
        assert await ledger.settle([filed.number], now=NINE, term=1) == 0
        await ledger.pause(entry.number, now=NINE, term=1)
        assert [each.number for each in await ledger.unsettled()] == [filed.number]
        assert await ledger.unsettled(after=filed.number) == []
        assert await ledger.settle([filed.number], now=NINE, term=1) == 1
        assert await ledger.settle([filed.number], now=NINE, term=1) == 0
        assert await ledger.unsettled() == []


class MissingSuite:
    """What a scan does not see."""

    @story
    async def test_what_is_missing_is_gone_only_if_a_later_scan_misses_it_too(
        self, ledger: Ledger
    ) -> None:
        [entry] = await taken(ledger, workflow("Digest"))
        look_at = await ledger.scan("org", Scan(()), now=NOW, term=1)
        assert look_at == NOW + 2 * SECOND
        [missing] = await ledger.entries()
        assert (missing.missing_at, missing.gone_at, missing.is_armed) == (NOW, None, True)
        assert await ledger.scan("org", Scan(()), now=NOW + SECOND, term=1) == look_at
        assert await ledger.due(now=NINE) == []
        assert await decided(ledger, entry, NINE) == []
        assert await ledger.wake_at() is None
        assert await ledger.scan("org", Scan(()), now=look_at, term=1) is None
        [gone] = await ledger.entries()
        assert (gone.gone_at, gone.missing_at) == (look_at, None)
        assert await ledger.due(now=NINE) == []

    @story
    async def test_what_is_there_again_was_never_gone(self, ledger: Ledger) -> None:
        [entry] = await taken(ledger, workflow("Digest"))
        await ledger.scan("org", Scan(()), now=NOW, term=1)
        before = await last_event(ledger)
        [again] = await taken(ledger, workflow("Digest"), now=NOW + HOUR + MINUTE)
        assert again == entry
        assert (await ledger.entries())[0].missing_at is None
        assert await last_event(ledger) == before

    @story
    async def test_what_is_missing_stands_again_when_its_file_is_there_and_cannot_be_read(
        self, ledger: Ledger
    ) -> None:
        [entry] = await taken(ledger, workflow("Digest"))
        await ledger.scan("org", Scan(()), now=NOW, term=1)
        unread = Scan((), standing=("plan.org",), problems=(HoraeError("plan.org: no"),))
        assert await ledger.scan("org", unread, now=NOW + HOUR, term=1) is None
        assert await ledger.due(now=NINE) == [DueEntry(entry)]

    @story
    async def test_a_source_is_known_as_long_as_one_of_its_entries_is_there(
        self, ledger: Ledger
    ) -> None:
        assert not await ledger.knows("org")
        await taken(ledger, workflow("Digest"))
        assert await ledger.knows("org")
        assert not await ledger.knows("board")
        await taken(ledger, now=NOW + SECOND)
        assert not await ledger.knows("org")

    @story
    async def test_what_is_renamed_keeps_its_number_in_the_same_scan_and_in_the_next(
        self, ledger: Ledger
    ) -> None:
        [entry] = await taken(ledger, workflow("Digest", body="Text.\n"), file="a.org")
        moved = Scan(tuple(plan(workflow("Digest", body="Text.\n"), file="b.org")))
        assert await ledger.scan("org", moved, now=NOW, term=1) is None
        [found] = await armed(ledger, "org")
        assert (found.number, found.origin.file) == (entry.number, "b.org")
        # A scan between the two writes of a move: first it is nowhere, then somewhere else.
        await ledger.scan("org", Scan((), index={"b.org": "2"}), now=NOW, term=1)
        late = Scan(
            tuple(plan(workflow("Digest", body="Text.\n"), file="c.org")),
            standing=("b.org",),
            index={"b.org": "2", "c.org": "1"},
        )
        assert await ledger.scan("org", late, now=NOW + SECOND, term=1) is None
        [found] = await armed(ledger, "org")
        assert (found.number, found.origin.file) == (entry.number, "c.org")

    @story
    async def test_a_clock_that_was_set_back_keeps_nothing_missing_for_ever(
        self, ledger: Ledger
    ) -> None:
        await taken(ledger, workflow("Digest"))
        await ledger.scan("org", Scan(()), now=NOW + 365 * DAY, term=1)
        look_at = await ledger.scan("org", Scan(()), now=NOW, term=1)
        assert look_at == NOW + 2 * SECOND
        assert await ledger.scan("org", Scan(()), now=look_at, term=1) is None
        assert (await ledger.entries())[0].gone_at == look_at

    @pytest.mark.parametrize("standing", ["garden/a.org", "garden/", ""])
    @story
    async def test_what_was_not_read_stands(self, ledger: Ledger, standing: str) -> None:
        await taken(ledger, workflow("Digest"), file="garden/a.org")
        before = await last_event(ledger)
        scan = Scan((), standing=(standing,))
        assert await ledger.scan("org", scan, now=NOW + DAY, term=1) is None
        assert len(await armed(ledger, "org")) == 1
        assert await last_event(ledger) == before
        other = Scan((), standing=("garden", "garden/a.or", "elsewhere/"))
        assert await ledger.scan("org", other, now=NOW + DAY, term=1) is not None

    @story
    async def test_only_the_files_that_were_read_can_lose_something(self, ledger: Ledger) -> None:
        both = (*plan(workflow("A"), file="a.org"), *plan(workflow("B"), file="b.org"))
        await scanned(ledger, "org", both)
        scan = Scan(tuple(plan(workflow("C"), file="b.org")), standing=("a.org",))
        await ledger.scan("org", scan, now=NOW, term=1, patience=timedelta(0))
        assert [each.title for each in await armed(ledger, "org")] == ["A", "C"]

    @story
    async def test_what_was_missed_in_a_file_that_then_stands_as_it_was_is_gone(
        self, ledger: Ledger
    ) -> None:
        found = tuple(plan(workflow("Digest"), file="a.org"))
        await ledger.scan("org", Scan(found, index={"a.org": "1"}), now=NOW, term=1)
        look_at = await ledger.scan("org", Scan((), index={"a.org": "2"}), now=NOW, term=1)
        assert look_at
        stands = Scan((), standing=("a.org",), index={"a.org": "2"})
        assert await ledger.scan("org", stands, now=look_at, term=1) is None
        assert (await ledger.entries())[0].gone_at == look_at

    @story
    async def test_what_was_missed_in_a_file_that_cannot_be_read_is_not_gone(
        self, ledger: Ledger
    ) -> None:
        found = tuple(plan(workflow("Digest"), file="a.org"))
        await ledger.scan("org", Scan(found, index={"a.org": "1"}), now=NOW, term=1)
        await ledger.scan("org", Scan(()), now=NOW, term=1)  # the disk was away
        unreadable = Scan((), standing=("a.org",))
        assert await ledger.scan("org", unreadable, now=NOW + DAY, term=1) is None
        assert len(await armed(ledger, "org")) == 1

    @story
    async def test_by_what_files_are_known_is_remembered_for_each_source(
        self, ledger: Ledger
    ) -> None:
        assert await ledger.index("org") == {}
        for index in ({"a": "1", "b": "1"}, {"a": "2", "c": "1"}):
            await ledger.scan("org", Scan((), index=index), now=NOW, term=1)
            await ledger.scan("board", Scan((), index={"t": "1"}), now=NOW, term=1)
            assert await ledger.index("org") == index
        assert await ledger.index("board") == {"t": "1"}

    @story
    async def test_of_two_with_one_id_in_two_files_the_other_takes_over_when_the_first_goes(
        self, ledger: Ledger
    ) -> None:
        def named(file: str, *properties: str) -> tuple[Scanned, ...]:
            text = workflow("Digest", "0 9 * * *", f"In {file}.\n", ":ID: digest", *properties)
            return tuple(plan(text, file=file))

        first = Scan(named("a.org"), index={"a.org": "1"})
        await ledger.scan("org", first, now=NOW, term=1)
        [entry] = await armed(ledger, "org")
        index = {"a.org": "1", "b.org": "1"}
        for _ in range(2):
            scan = Scan(named("b.org"), standing=("a.org",), index=index)
            assert await ledger.scan("org", scan, now=NOW, term=1) is None
            assert await armed(ledger, "org") == [entry]
            # So that it is read again, and is there when the first has gone.
            assert await ledger.index("org") == {"a.org": "1"}
        scan = Scan(named("b.org"), index={"a.org": "2", "b.org": "1"})
        assert await ledger.scan("org", scan, now=NOW, term=1) is None
        [other] = await armed(ledger, "org")
        assert (other.number, other.origin.file) == (entry.number, "b.org")
        assert await ledger.index("org") == {"a.org": "2", "b.org": "1"}

    @story
    async def test_of_two_with_one_id_the_one_that_can_fire_is_armed(self, ledger: Ledger) -> None:
        id_line = ":ID: digest"
        done = plan(workflow("DONE Digest", "0 9 * * *", "", id_line), file="archive.org")
        live = plan(workflow("Digest", "0 9 * * *", "", id_line), file="plan.org")
        await scanned(ledger, "org", [*done, *live])
        [entry] = await armed(ledger, "org")
        assert entry.origin.file == "plan.org"
        index = {"archive.org": "1", "plan.org": "1"}
        await ledger.scan("org", Scan(tuple(done), index=index), now=NOW, term=1)
        assert await armed(ledger, "org") == []
        scan = Scan(tuple(live), standing=("archive.org",), index=index)
        await ledger.scan("org", scan, now=NOW, term=1)
        [again] = await armed(ledger, "org")
        assert (again.number, again.origin.file) == (entry.number, "plan.org")
        assert await ledger.index("org") == {"plan.org": "1"}


class DueSuite:
    """The ledger knows what comes next."""

    @story
    async def test_what_has_come_due_is_listed_the_earliest_first(self, ledger: Ledger) -> None:
        [digest, poll, _] = await taken(
            ledger,
            workflow("Digest", "0 9 * * *"),
            workflow("Poll", "*/10 * * * *"),
            "* Asked :workflow:\n",
        )
        assert await ledger.wake_at() == NOW + 10 * MINUTE
        assert await ledger.due(now=NOW + 9 * MINUTE) == []
        assert await ledger.due(now=NINE) == [DueEntry(poll), DueEntry(digest)]
        assert await ledger.due(now=NINE, limit=1) == [DueEntry(poll)]
        [filed] = await decided(ledger, digest, NINE)
        assert [each.entry.number for each in await ledger.due(now=NINE + DAY)] == [
            poll.number,
            digest.number,
        ]
        found = await ledger.entry(digest.number)
        assert found
        assert found.next_at == NINE + DAY
        assert await ledger.entry(99) is None
        [_, busy] = await ledger.due(now=NINE + DAY)
        assert busy.is_busy
        await ledger.hold(filed.number, reason=because(""), now=NINE, term=1)
        assert (await ledger.due(now=NINE + DAY))[1].is_busy
        await ledger.pause(digest.number, now=NINE, term=1)
        assert not any(each.is_busy for each in await ledger.due(now=NINE + DAY))

    @story
    async def test_what_follows_its_end_has_no_next_moment_until_that(self, ledger: Ledger) -> None:
        [entry] = await taken(ledger, "* Rest :workflow:\nSCHEDULED: <2026-04-01 Wed 09:00 .+1d>\n")
        assert await ledger.wake_at() == NINE
        [filed] = await decided(ledger, entry, NINE)
        assert await ledger.wake_at() is None
        run = await one_run.start(ledger, filed.number, now=NINE, term=1)
        assert run
        await one_run.running(ledger, run.number, Process(1, 1), now=NINE, term=1)
        await one_run.end(
            ledger, run.number, Status.DONE, reason=because("it ended"), now=NINE + HOUR, term=1
        )
        assert await ledger.wake_at() == NINE + DAY

    @pytest.mark.parametrize("how", ["pause", "remove", "disarm"])
    @story
    async def test_what_follows_an_end_that_will_not_come_counts_from_the_skip(
        self, ledger: Ledger, how: str
    ) -> None:
        text = "* Rest :workflow:\nSCHEDULED: <2026-04-01 Wed 09:00 .+1d>\n"
        [entry] = await taken(ledger, text)
        await decided(ledger, entry, NINE)
        if how == "pause":
            await ledger.pause(entry.number, now=NINE + MINUTE, term=1)
            assert await ledger.wake_at() is None
            await ledger.resume(entry.number, now=NINE + HOUR, term=1)
        else:
            gone = () if how == "remove" else (text.replace("* ", "* DONE "),)
            await taken(ledger, *gone, now=NINE + MINUTE)
            assert await ledger.wake_at() is None
            await taken(ledger, text, now=NINE + HOUR)
        assert await ledger.wake_at() == NINE + DAY

    @story
    async def test_a_pause_that_ends_is_the_next_moment_and_wakes_its_entry(
        self, ledger: Ledger
    ) -> None:
        [digest, water] = await taken(ledger, workflow("Digest"), workflow("Water", "0 12 * * *"))
        until = NOW + 30 * MINUTE
        await ledger.pause(digest.number, now=NOW, term=1, until=until)
        assert await ledger.wake_at() == until
        assert await ledger.wake(now=until - SECOND, term=1) == []
        assert await ledger.wake(now=until, term=1) == [digest.number]
        assert await ledger.wake(now=until, term=1) == []
        assert await ledger.due(now=NINE) == [DueEntry(await known(ledger, digest.number))]
        await ledger.pause(water.number, now=NOW, term=1, until=until)
        await taken(ledger, workflow("Digest"))
        assert await ledger.wake_at() == NINE  # what is gone wakes nobody
        assert await ledger.wake(now=until, term=1) == []

    @story
    async def test_a_pause_that_ended_while_nobody_looked_skips_nothing_after_its_end(
        self, ledger: Ledger
    ) -> None:
        [digest] = await taken(ledger, workflow("Digest"))
        await ledger.pause(digest.number, now=NOW, term=1, until=NINE + HOUR)
        late = NINE + DAY + MINUTE
        assert await ledger.wake(now=late, term=1) == [digest.number]
        said = "1 skipped: paused from 2026-04-01T08:00:00Z to 2026-04-01T10:00:00Z"
        assert await history(ledger, digest) == [said]
        [due] = await ledger.due(now=late)
        [filed] = await decided(ledger, due.entry, late)
        assert (filed.receipt.planned_at, filed.status) == (NINE + DAY, Status.WAITING)

    @story
    async def test_a_delay_that_is_paused_past_its_time_runs_when_it_is_resumed(
        self, ledger: Ledger
    ) -> None:
        [early] = await scanned(ledger, "triggers", [delay("tea", NINE)])
        await ledger.pause(early.number, now=NINE + HOUR, term=1)
        await ledger.resume(early.number, now=NINE + DAY, term=1)
        assert await history(ledger, early) == []
        [due] = await ledger.due(now=NINE + DAY)
        [filed] = await decided(ledger, due.entry, NINE + DAY)
        assert (filed.receipt.key, filed.status) == ("delay:tea", Status.WAITING)
        assert await ledger.wake_at() is None

    @story
    async def test_a_changed_rule_has_another_next_moment(self, ledger: Ledger) -> None:
        await taken(ledger, workflow("Digest", "0 9 * * *"))
        await taken(ledger, workflow("Digest", "0 10 * * *"))
        assert await ledger.wake_at() == NINE + HOUR
        await taken(ledger, workflow("Digest", "0 10 * * *", "", ":UNTIL: 2026-01-01"))
        assert await ledger.wake_at() is None

    @story
    async def test_what_follows_others_is_listed_while_it_is_armed(self, ledger: Ledger) -> None:
        rule = AfterRule((Occasion.FAILED, Occasion.STUCK), "digest")
        mark = Mark("alert", "Alert", "after failed, stuck of digest", "")
        alert = Scanned(mark, Entry("alert", Origin("plan.org", 9), "Alert", rule))
        await scanned(ledger, "org", [*plan(workflow('Say "rule":{"kind":"after"')), alert])
        [found] = await ledger.followers()
        assert isinstance(found.item, Entry)
        assert (found.mark, found.item.rule, found.next_at) == (mark, rule, None)
        await ledger.pause(found.number, now=NOW, term=1)
        assert await ledger.followers() == []
        await ledger.resume(found.number, now=NOW, term=1)
        await taken(ledger)
        assert await ledger.followers() == []

    @story
    async def test_an_entry_is_found_by_number_address_id_title_or_place(
        self, ledger: Ledger
    ) -> None:
        await taken(ledger, workflow("Water"), file="gone.org")
        [water, digest] = await taken(
            ledger, workflow("Digest", "0 9 * * *", "", ":ID: dg"), workflow("Water"), file="a.org"
        )

        async def found(word: str) -> list[int]:
            return [each.number for each in await ledger.find(word)]

        await taken(ledger, workflow("Digest", "0 9 * * *", "", ":ID: dg"), file="a.org")
        other = workflow("Water", "0 10 * * *", "Other text.\n")
        await taken(ledger, workflow("Digest", "0 9 * * *", "", ":ID: dg"), other, file="b.org")
        [_, gone] = await ledger.find("Water")  # the older one, and yet the last
        assert gone.number == water.number
        assert gone.gone_at is not None
        here = (await found("Water"))[0]
        assert await found(str(here)) == [here]
        assert await found("a.org::Water") == [water.number]
        assert await found("id:dg") == [digest.number]
        assert await found("dg") == [digest.number]
        assert await found("b.org:1") == [digest.number]
        assert await found("b.org:2") == []
        await scanned(ledger, "crew", [keeper()])
        [iris] = await found("iris")
        await ledger.remember(iris, "a line", term=1)
        [listed] = await ledger.find("iris")
        assert listed.memory == "a line"
        for word in ("", "99", "nobody", ":", "a.org:", "9" * 30, "\ud800"):
            assert await found(word) == []


def keeper(
    base: timedelta = MINUTE,
    first_at: datetime = NINE,
    *,
    counts: tuple[int, int, int] = (0, 0, 0),
) -> Scanned:
    """Return what a scan finds of a keeper."""
    mark = Mark("crew:iris", "iris", f"every {base}", "")
    rule = CadenceRule(base, first_at, *counts)
    entry = Entry("crew:iris", Origin("iris", 1), "iris", rule, work=Work.TICK)
    return Scanned(mark, entry)


async def ended(
    ledger: Ledger,
    filed: Filed,
    outcome: Status,
    now: datetime,
    *,
    memory: str | None = None,
    is_counted: bool = True,
    reason: Reason | None = None,
) -> Filed:
    """Run a receipt to its end."""
    run = await one_run.start(ledger, filed.number, now=now, term=1)
    assert run
    await one_run.running(ledger, run.number, Process(1, 1), now=now, term=1)
    found = await one_run.end(
        ledger,
        run.number,
        outcome,
        reason=reason or because("it ended"),
        now=now,
        term=1,
        memory=memory,
        is_counted=is_counted,
    )
    assert found
    return found


async def ticked(
    ledger: Ledger, outcome: Status, *, memory: str | None = None, is_counted: bool = True
) -> str:
    """Let the next tick come and end after a minute; return its key."""
    now = await ledger.wake_at()
    assert now
    [due] = await ledger.due(now=now)
    [filed] = await decided(ledger, due.entry, now)
    end = now + MINUTE
    await ended(ledger, filed, outcome, end, memory=memory, is_counted=is_counted)
    return filed.receipt.key


class CadenceSuite:
    """What is counted."""

    async def counts(self, ledger: Ledger) -> tuple[int, int, int]:
        [entry] = await armed(ledger, "crew")
        assert isinstance(entry.rule, CadenceRule)
        return entry.rule.ticks, entry.rule.streak, entry.rule.failures

    @story
    async def test_ticks_count_and_their_ends_make_streaks(self, ledger: Ledger) -> None:
        await scanned(ledger, "crew", [keeper()])
        outcomes = (
            Status.NO_WORK,
            Status.NO_WORK,
            Status.FAILED,
            Status.KILLED,
            Status.NO_WORK,
            Status.INTERRUPTED,
            Status.DONE,
        )
        assert [
            (await ticked(ledger, outcome), *(await self.counts(ledger))[1:])
            for outcome in outcomes
        ] == [
            ("tick:1", 1, 0),
            ("tick:2", 2, 0),
            ("tick:3", 0, 1),
            ("tick:4", 0, 2),
            ("tick:5", 1, 0),
            ("tick:6", 0, 1),
            ("tick:7", 0, 0),
        ]
        assert (await ledger.entries())[0].failures == 0

    @story
    async def test_what_a_run_remembers_and_that_it_does_not_count_move_with_its_end(
        self, ledger: Ledger
    ) -> None:
        await scanned(ledger, "crew", [keeper()])
        await ticked(ledger, Status.NO_WORK, memory="wake_add 2")
        assert (await ledger.entries())[0].memory == "wake_add 2"
        await ticked(ledger, Status.NO_WORK, is_counted=False)
        [known] = await ledger.entries()
        assert (known.memory, known.streak, known.ticks) == ("wake_add 2", 1, 2)

    @story
    async def test_the_next_tick_waits_longer_after_each_that_found_no_work(
        self, ledger: Ledger
    ) -> None:
        await scanned(ledger, "crew", [keeper()])
        waits = []
        for _ in range(4):
            before = await ledger.wake_at()
            await ticked(ledger, Status.NO_WORK)
            after = await ledger.wake_at()
            assert before
            assert after
            waits.append(after - before - MINUTE)
        assert waits == [MINUTE, 2 * MINUTE, 4 * MINUTE, 8 * MINUTE]

    @story
    async def test_a_scan_resets_nothing_and_only_another_base_is_another_rule(
        self, ledger: Ledger
    ) -> None:
        await scanned(ledger, "crew", [keeper()])
        await ticked(ledger, Status.NO_WORK)
        later = NINE + HOUR
        await scanned(ledger, "crew", [keeper(first_at=later)], now=NINE + 2 * MINUTE)
        assert await self.counts(ledger) == (1, 1, 0)
        assert await ledger.wake_at() == later
        [entry] = await armed(ledger, "crew")
        assert await history(ledger, entry) == ["1 no_work: it ended"]
        await scanned(ledger, "crew", [keeper(2 * MINUTE, later)], now=later + MINUTE)
        assert (await history(ledger, entry))[1:] == ["1 skipped: the rule was changed"]
        assert await self.counts(ledger) == (2, 1, 0)
        assert await ledger.wake_at() == later + 3 * MINUTE

    @story
    async def test_a_keeper_that_the_ledger_does_not_know_brings_its_counts(
        self, ledger: Ledger
    ) -> None:
        await scanned(ledger, "crew", [keeper(counts=(7, 2, 1))])
        assert await self.counts(ledger) == (7, 2, 1)
        assert await ticked(ledger, Status.DONE) == "tick:8"

    @story
    async def test_a_keeper_whose_first_tick_is_over_before_it_is_known_still_ticks(
        self, ledger: Ledger
    ) -> None:
        await scanned(ledger, "crew", [keeper(first_at=NOW - DAY)])
        assert await ledger.wake_at() == NOW + MINUTE

    @story
    async def test_a_keeper_whose_first_tick_is_moved_before_it_is_known_still_ticks(
        self, ledger: Ledger
    ) -> None:
        await scanned(ledger, "crew", [keeper()])
        await scanned(ledger, "crew", [keeper(first_at=NOW - DAY)], now=NOW + SECOND)
        assert await ledger.wake_at() == NOW + SECOND + MINUTE

    @story
    async def test_a_cadence_that_is_written_otherwise_is_the_same_rule(
        self, ledger: Ledger
    ) -> None:
        await scanned(ledger, "crew", [keeper()])
        again = keeper()
        again = again._replace(mark=again.mark._replace(rule="every minute"))
        await scanned(ledger, "crew", [again], now=NINE + MINUTE)
        assert await ledger.wake_at() == NINE
        assert (await ledger.receipts()).receipts == ()

    @story
    async def test_an_end_before_the_watermark_hides_no_next_tick(self, ledger: Ledger) -> None:
        [entry] = await scanned(ledger, "crew", [keeper()])
        [filed] = await decided(ledger, entry, NINE)
        await ended(ledger, filed, Status.DONE, NOW)  # the clock was set back, and nobody saw it
        assert await ledger.wake_at() == NINE + MINUTE

    @story
    async def test_ticks_that_did_not_run_are_counted_too(self, ledger: Ledger) -> None:
        [entry] = await scanned(ledger, "crew", [keeper()])
        decision = decide(entry, now=NINE, is_busy=True)
        [skipped] = await ledger.decide([EntryStep(entry, decision)], now=NINE, term=1)
        assert skipped.status is Status.SKIPPED
        assert await self.counts(ledger) == (1, 0, 0)
        assert await ledger.wake_at() == NINE + MINUTE

    @story
    async def test_a_request_is_no_tick(self, ledger: Ledger) -> None:
        [entry] = await scanned(ledger, "crew", [keeper()])
        [filed] = await ledger.add(entry.number, [asked("manual:1", NOW)], now=NOW, term=1)
        await ended(ledger, filed, Status.FAILED, NOW)
        assert await self.counts(ledger) == (0, 0, 0)
        assert await ledger.wake_at() == NINE

    @story
    async def test_a_tick_that_is_paused_away_is_followed_by_another(self, ledger: Ledger) -> None:
        [entry] = await scanned(ledger, "crew", [keeper()])
        await decided(ledger, entry, NINE)
        await ledger.pause(entry.number, now=NINE, term=1)
        await ledger.resume(entry.number, now=NINE + SECOND, term=1)
        assert await ledger.wake_at() == NINE + MINUTE

    @story
    async def test_what_fails_as_often_as_it_may_is_paused(self, ledger: Ledger) -> None:
        text = workflow("Poll", "* * * * *", "", ":PAUSE-AFTER: 3", ":OVERLAP: allow")
        [entry] = await taken(ledger, text)

        async def run(outcome: Status) -> int:
            now = await ledger.wake_at()
            assert now
            [due] = await ledger.due(now=now)
            [filed] = await decided(ledger, due.entry, now)
            await ended(ledger, filed, outcome, now)
            [listed] = await ledger.entries()
            return listed.failures

        bad = (Status.FAILED, Status.KILLED, Status.INTERRUPTED)
        assert [await run(each) for each in (*bad[:2], Status.NO_WORK)] == [1, 2, 0]
        # What is asked for counts as well.
        [filed] = await ledger.add(entry.number, [asked("manual:1", NOW)], now=NOW, term=1)
        await ended(ledger, filed, Status.FAILED, NOW)
        assert [await run(each) for each in bad[:2]] == [2, 3]
        [listed] = await ledger.entries()
        assert listed.pause
        assert listed.pause.note == "failed 3 times in a row"
        assert await ledger.wake_at() is None
        assert (await ledger.events_after(0))[-1].kind == "paused"
        await ledger.resume(entry.number, now=NOW + HOUR, term=1)
        assert [await run(Status.FAILED) for _ in range(2)] == [1, 2]
        assert (await ledger.entries())[0].is_armed

    @story
    async def test_what_a_user_cancels_counts_neither_as_failed_nor_as_recovered(
        self, ledger: Ledger
    ) -> None:
        text = workflow("Poll", "* * * * *", "", ":PAUSE-AFTER: 2", ":OVERLAP: allow")
        [entry] = await taken(ledger, text)
        cancelled, found = Reason(ReasonCode.CANCELLED, "cancelled by ana"), []
        for number, reason in enumerate((cancelled, None, cancelled, None)):
            key = asked(f"manual:{number}", NOW)
            [filed] = await ledger.add(entry.number, [key], now=NOW, term=1)
            await ended(ledger, filed, Status.KILLED, NOW, reason=reason)
            [listed] = await ledger.entries()
            found.append((listed.failures, bool(listed.pause)))
        assert found == [(0, False), (1, False), (1, False), (2, True)]

    @story
    async def test_a_bad_end_that_is_tried_again_is_no_failure_yet(self, ledger: Ledger) -> None:
        entry, filed = await waiting(ledger, ":RETRY: 1 30s", ":PAUSE-AFTER: 1")
        assert (await ended(ledger, filed, Status.FAILED, NINE)).status is Status.WAITING
        assert (await ledger.entries())[0].failures == 0
        await ended(ledger, filed, Status.FAILED, NINE)
        [listed] = await ledger.entries()
        assert listed.number == entry.number
        assert listed.pause
        assert listed.pause.note == "failed once"


class ClockSuite:
    """A clock that ran ahead and is set back."""

    @story
    async def test_entries_go_on_from_now_and_what_ran_does_not_run_again(
        self, ledger: Ledger
    ) -> None:
        [entry] = await taken(ledger, workflow("Poll", "0 * * * *"))
        ahead = NOW + 10 * HOUR
        filed = await decided(ledger, entry, ahead)
        await ended(ledger, filed[-1], Status.DONE, ahead)
        back = NOW + 8 * HOUR + MINUTE
        assert await ledger.set_back(now=back, term=1) == 1
        assert await ledger.set_back(now=back, term=1) == 0
        assert (await ledger.events_after(0))[-1].facts == {"entries": 1}
        assert await ledger.wake_at() == NOW + 9 * HOUR
        [due] = await ledger.due(now=NOW + 9 * HOUR)
        [again] = await decided(ledger, due.entry, NOW + 9 * HOUR)
        assert again.receipt.key == "cron:2026-04-01T17:00:00Z"
        [due] = await ledger.due(now=ahead)
        assert await decided(ledger, due.entry, ahead) == []  # it ran
        assert await ledger.wake_at() == ahead + HOUR
        keys = [each.receipt.key for each in (await ledger.receipts()).receipts]
        void = next(each for each in filed if each.receipt.key == again.receipt.key)
        assert f"{void.receipt.key}:void:{void.number}" in keys
        assert len(keys) == 11

    @story
    async def test_a_pause_covers_the_times_that_come_again(self, ledger: Ledger) -> None:
        [entry] = await taken(ledger, workflow("Poll", "0 * * * *"))
        later = NINE + 4 * HOUR
        await decided(ledger, entry, later)
        await ledger.pause(entry.number, now=later, until=later + HOUR, term=1)
        await ledger.set_back(now=NINE, term=1)
        assert await ledger.wake(now=later + 2 * HOUR, term=1) == [entry.number]
        [skipped] = [
            each
            for each in (await ledger.receipts()).receipts
            if each.decided_at == later + 2 * HOUR
        ]
        assert (skipped.receipt.planned_at, skipped.receipt.count) == (NINE + HOUR, 5)
        assert str(skipped.receipt.reason) == (
            "paused from 2026-04-01T09:00:00Z to 2026-04-01T14:00:00Z"
        )

    @story
    async def test_a_year_ahead_and_back_costs_one_interval_at_most(self, ledger: Ledger) -> None:
        rest = "* Rest :workflow:\nSCHEDULED: <2026-04-01 Wed 09:00 .+1h>\n"
        once = "* Once :workflow:\nSCHEDULED: <2026-04-01 Wed 10:00>\n"
        await taken(ledger, workflow("Poll", "0 * * * *"), rest, once, "* DONE Off :workflow:\n")
        await scanned(ledger, "crew", [keeper()])
        year = NOW + 365 * DAY
        while (at_ := await ledger.wake_at()) is not None and at_ <= year:
            for due in await ledger.due(now=year):
                for filed in await decided(ledger, due.entry, year):
                    if filed.status is Status.WAITING:
                        await ended(ledger, filed, Status.DONE, year)
        assert await ledger.set_back(now=NOW, term=1) == 4
        nexts = {each.mark.title: each.next_at for each in await ledger.entries()}
        assert nexts == {
            "Poll": NINE,
            "Rest": NINE,
            "Once": NINE + HOUR,
            "Off": None,
            "iris": NINE,
        }
        # What ran keeps its key, and what counts from its end is not left waiting for one.
        now = NOW
        for hour in range(1, 5):
            now = NOW + hour * HOUR
            for due in await ledger.due(now=now):
                for filed in await decided(ledger, due.entry, now):
                    assert filed.entry != 3
                    await ended(ledger, filed, Status.DONE, now)
        later = {each.mark.title: each.next_at for each in await ledger.entries()}
        assert later == {
            "Poll": now + HOUR,
            "Rest": now + HOUR,
            "Once": None,
            "Off": None,
            "iris": now + MINUTE,
        }

    @story
    async def test_what_follows_an_end_whose_key_is_taken_goes_on(self, ledger: Ledger) -> None:
        [entry] = await taken(ledger, "* Rest :workflow:\nSCHEDULED: <2026-04-01 Wed 09:00 .+1h>\n")
        [filed] = await decided(ledger, entry, NINE)
        await ended(ledger, filed, Status.DONE, NINE)
        await ledger.set_back(now=NOW, term=1)
        [due] = await ledger.due(now=NINE)
        assert await decided(ledger, due.entry, NINE) == []
        assert await ledger.wake_at() == NINE + HOUR

    @story
    async def test_an_end_far_ahead_is_set_back_too(self, ledger: Ledger) -> None:
        [entry] = await scanned(ledger, "crew", [keeper()])
        [filed] = await decided(ledger, entry, NINE)
        await ended(ledger, filed, Status.DONE, NINE + 365 * DAY)
        assert await ledger.set_back(now=NINE + MINUTE, term=1) == 1
        assert await ledger.wake_at() == NINE + 2 * MINUTE

    @story
    async def test_a_delay_that_was_kept_stays_so_and_one_that_was_not_is_due(
        self, ledger: Ledger
    ) -> None:
        found = [delay("tea", NINE), delay("cake", NINE + DAY)]
        [tea, cake] = await scanned(ledger, "triggers", found)
        await decided(ledger, tea, NINE)
        await scanned(ledger, "triggers", found[:1], now=NINE + HOUR)  # the watermark moves on
        await scanned(ledger, "triggers", found, now=NINE + HOUR)
        assert await ledger.set_back(now=NOW, term=1) == 1
        assert [each.entry.number for each in await ledger.due(now=NINE + 2 * DAY)] == [cake.number]

    @story
    async def test_a_clock_that_is_right_sets_nothing_back(self, ledger: Ledger) -> None:
        await waiting(ledger)
        before = await last_event(ledger)
        assert await ledger.set_back(now=NINE, term=1) == 0
        assert await last_event(ledger) == before


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
        assert await ledger.count_open() == {Status.WAITING: 11}
        both = await ledger.receipts(statuses=[Status.WAITING, Status.DONE], limit=11)
        assert (len(both.receipts), both.cursor) == (11, None)

    @story
    async def test_what_has_not_ended_is_listed_with_its_receipt(self, ledger: Ledger) -> None:
        [entry] = await taken(ledger, workflow("Digest"))
        requests = [asked(f"manual:{number}", NOW) for number in range(3)]
        filed = await ledger.add(entry.number, requests, now=NOW, term=1)
        runs = [await one_run.start(ledger, each.number, now=NOW, term=1) for each in filed[1:]]
        assert runs[1]
        await one_run.running(ledger, runs[1].number, Process(7, 8), now=NOW, term=1)
        found = await ledger.open_runs()
        assert [each.number for each, _ in found] == [filed[1].number, filed[2].number]
        assert [run.process for _, run in found] == [None, Process(7, 8)]
        assert [each.status for each, _ in found] == [Status.STARTING, Status.RUNNING]

    @story
    async def test_what_happens_elsewhere_can_be_written_down(self, ledger: Ledger) -> None:
        await ledger.note("clock_step", now=NOW, term=1, entry=1, receipt=2, facts={"by": -3.5})
        [event] = await ledger.events_after(0)
        assert (event.kind, event.at, event.entry, event.receipt) == ("clock_step", NOW, 1, 2)
        assert event.facts == {"by": -3.5}

    @story
    async def test_every_change_is_an_event_in_order(self, ledger: Ledger) -> None:
        entry, filed = await waiting(ledger)
        run = await one_run.start(ledger, filed.number, now=NINE, term=1)
        assert run
        await ledger.give_back(run.number, reason=because("the engine died"), now=NINE, term=1)
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
    async def test_what_is_requested_at_once_is_recorded_with_who_requested_it(
        self, ledger: Ledger
    ) -> None:
        entries = await taken(ledger, *(workflow(f"W{n}") for n in range(6)))
        actors = ["token:ops", "cli:ada", "engine"] * 2

        async def request(entry: Entry, actor: str) -> Filed:
            with acting(actor):
                [filed] = await ledger.add(entry.number, [asked("manual:1", NOW)], now=NOW, term=1)
                # Several that hold at once are done at once; so are several that start.
                await ledger.hold(filed.number, reason=because("later"), now=NOW, term=1)
                await ledger.release(filed.number, reason=because("now"), now=NOW, term=1)
                assert await one_run.start(ledger, filed.number, now=NOW, term=1)
                assert await ledger.pause(entry.number, now=NOW, term=1) is not None
            return filed

        filed = await asyncio.gather(*map(request, entries, actors))
        assert [each.actor for each in filed] == actors
        for entry, receipt, actor in zip(entries, filed, actors, strict=True):
            assert await ledger.receipt(receipt.number) == replace(
                receipt,
                receipt=replace(receipt.receipt, status=Status.STARTING, reason=because(STARTING)),
            )
            found = await ledger.entry(entry.number)
            assert found is not None
            assert found.pause == Pause(NOW, by=actor)
        events = await ledger.events_after(0)
        for entry, actor in zip(entries, actors, strict=True):
            theirs = [each for each in events if each.entry == entry.number]
            assert [(each.kind, each.actor) for each in theirs] == [
                ("entry_new", "engine"), *[("receipt", actor)] * 4, ("paused", actor)
            ]  # fmt: skip

    @story
    async def test_only_what_was_asked_for_is_requested_by_an_actor(self, ledger: Ledger) -> None:
        entry, filed = await waiting(ledger)
        assert filed.actor == "engine"
        with acting("session:ops"):
            await ledger.pause(entry.number, now=NINE + 30 * HOUR, term=1)
        by_clock = (await ledger.receipts()).receipts
        assert [each.receipt.status for each in by_clock] == [Status.SKIPPED] * 2
        assert {each.actor for each in by_clock} == {"engine"}
        with acting("cli:ada"):
            await ledger.resume(entry.number, now=NINE + 31 * HOUR, term=1)
        last = (await ledger.events_after(0))[-1]
        assert (last.kind, last.actor) == ("resumed", "cli:ada")
        found = await ledger.entry(entry.number)
        assert found is not None
        assert found.pause is None

    @story
    async def test_what_several_requested_is_folded_for_each_of_them(self, ledger: Ledger) -> None:
        [entry] = await taken(ledger, workflow())
        for number, actor in enumerate(["cli:ada", "token:ops"] * 3):
            with acting(actor):
                receipt = replace(asked(f"manual:{number}", NOW), status=Status.SKIPPED)
                [filed] = await ledger.add(entry.number, [receipt], now=NOW, term=1)
            await ledger.settle([filed.number], now=NOW, term=1)
        year = NOW + 400 * DAY
        assert (await ledger.prune(before=year, now=year, term=1)).receipts == 4
        left = (await ledger.receipts()).receipts
        assert [(each.actor, each.receipt.count) for each in left] == [
            ("token:ops", 3), ("cli:ada", 3)
        ]  # fmt: skip

    @story
    async def test_a_note_outlives_the_run_and_is_folded_with_its_like_only(
        self, ledger: Ledger
    ) -> None:
        [entry] = await taken(ledger, workflow())
        for number, note in enumerate(["before the upgrade", "", "before the upgrade", ""]):
            receipt = replace(asked(f"manual:{number}", NOW), status=Status.SKIPPED, note=note)
            [filed] = await ledger.add(entry.number, [receipt], now=NOW, term=1)
            await ledger.settle([filed.number], now=NOW, term=1)
        year = NOW + 400 * DAY
        assert (await ledger.prune(before=year, now=year, term=1)).receipts == 2
        left = [each.receipt for each in (await ledger.receipts()).receipts]
        assert [(each.note, each.count) for each in left] == [("", 2), ("before the upgrade", 2)]

    @story
    async def test_an_actor_that_no_column_takes_is_spelled_out(self, ledger: Ledger) -> None:
        with acting("agent:\udc80\0"):
            await ledger.note("noted", now=NOW, term=1)
        assert (await ledger.events_after(0))[0].actor == r"agent:\udc80\x00"

    @story
    async def test_what_an_entry_runs_is_kept_under_its_digest(self, ledger: Ledger) -> None:
        odd = "Half \ud800 a pair, \0 and a nothing\r\n"
        [first] = plan(workflow("Digest"))
        assert isinstance(first.item, Entry)
        for digest, text in (("d1", odd), ("d1", "another"), ("d2", "")):
            item = replace(first.item, digest=digest)
            await scanned(ledger, "org", [Scanned(first.mark, item, text)])
        assert await ledger.text("d1") == odd
        assert await ledger.text("d2") == ""
        assert await ledger.text("d3") is None
        await taken(ledger, workflow("Digest", body="Text.\n"))
        [entry] = await armed(ledger, "org")
        assert await ledger.text(entry.digest) == workflow("Digest", body="Text.\n")

    @story
    async def test_a_run_is_given_all_that_it_needs(self, ledger: SqlLedger) -> None:
        entries = await taken(ledger, workflow("A"), workflow("B"), workflow("C"))
        await ledger.remember(entries[1].number, "what B knows", term=1)
        keys = ("manual:1", "after:1", "after:1")
        given = [
            (await ledger.add(each.number, [asked(key, NOW)], now=NOW, term=1))[0]
            for each, key in zip(entries, keys, strict=True)
        ]
        await ledger.write(
            1, lambda book: book.execute("UPDATE receipt SET digest = '' WHERE number = 3")
        )
        # The alerts after the run that they follow.
        jobs = await ledger.start_many(given[:1], now=NOW, term=1)
        jobs += await ledger.start_many(given[1:], now=NOW, term=1)
        assert [each.filed for each in jobs if each] == given
        runs = [(await ledger.runs_of(each.number))[0] for each in given]
        assert [each.run for each in jobs if each] == runs
        assert [each.text for each in jobs if each] == [workflow("A"), workflow("B"), ""]
        assert all(each.has_text for each in jobs if each)
        assert [each.about and each.about.filed.number for each in jobs if each] == [
            None, given[0].number, given[0].number,
        ]  # fmt: skip
        assert [each.about and each.about.run for each in jobs if each] == [None, runs[0], runs[0]]
        assert [each.memory for each in jobs if each] == ["", "what B knows", ""]
        assert await ledger.start_many(given, now=NOW, term=1) == [None] * 3

    @story
    async def test_runs_start_and_end_together_as_one_by_one(self, ledger: Ledger) -> None:
        entries = await taken(ledger, workflow("A"), workflow("B"), workflow("C"))
        filed = [
            (await ledger.add(each.number, [asked(f"manual:{n}", NOW)], now=NOW, term=1))[0]
            for n, each in enumerate([*entries, entries[0]])
        ]
        jobs = await ledger.start_many([*filed, filed[0]], now=NOW, term=1)
        assert [each is not None for each in jobs] == [True] * 4 + [False]
        runs = [each.run.number for each in jobs if each]
        made = [(run, Process(run, 1)) for run in (*runs[:3], runs[0], 99)]
        assert await ledger.running_many(made, now=NOW, term=1) == [True] * 3 + [False] * 2
        outcomes = (Status.DONE, Status.FAILED, Status.NO_WORK, Status.FAILED)
        ends = [
            RunEnd(run, Ended(outcome, because(outcome)), is_settled=run == runs[0])
            for run, outcome in zip(runs, outcomes, strict=True)
        ]
        over = await ledger.end_many([*ends, ends[0]], now=NOW, term=1)
        assert [each and each.status for each in over] == [*outcomes, None]
        assert [each and each.is_settled for each in over] == [True, False, False, False, None]
        assert [each.number for each in await ledger.unsettled()] == [f.number for f in filed[1:]]
        failures = [(await ledger.entry(each.number)) for each in entries]
        assert [each and each.failures for each in failures] == [1, 1, 0]
        assert await ledger.open_runs() == []

    @pytest.mark.parametrize("odd", [False, True])
    @story
    async def test_a_herd_is_filed_and_ended_as_one_by_one(self, ledger: Ledger, odd: bool) -> None:
        """*odd*: one of them is not like the others, so that no statement can take all."""
        retry = (":RETRY: 2 5m",) if odd else ()
        tails = [retry if n == 7 else () for n in range(40)]
        texts = [workflow(f"Job {n}", "0 9 * * *", "", *tail) for n, tail in enumerate(tails)]
        entries, now = await taken(ledger, *texts), NINE
        steps = [EntryStep(each, decide(each, now=now)) for each in entries]
        event = await last_event(ledger)
        filed = await ledger.decide(steps, now=now, term=1)
        assert [each.entry for each in filed] == [each.number for each in entries]
        assert [await ledger.receipt(each.number) for each in filed] == filed
        told = [(each.entry, each.receipt) for each in await ledger.events_after(event)]
        assert told == [(each.entry, each.number) for each in filed]
        for step, listed in zip(steps, await ledger.entries(), strict=True):
            assert isinstance(listed.item, Entry)
            assert listed.item.accounted_to == step.decision.accounted_to
            assert listed.next_at == next_time(step.entry, now)
        jobs = await ledger.start_many(filed, now=now, term=1)
        runs = [each.run.number for each in jobs if each]
        made = [(run, Process(run, 1)) for run in runs]
        assert all(await ledger.running_many(made, now=now, term=1))
        failed = Ended(Status.FAILED, because("it rains"), exit_code=3)
        event = await last_event(ledger)
        over = await ledger.end_many([RunEnd(run, failed) for run in runs], now=now, term=1)
        waits = [Status.WAITING if odd and n == 7 else Status.FAILED for n in range(40)]
        assert [each and each.status for each in over] == waits
        assert [await status(ledger, each) for each in filed] == waits
        told = [(each.entry, each.receipt) for each in await ledger.events_after(event)]
        assert told == [(each.entry, each.number) for each in filed]
        closed = [await ledger.run(run) for run in runs]
        assert {(each.outcome, each.exit_code, each.ended_at) for each in closed if each} == {
            (Status.FAILED, 3, now)
        }
        failures = [each.failures for each in await ledger.entries()]
        assert failures == [0 if odd and n == 7 else 1 for n in range(40)]

    @story
    async def test_what_an_alert_may_follow_is_not_settled_with_its_end(
        self, ledger: Ledger
    ) -> None:
        alert = workflow("Call me", "").replace(":SCHEDULE:", ":AFTER: failed")
        [entry, _] = await taken(ledger, workflow("A"), alert)
        filed = await ledger.add(entry.number, [asked("manual:1", NOW)], now=NOW, term=1)
        [job] = await ledger.start_many(filed, now=NOW, term=1)
        assert job is not None
        await ledger.running_many([(job.run.number, Process(1, 1))], now=NOW, term=1)
        end = RunEnd(job.run.number, Ended(Status.DONE, because("done")), is_settled=True)
        [over] = await ledger.end_many([end], now=NOW, term=1)
        assert over is not None
        assert not over.is_settled
        assert [each.number for each in await ledger.unsettled()] == [filed[0].number]

    @story
    async def test_a_run_whose_text_is_lost_is_told_so(self, ledger: SqlLedger) -> None:
        [entry] = await taken(ledger, workflow())
        [filed] = await ledger.add(entry.number, [asked("manual:1", NOW)], now=NOW, term=1)
        await ledger.write(1, lambda book: book.execute("UPDATE receipt SET digest = 'lost'"))
        [job] = await ledger.start_many([filed], now=NOW, term=1)
        assert job is not None
        assert not job.has_text

    @story
    async def test_what_comes_back_has_its_text_again(self, ledger: Ledger) -> None:
        [entry] = await taken(ledger, workflow("Digest"))
        await taken(ledger)
        await ledger.prune(before=NOW + DAY, now=NOW, term=1)
        assert await ledger.text(entry.digest) is None
        await taken(ledger, workflow("Digest"))
        assert await ledger.text(entry.digest) == workflow("Digest")

    @story
    async def test_old_receipts_are_folded_and_the_moments_stay_accounted_for(
        self, ledger: Ledger
    ) -> None:
        poll = workflow("Poll", "0 * * * *", "", ":CATCHUP: all")
        [draft] = await taken(ledger, poll + "A first draft.\n")
        [entry, idle] = await taken(ledger, poll, "* Asked :workflow:\n")
        old = await decided(ledger, entry, NOW + 10 * HOUR)
        for filed in old[:-1]:
            run = await one_run.start(ledger, filed.number, now=NOW, term=1)
            assert run
            await one_run.running(ledger, run.number, Process(1, 1), now=NOW, term=1)
            await one_run.end(
                ledger, run.number, Status.DONE, reason=because("it ended"), now=NOW, term=1
            )
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
        kept = [await ledger.text(each.digest) for each in (draft, entry, idle)]
        assert kept == [None, poll, "* Asked :workflow:\n"]
        assert [each.kind for each in await ledger.events_after(0)] == ["pruned"]
        current = await known(ledger, entry.number)
        assert await decided(ledger, current, NOW + 10 * HOUR) == []

    @story
    async def test_a_delay_that_was_kept_is_never_folded_away(self, ledger: Ledger) -> None:
        year = NOW + 400 * DAY
        for name in ("1", "2", "1", "2"):
            found = [delay("tea", NINE, name=name)]
            for entry in await scanned(ledger, "triggers", found, now=NOW):
                await decided(ledger, entry, NINE)
            await scanned(ledger, "triggers", [], now=NINE)
            numbers = [each.number for each in await ledger.unsettled()]
            await ledger.settle(numbers, now=NINE, term=1)
            await ledger.prune(before=year, now=year, term=1)
        keys = [each.receipt.key for each in (await ledger.receipts()).receipts]
        assert keys == ["delay:2", "delay:1"]

    @story
    async def test_a_key_that_may_come_again_outlives_its_folded_neighbours(
        self, ledger: Ledger
    ) -> None:
        [entry] = await taken(ledger, workflow())
        names = ("webhook", "idem", "issue", "event", "file", "push", "backfill", "delay")
        keys = [f"{name}:{n}" for name in (*names, "manual") for n in (1, 2, 3)]
        asked_for = [asked(key, NOW) for key in keys]
        filed = await ledger.add(entry.number, asked_for, now=NOW, term=1)
        for each in filed:
            run = await one_run.start(ledger, each.number, now=NOW, term=1)
            assert run
            await one_run.running(ledger, run.number, Process(1, 1), now=NOW, term=1)
            await one_run.end(
                ledger, run.number, Status.DONE, reason=because("it ended"), now=NOW, term=1
            )
        await ledger.settle([each.number for each in filed], now=NOW, term=1)
        year = NOW + 400 * DAY
        assert (await ledger.prune(before=year, now=year, term=1)).receipts == 2  # manual ones
        again = await ledger.add(entry.number, asked_for, now=year, term=1)
        known_before = {each.number for each in filed}
        new = [each.receipt.key for each in again if each.number not in known_before]
        assert new == ["manual:2", "manual:3"]

    @story
    async def test_a_stale_term_changes_nothing(self, ledger: Ledger) -> None:
        entry, filed = await waiting(ledger)
        run = await one_run.start(ledger, filed.number, now=NINE, term=1)
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
        step = EntryStep(entry, decide(entry, now=late))
        for stale in (-1, 2):
            for write in (
                ledger.scan("org", Scan(()), now=late, term=stale),
                ledger.decide([step], now=late, term=stale),
                ledger.add(entry.number, [asked("manual:1", late)], now=late, term=stale),
                one_run.start(ledger, number, now=late, term=stale),
                one_run.running(ledger, run.number, Process(1, 1), now=late, term=stale),
                ledger.give_back(run.number, reason=because(""), now=late, term=stale),
                one_run.end(
                    ledger, run.number, Status.FAILED, reason=because(""), now=late, term=stale
                ),
                ledger.hold(number, reason=because(""), now=late, term=stale),
                ledger.release(number, reason=because(""), now=late, term=stale),
                ledger.settle([number], now=late, term=stale),
                ledger.pause(entry.number, now=late, term=stale),
                ledger.resume(entry.number, now=late, term=stale),
                ledger.wake(now=late, term=stale),
                ledger.set_back(now=NOW - DAY, term=stale),
                ledger.note("noted", now=late, term=stale),
                ledger.prune(before=late, now=late, term=stale),
            ):
                with pytest.raises(StaleTermError):
                    await write
        assert await everything() == before


TWO_DAYS = timedelta(days=2)


async def run_of(ledger: Ledger, entry: Entry, key: str, now: datetime) -> int:
    """Return a run of an entry that is being started."""
    [filed] = await ledger.add(entry.number, [asked(key, now)], now=now, term=1)
    [job] = await ledger.start_many([filed], now=now, term=1)
    assert job is not None
    return job.run.number


async def over(ledger: Ledger, run: int, now: datetime, **facts: object) -> None:
    await ledger.running_many([(run, Process(1, 1))], now=now, term=1)
    ended = Ended(Status.DONE, because("done"), facts=facts)
    await ledger.end_many([RunEnd(run, ended)], now=now, term=1)


class BudgetSuite:
    """What runs spend: it is counted, and of two that want the last of a purse one gets it."""

    @story
    async def test_a_purse_counts_what_is_over_and_expects_the_median_of_what_goes_on(
        self, ledger: Ledger
    ) -> None:
        entry, _ = await waiting(ledger)
        purses = parse_budget("$1/day; 1000 tokens/day; 9 runs/day", "UTC", "all")
        for number, cost in enumerate((0.1, 0.2, 0.3)):
            run = await run_of(ledger, entry, f"manual:{number}", NOW)
            assert all(each.has_room for each in await ledger.draw(run, purses, now=NOW, term=1))
            await over(ledger, run, NOW, cost=cost, tokens=100)
        run = await run_of(ledger, entry, "manual:live", NOW)
        await ledger.draw(run, purses, now=NOW, term=1)
        dollars, tokens, runs = await ledger.balances(purses, now=NOW, entry=entry.number)
        assert (dollars.spent, dollars.live, dollars.own) == (600_000, 200_000, 200_000)
        assert (tokens.spent, tokens.live, tokens.own) == (300, 100, 100)
        assert (runs.spent, runs.live) == (3, 1)
        # The next day nothing is spent, and what such runs cost is still known.
        tomorrow = await ledger.balances(purses, now=NOW + TWO_DAYS, entry=entry.number)
        assert [(each.spent, each.live, each.own) for each in tomorrow] == [
            (0, 0, 200_000), (0, 0, 100), (0, 0, 1),
        ]  # fmt: skip

    @story
    async def test_a_run_without_room_draws_on_nothing_and_its_request_is_held(
        self, ledger: Ledger
    ) -> None:
        entry, _ = await waiting(ledger)
        purses = parse_budget("1 runs/day", "UTC", "agent:wren")
        first = await run_of(ledger, entry, "manual:1", NOW)
        second = await run_of(ledger, entry, "manual:2", NOW)
        [one] = await ledger.draw(first, purses, now=NOW, term=1)
        [two] = await ledger.draw(second, purses, now=NOW, term=1)
        assert (one.has_room, two.has_room) == (True, False)
        assert await ledger.refuse(second, two, now=NOW, term=1)
        page = await ledger.receipts(statuses=[Status.HELD])
        [held] = page.receipts
        assert held.receipt.start_at == purses[0].period(NOW)[1]
        assert held.receipt.reason.code == ReasonCode.BUDGET
        coming = await ledger.wake_at()
        assert coming is not None
        assert coming <= held.receipt.start_at
        assert not await ledger.wake(now=NOW, term=1)
        assert await ledger.wake(now=held.receipt.start_at, term=1) == [held.number]
        assert await status(ledger, held) is Status.WAITING

    @story
    async def test_what_was_given_back_unused_spends_nothing(self, ledger: Ledger) -> None:
        entry, _ = await waiting(ledger)
        purses = parse_budget("1 runs/day", "UTC", "all")
        run = await run_of(ledger, entry, "manual:1", NOW)
        await ledger.draw(run, purses, now=NOW, term=1)
        await ledger.give_back(run, reason=because("the launcher ended"), now=NOW, term=1)
        [found] = await ledger.balances(purses, now=NOW, entry=entry.number)
        assert (found.spent, found.live) == (0, 0)

    @story
    async def test_a_run_in_progress_that_exceeds_a_purse_is_told_so_and_its_cost_stays(
        self, ledger: Ledger
    ) -> None:
        entry, _ = await waiting(ledger)
        purses = parse_budget("$1/day", "UTC", "all")
        run = await run_of(ledger, entry, "manual:1", NOW)
        await ledger.draw(run, purses, now=NOW, term=1)
        for cost, is_exceeded in ((999_999, False), (1_000_001, True)):
            [found] = await ledger.use(run, purses, Usage(cost, 11), now=NOW, term=1)
            assert (found.purse, found.is_exceeded()) == (purses[0], is_exceeded)
        await over(ledger, run, NOW)
        costs = await ledger.costs(since=NOW, until=NOW + TWO_DAYS)
        assert [(each.cost, each.tokens, each.title) for each in costs] == [
            (1_000_001, 11, entry.title)
        ]
        number = (await ledger.run(run)).receipt  # type: ignore[union-attr]
        assert await ledger.costs_of([number]) == {number: Usage(1_000_001, 11)}

    @story
    async def test_a_clock_set_back_by_years_holds_nothing_until_then(self, ledger: Ledger) -> None:
        entry, _ = await waiting(ledger)
        purses = parse_budget("1 runs/month", "UTC", "all")
        runs = [await run_of(ledger, entry, f"manual:{n}", NOW) for n in range(2)]
        found = [(await ledger.draw(run, purses, now=NOW, term=1))[0] for run in runs]
        await ledger.refuse(runs[1], found[1], now=NOW, term=1)
        before = NOW - timedelta(days=4000)
        await ledger.set_back(now=before, term=1)
        assert len(await ledger.wake(now=before, term=1)) == 1


class LedgerSuite(
    BudgetSuite,
    ScanSuite,
    MissingSuite,
    DueSuite,
    DecideSuite,
    RunSuite,
    CadenceSuite,
    ClockSuite,
    ReadingSuite,
):
    """All that a ledger promises."""


async def add_trigger(
    ledger: SqlLedger,
    trigger: str,
    *,
    name: str,
    spec: Mapping[str, str],
    now: datetime,
    term: int,
    is_enabled: bool = True,
) -> bool:
    """Store a trigger whose agent need not be there; False: its id or its name is taken.

    *spec* is `{"kind": "cron", "cron_expr": …, "timezone": …}` or `{"kind": "delay", "run_at":
    …}`, each with "agent" and "prompt"; one that can never fire raises an error.
    """
    names = {"kind": "type", "cron_expr": "expression", "timezone": "timezone", "run_at": "run_at"}
    config = {names[key]: value for key, value in spec.items() if key in names}
    definition = TriggerDefinition(
        name, spec.get("agent", ""), kind_of(config), spec.get("prompt", ""), is_enabled=is_enabled
    )
    made = await TriggerStore(ledger, term=term).insert(trigger, checked(definition), now=now)
    return made is not None
