"""What people see: rows of headlines, trees of worlds, lists of findings."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from horae.cli.output import clean
from horae.org.plan import Severity
from horae.org.world import every, worlds

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from horae.cli.sources import PlanText
    from horae.org.plan import Diagnostic, Headline, Plan
    from horae.org.timestamp import Timestamp
    from horae.org.world import World

_SHOWN = 80
_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}


def safe(text: str, style: str = "") -> Text:
    """Return text for a table, with nothing in it that a terminal would obey."""
    return Text(clean(text).replace("\n", "\\n"), style=style)


def console() -> Console:
    """Return where people read; NO_COLOR and the width of the terminal are honoured."""
    return Console(width=None if sys.stdout.isatty() else 120, highlight=False)


def print_headlines(shown: Iterable[tuple[str, Headline]]) -> None:
    """Print one row per headline, with where it stands."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("where", "state", "headline", "tags", "scheduled", "deadline"):
        table.add_column(name, overflow="fold")
    for where, headline in shown:
        cron = headline.props.get("SCHEDULE")
        table.add_row(
            safe(where, style="dim"),
            safe(headline.state or ""),
            safe("  " * min(headline.level - 1, 12) + headline.title),
            safe(" ".join(headline.tags), style="green"),
            safe(cron or _stamp(headline.scheduled)),
            safe(_stamp(headline.deadline)),
        )
    console().print(table if table.row_count else safe("no headlines", style="dim"))


def print_worlds(source: PlanText) -> None:
    """Print the worlds of a plan as trees: schedule, components, what goes where."""
    found = worlds(source.plan)
    trees: dict[int, Tree] = {}
    for world in every(found):
        tree = trees.setdefault(world.at, Tree(_title(source.plan.headlines[world.at])))
        _grow(tree, world)
        for child in world.workflows:
            trees[child.at] = tree.add(_title(source.plan.headlines[child.at]))
    screen = console()
    screen.print(safe(source.name, style="dim"))
    for world in found:
        screen.print(trees[world.at])
    if not found:
        screen.print(safe("no workflows", style="dim"))


def print_findings(found: Sequence[Diagnostic], plans: Mapping[str, Plan]) -> None:
    """Print a line per finding, its words and its fix under it, and how many there are."""
    screen = console()
    for each in found:
        line = safe(f"{each.file}:{each.line}:{each.column}: ", style="dim")
        line.append(each.severity, style=_STYLES[each.severity])
        line.append(f" {each.code}: ", style="bold")
        line.append(safe(each.message, style="not dim"))
        screen.print(line, soft_wrap=True)
        if each.width:
            for row in _pointed(each, plans[each.file]):
                screen.print(safe(f"    {row}", style="dim"), soft_wrap=True)
        if each.fix is not None:
            screen.print(safe(f"    → {each.fix}", style="green"), soft_wrap=True)
    screen.print(_summary(found, len(plans)), soft_wrap=True)


def _pointed(found: Diagnostic, plan: Plan) -> tuple[str, str]:
    """Return the line that a finding is about, and a line with carets under its words."""
    line = plan.text().split("\n")[found.line - 1].rstrip("\r")
    first = max(0, found.column - 1 - _SHOWN // 2)
    shown = line[first : first + _SHOWN].expandtabs(1)
    indent = found.column - 1 - first
    return shown, " " * indent + "^" * max(1, min(found.width, len(shown) - indent))


def _summary(found: Sequence[Diagnostic], files: int) -> str:
    """Return how many findings of each kind there are, and in how many files.

    >>> _summary([], 3)
    '3 files checked, no problems'
    """
    files = len({each.file for each in found}) or files
    if not files:
        return "no file was checked"
    where = f"{files} file{'s' * (files != 1)}"
    counts = [(kind, sum(each.severity is kind for each in found)) for kind in Severity]
    words = [f"{count} {kind}{'s' * (count != 1)}" for kind, count in counts if count]
    return f"{', '.join(words)} in {where}" if words else f"{where} checked, no problems"


def _title(headline: Headline) -> Text:
    """Return a workflow's name with its schedule."""
    title = safe(headline.title, style="bold")
    return title.append(safe(f"  {_schedule(headline)}", style="not bold cyan"))


def _grow(tree: Tree, world: World) -> None:
    """Add a world's components, and what it imports and exports, to its tree."""
    for component in world.components:
        lang = component.block.lang if component.block else "no source"
        line = safe(component.name).append(safe(f"  {lang}", style="dim"))
        if component.takes:
            line.append(safe(f"  ← {component.takes}", style="dim"))
        if component.puts:
            line.append(safe(f"  → {component.puts}", style="dim"))
        tree.add(line)
    for word, names in (("imports", world.imports), ("exports", world.exports)):
        if names:
            tree.add(safe(f"{word} {' '.join(names)}", style="dim"))


def _schedule(headline: Headline) -> str:
    if "SCHEDULE" in headline.props:
        return f"cron {headline.props['SCHEDULE']}"
    stamp = headline.scheduled
    if stamp is None:
        return "no schedule"
    return _stamp(stamp) + ("" if stamp.active else " (a note, not armed)")


def _stamp(stamp: Timestamp | None) -> str:
    """Return a stamp for a table cell; a note is in square brackets."""
    if stamp is None:
        return ""
    text = " ".join(filter(None, [stamp.at.replace("T", " "), stamp.repeat]))
    return text if stamp.active else f"[{text}]"
