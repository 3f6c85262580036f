"""`config`: which settings are in force, and where each comes from."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from horae.cli.output import Form, Output, echo, form_options, print_json, print_line
from horae.config import load
from horae.errors import Exit

if TYPE_CHECKING:
    from horae.config import Origin


@click.command()
@click.argument("name", required=False)
@click.option("--show-origin", is_flag=True, help="Also say where each value comes from.")
@click.option(
    "--root", default=".", metavar="DIR", help="The plan root, where horae.toml is looked for."
)
@form_options
def config(name: str | None, *, show_origin: bool, root: str, form: str | None) -> int:
    """Show the settings in force, or the one called NAME.

    A default is overridden by horae.toml in the plan root, that by the environment
    (HORAE_ names before WB_ names), and that by an option. A property on the entry
    itself beats them all.
    """
    output = Output.of(form)
    settings = load(root)
    shown = [row for row in settings.origins() if name in {None, row.name}]
    if not shown:
        raise click.UsageError(f"there is no setting called {name!r}.")
    for finding in settings.findings:
        echo(f"horae: {finding}", err=True)
    match output.form:
        case Form.TABLE:
            for row in shown:
                echo(_line(row, show_origin=show_origin))
        case Form.JSON:
            print_json([_data(row) for row in shown])
        case Form.JSONL:
            for row in shown:
                print_line(_data(row))
    return Exit.OK


def _line(row: Origin, *, show_origin: bool) -> str:
    """Return one setting for people."""
    value = "(not set)" if row.value is None else json.dumps(row.value, ensure_ascii=False)
    value = value.strip('"') if isinstance(row.value, str) else value
    if not show_origin:
        return f"{row.name} = {value}"
    hidden = "".join(f", over {each.origin} ({each.value})" for each in row.overrides[:-1])
    return f"{row.name} = {value}  # {row.origin}{hidden}"


def _data(row: Origin) -> dict[str, object]:
    """Return one setting as plain data."""
    overrides = [{"origin": each.origin, "value": each.value} for each in row.overrides]
    return {"name": row.name, "value": row.value, "origin": row.origin, "overrides": overrides}
