"""`init`: a small plan that works, written into a directory."""

from __future__ import annotations

import os
from importlib.resources import files

import click

from horae.cli import options, output
from horae.core.clock import SystemClock, machine_zone
from horae.core.text import wall_text
from horae.files.edit import create
from horae.timing.zone import local


@click.command()
@options.root_argument
def init(*, root: str) -> None:
    """Write a small working plan into a directory.

    Existing files are not changed.
    """
    try:
        os.makedirs(root, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise click.UsageError(f"{root}: is not a directory; name a directory.") from None
    except OSError as error:
        raise click.UsageError(f"{root}: cannot be created ({error.strerror}).") from None
    place = machine_zone()
    today = wall_text(local(SystemClock().now(), place)).rpartition(" ")[0]
    for name in ("plan.org", "horae.toml"):
        path = os.path.join(root, name)
        if os.path.lexists(path):
            output.echo(f"{path} already exists and was not changed")
            continue
        text = (files("horae") / "template" / name).read_text(encoding="utf-8")
        create(path, text.replace("@today@", today).replace("@zone@", place.key).encode())
        output.echo(f"wrote {path}")
    where = "" if root == "." else f" {root}"
    output.echo(f"\nRun it with: horae up{where}")
