"""Simulation of plans over some days: the rules of the engine, without an engine or a ledger.

It steps from each event to the next: a time is due, a run ends, a jitter, a retry or a pause is
over. Decisions, admission and follow-ups are the functions of the engine; no process runs, and
nothing is written.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from horae.core import decide as rules
from horae.core.actor import ENGINE, by_words
from horae.core.entry import (
    AfterRule,
    CadenceRule,
    CronRule,
    Entry,
    Origin,
    Overlap,
    Pause,
    key_time,
)
from horae.core.gate import Capacity, Gate
from horae.core.launch import POISON
from horae.core.project import Moment, counts_from_end, next_moment, project
from horae.core.receipt import (
    BAD,
    ENDS,
    ENGINE_EXITED,
    FINAL,
    Filed,
    Reason,
    ReasonCode,
    Receipt,
    Status,
    after_end,
    followed_by,
    is_planned,
)
from horae.timing.cron import count_any

if TYPE_CHECKING:
    from horae.core.ports import Listed

_TIME_LIMIT: Final = timedelta(hours=2)  # of a run without one
_NO_TIME: Final = timedelta(0)
_PACE: Final = timedelta(hours=1)  # between two reports of the progress
_BATCH: Final = 4096  # final receipts that are sorted together
_AGAIN: Final = timedelta(seconds=1)
_TICK: Final = "tick:"
_DONE: Final = Reason(ReasonCode.COMPLETED, "simulated")
_RUNNING: Final = Reason(ReasonCode.STARTED, "the run has started")


class Outage(NamedTuple):
    at: datetime
    length: timedelta


class Simulation:
    """Some days of entries; *lengths* has the duration of each entry's runs, by default none.

    *entries* and *filed* are those of a ledger that has read the plans at *start*.
    """

    def __init__(
        self,
        entries: Iterable[Listed],
        start: datetime,
        length: timedelta,
        capacity: Capacity,
        *,
        filed: Sequence[Filed] = (),
        outages: Sequence[Outage] = (),
        lengths: Mapping[Origin, timedelta] | None = None,
    ) -> None:
        self.start, self.length, self.outages = start.astimezone(UTC), length, outages
        self.progress: Callable[[float], object] = lambda _: None  # gets the part that is done
        self.trace: Callable[[str], object] | None = None  # gets a line of each event
        self._capacity = capacity
        self._now = self._told_at = self.start
        self._end = self._until = self.start + length  # of all, and of the running engine
        self._entries = {
            each.number: _SimulatedEntry(each, each.item, (lengths or {}).get(each.item.origin))
            for each in entries
            if isinstance(each.item, Entry) and each.gone_at is None
        }
        self._followers = [
            each for each in self._entries.values() if isinstance(each.rule, AfterRule)
        ]
        self._due: list[tuple[datetime, int]] = []  # when entries are due
        self._pauses: list[tuple[datetime, int]] = []  # when pauses end
        self._ends: list[tuple[datetime, int]] = []  # when runs of receipts end
        self._gate = Gate(capacity)
        self._live: dict[int, Filed] = {}  # running receipts, in the order of starts
        self._open: dict[int, Filed] = {}
        self._over: list[Filed] = []  # final receipts to be yielded
        self._unsettled: list[Filed] = []  # final receipts whose followers are not filed yet
        self._number = 0
        for state in self._entries.values():
            self._arm(state)
        for each in sorted(filed, key=lambda each: each.number):
            self._number = each.number
            if each.entry in self._entries:
                self._keep(self._entries[each.entry], each)

    def run(self) -> Iterator[Filed]:
        """Yield each receipt when it is final, by planned time; at last the open ones."""
        for down, up in without_engine(self.start, self._end, self.outages):
            yield from self._run_engine(down)
            self._tell("the engine exits for the simulated outage")
            self._now = up
        if self._now < self._end:
            yield from self._run_engine(self._end)
        yield from sorted((*self._over, *self._open.values()), key=_place)

    def _run_engine(self, until: datetime) -> Iterator[Filed]:
        self._tell("an engine starts")
        lost, self._live, self._ends, self._until = self._live, {}, [], until
        for each in lost.values():
            self._interrupt(each)
        self._gate = Gate(self._capacity)
        self._gate.offer(each for each in self._open.values() if each.status is Status.WAITING)
        most = _BATCH
        while True:
            self._turn()
            if len(self._over) > most:
                yield from self._in_order()
                most = max(_BATCH, 2 * len(self._over))
            coming = self._next_at()
            if coming is None or coming >= until:
                return
            # A wait that is due now was just tried, and must not make the loop spin.
            self._now = coming if coming > self._now else self._now + _AGAIN
            if self._now >= self._told_at:
                self.progress((self._now - self.start) / self.length)
                self._told_at = self._now + _PACE

    def _next_at(self) -> datetime | None:
        while self._due and self._entries[self._due[0][1]].next_at != self._due[0][0]:
            heappop(self._due)
        heads = [heap[0][0] for heap in (self._due, self._ends, self._pauses) if heap]
        if self._open and (gate_at := self._gate.next_at) is not None:
            heads.append(gate_at)
        return min(heads, default=None)

    def _turn(self) -> None:
        now = self._now
        while self._ends and self._ends[0][0] <= now:
            self._finish(self._live[heappop(self._ends)[1]], Status.DONE, _DONE)
        while self._pauses and self._pauses[0][0] <= now:
            self._resume(self._entries[heappop(self._pauses)[1]])
        due: list[_SimulatedEntry] = []
        while self._due and self._due[0][0] <= now:
            at, number = heappop(self._due)
            state = self._entries[number]
            if state.next_at == at:
                state.next_at = None
                due.append(state)
        keys = [
            coming.key
            for state in due
            if state.is_plain and not state.open and (coming := state.coming) and coming.at == now
        ]
        if len(keys) == len(due):
            self._note_due(due, keys)
        else:
            for state in due:
                self._decide(state)
        while self._open or self._unsettled:
            begun = [self._begin(each) for each in self._gate.admit(now=now)[0]]
            at_once = [each for each in begun if each is not None]
            has_alerts = self._settle()
            for each in at_once:
                self._finish(each, Status.DONE, _DONE)
            if not at_once and not has_alerts:
                return

    def _note_due(self, due: Sequence[_SimulatedEntry], keys: Sequence[str]) -> None:
        """Decide entries that are due on time: like `decide`, but together if none is disturbed."""
        now = self._now
        for state in due:
            state.accounted_to = now
            self._arm(state)
        is_free = self._is_free(due)
        for state, key in zip(due, keys, strict=True):
            if not is_free:
                self._file(state, Receipt(key, Status.WAITING, rules.DUE, now, now))
                continue
            self._number += 1
            receipt, state.failures = Receipt(key, Status.DONE, _DONE, now, now), 0
            state.ended_at = now + state.length if state.length else now
            self._keep(
                state,
                state.filed(self._number, receipt, now, attempts=1, ended_at=state.ended_at),
            )

    def _is_free(self, due: Sequence[_SimulatedEntry]) -> bool:
        if self._open or self.trace is not None:
            return False
        longest = max((each.length for each in due), default=_NO_TIME)
        if not longest:
            return True
        has_room = len(due) <= self._capacity.slots and not self._followers
        if not has_room or (len(due) > 1 and any(each.entry.agents for each in due)):
            return False
        end, coming = self._now + longest, self._next_at()
        return end < self._until and (coming is None or end < coming)

    def _arm(self, state: _SimulatedEntry) -> None:
        number, pause = state.entry.number, state.pause
        state.next_at = None
        if pause is not None:
            if pause.until is not None:
                heappush(self._pauses, (pause.until, number))
        elif state.go_on(self._end):
            assert state.coming is not None, "it has gone on to that"
            state.next_at = state.coming.at
            heappush(self._due, (state.next_at, number))

    def _decide(self, state: _SimulatedEntry) -> None:
        behind = None
        if state.open and state.entry.policy.overlap is Overlap.SKIP:
            first = self._open[state.open[0]]
            behind = rules.behind_words(first.status, first.receipt.reason)
        entry, is_busy = state.as_it_is(), bool(state.open)
        self._account(state, rules.decide(entry, now=self._now, is_busy=is_busy, behind=behind))

    def _account(self, state: _SimulatedEntry, decision: rules.Decision) -> None:
        for receipt in decision.receipts:
            self._file(state, receipt)
        state.accounted_to, state.ended_at = decision.accounted_to, decision.ended_at
        self._arm(state)

    def _file(self, state: _SimulatedEntry, receipt: Receipt) -> None:
        self._number += 1
        key, status, reason = receipt.key, receipt.status, receipt.reason
        self._tell("receipt %d (%s) of %s: %s, %s", self._number, key, state.title, status, reason)
        state.ticks += key.startswith(_TICK)
        filed = state.filed(self._number, receipt, self._now)
        self._keep(state, filed)
        if status is Status.WAITING:
            if is_planned(key):
                state.open.append(self._number)
            self._gate.offer((filed,))

    def _keep(self, state: _SimulatedEntry, filed: Filed) -> None:
        status = filed.receipt.status
        if status not in FINAL:
            self._open[filed.number] = filed
        else:
            self._open.pop(filed.number, None)
            self._over.append(filed)
        if self._followers:
            state.recent[filed.number] = status
            if status in FINAL:
                self._unsettled.append(filed)

    def _begin(self, filed: Filed) -> Filed | None:
        """Start a run; return its receipt if it takes no time."""
        state, receipt = self._entries[filed.entry], filed.receipt
        receipt = replace(receipt, status=Status.RUNNING, reason=_RUNNING)
        filed = replace(filed, receipt=receipt, attempts=filed.attempts + 1)
        self._tell("run %d of receipt %d is started", filed.attempts, filed.number)
        self._keep(state, filed)
        self._live[filed.number] = filed
        if not state.length:
            return filed
        heappush(self._ends, (self._now + state.length, filed.number))
        return None

    def _finish(
        self, filed: Filed, outcome: Status, reason: Reason, *, is_last: bool = False
    ) -> None:
        now, state, receipt = self._now, self._entries[filed.entry], filed.receipt
        self._tell("run %d of receipt %d ends: %s", filed.attempts, filed.number, outcome)
        self._live.pop(filed.number, None)
        self._gate.release(filed.number)
        retry = None if is_last else filed.policy.retry
        status, start_at = after_end(outcome, attempts=filed.attempts, retry=retry, now=now)
        start_at = start_at or receipt.start_at
        receipt = replace(receipt, status=status, reason=reason, start_at=start_at)
        ended_at = now if status in ENDS else None
        self._keep(state, replace(filed, receipt=receipt, ended_at=ended_at))
        if status in ENDS:
            is_tick = receipt.key.startswith(_TICK)
            state.streak = 0 if is_tick else state.streak
            if is_tick or not isinstance(state.rule, CadenceRule):
                state.failures = state.failures + 1 if status in BAD else 0
            self._leave(state, filed.number, receipt)
        most = state.entry.policy.pause_after
        if status in BAD and state.pause is None and most is not None and state.failures >= most:
            times = "once" if state.failures == 1 else f"{state.failures} times in a row"
            self._pause(state, f"failed {times}")

    def _interrupt(self, filed: Filed) -> None:
        reason, is_last = ENGINE_EXITED, filed.attempts >= POISON
        if is_last:
            words = f"given up: the engine exited {filed.attempts} times during the run"
            reason = Reason(ReasonCode.GAVE_UP, words)
        self._finish(filed, Status.INTERRUPTED, reason, is_last=is_last)

    def _leave(self, state: _SimulatedEntry, number: int, receipt: Receipt) -> None:
        if not is_planned(receipt.key):
            return
        state.open.remove(number)
        if state.counts_from_end:
            state.ended_at = max(self._now, state.accounted_to or self._now)
            self._arm(state)
        elif receipt.status in ENDS:
            state.ended_at = self._now

    def _pause(self, state: _SimulatedEntry, note: str) -> None:
        now, words = self._now, by_words("paused", note, actor=ENGINE)
        reason = Reason(ReasonCode.PAUSED, f"did not run before the entry was {words}")
        closed = rules.close(state.as_it_is(), now=now, reason=reason)
        state.pause = Pause(now)
        self._account(state, closed)
        waiting = (each for each in self._open.values() if each.status is Status.WAITING)
        for filed in [each for each in waiting if each.entry == state.entry.number]:
            receipt = replace(filed.receipt, status=Status.SKIPPED, reason=reason)
            self._keep(state, replace(filed, receipt=receipt))
            self._leave(state, filed.number, receipt)

    def _resume(self, state: _SimulatedEntry) -> None:
        pause = state.pause
        assert pause is not None
        assert pause.until is not None
        over = min(self._now, pause.until)
        words = f"paused from {key_time(pause.at)} to {key_time(over)}"
        reason = Reason(ReasonCode.PAUSED, words)
        state.pause, state.failures = None, 0
        self._account(state, rules.close(state.as_it_is(), now=over, reason=reason))
        self._account(state, rules.begin(state.as_it_is(), now=over))

    def _settle(self) -> bool:
        """File the alerts that follow final receipts; return whether there are any."""
        if not self._unsettled:
            return False
        finals, self._unsettled = sorted(self._unsettled, key=lambda each: each.number), []
        alerts: dict[int, list[Receipt]] = {}
        for filed in finals:
            for follower, alert in self._alerts(filed):
                alerts.setdefault(follower, []).append(alert)
        for follower, asked in alerts.items():
            for alert in asked:
                self._file(self._entries[follower], alert)
        return bool(alerts)

    def _alerts(self, filed: Filed) -> Iterator[tuple[int, Receipt]]:
        state, key = self._entries[filed.entry], filed.receipt.key
        if followed_by(key) is not None:
            return
        before = [status for number, status in state.recent.items() if number < filed.number]
        before = before[: -rules.LOOKED_BACK - 1 : -1]
        if not state.open:
            state.recent = dict([*state.recent.items()][-rules.LOOKED_BACK :])
        found = rules.occasions(filed.status, lateness=filed.lateness, before=before, key=key)
        address = state.address
        names = (address, address.removeprefix("id:").removeprefix("agent:"), state.title)
        for each in self._followers if found else ():
            rule = each.rule
            if each.pause is not None or not isinstance(rule, AfterRule):
                continue
            what = " and ".join(each for each in rule.occasions if each in found)
            if what and rules.follows(rule, names=names, agents=filed.agents):
                words = f"after {state.title} ({what}): {filed.receipt.reason}"
                reason = Reason(ReasonCode.AFTER_ENTRY, words)
                yield (
                    each.entry.number,
                    Receipt(f"after:{filed.number}", Status.WAITING, reason, self._now, self._now),
                )

    def _in_order(self) -> Iterator[Filed]:
        """Yield the final receipts that precede all later ones."""
        still = (each.receipt.planned_at for each in self._open.values())
        # After its pause, times during the pause are skipped.
        paused = (self._entries[number].accounted_to or self._now for _, number in self._pauses)
        floor = min([self._now, *still, *paused])
        self._over.sort(key=_place)
        count = bisect_left(self._over, floor, key=lambda each: each.receipt.planned_at)
        yield from self._over[:count]
        del self._over[:count]

    def _tell(self, what: str, *values: object) -> None:
        if self.trace is not None:
            passed = (self._now - self.start).total_seconds()
            self.trace(f"{passed:.6f} {self._now:%Y-%m-%dT%H:%M:%S} {what % values}")


class _SimulatedEntry:
    __slots__ = (
        "_about", "_moments", "accounted_to", "address", "coming", "counts_from_end", "ended_at",
        "entry", "failures", "is_plain", "length", "next_at", "open", "pause", "recent",
        "rule", "streak", "ticks", "title",
    )  # fmt: skip

    def __init__(self, listed: Listed, entry: Entry, length: timedelta | None) -> None:
        self.entry, self.rule, self.title = entry, entry.rule, listed.mark.title
        self.address = listed.mark.address
        what = entry.policy, listed.source, entry.title, entry.work, entry.agents
        self._about = entry.origin, entry.digest, None, *what  # the same on all receipts
        self.accounted_to, self.ended_at = entry.accounted_to, entry.ended_at
        self.pause = listed.pause
        self.ticks, self.streak, self.failures = listed.ticks, listed.streak, listed.failures
        self.length = min(length or _NO_TIME, entry.policy.timeout or _TIME_LIMIT)
        self.counts_from_end = counts_from_end(entry.rule)
        self.is_plain = not (entry.policy.jitter or self.counts_from_end)
        self.next_at: datetime | None = None  # when it is due
        self.open: list[int] = []  # receipts of its own rule, in order
        self.recent: dict[int, Status] = {}  # of its last receipts, if anything follows them
        self.coming: Moment | None = None
        self._moments: Iterator[Moment] | None = None

    def as_it_is(self) -> Entry:
        rule = self.rule
        if isinstance(rule, CadenceRule):
            rule = replace(rule, ticks=self.ticks, streak=self.streak, failures=self.failures)
        accounted_to, ended_at = self.accounted_to, self.ended_at
        return replace(
            self.entry, rule=rule, accounted_to=accounted_to, ended_at=ended_at, pause=None
        )

    def go_on(self, end: datetime) -> bool:
        """Continue to the next time, if it can be known."""
        since, coming = self.accounted_to, self.coming
        if since is None:
            self.coming = None
        elif self.counts_from_end:
            coming = next_moment(self.as_it_is(), since)
            self.coming = None if coming is None or coming.is_estimate else coming
        elif coming is None or coming.at <= since:
            coming = None if self._moments is None else next(self._moments, None)
            if coming is None or coming.at <= since:
                self._moments = project(self.as_it_is(), since, end)
                coming = next(self._moments, None)
            self.coming = coming
        return self.coming is not None

    def filed(
        self,
        number: int,
        receipt: Receipt,
        now: datetime,
        *,
        attempts: int = 0,
        ended_at: datetime | None = None,
    ) -> Filed:
        entry = self.entry.number
        return Filed(
            number, entry, receipt, now, *self._about, attempts=attempts, ended_at=ended_at
        )


def _place(filed: Filed) -> tuple[datetime, int]:
    return filed.receipt.planned_at, filed.number


def count_times(entries: Iterable[Listed], start: datetime, length: timedelta) -> int:
    """Count the times of cron rules and the ticks by arithmetic; no other rule is dense."""
    total = 0
    for each in entries:
        item, is_over = each.item, each.gone_at is not None
        is_over = is_over or (each.pause is not None and each.pause.until is None)
        if not isinstance(item, Entry) or is_over:
            continue
        since, until = item.policy.clip(start, start + length)
        if isinstance(item.rule, CronRule):
            total += count_any(item.rule.crons, since, until) if since < until else 0
        elif isinstance(item.rule, CadenceRule):
            total += max(0, (until - since) // item.rule.base)
    return total


def without_engine(
    start: datetime, end: datetime, outages: Iterable[Outage]
) -> list[tuple[datetime, datetime]]:
    found: list[tuple[datetime, datetime]] = []
    for outage in sorted(outages):
        down, up = max(start, outage.at), min(end, outage.at + outage.length)
        if down < up and found and down <= found[-1][1]:
            found[-1] = found[-1][0], max(up, found[-1][1])
        elif down < up:
            found.append((down, up))
    return found
