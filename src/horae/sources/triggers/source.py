"""The sources of triggers: the ledger, and the files of `.agentd`.

    .agentd/agents/*.yml       agents
    .agentd/workflows/*.yml    what starts them, when, and with which prompt

Files are read by name order, never recursively. A single file goes by the folder that it is in,
else by its content. A prompt template in another file is read from beneath the same project only.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from horae.core.ports import LedgerError
from horae.core.receipt import FINAL, Filed
from horae.core.source import Scan, unexpected
from horae.errors import Exit, HoraeError
from horae.files import read
from horae.files.read import PlanFileError, PlanMissingError, printable
from horae.org.plan import Diagnostic, Severity
from horae.sources.triggers import FOLDER, files
from horae.sources.triggers.files import DefinitionFile, is_workflow, parse_agent, parse_workflow
from horae.sources.triggers.store import NAME, TriggerStore

if TYPE_CHECKING:
    from horae.sources.triggers.service import Triggers

SUBFOLDERS: Final = ("agents", "workflows")
SUFFIXES: Final = (".yml", ".yaml")
LIMIT: Final = 1 << 20  # bytes of one file


@dataclass(eq=False)
class TriggerSource:
    store: TriggerStore
    follow: Callable[[Filed], Awaitable[None]] | None = None
    has_files: Callable[[], bool] | None = None
    name: ClassVar = NAME

    async def scan(self, index: Mapping[str, str]) -> Scan:  # noqa: ARG002 - there are no files
        try:
            return replace(await self.store.scan(), is_bare=await self._is_bare())
        except LedgerError as error:
            return Scan((), standing=("",), problems=(error,))

    async def _is_bare(self) -> bool | None:
        """Return whether the plan root's files are gone; triggers from elsewhere need no file."""
        if self.has_files is None:
            return None
        if await asyncio.to_thread(self.has_files):
            return False
        made = [each.definition for each in await self.store.of_files()]
        is_on = any(each.is_enabled and each.file.startswith(f"{FOLDER}/") for each in made)
        return True if is_on else None

    async def settle(self, receipt: Filed) -> None:
        if receipt.status not in FINAL:
            return
        if self.follow is not None:
            await self.follow(receipt)
        kind, _, key = receipt.receipt.key.partition(":")
        if kind == "delay":
            trigger, _, times = key.partition(":")
            ended_at = receipt.ended_at or receipt.decided_at
            await self.store.spend(trigger, int(times or 1), now=ended_at)


class EmptyFolderError(HoraeError, code="agentd_empty", exit_code=Exit.NOT_FOUND):
    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(
            f"{path}: there are no .yml or .yaml files, neither in agents/ and workflows/ "
            "nor in the directory itself"
        )


@dataclass(slots=True)
class Folder:
    definitions: list[DefinitionFile] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    problems: list[Diagnostic] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)  # files or folders that cannot be read
    broken: dict[str, str] = field(default_factory=dict)  # why a file is not valid

    @property
    def agents(self) -> list[DefinitionFile]:
        return [each for each in self.definitions if each.what == "agent"]

    @property
    def workflows(self) -> list[DefinitionFile]:
        return [each for each in self.definitions if each.what == "workflow"]

    @property
    def errors(self) -> list[str]:
        return self._lines(Severity.ERROR)

    @property
    def warnings(self) -> list[str]:
        return self._lines(Severity.WARNING)

    def _lines(self, severity: Severity) -> list[str]:
        found = [each for each in self.problems if each.severity is severity]
        return [f"{each.file}:{each.line}:{each.column}: {each.advice}" for each in found]

    def note(self, file: str, problems: Sequence[Diagnostic]) -> None:
        self.problems += problems
        if why := _why(problems):
            self.broken[file] = why

    def note_unread(self, file: str, error: PlanFileError, *, is_broken: bool = False) -> None:
        place = (printable(file), error.line or 1, error.column or 1)
        problem = Diagnostic(*place, "agentd", Severity.ERROR, error.reason)
        self.note(file, [problem]) if is_broken else self.problems.append(problem)
        self.unread.append(file)


def read_folder(
    path: str, *, environ: Mapping[str, str], base: str = ".", root: str | None = None
) -> Folder:
    """Return the content of a file or a folder; files are named relative to *base*.

    *path* may be a link unless it is below *root*: from there on no link is followed.
    """
    found = _files(path, root=root)
    folder = Folder()
    parts = (whole := _whole(path)).split("/")
    # Templates may be read below the directory around `.agentd`.
    if FOLDER in parts:
        top = "/".join(parts[: parts.index(FOLDER)]) or "/"
    else:
        top = whole if Path(whole).is_dir() else str(Path(whole).parent)
    for place, kind in found.files:
        file = _called(place, base)
        folder.files.append(file)
        try:
            text = read.read_plan(place, root=root, limit=LIMIT).text
        except PlanFileError as error:
            folder.note_unread(file, error)
            continue
        try:
            is_agent = kind != "workflows" and (bool(kind) or not is_workflow(text))
            parse = parse_agent if is_agent else parse_workflow
            item, problems = parse(text, file=file, environ=environ)
            if item is not None:
                said = _agent_place(item, place, base) if is_agent else _template(item, place, top)
                folder.definitions.append(replace(item, said={**item.said, **said}))
            folder.note(file, problems)
        except PlanFileError as error:  # of the template
            folder.note_unread(file, error, is_broken=True)
        except Exception as error:  # a bug of ours is reported as a problem of this file
            wrong = PlanFileError(place, unexpected(error))
            folder.note_unread(file, wrong, is_broken=True)
    for problem in found.problems:
        file = _called(problem.raw_path, base)
        folder.files.append(file)
        folder.note_unread(file, problem)
    return folder


def _agent_place(agent: DefinitionFile, path: str, base: str) -> dict[str, str]:
    said = agent.said.get("working_dir", ".")
    start = Path(base) if said == "." else Path(_whole(path)).parent
    return {"working_dir": _whole(start / said)}


def _template(workflow: DefinitionFile, path: str, top: str) -> dict[str, str]:
    if workflow.template_file is None:
        return {}
    place = _whole(Path(_whole(path)).parent / workflow.template_file)
    try:
        return {"prompt_template": read.read_plan(place, root=top, limit=LIMIT).text}
    except PlanFileError as error:
        line = workflow.places["prompt_template_file"].line
        reason = f"prompt_template_file {printable(workflow.template_file)}: {error.reason}"
        raise PlanFileError(path, reason, line=line) from None


class Synced(NamedTuple):
    changes: list[files.PlannedChange]
    wrong: list[str]
    is_whole: bool
    # Files that are not valid, and why; None: unknown.
    broken: Mapping[str, str] | None = None
    workflows: Sequence[DefinitionFile] = ()


async def sync(
    root: str,
    triggers: Triggers,
    *,
    environ: Mapping[str, str],
    fresh_at: datetime | None = None,
    dry_run: bool = False,
) -> Synced:
    """Apply the plan's own folder.

    An invalid file keeps its last valid version and does not stop the others. A workflow without
    its file is disabled, as is one that may have fired before the ledger was created anew.
    """
    try:
        folder = await asyncio.to_thread(
            read_folder, f"{root}/{FOLDER}", environ=environ, base=root, root=root
        )
    except (EmptyFolderError, PlanMissingError):
        folder = Folder()
    except PlanFileError as error:  # the folder itself
        return Synced([], [error.reason], is_whole=False)
    wrong, broken = list(folder.errors), dict(folder.broken)
    changes: list[files.PlannedChange] = []
    doubles = files.doubles(sorted(folder.definitions, key=lambda each: each.what))
    wrong += files.error_lines(doubles.values())
    broken |= {file: _why([each]) for file, each in doubles.items()}
    definitions = [*folder.agents, *folder.workflows]
    for definition in (each for each in definitions if each.file not in doubles):
        try:
            planned, odd = await files.judge_files(triggers, [definition], fresh_at=fresh_at)
            if odd:
                wrong += files.error_lines(odd)
                broken[odd[0].file] = _why(odd)
                planned = [each for each in planned if each.verb == "disable"]
            if not dry_run:
                await files.apply_changes(triggers, planned)
        except LedgerError:
            raise
        except HoraeError as error:
            wrong.append(str(error))
        else:
            changes += [each for each in planned if each.verb != "unchanged"]
    if dry_run:
        return Synced(changes, wrong, is_whole=not folder.unread, broken=broken)
    known = {each.definition.file for each in await triggers.store.of_files()}
    behind = {file for file in known for name in folder.unread if file.startswith(f"{name}/")}
    names: dict[str, str | None] = dict.fromkeys([*folder.files, *behind])
    # A trigger added since the folder was read may be applied already, and is soon read again.
    paths = {file: f"{root}/{file}" for file in known if file not in names}
    names |= {f: None for f, at in paths.items() if os.path.isfile(at) and not os.path.islink(at)}
    names |= {each.file: each.name for each in folder.workflows}
    removed = await files.plan_removed(triggers.store, names, f"{FOLDER}/")
    await files.apply_changes(triggers, removed)
    told: dict[str, Any] = {"broken": broken, "workflows": folder.workflows}
    return Synced([*changes, *removed], wrong, is_whole=not folder.unread, **told)


def unread_hint(root: str) -> str:
    read = f"`horae up` or `horae trigger apply {FOLDER}` reads the files in {FOLDER}"
    return f"; {read}" if has_files(root) else ""


def has_files(root: str) -> bool:
    try:
        found = _files(f"{root}/{FOLDER}", root=root)
    except (EmptyFolderError, PlanMissingError):
        return False
    except PlanFileError:  # they exist, and cannot be read
        return True
    return bool(found.files or found.problems)


class _Files(NamedTuple):
    files: list[tuple[str, str]]
    problems: list[PlanFileError]


def _files(path: str, *, root: str | None) -> _Files:
    if root is None and Path(path).is_file():
        parent = Path(_whole(path)).parent.name
        return _Files([(path, parent if parent in SUBFOLDERS else "")], [])
    if root is None and not _has_folders(path) and os.path.lexists(f"{path}/{FOLDER}"):
        path = f"{path.rstrip('/')}/{FOLDER}"
    if root is not None and (in_the_way := read.obstacle(path, root=root)) is not None:
        raise in_the_way
    result = _Files([], [])
    kinds = SUBFOLDERS if _has_folders(path) else ("",)
    for kind in kinds:
        folder = f"{path.rstrip('/')}/{kind}" if kind else path
        try:
            found = read.find_plans(folder, suffixes=SUFFIXES, is_flat=True, inside=root)
        except PlanFileError as error:
            if not kind:
                raise
            if not isinstance(error, PlanMissingError):
                result.problems.append(error)
            continue
        result.problems.extend(found.problems)
        result.files.extend((file, kind) for file in found.plans)
    if not result.files and not result.problems:
        raise EmptyFolderError(path)
    return result


def _has_folders(path: str) -> bool:
    for kind in SUBFOLDERS:
        with read.told(path), suppress(FileNotFoundError, NotADirectoryError):  # then False
            os.lstat(f"{path}/{kind}")
            return True
    return False


def _why(found: Iterable[Diagnostic]) -> str:
    wrong = [each for each in found if each.severity is Severity.ERROR]
    return "; ".join(f"line {each.line}: {each.advice}" for each in wrong)


def _called(path: str, base: str) -> str:
    """Return the name of a file: relative to the base if it is below it, else its whole path.

    A name typed elsewhere, such as `.agentd/a.yml`, would be another file from the base.
    """
    return _whole(path).removeprefix(f"{_whole(base).rstrip('/')}/")


def _whole(path: read.StrPath) -> str:
    return os.path.normpath(Path(path).absolute())
