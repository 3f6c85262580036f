"""`init`: a small plan that works, written into a directory."""

from __future__ import annotations

import os
from importlib.resources import files
from typing import Final

import click

from horae.cli import options, output
from horae.core.clock import SystemClock, machine_zone
from horae.core.text import wall_text
from horae.files.edit import create
from horae.files.read import in_words
from horae.timing.zone import local

AGENT: Final = '[keeper]\ndef = "agent.org"\ninterval = "1h"\n'


@click.command()
@options.root_argument
@click.option("--agent", is_flag=True, help="Also write an agent that calls a model.")
def init(*, root: str, agent: bool) -> None:
    """Write a small working plan into a directory.

    Existing files are not changed. With --agent, the plan has an agent that runs every hour with
    a model of an OpenAI-compatible provider; set its key before `horae up`.
    """
    try:
        os.makedirs(root, exist_ok=True)
    except OSError as error:
        raise click.UsageError(f"{root}: cannot be created: {in_words(error)}.") from None
    place = machine_zone()
    today = wall_text(local(SystemClock().now(), place)).rpartition(" ")[0]
    for name in ("plan.org", "horae.toml", *(("agent.org", "NOTES.org") if agent else ())):
        path, more = os.path.join(root, name), AGENT if agent and name == "horae.toml" else ""
        if os.path.lexists(path):
            output.echo(f"{path} already exists and was not changed")
            if more:
                output.echo(f"add to it:\n{more}")
            continue
        text = (files("horae") / "template" / name).read_text(encoding="utf-8")
        text = text.replace("@today@", today).replace("@zone@", place.key)
        create(path, (f"{text}\n{more}" if more else text).encode())
        output.echo(f"wrote {path}")
    where = "" if root == "." else f" {root}"
    if agent:
        output.echo("\nSet OPENAI_API_KEY, or the key and address of another provider:")
        output.echo("  export HORAE_MODEL_KEY=… HORAE_MODEL_URL=https://…/v1")
    output.echo(f"\nRun it with: horae up{where}")
