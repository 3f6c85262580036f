"""`query` and `tangle`: what is written, and what it resolves to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import click

from horae.cli import output as printing
from horae.cli.options import at_option, option, paths_argument
from horae.cli.output import Output, print_json, print_line, safe
from horae.cli.sources import PlanText, Sources, plan_root
from horae.org.document import row
from horae.org.plan import Headline, States, is_overdue

if TYPE_CHECKING:
    from rich.text import Text
    from rich.tree import Tree

    from horae.org.plan import Timestamp
    from horae.org.world import World


@click.command()
@paths_argument
@option(
    "--tag", "Only headlines with this tag; repeat to require several.", name="tags", multiple=True
)
@option(
    "--state", "Only headlines in this state; repeat for several.", name="states", multiple=True
)
@click.option("--scheduled", is_flag=True, help="Only headlines with SCHEDULED or :SCHEDULE:.")
@click.option("--overdue", is_flag=True, help="Only open headlines whose DEADLINE is past.")
@option("--prop KEY=VALUE", "Only headlines with this property.", name="props", multiple=True)
@at_option
@printing.form_options
def query(
    paths: tuple[str, ...],
    *,
    tags: tuple[str, ...],
    states: tuple[str, ...],
    scheduled: bool,
    overdue: bool,
    props: tuple[str, ...],
    at: str | None,
    output: Output,
) -> int:
    """Show the fields of each headline.

    In JSON, one FILE (or - for standard input) gives the list of its headlines; a DIR or several
    paths give one object per file, {"file": ..., "data": [...]}. Without a path the plans in the
    current directory are read.
    """
    sources = Sources(paths, output)
    is_late: Callable[[Timestamp], bool] | None = None
    if overdue:
        from horae.cli.moments import moment_and_zone  # loads zones

        now, zone = moment_and_zone(at, root=plan_root(paths))
        is_late = partial(is_overdue, now=now, zone=zone)
    elif at is not None:
        raise click.UsageError("--at requires --overdue.")
    pairs = []
    for each in props:
        key, equals, value = each.partition("=")
        if not equals or not key:
            raise click.UsageError(f"--prop takes KEY=VALUE, not {each!r}.")
        pairs.append((key.upper(), value.strip()))  # in capitals, as the reader has keys

    def keeps(headline: Headline, known: States) -> bool:
        due, is_open = headline.deadline, headline.state not in known.done
        return (
            set(tags) <= set(headline.tags)
            and (not states or headline.state in states)
            and (not scheduled or bool(headline.scheduled or "SCHEDULE" in headline.props))
            and all(headline.props.get(key) == value for key, value in pairs)
            and (is_late is None or bool(is_open and due and is_late(due)))
        )

    if output.is_text:
        names = ("where", "state", "headline", "tags", "scheduled", "deadline")
        rows = (
            _cells(headline, f"{source.name}:{place.line}")
            for source in sources
            for headline, place in zip(source.plan.headlines, source.plan.places(), strict=True)
            if keeps(headline, source.plan.states)
        )
        cells = [*rows]
        if cells or not sources.exit_code:
            printing.print_table(names, cells, empty="no headlines")
        return sources.exit_code

    def data(source: PlanText) -> object:
        return [row(each) for each in source.plan.headlines if keeps(each, source.plan.states)]

    return _print_data(sources, output, data)


def _cells(headline: Headline, where: str) -> Iterator[str | Text]:
    yield safe(where, style="dim")
    yield headline.state or ""
    yield "  " * min(headline.level - 1, 12) + headline.title
    yield safe(" ".join(headline.tags), style="green")
    yield headline.props.get("SCHEDULE") or _stamp(headline.scheduled)
    yield _stamp(headline.deadline)


def _stamp(stamp: Timestamp | None) -> str:
    if stamp is None:
        return ""
    text = " ".join(filter(None, [stamp.at.replace("T", " "), stamp.repeat]))
    return text if stamp.active else f"[{text}]"


@click.command()
@paths_argument
@printing.form_options
def tangle(paths: tuple[str, ...], *, output: Output) -> int:
    """Show the resolved workflows of a plan.

    A world is a resolved workflow. In JSON, one FILE (or - for standard input) gives
    {"worlds": [...]}; a DIR or several paths give one object per file,
    {"file": ..., "data": {"worlds": [...]}}.
    Unlike `tangle` in Emacs, this command writes no files.
    """
    from horae.org.world import every, world_data, worlds

    sources = Sources(paths, output)
    if output.is_text:
        for source in sources:
            found = worlds(source.plan)
            _print_worlds(source, found, every(found))
        return sources.exit_code

    def data(source: PlanText) -> object:
        return {"worlds": [world_data(world) for world in worlds(source.plan)]}

    return _print_data(sources, output, data)


def _print_worlds(source: PlanText, found: list[World], nested: Iterable[World]) -> None:
    """Print the worlds of a plan; *nested* are they and all worlds inside them."""
    from rich.tree import Tree

    headlines = source.plan.headlines
    trees: dict[int, Tree] = {}
    for world in nested:
        tree = trees.setdefault(world.at, Tree(_title(headlines[world.at])))
        for component in world.components:
            lang = component.block.lang if component.block else "no source"
            line = safe(component.name).append(safe(f"  {lang}", style="dim"))
            for sign, names in (("←", component.takes), ("→", component.puts)):
                if names:
                    line.append(safe(f"  {sign} {names}", style="dim"))
            tree.add(line)
        for word, shared in (("imports", world.imports), ("exports", world.exports)):
            if shared:
                tree.add(safe(f"{word} {' '.join(shared)}", style="dim"))
        for child in world.workflows:
            trees[child.at] = tree.add(_title(headlines[child.at]))
    screen = printing.console()
    screen.print(safe(source.name, style="dim"))
    for world in found:
        screen.print(trees[world.at])
    if not found:
        screen.print(safe("no workflows", style="dim"))


def _title(headline: Headline) -> Text:
    stamp = headline.scheduled
    if "SCHEDULE" in headline.props:
        when = f"cron {headline.props['SCHEDULE']}"
    elif stamp is None:
        when = "no schedule"
    else:
        when = _stamp(stamp) + ("" if stamp.active else " (a note, not armed)")
    return safe(headline.title, style="bold").append(safe(f"  {when}", style="not bold cyan"))


def _print_data(sources: Sources, output: Output, data: Callable[[PlanText], object]) -> int:
    if output.form is printing.Form.JSONL:
        for source in sources:
            print_line({"file": source.name, "data": data(source)})
    elif sources.is_single:
        for source in sources:
            print_json(data(source))
    else:
        print_json([{"file": source.name, "data": data(source)} for source in sources])
    return sources.exit_code
