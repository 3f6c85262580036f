"""The record of a workflow's run: the output of each step, and how all of it ended."""

from __future__ import annotations

import base64
import codecs
import json
import os
from contextlib import suppress
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET, Struct, UnsetType, to_builtins

from horae.core.ports import Ended, RunError, Unreleased
from horae.core.private import private_file
from horae.core.receipt import Reason, Status
from horae.org.document import read
from horae.org.plan import ScheduleData
from horae.org.world import World, world_data, worlds
from horae.sources.workflows.dataflow import flow_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


RECORD: Final = "record.json"
_RUNNING: Final = "running"
SMALL: Final = 64 << 10  # bytes of a record that is kept in the ledger, too
SHOWN: Final = 1 << 20  # bytes of an output that stand in a record
LONGEST_RECORD: Final = 1 << 30
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


class StepStatus(StrEnum):
    WAITING = "waiting"
    BUILDING = "building"
    RUNNING = "running"
    DONE = "done"
    REUSED = "reused"  # it was done by an earlier run, from the same text and input
    FAILED = "failed"
    KILLED = "killed"  # it took too long or too much, or somebody ended it
    SKIPPED = "skipped"  # it was never begun

    @property
    def is_good(self) -> bool:
        return self in {StepStatus.DONE, StepStatus.REUSED}


_TIMES: Final = {"started_at": "started", "finished_at": "finished"}


class StepRecord(Struct, kw_only=True, rename=_TIMES | {"size": "bytes"}):
    """One step, filled in as it goes on."""

    name: str
    status: StepStatus = StepStatus.WAITING
    error: str | None = None
    lang: str
    tool: str | None = None
    file: str
    line: int
    error_line: int | None = None  # in the plan, where the tool's own words tell
    after: str | None = None  # the step whose output it was given
    uses: list[str] = []
    persist: bool = False
    started_at: datetime | None = None
    finished_at: datetime | None = None
    seconds: float | None = None
    exit_code: int | None = None
    stderr: str | None = None  # its end
    size: int | None = None  # of its output, in bytes
    encoding: str | None = None
    cut: bool = False  # whether the record holds only the beginning of the output
    output: str | None = None  # the file beside the record that keeps it
    digest: str | None = None  # of language, text and input
    sum: str | None = None  # the SHA-256 of its output
    facts: dict[str, Any] | UnsetType = UNSET  # of the run of an agent, as a receipt has them

    @property
    def where(self) -> str:
        return f"{self.file}:{self.line}"

    def take_facts(self, facts: Mapping[str, object]) -> None:
        self.facts = {name: each for name, each in facts.items() if name != "text"}

    def take_output(self, data: bytes, size: int, *, is_cut: bool) -> str:
        """Note what is known of the output, and return its text, trimmed."""
        self.size, self.cut = size, is_cut
        decoder = codecs.getincrementaldecoder("utf-8")()
        try:  # a cut may go through a character
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
    """The outermost workflow, and how its run goes."""

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
        """Write it in one step; after a power cut it is not believed."""
        kept = {**to_builtins(self), "released": is_released, "boot": boot()}
        put(directory / RECORD, json.dumps(kept, ensure_ascii=False).encode(errors="replace"))


def read_record(directory: Path) -> dict[str, Any] | None:
    # After a power cut there may be none, or an older one that is damaged.
    with suppress(OSError, ValueError), (directory / RECORD).open("rb") as file:
        found = json.loads(file.read(LONGEST_RECORD))
        return found if isinstance(found, dict) else None
    return None


def earlier_end(directory: Path, run: int) -> Ended | Unreleased | None:
    """Return how a run ended that an engine before this one made; None is unknown."""
    found = read_record(directory)
    if found is None or found.get("run") != run:
        return None
    if not found.get("released"):
        # After a power cut the disk may hold less than what happened.
        return Unreleased() if found.get("boot") and found["boot"] == boot() else None
    if found.get("status") not in {"done", "no_work", "failed", "killed"}:
        return None
    # An engine of an older version has written no code.
    reason = Reason(str(found.get("reason_code") or ""), str(found.get("reason")))
    facts = kept_facts(found, directory)
    return Ended(Status(found["status"]), reason, found.get("exit_code"), facts)


def kept_facts(record: Mapping[str, Any], directory: Path) -> dict[str, object]:
    """Return what the ledger keeps of a record: all of it if it is small, else where it is."""
    kept = {key: value for key, value in record.items() if key not in {"released", "boot"}}
    if len(json.dumps(kept)) <= SMALL:
        return {"record": kept}
    return {"record_file": str(directory / RECORD)}


def outputs_of(directory: Path | None) -> dict[tuple[str, str], Path]:
    """Return the outputs that an earlier run has kept, by name and digest of their steps."""
    outputs: dict[tuple[str, str], Path] = {}
    if directory is None:
        return outputs
    record = read_record(directory)
    if record is None:
        raise RunError(f"{directory}: has no record of a run to resume")
    waiting = [record]
    for world in waiting:  # grows while it is walked
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
    """Return the id of this start of the machine; nothing where the system has none."""
    with suppress(OSError):  # another system than Linux
        return _BOOT.read_text().strip()
    return ""


def put(path: Path, data: bytes) -> None:
    beside = path.with_name(path.name + ".new")
    with private_file(beside) as file:
        file.write(data)
    os.replace(beside, path)
