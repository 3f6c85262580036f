"""The engine: the one loop that decides, starts and settles, and waits until the next occurrence.

A turn reads the clock once and writes its decisions in batches before anything starts. The same
turn again is safe: a time that has a receipt is never decided again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Final, Protocol, TypeAlias

from horae.core import ports, receipt as states
from horae.core.actor import ENGINE, acting
from horae.core.decide import behind_words, decide, follows, looked_back, occasions_of
from horae.core.entry import AfterRule, Entry, Occasion, Overlap, key_time
from horae.core.gate import Capacity, Gate
from horae.core.launch import Launch
from horae.core.ports import Clock, DueEntry, Ledger, Listed, Runner
from horae.core.receipt import Filed, Reason, ReasonCode, Receipt, Status
from horae.core.source import Revision, Scan, Source, SourceError
from horae.core.spending import Spending
from horae.errors import HoraeError

Left: TypeAlias = Callable[[int, Filed | ports.RunOver | None], None]
Revise: TypeAlias = Callable[[Collection[str]], Awaitable[Revision | None]]

log = logging.getLogger(__name__)

LONGEST_REST: Final = timedelta(seconds=30)  # how soon the end of a suspend is noticed
AGAIN: Final = timedelta(seconds=1)  # after a failed write to the ledger
BATCH: Final = 1000  # entries in one commit
# More than a slewed clock drifts within a rest, less than the smallest step that we promise.
DRIFT: Final = timedelta(milliseconds=500)
UNREAD: Final = timedelta(seconds=7)  # after a plan could not be read
UNSETTLED: Final = timedelta(seconds=30)  # after a source failed to settle a receipt
SETTLED: Final = 100  # final receipts settled together
SETTLING: Final = timedelta(seconds=1)  # settling time per turn, which delays the rest of it
STALL: Final = timedelta(seconds=30)  # without a start, although something could start
_ALL: Final = 1 << 30
STOPPED: Final = Reason(ReasonCode.ENGINE_STOPPED, "the engine was stopped")


class Approvals(Protocol):
    @property
    def source(self) -> str:
        """The name of the source whose receipts may need an approval."""

    async def admit(self, receipts: Sequence[Filed]) -> Sequence[Filed]:
        """Return the receipts that need no approval, or have it; the others are held or skipped."""

    async def lapse(self) -> datetime | None:
        """Reject runs whose approval expired; return when the next one expires."""


class Engine:
    def __init__(
        self,
        *,
        clock: Clock,
        ledger: Ledger,
        runner: Runner,
        sources: Iterable[Source] = (),
        capacity: Capacity | None = None,
        term: int = 1,
        approvals: Approvals | None = None,
        obstacle: Callable[[Filed], Awaitable[str | None]] | None = None,
        revise: Revise | None = None,
        launch: Callable[[Gate, Left], Launch] | None = None,
        home: str = "",
        adopted: dict[int, ports.Held | Reason] | None = None,
        spending: Spending | None = None,
    ) -> None:
        self._clock = clock
        self._approvals = approvals
        self._obstacle = obstacle  # why a held receipt would be held again
        self._revise = revise  # finds the commit that contains files
        self._ledger = ledger
        self._spending = spending  # None if no alert follows budgets
        self._term = term
        sources = tuple(sources)
        self._readers = {source.name: _SourceReader(source) for source in sources}
        self._poked = asyncio.Event()
        self._turning = asyncio.Lock()
        self._epoch: datetime | None = None
        self._settle_at: datetime | None = None  # when to settle again after a failure
        self._wake_at: datetime | None = None  # the next scheduled time, or end of a pause
        self._has_news = True  # whether _wake_at may be outdated
        self._lapse_at: datetime | None = None  # when the next approval expires
        self._may_lapse = True  # whether _lapse_at may be outdated
        self._limit_at: datetime | None = None  # when the next usage limit of an account ends
        self._has_limits = False  # whether an account was under a limit when last checked
        self._may_free = True  # whether _limit_at may be outdated
        self._has_unsettled = True
        self._settled_to: int | None = None  # the last receipt settled, while settling continues
        self._alerted_to = 0  # the last receipt whose alerts are filed
        self._moved_at = timedelta(0)  # uptime at the last start, end or request
        self._has_changed = False
        self._is_admitting = True
        self._missing: frozenset[int] = frozenset()  # entries that the last scans did not find
        self._logged: dict[int, str] = {}  # the reasons of waiting receipts that were logged
        self.broken: tuple[Listed, ...] = ()  # entries whose text cannot be read
        self.may_be_empty = False  # whether the plan root is allowed to hold no plan
        self.is_blank = False  # the plan root holds no plan, although the ledger has entries of one
        self.gate = Gate(capacity, home=home)
        self.launch = (
            Launch(
                clock=clock,
                ledger=ledger,
                runner=runner,
                left=self._leave,
                following=self._next,
                term=term,
                adopted={} if adopted is None else adopted,
                settled={each.name for each in sources if each.settle is None},
            )
            if launch is None
            else launch(self.gate, self._leave)
        )
        self.longest_rest = LONGEST_REST
        self.trouble: ports.LedgerError | None = None  # why the last turn could not write
        self.commit: str | None = None  # the one commit of all that the sources hold
        self.started_at: datetime | None = None
        self.turned_at: datetime | None = None

    @property
    def sources(self) -> tuple[str, ...]:
        return tuple(self._readers)

    @property
    def problems(self) -> dict[str, tuple[HoraeError, ...]]:
        return {
            name: (*reader.problems, *reader.unrevised, *reader.unsettled)
            for name, reader in self._readers.items()
        }

    async def start(self) -> None:
        """Take over the last engine's runs and read the sources; nothing starts before this."""
        async with self._turning:
            self.started_at = now = self._clock.now()
            self._epoch = now - self._clock.elapsed()
            await self._ledger.set_back(now=now, term=self._term)
            await self.launch.look_back()
            for filed in self.launch.going:
                self.gate.adopt(filed, now=now)
            reason = Reason(ReasonCode.ENGINE_RESTARTED, "the engine was restarted")
            await self._release_held(now, reason)
        await self.read_all()
        await self._offer_waiting()
        self._moved_at = self._clock.elapsed()

    async def read_all(self) -> None:
        """Read all sources before any is taken over, so that a missing entry is removed at once."""
        async with AsyncExitStack() as stack:
            for reader in self._readers.values():
                await stack.enter_async_context(reader.lock)
            scans = {name: await self._read(name) for name in self._readers}
            for name, scan in scans.items():
                await self._take_over(name, scan, patience=timedelta(0))
        await self._note_taken_over()

    async def run(self, *, turned: Callable[[], None] = lambda: None) -> None:
        while True:
            wake_at = await self.turn()
            turned()
            # A clock set back during the turn must not turn this into hours.
            until = min(wake_at, self._clock.now() + self.longest_rest)
            log.debug("waiting until %s", until)
            await self._clock.wait(self._poked, until=until)

    async def turn(self) -> datetime:
        async with self._turning:
            self._has_news |= not self._poked.is_set()  # a turn after a timeout checks everything
            self._poked.clear()
            if self.launch.failure is not None:
                raise self.launch.failure
            now = self._clock.now()
            try:
                wake_at = await self._keep_up(now)
            except ports.LedgerUnavailableError as error:
                self.trouble, self._has_news = error, True
                log.debug("the ledger cannot be used, trying again in %s: %s", AGAIN, error)
                return self._clock.now() + AGAIN  # now: waiting for a lock took time
            self.trouble = None
            return wake_at

    async def rescan(self, name: str) -> Scan:
        # Scans must reach the ledger in the order in which they read.
        async with self._readers[name].lock:
            scan = await self._read(name)
            await self._take_over(name, scan, patience=ports.PATIENCE)
        await self._note_taken_over()
        return scan

    async def _read(self, name: str) -> Scan:
        reader = self._readers[name]
        reader.is_wanted = False  # a request from here on may come after the file was read
        index = await self._ledger.index(name)
        try:
            scan = await reader.source.scan(index)
        except ports.LedgerError:  # not an error of the source
            raise
        except Exception as error:  # no source may end the engine; its entries stay
            log.debug("scanning %s failed", name, exc_info=error, extra={"source": name})
            problem = SourceError(name, error)
            scan = Scan(
                (), standing=("",), problems=(problem,), index=index, is_bare=reader.is_bare
            )
        counts = len(scan.entries), len(scan.problems)
        log.debug("scanned %s: %d entries read, %d problems", name, *counts, extra={"source": name})
        reader.is_bare = scan.is_bare
        return scan

    async def _take_over(self, name: str, scan: Scan, *, patience: timedelta) -> None:
        reader = self._readers[name]
        was_blank, readers = self.is_blank, self._readers.values()
        has_plan = self.may_be_empty or any(each.is_bare is False for each in readers)
        bare = [] if has_plan else [name for name, each in self._readers.items() if each.is_bare]
        self.is_blank = any([await self._ledger.knows(each) for each in bare])
        reader.look_at = None
        if not self.is_blank or scan.is_bare is None:
            reader.look_at = await self._ledger.scan(
                name,
                scan,
                now=self._clock.now(),
                term=self._term,
                revision=await self._revision(name, scan),
                patience=patience,
            )
        reader.problems = scan.problems
        if scan.problems or self.is_blank:
            # No event tells when the cause of a problem is gone.
            again = self._clock.now() + UNREAD
            reader.look_at = again if reader.look_at is None else min(reader.look_at, again)
        if was_blank and not self.is_blank:
            for other in self._readers:  # their scans were not taken over meanwhile
                self.request(other)

    async def _note_taken_over(self) -> None:
        was, traits = self._missing, ports.Trait
        missing = await self._ledger.entries_that_are(traits.MISSING, limit=_ALL)
        self._missing = frozenset(each.number for each in missing)
        self.broken = tuple(await self._ledger.entries_that_are(traits.BROKEN, limit=BATCH))
        self._has_unsettled = True  # receipts of entries that the scan found removed or broken
        await self._forget_skipped()
        if not was <= self._missing:
            await self._offer_waiting()
        if self._obstacle is not None:
            reason = Reason(ReasonCode.READY, "the cause of the hold is resolved")
            await self._release_held(self._clock.now(), reason, obstacle=self._obstacle)
        self.poke()

    def request(self, name: str) -> None:
        """Scan a source soon, beside the loop; again if a scan is in progress."""
        reader = self._readers[name]
        reader.is_wanted = True
        if reader.request is None or reader.request.done():
            with acting(ENGINE):  # changes that a scan finds have no other actor
                reader.request = asyncio.create_task(self._rescan_while_wanted(name))

    def offer(self, receipts: Sequence[Filed]) -> None:
        self._offer(receipts)
        self.poke()

    def note_change(self) -> None:
        self._has_changed = True
        self._moved_at = self._clock.elapsed()
        self.poke()

    def poke(self) -> None:
        self._has_news = True
        self._poked.set()

    async def stall(self) -> str:
        """Return a message if nothing starts although it could; works while the loop hangs."""
        now, quiet = self._clock.now(), self._clock.elapsed() - self._moved_at
        is_meant = self.turned_at is None or self.is_blank or not self._is_admitting
        if is_meant or quiet < STALL:
            return ""
        waiting = [each for each in await self._waiting() if each.entry not in self._missing]
        since = {each.number: max(each.receipt.start_at, each.decided_at) for each in waiting}
        long = [each for each in waiting if now - since[each.number] >= STALL]
        found = self.gate.startable(long, now=now)
        if not found:
            return ""
        first = found[0]
        begun = max(since[first.number], now - quiet)
        return (
            f"stalled since {key_time(begun)}: receipt {first.number} ({first.title},"
            f" {first.origin}) does not start, although nothing blocks it; if this persists,"
            " restart the engine"
        )

    async def stop(self, *, within: timedelta, reason: Reason = STOPPED) -> None:
        self._is_admitting = False
        await self.launch.stop(within=within, reason=reason)

    async def wait_for_others(
        self, can_leave: Callable[[ports.Run, ports.Held], bool], *, within: timedelta
    ) -> None:
        """Start nothing more, and return when each remaining run can be handed over."""
        self._is_admitting = False
        words = "the engine was restarted, and a run of this kind cannot continue"
        reason = Reason(ReasonCode.ENGINE_RESTARTED, words)
        await self.launch.wait_for_others(can_leave, within=within, reason=reason)

    async def _revision(self, name: str, scan: Scan) -> Revision | None:
        """Return the commit of what was read; looked up afterwards, as files may change."""
        if self.commit is not None:
            return Revision(self.commit)
        if self._revise is None:
            return None
        read = {each.item.origin.file for each in scan.entries}
        files = read.union(await self._ledger.loose(name))
        reader = self._readers[name]
        reader.unrevised = ()
        try:
            found = await self._revise(files) if files else None
        except Exception as error:  # a plan is read without its commit, too
            log.debug("cannot find the commit of %s: %s", name, error, extra={"source": name})
            reader.unrevised = (SourceError("git", error),)
            return None
        if found is None or found.files is None:
            return found
        return Revision(found.commit, frozenset(filter(scan.is_still, found.files)))

    async def _release_held(
        self,
        now: datetime,
        reason: Reason,
        *,
        obstacle: Callable[[Filed], Awaitable[str | None]] | None = None,
    ) -> None:
        page = await self._ledger.receipts(statuses=(Status.HELD,), limit=BATCH)
        held = [each for each in page.receipts if each.receipt.reason.code in states.HELD_BACK]
        if obstacle is not None:
            held = [each for each in held if await obstacle(each) is None]
        if held:
            release = partial(self._ledger.release, reason=reason, now=now, term=self._term)
            await asyncio.gather(*(release(each.number) for each in held))  # in one commit
            self._has_changed = True

    async def _keep_up(self, now: datetime) -> datetime:
        await self._compare_clocks(now)
        if self.trouble is not None or self.launch.is_unsure:
            await self.launch.reconcile()  # find out which failed writes the ledger has kept
            await self._offer_waiting()
            self._has_unsettled = self._may_lapse = self._may_free = True
        if self._has_changed:
            await self._look_at_changes()
        if not self.is_blank:
            await self._look_ahead()
            if self._wake_at is not None and self._wake_at <= now:
                if await self._ledger.wake(now=now, term=self._term):
                    self._has_unsettled = True
                    await self._offer_waiting()
                self._has_news = True
                await self._decide_all(now)
            has_lapsed = self._lapse_at is not None and self._lapse_at <= now
            await self._free_limited(now)
            if self._approvals is not None and (self._may_lapse or has_lapsed):
                self._has_news |= has_lapsed
                self._may_lapse = False  # first: a receipt held from here on may be missed
                self._lapse_at = await self._approvals.lapse()
            self._start_all(now)
        await self._settle_all(now)
        for name, reader in self._readers.items():
            if reader.look_at is not None and reader.look_at <= now:
                reader.look_at = None
                self.request(name)
        self.turned_at = now
        others = [self._settle_at, *(each.look_at for each in self._readers.values())]
        if not self.is_blank:
            await self._look_ahead()
            gate_at = self.gate.next_at if self._is_admitting else None
            others += [self._wake_at, gate_at, self._lapse_at, self._limit_at]
        at = min([now + self.longest_rest, *(each for each in others if each is not None)])
        # A wait that is due now was just tried, and must not make the loop spin.
        return at if at > now else now + AGAIN

    async def _free_limited(self, now: datetime) -> None:
        if not self._may_free and (self._limit_at is None or self._limit_at > now):
            return
        self._may_free = False  # first: a run that ends from here on may be missed
        if await self._ledger.free_limited(now=now, term=self._term):
            await self._offer_waiting()
        limits = await self._ledger.limits()
        self._has_limits = bool(limits)
        coming = (each.until_at for each in limits if each.until_at > now)
        self._limit_at = min(coming, default=None)

    async def _look_ahead(self) -> None:
        if self._has_news:
            self._has_news = False  # first: a change from here on may be missed by the query
            self._wake_at = await self._ledger.wake_at()

    async def _look_at_changes(self) -> None:
        self._has_changed = False
        self._has_unsettled = self._may_lapse = True
        await self._forget_skipped()
        await self._offer_waiting()

    async def _compare_clocks(self, now: datetime) -> None:
        epoch = now - self._clock.elapsed()
        by = timedelta(0) if self._epoch is None else epoch - self._epoch
        if abs(by) >= DRIFT:
            self._has_news = self._may_free = True
            facts = {"by": by.total_seconds()}
            await self._ledger.note("clock_step", now=now, term=self._term, facts=facts)
        if by <= -DRIFT:
            await self._ledger.set_back(now=now, term=self._term)
        self._epoch = epoch  # only now: after a failed write, the next turn notices the step again

    async def _decide_all(self, now: datetime) -> None:
        while due := await self._ledger.due(now=now, limit=BATCH):
            steps = []
            for each in due:
                behind = await self._behind(each) if each.is_busy else None
                decision = decide(each.entry, now=now, is_busy=each.is_busy, behind=behind)
                steps.append(ports.EntryStep(each.entry, decision))
            let_in = partial(self._let_in_new, now)
            filed = await self.launch.decide(steps, now=now, let_in=let_in)
            log.debug("decided: %d entries due, %d receipts", len(due), len(filed))
            admitted = await self._admitted([e for e in filed if e.status is Status.WAITING])
            self._offer(admitted)
            self._has_unsettled |= len(admitted) < len(filed)
            moved = (each.decision.accounted_to != each.entry.accounted_to for each in steps)
            if len(due) < BATCH or not any(moved):
                return

    async def _behind(self, due: DueEntry) -> Reason | None:
        if due.entry.policy.overlap is not Overlap.SKIP:
            return None
        page = await self._ledger.receipts(
            entry=due.entry.number, statuses=states.OPEN, limit=BATCH
        )
        planned = [each for each in page.receipts if states.is_planned(each.receipt.key)]
        # The oldest open one is the one to wait for.
        return behind_words(planned[-1].status, planned[-1].receipt.reason) if planned else None

    def _let_in_new(self, now: datetime, filed: Iterable[Filed]) -> Sequence[Filed]:
        asks = None if self._approvals is None else self._approvals.source
        waiting = (each for each in filed if each.status is Status.WAITING)
        self._offer(each for each in waiting if each.source != asks)
        return self._let_in(now) if self._is_admitting else ()

    def _start_all(self, now: datetime) -> None:
        if self._is_admitting and (admitted := self._let_in(now)):
            self.launch.start(admitted)

    def _next(self, over: Collection[int]) -> Sequence[Filed]:
        is_sure = self.trouble is None and not self.launch.is_unsure
        if not is_sure or not self._is_admitting or self.is_blank or not self.gate.has_line:
            return ()
        return self._let_in(self._clock.now(), over=over)

    def _let_in(self, now: datetime, *, over: Collection[int] = ()) -> Sequence[Filed]:
        admitted, refused = self.gate.admit(now=now, over=over)
        if admitted or refused:
            self._moved_at = self._clock.elapsed()
        for filed, reason in refused:
            log.debug("receipt %d cannot start: %s", filed.number, reason, extra=_fields(filed))
            self.launch.start([filed], refused=reason)
        if log.isEnabledFor(logging.DEBUG):
            for filed in admitted:
                log.debug("receipt %d (%s) starts", filed.number, filed.title, extra=_fields(filed))
            waits = {each.ask: str(each.reason) for each in self.gate.obstacles(now=now)}
            for ask, why in waits.items():
                if self._logged.get(ask.number) != why:
                    extra = {"entry": ask.entry, "receipt": ask.number}
                    log.debug("receipt %d waits: %s", ask.number, why, extra=extra)
            self._logged = {ask.number: why for ask, why in waits.items()}
        return admitted

    async def _settle_all(self, now: datetime) -> None:
        is_time = self._settle_at is not None and now >= self._settle_at
        if self._settled_to is None:
            if not self._has_unsettled and not is_time:
                return
            self._has_unsettled, self._settle_at = False, None
            self._settled_to = self._alerted_to = 0
            for reader in self._readers.values():
                reader.unsettled = ()
        began = self._clock.elapsed()
        while finals := await self._ledger.unsettled(after=self._settled_to, limit=SETTLED):
            await self._file_alerts([e for e in finals if e.number > self._alerted_to], now)
            self._alerted_to = max(self._alerted_to, finals[-1].number)
            asked, settled = self._clock.elapsed(), []
            for filed in finals:
                if await self._settle(filed):
                    settled.append(filed.number)
                else:
                    self._settle_at = now + UNSETTLED
                self._settled_to = filed.number  # only now: if cancelled, settle it again
                if self._clock.elapsed() - asked >= SETTLING:
                    break
            await self._ledger.settle(settled, now=now, term=self._term)
            if self._clock.elapsed() - began >= SETTLING:
                self.poke()  # the next turn continues
                return
        self._settled_to = None
        if self._has_unsettled:  # a receipt that became final meanwhile may have a lower number
            self.poke()

    async def _file_alerts(self, finals: Sequence[Filed], now: datetime) -> None:
        alerts: dict[int, list[Receipt]] = {}
        followers = await self._ledger.followers() if finals else []
        for filed in finals if followers else ():
            async for follower, alert in self._alerts(filed, followers, now):
                alerts.setdefault(follower, []).append(alert)
        for follower, asked in alerts.items():
            filed_now = await self._ledger.add(follower, asked, now=now, term=self._term)
            self.offer([each for each in filed_now if each.status is Status.WAITING])

    async def _alerts(
        self, filed: Filed, followers: Sequence[Listed], now: datetime
    ) -> AsyncIterator[tuple[int, Receipt]]:
        if states.followed_by(filed.receipt.key) is not None:
            return
        ledger, most = self._ledger, looked_back(filed)
        page = await ledger.receipts(entry=filed.entry, cursor=filed.number, limit=most)
        found = occasions_of(filed, page.receipts)
        reason, spending = filed.receipt.reason, self._spending
        near = await spending.nears(filed) if spending and _follows_budgets(followers) else None
        if near is not None:
            found, reason = found | {Occasion.BUDGET}, reason if found else near
        known = await ledger.entry(filed.entry) if found else None
        if known is None:
            return
        address, title = known.mark.address, known.mark.title
        names = (address, address.removeprefix("id:").removeprefix("agent:"), title)
        for each in followers:
            rule = each.item.rule if isinstance(each.item, Entry) else None
            if not isinstance(rule, AfterRule) or not found.intersection(rule.occasions):
                continue
            if follows(rule, names=names, agents=filed.agents):
                what = " and ".join(each for each in rule.occasions if each in found)
                words = f"after {title} ({what}): {reason}"
                why = Reason(ReasonCode.AFTER_ENTRY, words)
                yield each.number, Receipt(f"after:{filed.number}", Status.WAITING, why, now, now)

    async def _settle(self, filed: Filed) -> bool:
        reader = self._readers.get(filed.source)
        settle = None if reader is None else reader.source.settle
        if reader is None or settle is None:
            return True
        self._has_news = True  # settling may write anything
        try:
            await settle(filed)
        except Exception as error:  # it is tried again, and must not end anything else
            problem = error if isinstance(error, HoraeError) else SourceError(filed.source, error)
            words = "settling receipt %d failed, trying again in %s: %s"
            log.debug(words, filed.number, UNSETTLED, problem, extra=_fields(filed))
            reader.unsettled = (*reader.unsettled, problem)
            return False
        return True

    async def _rescan_while_wanted(self, name: str) -> None:
        reader, extra = self._readers[name], {"source": name}
        reader.is_wanted = True
        while reader.is_wanted:
            try:
                await self.rescan(name)
            except ports.LedgerUnavailableError as error:
                log.debug("scanning %s failed: %s", name, error, extra=extra)
                self.trouble = error
                reader.look_at = self._clock.now() + AGAIN
            except Exception as error:  # the next turn raises it, and the engine ends
                log.debug("scanning %s failed", name, exc_info=error, extra=extra)
                self.launch.failure = error
            self.poke()

    async def _offer_waiting(self) -> None:
        self._offer(await self._admitted(await self._waiting()))

    def _offer(self, receipts: Iterable[Filed]) -> None:
        self.gate.offer(each for each in receipts if each.entry not in self._missing)

    async def _admitted(self, receipts: Sequence[Filed]) -> Sequence[Filed]:
        approvals = self._approvals
        if approvals is None or all(each.source != approvals.source for each in receipts):
            return receipts
        self._may_lapse = True
        return await approvals.admit(receipts)

    async def _forget_skipped(self) -> None:
        if self.gate.has_line:
            waiting = await self._waiting()
            kept = {filed.number for filed in waiting if filed.entry not in self._missing}
            self.gate.keep(kept.__contains__)

    async def _waiting(self) -> list[Filed]:
        found = await ports.receipts_of(self._ledger, (Status.WAITING,))
        return sorted(found, key=lambda each: (each.receipt.planned_at, each.number))

    def _leave(self, number: int, then: Filed | ports.RunOver | None) -> None:
        self.gate.release(number)
        self._moved_at = self._clock.elapsed()
        self._may_free |= self._has_limits or then is None or then.status is Status.HELD
        if isinstance(then, Filed) and then.status is Status.WAITING:
            self._offer((then,))
        if isinstance(then, ports.RunOver) and then.is_settled and not then.is_rescheduled:
            self._poked.set()  # only the slot is free: no other work for the turn
            return
        self._has_unsettled = True
        self.poke()


def _follows_budgets(followers: Iterable[Listed]) -> bool:
    rules = (each.item.rule for each in followers if isinstance(each.item, Entry))
    return any(isinstance(each, AfterRule) and Occasion.BUDGET in each.occasions for each in rules)


def _fields(filed: Filed) -> dict[str, object]:
    return {"source": filed.source, "entry": filed.entry, "receipt": filed.number}


@dataclass(slots=True)
class _SourceReader:
    source: Source
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    request: asyncio.Task[None] | None = None
    is_wanted: bool = False  # whether a requested scan has not begun
    look_at: datetime | None = None  # when to scan again for missing entries
    is_bare: bool | None = None  # whether the last scan found no file; None: not relevant
    problems: tuple[HoraeError, ...] = ()
    unrevised: tuple[HoraeError, ...] = ()  # why the commit is unknown
    unsettled: tuple[HoraeError, ...] = ()
