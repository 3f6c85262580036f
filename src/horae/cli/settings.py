"""`config`: which settings are in force, where each comes from, and which wait for trust."""

from __future__ import annotations

import json
import sys

import click

from horae.cli import connection, group, options
from horae.cli.output import Output, echo, form_options, print_answer, print_rows
from horae.config import TrustReport, confirm, load, untrusted
from horae.core.settings import meant_setting
from horae.errors import Exit


class _ShownContext(click.Context):
    """The context of `config NAME`, whose command has no name of its own."""

    @property
    def command_path(self) -> str:
        return super().command_path if self.parent is None else self.parent.command_path


class _Show(click.Command):
    context_class = _ShownContext


class _SettingsGroup(group.SharedGroup):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        args = self.take_shared(ctx, args)
        is_ours = args[:1] in ([each] for each in ("trust", "--help", "-h"))
        return super().parse_args(ctx, args if is_ours else ["show", *args])

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name in super().list_commands(ctx) if name != "show"]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        show.format_options(ctx, formatter)
        self.format_commands(ctx, formatter)


@click.group(cls=_SettingsGroup, subcommand_metavar="[NAME] | trust")
def config() -> None:
    """Show the settings.

    `horae config NAME` shows one setting; --show-origin shows where each value comes from.
    horae.toml in the plan root overrides a default, the environment overrides horae.toml (HORAE_…
    takes precedence over WB_…, the names of Workbooks), and a command-line option overrides the
    environment. A property of an entry overrides them all.
    """


@config.command(hidden=True, cls=_Show)
@click.argument("name", required=False)
@click.option("--show-origin", is_flag=True, help="Show the origin of each value.")
@options.root_option
@form_options
def show(name: str | None, *, show_origin: bool, root: str, output: Output) -> None:
    """Show the settings, or the one called NAME."""
    settings = load(root)
    shown = [row for row in settings.origins() if name in {None, row.name}]
    if not shown:
        meant = meant_setting(name or "")
        hint = f"did you mean {meant}?" if meant else "`horae config` lists the settings."
        raise click.UsageError(f"there is no setting {name!r}; {hint}")
    for finding in settings.findings:
        echo(f"horae: {finding.file}:{finding.line}: {finding.advice}", err=True)
    lines, rows = [], []
    for row in shown:
        value = _text(row.value).strip('"') if isinstance(row.value, str) else _text(row.value)
        hidden = "".join(f", over {each.origin} ({each.value})" for each in row.overrides[:-1])
        origin = f"  # {row.origin}{hidden}" if show_origin else ""
        lines.append(f"{row.name} = {value}{origin}")
        rows.append({**row._asdict(), "overrides": [each._asdict() for each in row.overrides]})
    print_rows(output, rows, lambda: echo("\n".join(lines)))


def _text(value: object) -> str:
    return "(not set)" if value is None else json.dumps(value, ensure_ascii=False)


@config.command()
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@options.answer_options
def trust(*, yes: bool, place: connection.Place, output: Output) -> int:
    """Trust changed settings that start programs.

    While an engine is running, a change in horae.toml to a setting that starts programs or names
    a path outside the plan root is used only after `horae config trust`, or, for your own edit,
    after a restart of the engine. A change that came with a pull always needs
    `horae config trust`. The command shows the changes that are not used yet and, after your
    confirmation, trusts them.
    """
    client = connection.engine_at(place)
    found = untrusted(place.config) if client is None else client.waiting_settings()
    waiting = found.waiting
    for each in waiting if output.is_text else ():
        edited = "edited in horae.toml, not trusted yet"
        came = f"commit {each.commit[:12]}" if each.commit else edited
        echo(f"{each.name}: {_text(each.trusted)} -> {_text(each.written)}  # {came}")
    if waiting and not yes:
        if not sys.stdin.isatty():
            raise click.UsageError("confirmation needs a terminal; use --yes.")
        if not click.confirm("Trust these settings?"):
            echo("horae: nothing was changed", err=True)
            return Exit.FINDINGS
    if client is None:
        confirmed = confirm(place.config, found.digest)
        done = TrustReport(confirmed.digest, confirmed.waiting)
    else:
        done = client.trust(found.digest)
    said = f"{len(waiting)} {'setting is' if len(waiting) == 1 else 'settings are'} trusted now"
    if later := ", ".join(done.after_restart):
        said += f"; the engine uses {later} after a restart"
    if done.until_restart:
        said += "; a restart reads the working copy: update it with git pull"
    print_answer(output, done, said if waiting else "no setting is waiting for trust")
    return Exit.OK
