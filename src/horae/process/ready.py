"""Whether a command can run here: its directory, its program, and the environment it gets."""

from __future__ import annotations

import os
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Final

from horae.core.command import Unready
from horae.core.receipt import ReasonCode
from horae.core.secret import is_own

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from horae.process.secrets import NamedSecrets

_OF_THE_SHELL: Final = frozenset(
    {".", "alias", "cd", "eval", "exec", "export", "set", "source", "trap", "ulimit", "umask"}
)

# What a command is given of our own environment; all else may be a secret.
_ALLOWED: Final = frozenset({
    "PATH", "HOME", "LANG", "TZ", "TMPDIR", "USER", "SHELL",
    "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "FTP_PROXY", "NO_PROXY",
    "http_proxy", "https_proxy", "all_proxy", "ftp_proxy", "no_proxy",
})  # fmt: skip


def why_unready(
    argv: Sequence[str],
    *,
    directory: str | Path,
    environ: Mapping[str, str],
    variables: Iterable[str] = (),
) -> Unready | None:
    """Return why a command cannot run in a directory, and what to do about it; None if it can."""
    where, name = Path(directory), argv[0]
    if not where.is_dir():
        return Unready(f"the directory {where} does not exist", "create it, or use another one")
    if "/" in name:
        path = where / name
        if not path.exists():
            is_below = not name.startswith("/") and str(where) != "."
            hint = f" (it is relative to {where})" if is_below else ""
            hint = f"create the file, or correct the path{hint}"
            return Unready(f"the program {name} does not exist", hint)
        if path.is_dir() or not os.access(path, os.X_OK):
            return Unready(f"the program {name} is not executable", f"run `chmod +x {path}`")
        return None
    if which(name, path=allowed_environment(environ, variables).get("PATH", os.defpath)):
        return None
    if name in _OF_THE_SHELL:
        reason = f"{name} is a shell builtin, not a program"
        return Unready(reason, f"call a shell explicitly: sh -c '{name} …'")
    return Unready(f"{name} is not on the PATH", "install it, or write its full path")


def unread(
    secrets: NamedSecrets | None, variables: Iterable[str], own: Iterable[str] = ()
) -> Unready | None:
    """Return which secret that a run asks for cannot be read, as far as a look tells."""
    if secrets is None:
        return None
    asked = [each.partition("=") for each in variables]
    named = [
        text or f"${{{name}}}" for name, given, text in asked if given or secrets.is_named(name)
    ]
    error = secrets.why_not([*named, *own])
    fix = "provide it, or correct [secrets] in horae.toml"
    return None if error is None else Unready(str(error), fix, ReasonCode.SECRET_UNREADABLE)


def allowed_environment(base: Mapping[str, str], names: Iterable[str] = ()) -> dict[str, str]:
    """Return what a command may know of an environment, and the variables it asks for by name."""
    wanted = {*_ALLOWED, *(name for name in names if not is_own(name))}
    kept = {name: value for name, value in base.items() if name in wanted or name.startswith("LC_")}
    return {**kept, "TERM": "dumb"}
