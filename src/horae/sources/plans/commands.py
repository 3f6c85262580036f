"""`claim`, `release` and `done`: an agent takes, gives back or finishes a task."""

from __future__ import annotations

import asyncio
from datetime import UTC
from pathlib import Path

import click

from horae.cli.connection import Place, actor_at, record_edits
from horae.cli.moments import moment_and_zone
from horae.cli.options import at_option, flag, option, tz_option
from horae.cli.output import Output, form_options, print_answer
from horae.cli.sources import plan_root
from horae.config import load
from horae.core.actor import acting
from horae.core.clock import SystemClock
from horae.errors import Exit
from horae.files.git.layout import repository_of
from horae.files.git.repository import Git, edit_and_commit
from horae.sources.plans.claims import ClaimResult, HeadlineClaim
from horae.sources.plans.done import complete
from horae.timing.duration import DurationError, parse_duration

_file = click.argument("file", metavar="FILE")
_name = click.argument("name", metavar="ID")
_agent = option("--agent NAME", "The agent of the claim.", required=True)
_local = flag("--local", "Allow an origin that is a local path, for this call only.")


@click.command()
@_file
@_name
@_agent
@option("--ttl LENGTH", "How long the claim is valid, such as 2h; default: no limit.")
@_local
@form_options
def claim(file: str, name: str, *, agent: str, ttl: str | None, local: bool, output: Output) -> int:
    """Claim a headline for an agent.

    The headline gets the state DOING, and the name of the agent in :AGENT:. ID is the :ID: of a
    headline or its exact title. Under git the committed file is read, and the claim is
    committed, and pushed if there is an origin. Exit code 6: the headline is claimed by another
    agent.
    """
    try:
        length = None if ttl is None else parse_duration(ttl)
    except DurationError as error:
        raise click.UsageError(f"--ttl: {error}.") from None
    made = asyncio.run(_claim_of(file, name, agent, local=local).claim(length))
    verb = f"claimed for {agent}" if made.is_changed else f"already claimed by {agent}"
    return _answer(made, verb, output)


@click.command()
@_file
@_name
@_agent
@_local
@form_options
def release(file: str, name: str, *, agent: str, local: bool, output: Output) -> int:
    """Release a claimed headline.

    ID is the :ID: of a headline or its exact title. Exit code 6: the headline is claimed by
    another agent.
    """
    made = asyncio.run(_claim_of(file, name, agent, local=local).release())
    return _answer(made, "released" if made.is_changed else "not claimed", output)


def _claim_of(file: str, name: str, agent: str, *, local: bool) -> HeadlineClaim:
    config, now = load(plan_root((file,))), SystemClock().now()
    origins = config.git_local or ()
    if local and (top := repository_of(file)) is not None:
        origin = asyncio.run(Git(top).origin())
        origins = origins if origin is None else (*origins, Path(origin.removeprefix("file://")))
    limit = config.plan_max_bytes
    return HeadlineClaim(file, name, agent=agent, now=now, local=origins, limit=limit)


def _answer(made: ClaimResult, verb: str, output: Output) -> int:
    if made.is_changed:
        record_edits(plan_root((made.file,)), [(made.file, f"{made.title}: {verb}")])
    until = made.until and f"{made.until.astimezone(UTC):%Y-%m-%d %H:%M:%S}"
    lines = [f"{made.file}: {made.title}: {verb}{f' until {until} UTC' if until else ''}"]
    if made.commit is not None:
        where = "committed and pushed" if made.is_pushed else "committed"
        lines.append(f"{where} as {made.commit[:12]}")
    print_answer(output, made, "\n".join(filter(None, (*lines, made.note))))
    return Exit.OK


@click.command()
@_file
@_name
@at_option
@tz_option
@form_options
def done(file: str, name: str, *, at: str | None, tz: str | None, output: Output) -> int:
    """Mark a headline as done.

    ID is the :ID: of a headline or its exact title. A headline whose timestamp has a
    repeater moves to its next date and stays open; any other headline gets its done state, such
    as DONE, and a CLOSED timestamp. An entry with a :SCHEDULE: or an :AFTER: then no longer
    runs. Under git the file is committed, unless it has uncommitted changes.
    """
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
    if ended.is_changed:
        record_edits(plan_root((file,)), [(file, f"{ended.title}: done")])
    where = f"{ended.file}:{ended.line}: {ended.title}"
    lines = [f"{where}: {'done, and repeats' if ended.moved else ended.after}"]
    lines += [f"{old} -> {new}" for old, new in ended.moved]
    if ended.is_disarmed:
        lines.append(f"the entry no longer runs; to run it again, remove the state {ended.after}")
    lines.append(commit.words if commit.sha is None else f"committed as {commit.sha[:12]}")
    if not ended.is_changed:
        lines = [f"{where}: was {ended.after} already"]
    data = {
        **{key: getattr(ended, key) for key in ("file", "line", "title", "before", "after")},
        "moved": [{"from": old, "to": new} for old, new in ended.moved],
        "changed": ended.is_changed,
        "commit": commit.sha,
        "note": commit.words or None,
    }
    print_answer(output, data, "\n".join(filter(None, lines)))
    return Exit.OK
