"""A node of a cluster: one machine of several that keep one plan together.

Each node takes the runs that it has room for, under a lease of its own. Under the leader's lease
one of them decides, as an engine on one machine does. The database's clock is the clock of all.
"""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from horae import __version__, app as composition
from horae.app import App, Host, Runners
from horae.cluster.queue import Carried, Worker
from horae.config import Config, load
from horae.context import Context
from horae.core.access import REVOKED, SESSION_ENDED
from horae.core.actor import OPERATOR
from horae.core.clock import SharedClock, SystemClock
from horae.core.engine import Left
from horae.core.gate import Gate
from horae.core.lease import Leader, NodeDescription as Card, trusted_until
from horae.core.ports import LedgerError, LedgerUnavailableError, StaleTermError
from horae.core.receipt import Reason, ReasonCode, Status
from horae.core.settings import ListenAddress
from horae.errors import Exit, HoraeError
from horae.files.git.repository import is_repository
from horae.files.git.trees import ClusterError, FollowedPlan, Trees, Undelivered
from horae.node_requests import NodeRequests
from horae.process.processes import LOG_NAME, Processes
from horae.sources.crew.rules import left_on, read_memory, write_memory
from horae.store import carrier as queues
from horae.store.carrier import Carrier
from horae.store.database import prepare
from horae.store.lock import Lock
from horae.store.pg_wire import heard
from horae.store.postgres import NODE, TOKEN, PostgresLedger, for_leases, for_work, machines_of
from horae.web.app import keys_of, open_server, web_app
from horae.web.forward import LastKnownState
from horae.web.keys import HOST, Keys, keep_token, new_token

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine

    from starlette.types import ASGIApp

    from horae.core.lease import Membership, Renewal
    from horae.core.ports import Event, Run
    from horae.process.handover import EngineControl
    from horae.process.run_settings import RunSettings
    from horae.store.leases import Leases
    from horae.store.ledger import SqlLedger

log = logging.getLogger(__name__)

AGAIN: Final = timedelta(seconds=1)  # after a database that did not answer
FOLLOW: Final = timedelta(seconds=15)  # between two looks at the plan's origin
LOOK: Final = timedelta(seconds=5)  # between two looks at what others wrote, if nobody tells
MEMBERS: Final = "members"  # what is told when a node drains, or gives up the lead
LEFT: Final = "undelivered"  # the event that says that an agent's work is not where it belongs
PULSE: Final = timedelta(seconds=10)  # how often a quiet listener asks whether it is heard
REQUEUE: Final = timedelta(seconds=1)  # between two looks at what waits in the queue
SMALL: Final = 64 << 10  # bytes of output that are copied to the database
TOGETHER: Final = 0.02  # seconds in which what others write is read together


class LeaseLostError(HoraeError, code="lease_lost", exit_code=Exit.TEMPORARY):
    def __init__(self, what: str) -> None:
        super().__init__(f"the lease of {what} was not renewed in time")


@asynccontextmanager
async def open_member(config: Config) -> AsyncIterator[ClusterNode]:
    composition.try_reader()
    if config.store is None:
        raise ClusterError(
            "no database is set; "
            "set `store` in horae.toml, or HORAE_STORE, to the database that the nodes share"
        )
    if config.zone is None:
        raise ClusterError("set `zone` in horae.toml: nodes in different time zones share one plan")
    data = Path(os.path.abspath(config.data))
    prepare(data)
    clock = SharedClock()
    async with AsyncExitStack() as stack:
        lock = Lock.acquire(data, now=SystemClock().now())
        stack.callback(lock.release)
        root, local, branch = Path(config.root).resolve(), config.git_local, config.cluster_branch
        plan = await FollowedPlan.of(root, data, local=local or (), branch=branch)
        await plan.update()
        if not is_repository(plan.path):
            raise ClusterError(f"the plan cannot be fetched from {plan.url}: {plan.trouble}")
        lease = config.cluster_lease
        ledger = await PostgresLedger.open(
            config.store,
            timeouts=for_work(lease),
            lease_timeouts=for_leases(lease),
            is_shared=True,
        )
        stack.push_async_callback(ledger.close)
        await queues.prepare(ledger.address)
        await _ask_time(clock, ledger)
        flags = {"data": str(data), "store": config.store, "git.local": config.git_local}
        shared = load(str(plan.path), flags=flags, own=config)
        processes = await stack.enter_async_context(composition.open_processes(shared, data))
        keep_token(data, await ledger.secret(TOKEN, new_token))
        keep_token(data, await ledger.secret(HOST, new_token), HOST)
        place = composition.run_place(shared, plan.path, data)
        plan.every = shared.watch_poll or FOLLOW
        yield ClusterNode(shared, config.node_name, clock, ledger, processes, place, plan)


async def _ask_time(clock: SharedClock, ledger: PostgresLedger) -> None:
    asked = clock.elapsed()
    clock.set(await ledger.leases.now(), asked=asked)


@dataclass(slots=True)
class Generation:
    """This node since it joined: its lease and its processes, which have one end.

    Only a lost lease, or a stop, ends it; and before it has ended none of its processes is alive.
    """

    name: str
    clock: SharedClock
    leases: Leases
    processes: Processes
    lease: timedelta
    patience: timedelta
    number: int = 0
    peers: list[Membership] = field(default_factory=list)  # as they were listed last, with itself
    is_confirmed: bool = False  # whether the database knows of all of them that they are listed
    # By what has elapsed: until when its lease holds, its runs live, and they might be let live.
    _until: timedelta = timedelta(0)
    _runs_until: timedelta = timedelta(0)
    _patient_until: timedelta = timedelta(0)

    @property
    def is_trusted(self) -> bool:
        return self.clock.elapsed() < self._until

    @property
    def left(self) -> timedelta:
        """For how long its runs may live, if nothing more is heard."""
        return self._runs_until - self.clock.elapsed()

    @property
    def most_left(self) -> timedelta:
        return max(self._patient_until, self._runs_until) - self.clock.elapsed()

    @asynccontextmanager
    async def joined(self, card: Card) -> AsyncIterator[int]:
        await self.processes.begin()
        began = self.clock.elapsed()
        self.number = await self.leases.join(card, self.lease)
        self._trust(began)
        try:
            yield self.number
        finally:
            self._until = self._runs_until = timedelta(0)
            await self.processes.close()

    async def renew(self, term: int | None = None) -> Renewal | None:
        """Renew the lease; None: it could not be asked for, and what there is still holds."""
        began, patience = self.clock.elapsed(), self.patience if self.peers else None
        sent = [each.generation for each in self.peers]
        known = self.name, self.number, self.lease
        try:
            found = await self.leases.renew(*known, term=term, patience=patience, peers=sent)
        except LedgerUnavailableError:
            if self.left <= timedelta(0):
                raise LeaseLostError(self.name) from None
            return None
        if found is None:
            raise LeaseLostError(self.name)
        self._trust(began)
        self._patient_until = self._until + (patience or timedelta(0))
        # Also those whose lease is over: they may renew it.
        self.peers = [each for each in found.members if each.left_at is None and not each.is_reaped]
        # Who is new among them cannot reap before it is known to be listed.
        self.is_confirmed = {each.generation for each in self.peers} <= {*sent}
        return found

    async def leave(self) -> None:
        await self.processes.close()
        try:
            await self.leases.leave(self.name, self.number)
        except LedgerError as error:
            log.warning("cannot leave the cluster, the lease expires by itself: %s", error)

    def endure(self, asked_at: timedelta) -> None:
        """Let runs live on, as no peer reached the database after *asked_at*."""
        if self.left > timedelta(0):  # else they were ended
            self._let_live(min(asked_at + self.lease * 2 / 3, self._patient_until))

    def _trust(self, began: timedelta) -> None:
        self._until = trusted_until(began, self.lease, margin=self.lease / 5)
        self._let_live(self._until)

    def _let_live(self, until: timedelta) -> None:
        self._runs_until = max(self._runs_until, until)
        self.processes.alive_until(self._runs_until.total_seconds())


@dataclass(slots=True)
class ClusterNode:
    config: Config
    name: str
    clock: SharedClock
    ledger: PostgresLedger
    processes: Processes
    place: RunSettings
    plan: FollowedPlan
    members: list[Membership] = field(default_factory=list)
    leader: Leader | None = None
    turned: Callable[[], None] = lambda: None
    may_be_empty: bool = False  # whether a branch without a plan is meant to be so
    web: ASGIApp | None = None  # of the engine, while this machine leads
    leading: App | None = None  # the engine, while this machine leads
    keys: Keys | None = None
    control: EngineControl | None = None
    _disk: composition.Disk = field(default_factory=composition.Disk)
    _own: App | None = None  # of this machine, whether it leads or not
    _generation: Generation | None = None
    _carrier: Carrier | None = None
    _to_leader: asyncio.Event = field(default_factory=asyncio.Event)  # something has happened
    _to_node: asyncio.Event = field(default_factory=asyncio.Event)  # that nodes must obey
    _to_beat: asyncio.Event = field(default_factory=asyncio.Event)  # a renewal is due now
    _has_looked: asyncio.Event = field(default_factory=asyncio.Event)  # next at the members
    is_away: bool = False  # whether the database could not be asked when it was last tried
    seen_at: datetime | None = None  # when it last could
    _renewing: asyncio.Event = field(default_factory=asyncio.Event)  # was tried, just now
    _term: int | None = None  # in which it leads
    _reaps_at: timedelta = timedelta(0)  # from when on it reaps, by what has elapsed
    _reaping: asyncio.Future[list[int]] | None = None
    _worker: Worker | None = None
    _led_from: datetime | None = None  # the begin of its term, until its decisions are read
    _led_until: datetime | None = None  # the end of its term
    _is_over: bool = False  # it writes nothing more

    @property
    def lease(self) -> timedelta:
        return self.config.cluster_lease

    @property
    def notes(self) -> list[str]:
        return [*filter(None, [self.plan.trouble]), *self.processes.notes]

    @property
    def is_up(self) -> bool:
        return self._generation is not None and self._generation.is_trusted

    @property
    def is_draining(self) -> bool:
        return any(each.is_draining for each in self.members if each.member.name == self.name)

    @property
    def hands_over(self) -> bool:
        """Whether this node is not to lead, because it drains and another one can."""
        return self.is_draining and any(each.can_lead for each in self.members)

    async def keep(self, stop: asyncio.Event, *, may_lead: bool = True) -> None:
        self._own = own = self.assemble(self.ledger)
        own.control = self.control
        self.plan.refresh = own.settings.refresh
        self.keys = keys_of(
            self.config,
            self.place.data,
            clock=self.clock,
            **own.context.access,
            node=await self.ledger.secret(NODE, new_token),
            share=lambda token: self.ledger.share_token(token, now=self.clock.now()),
        )
        server = await open_server(own, keys=self.keys, around=NodeRequests(self).around)
        serving = asyncio.create_task(server.serve(stop))
        hearing = asyncio.create_task(self._hear())
        try:
            log.info("node %s joined %s, at %s", self.name, self.ledger.place, self.address)
            if server.link is not None:
                log.info("open %s (can be used once)", server.link)
            while not stop.is_set():
                try:
                    await self._take_part(stop, may_lead=may_lead)
                except (LeaseLostError, StaleTermError) as error:
                    log.warning("%s; stopping its runs and joining again", error)
                except LedgerUnavailableError as error:  # before anything was started
                    log.debug("cannot join: %s", error)
                    self._note_contact(is_away=True)
                    self.turned()
                    await self.clock.wait(stop, until=self.clock.now() + AGAIN)
        finally:
            stop.set()
            hearing.cancel()
            await serving
            self._is_over = True

    @property
    def address(self) -> ListenAddress:
        return self.config.cluster_address or self.config.listen

    # A member among others

    async def _take_part(self, stop: asyncio.Event, *, may_lead: bool) -> None:
        labels, slots = tuple(self.config.cluster_labels or ()), self.config.cluster_runs
        card = Card(self.name, str(self.address), labels, __version__, slots, may_lead)
        known = self.name, self.clock, self.ledger.leases, self.processes
        generation = Generation(*known, self.lease, self.config.cluster_patience)
        self._generation = generation
        async with generation.joined(card) as number:
            app = self.assemble(ledger := self.ledger.for_member(self.name, number))
            self._note_contact(is_away=False)
            self._worker = worker = Worker(
                self.clock,
                ledger,
                app.runners,
                lambda *_: self._to_leader.set(),
                settled={each.name for each in app.sources if each.settle is None},
                card=card,
                may_claim=lambda: generation.is_trusted and not self.is_draining,
                newest_term=lambda: 0 if self.leader is None else self.leader.term,
                over=self._copy_log,
            )
            await worker.look_back()
            await self._bring_home(ledger)
            can = worker.known, worker.abilities, lambda: worker.most_jobs
            self._carrier = Carrier(self.ledger, *can, min(slots, queues.BATCH))
            parts: list[Coroutine[Any, Any, object]] = [
                self._beat(generation),
                self._endure(generation),
                self._carrier.run(worker.claim),
                self._again(AGAIN, partial(self._work, worker)),
                self._again(AGAIN, self.plan.follow),
                composition.care_for_disk(app),
                stop.wait(),
            ]
            if may_lead:
                parts.append(self._again(AGAIN, partial(self._lead, generation, stop)))
            try:
                await composition.first_of(parts)
            finally:
                if stop.is_set():
                    reason = Reason(ReasonCode.ENGINE_STOPPED, f"{self.name} was stopped")
                    within = self.control.drain if self.control else self.config.run_drain
                    stopping = worker.stop(within=within, reason=reason)
                    # What runs until then lives by the lease.
                    keeping = self._beat(generation), self._endure(generation)
                    await composition.first_of([stopping, *keeping])
                    await generation.leave()

    async def _beat(self, generation: Generation) -> None:
        """Renew the leases of this machine, and let its runs live no longer than they hold."""
        while True:
            self._to_beat.clear()  # before the look: what is changed after it is told of again
            pause = min(AGAIN, self.lease / 10)
            found = await generation.renew(term := self._term)
            self.turned()
            self._note_contact(is_away=found is None)
            self._renewing.set()
            if found is None:
                self._keep_from_reaping()  # until others have renewed their leases, too
            else:
                self.members = found.members
                if self._term == term:  # else it was asked before this node began or ceased to lead
                    self.leader = found.leader
                looked, self._has_looked = self._has_looked, asyncio.Event()
                looked.set()
                pause = self.lease / 3 if generation.is_confirmed else timedelta(0)
                with suppress(LedgerUnavailableError):  # asked again at the next beat
                    await _ask_time(self.clock, self.ledger)
            await self.clock.wait(self._to_beat, until=self.clock.now() + pause)

    async def _endure(self, generation: Generation) -> None:
        while True:
            await asyncio.sleep(self.lease.total_seconds() / 15)
            if generation.left <= self.lease / 3:  # it was to be renewed before
                asked_at = self.clock.elapsed()
                others = [each.member for each in generation.peers if each.member.name != self.name]
                if await NodeRequests(self).are_away(others):
                    generation.endure(asked_at)

    async def gives_word(self) -> bool:
        """Tell whether the database cannot be reached now; then none is reaped for a lease."""
        self._renewing.clear()
        self._to_beat.set()
        with suppress(TimeoutError):  # who does not answer is not reached
            async with asyncio.timeout(self.lease.total_seconds() / 10):
                await self._renewing.wait()
                if not self.is_away:
                    return False
        if self._reaping is not None and not self._reaping.done():
            return False
        self._keep_from_reaping()
        return True

    def _keep_from_reaping(self) -> None:
        self._reaps_at = self.clock.elapsed() + self.lease

    def _note_contact(self, *, is_away: bool) -> None:
        if is_away and not self.is_away:
            log.warning("the database is not reached; nothing is started meanwhile")
        elif self.is_away and not is_away:
            log.info("the database is reached again")
        self.is_away = is_away
        self.seen_at = self.seen_at if is_away else self.clock.now()

    async def look_for_leader(self) -> None:
        """Look at who leads now: the last look was up to a third of a lease ago."""
        with suppress(LedgerError):  # then nobody is known to lead
            self.leader = await self.ledger.leases.leader()

    async def _work(self, worker: Worker) -> None:
        assert self.keys is not None, "a member has its keys before it joins"
        last = await self.ledger.newest_event()
        self.keys.end_all()  # what was revoked while nobody listened is not told again
        while True:
            self._to_node.clear()  # before the look: what is written after it is told of again
            worker.check()
            events = []
            try:
                if worker.is_unsure:
                    await worker.reconcile()
                events = await self.ledger.for_nodes(last)
                for each in events:  # what ended on whichever machine
                    if each.kind in {REVOKED, SESSION_ENDED}:
                        name, session = str(each.facts["token"]), str(each.facts.get("session", ""))
                        if name == OPERATOR and not session:
                            self.keys.replace(await self.ledger.secret(TOKEN, new_token))
                        else:
                            self.keys.end(name, session)
                    worker.hear(each)
                    last = each.number
            except LedgerUnavailableError as error:
                log.warning("%s; its runs continue", error)
                await asyncio.sleep(AGAIN.total_seconds())
            if not events:
                await self.clock.wait(self._to_node, until=self.clock.now() + LOOK)

    async def _copy_log(self, run: Run) -> None:
        """Copy what a run printed to the database, if it is not much."""
        try:
            path = self.place.directory_of(run) / LOG_NAME
            if 0 < path.stat().st_size <= SMALL:
                await self.ledger.keep_log(run.number, path.read_bytes())
        except FileNotFoundError:  # it printed nothing, or nothing ran
            pass
        except (OSError, LedgerError) as error:
            words = "cannot copy the output of receipt %d to the database: %s"
            log.warning(words, run.receipt, error, extra={"receipt": run.receipt})

    # The one who leads

    async def _lead(self, generation: Generation, stop: asyncio.Event) -> None:
        leases = self.ledger.leases
        while not stop.is_set():
            term = None
            try:
                term = None if self.hands_over else await leases.lead(self.name, self.lease)
            except LedgerUnavailableError as error:
                log.debug("cannot find out which node leads: %s", error)
            if term is not None:
                log.info("this node is the leader in term %d", term)
                self.leader = Leader(self.name, term, self.clock.now() + self.lease)
                try:
                    await self._decide(generation, term, stop)
                except (LeaseLostError, StaleTermError, LedgerUnavailableError) as error:
                    log.warning("this node is no longer the leader: %s", error)
                finally:  # also if the node is stopped
                    with suppress(LedgerError):  # the lease expires by itself
                        await leases.resign(term)
            await self.clock.wait(self._has_looked, until=self.clock.now() + self.lease / 6)

    async def _decide(self, generation: Generation, term: int, stop: asyncio.Event) -> None:
        self._term = term
        self._keep_from_reaping()
        ledger = self.ledger.for_leader()
        app = self.assemble(ledger, term=term)
        self._led_from, self._led_until = self.clock.now(), None
        app.engine.commit = self.plan.head
        app.engine.may_be_empty = self.may_be_empty
        launch = app.engine.launch
        assert isinstance(launch, Carried)
        beside = (
            self._listen(app, launch, ledger),
            self._again(REQUEUE, launch.requeue),
            self._again(self.lease / 6, partial(self._reap, app, launch, term, generation.number)),
        )
        try:
            app.engine.gate.homes.update(await ledger.homes())
            await self._count_machines(app)
            assert self.keys is not None, "a member has its keys before it joins"
            self.web = await web_app(app, self.keys, nodes=self.ledger.nodes)
            self.leading = app
            keeping = composition.keep(app, stop=stop, watch=self._follow_plan, beside=beside)
            await composition.first_of([keeping, self._deposed(generation, term)])
        finally:
            self.leading = self.web = self._term = None
            until = self.clock.now()
            if self.leader is not None and self.leader.term == term:
                until = min(until, self.leader.until)
            self._led_until = until
            for each in beside:
                each.close()  # one that was never begun
            await ledger.close_reader()

    async def _deposed(self, generation: Generation, term: int) -> None:
        """Wait until this node hands the lead over; raise an error when it leads no longer."""
        while generation.is_trusted and self.leader is not None and self.leader.term == term:
            if self.hands_over:
                log.info("this node is drained, and hands the lead over")
                return
            await self.clock.wait(self._has_looked, until=self.clock.now() + self.lease / 10)
        raise LeaseLostError("the leader")

    async def _listen(self, app: App, launch: Carried, ledger: PostgresLedger) -> None:
        last = await ledger.newest_event()
        looked_at = self.clock.elapsed() - LOOK  # events before the first one read tell nothing
        app.engine.note_change()
        while True:
            self._to_leader.clear()  # before the look: what is written after it is told of again
            events = []
            try:
                events = await ledger.events_after(last)
                last = events[-1].number if events else last
                await launch.hear(events)
                if self.clock.elapsed() - looked_at >= LOOK:
                    await launch.look(launch.receipts)
                    looked_at = self.clock.elapsed()
            except LedgerUnavailableError as error:
                log.debug("cannot read events: %s", error)
                looked_at = self.clock.elapsed() - LOOK
                await asyncio.sleep(AGAIN.total_seconds())
            for each in events:  # has another than the engine done something?
                is_waiting = each.facts.get("status") == Status.WAITING
                is_known = each.receipt is None or app.engine.gate.knows(each.receipt)
                is_receipt = each.kind == "receipt" and is_waiting and not is_known
                if is_receipt or each.kind in {"paused", "resumed", "restored"}:
                    app.engine.note_change()
            if not events:
                await self.clock.wait(self._to_leader, until=self.clock.now() + LOOK)
            await asyncio.sleep(TOGETHER)

    async def _again(self, pause: timedelta, part: Callable[[], Awaitable[None]]) -> None:
        """Repeat a part, also if the ledger is away: only a lost lease ends a generation."""
        while True:
            try:
                await part()
            except LedgerUnavailableError as error:
                log.debug("trying again in %s: %s", pause, error)
            await asyncio.sleep(pause.total_seconds())

    async def _reap(self, app: App, launch: Carried, term: int, reaper: int) -> None:
        for lost in await self.ledger.lost(reaper):
            if self.clock.elapsed() < self._reaps_at:
                break
            remember = partial(_remembered, machine=lost.name)
            now, who = self.clock.now(), (lost.name, lost.generation)
            reaping = self.ledger.reap(*who, now=now, term=term, reaper=reaper, remember=remember)
            # Also if this is given up, no word is given while it is being written.
            self._reaping = asyncio.ensure_future(reaping)
            taken = await asyncio.shield(self._reaping)
            # The event member_lost says it as a warning.
            log.debug("node %s is lost; %d of its receipts were reclaimed", lost.name, len(taken))
            await launch.look(taken)
            for number in taken:
                await self._note_lost(number, lost.name, term=term)
            app.engine.note_change()
        await self._count_machines(app)

    async def _note_lost(self, number: int, machine: str, *, term: int) -> None:
        filed = await self.ledger.receipt(number)
        if filed is None or filed.status is not Status.INTERRUPTED:
            return
        for agent in filed.agents:
            now, facts = self.clock.now(), Undelivered.lost(agent, machine).data()
            await self.ledger.note(
                LEFT, now=now, term=term, entry=filed.entry, receipt=number, facts=facts
            )

    async def _count_machines(self, app: App) -> None:
        self.members = await self.ledger.leases.members()
        machines = machines_of(self.members)
        gate = app.engine.gate
        if gate.capacity.machines != machines:
            gate.capacity = replace(gate.capacity, machines=machines)
            app.engine.poke()

    async def _follow_plan(self, app: App, stop: asyncio.Event) -> None:
        note = ""
        while not stop.is_set():
            if self.plan.trouble != note:
                app.notes[:] = [each for each in app.notes if each != note]
                note = self.plan.trouble
                app.notes.extend([note] if note else [])
            if app.engine.commit != self.plan.head:
                app.engine.commit = self.plan.head
                await composition.read_again(app)
            await self.plan.moved.wait()
            self.plan.moved.clear()
        await asyncio.Event().wait()

    async def _bring_home(self, ledger: SqlLedger) -> None:
        trees = self._trees()
        for name in await asyncio.to_thread(trees.names):
            left = await trees.undelivered(name)
            if left is None:
                continue
            brought = await trees.deliver(name, run="recovered")
            still = brought.undelivered
            kind, facts = ("delivered", left.data()) if still is None else (LEFT, still.data())
            await ledger.note(kind, now=self.clock.now(), term=0, facts=facts)

    # What both need

    async def _hear(self) -> None:
        """Hear what others have written, on one connection for all parts of this node."""
        address, channel = self.ledger.address, queues.channel()
        while True:
            try:
                async for told in heard(address, (address.schema, channel), pulse=PULSE):
                    if told is not None and told.channel == channel:
                        if self._carrier is not None:
                            self._carrier.tell(told.payload)
                        continue
                    self._to_leader.set()
                    if told is None or told.payload:  # not for the leader alone
                        self._to_node.set()
                    if told is not None and told.payload == MEMBERS:
                        self._to_beat.set()
            except LedgerError as error:  # readers look by themselves meanwhile
                log.debug("cannot listen for changes, trying again in %s: %s", AGAIN, error)
            await asyncio.sleep(AGAIN.total_seconds())

    def last_known(self) -> LastKnownState:
        own, worker, generation = self._own, self._worker, self._generation
        assert own is not None, "a node is assembled before it answers"
        going = () if worker is None else worker.going
        ended = 0 if worker is None else len(worker.runs) - len(going)
        left = timedelta(0) if generation is None else max(timedelta(0), generation.most_left)
        runs = {self.name: len(going)}
        nodes = [replace(m, runs=runs.get(m.member.name, 0)).line for m in self.members]
        known = self.name, self.clock.now(), self.config.zone or "UTC", own.facts(), self.seen_at
        return LastKnownState(*known, left, going, ended, nodes)

    async def events_after(self, number: int) -> tuple[list[Event], int]:
        """Return the events of this node, and of its term as the leader."""
        begin, end = self._led_from, self._led_until
        known = {"leads": begin is not None, "is_last": self._is_over}
        found, looked_at = await self.ledger.of_node(number, self.name, **known)
        if begin is not None:  # other leaders log what they decided

            def is_own(event: Event) -> bool:
                in_term = begin <= event.at and (end is None or event.at <= end)
                return in_term or event.facts.get("node") == self.name

            found = [each for each in found if is_own(each)]
        if end is not None and self.clock.now() > end + self.lease and end == self._led_until:
            self._led_from = self._led_until = None
        return found, looked_at

    def assemble(self, ledger: SqlLedger, *, term: int | None = None) -> App:
        shared = ledger if term is not None and isinstance(ledger, PostgresLedger) else None
        context = Context(self.config, self.place.root, self.clock, ledger, term or 0, shared)

        def is_gone(machine: str) -> bool:
            return not any(each.is_alive and each.member.name == machine for each in self.members)

        trees = self._trees()
        known = self.name, is_gone, self.plan.catch_up, self._disk
        host = Host(self.processes, self.place, trees, *known)
        settings = None if self._own is None else self._own.settings
        launch = None if shared is None else partial(_carried, context, shared)
        return composition.assemble(context, host, settings=settings, launch=launch)

    def _trees(self) -> Trees:
        place, local = self.place, self.config.git_local or ()
        origin, uncommitted = self.plan.url, self.config.agent_uncommitted
        return Trees(place.root, place.data, local, origin, uncommitted)


def _carried(
    context: Context, ledger: PostgresLedger, runner: Runners, gate: Gate, left: Left
) -> Carried:
    return Carried(context.clock, ledger, runner, left, term=context.term, gate=gate)


def _remembered(memory: str, agents: tuple[str, ...], *, machine: str) -> str:
    known = read_memory(memory)
    left = {left_on(machine): str(Undelivered.lost(agent, machine)) for agent in agents}
    return write_memory(replace(known, troubles={**known.troubles, **left}))
