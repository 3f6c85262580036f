"""What of an engine others may use through the API."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from hashlib import sha256
from secrets import token_hex
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from msgspec import UNSET

from horae.core.actor import current_actor
from horae.core.explain import WhyQuestion, at_the_gate, stamp
from horae.core.ports import LedgerError
from horae.core.views import Maybe, Shape
from horae.errors import Exit, HoraeError
from horae.files.edit import EditConflictError, Splice, edit, remove, spliced
from horae.files.git.calls import GitError
from horae.files.git.layout import repository_of
from horae.files.git.repository import FileState, Git, edit_and_commit
from horae.files.read import LIMIT, Content, StrPath, digest_of, read_plan
from horae.web.router import ChangedError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable
    from pathlib import Path

    from horae.context import EngineSettings
    from horae.core.engine import Engine
    from horae.core.lease import NodeLine
    from horae.core.ports import Clock, Ledger, Listed, Run
    from horae.core.service import Service
    from horae.core.views import EngineFacts, EntryName, RunLine, StatusReport, WhyLines
    from horae.files.git.repository import Logged
    from horae.process.handover import EngineControl
    from horae.sources.agents.source import AgentRequests
    from horae.sources.board.routes import BoardRequests
    from horae.sources.triggers.service import Triggers
    from horae.sources.workflows.routes import WorkflowRequests
    from horae.web.keys import Keys

log = logging.getLogger(__name__)
WITHIN: Final = timedelta(seconds=15)  # ten to decide, and some for the way
KEPT: Final = 100  # edits that can be undone


class NoUndoError(HoraeError, code="no_undo", exit_code=Exit.CONFLICT):
    def __init__(self) -> None:
        super().__init__("this edit can no longer be undone; edit the file")


class EditAnswer(Shape, frozen=True, kw_only=True):
    """What became of an edit."""

    file: str
    changed: bool
    digest: str  # of the file now
    commit: str | Maybe = UNSET  # its SHA, if the file is under git
    note: str | Maybe = UNSET  # why there is no commit
    undo: str | None = None  # what undoes it for ten seconds


class PlannedEdit(NamedTuple):
    """An edit of one file: *splices* says what to change in the text that is read."""

    path: StrPath
    file: str  # as it is called below the plan root
    words: str  # the subject of its commit
    splices: Callable[[Content], Sequence[Splice]]
    read_again: Callable[[], Awaitable[object]]  # by the engine
    root: StrPath | None = None
    expected: str | None = None  # the digest of the text that the user saw
    limit: int = LIMIT
    is_removal: bool = False


def inverse(before: bytes, after: bytes) -> Splice:
    """Return the splice that gives *before* back.

    >>> inverse(b"at 9:00, daily", b"at 10:30, daily")
    Splice(start=3, end=7, data=b'9:0')
    """
    start = _same(before, after)
    rest = _same(before[start:][::-1], after[start:][::-1])
    return Splice(start, len(after) - rest, before[start : len(before) - rest])


def _same(one: bytes, other: bytes) -> int:
    """Return with how many equal bytes both begin."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


@dataclass(slots=True)
class Edits:
    """The edits of the last seconds."""

    _kept: dict[str, tuple[timedelta, PlannedEdit]] = field(default_factory=dict)

    async def make(self, front: Front, planned: PlannedEdit) -> EditAnswer:
        path, root, limit = planned.path, planned.root, planned.limit

        def work() -> tuple[bytes, bytes]:
            content = read_plan(path, root=root, limit=limit)
            if planned.expected not in {None, content.digest}:
                raise ChangedError
            splices = planned.splices(content)
            after = b"" if planned.is_removal else spliced(content.data, splices)
            try:
                if planned.is_removal:
                    remove(path, expected=content.digest)
                elif after != content.data:
                    edit(path, splices, expected=content.digest, root=root, limit=limit)
            except EditConflictError:
                raise ChangedError from None
            return content.data, after

        made, commit = await edit_and_commit(
            path, work, message=lambda it: planned.words if it[0] != it[1] else ""
        )
        before, after = made
        file, digest = planned.file, digest_of(after)
        if before == after:
            return EditAnswer(file=file, changed=False, digest=digest)
        name, back = None, inverse(before, after)
        if not planned.is_removal:
            undo = planned._replace(splices=lambda _: [back], expected=digest)
            name = self.keep(front, undo)
        await noticed(front, planned.file, planned.words)
        await planned.read_again()
        said = {"commit": commit.sha or UNSET, "note": commit.words or UNSET}
        return EditAnswer(file=file, changed=True, digest=digest, undo=name, **said)

    def keep(self, front: Front, undo: PlannedEdit) -> str:
        """Keep for some seconds what undoes an edit, and return its name."""
        name = token_hex(32)
        undo = undo._replace(words=f"Undo: {undo.words}")
        self._kept[name] = front.clock.elapsed(), undo
        while len(self._kept) > KEPT:
            del self._kept[next(iter(self._kept))]
        return name

    async def undo(self, front: Front, name: str) -> EditAnswer:
        made_at, planned = self._kept.pop(name, (timedelta(), None))
        if planned is None or front.clock.elapsed() - made_at > WITHIN:
            raise NoUndoError
        return await self.make(front, planned)


async def commit_new(path: StrPath, words: str) -> None:
    """Commit a file that was just made, if it is under git."""
    top = repository_of(path)
    if top is None:
        return
    try:
        git = Git(top)
        author = await git.author_of(current_actor())
        await git.commit(os.path.abspath(path), message=words, author=author, was=FileState.ABSENT)
    except GitError as error:  # the file is there, and is not made again
        log.warning("cannot commit %s: %s", path, error)


async def noticed(front: Front, file: str, words: str) -> None:
    try:
        await front.service.note_edit(file, words)
    except LedgerError as error:  # the edit is made, and is not made again
        log.warning("cannot record the edit of %s: %s", file, error)


T = TypeVar("T")


class NotOfferedError(HoraeError, code="not_offered", exit_code=Exit.NOT_FOUND):
    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(f"this engine has no {what}")


@dataclass(frozen=True, slots=True)
class Front:
    """What of an engine others may use through the API; what is not given is not offered."""

    service: Service
    engine: Engine
    facts: Callable[[], EngineFacts]
    log_of: Callable[[Run], Path]
    clock: Clock
    ledger: Ledger | None = None
    zone_name: str = "UTC"
    since: int = 0  # the newest event when the engine started
    keys: Keys | None = None
    triggers: Triggers | None = None
    # What is loaded when a request first needs it.
    workflows: Callable[[], WorkflowRequests] | None = None
    agent_runs: Callable[[], AgentRequests] | None = None
    tasks: Callable[[], BoardRequests] | None = None
    changes: Callable[[int], Awaitable[list[Logged]]] | None = None  # so many, newest first
    nodes: Callable[[], Awaitable[list[NodeLine]]] | None = None  # the machines, if several
    settings: EngineSettings | None = None
    is_public: bool = False  # whether everybody may see how the agents are
    control: EngineControl | None = None
    root: Path | None = None  # of the plans
    edits: Edits = field(default_factory=Edits)
    closing: asyncio.Event | None = None  # set when nothing more is told to those who listen

    def is_live(self, run: Run) -> bool:
        """Whether the engine has a run; when it no longer has it, its end is in the ledger."""
        live = self.engine.launch.runs.get(run.receipt)
        return live is not None and live.number == run.number  # not an attempt after it

    async def status(self, *, limit: int) -> StatusReport:
        facts = replace(self.facts(), stall=await self.engine.stall())
        return await self.service.status(facts, limit=limit)

    async def node_list(self) -> list[NodeLine]:
        return [] if self.nodes is None else await self.nodes()

    async def why(self, ask: WhyQuestion, *, limit: int) -> WhyLines:
        return at_the_gate(await self.service.why(ask, limit=limit), self._obstacles())

    async def last_run(self, entry: EntryName, *, going: bool) -> RunLine:
        line = self._obstacles()
        return await self.service.last_run(
            entry, going=going, obstacle=lambda number: line.get(number, "")
        )

    def _obstacles(self) -> dict[int, str]:
        line = self.engine.gate.obstacles(now=self.clock.now())
        return {each.ask.number: str(each.reason) for each in line}


def offered(what: T | None, name: str) -> T:
    if what is None:
        raise NotOfferedError(name)
    return what


def tag_of(data: object) -> str:
    """Return what plain data goes by.

    >>> tag_of({"a": 1, "b": 2}) == tag_of({"b": 2, "a": 1}) != tag_of({"a": 2, "b": 2})
    True
    """
    written = json.dumps(data, sort_keys=True, default=str)
    return sha256(written.encode()).hexdigest()[:32]


def tag_of_entry(found: Listed) -> str:
    """Return the tag of an entry: what is written of it, and whether it is paused."""
    mark, pause = found.mark, found.pause
    rest = pause and (stamp(pause.at, "UTC"), stamp(pause.until, "UTC"), pause.note)
    written = (mark.address, mark.title, mark.rule, mark.body)
    return tag_of((found.number, written, stamp(found.gone_at, "UTC"), rest))
