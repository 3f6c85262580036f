"""`service` and `completion`: units that keep the engine running, and the words of a shell."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import click
from click.shell_completion import get_completion_class

from horae.cli import group, options, output, sources
from horae.core.text import is_number
from horae.errors import Exit, HoraeError
from horae.extras.exporters.units import EngineUnit, is_untouched, launchd_plist, systemd_unit
from horae.files.read import Content

_NAME: Final = "abcdefghijklmnopqrstuvwxyz0123456789-_"


class _ServiceFile(NamedTuple):
    path: str
    text: str
    steps: tuple[str, ...]
    stops: tuple[str, ...]  # what to do after the file is gone


@click.group(cls=group.SharedGroup)
def service() -> None:
    """Install, uninstall or print a systemd or launchd unit."""


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    named = options.option("--name", "The name of the service.", default="horae", show_default=True)
    command = options.flag("--launchd", "Use launchd (macOS) instead of systemd.")(named(command))
    command = options.option("--as USER", "Run as this system user.", name="user")(command)
    user = options.flag("--user", "Use a user service; root is not needed.", name="is_user")
    return options.root_argument(user(command))


@service.command("print")
@_options
def print_(**given: Any) -> None:
    """Print the unit, or the plist."""
    click.echo(_unit(**given).text, nl=False)


@service.command()
@_options
@options.flag("--force", "Overwrite a file that was edited by hand.")
def install(*, force: bool, **given: Any) -> None:
    """Install the unit and print what to run next."""
    unit = _unit(**given)
    if (user := given["user"]) and not _is_user(user):
        raise click.UsageError(f"there is no user {user!r} on this machine; create the user first.")
    output.echo(f"{put(unit.path, unit.text, force=force)} {unit.path}")
    output.echo("\n  ".join(["Next:", *unit.steps]))


@service.command()
@_options
@options.flag("--force", "Also remove a file that was edited by hand.")
def uninstall(*, force: bool, **given: Any) -> None:
    """Remove the unit and print what to run next.

    Plan files and the data directory are kept. If the service is enabled, disable it first. This
    command does not stop a running service.
    """
    from horae.files.edit import remove  # not on Windows

    unit = _unit(**given)
    old = _ours(unit.path, force=force)
    if old is None:
        output.echo(f"not installed: {unit.path}")
        return
    remove(unit.path, expected=old.digest)
    output.echo(f"removed {unit.path}")
    output.echo("\n  ".join(["Next:", *unit.stops]))


def _unit(*, root: str, is_user: bool, user: str | None, launchd: bool, name: str) -> _ServiceFile:
    if not name or set(name) - set(_NAME):
        raise click.UsageError("--name can have lowercase letters, digits, - and _.")
    if is_user and user:
        said = "use --user for your own service, or --as for a system service, not both."
        raise click.UsageError(said)
    if any(each < " " or each in '"\\' for each in f"{root}{user or ''}"):
        said = "the path of the plan root contains quotes or control characters; use another path."
        raise click.UsageError(said)
    program = shutil.which("horae") or os.path.abspath(sys.argv[0])
    if not os.path.isdir(root):
        raise options.NoRootError(root)
    place = EngineUnit(program, os.path.abspath(root), user or "", is_user)
    if launchd:
        label, home = f"org.horae.{name}", os.path.expanduser("~/Library")
        where = f"{home}/LaunchAgents" if is_user else "/Library/LaunchDaemons"
        logs = f"{home}/Logs" if is_user else "/Library/Logs"
        path, domain = f"{where}/{label}.plist", "gui/$(id -u)" if is_user else "system"
        steps = (f"launchctl bootstrap {domain} {path}", f"launchctl print {domain}/{label}")
        text = launchd_plist(place, label=label, logs=logs)
        return _ServiceFile(path, text, steps, (f"launchctl bootout {domain}/{label}",))
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    where = f"{home}/systemd/user" if is_user else "/etc/systemd/system"
    ctl = "systemctl --user" if is_user else "systemctl"
    linger = ["loginctl enable-linger   # keeps it running while you are logged out"]
    begin, end = f"{ctl} enable --now {name}.service", f"{ctl} status {name}.service"
    steps = (f"{ctl} daemon-reload", begin, *(linger if is_user else ()), end)
    stops = (f"{ctl} stop {name}.service", f"{ctl} daemon-reload")
    return _ServiceFile(f"{where}/{name}.service", systemd_unit(place), steps, stops)


def _is_user(name: str) -> bool:
    import pwd  # not on Windows

    try:
        pwd.getpwuid(int(name)) if is_number(name) else pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def put(path: str, text: str, *, force: bool) -> str:
    """Write a file, and return what was done; a file that was edited by hand stays."""
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    old = _ours(path, force=force, text=text)
    if old is not None and old.text == text:
        return "unchanged:"
    sources.replace_file(path, text.encode(), old)
    return "wrote" if old is None else "replaced"


def _ours(path: str, *, force: bool, text: str = "") -> Content | None:
    """Return a file that may be replaced, if there is one; one that was edited by hand may not."""
    old = sources.existing(path)
    if old and not force and old.text != text and not is_untouched(old.text):
        remedy = "compare it with the output of `horae service print`, then use --force"
        said = f"{path}: the file was edited by hand and is kept; {remedy}"
        raise HoraeError(said, code="service_file", exit_code=Exit.CONFLICT, path=path)
    return old


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a shell completion script."""
    kind = get_completion_class(shell)
    assert kind is not None, "each of the choices is one of click's own"
    # `source` would ask bash for its version first, which is not needed to print a script.
    words = kind(group.horae, {}, "horae", "_HORAE_COMPLETE")
    click.echo(words.source_template % words.source_vars())
