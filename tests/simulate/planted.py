"""Bugs that were planted: each must be found, or the simulator looks at nothing.

Each is a small change to a real part, of the kind that a person makes in good faith.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from horae.core import budget, decide as misfire, engine, gate, launch, project, receipt
from horae.core.decide import GRACE, Decision
from horae.core.gate import Gate
from horae.core.ports import Ended, LedgerBusyError, LedgerWriteError, Unreleased
from horae.core.project import Moment
from horae.core.receipt import Status
from horae.store import arming, ledger as store, sqlite
from horae.store.sql import named
from horae.store.sqlite import SqliteLedger
from horae.timing.zone import is_fold, local, zone
from reasons import because

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pytest

    from horae.core.entry import Entry, Occasion
    from horae.core.gate import Waiting
    from horae.core.ports import Job, Ledger, Run, RunEnd, RunOver
    from horae.core.receipt import Filed, Reason
    from horae.timing.cron import Cron

    Plant = Callable[[pytest.MonkeyPatch], None]


class Memory:
    """Ledgers in memory, with backups."""

    def __init__(self) -> None:
        self._given: dict[str, int] = {}  # the numbers of all ledgers that were put away

    async def open(self) -> Ledger:
        return await SqliteLedger.in_memory()

    async def close(self, ledger: Ledger) -> None:
        assert isinstance(ledger, SqliteLedger)
        self._given = sqlite.highest([self._given, sqlite._read(ledger._writer)])
        await ledger.close()

    async def copy(self, ledger: Ledger) -> object:
        assert isinstance(ledger, SqliteLedger)
        twin = sqlite3.connect(":memory:")
        ledger._writer.backup(twin)
        return twin

    async def begin_term(self, ledger: Ledger) -> int:
        assert isinstance(ledger, SqliteLedger)
        term = await ledger.read(lambda pages: pages.term())
        await ledger.write(term, lambda pages: pages.execute("UPDATE term SET number = number + 1"))
        return term + 1

    async def restore(self, copy: object, *, now: datetime) -> Ledger:
        assert isinstance(copy, sqlite3.Connection)
        ledger = await SqliteLedger.in_memory()
        copy.backup(ledger._writer)
        copy.close()

        def closed(pages: store.Transaction) -> None:
            sqlite.go_on(ledger._writer, self._given)
            arming.close_the_past(pages, now=now, reason=because("a backup was restored"))
            pages.tell("restored", now=now)

        await ledger.write(1, closed)
        return ledger


def go_before_it_is_written(patch: pytest.MonkeyPatch) -> None:
    """Let a run go as soon as it is made, and write `running` after it."""
    make = launch.Launch._make

    async def made(self: launch.Launch, job: Job) -> Any:
        held = await make(self, job)
        held.go()
        return held

    patch.setattr(launch.Launch, "_make", made)


def go_though_it_is_not_known(patch: pytest.MonkeyPatch) -> None:
    """Take a commit whose answer was lost for one that succeeded."""
    note = launch.Launch._note_running

    async def noted(self: launch.Launch, made: Sequence[Any]) -> Sequence[bool]:
        try:
            return await note(self, made)
        except LedgerWriteError:
            return [True] * len(made)

    patch.setattr(launch.Launch, "_note_running", noted)


def catch_up_from_now(patch: pytest.MonkeyPatch) -> None:
    """Begin again at this moment after an outage, and forget what it cost."""

    def decided(
        entry: Entry, *, now: datetime, is_busy: bool = False, behind: Reason | None = None
    ) -> Decision:
        decision = misfire.decide(entry, now=now, is_busy=is_busy, behind=behind)
        late = [each for each in decision.receipts if now - each.planned_at > GRACE]
        return Decision((), now, entry.ended_at) if late else decision

    patch.setattr(engine, "decide", decided)


def keep_the_slot_of_what_failed(patch: pytest.MonkeyPatch) -> None:
    """Free a slot only after a good end."""
    leave, release = engine.Engine._leave, Gate.release

    def left(self: engine.Engine, number: int, then: Filed | RunOver | None) -> None:
        is_bad = then is not None and then.status is Status.FAILED
        patch.setattr(Gate, "release", (lambda *_: None) if is_bad else release)
        leave(self, number, then)

    patch.setattr(engine.Engine, "_leave", left)


def keep_the_streak(patch: pytest.MonkeyPatch) -> None:
    """Count ticks that found nothing, and never begin anew."""
    counts = store._counts

    def counted(status: Status, streak: int, failures: int, *, is_tick: bool) -> tuple[int, int]:
        after = counts(status, streak, failures, is_tick=is_tick)
        return (streak, after[1]) if status is Status.DONE else after

    patch.setattr(store, "_counts", counted)


def fire_in_both_passes(patch: pytest.MonkeyPatch) -> None:
    """Take the second pass of an autumn night for another moment."""
    of_cron = project._of_cron

    def doubled(crons: tuple[Cron, ...], start: datetime, end: datetime) -> Iterator[Moment]:
        place, hour = zone(crons[0].zone), timedelta(hours=1)
        second: Moment | None = None
        for moment in of_cron(crons, start - hour, end):
            if second is not None and start < second.at < moment.at:
                yield second
            second = None
            if is_fold(local(moment.at, place), place) and not crons[0].has_star_time:
                at = moment.at + hour
                second = Moment(at, f"cron:{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}")
            if moment.at > start:
                yield moment
        if second is not None and start < second.at <= end:
            yield second

    def first(crons: tuple[Cron, ...], after: datetime) -> Moment | None:
        return next(doubled(crons, after, project._FAR), None)

    patch.setattr(project, "_of_cron", doubled)
    patch.setattr(project, "_first_of_cron", first)


def give_up_every_key(patch: pytest.MonkeyPatch) -> None:
    """Let what has run give its key up, too, when the clock is set back."""
    name, statuses = "receipt.give_up_keys", "('skipped', 'coalesced', 'missed')"
    query = named("")[name]
    assert statuses in query
    patch.setitem(named(""), name, query.replace(f"status IN {statuses}", "1"))


def forget_the_attempts(patch: pytest.MonkeyPatch) -> None:
    """Take every end for the first."""
    patch.setattr(
        store, "after_end", lambda end, **facts: receipt.after_end(end, **{**facts, "attempts": 1})
    )


def start_what_was_started(patch: pytest.MonkeyPatch) -> None:
    """Offer receipts whose runs have ended, and start whatever is offered."""
    leave = engine.Engine._leave

    def left(self: engine.Engine, number: int, then: Filed | RunOver | None) -> None:
        filed = self.gate._known[number]
        leave(self, number, then)
        if then is not None:
            self.gate.offer((filed,))

    def may(status: Status, then: Status, *, has_retry: bool = False) -> bool:
        return then is Status.STARTING or receipt.may_become(status, then, has_retry=has_retry)

    patch.setattr(engine.Engine, "_leave", left)
    patch.setattr(store, "may_become", may)


def lose_the_end(patch: pytest.MonkeyPatch) -> None:
    """Write an end down once, and if that fails let it be."""

    async def written(
        self: launch.Launch, ends: Sequence[tuple[Run, RunEnd]]
    ) -> Sequence[RunOver | None]:
        try:
            return await self.ledger.end_many([end for _, end in ends], **self._stamp())
        except (LedgerBusyError, LedgerWriteError):
            return [None] * len(ends)

    patch.setattr(launch.Launch, "_write_ends", written)


def run_again_what_was_let_go(patch: pytest.MonkeyPatch) -> None:
    """Take every run of a dead engine for one that never ran."""
    take_over = launch.Launch._take_over

    async def taken(self: launch.Launch, filed: Filed, run: Run, found: Any) -> None:
        await take_over(self, filed, run, found if isinstance(found, Ended) else Unreleased())

    patch.setattr(launch.Launch, "_take_over", taken)


def let_the_latest_in_first(patch: pytest.MonkeyPatch) -> None:
    """Stand the line on its head."""

    def place(waiting: Waiting) -> tuple[bool, float, int]:
        ask = waiting.ask
        return ask.parent is None, -ask.due_at.timestamp(), ask.number

    patch.setattr(gate, "_place", place)


def give_every_run_its_own_slot(patch: pytest.MonkeyPatch) -> None:
    """Let a run that was asked for inside a run wait for a slot like everybody else."""
    patch.setattr(gate._Room, "_home", lambda *_: None)


def tell_only_of_failures(patch: pytest.MonkeyPatch) -> None:
    """Forget that what was killed or interrupted has failed, too."""

    def told(filed: Filed, before: Sequence[Filed]) -> frozenset[Occasion]:
        is_told = filed.status is Status.FAILED
        return misfire.occasions_of(filed, before) if is_told else frozenset()

    patch.setattr(engine, "occasions_of", told)


def forget_what_was_released(patch: pytest.MonkeyPatch) -> None:
    """Look at the ledger's changes, and offer nothing of what waits again."""

    async def looked(self: engine.Engine) -> None:
        self._has_changed = False

    patch.setattr(engine.Engine, "_look_at_changes", looked)


def stop_without_a_last_word(patch: pytest.MonkeyPatch) -> None:
    """End all runs at a stop, and do not wait until that is written down."""

    async def rested(self: launch.Launch) -> None:
        """Return at once."""

    patch.setattr(launch.Launch, "rest", rested)


def write_in_any_term(patch: pytest.MonkeyPatch) -> None:
    """Take what an engine writes that leads no more."""
    patch.setattr(SqliteLedger, "_check_term", lambda *_: None)


def forget_what_goes_on(patch: pytest.MonkeyPatch) -> None:
    """Count what is over, and not the runs in progress."""
    query = named("")["purse.drawn"]
    assert "OR run.ended_at IS NULL" in query
    patch.setitem(named(""), "purse.drawn", query.replace("OR run.ended_at IS NULL", ""))


def begin_the_day_at_midnight_in_utc(patch: pytest.MonkeyPatch) -> None:
    """Read every budget as if its days were those of UTC."""
    period = budget.Purse.period
    patch.setattr(
        budget.Purse, "period", lambda purse, now: period(replace(purse, zone="UTC"), now)
    )


def count_what_a_limit_has_ended(patch: pytest.MonkeyPatch) -> None:
    """Take a run that met a limit for an attempt like others."""
    after = store.Transaction._after

    def counted(self: store.Transaction, *given: Any) -> Any:
        ended, then, attempts, account = after(self, *given)
        return ended, then, attempts + bool(account), account

    patch.setattr(store.Transaction, "_after", counted)


def let_all_go_when_a_limit_is_over(patch: pytest.MonkeyPatch) -> None:
    """Do not wait for what the first run after a limit finds."""
    ask = store.Transaction.ask_account

    def asked(self: store.Transaction, account: str, receipt: int, *, now: datetime) -> Any:
        limit = ask(self, account, receipt, now=now)
        return limit if limit is not None and limit.until_at > now else None

    patch.setattr(SqliteLedger, "ask_account", store._writing(asked))


def forget_limits_at_a_start(patch: pytest.MonkeyPatch) -> None:
    """Remove all limits when an engine looks for those by a clock that ran ahead."""
    query = named("")["account.set_back"]
    assert "WHERE" in query
    patch.setitem(named(""), "account.set_back", query.partition("WHERE")[0])


def sleep_through_the_end_of_a_limit(patch: pytest.MonkeyPatch) -> None:
    """Look at limits when a run has ended, and not when they are over."""
    free = engine.Engine._free_limited

    async def freed(self: engine.Engine, now: datetime) -> None:
        if self._may_free:
            await free(self, now)
            self._limit_at = None

    patch.setattr(engine.Engine, "_free_limited", freed)


@dataclass(frozen=True, slots=True)
class Planted:
    """A bug, what finds it, and seeds that are known to do so."""

    plant: Plant
    promises: tuple[str, ...]
    seeds: tuple[int, ...]
    days: int = 20


PLANTED = (
    Planted(go_before_it_is_written, ("I3",), (0, 1)),
    Planted(go_though_it_is_not_known, ("I3",), (0, 4, 11)),
    Planted(catch_up_from_now, ("oracle",), (0, 1, 3)),
    Planted(keep_the_slot_of_what_failed, ("I7",), (0, 2)),
    Planted(keep_the_streak, ("I10",), (8, 9, 14)),
    Planted(fire_in_both_passes, ("oracle",), (48, 138), days=45),
    Planted(give_up_every_key, ("I1",), (6, 9, 19, 26, 27, 30, 35)),
    Planted(forget_the_attempts, ("I4",), (0, 8, 11)),
    Planted(start_what_was_started, ("I2",), (1, 2, 3)),
    Planted(lose_the_end, ("I7",), (0, 7, 8)),
    Planted(let_the_latest_in_first, ("I7",), (0, 1, 2)),
    Planted(give_every_run_its_own_slot, ("I7",), (3, 5, 6)),
    Planted(tell_only_of_failures, ("alerts",), (1, 4, 5)),
    Planted(forget_what_was_released, ("I7",), (4, 5, 9)),
    Planted(stop_without_a_last_word, ("I16",), (5, 6, 13)),
    Planted(run_again_what_was_let_go, ("I4",), (4, 14, 21, 25, 41, 44)),
)

LIMITS = (
    Planted(count_what_a_limit_has_ended, ("I22",), (5, 6)),
    Planted(let_all_go_when_a_limit_is_over, ("I22",), (6, 8)),
    Planted(forget_limits_at_a_start, ("I22",), (9, 8)),
    Planted(sleep_through_the_end_of_a_limit, ("I22",), (5, 6)),
)

BUDGETS = (
    Planted(forget_what_goes_on, ("I21",), (0, 1, 2, 3)),
    Planted(begin_the_day_at_midnight_in_utc, ("I21",), (0, 1, 2, 3)),
)
