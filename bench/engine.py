"""The engine: registering, ten thousand due at once, restart and rest, beside two peers.

    python bench/engine.py               about ten minutes, Linux
    python bench/engine.py --quick       about two minutes: a tenth of every size
    python bench/engine.py --only due    one of: register, due, restart, idle
    python bench/engine.py --disk 2      as on a disk that takes 2 ms more for each fsync

Everything is measured in this run, on this machine, each thing in a process and a directory
of its own, on real files with fsync. What is cheap is measured three times, all in turn, and
the best counts: other work on the machine only ever makes a time longer. Where a machine is
shared the CPU seconds tell most. The peers are APScheduler 3 and Huey. Wherever they keep
anything in SQLite they get what we have: a write-ahead log and synchronous=FULL. Disks differ
most of all: on one that says at once that it has kept something the processor decides alone, on
one that takes its time it is how often it is asked. So a slower one can be had, for all alike,
with --disk; it needs a C compiler, as each fsync is then made to take longer. Huey has no
list of schedules that are registered at run time, so it is measured only with what is due.
Nothing fails for being slow; the program fails if a moment was lost or ran twice.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from horae.core.clock import SystemClock
from horae.core.engine import Engine
from horae.core.gate import Capacity
from horae.core.ports import Ended, Process
from horae.core.receipt import Reason, ReasonCode, Status
from horae.org.document import calm_collector
from horae.sources.plans.source import OrgSource
from horae.store.sqlite import SqliteLedger

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from horae.core.ports import EntryStep, Job, Run, RunEnd, RunOver, Unreleased
    from horae.core.receipt import Filed

Numbers: TypeAlias = dict[str, float]

ROUNDS = 3
IN_FILE = 100  # workflows in one plan
LONGEST = 90.0  # seconds for one registration; what is left is reckoned from the rate so far
RESTED = 20.0  # seconds of looking at an engine that has nothing to do
HALF_A_REST = 15.0  # so that a turn, one each 30 s, falls in those seconds
MB = 1_000_000


class Aim(NamedTuple):
    """What we set out to reach, what this run gave, and whether that is enough."""

    name: str
    aim: str
    found: str
    is_met: bool


# What is registered: plans for us, the same rules one by one for the peers.


def rules(count: int) -> list[str]:
    """Return cron rules, none of which comes due within two days."""
    now = datetime.now(UTC)
    days = sorted({(now + timedelta(days=ahead)).day for ahead in range(3, 20)})
    return [f"{n % 60} {n // 60 % 24} {days[n % len(days)]} * *" for n in range(count)]


def write_plans(folder: Path, crons: Sequence[str]) -> None:
    """Write a workflow for each rule, a hundred to a plan."""
    for first in range(0, len(crons), IN_FILE):
        some = enumerate(crons[first : first + IN_FILE], start=first)
        text = "".join(workflow(number, cron) for number, cron in some)
        (folder / f"plan-{first // IN_FILE:04}.org").write_text(text)


def workflow(number: int, cron: str) -> str:
    """Return one workflow with a step."""
    return (
        f"* Water bed {number} :workflow:\n:PROPERTIES:\n:SCHEDULE: {cron}\n:END:\n"
        f"The beans first.\n** Open the tap :component:\n#+begin_src sh\necho {number}\n#+end_src\n"
    )


# Horae


class Instant:
    """A runner whose runs do nothing and are over at once; it notes when each began."""

    def __init__(self) -> None:
        self.started: list[float] = []

    async def hold(self, job: Job) -> InstantRun:  # noqa: ARG002 - the port's signature
        """Make a run."""
        return InstantRun(self.started)

    async def look_back(self, filed: Filed, run: Run) -> Ended | Unreleased | None:
        """Return that nobody knows how it ended."""


class InstantRun:
    """A run that does nothing."""

    process = Process(1, 1)

    def __init__(self, started: list[float]) -> None:
        self._started = started

    def go(self) -> None:
        """Note that it runs."""
        self._started.append(time.time())

    def cancel(self, reason: str) -> None:
        """Do nothing: it is over."""

    async def ended(self) -> Ended:
        """Return that it is done."""
        return Ended(Status.DONE, Reason(ReasonCode.OTHER, "there was nothing to do"))


class Watched(SqliteLedger):
    """A ledger that notes when receipts were durable, and when ends were."""

    filed: list[float]
    ends: list[float]
    over: asyncio.Event

    def watch(self, count: int) -> None:
        """Begin to count, up to so many ends."""
        self.filed, self.ends, self.over, self._count = [], [], asyncio.Event(), count

    async def decide(self, steps: Sequence[EntryStep], *, now: datetime, term: int) -> list[Filed]:
        """File receipts, and note when that was done."""
        filed = await super().decide(steps, now=now, term=term)
        self.filed += [time.time()] * sum(each.status is Status.WAITING for each in filed)
        return filed

    async def end_many(
        self, ends: Sequence[RunEnd], *, now: datetime, term: int
    ) -> list[RunOver | None]:
        """Record ends, and note when that was done."""
        found = await super().end_many(ends, now=now, term=term)
        self.ends += [time.time()] * len(found)
        if len(self.ends) == self._count:
            self.over.set()
        return found


class Shifted(SystemClock):
    """The machine's clock, ahead by a fixed length."""

    def __init__(self, by: timedelta) -> None:
        self._by = by

    def now(self) -> datetime:
        """Return this moment, as much later."""
        return super().now() + self._by


def engine_of(
    folder: Path, ledger: SqliteLedger, *, clock: SystemClock | None = None, slots: int = 4
) -> Engine:
    """Return an engine for the plans in a folder."""
    return Engine(
        clock=clock or SystemClock(),
        ledger=ledger,
        runner=Instant(),
        sources=[OrgSource(folder)],
        capacity=Capacity(slots=slots),
    )


def data_of(folder: Path) -> Path:
    """Return where the ledger of a folder is."""
    return folder / ".horae"


async def prepare(folder: Path) -> None:
    """Let a ledger know the plans in a folder, as an engine that ran before would leave it."""
    ledger = await SqliteLedger.open(data_of(folder), now=datetime.now(UTC))
    engine = engine_of(folder, ledger)
    await engine.start()
    # A stamp is believed only once a second look found the same bytes.
    await engine.rescan("org")
    await ledger.close()


def register_text(folder: Path, count: int) -> Numbers:
    """Measure from org text on disk to a ledger in which all of it is armed."""

    async def measure() -> Numbers:
        gauge = Gauge()
        ledger = await SqliteLedger.open(data_of(folder), now=datetime.now(UTC))
        engine = engine_of(folder, ledger)
        await engine.start()
        found = gauge.read()
        _expect(len(await ledger.entries()) == count, "every workflow is an entry")
        await ledger.close()
        return found

    write_plans(folder, rules(count))
    return asyncio.run(measure())


def register_ready(folder: Path, count: int) -> Numbers:
    """Measure the same without the reading: from entries in memory to the ledger."""

    async def measure() -> Numbers:
        scan = await OrgSource(folder).scan({})
        gauge = Gauge()
        now = datetime.now(UTC)
        ledger = await SqliteLedger.open(data_of(folder), now=now)
        await ledger.scan("org", scan, now=now, term=1)
        found = gauge.read()
        _expect(len(await ledger.entries()) == count, "every workflow is an entry")
        await ledger.close()
        return found

    write_plans(folder, rules(count))
    return asyncio.run(measure())


def due_many_slots(folder: Path, count: int) -> Numbers:
    """Measure a second in which everything comes due, and all may run at once."""
    return _due(folder, count, slots=count)


def due_four_slots(folder: Path, count: int) -> Numbers:
    """Measure the same with the gate as it is by default."""
    return _due(folder, count, slots=Capacity().slots)


def _due(folder: Path, count: int, *, slots: int) -> Numbers:
    now = datetime.now(UTC)
    planned = (now + timedelta(hours=2)).replace(minute=0, second=0, microsecond=0)
    write_plans(folder, [f"0 {planned.hour} * * *"] * count)

    async def measure() -> Numbers:
        await prepare(folder)
        shift = planned - timedelta(seconds=2) - datetime.now(UTC)
        clock = Shifted(shift)
        ledger = await Watched.open(data_of(folder), now=clock.now())
        assert isinstance(ledger, Watched)
        ledger.watch(count)
        engine = engine_of(folder, ledger, clock=clock, slots=slots)
        calm_collector()  # as `horae up` does
        runner = engine.launch.runner
        assert isinstance(runner, Instant)
        await engine.start()
        _expect(clock.now() < planned, "the engine is up before the moment comes")
        turns = asyncio.create_task(engine.run())
        over = asyncio.create_task(ledger.over.wait())
        cpu = time.process_time()
        await asyncio.wait({turns, over}, return_when=asyncio.FIRST_COMPLETED)
        if turns.done():
            turns.result()  # it never ends but by an error
        cpu = time.process_time() - cpu
        await _end(turns)
        await engine.launch.rest()
        page = await ledger.receipts(statuses=(Status.DONE,), limit=count + 1)
        entries = {each.entry for each in page.receipts}
        _expect(len(entries) == len(page.receipts) == count, "each has one receipt, done")
        _expect(len(runner.started) == count, "each ran once")
        await ledger.close()
        at = (planned - shift).timestamp()
        return {
            "receipts": max(ledger.filed) - at,
            "ends": max(ledger.ends) - at,
            "cpu": cpu,
            **lateness(runner.started, at),
        }

    return asyncio.run(measure())


def restart_prepare(folder: Path, count: int) -> Numbers:
    """Leave behind what an engine leaves that is killed."""

    async def leave() -> None:
        await prepare(folder)
        await SqliteLedger.open(data_of(folder), now=datetime.now(UTC))

    write_plans(folder, rules(count))
    asyncio.run(leave())
    print("{}", flush=True)
    os._exit(0)  # as if it were killed: the ledger is not closed


def restart(folder: Path, count: int) -> Numbers:
    """Measure from opening the ledger to the first rest, when no plan has changed."""

    async def measure() -> Numbers:
        start = time.perf_counter()
        ledger = await SqliteLedger.open(data_of(folder), now=datetime.now(UTC))
        opened = time.perf_counter()
        engine = engine_of(folder, ledger)
        await engine.start()
        started = time.perf_counter()
        await engine.turn()
        turned = time.perf_counter()
        _expect(len(await ledger.entries()) == count, "every entry stands")
        _expect(not await ledger.open_runs(), "nothing has run")
        await ledger.close()
        return {
            "open": opened - start,
            "start": started - opened,
            "turn": turned - started,
            "all": turned - start,
        }

    return asyncio.run(measure())


def idle(folder: Path, count: int) -> Numbers:
    """Measure what an engine costs while nothing comes due."""

    async def measure() -> Numbers:
        await prepare(folder)
        ledger = await SqliteLedger.open(data_of(folder), now=datetime.now(UTC))
        engine = engine_of(folder, ledger)
        await engine.start()
        turns = asyncio.create_task(engine.run())
        await asyncio.sleep(HALF_A_REST)
        turned_at = engine.turned_at
        wall, cpu = time.perf_counter(), time.process_time()
        await asyncio.sleep(RESTED)
        found = {"share": (time.process_time() - cpu) / (time.perf_counter() - wall)}
        _expect(engine.turned_at != turned_at, "the loop has turned meanwhile")
        await _end(turns)
        await ledger.close()
        return found

    write_plans(folder, rules(count))
    return asyncio.run(measure())


# The peers

_began: list[float] = []
_all_began = Event()
_expected = 0


def _note_start() -> None:
    """Do nothing but note when; what every peer runs."""
    _began.append(time.time())
    if len(_began) == _expected:
        _all_began.set()


def apscheduler_of(path: Path | None, *, is_durable: bool = True) -> Any:
    """Return APScheduler with its jobs in a SQLite file, or in memory."""
    from apscheduler.executors.pool import ThreadPoolExecutor
    from apscheduler.jobstores.memory import MemoryJobStore
    from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
    from apscheduler.schedulers.background import BackgroundScheduler

    store = (
        MemoryJobStore() if path is None else SQLAlchemyJobStore(engine=_engine(path, is_durable))
    )
    return BackgroundScheduler(
        jobstores={"default": store},
        executors={"default": ThreadPoolExecutor(10)},
        # By default it drops what it cannot start within a second.
        job_defaults={"misfire_grace_time": None},
        timezone=UTC,
    )


def _engine(path: Path, is_durable: bool) -> Any:
    """Return an engine whose every connection has a write-ahead log, and fsync if asked."""
    from sqlalchemy import create_engine, event

    engine = create_engine(f"sqlite:///{path}")

    def connected(connection: Any, _: object) -> None:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {'FULL' if is_durable else 'OFF'}")

    event.listen(engine, "connect", connected)
    with engine.connect() as connection:
        level = connection.exec_driver_sql("PRAGMA synchronous").scalar()
    _expect(level == (2 if is_durable else 0), "APScheduler's commits are as durable as asked")
    return engine


def register_apscheduler_memory(folder: Path, count: int) -> Numbers:  # noqa: ARG001
    """Measure APScheduler, its jobs in memory."""
    return _register_apscheduler(None, count)


def register_apscheduler_sqlite(folder: Path, count: int) -> Numbers:
    """Measure APScheduler, its jobs in SQLite."""
    return _register_apscheduler(folder / "jobs.db", count)


def _register_apscheduler(path: Path | None, count: int) -> Numbers:
    from apscheduler.triggers.cron import CronTrigger

    scheduler = apscheduler_of(path)
    scheduler.start(paused=True)
    crons = rules(count)
    gauge = Gauge()
    done = 0
    for done, cron in enumerate(crons, start=1):
        scheduler.add_job(_note_start, CronTrigger.from_crontab(cron, timezone=UTC))
        if done % 100 == 0 and gauge.seconds > LONGEST:
            break
    found = gauge.read()
    scheduler.shutdown()
    part = done / count
    return {name: number / part for name, number in found.items()} | {"part": part}


def due_apscheduler_memory(folder: Path, count: int) -> Numbers:  # noqa: ARG001
    """Measure APScheduler, its jobs in memory."""
    return _due_apscheduler(None, count)


def due_apscheduler_sqlite(folder: Path, count: int) -> Numbers:
    """Measure APScheduler, its jobs in SQLite."""
    return _due_apscheduler(folder / "jobs.db", count)


def _due_apscheduler(path: Path | None, count: int) -> Numbers:
    ahead = 2 + count / 400
    while True:
        planned = time.time() + ahead
        # Filled without fsync: only what happens when they are due is measured.
        scheduler = apscheduler_of(path, is_durable=False)
        scheduler.start(paused=True)
        scheduler.remove_all_jobs()
        at = datetime.fromtimestamp(planned, UTC)
        for _ in range(count):
            scheduler.add_job(_note_start, "date", run_date=at)
        if path is not None:
            scheduler.shutdown()
            scheduler = apscheduler_of(path)
            scheduler.start(paused=True)
        if time.time() < planned - 0.2:
            break
        scheduler.shutdown()
        ahead *= 2
    scheduler.resume()
    found = _await_peer(count, planned)
    scheduler.shutdown()
    return found


def due_huey(folder: Path, count: int) -> Numbers:
    """Measure Huey: a consumer with one worker, its tasks in SQLite."""
    from huey import SqliteHuey

    def huey_of(*, is_durable: bool) -> tuple[Any, Any]:
        made = SqliteHuey("bench", filename=str(folder / "huey.db"), fsync=is_durable)
        return made, made.task(name="note_start")(_note_start)

    ahead = 2 + count / 1000
    while True:
        planned = time.time() + ahead
        huey, task = huey_of(is_durable=False)
        huey.storage.flush_all()
        for _ in range(count):
            huey.add_schedule(task.s(eta=datetime.fromtimestamp(planned, UTC)))
        huey.storage.close()
        if time.time() < planned - 0.2:
            break
        ahead *= 2
    huey, task = huey_of(is_durable=True)
    level = huey.storage.sql("PRAGMA synchronous", results=True)[0][0]
    _expect(level == 2, "Huey's commits are durable")
    consumer = huey.create_consumer(workers=1, periodic=False, max_delay=0.1)
    consumer.start()
    found = _await_peer(count, planned)
    consumer.stop(graceful=True)
    return found


def _await_peer(count: int, planned: float) -> Numbers:
    """Return how late each of a peer's jobs began, once all have."""
    global _expected  # noqa: PLW0603 - the peers call a function by its name
    _expected = count
    cpu = time.process_time()
    while not _all_began.wait(1):
        if len(_began) >= count:
            break
        _expect(time.time() < planned + 600, f"all have begun after ten minutes: {len(_began)}")
    return lateness(_began, planned) | {"cpu": time.process_time() - cpu}


def idle_apscheduler(folder: Path, count: int) -> Numbers:  # noqa: ARG001
    """Measure APScheduler in memory while nothing comes due."""
    from apscheduler.triggers.cron import CronTrigger

    scheduler = apscheduler_of(None)
    scheduler.start(paused=True)
    for cron in rules(count):
        scheduler.add_job(_note_start, CronTrigger.from_crontab(cron, timezone=UTC))
    scheduler.resume()
    time.sleep(HALF_A_REST)
    wall, cpu = time.perf_counter(), time.process_time()
    time.sleep(RESTED)
    found = {"share": (time.process_time() - cpu) / (time.perf_counter() - wall)}
    scheduler.shutdown()
    return found


# Measuring


class Gauge:
    """How long something takes and how much memory it takes, from now on."""

    def __init__(self) -> None:
        self._resident = _status("VmRSS")
        self._start = time.perf_counter()
        self._cpu = time.process_time()

    @property
    def seconds(self) -> float:
        """How long it has been."""
        return time.perf_counter() - self._start

    def read(self) -> Numbers:
        """Return seconds, of them the processor's, and the growth in bytes: now, at its peak."""
        seconds, cpu = self.seconds, time.process_time() - self._cpu
        kept, peak = (_status(name) - self._resident for name in ("VmRSS", "VmHWM"))
        return {"seconds": seconds, "cpu": cpu, "kept": kept, "peak": peak}


def _status(name: str) -> int:
    """Return one of the sizes that Linux knows of this process, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(f"{name}:")).split()[1]) * 1024


def lateness(moments: Sequence[float], planned: float) -> Numbers:
    """Return how long after their moment things began: the middle, the late ones, the last."""
    late = sorted(moment - planned for moment in moments)
    return {
        "p50": late[len(late) // 2],
        "p99": late[len(late) * 99 // 100],
        "last": late[-1],
    }


def one_sync(folder: Path) -> float:
    """Return the seconds that a small write takes until the disk has it."""
    with (folder / "sync").open("wb", buffering=0) as file:
        start = time.perf_counter()
        for _ in range(100):
            file.write(b"x" * 4096)
            os.fsync(file.fileno())
        return (time.perf_counter() - start) / 100


async def _end(task: asyncio.Task[None]) -> None:
    """Cancel a loop, as often as it takes: one that is woken in that instant may not notice."""
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=0.1)


def _expect(is_so: bool, what: str) -> None:
    if not is_so:
        sys.exit(f"WRONG: not true that {what}")


MEASURES: dict[str, Callable[[Path, int], Numbers]] = {
    each.__name__: each
    for each in (
        register_text,
        register_ready,
        register_apscheduler_memory,
        register_apscheduler_sqlite,
        due_many_slots,
        due_four_slots,
        due_huey,
        due_apscheduler_memory,
        due_apscheduler_sqlite,
        restart_prepare,
        restart,
        idle,
        idle_apscheduler,
    )
}


def measured(measure: Callable[[Path, int], Numbers], count: int, folder: Path) -> Numbers:
    """Return what a process of its own measures in a folder."""
    command = [sys.executable, __file__, "--measure", measure.__name__, str(count), str(folder)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: Numbers = json.loads(done.stdout)
    return found


def best(
    contenders: Mapping[str, Callable[[Path, int], Numbers]], count: int, *, by: str, rounds: int
) -> dict[str, Numbers]:
    """Return the best of several rounds of each, and print how fast the disk was meanwhile.

    They take turns: what else the machine does comes and goes, and is to meet them alike.
    """
    found: dict[str, list[Numbers]] = {name: [] for name in contenders}
    syncs = []
    for _ in range(rounds):
        for name, measure in contenders.items():
            with tempfile.TemporaryDirectory(prefix="horae-bench-") as folder:
                syncs.append(one_sync(Path(folder)))
                found[name].append(measured(measure, count, Path(folder)))
    print(
        f"  best of {rounds}; one fsync took {min(syncs) * 1e3:.2f} to {max(syncs) * 1e3:.2f} ms, "
        f"the load was {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors"
    )
    return {name: min(some, key=lambda numbers: numbers[by]) for name, some in found.items()}


# A slower disk

SLOWER = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

static int slowly(const char *name, int descriptor) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    long micros = atol(getenv("HORAE_BENCH_FSYNC"));
    struct timespec rest = {micros / 1000000, micros % 1000000 * 1000};
    nanosleep(&rest, NULL);
    return real(descriptor);
}

int fsync(int descriptor) { return slowly("fsync", descriptor); }
int fdatasync(int descriptor) { return slowly("fdatasync", descriptor); }
"""


def begin_again_on_a_slower_disk(milliseconds: float) -> int:
    """Let another process do what this one was asked to, each of whose fsyncs takes longer."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        sys.exit("a slower disk needs a C compiler: cc, gcc or clang")
    with tempfile.TemporaryDirectory(prefix="horae-bench-") as name:
        source, library = Path(name) / "slower.c", Path(name) / "slower.so"
        source.write_text(SLOWER)
        subprocess.run(
            [compiler, "-shared", "-fPIC", "-O2", "-o", library, source, "-ldl"], check=True
        )
        slower = {"LD_PRELOAD": str(library), "HORAE_BENCH_FSYNC": f"{milliseconds * 1000:.0f}"}
        again = [sys.executable, *sys.argv]
        return subprocess.run(again, env={**os.environ, **slower}, check=False).returncode


# What is printed


def register(sizes: Sequence[int]) -> list[Aim]:
    """Print what it takes until entries are registered; Huey registers none."""
    aims = []
    for count in sizes:
        print(f"\nregister {count:,} schedules")
        rows = best(
            {
                "horae, from org text": register_text,
                "horae, entries ready": register_ready,
                "APScheduler, memory": register_apscheduler_memory,
                "APScheduler, SQLite": register_apscheduler_sqlite,
            },
            count,
            by="seconds",
            rounds=ROUNDS if count <= 10_000 else 1,
        )
        ours = rows["horae, from org text"]["seconds"]
        heads = ("seconds", "CPU s", "per s", "kept MB", "peak MB", "to ours")
        print(f"  {'':<24}{''.join(f'{head:>10}' for head in heads)}")
        for name, row in rows.items():
            part = row.get("part", 1.0)
            note = "" if part == 1 else f"  reckoned from {part:.0%} of it"
            print(
                f"  {name:<24}{row['seconds']:10.2f}{row['cpu']:10.2f}"
                f"{count / row['seconds']:10,.0f}{row['kept'] / MB:10.1f}{row['peak'] / MB:10.1f}"
                f"{row['seconds'] / ours:9.1f}×{note}"
            )
        if count == sizes[0]:
            for way, least in (("from org text", 20), ("entries ready", 40)):
                ratio = rows["APScheduler, SQLite"]["seconds"] / rows[f"horae, {way}"]["seconds"]
                name = f"register {count:,}, {way}, to APScheduler on SQLite"
                aims.append(Aim(name, f"≥ {least}×", f"{ratio:.1f}×", ratio >= least))
        if count == sizes[-1]:
            kept = rows["horae, from org text"]["kept"] / MB
            name = f"memory kept for {count:,} registered from org text"
            aims.append(Aim(name, "≤ 150 MB", f"{kept:.0f} MB", kept <= 150))
    return aims


def due(sizes: Sequence[int]) -> list[Aim]:
    """Print what it takes when everything comes due in one second."""
    count = sizes[0]
    print(f"\n{count:,} due in the same second; in seconds after it")
    wide, narrow = f"horae, {count:,} slots", "horae, 4 slots"
    huey, memory = "Huey, SQLite", "APScheduler, memory"
    contenders = {
        wide: due_many_slots,
        narrow: due_four_slots,
        huey: due_huey,
        memory: due_apscheduler_memory,
        "APScheduler, SQLite": due_apscheduler_sqlite,
    }
    rows = best(contenders, count, by="last", rounds=ROUNDS)
    ours = rows[wide]
    heads = ("durable", "p50", "p99", "all ran", "ended", "CPU s", "to ours")
    print(f"  {'':<24}{''.join(f'{head:>9}' for head in heads)}")
    for name, row in rows.items():
        cells = "".join(
            f"{row[each]:9.2f}" if each in row else f"{'':>9}"
            for each in ("receipts", "p50", "p99", "last", "ends", "cpu")
        )
        print(f"  {name:<24}{cells}{row['last'] / ours['last']:8.2f}×")
    print(
        "  durable: when the last receipt was committed; no handler runs before that. Huey\n"
        "  commits that a task is taken, then runs it, and does not keep what became of it.\n"
        "  APScheduler writes after it has handed a job to its threads, in memory nothing at all."
    )
    aims = []
    slots = rows[narrow]["last"]
    for peer, what, seconds, least in (
        (huey, "receipts durable", ours["receipts"], 25),
        (huey, "all ran", ours["last"], 8),
        (huey, "all ran through 4 slots", slots, 2),
        (memory, "receipts durable", ours["receipts"], 5),
        (memory, "all ran", ours["last"], 5),
    ):
        ratio = rows[peer]["last"] / seconds
        text = f"{count:,} due, {what}, to {peer}"
        aims.append(Aim(text, f"≥ {least}×", f"{ratio:.2f}×", ratio >= least))
    return aims


def restarts(sizes: Sequence[int]) -> list[Aim]:
    """Print what it takes to go on after a kill and after a stop, when no plan has changed."""
    count = sizes[-1]
    print(f"\nrestart with {count:,} entries, no plan changed; milliseconds")
    print(f"  {'':<28}{'open':>9}{'start':>9}{'turn':>9}{'all':>9}")
    with tempfile.TemporaryDirectory(prefix="horae-bench-") as name:
        folder = Path(name)
        measured(restart_prepare, count, folder)
        killed = measured(restart, count, folder)
        rounds = [measured(restart, count, folder) for _ in range(ROUNDS)]
    stopped = min(rounds, key=lambda numbers: numbers["all"])
    for what, row in (("after a kill, once", killed), ("after a stop, best of 3", stopped)):
        cells = "".join(f"{row[each] * 1e3:9.1f}" for each in ("open", "start", "turn", "all"))
        print(f"  {what:<28}{cells}")
    found = f"{stopped['all']:.3f} s"
    return [Aim(f"first wake with {count:,}", "≤ 0.1 s", found, stopped["all"] <= 0.1)]


def idles(sizes: Sequence[int]) -> list[Aim]:
    """Print what it costs to wait."""
    count = sizes[-1]
    print(f"\nidle with {count:,} armed entries: CPU over {RESTED:.0f} s")
    contenders = {"horae": idle, "APScheduler, memory": idle_apscheduler}
    rows = best(contenders, count, by="share", rounds=1)
    for name, row in rows.items():
        print(f"  {name:<24}{row['share']:10.3%}")
    share = rows["horae"]["share"]
    return [Aim(f"idle with {count:,}", "< 0.1 %", f"{share:.3%}", share < 0.001)]


PARTS = {"register": register, "due": due, "restart": restarts, "idle": idles}


def main() -> None:
    """Measure what was asked for, and print the aims beside it."""
    parser = argparse.ArgumentParser(description="Measure the engine beside two peers.")
    parser.add_argument("--quick", action="store_true", help="a tenth of every size")
    parser.add_argument("--only", choices=PARTS, help="one part")
    parser.add_argument("--disk", type=float, metavar="MS", help="more time for each fsync")
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if sys.platform != "linux":
        print("  looks into /proc: Linux only")
        return
    if chosen.measure is not None:
        name, count, folder = chosen.measure
        print(json.dumps(MEASURES[name](Path(folder), int(count))))
        return
    if chosen.disk and "HORAE_BENCH_FSYNC" not in os.environ:
        sys.exit(begin_again_on_a_slower_disk(chosen.disk))
    sizes = (1_000, 10_000) if chosen.quick else (10_000, 100_000)
    parts = PARTS if chosen.only is None else {chosen.only: PARTS[chosen.only]}
    aims = [aim for part in parts.values() for aim in part(sizes)]
    print(f"\n{'aims':<60}{'aim':>10}{'found':>12}")
    for aim in aims:
        print(f"  {aim.name:<58}{aim.aim:>10}{aim.found:>12}  {'met' if aim.is_met else 'NOT MET'}")


if __name__ == "__main__":
    main()
