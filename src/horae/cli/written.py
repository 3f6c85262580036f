"""What plans say of a headline that the ledger does not know: whether it fires, and why not."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from horae.cli.output import echo
from horae.cli.plan_root import beside
from horae.cli.sources import Sources
from horae.core.entry import Entry
from horae.core.explain import stamp
from horae.core.project import next_moment
from horae.core.text import moment_text, words
from horae.sources.plans.arming import entries_of, scan_plan, unfired

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from horae.cli.connection import Place
    from horae.cli.output import Output
    from horae.cli.sources import PlanText
    from horae.core.entry import Origin, Unarmed


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
            return said
        return f"{said}; its next scheduled time is {moment_text(self.next_at, self.zone)}"

    def print(self) -> None:
        echo(f"{self.item.title}  {self.item.origin}")
        if isinstance(self.item, Entry):
            echo(f"{words(self.item.rule, zone_name=self.zone)} ({self.zone})")
            if self.broken:
                echo(f"broken: {self.broken}")
        echo(f"\n{self.said}")

    def entry_data(self) -> dict[str, object]:
        """Return the entry as plain data, in the shape of one of the ledger."""
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

    def data(self) -> dict[str, object]:
        """Return it as plain data, in the shape of an answer of the ledger."""
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


def look_up(word: str, place: Place, output: Output, *, now: datetime) -> list[WrittenEntry]:
    """Return what goes by a word in the files of a plan root."""
    if not os.path.isdir(place.root):
        return []
    zone_name = place.zone.key
    items: list[tuple[Entry | Unarmed, str]] = []
    broken: dict[Origin, str] = {}
    by_id: dict[str, list[Origin]] = {}
    for source in Sources((place.root,), output, may_be_empty=True):
        name = os.path.relpath(source.name, place.root).replace(os.sep, "/")
        called = [(item, "org") for item in _called(source, word, place, zone_name)]
        items += called
        for each in entries_of(source.plan, file=name, zone_name=zone_name):
            by_id.setdefault(each.address, []).append(each.origin)
        for found in scan_plan(source.plan, file=name, zone_name=zone_name) if called else ():
            broken[found.item.origin] = found.broken
    if not items:
        for item in beside((place.root,), output, now=now).items:
            if word.casefold() in {item.title.casefold(), str(item.origin)}:
                items.append((item, SOURCES[item.address.partition(":")[0]]))
    return [
        WrittenEntry(
            item,
            item.zone if isinstance(item, Entry) else zone_name,
            now,
            source,
            broken.get(item.origin, ""),
            next((at for at in by_id.get(item.address, ()) if at != item.origin), None),
        )
        for item, source in items
    ]


SOURCES: Final = {"task": "board", "trigger": "trigger", "agent": "crew"}


def _called(source: PlanText, word: str, place: Place, zone_name: str) -> Iterator[Entry | Unarmed]:
    """Yield what goes by a word in one plan: entries, and headlines that never fire."""
    name = os.path.relpath(source.name, place.root).replace(os.sep, "/")
    wanted = {word.casefold()}
    file, _, line = word.rpartition(":")
    if file:
        wanted |= {f"{each}:{line}".casefold() for each in place.files(file)}
    told = set()
    for item in entries_of(source.plan, file=name, zone_name=zone_name):
        title = item.title.removeprefix("COMMENT ").strip()
        names = (item.title, title, str(item.origin))
        # An :ID: is written as it is, and the ledger names those that are near.
        if wanted & {each.casefold() for each in names} or item.address == f"id:{word}":
            told.add(item.origin)
            yield item
    # A headline with a void drawer is an entry by what was meant, and none by what is read.
    yield from (each for each in unfired(source.plan, wanted, file=name) if each.origin not in told)
