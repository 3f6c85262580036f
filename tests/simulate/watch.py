"""What must always be true, looked at after every commit, every start and every rest.

    I1   one receipt for each entry and key                        `_new`
    I2   receipts follow the status graph, a final one stays       `_moved`
    I3   nothing is let go before `running` is committed and said  `went`
    I4   let go once, or as often as its retry allows              `went`
    I5   one live run of an entry, unless it may; one of an agent  `went`
    I6   never early                                               `_new`, `went`
    I7   no more runs than slots, no slot without a run, and       `went`, `rests`, `door.py`
         whoever could start goes before those planned later
    I10  a keeper waits as long as its streak says                 `_new`, `_ticked`
    I12  `+` replays ten at most, `++` and `.+` one                `_decided`
    I15  nothing starts while the ledger cannot be written         I3, as no commit succeeds then
    I16  nothing runs when an engine has stopped                   `stopped`
    I17  numbers only go up, whatever backup comes back            `after`, `_new`, `runner.py`
    I18  timers do not pile up                                     `rests`
    I21  no more runs of a day start than a budget allows, and     `went`, `rests`
         what is held for that goes on when the day is over
    I22  one run finds out that an account is limited; until the   `went`, `_limited`, `rests`
         limit is over no other begins, then one goes first, and
         none of them counts as an attempt
    I19  what was shown as the next moment is what came            `before`, `_decided`

The planned moments themselves (the other half of I6) are held against another reading of the
rules in the tests. Of alerts: what an entry that follows others waits for is asked of it, once.
I8, I9, I11 (lifecycles), I13, I14 (files) and I20 (secrets) belong to parts that are not
simulated here, and so do the real processes of I16.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

from horae.core.decide import GRACE
from horae.core.entry import AfterRule, CadenceRule, CronRule, Entry, Overlap, RepeaterRule
from horae.core.receipt import LIMITS, ReasonCode, Status
from horae.timing.repeater import RepeaterKind
from horae.timing.zone import is_fold, local, zone
from simulate.door import WatchedGate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from horae.core.engine import Engine
    from horae.core.ports import EntryStep, Event, Listed, RunEnd
    from horae.core.receipt import Filed
    from simulate.runner import Child
    from simulate.world import World

# Written out once more, so that a graph that was loosened by mistake is noticed.
_GRAPH: Final[Mapping[Status, frozenset[Status]]] = {
    Status.WAITING: frozenset({Status.HELD, Status.STARTING, Status.SKIPPED}),
    Status.HELD: frozenset({Status.WAITING, Status.SKIPPED}),
    Status.STARTING: frozenset({Status.WAITING, Status.RUNNING, Status.FAILED}),
    Status.RUNNING: frozenset(
        {
            Status.WAITING,
            Status.HELD,
            Status.DONE,
            Status.NO_WORK,
            Status.FAILED,
            Status.KILLED,
            Status.INTERRUPTED,
        }
    ),
}
_OPEN: Final = frozenset(_GRAPH)
_BAD: Final = frozenset({Status.FAILED, Status.KILLED, Status.INTERRUPTED})
_ENDS: Final = _BAD | {Status.DONE, Status.NO_WORK}
_SLACK: Final = timedelta(minutes=2)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_STOPPING: Final = timedelta(minutes=20)  # a ledger that is slow, and what is being made
_NOTICED: Final = 60_000_000  # microseconds after which an engine knows what is armed
_LOOKED_AT: Final = frozenset({"scan", "pause", "resume", "wake", "set_back"})
_MOST_TIMERS: Final = 60


@dataclass(frozen=True, slots=True)
class Broken:
    """The first promise that was not kept."""

    promise: str
    what: str

    def __str__(self) -> str:
        return f"{self.promise}: {self.what}"


@dataclass(slots=True)
class Seen:
    """A receipt as it was last seen."""

    filed: Filed
    status: Status
    steps: int  # how often the clock had been set back when it was decided
    goes: int = 0
    moved_at: datetime = _EPOCH  # when it was last let wait again, which whoever did so tells next
    is_limited: bool = False  # by its account
    over_at: int = 0  # when it became final, by the loop

    @property
    def name(self) -> str:
        """What it is called in a finding."""
        return f"receipt {self.filed.number} ({self.filed.receipt.key} of {self.filed.title!r})"


@dataclass(slots=True)
class Span:
    """How long an entry had one rule; `lows` are where it was begun, or set back to.

    `is_armed` is false while it is paused, gone or not armed at all.
    """

    entry: int
    source: str
    title: str
    rule: str
    zone: str
    until: datetime | None
    is_armed: bool
    since: datetime
    lows: list[datetime] = field(default_factory=list)
    end: datetime | None = None

    def is_as(self, listed: Listed) -> bool:
        """Tell whether an entry is still the same."""
        return (self.rule, self.zone, self.until, self.is_armed) == _clock(listed)


@dataclass(slots=True)
class _Streak:
    """How a keeper's last ticks ended, counted here."""

    idle: int = 0
    bad: int = 0
    ended_at: datetime | None = None


@dataclass(slots=True)
class _Limit:
    """The limit of an account, as the end of a run told of it."""

    since: int  # by the loop
    until: datetime  # no run begins before that
    most: datetime  # and one does after that
    first: int = 0  # the last run that began after it


class Watch:
    """Looks at one world, and stops it at the first promise that is broken."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.receipts: dict[int, Seen] = {}
        self.spans: dict[int, list[Span]] = {}
        self.seen: Counter[str] = Counter()  # what has happened at least once
        self.broken: Broken | None = None
        self.unheard: set[int] = set()  # runs whose start was kept, and said to have failed
        self._open: dict[int, Seen] = {}
        self._keys: dict[tuple[int, str], int] = {}
        self._running: dict[int, int] = {}  # a run, and its receipt
        self._streaks: dict[int, _Streak] = {}
        self._shown: dict[int, datetime | None] = {}
        self._event = 0
        self._number = 0
        self._held_to: dict[int, datetime] = {}  # receipts that a budget holds, and until when
        self._limits: dict[str, _Limit] = {}
        self._of_day: Counter[date] = Counter()  # runs that were let go, by the day they started
        self._undecided = 0  # the last receipt before the decision that is looked at
        self._again = 0
        self._alarms: dict[int, tuple[str, int]] = {}  # what each waits for, and armed since when

    def is_open(self, number: int) -> bool:
        """Tell whether a receipt is not final."""
        return number in self._open

    def fail(self, promise: str, what: str) -> None:
        """Stop the world: a promise is broken."""
        if self.broken is None:
            self.broken = Broken(promise, what)
            self._world.tell(f"BROKEN {self.broken}")
            self._world.loop.stop()

    async def reload(self, now: datetime) -> None:
        """Begin anew with a ledger that was restored."""
        for known in (self.receipts, self._open, self._keys, self._running, self._streaks):
            known.clear()
        self.unheard.clear()
        self._alarms.clear()
        self._of_day.clear()
        self._limits.clear()
        self._held_to.clear()
        ledger, cursor, last = self._world.ledger, None, self._event
        self._event = await ledger.newest_event()
        if self._event <= last:
            self.fail("I17", f"event {self._event} of a restore comes after {last}")
        filed: list[Filed] = []
        while True:
            page = await ledger.receipts(limit=1000, cursor=cursor)
            filed += page.receipts
            cursor = page.cursor
            if cursor is None:
                break
        for each in reversed(filed):
            seen = Seen(each, each.status, self._world.steps_back, goes=each.attempts)
            self.receipts[each.number] = seen
            self._keys[each.entry, each.receipt.key] = each.number
            if seen.status in _OPEN:
                self._open[each.number] = seen
        self._number = max([self._number, *(each.number for each in filed)])
        self.spans.clear()
        await self._look_at_entries(now, is_set_back=False)
        for listed in await ledger.entries():
            rule = listed.item.rule if isinstance(listed.item, Entry) else None
            if isinstance(rule, CadenceRule):
                self._streaks[listed.number] = _Streak(rule.streak, rule.failures)

    # Commits

    async def before(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:  # noqa: ARG002
        """Take note of what is shown to people before it is decided."""
        if name == "decide":
            self._undecided = self._number
            for step in args[0]:
                listed = await self._world.ledger.entry(step.entry.number)
                self._shown[step.entry.number] = None if listed is None else listed.next_at

    async def after(
        self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], answer: object
    ) -> None:
        """Look at all that a commit has changed."""
        now: datetime = kwargs["now"]
        is_entry = name in _LOOKED_AT and not (name == "wake" and not answer)
        while events := await self._world.ledger.events_after(self._event, limit=1000):
            for event in events:
                if event.number <= self._event:
                    self.fail("I17", f"event {event.number} comes after {self._event}")
                self._event = event.number
                is_entry |= event.kind in {"paused", "resumed", "set_aside"}
                await self._heard(event, now)
        if name == "running_many" and isinstance(answer, list):
            made = zip(args[0], answer, strict=True)
            self._running.update((run, 1) for (run, _), is_noted in made if is_noted)
        elif name == "end_many" and isinstance(answer, list):
            for end, over in zip(args[0], answer, strict=True):
                self._running.pop(end.run, None)
                if over is not None and end.ended.account:
                    await self._limited(end, now)
        elif name == "give_back":
            self._running.pop(args[0], None)
        elif name == "settle":
            for number in args[0]:
                self._followed_up(number)
        if name == "decide":
            self._decided(args[0])
        if is_entry:
            await self._look_at_entries(now, is_set_back=name == "set_back")

    async def _heard(self, event: Event, now: datetime) -> None:
        self.seen[f"event {event.kind}"] += 1
        if event.kind == "resumed" and event.entry in self._streaks:
            self._streaks[event.entry].bad = 0  # a person has looked at it
        if event.receipt is None or event.kind != "receipt":
            return
        status = Status(str(event.facts["status"]))
        seen = self.receipts.get(event.receipt)
        if seen is None:
            filed = await self._world.ledger.receipt(event.receipt)
            if filed is None:
                self.fail("I17", f"receipt {event.receipt} was reported and does not exist")
                return
            await self._new(filed, status)
        else:
            await self._moved(seen, status, now)
        self.seen[f"status {status}"] += 1

    async def _new(self, filed: Filed, status: Status) -> None:
        """Look at a receipt that was filed just now."""
        seen = Seen(filed, status, self._world.steps_back)
        key = (filed.entry, filed.receipt.key)
        self.receipts[filed.number] = seen
        if status in _OPEN:
            self._open[filed.number] = seen
        if filed.number <= self._number:
            self.fail("I17", f"receipt {filed.number} comes after {self._number}")
        self._number = max(self._number, filed.number)
        if key in self._keys:
            other = await self._world.ledger.receipt(self._keys[key])
            if other is not None and other.receipt.key == key[1]:
                self.fail("I1", f"{seen.name} has the key of receipt {other.number}")
            elif other is not None and other.attempts:
                self.fail("I1", f"{seen.name} has the key of receipt {other.number}, which ran")
        self._keys[key] = filed.number
        if filed.receipt.planned_at > filed.decided_at and not key[1].startswith("backfill:"):
            self.fail("I6", f"{seen.name} was decided before its time, {filed.decided_at}")
        if key[1].startswith("tick:"):
            self._tick_is_in_time(seen)
        if key[1].startswith("after:"):
            self._is_an_alert(seen)
        if status not in _OPEN:
            seen.over_at = self._world.loop.micros
        if len(self._open) > 14:
            self.seen["queue of more than ten"] += 1

    async def _moved(self, seen: Seen, status: Status, now: datetime) -> None:
        """Look at a receipt that stands elsewhere now."""
        was = seen.status
        if status not in _GRAPH.get(was, ()):
            self.fail("I2", f"{seen.name} went from {was} to {status}")
        seen.status = status
        await self._by_a_budget(seen, status)
        if status is Status.HELD and self._world.setting.accounts:
            filed = await self._world.ledger.receipt(seen.filed.number)
            seen.is_limited = filed is not None and filed.receipt.reason.code in LIMITS
        if status in _ENDS - {Status.FAILED} and not seen.goes:
            self.fail("I4", f"{seen.name} is {status}, and was never started")
        if status not in _OPEN:
            del self._open[seen.filed.number]
            seen.over_at = self._world.loop.micros
            if seen.filed.receipt.key.startswith("tick:"):
                await self._ticked(seen, now)
        if was is Status.RUNNING and status is Status.WAITING and seen.goes:
            self.seen["retried"] += 1
        if status is Status.WAITING:
            seen.moved_at = now
            filed = await self._world.ledger.receipt(seen.filed.number)
            seen.filed = filed or seen.filed
            runs = await self._world.ledger.runs_of(seen.filed.number)
            if runs and runs[-1].outcome is Status.INTERRUPTED:
                self.seen["interrupted and retried"] += 1
        elif status is Status.FAILED or status is Status.INTERRUPTED:
            filed = await self._world.ledger.receipt(seen.filed.number)
            if filed is not None and filed.receipt.reason.code == ReasonCode.GAVE_UP:
                self.seen["set aside"] += 1
            if filed is not None and filed.receipt.reason.code == ReasonCode.ENGINE_STOPPED:
                self.seen["ended by a stop"] += 1

    async def _by_a_budget(self, seen: Seen, status: Status) -> None:
        """Take note of what a budget holds or skips."""
        self._held_to.pop(seen.filed.number, None)
        if status in {Status.HELD, Status.SKIPPED} and self._world.setting.runs_a_day:
            filed = await self._world.ledger.receipt(seen.filed.number)
            if filed is not None and filed.receipt.reason.code == ReasonCode.BUDGET:
                self.seen[f"{status} by a budget"] += 1
                if status is Status.HELD:
                    self._held_to[filed.number] = filed.receipt.start_at

    def _decided(self, steps: Sequence[EntryStep]) -> None:
        """Look at what one decision made of the moments of each entry."""
        by_entry: dict[int, list[Seen]] = {step.entry.number: [] for step in steps}
        for number in reversed(self.receipts):
            seen = self.receipts[number]
            # Another commit at the same time may have filed some too: the end of a pause.
            if number <= self._undecided or seen.filed.entry not in by_entry:
                break
            by_entry[seen.filed.entry].append(seen)
        for step in steps:
            filed = [each.filed for each in reversed(by_entry[step.entry.number])]
            if filed and len(filed) == len(step.decision.receipts):
                self._of_entry(step.entry, filed)

    def _of_entry(self, entry: Entry, filed: Sequence[Filed]) -> None:
        """Look at the receipts that one decision gave an entry."""
        runs = sum(each.status is Status.WAITING for each in filed)
        total = sum(each.receipt.count for each in filed)
        first, shown = filed[0], self._shown[entry.number]
        if shown is not None and first.receipt.planned_at != shown:
            self.fail(
                "I19", f"next was {shown}, but {first.receipt.planned_at} was decided: {first}"
            )
        if total > 1:
            self.seen["catch-up of more than one"] += 1
        most = 10
        if isinstance(entry.rule, RepeaterRule) and entry.policy.catchup is None:
            most = 10 if entry.rule.repeater.kind is RepeaterKind.CUMULATE else 1
        if runs > most:
            self.fail("I12", f"{runs} occurrences of {entry.title!r} run at once: {filed}")
        if isinstance(entry.rule, CronRule | RepeaterRule):
            place = zone(entry.zone)
            for each in filed:
                at = each.receipt.planned_at
                if is_fold(local(at, place), place):
                    self.seen["fired in a fold"] += 1
                before = local(at - timedelta(seconds=1), place)
                if local(at, place) - before > timedelta(seconds=1):
                    self.seen["fired at the end of a gap"] += 1

    # Starts

    def went(self, child: Child) -> None:
        """Look at a run that is let go at this very moment."""
        world, filed, run = self._world, child.filed, child.run.number
        seen = self.receipts.get(filed.number)
        if seen is None or seen.status is not Status.RUNNING or run not in self._running:
            self.fail("I3", f"run {run} was started, but is not running in the ledger")
            return
        if run in self.unheard:
            self.fail("I3", f"run {run} was started before its write was confirmed")
        seen.goes += 1
        self._counts(child)
        self._asks_first(child)
        retry = filed.policy.retry
        if seen.goes > 1 + (retry.attempts if retry else 0):
            self.fail("I4", f"{seen.name} was started {seen.goes} times")
        for other in world.children.live.values():
            if other.filed.entry == filed.entry and filed.policy.overlap is not Overlap.ALLOW:
                self.fail("I5", f"{seen.name} runs beside receipt {other.filed.number}")
            if both := set(other.filed.agents) & set(filed.agents):
                self.fail("I5", f"{seen.name} runs beside {other.filed.number}: {sorted(both)}")
        if world.clock.now() < filed.receipt.start_at and seen.steps == world.steps_back:
            self.fail("I6", f"{seen.name} was started before {filed.receipt.start_at}")
        if world.engine is not None:
            slots = {each.ask.number: each.slot for each in world.engine.gate.holders}
            live = [each.filed.number for each in world.children.live.values()]
            used = {slots.get(number, -number) for number in (*live, filed.number)}
            if len(used) > world.slots:
                self.fail("I7", f"runs are alive in {len(used)} slots of {world.slots}")
        for other in world.children.live.values():
            if filed.number in other.riders:
                self.seen["a run inside a run"] += 1

    def _counts(self, child: Child) -> None:
        """Count a run of its day, by a clock on the wall of another reading than Horae's."""
        setting = self._world.setting
        if not setting.runs_a_day:
            return
        day = child.run.started_at.astimezone(ZoneInfo(setting.zone_of_days)).date()
        self._of_day[day] += 1
        if self._of_day[day] > setting.runs_a_day:
            self.fail("I21", f"{self._of_day[day]} runs of {day} started: {setting.runs_a_day}")

    async def _limited(self, end: RunEnd, now: datetime) -> None:
        """Look at what the end of a run says of its account."""
        ended, run = end.ended, await self._world.ledger.run(end.run)
        seen = None if run is None else self.receipts.get(run.receipt)
        if run is None or seen is None:
            return
        known = self._limits.get(ended.account)
        if ended.outcome is not Status.LIMITED:
            if known is not None and known.first == end.run and ended.outcome not in _BAD:
                del self._limits[ended.account]
            return
        self.seen["limited"] += 1
        seen.goes -= 1  # it is as if it had not run
        filed, was = await self._world.ledger.receipt(run.receipt), seen.filed.attempts
        if filed is not None and (filed.status is not Status.HELD or filed.attempts != was):
            self.fail("I22", f"{seen.name} met a limit: {filed.status}, {filed.attempts} attempts")
        until, most = now + timedelta(minutes=1), now + timedelta(hours=1)
        if ended.until is not None:
            until = most = min(max(ended.until, until), now + timedelta(days=8))
        elif known is not None:
            most = max(most, known.most)
        self._limits[ended.account] = _Limit(self._world.loop.micros, until, most)

    def _asks_first(self, child: Child) -> None:
        """Look at whether a run may use its account."""
        limit = self._limits.get(child.account)
        if limit is None or child.asked_at <= limit.since or self._world.steps_back:
            return
        if self._world.clock.now() < limit.until:
            self.fail("I22", f"run {child.run.number} begins: {child.account} until {limit.until}")
        if limit.first in self._world.children.live:
            self.fail("I22", f"run {child.run.number} begins beside the first, {limit.first}")
        limit.first = child.run.number
        self.seen["went first after a limit"] += 1

    # Rests

    def rests(self, *, is_idle: bool) -> None:
        """Look at an engine that rests because by its own word nothing is to be done."""
        engine, world = self._world.engine, self._world
        if engine is None or engine.trouble is not None or engine.launch.is_unsure:
            return
        now = world.clock.now()
        self._again = 0 if is_idle else self._again + 1
        if self._again > 2000:
            self.fail("liveness", f"an entry is due and is not decided, at {now}")
        stories = set(engine.launch.receipts)
        holders = {each.ask.number for each in engine.gate.holders}
        if isinstance(engine.gate, WatchedGate):
            holders.update(engine.gate.refused)
        if holders != stories:
            self.fail("I7", f"slots are held by {sorted(holders)}, and {sorted(stories)} run")
        for number, seen in self._open.items():
            if seen.status in {Status.STARTING, Status.RUNNING} and number not in stories:
                self.fail("I7", f"{seen.name} is {seen.status}, and the engine does not track it")
            is_due = (
                max(seen.filed.receipt.start_at, seen.moved_at) + _SLACK <= now
                and not world.is_stopping
            )
            if number in self._held_to and self._held_to[number] + _SLACK <= now and is_idle:
                self.fail("I21", f"{seen.name} is held, and its budget has begun again")
            if seen.status is Status.WAITING and is_due and not stories and is_idle:
                self.fail("I7", f"{seen.name} waits although every slot is free")
        if is_idle and world.setting.accounts and not world.steps_back:
            self._limits_end(now)
        if world.loop.timers > _MOST_TIMERS + len(world.children.live):
            self.fail("I18", f"{world.loop.timers} timers are set")

    def _limits_end(self, now: datetime) -> None:
        """Look at what is held by a limit that is over, while nothing else uses its account."""
        held, moving = {}, set()
        for seen in self._open.values():
            account = self._world.setting.account_of(seen.filed.entry)
            if seen.status is not Status.HELD:
                moving.add(account)
            elif seen.is_limited:
                held[account] = seen
        for account, seen in held.items():
            limit = self._limits.get(account)
            is_over = limit is None or limit.most + _SLACK <= now
            if is_over and account not in moving and not self._world.is_stopping:
                self.fail("I22", f"{seen.name} is held, and the limit of {account} is over")

    def stopped(self, engine: Engine, within: timedelta, took: timedelta | None) -> None:
        """Look at an engine that was told to stop, and has."""
        world = self._world
        self.seen["stopped in good order"] += 1
        if world.children.live:
            self.fail(
                "I16", f"runs {sorted(world.children.live)} are alive after the engine stopped"
            )
        if took is not None and took > within + _STOPPING:
            self.fail("liveness", f"stopping took {took}; the limit is {within}")
        if engine.launch.is_unsure or engine.trouble is not None:
            return  # the ledger could not be written: the next engine looks back
        for seen in self._open.values():
            if seen.status in {Status.STARTING, Status.RUNNING}:
                self.fail("I16", f"{seen.name} is {seen.status} after the engine stopped")

    async def at_last(self) -> None:
        """Look at a world that has been calm for two days."""
        world, now = self._world, self._world.clock.now()
        if world.engine is None or world.engine.trouble is not None:
            self.fail("liveness", "the engine is not healthy after the last fault")
            return
        for seen in self._open.values():
            since = max(seen.filed.receipt.start_at, seen.filed.decided_at)
            if now - since > timedelta(hours=30):
                self.fail("liveness", f"{seen.name} is {seen.status} since {since}")
        if due := await world.ledger.due(now=now - _SLACK):
            self.fail("liveness", f"{due[0].entry.title!r} is due and was not decided")
        if unsettled := await world.ledger.unsettled():
            late = [each for each in unsettled if each.ended_at and now - each.ended_at > _SLACK]
            if late:
                self.fail("liveness", f"receipt {late[0].number} was never followed up")
        for listed in await world.ledger.entries():
            self._ticks_on(listed, now)
        if set(world.children.live) - {run.number for run in world.engine.launch.runs.values()}:
            self.fail("liveness", "a run is alive that the engine does not track")

    # Alerts

    def _is_an_alert(self, seen: Seen) -> None:
        """Look at an alert that was asked for just now."""
        self.seen["alert"] += 1
        about = self.receipts.get(int(seen.filed.receipt.key.removeprefix("after:")))
        if about is None or about.status in _OPEN:
            self.fail("alerts", f"{seen.name} follows a receipt that has not ended: {about}")
        elif about.filed.receipt.key.startswith("after:"):
            self.fail("alerts", f"{seen.name} follows another alert, {about.name}")

    def _followed_up(self, number: int) -> None:
        """Look at a receipt of which all is said to be done that follows from it."""
        seen = self.receipts.get(number)
        if seen is None or seen.filed.receipt.key.startswith("after:"):
            return
        for entry, (rule, since) in self._alarms.items():
            is_known = seen.over_at - since > _NOTICED
            if is_known and _waits_for(rule, seen) and (entry, f"after:{number}") not in self._keys:
                self.fail(
                    "alerts", f"{seen.name} is {seen.status}, and entry {entry} was not notified"
                )

    # Keepers

    def _tick_is_in_time(self, seen: Seen) -> None:
        """Look at whether a keeper waited as long as its streak says."""
        streak = self._streaks.get(seen.filed.entry)
        spans = self.spans.get(seen.filed.entry)
        if streak is None or streak.ended_at is None or not spans or self._world.steps_back:
            return
        base = _length(spans[-1].rule)
        wait = max(base, _backoff(streak.idle), _backoff(streak.bad - 3))
        if seen.filed.receipt.planned_at < streak.ended_at + wait:
            self.fail("I10", f"{seen.name} ticked less than {wait} after {streak.ended_at}")

    async def _ticked(self, seen: Seen, now: datetime) -> None:
        """Count how a tick ended, and compare with what the ledger counts."""
        streak = self._streaks.setdefault(seen.filed.entry, _Streak())
        match seen.status:
            case Status.DONE:
                streak.idle = streak.bad = 0
            case Status.NO_WORK:
                streak.idle, streak.bad = streak.idle + 1, 0
            case bad if bad in _BAD:
                streak.idle, streak.bad = 0, streak.bad + 1
            case _:
                return
        streak.ended_at = now
        listed = await self._world.ledger.entry(seen.filed.entry)
        if listed is None or not isinstance(listed.item, Entry):
            return
        rule = listed.item.rule
        if isinstance(rule, CadenceRule) and rule.streak != streak.idle:
            self.fail("I10", f"the streak of {listed.mark.title!r} is {rule.streak}, not {streak}")
        if isinstance(rule, CadenceRule) and rule.failures != streak.bad:
            self.fail("I10", f"{listed.mark.title!r} failed {streak.bad} times, not {rule}")

    def _ticks_on(self, listed: Listed, now: datetime) -> None:
        """Look at whether a keeper has ticked lately."""
        item = listed.item
        if not listed.is_armed or not isinstance(item, Entry):
            return
        if isinstance(item.rule, CadenceRule):
            last = max(
                (
                    each.filed.receipt.planned_at
                    for each in self.receipts.values()
                    if each.filed.entry == listed.number
                ),
                default=None,
            )
            most = max(item.rule.base, timedelta(minutes=30)) + timedelta(hours=14)
            if last is None or now - last > most:
                self.fail("liveness", f"{listed.mark.title!r} has not ticked since {last}")

    # Entries

    async def _look_at_entries(self, now: datetime, *, is_set_back: bool) -> None:
        """Remember since when each entry has which rule."""
        for listed in await self._world.ledger.entries():
            self._note_alarm(listed)
            spans = self.spans.setdefault(listed.number, [])
            if spans and spans[-1].is_as(listed):
                if is_set_back:
                    spans[-1].lows.append(now)
                continue
            if spans:
                spans[-1].end = now
            span = Span(
                listed.number,
                listed.source,
                listed.mark.title,
                *_clock(listed),
                since=now,
                lows=[now],
            )
            spans.append(span)

    def _note_alarm(self, listed: Listed) -> None:
        """Remember since when an entry follows others, and what."""
        item, known = listed.item, self._alarms.get(listed.number)
        if not listed.is_armed or not isinstance(item, Entry) or type(item.rule) is not AfterRule:
            self._alarms.pop(listed.number, None)
        elif known is None or known[0] != listed.mark.rule:
            self._alarms[listed.number] = (listed.mark.rule, self._world.loop.micros)


def _waits_for(rule: str, seen: Seen) -> bool:
    """Tell whether an alert waits for a receipt of whatever entry, by the words of its rule."""
    said, _, of = rule.partition(" of ")
    is_late = seen.status in _ENDS and seen.filed.lateness > GRACE
    found = {"failed": seen.status in _BAD, "missed": seen.status is Status.MISSED, "late": is_late}
    return of in ("", "all") and any(
        found.get(word, False) for word in said.replace(",", " ").split()
    )


def _clock(listed: Listed) -> tuple[str, str, datetime | None, bool]:
    """Return what decides the moments of an entry: its rule, zone and end, and if it is armed."""
    item = listed.item
    if not isinstance(item, Entry):
        return listed.mark.rule, "", None, False
    return listed.mark.rule, item.zone, item.policy.until, listed.is_armed


def _backoff(streak: int) -> timedelta:
    """Return the wait after so many ticks that found nothing, counted out by hand."""
    minutes = [0, 1, 2, 4, 8, 16, 30]
    return timedelta(minutes=minutes[min(max(streak, 0), 6)])


def _length(text: str) -> timedelta:
    """Return the length of time that a cadence is marked with.

    >>> _length("0:45:00")
    datetime.timedelta(seconds=2700)
    """
    hours, minutes, seconds = (int(part) for part in text.rpartition(" ")[2].split(":"))
    return timedelta(hours=hours, minutes=minutes, seconds=seconds)
