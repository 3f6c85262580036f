"""The entries of plan roots: as an engine has them, or as one would that reads the files now.

Without an engine a ledger in memory takes over the files, as an engine does when it starts. It
begins with the entries of the ledger of the plan root, if there is one; nothing is written.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime, timedelta
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from msgspec import structs

from horae.cli.moments import moment_and_zone
from horae.cli.output import Output, echo
from horae.cli.sources import PlanText, Sources, plan_root
from horae.config import load
from horae.core import guarded, views
from horae.core.clock import SystemClock
from horae.core.entry import CadenceRule, Entry, OnceRule, Origin, Pause, PlanTask, Unarmed, is_net
from horae.core.ports import Listed, receipts_of
from horae.core.source import Mark, Scan, Scanned
from horae.core.text import is_number
from horae.errors import Exit, HoraeError
from horae.files.read import PlanFileError, names_of
from horae.sources import board, crew, triggers
from horae.sources.plans.arming import doubles, scan_plan, tasks_of, unfired
from horae.store.lock import engine_zone
from horae.store.sqlite import SqliteLedger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from horae.cli.connection import Place
    from horae.core.receipt import Filed
    from horae.core.service import Service
    from horae.sources.board.tasks import Board

T = TypeVar("T")
Item = TypeVar("Item", bound=Entry | Unarmed)
ORG: Final = "org"  # the source that plans are of
_DATA: Final = ".horae"
_ALL: Final = 2**63


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


class RootView(NamedTuple):
    """The entries of a plan root, or of files that belong to none."""

    root: str  # as it was named; empty: none
    plans: Mapping[str, PlanText]  # that were read, by their names in the root
    entries: Sequence[Listed]
    filed: Sequence[Filed] = ()  # what was decided about them when the files were taken over
    is_live: bool = False  # an engine has them
    place: Place | None = None  # of the ledger that knows them
    known_to: int = 0  # the last number of an entry there

    def item(self, each: Listed) -> Entry | Unarmed:
        """Return the item of an entry, named from here, with what the ledger of the root knows."""
        file, plan = each.item.origin.file, self.plans.get(each.item.origin.file)
        item = called(each.item, _placed(self.root, file) if plan is None else plan.name)
        if each.number <= self.known_to:
            return item
        if each.source == "trigger":  # its id is drawn when an engine reads it
            item = structs.replace(item, address=f"trigger:{item.title}")
        if isinstance(item, Unarmed):
            return item
        rule = item.rule
        if isinstance(rule, OnceRule) and rule.delay is not None and each.source == "trigger":
            rule = structs.replace(rule, delay=item.title)
        return structs.replace(item, rule=rule, number=0, accounted_to=None, ended_at=None)


class PlanView:
    """All that has a time in the files and the directories that were named, read once.

    What cannot be read is said, and the rest goes on. *knows* is who is asked besides the files:
    the `engine` that runs, else the ledger; the `ledger` alone; the ledger, of `plans` alone; or
    `none`. *says* prints which.
    """

    def __init__(
        self,
        paths: Sequence[str],
        output: Output,
        when: When,
        *,
        knows: str = "engine",
        says: bool = True,
        may_be_empty: bool = False,
    ) -> None:
        self._output, self._when, self._knows, self._says = output, when, knows, says
        self._named = {os.path.abspath(each): each for each in roots_of(paths)}
        roots = self._named.values()
        may_be_empty |= any(_has_more(each) or load(each).data.is_dir() for each in roots)
        self._sources = Sources(paths, output, may_be_empty=may_be_empty)
        self._beside_code = self.ledger_code = int(Exit.OK)

    @property
    def exit_code(self) -> int:
        return self._sources.exit_code or self._beside_code or self.ledger_code

    @cached_property
    def plans(self) -> dict[str, PlanText]:
        return {each.name: each for each in self._sources}

    @cached_property
    def roots(self) -> list[RootView]:
        roots: dict[str, dict[str, PlanText]] = {root: {} for root in self._named.values()}
        for name, plan in self.plans.items():
            root = self._root_of(name)
            roots.setdefault(root, {})[os.path.relpath(name, root) if root else name] = plan
        return [self._view(root, plans) for root, plans in roots.items()]

    def items(self, *, beside: bool | None = None) -> Iterator[Entry | Unarmed]:
        """Yield entries; only those of plan files, or only others, as *beside* says."""
        for view in self.roots:
            for each in self.listed(view):
                if beside is None or beside == (each.source != ORG):
                    yield view.item(each)

    def listed(self, view: RootView) -> Iterator[Listed]:
        """Yield the entries of a root that stand in what was named."""
        is_whole = view.root in self._named.values()
        for each in view.entries:
            is_read = is_whole or each.item.origin.file in view.plans
            if is_read and each.gone_at is None and not is_net(each.item):
                yield each

    def entries(self) -> Iterator[Entry]:
        return (item for item in self.items() if isinstance(item, Entry))

    def tasks(self) -> Iterator[PlanTask]:
        """Yield what has a date and nothing to run, in plan files and on boards."""
        for each in self.plans.values():
            yield from tasks_of(each.plan, file=each.name, zone_name=self._when.zone)
        boards = find_boards([*self._named.values()]) if self._named else {}
        for root, tasks in boards.items():
            for task in board.source.waiting_tasks(tasks, now=self._when.now):
                origin = Origin(_placed(root, task.origin.file), task.origin.line)
                yield structs.replace(task, origin=origin)

    @cached_property
    def _by_origin(self) -> dict[Origin, Entry | Unarmed]:
        return {each.origin: each for each in self.items(beside=False)}

    def known(self, item: Item) -> Item:
        """Return an entry of a file as the engine or the ledger has it, or would have it."""
        known = self._by_origin.get(item.origin)
        return known if isinstance(known, type(item)) else item

    def is_guess(self, entry: Entry) -> bool:
        """Tell whether the next tick of an agent is not known, as no engine runs."""
        live = (
            each for view in self.roots if view.is_live for each in map(view.item, view.entries)
        )
        return isinstance(entry.rule, CadenceRule) and entry not in live

    def _root_of(self, file: str) -> str:
        """Return the plan root of a file: one that was named, else the next above; empty: none."""
        whole = os.path.abspath(file)
        is_inside = whole.startswith(f"{os.getcwd()}{os.sep}")
        if file == "-":
            return ""
        for root, name in self._named.items():
            if whole.startswith(f"{root.rstrip(os.sep)}{os.sep}"):
                return name
        here = os.path.dirname(os.path.relpath(file) if is_inside else file)
        while not any(os.path.exists(os.path.join(here, name)) for name in (guarded.FILE, _DATA)):
            if not here or not is_inside:
                return ""
            here = os.path.dirname(here)
        return here or "."

    def _view(self, root: str, plans: Mapping[str, PlanText]) -> RootView:
        settings = load(root) if root and self._knows != "none" else None
        if settings is not None and (settings.store is not None or settings.data.is_dir()):
            from horae.cli import connection  # loads the client

            try:
                place = connection.Place.of(root=root, data=None)
                engine = connection.engine_of(place)
                is_live = engine.is_running and self._knows == "engine"
                is_live = is_live and place.zone.key == self._when.zone  # or it reads anew
                if is_live or place.store is not None:  # which cannot be copied
                    known = connection.ask(place, lambda ledger: ledger.entries())
                    view = RootView(root, plans, known, (), is_live, place, _ALL)
                else:
                    view = asyncio.run(self._taken_over(root, plans, place))
                self._tell(engine, is_live=is_live)
            except connection.NoLedgerError:
                pass
            except HoraeError as error:
                self._output.say(error)
                self.ledger_code = self.ledger_code or error.exit_code
            else:
                return view
        return asyncio.run(self._taken_over(root, plans, None))

    def _tell(self, engine: views.EngineFacts, *, is_live: bool) -> None:
        if self._says and self._output.is_text:
            source = "plan files; pauses and last runs from the ledger in {}"
            source = "running engine (ledger in {})" if is_live else source
            echo(f"horae: times from the {source.format(_near(engine.directory))}", err=True)
            if engine.user:
                echo(f"horae: {engine.absence}", err=True)
        from horae.client import Client

        client = Client(Path(engine.directory), pid=engine.pid)
        if is_live and engine.pid is not None and (idle := client.idle()):
            self._output.say(idle)

    async def _taken_over(
        self, root: str, plans: Mapping[str, PlanText], place: Place | None
    ) -> RootView:
        async with self.taking_over(root, plans, place) as (ledger, entries, known_to):
            filed = await receipts_of(ledger, ())
        return RootView(root, plans, entries, filed, place=place, known_to=known_to)

    @asynccontextmanager
    async def taking_over(
        self, root: str, plans: Mapping[str, PlanText], place: Place | None, *, word: str = ""
    ) -> AsyncIterator[tuple[SqliteLedger, list[Listed], int]]:
        """Give a ledger in memory that has read the files, its entries, and the last known number.

        If nothing that it has goes by *word*, headlines do that are no entries.
        """
        async with AsyncExitStack() as stack:
            make = SqliteLedger.in_memory
            if place is not None and place.store is None:
                from horae.cli import connection

                known = await stack.enter_async_context(connection.reader_of(place))
                assert isinstance(known, SqliteLedger), "it is not shared"
                make = known.draft
            ledger = await make()
            stack.push_async_callback(ledger.close)
            numbers = await ledger.read(
                lambda tx: tx.execute("SELECT max(number) FROM entry").fetchone()
            )
            org, now = _ReadPlans(root, plans, self._when.zone), self._when.now
            scan = partial(ledger.scan, ORG, now=now, term=1, patience=timedelta(0))
            is_whole = self._knows != "plans" and root in self._named.values()
            if is_whole and (place is not None or _has_more(root)):
                from horae.cli.connection import CommandClock  # a plan file alone needs none
                from horae.context import Context

                clock = CommandClock(now)
                config, path = load(root), Path(root).absolute()
                context = Context(config, path, clock, ledger, zone=self._when.zone)
                prefix = "" if root == "." else f"{root}/"
                for problem in await context.take_over(org, at=prefix):
                    self._output.say(problem)
                    self._beside_code = self._beside_code or problem.exit_code
            else:
                await scan(await org.scan(await ledger.index(ORG)))
            entries = await ledger.entries()
            if left := [*org.left_out(entries, word)]:
                await scan(Scan(tuple(left), ("",)))
                entries = await ledger.entries()
            yield ledger, entries, numbers[0] or 0


class _ReadPlans:
    """Plan files that were read, as a source of entries."""

    name: Final = ORG
    settle = None

    def __init__(self, root: str, plans: Mapping[str, PlanText], zone_name: str) -> None:
        self._root, self._plans = root, plans
        own = (scan_plan(each.plan, file=file, zone_name=zone_name) for file, each in plans.items())
        self._found = [*chain.from_iterable(own)]

    async def scan(self, index: Mapping[str, str]) -> Scan:
        others = (file for file in index if file not in self._plans)
        standing = (file for file in others if os.path.lexists(os.path.join(self._root, file)))
        return Scan(tuple(self._found), tuple(standing))

    def left_out(self, entries: Sequence[Listed], word: str) -> Iterator[Scanned]:
        """Yield what a ledger does not arm: others with the same address, and no entries."""
        there = [each for each in entries if each.source == ORG and each.gone_at is None]
        first = {each.mark.address: each.item.origin for each in there}
        behind = {each.origin: each for each in doubles(self._found, first)}
        origins, wanted = {*first.values()}, {word.casefold()}
        for item in (each.item for each in self._found if each.item.origin not in origins):
            yield _unarmed(behind.get(item.origin, item), item.origin.place)
        file, _, line = word.rpartition(":")
        if file and is_number(line):
            wanted |= {f"{each}:{line}".casefold() for each in names_of(self._root, file)}
        items = [*(each.item for each in entries), *(each.item for each in self._found)]
        titles = {each.title.casefold(): each for each in items}
        places = {each.origin.place.casefold() for each in items}
        if not word or wanted & (titles.keys() | places):
            return
        for title, item in titles.items():
            if title.removeprefix("comment ").strip() in wanted:
                yield _unarmed(item, f"id:{word}")
        for file, text in self._plans.items():
            for found in unfired(text.plan, wanted, file=file):
                is_called = wanted & {found.title.casefold(), found.origin.place.casefold()}
                yield _unarmed(found, found.address if is_called else f"id:{word}")


def _unarmed(item: Entry | Unarmed, address: str) -> Scanned:
    item = structs.replace(item, address=address)
    return Scanned(Mark(address, item.title, "", ""), item)


def ask_files(
    place: Place,
    work: Callable[[Service], Awaitable[T]],
    output: Output,
    *,
    at: datetime | None = None,
    word: str = "",
) -> T:
    """Return what the service says of the files of a plan root, as if an engine had read them now.

    A headline that is called *word* and is no entry is one that is not armed.
    """
    from horae.cli import connection

    now = at or SystemClock().now()
    view = PlanView((place.root,), output, When(now, place.zone.key), may_be_empty=bool(word))
    plans = {os.path.relpath(name, place.root): plan for name, plan in view.plans.items()}

    async def asking() -> T:
        known = place if place.is_known else None
        async with view.taking_over(os.path.normpath(place.root), plans, known, word=word) as found:
            clock = connection.CommandClock(at)
            return await work(connection.service_of(found[0], place, reads=clock, is_new=True))

    return asyncio.run(asking())


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


def _has_more(root: str) -> bool:
    """Tell whether a plan root has more than plan files."""
    config = load(root)
    has_crew = (config.crew_def or config.keeper_def) is not None
    return has_crew or os.path.isdir(f"{root}/{triggers.FOLDER}") or bool(find_boards([root]))


def pauses_of(root: str, output: Output) -> dict[str, Pause]:
    """Return which entries of a plan root its ledger says are paused, by their addresses."""
    from horae.cli import connection

    try:
        place = connection.Place.of(root=root, data=None)
        known = connection.ask(place, lambda ledger: ledger.entries()) if place.is_known else []
    except HoraeError as error:
        output.say(error)
        return {}
    there = (each for each in known if each.gone_at is None)
    return {each.mark.address: each.pause for each in there if each.pause is not None}


def _near(path: str | os.PathLike[str]) -> str:
    """Return a path from here, if it leads down from here; else as it is."""
    near = os.path.relpath(path)
    return os.fspath(path) if near.startswith("..") else near


def _placed(root: str, file: str) -> str:
    if os.path.isabs(file):
        return _near(file)
    return file if root in {"", "."} else f"{root}/{file}"


def called(item: Entry | Unarmed, file: str) -> Entry | Unarmed:
    """Return an item with another name of its file."""
    was, address = item.origin.file, item.address
    if address.startswith(f"{was}::"):
        address = f"{file}{address.removeprefix(was)}"
    return structs.replace(item, origin=Origin(file, item.origin.line), address=address)


def crew_of(root: str) -> dict[str, tuple[str, ...]]:
    """Return who gets tasks in a plan root, each with its roles, as far as that can be read."""
    config = load(root)
    if config.crew_def is None:
        return dict.fromkeys(config.board_members, ())
    try:
        return {each.name: each.roles for each in crew.source.Roster(config.crew_def).members()}
    except PlanFileError:
        return {}
