"""`query`, `tangle` and `check`: what is written, what it resolves to, what is odd."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from horae.cli.filters import Filters
from horae.cli.options import at_option, now_option, paths_argument, tz_option
from horae.cli.output import Form, Output, form_options, print_json, print_line, print_rows
from horae.cli.sources import Sources, plan_root
from horae.errors import Exit
from horae.org.plan import Severity

if TYPE_CHECKING:
    from collections.abc import Callable

    from horae.cli.sources import PlanText
    from horae.config import Config
    from horae.org.plan import Diagnostic


@click.command()
@paths_argument
@click.option(
    "--tag", "tags", multiple=True, help="Only headlines with this tag; repeat to require several."
)
@click.option(
    "--state", "states", multiple=True, help="Only headlines in this state; repeat for several."
)
@click.option("--scheduled", is_flag=True, help="Only headlines with SCHEDULED or :SCHEDULE:.")
@click.option("--overdue", is_flag=True, help="Only open headlines whose DEADLINE is past.")
@click.option(
    "--prop", "props", multiple=True, metavar="KEY=VALUE", help="Only headlines with this property."
)
@now_option
@form_options
def query(
    paths: tuple[str, ...],
    *,
    tags: tuple[str, ...],
    states: tuple[str, ...],
    scheduled: bool,
    overdue: bool,
    props: tuple[str, ...],
    now: str | None,
    form: str | None,
) -> int:
    """Show the fields of each headline.

    One FILE (or - for standard input) gives the list of its headlines; a DIR or several paths
    give one object per file, {"file": ..., "data": [...]}. Without a path the plans in the
    current directory are read.
    """
    output = Output.of(form)
    sources = Sources(paths, output)
    keep = Filters.of(
        tags=tags,
        states=states,
        scheduled=scheduled,
        overdue=overdue,
        props=props,
        now=now,
        root=plan_root(paths),
    )
    if output.form is Form.TABLE:
        from horae.cli.tables import print_headlines  # only for people

        print_headlines(
            (f"{source.name}:{place.line}", headline)
            for source in sources
            for headline, place in zip(source.plan.headlines, source.plan.places(), strict=True)
            if keep.accepts(headline, source.plan.states)
        )
        return sources.exit_code
    from horae.org.query import row

    def rows(source: PlanText) -> object:
        plan = source.plan
        return [row(each) for each in plan.headlines if keep.accepts(each, plan.states)]

    return _print_data(sources, output, rows)


@click.command()
@paths_argument
@form_options
def tangle(paths: tuple[str, ...], form: str | None) -> int:
    """Show the resolved workflows of a plan.

    A world is a resolved workflow. One FILE (or - for standard input) gives {"worlds": [...]};
    a DIR or several paths give one object per file, {"file": ..., "data": {"worlds": [...]}}.
    Unlike `tangle` in Emacs, this command writes no files.
    """
    output = Output.of(form)
    sources = Sources(paths, output)
    if output.form is Form.TABLE:
        from horae.cli.tables import print_worlds  # only for people

        for source in sources:
            print_worlds(source)
        return sources.exit_code
    from horae.org.world import world_data, worlds

    return _print_data(
        sources,
        output,
        lambda source: {"worlds": [world_data(world) for world in worlds(source.plan)]},
    )


@click.command()
@paths_argument
@at_option
@tz_option
@form_options
def check(paths: tuple[str, ...], *, at: str | None, tz: str | None, form: str | None) -> int:
    """Check plan files and report problems.

    Every finding has a stable code, a severity, its position and, where there is one, a fix;
    JSON is one list of findings. The exit code is 1 if there are errors. The crew or keeper
    that horae.toml names is checked too, with its definitions and lifecycles; for a directory,
    so are its board and the agents and triggers in .agentd/.
    """
    from horae.cli.moments import moment_and_zone
    from horae.cli.plan_root import check_boards, check_triggers, find_boards, find_triggers
    from horae.cli.ready import check_alerts, check_ready
    from horae.config import load
    from horae.extras.drift.check import check_drift
    from horae.sources.plans.check import CheckClock, check_plans

    output = Output.of(form)
    root = plan_root(paths)
    now, zone = moment_and_zone(at, tz=tz, root=root)
    boards = find_boards(paths)
    triggers = find_triggers(paths)
    sources = Sources(paths, output, may_be_empty=bool(boards or triggers))
    read = [(source.name, source.plan) for source in sources]
    config = load(root)
    found = check_plans(read, CheckClock(zone.key, now, config.check_floor), extra=[check_drift])
    found += check_ready(read, root, config)
    found += check_alerts(read, paths)
    found += config.findings
    found += [*_check_keepers(config), *check_boards(boards, now=now), *check_triggers(triggers)]
    found.sort(key=lambda each: (each.file, each.line, each.column, each.code))

    def table() -> None:
        from horae.cli.tables import print_findings  # only for people

        print_findings(found, dict(read))

    print_rows(output, [each.data() for each in found], table)
    has_errors = any(each.severity is Severity.ERROR for each in found)
    return sources.exit_code or (Exit.FINDINGS if has_errors else Exit.OK)


def _check_keepers(config: Config) -> list[Diagnostic]:
    """Return what is odd in the crew, or the single keeper, that the settings name."""
    from horae.sources.crew.source import check_keeper, check_manifest

    continuous, breather = config.keeper_continuous, config.keeper_breather
    if config.crew_def is not None:
        return check_manifest(config.crew_def, continuous=continuous, breather=breather)
    if config.keeper_def is None:
        return []
    every = breather if continuous else config.keeper_interval
    return check_keeper(config.keeper_def, config.lifecycle_def, every=every)


def _print_data(sources: Sources, output: Output, data: Callable[[PlanText], object]) -> int:
    """Print what each plan gives: alone, as a list of files, or a line per file."""
    if output.form is Form.JSONL:
        for source in sources:
            print_line({"file": source.name, "data": data(source)})
    elif sources.is_single:
        for source in sources:
            print_json(data(source))
    else:
        print_json([{"file": source.name, "data": data(source)} for source in sources])
    return sources.exit_code
