"""`init`: a small plan that works, written where there is none."""

from __future__ import annotations

import os
from typing import Final

import click

from horae.cli.output import echo
from horae.errors import Exit

PLAN: Final = """\
#+TITLE: Hours

A headline with a when and a command is an entry. Save this file while `horae up` runs, and
what you changed counts at once.

* Say hello
:PROPERTIES:
:SCHEDULE: * * * * *
:COMMAND:  echo "Good hour"
:END:
Every minute. `horae history` shows each time it ran, `horae logs "Say hello"` what it said.

* Look at the disk
SCHEDULED: <{today} 08:00 ++1d>
:PROPERTIES:
:COMMAND:  df -h .
:RETRY:    2 1m
:END:
Every morning; after a night without power the newest morning is made good.

* Tell me when something fails
:PROPERTIES:
:AFTER:    failed stuck
:COMMAND:  sh -c 'echo "$HORAE_AFTER_ENTRY: $HORAE_AFTER_REASON"'
:END:
Put a command here that reaches you: mail, a message, a sound.
"""
SETTINGS: Final = """\
# Settings of Horae; `horae config --show-origin` lists all of them.
zone = "{zone}"
"""


@click.command()
@click.argument("directory", metavar="[DIR]", default=".")
def init(*, directory: str) -> int:
    """Write a small plan that works into DIR, and leave alone what is there."""
    from horae.app import SystemClock, machine_zone
    from horae.rules.words import wall_text
    from horae.timing.zone import local
    from horae.workspace.edit import create

    os.makedirs(directory, exist_ok=True)  # noqa: PTH103 - as everywhere on the way in
    place = machine_zone()
    today = wall_text(local(SystemClock().now(), place)).rpartition(" ")[0]
    texts = {"plan.org": PLAN.format(today=today), "horae.toml": SETTINGS.format(zone=place.key)}
    for name, text in texts.items():
        path = os.path.join(directory, name)  # noqa: PTH118
        if os.path.lexists(path):
            echo(f"{path} is there already, and stays as it is")
            continue
        create(path, text.encode())
        echo(f"wrote {path}")
    where = "" if directory == "." else f" {directory}"
    echo(f"\nStart it with: horae up{where}")
    return Exit.OK
