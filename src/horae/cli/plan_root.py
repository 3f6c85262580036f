"""The entries of plan roots: plans, board, triggers and crew, as the engine would read them.

While an engine runs, its own entries are shown. Without one the ledger adds to each entry of a
file that it is paused, and when its last run ended; the ticks of a crew are estimates.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import structs, to_builtins

from horae.cli.moments import moment_and_zone
from horae.cli.output import Output, echo
from horae.cli.sources import PlanText, Sources, plan_root
from horae.config import Config, known_names, load
from horae.core import clock, command, entry as rules, explain, guarded, ports, project, text, views
from horae.core.entry import Entry, Origin, Pause, PlanTask, Unarmed, is_net
from horae.errors import Exit, HoraeError
from horae.files.read import PlanFileError, names_of
from horae.org.plan import Headline
from horae.process.run_settings import why_unready
from horae.sources import board, crew, triggers
from horae.sources.plans.arming import entries_of, item_at, scan_plan, tasks_of, unfired
from horae.store.lock import engine_zone

if TYPE_CHECKING:
    from horae.cli.connection import Place
    from horae.sources.board.tasks import Board

TRIGGERS: Final = ".agentd"
_DATA: Final = ".horae"
_SOURCES: Final = {"task": "board", "trigger": "trigger", "agent": "crew"}


class When(NamedTuple):
    """The time and the zone that a command looks from."""

    now: datetime
    zone: str

    @classmethod
    def of(cls, at: str | None, tz: str | None, *, paths: Sequence[str] = ()) -> When:
        root = plan_root(paths)
        # An engine keeps the zone that it started with, whatever is in the settings now.
        now, place = moment_and_zone(at, tz=tz or engine_zone(load(root).data) or None, root=root)
        return cls(now, place.key)


class PlanView:
    """All that has a time in the files and the directories that were named, read once.

    What cannot be read is said, and the rest goes on. *knows* is who is asked besides the files:
    the `engine` that runs, else the ledger; the `ledger` alone; or `none`. *says* prints which.
    """

    def __init__(
        self,
        paths: Sequence[str],
        output: Output,
        when: When,
        *,
        knows: str = "engine",
        says: bool = True,
    ) -> None:
        self._paths, self._output, self._when, self._knows = paths, output, when, knows
        self._says = says
        self._roots = {os.path.abspath(each): each for each in roots_of(paths)}
        self._known: dict[str, KnownEntries | None] = {}
        self._tasks: list[PlanTask] = []  # of boards, that wait for a time
        self._beside_code = self.ledger_code = int(Exit.OK)

    @property
    def exit_code(self) -> int:
        return self.sources.exit_code or self._beside_code or self.ledger_code

    def entries(self) -> Iterator[Entry]:
        return (item for item in self.items(with_tasks=False) if isinstance(item, Entry))

    def items(self, *, with_tasks: bool = True) -> Iterator[Entry | PlanTask | Unarmed]:
        for each in self.sources:
            yield from self.plan_items(each)
            if with_tasks:
                yield from tasks_of(each.plan, file=each.name, zone_name=self._when.zone)
        yield from self.beside
        if with_tasks:
            yield from self._tasks

    @cached_property
    def sources(self) -> Sources:
        is_empty = not self.beside and not self._tasks and not self._beside_code
        return Sources(self._paths, self._output, may_be_empty=not is_empty)

    @cached_property
    def beside(self) -> list[Entry | Unarmed]:
        """What stands beside plans; where an engine runs it is all that the engine fires."""
        found: list[Entry | Unarmed] = []
        for root in roots_of(self._paths):
            known, broken = self.of_root(root), set[str]()
            board = [*self._board(root)]
            triggers, crew = [*self._triggers(root, broken)], [*self._crew(load(root))]
            if known is None:
                found += [*board, *triggers, *crew]
            elif known.engine.is_running:
                found += known.items()
            else:
                found += map(known.joined, [*board, *crew])
                found += known.triggers(triggers, broken=broken)
        return found

    def _board(self, root: str) -> Iterator[Entry | Unarmed]:
        tasks = find_boards([root]).get(root)
        if tasks is None:
            return
        found = board.source.hours_of(tasks, now=self._when.now)
        for problem in found.problems:
            self._say(problem)
        for each in found.gates:
            self._tasks.append(structs.replace(each, origin=_placed_origin(root, each.origin)))
        yield from (_placed(root, item) for item in found.items)

    def _triggers(self, root: str, broken: set[str]) -> Iterator[Entry | Unarmed]:
        """Yield the triggers that files define; files that cannot be used are added to *broken*."""
        path = f"{root}/{TRIGGERS}"
        if not os.path.isdir(path):
            return
        defining, names = triggers.rules, known_names(load(root))
        try:
            folder = triggers.source.read_folder(path, environ=names, base=root)
        except triggers.source.EmptyFolderError:
            return
        except HoraeError as error:
            self._say(error)
            return
        if folder.errors:
            errors = [each if root == "." else f"{root}/{each}" for each in folder.errors]
            self._say(triggers.files.FilesError(errors, then="other triggers are listed"))
        broken |= {*folder.broken, *folder.unread}
        now = self._when.now
        for file in folder.workflows:
            try:
                about = {"agent": file.said["agent"], "file": file.file}
                made = defining.checked(defining.new_definition(file.said, **about))
                trigger = defining.Trigger(file.name, made, 1, now, now)
                item = defining.scanned(trigger).item
            except HoraeError as error:
                broken.add(file.file)
                origin, why = Origin(file.file, 1), str(error)
                item = Unarmed(f"trigger:{file.name}", origin, file.name, why)
            yield _placed(root, item)

    def _crew(self, config: Config) -> Iterator[Entry | Unarmed]:
        """Yield the agents that tick, as if the engine started now."""
        if config.crew_def is None and config.keeper_def is None:
            return
        import asyncio

        from horae.context import crew_source

        started_at = self._when.now.replace(second=0, microsecond=0)  # an estimate is not exact
        here = Path.cwd()
        source = crew_source(
            config, started_at=started_at, root=here, data=config.data, inline=True
        )
        assert source is not None, "the settings name one"
        scan = asyncio.run(source.scan({}))
        for problem in scan.problems:
            self._say(problem)
        yield from (each.item for each in scan.entries)

    def _say(self, error: HoraeError) -> None:
        self._output.say(error)
        self._beside_code = self._beside_code or error.exit_code

    def of_root(self, root: str) -> KnownEntries | None:
        if root not in self._known:
            self._known[root] = None if self._knows == "none" else self._read(root)
        return self._known[root]

    def known(self, file: str, entry: Entry) -> Entry:
        """Return an entry of a file whose rule counts as the ledger has it, else from now."""
        known = self.of_file(file) if rules.floating(entry) else None
        if known is None:
            item = rules.anchored_item(entry, now=self._when.now)
        else:
            item = known.joined(entry)
        return item if isinstance(item, Entry) else entry

    def of_file(self, file: str) -> KnownEntries | None:
        """Return what is known of a file's plan root: one that was named, else the next above."""
        if file == "-":
            return None
        whole = os.path.abspath(file)
        for root in self._roots:
            if whole.startswith(f"{root.rstrip(os.sep)}{os.sep}"):
                return self.of_root(self._roots[root])
        is_inside = whole.startswith(f"{os.getcwd()}{os.sep}")
        here = os.path.dirname(os.path.relpath(file) if is_inside else file)
        while not any(os.path.exists(os.path.join(here, name)) for name in (guarded.FILE, _DATA)):
            if not here or not is_inside:
                return None
            here = os.path.dirname(here)
        return self.of_root(here or ".")

    def plan_items(self, source: PlanText) -> Iterator[Entry | Unarmed]:
        """Yield the items of a plan file as they are known; those of a whole root come at once."""
        written = {"file": source.name, "zone_name": self._when.zone}
        known = self.of_file(source.name)
        if known is None:
            for item in entries_of(source.plan, **written):
                yield rules.anchored_item(item, now=self._when.now)
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

    def _read(self, root: str) -> KnownEntries | None:
        """Read the ledger of a root, if there is one."""
        settings = load(root)
        if settings.store is None and not settings.data.is_dir():
            return None
        from horae.cli.connection import NoLedgerError, Place, ask, engine_of
        from horae.client import Client

        try:
            place = Place.of(root=root, data=None)
            engine, entries = engine_of(place), ask(place, lambda ledger: ledger.entries())
        except NoLedgerError:
            return None
        except HoraeError as error:
            self._output.say(error)
            self.ledger_code = self.ledger_code or error.exit_code
            return None
        if self._knows == "ledger" or place.zone.key != self._when.zone:
            engine = replace(engine, is_running=False)  # or the files are read in another zone
        if self._says and self._output.is_text:
            source = "plan files; pauses and last runs from the ledger in {}"
            source = "running engine (ledger in {})" if engine.is_running else source
            echo(f"horae: times from the {source.format(_near(engine.directory))}", err=True)
            if engine.user:
                echo(f"horae: {engine.absence}", err=True)
        is_here = engine.is_running and engine.pid is not None
        if is_here and (idle := Client(place.directory, pid=engine.pid).idle()):
            self._output.say(idle)
        return KnownEntries(root, place, engine, entries, now=self._when.now)


def roots_of(paths: Sequence[str]) -> list[str]:
    """Return the directories that are named, each once; none is this one."""
    named = [path for path in paths or (".",) if path != "-" and os.path.isdir(path)]
    return list(dict.fromkeys(map(os.path.normpath, named)))


def find_boards(paths: Sequence[str]) -> dict[str, Board]:
    found = {}
    for root in roots_of(paths):
        config = load(root)
        tasks = board.find_tasks(root, board=config.board_dir)
        if os.path.isdir(f"{root}/{tasks}"):
            limits = {"limit": config.plan_max_bytes, "most": config.plan_max_files}
            found[root] = board.tasks.Board.below(root, tasks, **limits)
    return found


def pauses_of(root: str, output: Output) -> dict[str, Pause]:
    """Return which entries of a plan root its ledger says are paused, by their addresses."""
    when = When(clock.SystemClock().now(), "UTC")
    known = PlanView([root], output, when, says=False).of_root(root)
    paused = () if known is None else known.there
    return {each.mark.address: each.pause for each in paused if each.pause is not None}


def _near(path: str | os.PathLike[str]) -> str:
    """Return a path from here, if it leads down from here; else as it is."""
    near = os.path.relpath(path)
    return os.fspath(path) if near.startswith("..") else near


def _placed_origin(root: str, origin: Origin) -> Origin:
    if os.path.isabs(origin.file):
        return structs.replace(origin, file=_near(origin.file))
    return origin if root == "." else structs.replace(origin, file=f"{root}/{origin.file}")


def _placed(root: str, item: Entry | Unarmed) -> Entry | Unarmed:
    origin, file, address = _placed_origin(root, item.origin), item.origin.file, item.address
    if address.startswith(f"{file}::"):
        address = f"{origin.file}{address.removeprefix(file)}"
    return structs.replace(item, origin=origin, address=address)


class KnownEntries:
    def __init__(
        self,
        root: str,
        place: Place,
        engine: views.EngineFacts,
        entries: Iterable[ports.Listed],
        *,
        now: datetime,
    ) -> None:
        self.root, self.place, self.engine, self.now = root, place, engine, now
        self.there = [each for each in entries if each.gone_at is None]
        self._by_address = {each.mark.address: each for each in self.there}

    def items(self, file: str | None = None) -> Iterator[Entry | Unarmed]:
        for item in (each.item for each in self.there):
            if not is_net(item) and file in {None, item.origin.file}:
                yield _placed(self.root, item)

    def ticks(self, origin: Origin) -> bool:
        """Tell whether an agent stands there whose next tick the engine knows."""
        ticking = (_placed(self.root, each.item) for each in self.there if _ticks(each.item))
        return self.engine.is_running and origin in {each.origin for each in ticking}

    def joined(self, item: Entry | Unarmed, *, is_broken: bool = False) -> Entry | Unarmed:
        """Return an item of a file with what the ledger knows of it.

        If its text is broken, it is the last good entry that stays armed.
        """
        address, file = item.address, item.origin.file
        if address.startswith(f"{file}::"):  # the ledger calls the file as it is from the root
            name = os.path.relpath(file, self.root).replace(os.sep, "/")
            address = f"{name}{address.removeprefix(file)}"
        found = self._by_address.get(address)
        item = rules.anchored_item(item, now=self.now, was=found.item if found else None)
        if found is None or not isinstance(found.item, Entry):
            return item
        if is_broken:
            if found.broken and found.broken_at is None:  # it was never good
                return item
            return structs.replace(_placed(self.root, found.item), origin=item.origin)
        return _with(item, found.item) if isinstance(item, Entry) else item

    def triggers(
        self, items: Iterable[Entry | Unarmed], *, broken: Collection[str]
    ) -> Iterator[Entry | Unarmed]:
        """Yield the triggers of files as the ledger has them, and those that no file has.

        Of files that are *broken*, or cannot be read, it is the last good trigger.
        """
        left = {each.mark.title: each.item for each in self.there if each.source == "trigger"}
        for item in items:
            found = left.pop(item.title, None)
            if found is None:
                yield item
            elif found.origin.file in broken:
                yield _placed(self.root, found)
            elif isinstance(item, Unarmed):
                yield item
            elif isinstance(found, Entry) and isinstance(item.rule, rules.CronRule):
                yield _with(item, found)
            else:  # a delay has its id, and is disabled when it has run
                yield _placed(self.root, found)
        inside = tuple(f"{each}/" for each in broken)
        for item in left.values():
            file = item.origin.file
            if item.origin.trigger or file in broken or file.startswith(inside):
                yield _placed(self.root, item)


def _ticks(item: Entry | Unarmed) -> bool:
    return isinstance(item, Entry) and isinstance(item.rule, rules.CadenceRule)


def _with(item: Entry, known: Entry) -> Entry:
    rule, was = item.rule, known.rule
    is_same = rule == was and item.zone == known.zone  # else it begins when an engine reads it
    if isinstance(rule, rules.CadenceRule) and isinstance(was, rules.CadenceRule):
        rule = structs.replace(rule, ticks=was.ticks, streak=was.streak, failures=was.failures)
    accounted_to = known.accounted_to if is_same else None
    item = structs.replace(item, rule=rule, number=known.number, accounted_to=accounted_to)
    return structs.replace(item, ended_at=known.ended_at, pause=known.pause)


# What the ledger does not know


@dataclass(frozen=True, slots=True)
class WrittenEntry:
    """A headline, task or trigger as it is written, and what can be said of it."""

    item: Entry | Unarmed
    zone: str
    now: datetime
    broken: str = ""  # why its text cannot be read, if it cannot
    twin: Origin | None = None  # of another entry with its :ID:
    shown_zone: str = ""  # of its next time, if that is not shown in its own zone
    cannot_run: str = ""  # why its command cannot start here, if it cannot
    asked_at: datetime | None = None  # the time that is asked about

    @property
    def next_at(self) -> datetime | None:
        coming = project.next_moment(self.item, self.now) if isinstance(self.item, Entry) else None
        return coming.at if coming else None

    @property
    def said(self) -> str:
        if not isinstance(self.item, Entry):
            return f"it does not run: {self.item.reason}"
        if self.twin is not None:
            return f"it does not run: {self.twin} has the same :ID:; give one of them another :ID:"
        way = "start the engine with `horae up`"
        said = f"no engine has read the entry yet, so it has no receipts; {way}"
        if self.next_at is None:
            is_timed = not isinstance(
                self.item.rule, rules.OnDemandRule | rules.AfterRule | rules.CadenceRule
            )
            return text.no_time_left(self.item, self.now) if is_timed else said
        zone = self.shown_zone or self.zone
        next_at = text.moment_text(self.next_at, zone)
        if isinstance(self.item.rule, rules.CadenceRule):
            return f"{said}; if it started now, the next tick would be at {next_at} (an estimate)"
        if self.asked_at is not None:
            coming = project.next_moment(self.item, self.asked_at - project.TINY)
            first = text.moment_text(coming.at, zone) if coming else "none"
            asked = text.moment_text(self.asked_at, zone)
            return f"{said}; its first scheduled time from {asked} on is {first}"
        return f"{said}; its next scheduled time is {next_at}"

    @property
    def line(self) -> views.EntryLine:
        item, rule, reason = self.item, "", ""
        if isinstance(item, Entry):
            rule = text.words(item.rule, zone_name=self.zone)
        else:
            reason = item.reason
        source = _SOURCES.get(item.address.partition(":")[0], "org")
        return views.shaped(
            views.EntryLine,
            self.zone,
            item,
            item.origin,
            self,
            entry=0,
            source=source,
            armed=False,
            rule=rule or None,
            reason=reason or None,
            first_seen_at=self.now,
            gone_at=None,
            pause=None,
            failures=0,
            broken=self.broken or None,
            broken_at=None,
        )

    def print(self) -> None:
        echo(f"{self.item.title}  {self.item.origin}")
        if isinstance(self.item, Entry):
            echo(text.with_zone(self.line.rule or "", self.zone))
            if self.broken:
                echo(f"broken: {self.broken}")
            if self.cannot_run:
                echo(f"cannot run: {self.cannot_run}")
        echo(f"\n{self.said}")

    def why_data(self) -> dict[str, Any]:
        answers = [explain.bare_line(self.said, is_moment=False)]
        why = explain.why_lines(self.line, answers, now=self.now, cannot_run=self.cannot_run)
        return {**to_builtins(why), "entry": unread_data(self.line)}


def unread_data(line: views.EntryLine) -> dict[str, Any]:
    """Return the line of an entry that no engine has read yet, as plain data."""
    return {**to_builtins(line), "entry": None, "first_seen_at": None}


def look_up(word: str, place: Place, output: Output, *, now: datetime) -> list[WrittenEntry]:
    if not os.path.isdir(place.root):
        return []
    zone_name = place.zone.key
    items: list[Entry | Unarmed] = []
    broken: dict[Origin, str] = {}
    first: dict[str, Origin] = {}
    cannot: dict[Origin, str] = {}
    for source in Sources((place.root,), output, may_be_empty=True):
        name = os.path.relpath(source.name, place.root).replace(os.sep, "/")
        called = [*_called(source._replace(name=name), word, place)]
        items += called
        for each in entries_of(source.plan, file=name, zone_name=zone_name):
            if isinstance(each, Entry):  # the first of several with one :ID: is armed
                first.setdefault(each.address, each.origin)
        for one in scan_plan(source.plan, file=name, zone_name=zone_name) if called else ():
            broken[one.item.origin] = one.broken
        if any(isinstance(each, Entry) for each in called):
            for headline, spot in zip(source.plan.headlines, source.plan.places(), strict=True):
                cannot[Origin(name, spot.line)] = _why_unready(headline, source.name)
    if not any(isinstance(each, Entry) for each in items):
        view = PlanView((place.root,), output, When(now, zone_name), knows="none")
        beside = [
            item
            for item in view.beside
            if word.casefold() in {item.title.casefold(), item.origin.place}
        ]
        if beside:  # a heading of the manifest or a definition of an agent is no entry by itself
            items = [each for each in items if each.address != each.origin.place]
        items += beside
    found = []
    for item in items:
        zone = item.zone if isinstance(item, Entry) else zone_name
        at = first.get(item.address)
        twin = None if at == item.origin else at
        counted = rules.anchored_item(item, now=now)
        why = broken.get(item.origin, "")
        shown_zone = zone_name if zone == "UTC" else zone  # as `list` and `next` show it
        unready = cannot.get(item.origin, "")
        found.append(WrittenEntry(counted, zone, now, why, twin, shown_zone, unready))
    return found


def _why_unready(headline: Headline, file: str) -> str:
    """Return why the program of a headline cannot start on this machine; empty if it can."""
    call = None
    with suppress(command.CommandError):  # the entry is not armed, and says why
        call = command.call_of(headline.props)
    if call is None or "HOST" in headline.props:
        return ""
    where = os.path.dirname(file) or "."
    why = why_unready(call.argv, directory=where, environ=os.environ, variables=call.variables)
    return "" if why is None else str(why)


def _called(source: PlanText, word: str, place: Place) -> Iterator[Entry | Unarmed]:
    wanted = {word.casefold()}
    file, _, line = word.rpartition(":")
    if file and text.is_number(line):
        number, files = int(line), {*names_of(place.root, file), posixpath.normpath(file)}
        wanted |= {f"{each}:{line}".casefold() for each in files}
        own = {"file": source.name, "zone_name": place.zone.key}
        if source.name in files and (found := item_at(source.plan, number, **own)):
            wanted.add(found[0].origin.place.casefold())
    told = set()
    for item in entries_of(source.plan, file=source.name, zone_name=place.zone.key):
        title = item.title.removeprefix("COMMENT ").strip()
        names = (item.title, title, item.origin.place)
        # An :ID: is written as it is, and the ledger names those that are near.
        if wanted & {each.casefold() for each in names} or item.address == f"id:{word}":
            told.add(item.origin)
            yield item
    # A headline with a void drawer is an entry by what was meant, and none by what is read.
    others = unfired(source.plan, wanted, file=source.name)
    yield from (each for each in others if each.origin not in told)


def crew_of(root: str) -> dict[str, tuple[str, ...]]:
    """Return who gets tasks in a plan root, each with its roles, as far as that can be read."""
    config = load(root)
    if config.crew_def is None:
        return dict.fromkeys(config.board_members, ())
    try:
        return {each.name: each.roles for each in crew.source.Roster(config.crew_def).members()}
    except PlanFileError:
        return {}
