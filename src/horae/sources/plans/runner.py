"""Runs of what headlines call: a program, or a message to an address.

A command gets an allow-listed environment and the facts of its run beside it, works where
its plan is, and reads nothing from its input. A message is posted by a process of its own,
so it has the same wall clock and the same record as everything else.
"""

from __future__ import annotations

import hmac
import json
import os
import sys
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from horae.core.actor import run_actor
from horae.core.command import call_in
from horae.core.entry import key_time
from horae.core.ports import Ended, RunError, SecretError, Unreleased
from horae.process.processes import LOG_NAME, TOKEN, UNRELEASED, Spec, guessed_secrets
from horae.process.ready import allowed_environment
from horae.process.secrets import NamedSecrets

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime, timedelta
    from pathlib import Path

    from horae.core.access import RunTokens
    from horae.core.command import Call
    from horae.core.ports import Filed, Followed, Given, Held, Job, Run, Secrets
    from horae.core.reason import Reason
    from horae.process.processes import Processes

POST: Final = ("-I", "-m", "horae.sources.plans.post")


@dataclass(frozen=True, slots=True)
class RunSettings:
    """Where runs work and leave what they print, and what they may know.

    `root` is the plan root, `data` the data directory; `signature` signs what is posted, and
    `local` are the origins on this machine that may be asked. `named` knows the values of
    secrets; without it there are only those of the environment.
    """

    root: Path
    data: Path
    environ: Mapping[str, str]
    timeout: timedelta
    signature: bytes = b""
    local: tuple[Path, ...] = ()
    named: Secrets | None = None
    tokens: RunTokens | None = None  # of the runs that ask for one

    @property
    def secrets(self) -> Secrets:
        """Who knows the values of secrets."""
        return self.named or NamedSecrets({}, self.environ, root=self.root, data=self.data)

    def directory_of(self, run: Run) -> Path:
        """Return where the output of a run is, and the report of its end."""
        return self.data / f"runs/{run.started_at:%Y-%m-%d}/{run.number}"

    def work_of(self, filed: Filed) -> Path:
        """Return where a run works: where its plan is, else in the plan root."""
        beside = (self.root / filed.origin.file).parent
        return beside if beside.is_dir() else self.root


class CommandRunner:
    """Makes runs of commands and messages."""

    def __init__(self, processes: Processes, place: RunSettings) -> None:
        self._processes = processes
        self._place = place
        self._environment = allowed_environment(place.environ)
        self._guessed = guessed_secrets(self._environment)

    async def hold(self, job: Job) -> Held:
        """Make a run that waits for its go."""
        if job.call is None:
            raise RunError("the entry has neither a :COMMAND: nor a :POST:")
        given = await self._place.secrets.given(job.call.variables)
        return await self._processes.hold(self._spec(job, job.call, given))

    async def obstacle(self, text: str) -> str | None:
        """Return why the call of a text would be held back; None if it would not."""
        call = call_in(text)
        return None if call is None else await why_held(self._place, call.variables)

    async def look_back(self, filed: Filed, run: Run) -> Ended | Unreleased | None:  # noqa: ARG002
        """Return how a run ended that an engine before this one made; None is unknown."""
        found = await self._processes.look_back(self._place.directory_of(run), run.number)
        return Unreleased() if found is UNRELEASED else found

    def _spec(self, job: Job, call: Call, given: Given) -> Spec:
        place = self._place
        timeout = job.filed.policy.timeout or place.timeout
        environment = {**self._environment, **given.variables}
        # Its last words are told beyond its log.
        secrets = self._guessed | guessed_secrets(given.variables) | hidden_bytes(given)
        environment |= facts_of(job, place, timeout=timeout)
        argv, stdin = call.argv, b""
        if call.address:
            told = {} if job.about is None else _told_of(job.about, place)
            filed = job.filed if job.about is None else job.about.filed
            stdin = json.dumps(message_of(filed) | told).encode()
            headers = sign(stdin, at=job.run.started_at, signature=place.signature)
            environment["HORAE_POST"] = json.dumps({"address": call.address, "headers": headers})
            argv = (sys.executable, *POST)
        return Spec(
            run=job.run.number,
            argv=argv,
            cwd=place.work_of(job.filed),
            environment=environment,
            directory=place.directory_of(job.run),
            stdin=stdin,
            timeout=timeout,
            secrets=tuple(sorted(secrets)),
        )


def facts_of(
    job: Job, place: RunSettings, *, timeout: timedelta, api: tuple[str, ...] = ()
) -> dict[str, str]:
    """Return the facts of a run as variables of its environment.

    If its entry asks for a token, or its agent for one with the scopes *api*, it is among them.
    """
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
    }
    if place.local:
        # From a clone of the plan a relative path in its horae.toml leads elsewhere.
        facts["HORAE_GIT_LOCAL"] = os.pathsep.join(map(str, place.local))
    tokens = place.tokens
    if scopes and tokens is not None and tokens.is_served:
        facts[TOKEN] = tokens.begin(run.number, actor=run_actor(filed), scopes=scopes)
        facts |= {"HORAE_URL": tokens.url} if tokens.url else {}
    if job.about is not None:
        about = message_of(job.about.filed) | _told_of(job.about, place)
        facts |= {f"HORAE_AFTER_{name.upper()}": str(value) for name, value in about.items()}
    return {name: value.replace("\0", "") for name, value in facts.items()}


def message_of(filed: Filed) -> dict[str, object]:
    """Return what a message says about a receipt."""
    return {
        "entry": filed.title,
        "receipt": filed.number,
        "key": filed.receipt.key,
        "status": filed.status,
        "reason": filed.receipt.reason,
        "reason_code": filed.receipt.reason.code,
        "planned": key_time(filed.receipt.planned_at),
        "file": str(filed.origin),
    }


def _told_of(about: Followed, place: RunSettings) -> dict[str, str]:
    """Return what an alert is told beside the receipt: why it was asked for, and the output."""
    log = None if about.run is None else place.directory_of(about.run) / LOG_NAME
    return {
        "event": " ".join(about.event),
        "log": str(log) if log is not None and log.is_file() else "",
        "tail": "" if about.run is None else str(about.run.facts.get("tail", "")),
    }


def sign(body: bytes, *, at: datetime, signature: bytes) -> dict[str, str]:
    """Return the headers that prove who sent a message, and when."""
    stamp = str(int(at.timestamp()))
    digest = hmac.new(signature, stamp.encode() + b"." + body, sha256).hexdigest()
    return {"X-Horae-Timestamp": stamp, "X-Horae-Signature": f"sha256={digest}"}


async def why_held(
    place: RunSettings, variables: Iterable[str], own: Mapping[str, str] | None = None
) -> Reason | None:
    """Return why a run that asks for these variables would be held back; None if it would not."""
    try:
        await place.secrets.given(variables, own)
    except SecretError as error:
        return error.reason
    return None


def hidden_bytes(given: Given) -> set[bytes]:
    """Return the values that a run must not show, as it would print them."""
    return {each.encode("utf-8", "surrogateescape") for each in given.hidden}
