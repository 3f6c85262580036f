"""The record of a workflow's run: the output of each step, and how all of it ended."""

from __future__ import annotations

import base64
import codecs
import json
import os
from contextlib import suppress
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from horae.core.entry import key_time
from horae.core.ports import Ended, RunError, Unreleased
from horae.core.private import private_file
from horae.core.receipt import NO_REASON, Reason, Status
from horae.org.document import read
from horae.org.world import World, world_data, worlds
from horae.sources.workflows.dataflow import flow_of
from horae.timing.rfc3339 import format_with_offset

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from horae.org.plan import ScheduleData

RECORD: Final = "record.json"
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


@dataclass(slots=True, kw_only=True)
class StepRecord:
    """One step, filled in as it goes on; its fields are in the order in which records have them."""

    name: str
    status: StepStatus = StepStatus.WAITING
    error: str | None = None
    lang: str
    tool: str | None = None
    file: str
    line: int
    error_line: int | None = None  # in the plan, where the tool's own words tell
    after: str | None = None  # the step whose output it was given
    uses: tuple[str, ...] = ()
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
    text: str | None = None  # of its output, trimmed; not in its own row

    @property
    def where(self) -> str:
        return f"{self.file}:{self.line}"

    def take_output(self, data: bytes, size: int, *, is_cut: bool) -> None:
        self.size, self.cut = size, is_cut
        decoder = codecs.getincrementaldecoder("utf-8")()
        try:  # a cut may go through a character
            self.text, self.encoding = decoder.decode(data, final=not self.cut).strip(), "utf-8"
        except UnicodeDecodeError:
            self.text, self.encoding = base64.b64encode(data).decode(), "base64"

    def data(self) -> dict[str, object]:
        found = {_KEYS.get(each.name, each.name): getattr(self, each.name) for each in fields(self)}
        del found["text"]
        times = {"started": _time(self.started_at), "finished": _time(self.finished_at)}
        return found | {"status": self.status.value, "uses": list(self.uses)} | times


_KEYS: Final = {"started_at": "started", "finished_at": "finished", "size": "bytes"}


@dataclass(slots=True)
class WorldRecord:
    name: str
    schedule: ScheduleData | None
    exports: list[str]
    steps: list[StepRecord]
    children: list[WorldRecord]
    status: StepStatus = StepStatus.WAITING
    reason: str = ""

    def every(self) -> Iterator[WorldRecord]:
        yield self
        for child in self.children:
            yield from child.every()

    def settle(self) -> None:
        for each in self.every():
            if each.status is not StepStatus.SKIPPED:
                bad = next((step for step in each.steps if not step.status.is_good), None)
                each.status = StepStatus.DONE if bad is None else bad.status
                each.reason = "" if bad is None else f"{bad.name}: {bad.error}"

    def data(self) -> dict[str, object]:
        return {
            "workflow": self.name,
            "schedule": self.schedule,
            "exports": self.exports,
            "tasks": {step.name: step.text for step in self.steps},
            "sub_workflows": [child.data() for child in self.children],
            "status": self.status.value,
            "reason": self.reason,
            "steps": [step.data() for step in self.steps],
        }


@dataclass(slots=True)
class Record:
    run: int | str
    file: str
    line: int
    world: WorldRecord
    planned_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    outcome: Status | None = None  # None while it goes on
    reason: Reason = NO_REASON
    exit_code: int | None = None
    notes: tuple[str, ...] = ()
    is_released: bool = False

    def steps(self) -> Iterator[StepRecord]:
        for world in self.world.every():
            yield from world.steps

    @property
    def is_good(self) -> bool:
        return self.outcome in {Status.DONE, Status.NO_WORK}

    def data(self) -> dict[str, object]:
        return self.world.data() | {
            "status": "running" if self.outcome is None else self.outcome.value,
            "reason": self.reason,
            "reason_code": self.reason.code or None,
            "run": self.run,
            "file": self.file,
            "line": self.line,
            "planned": None if self.planned_at is None else key_time(self.planned_at),
            "started": _time(self.started_at),
            "finished": _time(self.finished_at),
            "exit_code": self.exit_code,
            "notes": list(self.notes),
        }

    def write(self, directory: Path) -> None:
        """Write it in one step; after a power cut it is not believed."""
        kept = {**self.data(), "released": self.is_released, "boot": boot()}
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
    waves = [] if flow.loop() else [[step.name for step in wave] for wave in flow.waves()]
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


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else format_with_offset(moment)
