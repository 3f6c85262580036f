"""What the engine or the ledger of a plan root knows of its entries: pauses, last ends, triggers.

While an engine runs, its entries are shown, as it is the engine that fires them. Without one
the plan files are read as the next engine would read them, and each entry gets from the ledger
what no file says: that it is paused, and when its last run ended.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from horae.cli.output import Form, echo
from horae.config import load
from horae.core.entry import CadenceRule, CronRule, Entry, Unarmed
from horae.core.guarded import FILE
from horae.errors import Exit, HoraeError
from horae.sources.plans.arming import entries_of, scan_plan

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from horae.cli.connection import Place
    from horae.cli.output import Output
    from horae.cli.sources import PlanText
    from horae.core.entry import Origin, Pause
    from horae.core.ports import Listed
    from horae.core.views import EngineFacts

_DATA: Final = ".horae"
_TRIGGER: Final = "trigger"


class KnownEntries:
    """The entries of one plan root as its ledger has them."""

    def __init__(
        self, root: str, place: Place, engine: EngineFacts, entries: Iterable[Listed]
    ) -> None:
        self.root = root
        self.place = place
        self.engine = engine
        self._there = [each for each in entries if each.gone_at is None]
        self._by_address = {each.mark.address: each for each in self._there}
        self._triggers = {each.mark.title: each for each in self._there if each.source == _TRIGGER}

    def items(self, file: str | None = None) -> Iterator[Entry | Unarmed]:
        """Yield what the engine fires, or lists as not armed; of one file or of all."""
        from horae.sources.board.recycle import is_net

        for each in self._there:
            item = each.item
            is_shown = not isinstance(item, Entry) or not is_net(item)
            if is_shown and file in {None, item.origin.file}:
                yield self._placed(item)

    def pauses(self) -> dict[str, Pause]:
        """Return the pauses of entries, by address."""
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
        found = self._by_address.get(self._address(item))
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
        left = dict(self._triggers)
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

    def _address(self, item: Entry | Unarmed) -> str:
        """Return how the ledger calls an item of a file, which begins with the file's name."""
        file = item.origin.file
        if not item.address.startswith(f"{file}::"):
            return item.address
        name = os.path.relpath(file, self.root).replace(os.sep, "/")
        return f"{name}{item.address.removeprefix(file)}"

    def _placed(self, item: Entry | Unarmed) -> Entry | Unarmed:
        """Return an item where it stands for whoever named the root."""
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
        self,
        paths: Sequence[str],
        output: Output,
        *,
        zone_name: str,
        is_engine_asked: bool = True,
    ) -> None:
        self._is_engine_asked = is_engine_asked
        named = map(os.path.normpath, paths or (".",))
        self._roots = {os.path.abspath(each): each for each in named if os.path.isdir(each)}
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
        """Return the pauses of a plan root's entries, by address."""
        known = self.of_root(root, says=False)
        return {} if known is None else known.pauses()

    def of_file(self, file: str) -> KnownEntries | None:
        """Return what is known of the root that a plan file belongs to."""
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
        if not _ticks(entry):
            return False
        return not any(each.ticks(entry.origin) for each in self._known.values() if each)

    def _root_of(self, file: str) -> str | None:
        """Return the plan root of a file: a directory that was named, else the nearest above."""
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
        from horae.cli.connection import NoLedgerError, Place, engine_of, known_entries

        try:
            place = Place.of(root=root, data=None)
            engine, entries = engine_of(place), known_entries(place)
        except NoLedgerError:
            return None
        except HoraeError as error:
            self._output.say(error)
            self.exit_code = self.exit_code or error.exit_code
            return None
        if not self._is_engine_asked or place.zone.key != self._zone:
            engine = replace(engine, is_running=False)  # or the files are read in another zone
        if says and self._output.form is Form.TABLE:
            echo(f"horae: {_source(engine)}", err=True)
        if engine.is_running and engine.pid is not None:
            from horae.cli.client import Far

            if (idle := Far(place.directory, pid=engine.pid).idle()) is not None:
                self._output.say(idle)
        return KnownEntries(root, place, engine, entries)


def _ticks(item: Entry | Unarmed) -> bool:
    return isinstance(item, Entry) and isinstance(item.rule, CadenceRule)


def _source(engine: EngineFacts) -> str:
    """Return where the times come from, in words."""
    where = _near(engine.directory)
    if engine.is_running:
        return f"times from the running engine (ledger in {where})"
    return f"times from the plan files; pauses and last runs from the ledger in {where}"


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


def _near(path: str) -> str:
    """Return a path from here, if it leads down from here; else as it is."""
    near = os.path.relpath(path)
    return path if near.startswith("..") else near
