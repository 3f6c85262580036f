"""What has its hours beside the org plans of a root: its board, its triggers and its crew.

A directory that is named is a plan root, and what the engine would keep there is shown as it
would keep it: the same readers, the same entries, the same projection. Of a crew only the
engine knows when it last ticked, so its ticks are estimates, as if the engine started now.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from horae.config import known_names, load
from horae.core.entry import Entry, Origin, Unarmed
from horae.errors import Exit, HoraeError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    from horae.cli.known import Ledgers
    from horae.cli.output import Output
    from horae.config import Config
    from horae.core.entry import Task
    from horae.org.plan import Diagnostic
    from horae.sources.triggers.files import WorkflowFile


_TRIGGERS: Final = ".agentd"


class PlanRootEntries(NamedTuple):
    """What there is beside plans: entries, tasks that wait for a time, and how that ended."""

    items: tuple[Entry | Unarmed, ...] = ()
    tasks: tuple[Task, ...] = ()
    exit_code: int = Exit.OK

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing, and nothing that cannot be read."""
        return not self.items and not self.tasks and self.exit_code == Exit.OK


def beside(
    paths: Sequence[str], output: Output, *, now: datetime, ledgers: Ledgers | None = None
) -> PlanRootEntries:
    """Return what stands beside the plans of the directories that are named; none is this one.

    What cannot be read is said, and the rest goes on. Where an engine runs it is all that the
    engine fires, that of plans, too.
    """
    found = PlanRootEntries()
    for root in _roots(paths):
        here = _Root(root, load(root), output, now)
        known = None if ledgers is None else ledgers.of_root(root)
        board, triggers, crew = tuple(here.board()), tuple(here.triggers()), tuple(here.crew())
        if known is None:
            items = (*board, *triggers, *crew)
        elif known.engine.is_running:
            items = tuple(known.items())
        else:
            rest = map(known.joined, (*board, *crew))
            items = (*rest, *known.triggers(triggers, broken=here.broken))
        tasks = (*found.tasks, *here.tasks)
        found = PlanRootEntries((*found.items, *items), tasks, found.exit_code or here.exit_code)
    return found


def find_boards(paths: Sequence[str]) -> dict[str, str]:
    """Return the directories that are named and have a board, each with where that is from it."""
    found = {}
    for root in _roots(paths):
        board = load(root).board_dir
        # Before anything is loaded that only a board needs.
        if any(_is_directory(f"{root}/{each}") for each in (board or "board", ".batty")):
            from horae.sources.board.tasks import find_tasks

            tasks = find_tasks(root, board=board)
            if _is_directory(f"{root}/{tasks}"):
                found[root] = tasks
    return found


def check_boards(boards: Mapping[str, str], *, now: datetime) -> Iterator[Diagnostic]:
    """Yield what is odd in the tasks of boards."""
    for root, tasks in boards.items():
        from horae.sources.board.source import check_board
        from horae.sources.crew.source import member_names

        config = load(root)
        limits = {"limit": config.plan_max_bytes, "most": config.plan_max_files}
        crew = member_names(config.crew_def)
        for each in check_board(root, now=now, tasks=tasks, crew=crew, **limits):
            yield each if root == "." else each._replace(file=f"{root}/{each.file}")


def find_triggers(paths: Sequence[str]) -> list[str]:
    """Return the directories that are named and have files of triggers."""
    return [root for root in _roots(paths) if _is_directory(f"{root}/{_TRIGGERS}")]


def names_beside(paths: Sequence[str]) -> set[str]:
    """Return what goes by a name beside the plans of directories, or is known to their ledgers."""
    names: set[str] = set()
    for root in _roots(paths):
        from horae.cli.connection import Place, known_entries
        from horae.sources.board.tasks import Board
        from horae.sources.crew.source import member_names
        from horae.sources.triggers.source import read_folder

        names.update(member_names(load(root).crew_def))
        with suppress(HoraeError):  # what cannot be read is no suggestion
            folder = read_folder(f"{root}/{_TRIGGERS}", environ=os.environ, base=root)
            names.update(each.name for each in folder.workflows)
            # A file that cannot be read defines a trigger, most likely of its own name.
            names.update(os.path.basename(each.file).split(".")[0] for each in folder.problems)
        for tasks in find_boards([root]).values():
            with suppress(HoraeError):  # what cannot be read is no suggestion
                cards = Board(f"{root}/{tasks}").read().tasks
                names.update(*({each.title, f"task:{each.id}"} for each in cards))
        with suppress(HoraeError):  # what cannot be read is no suggestion
            for known in known_entries(Place.of(root=root, data=None)):
                mark = known.mark
                own = mark.address.removeprefix("id:").removeprefix("agent:")
                names |= {mark.title, mark.address, own} if known.gone_at is None else set()
    return names


def check_triggers(roots: Sequence[str]) -> Iterator[Diagnostic]:
    """Yield what is odd in the files of agents and triggers, as applying them would find it."""
    for root in roots:
        for each in _check_folder(root):
            yield each if root == "." else each._replace(file=f"{root}/{each.file}")


def _check_folder(root: str) -> Iterator[Diagnostic]:
    """Yield what is odd in the files of one root; what needs the ledger, as far as it is read."""
    from horae.cli.trigger_access import TriggerAccess
    from horae.files.read import PlanFileError
    from horae.org.plan import Diagnostic, Severity
    from horae.sources.triggers.apply import judge_files
    from horae.sources.triggers.source import EmptyFolderError, read_folder

    try:
        folder = read_folder(f"{root}/{_TRIGGERS}", environ=known_names(load(root)), base=root)
    except EmptyFolderError:
        return
    except PlanFileError as error:
        yield Diagnostic(_TRIGGERS, 1, 1, "agentd", Severity.ERROR, str(error))
        return
    yield from folder.problems
    if folder.errors:
        return  # an agent whose file is wrong would seem to be missing
    try:
        changes, wrong = TriggerAccess(root=root, data=None).read(
            lambda triggers: judge_files(triggers, folder.definitions)
        )
    except HoraeError as error:
        message = f"not compared with the ledger: {error}"
        yield Diagnostic(_TRIGGERS, 1, 1, "agentd", Severity.INFO, message)
        return
    yield from wrong
    yield from (note for change in changes for note in change.notes)


def _roots(paths: Sequence[str]) -> list[str]:
    """Return the directories that are named, each once; none is this one."""
    named = [path for path in paths or (".",) if path != "-" and _is_directory(path)]
    return list(dict.fromkeys(map(os.path.normpath, named)))


def _is_directory(path: str) -> bool:
    return os.path.isdir(path)


class _Root:
    """One plan root, looked at once."""

    def __init__(self, root: str, config: Config, output: Output, now: datetime) -> None:
        self._root = root
        self._config = config
        self._output = output
        self._now = now
        self.tasks: tuple[Task, ...] = ()
        self.broken: set[str] = set()  # files of triggers that cannot be used
        self.exit_code: int = Exit.OK

    def board(self) -> Iterator[Entry | Unarmed]:
        """Yield the tasks that come back; those that wait for a time are in `tasks` then."""
        tasks = find_boards([self._root]).get(self._root)
        if tasks is None:
            return
        from horae.sources.board.source import hours_of

        config = self._config
        found = hours_of(
            self._root,
            now=self._now,
            tasks=tasks,
            limit=config.plan_max_bytes,
            most=config.plan_max_files,
        )
        for problem in found.problems:
            self._say(problem)
        self.tasks = tuple(replace(each, origin=self._placed(each.origin)) for each in found.gates)
        yield from (replace(item, origin=self._placed(item.origin)) for item in found.items)

    def triggers(self) -> Iterator[Entry | Unarmed]:
        """Yield the triggers that files define; those that cannot be used are in `broken` then."""
        path = f"{self._root}/{_TRIGGERS}"
        if not _is_directory(path):
            return
        from horae.sources.triggers.source import EmptyFolderError, read_folder

        try:
            folder = read_folder(path, environ=known_names(self._config), base=self._root)
        except EmptyFolderError:
            return
        except HoraeError as error:
            self._say(error)
            return
        if folder.errors:
            from horae.sources.triggers.apply import FilesError

            self._say(FilesError(folder.errors))
        self.broken |= {*folder.broken, *folder.unread}
        for file in folder.workflows:
            try:
                item = _trigger(file, self._now)
            except HoraeError as error:
                self.broken.add(file.file)
                origin, why = Origin(file.file, 1), str(error)
                item = Unarmed(f"trigger:{file.name}", origin, file.name, why)
            yield replace(item, origin=self._placed(item.origin))

    def crew(self) -> Iterator[Entry | Unarmed]:
        """Yield who ticks, as if the engine started now."""
        config = self._config
        if config.crew_def is None and config.keeper_def is None:
            return
        import asyncio

        from horae.context import crew_source

        started_at = self._now.replace(second=0, microsecond=0)  # an estimate is not exact
        source = crew_source(
            config, started_at=started_at, place=_near, data=config.data, inline=True
        )
        assert source is not None, "the settings name one"
        scan = asyncio.run(source.scan({}))
        for problem in scan.problems:
            self._say(problem)
        yield from (each.item for each in scan.entries)

    def _placed(self, origin: Origin) -> Origin:
        """Return where something stands, as whoever named the root would call it."""
        return origin if self._root == "." else replace(origin, file=f"{self._root}/{origin.file}")

    def _say(self, error: HoraeError) -> None:
        """Say what cannot be read; the first such error decides the exit code."""
        self._output.say(error)
        self.exit_code = self.exit_code or error.exit_code


def _near(path: Path) -> str:
    """Return a path from here, if it leads down from here; else as it is."""
    near = os.path.relpath(path)
    return os.fspath(path) if near.startswith("..") else near


def _trigger(file: WorkflowFile, now: datetime) -> Entry | Unarmed:
    """Return the entry of a trigger; one that can never be armed is an error."""
    from horae.sources.triggers.rules import (
        Trigger,
        TriggerDefinition,
        checked,
        parse_tools,
        scanned,
    )

    definition = checked(
        TriggerDefinition(
            file.name,
            file.agent,
            dict(file.source),
            file.template or "",
            file.poll_interval,
            file.is_enabled,
            parse_tools(None if file.tool_policy is None else dict(file.tool_policy)),
            dict(file.options),
            file.file,
            file.is_enabled,
        )
    )
    return scanned(Trigger(file.name, definition, 1, now, now)).item
