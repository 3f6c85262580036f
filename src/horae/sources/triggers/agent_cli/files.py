"""`agent apply` and `agent teardown`: agents and workflows as files say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from horae.cli.connection import engine_of
from horae.cli.output import echo, print_json
from horae.errors import Exit
from horae.sources.triggers.agent_cli.words import Here, agent, short
from horae.sources.triggers.commands import applied, read_files, torn_down

if TYPE_CHECKING:
    from collections.abc import Sequence

    from horae.sources.triggers.apply import FileChange
    from horae.sources.triggers.commands import Room
    from horae.sources.triggers.service import Triggers
    from horae.sources.triggers.source import Folder

LOOK: Final = 0.1  # seconds between two looks at what is not armed yet


@agent.command("apply")
@click.argument("path")
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@click.option(
    "--wait-timeout",
    default=60,
    show_default=True,
    type=click.IntRange(0),
    metavar="SECONDS",
    help="How long to wait until the engine has armed the workflows.",
)
@click.pass_obj
def apply(here: Here, path: str, *, dry_run: bool, wait_timeout: int) -> int:
    """Create and update agents and workflows from files.

    All files are checked before anything is changed. With a running engine the command returns
    when the workflows are armed; the exit code is 124 if that takes longer than --wait-timeout.
    """
    folder = read_files(path, base=here.root)
    room = here.room()
    changes = applied(room, folder, dry_run=dry_run)
    if not dry_run and not _all_armed(room, folder, wait_timeout):
        return Exit.TIMED_OUT
    agents, workflows = len(folder.agents), len(folder.workflows)
    counts = f"0 room(s), {agents} agent(s)"
    if here.is_json:
        print_json(
            {
                "dry_run": dry_run,
                "valid": True,
                "rooms": [],
                "agents": [each.name for each in folder.agents],
                "workflows": [each.name for each in folder.workflows],
                "changes": [each.data() for each in changes],
            }
        )
        return Exit.OK
    _print_changes(changes)
    if dry_run:
        echo(f"Dry run passed: {counts}, {workflows} workflow(s)")
    else:
        echo(f"Applied {counts}, and {workflows} workflow(s)")
    return Exit.OK


def _all_armed(room: Room, folder: Folder, patience: int) -> bool:
    """Tell whether the engine arms what was applied in time; without one nobody does."""
    from time import monotonic, sleep

    if not engine_of(room.place).is_running:
        return True
    wanted = [each.name for each in folder.workflows if each.is_enabled]
    gives_up_at = monotonic() + patience
    while True:
        name, reason = room.read(lambda triggers: _first_unarmed(triggers, wanted))
        if not name:
            return True
        if monotonic() >= gives_up_at:
            said = (
                f"Timeout waiting for workflow '{name}' to be armed (waited {patience}s): {reason}"
            )
            echo(f"Error: {said}", err=True)
            return False
        sleep(LOOK)


async def _first_unarmed(triggers: Triggers, names: Sequence[str]) -> tuple[str, str]:
    """Return the first workflow that is not armed though it is enabled, and why not."""
    for name in names:
        reason = await triggers.unarmed(name)
        # One that was disabled by somebody, or has fired, is as it should be.
        if reason and (await triggers.get(name))["enabled"]:
            return name, reason
    return "", ""


@agent.command("teardown")
@click.argument("path")
@click.option("--dry-run", is_flag=True, help="Show what would be removed, and remove nothing.")
@click.pass_obj
def teardown(here: Here, path: str, *, dry_run: bool) -> int:
    """Remove the workflows and agents that files define."""
    room = here.room()
    changes = torn_down(room, read_files(path, base=here.root), dry_run=dry_run)
    if here.is_json:
        print_json([each.data() for each in changes])
        return Exit.OK
    _print_changes(changes)
    count = sum(each.verb == "delete" for each in changes)
    echo(f"{'Would remove' if dry_run else 'Removed'} {count} of {len(changes)}")
    return Exit.OK


def _print_changes(changes: Sequence[FileChange]) -> None:
    """Print the plan, with what is different about each thing that is there already."""
    for change in changes:
        echo(f"{change.verb:<9} {change.what} '{change.name}' ({change.place})")
        for name, old, new in change.diff:
            echo(f"            {name}: {short(old)} -> {short(new)}")
