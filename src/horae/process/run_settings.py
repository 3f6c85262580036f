"""What every run is given: where it works, the facts of its run, and its secrets."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from horae.core.actor import run_actor
from horae.core.budget import left_facts
from horae.core.entry import key_time
from horae.core.ports import RunPlace, SecretError
from horae.process.processes import LOG_NAME, TOKEN
from horae.process.secrets import NamedSecrets

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import timedelta
    from pathlib import Path

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
