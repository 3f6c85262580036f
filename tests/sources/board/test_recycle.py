"""A task that recurs comes back when it is done and a trigger has passed, each trigger once."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import NamedTuple

import pytest

from horae.core.decide import begin, decide
from horae.core.entry import CronRule, Entry, OnceRule, Origin, Work, is_net, key_time
from horae.core.receipt import Receipt, Status
from horae.sources.board.recycle import (
    NET,
    NOT_DONE,
    TRANSIENT,
    Recycled,
    Stays,
    back_rule,
    event_of,
    first_trigger,
    is_trigger,
    recycle,
    trigger_of,
)
from horae.sources.board.rules import Changes, TaskReadiness, moment
from horae.sources.board.task import Task, parse
from horae.timing.cron import Cron, count_any
from readiness import resolve
from reasons import because
from scale import scaled

SECOND, HOUR, DAY = timedelta(seconds=1), timedelta(hours=1), timedelta(days=1)
MONDAY = "0 9 * * MON"


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def task(*fields: str, cron: str = MONDAY, status: str = "done") -> Task:
    lines = "".join(f"{field}\n" for field in fields)
    text = f"---\nid: 42\ntitle: Report\nstatus: {status}\ncron_schedule: '{cron}'\n{lines}---\n"
    found, odd = parse(text)
    assert found is not None
    assert not odd
    return found


def back(found: Recycled | Stays) -> Recycled:
    assert isinstance(found, Recycled), found
    return found


def stays(found: Recycled | Stays) -> str:
    assert isinstance(found, Stays), found
    return found.reason


LAST = "cron_last_run: 2026-03-23T09:00:05Z"  # a Monday


# When it comes back


def test_a_done_task_whose_trigger_has_passed_goes_back_to_todo_for_the_next_one() -> None:
    found = back(recycle(task(LAST), now=at("2026-03-30T09:00:05.7Z")))
    assert found.changes == {
        "status": "todo",
        "scheduled_for": "2026-04-06T09:00:00Z",
        "cron_last_run": "2026-03-30T09:00:05Z",
    }
    assert (found.trigger_at, found.triggers) == (at("2026-03-30T09:00:00Z"), 1)


def test_the_very_second_of_the_trigger_is_enough_and_the_one_before_is_not() -> None:
    assert back(recycle(task(LAST), now=at("2026-03-30T09:00:00Z")))
    assert stays(recycle(task(LAST), now=at("2026-03-30T08:59:59Z"))) == (
        "no occurrence since the last recycle; the next one is 2026-03-30T09:00:00Z"
    )


@pytest.mark.parametrize("status", ["todo", "backlog", "in-progress", "review", "blocked", "Done"])
def test_one_that_is_not_done_stays_and_comes_back_when_it_is(status: str) -> None:
    now = at("2026-03-30T09:20:00Z")
    assert stays(recycle(task(LAST, status=status), now=now)) == NOT_DONE
    assert back(recycle(task(LAST), now=now)).changes["status"] == "todo"


@pytest.mark.parametrize("field", ["tags: [archived]", "tags: archived"])
def test_one_that_is_archived_stays(field: str) -> None:
    assert stays(recycle(task(LAST, field), now=at("2027-01-01T00:00Z"))) == "the task is archived"
    archived = task(LAST, status="archived")
    assert stays(recycle(archived, now=at("2027-01-01T00:00Z"))) == "the task is archived"


def test_one_without_a_schedule_stays() -> None:
    found, _ = parse("---\nid: 1\ntitle: a\nstatus: done\n---\n")
    assert found is not None
    assert stays(recycle(found, now=at("2027-01-01T00:00Z"))) == "the task no longer recurs"


@pytest.mark.parametrize(
    "fields", [("cron: x",), ("timezone: Mars/Base",), ("until: soon",), ("catchup: often",)]
)
def test_a_schedule_that_cannot_be_read_is_said(fields: tuple[str, ...]) -> None:
    is_cron = fields[0].startswith("cron")
    odd = task(cron="x") if is_cron else task(*fields)
    reason = stays(recycle(odd, now=at("2027-01-01T00:00Z")))
    assert reason.startswith("the schedule cannot be read: ")


def test_many_missed_triggers_bring_it_back_once_for_the_next_from_now() -> None:
    found = back(recycle(task(LAST), now=at("2026-06-03T12:00:00Z")))
    assert found.changes["scheduled_for"] == "2026-06-08T09:00:00Z"
    assert (found.trigger_at, found.triggers) == (at("2026-03-30T09:00Z"), 10)
    again = task("cron_last_run: 2026-06-03T12:00:00Z")
    assert stays(recycle(again, now=at("2026-06-03T12:00:05Z")))


def test_five_fields_mean_what_they_mean_at_the_command() -> None:
    weekdays = task("cron_last_run: 2026-03-27T08:30:00Z", cron="30 8 * * 1-5")  # a Friday
    assert stays(recycle(weekdays, now=at("2026-03-29T12:00:00Z")))  # Sunday
    found = back(recycle(weekdays, now=at("2026-03-30T08:30:00Z")))
    assert found.changes["scheduled_for"] == "2026-03-31T08:30:00Z"


def test_a_zone_of_its_own_is_kept_across_a_clock_change() -> None:
    berlin = task("cron_last_run: 2026-03-23T08:00:00Z", "timezone: Europe/Berlin")
    found = back(recycle(berlin, now=at("2026-03-30T07:00:00Z")))  # nine in summer time
    assert found.changes["scheduled_for"] == "2026-04-06T07:00:00Z"


# Where it counts from


def test_without_a_last_run_a_trigger_of_the_last_day_counts() -> None:
    assert back(recycle(task(cron="0 9 * * *"), now=at("2026-03-25T12:00Z")))
    assert back(recycle(task(), now=at("2026-03-31T08:59Z")))
    assert stays(recycle(task(), now=at("2026-03-31T09:00Z")))


@pytest.mark.parametrize("stamp", ["cron_last_run: soon", "cron_last_run:"])
def test_a_last_run_that_cannot_be_read_is_none(stamp: str) -> None:
    assert back(recycle(task(stamp), now=at("2026-03-31T08:59Z")))
    assert stays(recycle(task(stamp), now=at("2026-03-31T09:00Z")))


def test_a_trigger_that_is_known_to_have_passed_is_not_lost_however_long_ago() -> None:
    planned = at("2026-03-30T09:00Z")
    found = back(recycle(task(), now=at("2026-04-04T00:00Z"), planned_at=planned))
    assert (found.trigger_at, found.changes["scheduled_for"]) == (planned, "2026-04-06T09:00:00Z")


def test_a_last_run_in_the_future_silences_it_for_one_round_at_most() -> None:
    ahead = task("cron_last_run: 2036-03-30T09:00:00Z")
    now = at("2026-04-06T09:00Z")
    assert stays(recycle(ahead, now=now))
    found = back(recycle(ahead, now=now, planned_at=now))
    assert found.changes["cron_last_run"] == "2026-04-06T09:00:00Z"


def test_set_for_a_wednesday_and_for_mondays_it_goes_from_the_one_to_the_next_of_the_others() -> (
    None
):
    both = task("scheduled_for: 2026-03-25T09:00:00-04:00")
    found = back(recycle(both, now=at("2026-03-25T15:00Z")))
    assert found.changes["scheduled_for"] == "2026-03-30T09:00:00Z"
    assert found.trigger_at == at("2026-03-25T13:00Z")
    again = task("scheduled_for: 2026-03-30T09:00:00Z", "cron_last_run: 2026-03-25T15:00:00Z")
    assert stays(recycle(again, now=at("2026-03-26T00:00Z")))
    assert back(recycle(again, now=at("2026-03-30T09:10Z")))


def test_a_person_may_want_it_back_before_its_trigger() -> None:
    found = back(recycle(task(LAST), now=at("2026-03-24T00:00Z"), is_asked=True))
    assert found.changes["scheduled_for"] == "2026-03-30T09:00:00Z"
    assert stays(recycle(task(LAST, status="todo"), now=at("2026-03-24T00:00Z"), is_asked=True))


def test_one_that_came_back_already_says_so() -> None:
    todo = task("cron_last_run: 2026-03-30T09:00:05Z", status="todo")
    reason = stays(recycle(todo, now=at("2026-03-30T09:01Z"), planned_at=at("2026-03-30T09:00Z")))
    assert reason == "already recycled at 2026-03-30T09:00:05Z"


@pytest.mark.parametrize(
    ("fields", "cron"),
    [(("until: 2026-04-05",), MONDAY), ((), "0 0 9 ? * MON 2020-2025")],
)
def test_when_no_occurrence_is_left_it_stays_done(fields: tuple[str, ...], cron: str) -> None:
    last = task("cron_last_run: 2025-12-01T09:00:00Z", *fields, cron=cron)
    reason = stays(recycle(last, now=at("2026-03-30T09:00Z")))
    assert reason == "the schedule has ended: no occurrence is left"


# What it leaves


def test_all_that_belongs_to_the_last_round_is_cleared_and_nothing_else() -> None:
    fields = [f"{key}: x" for key in TRANSIENT if key not in {"tests_run", "tests_passed"}]
    numbers = {"claim_ttl_secs", "claim_extensions", "last_output_bytes", "attempt"}
    fields = [each.replace(" x", " 3") if each[:-3] in numbers else each for each in fields]
    kept = ("priority: high", "tags: [a]", "depends_on: [7]", "assignee: wren", "own: 1", LAST)
    found = back(recycle(task(*fields, *kept), now=at("2026-03-30T09:00Z")))
    assert {key for key, value in found.changes.items() if value is None} == {
        each.partition(":")[0] for each in fields
    }
    assert found.changes.keys() - {*TRANSIENT} == {"status", "scheduled_for", "cron_last_run"}


@pytest.mark.parametrize(
    "key", ["claimed_by", "branch", "commit", "worktree_path", "blocked_on", "review_owner",
            "blocked", "block_reason", "claim_expires_at", "reviewed_by", "completed"]
)  # fmt: skip
def test_this_belongs_to_one_round(key: str) -> None:
    assert key in TRANSIENT


def test_its_words_carry_the_event() -> None:
    found = back(recycle(task(LAST), now=at("2026-03-30T09:00:05.7Z")))
    assert found.words == (
        "recycled task #42 (schedule: 0 9 * * MON) back to todo at 2026-03-30T09:00:05Z;"
        " scheduled for 2026-04-06T09:00:00Z"
    )
    assert event_of(found.words) == {
        "event": "task_recycled",
        "task": "#42",
        "reason": "0 9 * * MON",
        "ts": 1774861205,
    }
    assert event_of("it was done") is None


# Its net


def test_a_trigger_to_come_that_its_expression_plans_has_a_net_a_minute_later() -> None:
    nine = at("2026-03-30T09:00Z")
    net = back_rule(task(LAST), nine, now=nine - SECOND)
    assert (net.at, net.delay) == (nine + NET, "2026-03-30T09:00:00Z")
    assert trigger_of(f"delay:{net.delay}", net.at) == nine
    assert trigger_of("cron:2026-03-30T09:00:00Z", nine) == nine
    assert trigger_of("delay:of-somebody-else", nine) == nine


def test_one_that_has_passed_when_the_task_is_found_done_brings_it_back_at_once() -> None:
    nine = at("2026-03-30T09:00Z")
    assert back_rule(task(LAST), nine, now=nine) == OnceRule(nine, "2026-03-30T09:00:00Z")


def test_a_time_that_the_expression_does_not_plan_needs_no_net() -> None:
    ten = at("2026-03-30T10:00Z")
    assert back_rule(task(LAST), ten, now=ten - SECOND) == OnceRule(ten, "2026-03-30T10:00:00Z")


@pytest.mark.parametrize(
    ("stamp", "is_one"),
    [
        ("2026-03-30T09:00:00Z", True),
        ("2026-03-30T11:00:00+02:00", True),
        ("2026-03-30T09:00:01Z", False),
        ("2026-03-31T09:00:00Z", False),
    ],
)
def test_a_moment_is_a_trigger_if_the_expression_names_it(stamp: str, *, is_one: bool) -> None:
    assert is_trigger(task(LAST), datetime.fromisoformat(stamp)) is is_one
    plain = parse("---\nid: 42\ntitle: Report\n---\n").task
    assert plain is not None
    assert not is_trigger(plain, datetime.fromisoformat(stamp))


def test_only_what_another_entry_plans_is_a_net() -> None:
    nine = at("2026-03-30T09:00Z")
    rules = [back_rule(task(LAST), nine, now=now) for now in (nine - SECOND, nine)]
    recycles = partial(Entry, "task:7:back", Origin("t.md", 1), "T", work=Work.RECYCLE)
    assert [is_net(recycles(rule)) for rule in rules] == [True, False]
    assert not is_net(recycles(CronRule((Cron(MONDAY),))))
    assert not is_net(Entry("trigger:7", Origin("t.yml", 1), "T", OnceRule(nine, "7")))


# A year


class Round(NamedTuple):
    """One recycle."""

    at: datetime
    triggers: int


class World:
    """A board of one task, its two entries, and people who finish it now and then."""

    def __init__(self, cron: str, *, now: datetime) -> None:
        self.cron = Cron(cron)
        self.now = now
        self.fields: dict[str, str] = {"cron_last_run": key_time(now)}
        self.status = "todo"
        self.rounds: list[Round] = []
        self.receipts: dict[tuple[str, str], Receipt] = {}
        self.entry = self._begun(Entry("task:42", Origin("t.md", 1), "T", CronRule((self.cron,))))
        self.owed: Entry | None = None

    @property
    def task(self) -> Task:
        lines = (f"{key}: '{value}'" for key, value in self.fields.items())
        return task(*lines, cron=self.cron.expression, status=self.status)

    def finish(self) -> None:
        self.status = "done"

    def look(self) -> None:
        """Scan, decide and run, as an engine does in one turn."""
        self._scan()
        for entry in filter(None, (self.entry, self.owed)):
            made = decide(entry, now=self.now)
            for receipt in made.receipts:
                key = (entry.address, receipt.key)
                assert key not in self.receipts, "a key has one receipt"
                self.receipts[key] = self._run(receipt)
            after = entry.accounted_to if made.accounted_to is None else made.accounted_to
            if entry is self.entry:
                self.entry = self._moved(entry, after)
            else:
                self.owed = self._moved(entry, after)

    def _scan(self) -> None:
        """Take over what the file says: while it is done it has a trigger that is owed."""
        trigger = first_trigger(self.task, written_at=self.now) if self.status == "done" else None
        if trigger is None:
            self.owed = None
            return
        rule = back_rule(self.task, trigger, now=self.now)
        if self.owed is None or self.owed.rule != rule:
            self.owed = self._begun(Entry("task:42:back", Origin("t.md", 1), "T", rule))

    def _begun(self, entry: Entry) -> Entry:
        return self._moved(entry, begin(entry, now=self.now).accounted_to)

    def _moved(self, entry: Entry, accounted_to: datetime | None) -> Entry:
        return Entry(
            entry.address, entry.origin, entry.title, entry.rule, work=Work.RECYCLE,
            accounted_to=accounted_to,
        )  # fmt: skip

    def _run(self, receipt: Receipt) -> Receipt:
        if receipt.status is not Status.WAITING:
            return receipt
        trigger = trigger_of(receipt.key, receipt.planned_at)
        answer = recycle(self.task, now=self.now, planned_at=trigger)
        if isinstance(answer, Stays):
            return Receipt(
                receipt.key, Status.NO_WORK, because(answer.reason), receipt.planned_at, self.now
            )
        self._write(answer.changes)
        self.rounds.append(Round(self.now, answer.triggers))
        return Receipt(
            receipt.key, Status.DONE, because(answer.words), receipt.planned_at, self.now
        )

    def _write(self, changes: Changes) -> None:
        self.status = str(changes["status"])
        self.fields |= {key: str(value) for key, value in changes.items() if key != "status"}


@pytest.mark.parametrize(
    "cron", ["*/20 * * * *", "0 9 * * *", MONDAY, "30 8 * * 1-5", "0 9 1 * *", "@hourly"]
)
@pytest.mark.parametrize("seed", range(scaled(20)))
def test_in_a_year_with_stops_each_trigger_is_answered_once_and_none_is_lost(
    cron: str, seed: int
) -> None:
    roll = random.Random(f"{cron} {seed}")
    start = at("2026-01-01T00:00Z")
    world = World(cron, now=start)
    end = start + 366 * DAY
    while world.now < end:
        # The engine rests, or is down for hours to weeks.
        down = roll.random() < 0.02
        world.now += roll.uniform(4, 24 * 21) * HOUR if down else roll.uniform(0.05, 3) * HOUR
        gate = moment(world.task.scheduled_for)
        if world.status == "todo" and (gate is None or gate <= world.now) and roll.random() < 0.7:
            world.finish()
        world.look()
        if world.status == "done":
            last = moment(world.task.cron_last_run)
            assert last is not None
            coming = Cron(cron).next(last)
            assert coming is not None
            assert coming > world.now, "a done task with a passed trigger comes back at once"
    world.now = max(world.now, end + 40 * DAY)
    world.finish()
    world.look()

    # Each recycle answers the triggers since the one before it: together all of them, once.
    assert world.status == "todo"
    assert sum(each.triggers for each in world.rounds) == count_any([Cron(cron)], start, world.now)
    done = [each for each in world.receipts.values() if each.status is Status.DONE]
    events = [event_of(each.reason) for each in done]
    stamps = [int(each.at.timestamp()) for each in world.rounds]
    assert [event["ts"] for event in events if event is not None] == stamps
    assert len(set(stamps)) == len(stamps)
    # The receipts of the rule account for each trigger, too.
    counted = sum(
        each.count for (address, _), each in world.receipts.items() if address == "task:42"
    )
    assert counted == count_any([Cron(cron)], start, world.now)


def test_before_it_comes_back_it_is_not_on_the_list_and_then_it_waits_for_its_time() -> None:
    now = at("2026-03-30T09:00:05Z")
    done = task(LAST)
    assert resolve([done], now=now) == []
    changes = back(recycle(done, now=now)).changes
    todo = task(f"scheduled_for: '{changes['scheduled_for']}'", status="todo")
    [found] = resolve([todo], now=now)
    assert (found.standing, found.reason) == (
        TaskReadiness.BLOCKED,
        "scheduled for 2026-04-06T09:00:00Z",
    )
    [later] = resolve([todo], now=at("2026-04-06T09:00:00Z"))
    assert later.standing is TaskReadiness.RUNNABLE


def test_the_clock_is_read_in_whole_seconds_of_utc() -> None:
    east = datetime(2026, 3, 30, 11, 0, 5, 999_999, tzinfo=UTC).astimezone()
    found = back(recycle(task(LAST), now=east))
    assert found.changes["cron_last_run"] == "2026-03-30T11:00:05Z"
