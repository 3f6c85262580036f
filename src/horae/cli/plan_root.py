"""The entries of plan roots: as they are written, and as an engine or its ledger knows them.

A directory that is named is a plan root: its plans, its board, its triggers and its crew are read
as the engine would read them, and projected alike. While an engine runs, its entries are shown,
as it is the engine that fires them. Without one each entry of a file gets from the ledger what no
file says: that it is paused, and when its last run ended. Of a crew only the engine knows when it
last ticked, so without one its ticks are estimates, as if the engine started now.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from horae.cli.moments import moment_and_zone
from horae.cli.output import Output, echo
from horae.cli.sources import PlanText, Sources, plan_root
from horae.config import known_names, load
from horae.core.entry import (
    AfterRule,
    CadenceRule,
    CronRule,
    Entry,
    OnDemandRule,
    Origin,
    Pause,
    Task,
    Unarmed,
)
from horae.core.explain import stamp
from horae.core.guarded import FILE
from horae.core.project import next_moment
from horae.core.text import moment_text, no_time_left, words
from horae.errors import Exit, HoraeError
from horae.sources.plans.arming import entries_of, scan_plan, tasks_of, unfired

if TYPE_CHECKING:
    from horae.cli.connection import Place
    from horae.core.ports import Listed
    from horae.core.views import EngineFacts

TRIGGERS: Final = ".agentd"
_DATA: Final = ".horae"
_SOURCES: Final = {"task": "board", "trigger": "trigger", "agent": "crew"}


class When(NamedTuple):
    """The time and the zone that a command looks from."""

    now: datetime
    zone: str

    @classmethod
    def of(cls, at: str | None, tz: str | None, *, paths: Sequence[str] = ()) -> When:
        now, place = moment_and_zone(at, tz=tz, root=plan_root(paths))
        return cls(now, place.key)


class PlanView:
    def __init__(self, paths: Sequence[str], output: Output, when: When) -> None:
        self._ledgers = Ledgers(paths, output, zone_name=when.zone)
        self._beside = beside(paths, output, now=when.now, ledgers=self._ledgers)
        self._sources = Sources(paths, output, may_be_empty=not self._beside.is_empty)
        self._zone = when.zone
        self.is_guess = self._ledgers.is_guess

    @property
    def exit_code(self) -> int:
        return self._sources.exit_code or self._beside.exit_code or self._ledgers.exit_code

    def entries(self) -> Iterator[Entry]:
        return (item for item in self.items(with_tasks=False) if isinstance(item, Entry))

    def items(self, *, with_tasks: bool = True) -> Iterator[Entry | Task | Unarmed]:
        """Yield what fires, what is not armed, and tasks for people."""
        for each in self._sources:
            yield from self._ledgers.plan_items(each)
            if with_tasks:
                yield from tasks_of(each.plan, file=each.name, zone_name=self._zone)
        yield from self._beside.items
        if with_tasks:
            yield from self._beside.tasks


# As it is written


class PlanRootEntries(NamedTuple):
    items: tuple[Entry | Unarmed, ...] = ()
    tasks: tuple[Task, ...] = ()
    exit_code: int = Exit.OK

    @property
    def is_empty(self) -> bool:
        return not self.items and not self.tasks and self.exit_code == Exit.OK


def beside(
    paths: Sequence[str], output: Output, *, now: datetime, ledgers: Ledgers | None = None
) -> PlanRootEntries:
    """Return what stands beside the plans of the directories that are named; none is this one.

    What cannot be read is said, and the rest goes on. Where an engine runs it is all that the
    engine fires, that of plans, too.
    """
    found = PlanRootEntries()
    for root in roots_of(paths):
        here = _Root(root, output, now)
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


def roots_of(paths: Sequence[str]) -> list[str]:
    """Return the directories that are named, each once; none is this one."""
    named = [path for path in paths or (".",) if path != "-" and os.path.isdir(path)]
    return list(dict.fromkeys(map(os.path.normpath, named)))


def find_boards(paths: Sequence[str]) -> dict[str, str]:
    """Return the directories that are named and have a board, each with where that is from it."""
    found = {}
    for root in roots_of(paths):
        board = load(root).board_dir
        # Before anything is loaded that only a board needs.
        if any(os.path.isdir(f"{root}/{each}") for each in (board or "board", ".batty")):
            from horae.sources.board.tasks import find_tasks

            tasks = find_tasks(root, board=board)
            if os.path.isdir(f"{root}/{tasks}"):
                found[root] = tasks
    return found


class _Root:
    def __init__(self, root: str, output: Output, now: datetime) -> None:
        self._root = root
        self._config = load(root)
        self._output = output
        self._now = now
        self.tasks: tuple[Task, ...] = ()
        self.broken: set[str] = set()  # files of triggers that cannot be used
        self.exit_code: int = Exit.OK

    def board(self) -> Iterator[Entry | Unarmed]:
        tasks = find_boards([self._root]).get(self._root)
        if tasks is None:
            return
        from horae.sources.board.source import hours_of

        limits = {"limit": self._config.plan_max_bytes, "most": self._config.plan_max_files}
        found = hours_of(self._root, now=self._now, tasks=tasks, **limits)
        for problem in found.problems:
            self._say(problem)
        self.tasks = tuple(replace(each, origin=self._placed(each.origin)) for each in found.gates)
        yield from (replace(item, origin=self._placed(item.origin)) for item in found.items)

    def triggers(self) -> Iterator[Entry | Unarmed]:
        path = f"{self._root}/{TRIGGERS}"
        if not os.path.isdir(path):
            return
        from horae.sources.triggers.apply import FilesError
        from horae.sources.triggers.rules import (
            Trigger,
            TriggerDefinition,
            checked,
            parse_tools,
            scanned,
        )
        from horae.sources.triggers.source import EmptyFolderError, read_folder

        try:
            folder = read_folder(path, environ=known_names(self._config), base=self._root)
        except EmptyFolderError:
            return
        except HoraeError as error:
            self._say(error)
            return
        if folder.errors:
            self._say(FilesError(folder.errors))
        self.broken |= {*folder.broken, *folder.unread}
        for file in folder.workflows:
            try:
                definition = TriggerDefinition(
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
                trigger = Trigger(file.name, checked(definition), 1, self._now, self._now)
                item = scanned(trigger).item
            except HoraeError as error:
                self.broken.add(file.file)
                origin, why = Origin(file.file, 1), str(error)
                item = Unarmed(f"trigger:{file.name}", origin, file.name, why)
            yield replace(item, origin=self._placed(item.origin))

    def crew(self) -> Iterator[Entry | Unarmed]:
        """Yield the agents that tick, as if the engine started now."""
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
        return origin if self._root == "." else replace(origin, file=f"{self._root}/{origin.file}")

    def _say(self, error: HoraeError) -> None:
        self._output.say(error)
        self.exit_code = self.exit_code or error.exit_code


def _near(path: str | os.PathLike[str]) -> str:
    """Return a path from here, if it leads down from here; else as it is."""
    near = os.path.relpath(path)
    return os.fspath(path) if near.startswith("..") else near


# As the ledger knows it


class KnownEntries:
    def __init__(
        self, root: str, place: Place, engine: EngineFacts, entries: Iterable[Listed]
    ) -> None:
        self.root = root
        self.place = place
        self.engine = engine
        self._there = [each for each in entries if each.gone_at is None]
        self._by_address = {each.mark.address: each for each in self._there}

    def items(self, file: str | None = None) -> Iterator[Entry | Unarmed]:
        from horae.sources.board.recycle import is_net

        for each in self._there:
            item = each.item
            is_shown = not isinstance(item, Entry) or not is_net(item)
            if is_shown and file in {None, item.origin.file}:
                yield self._placed(item)

    def pauses(self) -> dict[str, Pause]:
        return {each.mark.address: each.pause for each in self._there if each.pause is not None}

    def ticks(self, origin: Origin) -> bool:
        """Tell whether an agent stands there whose next tick the engine knows."""
        return self.engine.is_running and origin in {
            self._placed(each.item).origin for each in self._there if _ticks(each.item)
        }

    def joined(self, item: Entry | Unarmed, *, is_broken: bool = False) -> Entry | Unarmed:
        """Return an item of a file with what the ledger knows of it.

        If its text is broken, it is the last good entry that stays armed.
        """
        address, file = item.address, item.origin.file
        if address.startswith(f"{file}::"):  # the ledger calls the file as it is from the root
            name = os.path.relpath(file, self.root).replace(os.sep, "/")
            address = f"{name}{address.removeprefix(file)}"
        found = self._by_address.get(address)
        if is_broken and found is not None and isinstance(found.item, Entry):
            was_good = not found.broken or found.broken_at is not None
            return replace(self._placed(found.item), origin=item.origin) if was_good else item
        if found is None or not isinstance(item, Entry) or not isinstance(found.item, Entry):
            return item
        return _with(item, found.item)

    def triggers(
        self, items: Iterable[Entry | Unarmed], *, broken: Collection[str]
    ) -> Iterator[Entry | Unarmed]:
        """Yield the triggers of files as the ledger has them, and those that no file has.

        Of files that are *broken*, or cannot be read, it is the last good trigger.
        """
        left = {each.mark.title: each for each in self._there if each.source == "trigger"}
        for item in items:
            found = left.pop(item.title, None)
            if found is None:
                yield item
            elif found.item.origin.file in broken:
                yield self._placed(found.item)
            elif isinstance(item, Unarmed):
                yield item
            elif isinstance(found.item, Entry) and isinstance(item.rule, CronRule):
                yield _with(item, found.item)
            else:  # a delay has its id, and is disabled when it has run
                yield self._placed(found.item)
        made = ("triggers/", *(f"{each}/" for each in broken))
        for item in (each.item for each in left.values()):
            if item.origin.file in broken or item.origin.file.startswith(made):
                yield self._placed(item)

    def _placed(self, item: Entry | Unarmed) -> Entry | Unarmed:
        file = item.origin.file
        if os.path.isabs(file):
            name = _near(file)
        else:
            name = file if self.root == "." else f"{self.root}/{file}"
        address = item.address
        if address.startswith(f"{file}::"):
            address = f"{name}{address.removeprefix(file)}"
        return replace(item, origin=replace(item.origin, file=name), address=address)


class Ledgers:
    """The ledgers of the plan roots that a command is about, each read once and named once.

    *is_engine_asked* is False for a command that goes by the plan files also while one runs.
    """

    def __init__(
        self, paths: Sequence[str], output: Output, *, zone_name: str, is_engine_asked: bool = True
    ) -> None:
        self._is_engine_asked = is_engine_asked
        self._roots = {os.path.abspath(each): each for each in roots_of(paths)}
        self._output = output
        self._zone = zone_name
        self._known: dict[str, KnownEntries | None] = {}
        self.exit_code: int = Exit.OK

    def of_root(self, root: str, *, says: bool = True) -> KnownEntries | None:
        """Return what is known of a plan root; None if it has no ledger."""
        if root not in self._known:
            self._known[root] = self._read(root, says=says)
        return self._known[root]

    def pauses(self, root: str) -> dict[str, Pause]:
        known = self.of_root(root, says=False)
        return {} if known is None else known.pauses()

    def of_file(self, file: str) -> KnownEntries | None:
        root = self._root_of(file)
        return None if root is None else self.of_root(root)

    def plan_items(self, source: PlanText) -> Iterator[Entry | Unarmed]:
        """Yield the items of a plan file as they are known; those of a whole root come at once."""
        written = {"file": source.name, "zone_name": self._zone}
        known = self.of_file(source.name)
        if known is None:
            yield from entries_of(source.plan, **written)
        elif not known.engine.is_running:
            broken = {each.item.origin for each in scan_plan(source.plan, **written) if each.broken}
            for item in entries_of(source.plan, **written):
                yield known.joined(item, is_broken=item.origin in broken)
        elif known.root not in self._roots.values():
            yield from known.items(os.path.relpath(source.name, known.root).replace(os.sep, "/"))

    def is_guess(self, entry: Entry) -> bool:
        """Tell whether the next tick of an agent is not known, as no engine runs."""
        known = (each for each in self._known.values() if each)
        return _ticks(entry) and not any(each.ticks(entry.origin) for each in known)

    def _root_of(self, file: str) -> str | None:
        if file == "-":
            return None
        whole = os.path.abspath(file)
        for root in self._roots:
            if whole.startswith(f"{root.rstrip(os.sep)}{os.sep}"):
                return self._roots[root]
        is_inside = whole.startswith(f"{os.getcwd()}{os.sep}")
        here = os.path.dirname(os.path.relpath(file) if is_inside else file)
        while True:
            if any(os.path.exists(os.path.join(here, name)) for name in (FILE, _DATA)):
                return here or "."
            if not here or not is_inside:
                return None
            here = os.path.dirname(here)

    def _read(self, root: str, *, says: bool) -> KnownEntries | None:
        """Read the ledger of a root, if there is one; *says* prints that it is used."""
        settings = load(root)
        if settings.store is None and not settings.data.is_dir():
            return None
        from horae.cli.client import Far
        from horae.cli.connection import NoLedgerError, Place, ask, engine_of

        try:
            place = Place.of(root=root, data=None)
            engine, entries = engine_of(place), ask(place, lambda ledger: ledger.entries())
        except NoLedgerError:
            return None
        except HoraeError as error:
            self._output.say(error)
            self.exit_code = self.exit_code or error.exit_code
            return None
        if not self._is_engine_asked or place.zone.key != self._zone:
            engine = replace(engine, is_running=False)  # or the files are read in another zone
        if says and self._output.is_text:
            where, said = (
                _near(engine.directory),
                "plan files; pauses and last runs from the ledger in",
            )
            source = (
                f"running engine (ledger in {where})" if engine.is_running else f"{said} {where}"
            )
            echo(f"horae: times from the {source}", err=True)
        if engine.is_running and engine.pid is not None:
            idle = Far(place.directory, pid=engine.pid).idle()
            if idle is not None:
                self._output.say(idle)
        return KnownEntries(root, place, engine, entries)


def _ticks(item: Entry | Unarmed) -> bool:
    return isinstance(item, Entry) and isinstance(item.rule, CadenceRule)


def _with(item: Entry, known: Entry) -> Entry:
    rule, was = item.rule, known.rule
    is_same = rule == was and item.zone == known.zone  # else it begins when an engine reads it
    if isinstance(rule, CadenceRule) and isinstance(was, CadenceRule):
        rule = replace(rule, ticks=was.ticks, streak=was.streak, failures=was.failures)
    return replace(
        item,
        rule=rule,
        number=known.number,
        accounted_to=known.accounted_to if is_same else None,
        ended_at=known.ended_at,
        pause=known.pause,
    )


# What the ledger does not know


@dataclass(frozen=True, slots=True)
class WrittenEntry:
    """A headline, task or trigger as it is written, and what can be said of it."""

    item: Entry | Unarmed
    zone: str
    now: datetime
    source: str = "org"
    broken: str = ""  # why its text cannot be read, if it cannot
    twin: Origin | None = None  # of another entry with its :ID:

    @property
    def next_at(self) -> datetime | None:
        coming = next_moment(self.item, self.now) if isinstance(self.item, Entry) else None
        return coming.at if coming else None

    @property
    def said(self) -> str:
        if not isinstance(self.item, Entry):
            return f"it does not run: {self.item.reason}"
        if self.twin is not None:
            return f"it does not run: {self.twin} has the same :ID:; give one of them another :ID:"
        said = "no engine has read the entry yet, so it has no receipts; start one with `horae up`"
        if self.next_at is None:
            is_timed = not isinstance(self.item.rule, OnDemandRule | AfterRule | CadenceRule)
            return no_time_left(self.item, self.now) if is_timed else said
        return f"{said}; its next scheduled time is {moment_text(self.next_at, self.zone)}"

    def print(self) -> None:
        echo(f"{self.item.title}  {self.item.origin}")
        if isinstance(self.item, Entry):
            echo(f"{words(self.item.rule, zone_name=self.zone)} ({self.zone})")
            if self.broken:
                echo(f"broken: {self.broken}")
        echo(f"\n{self.said}")

    def entry_data(self) -> dict[str, Any]:
        item = self.item
        return {
            "entry": None,
            "source": self.source,
            "title": item.title,
            "address": item.address,
            "file": item.origin.file,
            "line": item.origin.line,
            "zone": self.zone,
            "armed": False,
            "rule": words(item.rule, zone_name=self.zone) if isinstance(item, Entry) else None,
            "reason": None if isinstance(item, Entry) else item.reason,
            "first_seen_at": None,
            "gone_at": None,
            "pause": None,
            "next_at": stamp(self.next_at, self.zone),
            "failures": 0,
            "broken": self.broken or None,
            "broken_at": None,
        }

    def data(self) -> dict[str, Any]:
        answer = {"at": None, "said": self.said, "moment": False, "estimate": False}
        return {
            "at": stamp(self.now, self.zone),
            "entry": self.entry_data(),
            "cannot_run": None,
            "from": None,
            "to": None,
            "answers": [{**answer, "receipt": None}],
            "before": None,
            "after": None,
            "more": False,
        }


def source_of(item: Entry | Unarmed) -> str:
    """Return the source of an item: what its address begins with."""
    return _SOURCES.get(item.address.partition(":")[0], "org")


def look_up(word: str, place: Place, output: Output, *, now: datetime) -> list[WrittenEntry]:
    """Return what goes by a word in the files of a plan root."""
    if not os.path.isdir(place.root):
        return []
    zone_name = place.zone.key
    items: list[tuple[Entry | Unarmed, str]] = []
    broken: dict[Origin, str] = {}
    first: dict[str, Origin] = {}
    for source in Sources((place.root,), output, may_be_empty=True):
        name = os.path.relpath(source.name, place.root).replace(os.sep, "/")
        called = [(item, "org") for item in _called(source._replace(name=name), word, place)]
        items += called
        for each in entries_of(source.plan, file=name, zone_name=zone_name):
            if isinstance(each, Entry):  # the first of several with one :ID: is armed
                first.setdefault(each.address, each.origin)
        for one in scan_plan(source.plan, file=name, zone_name=zone_name) if called else ():
            broken[one.item.origin] = one.broken
    if not items:
        for item in beside((place.root,), output, now=now).items:
            if word.casefold() in {item.title.casefold(), str(item.origin)}:
                items.append((item, source_of(item)))
    found = []
    for item, kind in items:
        zone = item.zone if isinstance(item, Entry) else zone_name
        at = first.get(item.address)
        twin = None if at == item.origin else at
        found.append(WrittenEntry(item, zone, now, kind, broken.get(item.origin, ""), twin))
    return found


def _called(source: PlanText, word: str, place: Place) -> Iterator[Entry | Unarmed]:
    wanted = {word.casefold()}
    file, _, line = word.rpartition(":")
    if file:
        wanted |= {f"{each}:{line}".casefold() for each in place.files(file)}
    told = set()
    for item in entries_of(source.plan, file=source.name, zone_name=place.zone.key):
        title = item.title.removeprefix("COMMENT ").strip()
        names = (item.title, title, str(item.origin))
        # An :ID: is written as it is, and the ledger names those that are near.
        if wanted & {each.casefold() for each in names} or item.address == f"id:{word}":
            told.add(item.origin)
            yield item
    # A headline with a void drawer is an entry by what was meant, and none by what is read.
    others = unfired(source.plan, wanted, file=source.name)
    yield from (each for each in others if each.origin not in told)
