"""`claim`, `release` and `done`: an agent takes a task, gives it back, or finishes it."""

from __future__ import annotations

import asyncio
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING

import click

from horae.cli.connection import Place, actor_at, record_edits
from horae.cli.options import at_option, tz_option
from horae.cli.output import Output, echo, form_options, print_answer
from horae.cli.sources import plan_root
from horae.config import load
from horae.core.actor import acting
from horae.core.clock import SystemClock
from horae.errors import Exit
from horae.files.git.repository import Git, repository_of
from horae.sources.plans import claims
from horae.timing.duration import parse_duration

if TYPE_CHECKING:
    from collections.abc import Callable

    from horae.config import Config
    from horae.files.git.repository import CommitResult
    from horae.sources.plans.claims import Claim
    from horae.sources.plans.done import Completed

_file = click.argument("file", metavar="FILE")
_name = click.argument("name", metavar="ID")
_agent = click.option("--agent", required=True, metavar="NAME", help="The agent of the claim.")
_local = click.option(
    "--local",
    is_flag=True,
    help="Allow an origin that is a local path, for this call only.",
)


@click.command()
@_file
@_name
@_agent
@click.option(
    "--ttl", metavar="LENGTH", help="How long the claim is valid, such as 2h; default: no limit."
)
@_local
@form_options
def claim(
    file: str, name: str, *, agent: str, ttl: str | None, local: bool, form: str | None
) -> int:
    """Claim a headline for an agent.

    The headline gets the state DOING, and the name of the agent in :AGENT:. ID is the :ID: of a
    headline or its exact title. Under git the claim is committed, and pushed if there is an
    origin. Exit code 6: the headline is claimed by another agent.
    """
    length = None if ttl is None else parse_duration(ttl)
    config = load(plan_root((file,)))
    made = asyncio.run(
        claims.claim(
            file,
            name,
            agent=agent,
            now=SystemClock().now(),
            ttl=length,
            local=_origins(config, file, local=local),
            limit=config.plan_max_bytes,
        )
    )
    verb = f"claimed by {agent}" if made.is_changed else f"was claimed by {agent} already"
    _record(file, f"{made.title}: {verb}", is_changed=made.is_changed)
    return _print(Output.of(form), lambda: _said(made, verb), _claim_data(made))


@click.command()
@_file
@_name
@_agent
@_local
@form_options
def release(file: str, name: str, *, agent: str, local: bool, form: str | None) -> int:
    """Release a claimed headline.

    ID is the :ID: of a headline or its exact title. Exit code 6: the headline is claimed by
    another agent.
    """
    config = load(plan_root((file,)))
    made = asyncio.run(
        claims.release(
            file,
            name,
            agent=agent,
            now=SystemClock().now(),
            local=_origins(config, file, local=local),
            limit=config.plan_max_bytes,
        )
    )
    verb = "is free again" if made.is_changed else "was not claimed"
    _record(file, f"{made.title}: {verb}", is_changed=made.is_changed)
    return _print(Output.of(form), lambda: _said(made, verb), _claim_data(made))


@click.command()
@_file
@_name
@at_option
@tz_option
@form_options
def done(file: str, name: str, *, at: str | None, tz: str | None, form: str | None) -> int:
    """Mark a headline as done.

    ID is the :ID: of a headline or its exact title. A headline whose timestamp has a
    repeater moves to its next date and stays open; any other headline gets its done state, such
    as DONE, and a CLOSED timestamp. An entry with a :SCHEDULE: or an :AFTER: then no longer
    runs. Under git the file is committed, unless it has uncommitted changes.
    """
    from horae.cli.moments import moment_and_zone
    from horae.files.git.committing import edit_and_commit
    from horae.sources.plans.done import complete

    root = plan_root((file,))
    now, zone = moment_and_zone(at, tz=tz, root=root)
    limit = load(root).plan_max_bytes
    with acting(actor_at(Place.of(root=root, data=None))):
        ended, commit = asyncio.run(
            edit_and_commit(
                file,
                lambda: complete(file, name, now=now, zone=zone.key, limit=limit),
                message=lambda ended: f"Complete {ended.title}" if ended.is_changed else "",
            )
        )
    _record(file, f"{ended.title}: done", is_changed=ended.is_changed)
    data = {**_done_data(ended), "commit": commit.sha, "note": commit.words or None}
    return _print(Output.of(form), lambda: _done_lines(ended, commit), data)


def _record(file: str, what: str, *, is_changed: bool) -> None:
    """Record what was done to a plan, if anything was."""
    if is_changed:
        record_edits(plan_root((file,)), [(file, what)])


def _origins(config: Config, file: str, *, local: bool) -> tuple[Path, ...]:
    """Return the origins on this machine that may be asked: named, or asked for just now."""
    named = config.git_local or ()
    top = repository_of(file) if local else None
    origin = None if top is None else asyncio.run(Git(top).origin())
    return named if origin is None else (*named, Path(origin.removeprefix("file://")))


def _print(output: Output, lines: Callable[[], list[str]], data: dict[str, object]) -> int:
    """Print one answer, for people or for a program."""
    print_answer(output, data, lambda: echo("\n".join(lines())))
    return Exit.OK


def _said(made: Claim, verb: str) -> list[str]:
    until = (
        "" if made.until is None else f" until {made.until.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    )
    lines = [f"{made.file}: {made.title}: {verb}{until}"]
    if made.commit is not None:
        where = "committed and pushed" if made.is_pushed else "committed"
        lines.append(f"{where} as {made.commit[:12]}")
    return [*lines, made.note] if made.note else lines


def _claim_data(made: Claim) -> dict[str, object]:
    return {
        "file": made.file,
        "id": made.name,
        "title": made.title,
        "state": made.state,
        "agent": made.agent,
        "until": None if made.until is None else f"{made.until:%Y-%m-%dT%H:%M:%SZ}",
        "changed": made.is_changed,
        "commit": made.commit,
        "pushed": made.is_pushed,
        "note": made.note or None,
    }


def _done_lines(ended: Completed, commit: CommitResult) -> list[str]:
    where = f"{ended.file}:{ended.line}: {ended.title}"
    if not ended.is_changed:
        return [f"{where}: was {ended.after} already"]
    verb = "done, and repeats" if ended.moved else ended.after
    lines = [f"{where}: {verb}", *(f"{a} -> {b}" for a, b in ended.moved)]
    if ended.is_disarmed:
        lines.append(f"the entry no longer runs; to run it again, remove the state {ended.after}")
    note = commit.words if commit.sha is None else f"committed as {commit.sha[:12]}"
    return [*lines, note] if note else lines


def _done_data(ended: Completed) -> dict[str, object]:
    return {
        "file": ended.file,
        "line": ended.line,
        "title": ended.title,
        "before": ended.before,
        "after": ended.after,
        "moved": [{"from": old, "to": new} for old, new in ended.moved],
        "changed": ended.is_changed,
    }
