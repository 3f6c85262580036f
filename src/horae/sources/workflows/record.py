"""A workflow's run: each step is a filter under a supervisor; the record of all of them."""

from __future__ import annotations

import asyncio
import base64
import codecs
import json
import os
import stat
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from msgspec import UNSET, Struct, UnsetType, to_builtins

from horae.core.ports import Ended, LauncherLostError, RunError, Unreleased
from horae.core.private import private_file
from horae.core.receipt import Reason, ReasonCode, Status
from horae.org.document import read
from horae.org.plan import ScheduleData
from horae.org.world import World, flow_of, world_data, worlds
from horae.process.logs import RunLog, clear
from horae.process.processes import LOG_NAME, LiveRun, Processes, Spec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

RECORD: Final = "record.json"
_RUNNING: Final = "running"
SMALL: Final = 64 << 10  # bytes of a record that is stored in the ledger, too
SHOWN: Final = 1 << 20  # bytes of an output in a record
LONGEST_RECORD: Final = 1 << 30
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


class StepStatus(StrEnum):
    WAITING = "waiting"
    BUILDING = "building"
    RUNNING = "running"
    DONE = "done"
    REUSED = "reused"  # an earlier run has done it, with the same text and input
    FAILED = "failed"
    KILLED = "killed"  # it exceeded a limit, or was cancelled
    SKIPPED = "skipped"  # it never started

    @property
    def is_good(self) -> bool:
        return self in {StepStatus.DONE, StepStatus.REUSED}


_TIMES: Final = {"started_at": "started", "finished_at": "finished"}


class StepRecord(Struct, kw_only=True, rename=_TIMES | {"size": "bytes"}):
    name: str
    status: StepStatus = StepStatus.WAITING
    error: str | None = None
    lang: str
    tool: str | None = None
    file: str
    line: int
    error_line: int | None = None  # in the plan, if the tool names it
    after: str | None = None  # the step whose output is its input
    uses: list[str] = []
    persist: bool = False
    started_at: datetime | None = None
    finished_at: datetime | None = None
    seconds: float | None = None
    exit_code: int | None = None
    stderr: str | None = None  # its last part
    size: int | None = None  # of its output, in bytes
    encoding: str | None = None
    cut: bool = False  # whether the record has only the beginning of the output
    output: str | None = None  # the file of the whole output, next to the record
    digest: str | None = None  # of language, text and input
    sum: str | None = None  # the SHA-256 of its output
    facts: dict[str, Any] | UnsetType = UNSET  # of an agent's run, as in a receipt

    @property
    def where(self) -> str:
        return f"{self.file}:{self.line}"

    def take_facts(self, facts: Mapping[str, object]) -> None:
        self.facts = {name: each for name, each in facts.items() if name != "text"}

    def take_output(self, data: bytes, size: int, *, is_cut: bool) -> str:
        self.size, self.cut = size, is_cut
        decoder = codecs.getincrementaldecoder("utf-8")()
        try:  # the limit may cut a character
            text, self.encoding = decoder.decode(data, final=not self.cut).strip(), "utf-8"
        except UnicodeDecodeError:
            text, self.encoding = base64.b64encode(data).decode(), "base64"
        return text


class WorldRecord(Struct, kw_only=True, rename={"name": "workflow", "children": "sub_workflows"}):
    name: str
    schedule: ScheduleData | None
    exports: list[str]
    tasks: dict[str, str | None]  # the output of each step, trimmed
    children: list[WorldRecord] = []
    status: str = StepStatus.WAITING
    reason: str = ""
    steps: list[StepRecord]

    def every(self) -> Iterator[WorldRecord]:
        yield self
        for child in self.children:
            yield from child.every()

    def all_steps(self) -> Iterator[StepRecord]:
        for world in self.every():
            yield from world.steps

    def settle(self) -> None:
        for each in self.every():
            if each.status != StepStatus.SKIPPED:
                bad = next((step for step in each.steps if not step.status.is_good), None)
                each.status = StepStatus.DONE if bad is None else bad.status
                each.reason = "" if bad is None else f"{bad.name}: {bad.error}"


class Record(WorldRecord, kw_only=True, rename=_TIMES):
    """The outermost workflow, and the progress of its run."""

    status: str = _RUNNING
    reason_code: str | None = None
    run: int | str
    file: str
    line: int
    planned: str | None = None  # the scheduled time
    started_at: datetime | None = None
    finished_at: datetime | None = None
    exit_code: int | None = None
    notes: list[str] = []

    @property
    def outcome(self) -> Status | None:
        return None if self.status == _RUNNING else Status(self.status)

    @property
    def is_good(self) -> bool:
        return self.outcome in {Status.DONE, Status.NO_WORK}

    def end(self, outcome: Status, reason: Reason, exit_code: int | None, *, now: datetime) -> None:
        self.settle()
        self.status, self.reason, self.reason_code = outcome, str(reason), reason.code or None
        self.exit_code, self.finished_at = exit_code, now

    def write(self, directory: Path, *, is_released: bool) -> None:
        """Write the record in one step; after a power failure it is not trusted."""
        kept = {**to_builtins(self), "released": is_released, "boot": boot()}
        put(directory / RECORD, json.dumps(kept, ensure_ascii=False).encode(errors="replace"))


def read_record(directory: Path) -> dict[str, Any] | None:
    # After a power failure there may be none, or a damaged older one.
    with suppress(OSError, ValueError), (directory / RECORD).open("rb") as file:
        found = json.loads(file.read(LONGEST_RECORD))
        return found if isinstance(found, dict) else None
    return None


def earlier_end(directory: Path, run: int) -> Ended | Unreleased | None:
    found = read_record(directory)
    if found is None or found.get("run") != run:
        return None
    if not found.get("released"):
        # After a power failure the disk may be behind.
        return Unreleased() if found.get("boot") and found["boot"] == boot() else None
    if found.get("status") not in {"done", "no_work", "failed", "killed"}:
        return None
    # An older version has written no code.
    reason = Reason(str(found.get("reason_code") or ""), str(found.get("reason")))
    facts = kept_facts(found, directory)
    return Ended(Status(found["status"]), reason, found.get("exit_code"), facts)


def kept_facts(record: Mapping[str, Any], directory: Path) -> dict[str, object]:
    """Return the part of a record for the ledger: all of it if it is small, else its path."""
    kept = {key: value for key, value in record.items() if key not in {"released", "boot"}}
    if len(json.dumps(kept)) <= SMALL:
        return {"record": kept}
    return {"record_file": str(directory / RECORD)}


def outputs_of(directory: Path | None) -> dict[tuple[str, str], Path]:
    outputs: dict[tuple[str, str], Path] = {}
    if directory is None:
        return outputs
    record = read_record(directory)
    if record is None:
        raise RunError(f"{directory}: has no record of a run to resume")
    waiting = [record]
    for world in waiting:  # grows during the iteration
        for step in world.get("steps", ()):
            if step.get("output") and step.get("status") in {"done", "reused"}:
                key = str(step.get("name")), str(step.get("digest"))
                outputs[key] = directory / Path(str(step["output"])).name
        waiting.extend(world.get("sub_workflows", ()))
    return outputs


def summaries_of(text: str) -> list[dict[str, object]]:
    return [summary(world) for world in worlds(read(text))]


def summary(world: World) -> dict[str, object]:
    whole = {key: value for key, value in world_data(world).items() if key != "workflows"}
    flow = flow_of(world)
    waves = [] if world.rings else [[step.name for step in wave] for wave in flow.waves()]
    return whole | {
        "workflow": world.name,
        "schedule": world.schedule,
        "tasks": [step.name for step in flow.steps],
        "waves": waves,
        "sub_workflows": [summary(child) for child in world.workflows],
    }


def boot() -> str:
    with suppress(OSError):  # only Linux
        return _BOOT.read_text().strip()
    return ""


def put(path: Path, data: bytes) -> None:
    beside = path.with_name(path.name + ".new")
    with private_file(beside) as file:
        file.write(data)
    os.replace(beside, path)


MIB: Final = 1 << 20
SHORT: Final = 1 << 15  # bytes of an input that needs no file
SUPERVISED: Final = ".run"  # next to the files of a block, which cannot have such names
SCRATCH: Final = ".work"
_TRIES: Final = 3  # to pass a step to a launcher


@dataclass(frozen=True, slots=True)
class Bounds:
    output: int = 64 * MIB
    memory: int = 4096 * MIB
    at_once: int = min(8, os.cpu_count() or 1)
    grace: timedelta = timedelta(seconds=2)


class StepOutput(NamedTuple):
    path: Path
    size: int
    sum: str
    data: bytes | None = None

    @classmethod
    def of(cls, path: Path, data: bytes) -> Self:
        short = data if len(data) <= SHORT else None
        return cls(path, len(data), sha256(data).hexdigest(), short)

    def part(self, start: int, length: int) -> bytes:
        if self.data is not None:
            return self.data[start : start + length]
        with self.path.open("rb") as file:
            file.seek(start)
            return file.read(length)

    def keep(self) -> None:
        if self.data is not None:
            put(self.path, self.data)


class LiveSteps:
    def __init__(self, processes: Processes, at_once: int) -> None:
        self._processes = processes
        self._slots = asyncio.Semaphore(at_once)
        self._live: set[LiveRun] = set()
        self._ends_at = 0.0
        self.reason = ""  # why all of them are ended
        self.cancelled = asyncio.Event()

    def begin(self, timeout: timedelta) -> None:
        self._ends_at = asyncio.get_running_loop().time() + timeout.total_seconds()

    def left(self) -> timedelta:
        return timedelta(seconds=self._ends_at - asyncio.get_running_loop().time())

    @property
    def is_over(self) -> bool:
        return bool(self.reason) or self.left() <= timedelta(0)

    def cancel(self, reason: str) -> None:
        self.reason = self.reason or reason or "cancelled"
        self.cancelled.set()
        for run in tuple(self._live):
            run.cancel(self.reason)

    async def run(
        self,
        spec: Spec,
        *,
        begun: Callable[[], None] = lambda: None,
    ) -> tuple[Ended, bytes]:
        """Run a step when there is room for it; return its end and its short output.

        *begun* is called when there is room.
        """
        async with self._slots:
            if self.is_over:
                late = Reason(ReasonCode.TIME_LIMIT, "no time was left for the step")
                said = Reason(ReasonCode.CANCELLED, self.reason)
                return Ended(Status.KILLED, said if self.reason else late), b""
            limit = self.left() if spec.timeout is None else min(self.left(), spec.timeout)
            run = await self._hold(replace(spec, timeout=limit))
            self._live.add(run)
            try:
                begun()
                if self.cancelled.is_set():  # since it was made
                    run.cancel(self.reason)
                run.go()
                return await run.ended(), run.output
            finally:
                self._live.discard(run)

    async def _hold(self, spec: Spec) -> LiveRun:
        for _ in range(_TRIES - 1):
            with suppress(LauncherLostError):  # the last try raises it
                return await self._processes.hold(spec)
        return await self._processes.hold(spec)


class StepFolders:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._folders: dict[int, Path] = {}
        self._free: list[Path] = []
        self._clearing: set[asyncio.Future[None]] = set()

    def take(self, step: int, files: Mapping[str, bytes]) -> Path:
        if step not in self._folders:
            if not self._free:
                self._free.append(self._directory / f"{step}.step")
                os.mkdir(self._free[0], 0o700)
            home = self._folders[step] = self._free.pop()
            os.mkdir(home / SCRATCH, 0o700)
            write_files(home, files)
        return self._folders[step]

    def give_back(self, step: int, files: Iterable[str] = ()) -> None:
        home = self._folders.pop(step)
        with suppress(OSError):  # the step has changed something
            for name in files:
                os.remove(f"{home}/{name}")
            os.rmdir(home / SCRATCH)
            if os.lstat(home).st_mode == stat.S_IFDIR | 0o700 and not os.listdir(home):
                self._free.append(home)
                return
        cleared = asyncio.ensure_future(asyncio.to_thread(clear, home))
        self._clearing.add(cleared)
        cleared.add_done_callback(self._clearing.discard)

    async def cleared(self) -> None:
        for step in tuple(self._folders):
            self.give_back(step)
        for home in self._free:
            clear(home)
        await asyncio.gather(*self._clearing)


def write_files(directory: Path, files: Mapping[str, bytes]) -> None:
    for name, data in files.items():
        path = f"{directory}/{name}"
        if "/" in name:
            os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        with private_file(path, os.O_EXCL) as file:
            file.write(data)


def log_of(directory: Path, most: int) -> bytes:
    return RunLog(directory / LOG_NAME).last(most)[0]
