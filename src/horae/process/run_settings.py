"""What every run is given: its place, its program, the facts of its run, and its secrets."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Final

from horae.core.actor import run_actor
from horae.core.budget import left_facts
from horae.core.command import Unready
from horae.core.entry import key_time
from horae.core.ports import RunPlace, SecretError
from horae.core.receipt import ReasonCode
from horae.core.secret import is_own
from horae.process.processes import LOG_NAME, TOKEN
from horae.process.secrets import NamedSecrets

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import timedelta

    from horae.core.access import RunTokens
    from horae.core.ports import Followed, Given, Job
    from horae.core.receipt import Filed, Reason
    from horae.core.spending import Spending


@dataclass(frozen=True, slots=True)
class RunSettings(RunPlace):
    signature: bytes = b""  # of what is posted
    local: tuple[Path, ...] = ()  # origins on this machine that may be asked
    named: NamedSecrets | None = None  # unset, only those of the environment are known
    tokens: RunTokens | None = None  # of the runs that ask for one
    spending: Spending | None = None  # what runs draw on

    @property
    def secrets(self) -> NamedSecrets:
        return self.named or NamedSecrets({}, self.environ, root=self.root, data=self.data)

    def work_of(self, filed: Filed) -> Path:
        beside = (self.root / filed.origin.file).parent
        return beside if beside.is_dir() else self.root


def facts_of(
    job: Job, place: RunSettings, *, timeout: timedelta, api: tuple[str, ...] = ()
) -> dict[str, str]:
    """Return the facts of a run as variables, with a token for its scopes and those in *api*."""
    filed, run = job.filed, job.run
    scopes = {*filed.policy.api, *api}
    facts = {
        "HORAE_DATA": str(place.data),
        "HORAE_ENTRY": str(filed.entry),
        "HORAE_TITLE": filed.title,
        "HORAE_KEY": filed.receipt.key,
        "HORAE_PLANNED": key_time(filed.receipt.planned_at),
        "HORAE_ACTUAL": key_time(run.started_at),
        "HORAE_ATTEMPT": str(filed.attempts + 1),
        "HORAE_RECEIPT": str(filed.number),
        "HORAE_RUN": str(run.number),
        "HORAE_DEADLINE": key_time(run.started_at + timeout),
        "HORAE_COMMIT": filed.commit or "",
        **(left_facts(job.balances) if job.balances else {}),
    }
    if place.local:
        # From a clone of the plan a relative path in its horae.toml leads elsewhere.
        facts["HORAE_GIT_LOCAL"] = os.pathsep.join(map(str, place.local))
    tokens = place.tokens
    if scopes and tokens is not None and tokens.is_served:
        facts[TOKEN] = tokens.begin(run.number, actor=run_actor(filed), scopes=scopes)
        facts |= {"HORAE_URL": tokens.url} if tokens.url else {}
    if job.about is not None:
        about = message_of(job.about.filed) | alert_facts(job.about, place)
        facts |= {f"HORAE_AFTER_{name.upper()}": str(value) for name, value in about.items()}
    return {name: value.replace("\0", "") for name, value in facts.items()}


def message_of(filed: Filed) -> dict[str, object]:
    return {
        "entry": filed.title,
        "receipt": filed.number,
        "key": filed.receipt.key,
        "status": filed.status,
        "reason": filed.receipt.reason,
        "reason_code": filed.receipt.reason.code,
        "planned": key_time(filed.receipt.planned_at),
        "file": filed.origin.place,
    }


def alert_facts(about: Followed, place: RunSettings) -> dict[str, str]:
    log = None if about.run is None else place.directory_of(about.run) / LOG_NAME
    return {
        "event": " ".join(about.event),
        "log": str(log) if log is not None and log.is_file() else "",
        "tail": "" if about.run is None else str(about.run.facts.get("tail", "")),
    }


async def why_held(
    place: RunSettings, variables: Iterable[str], own: Mapping[str, str] | None = None
) -> Reason | None:
    try:
        await place.secrets.given(variables, own)
    except SecretError as error:
        return error.reason
    return None


def hidden_bytes(given: Given) -> set[bytes]:
    return {each.encode("utf-8", "surrogateescape") for each in given.hidden}


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
