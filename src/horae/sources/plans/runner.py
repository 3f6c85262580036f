"""Runs of commands, and of messages, which another process posts.

A command gets an allow-listed environment and the facts of its run, runs in the directory of its
plan, and has no input.
"""

from __future__ import annotations

import hmac
import json
import sys
from datetime import datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from horae.core.command import CommandCall, call_in
from horae.core.ports import Ended, Given, Held, Job, Run, RunError, Unreleased
from horae.process import run_settings
from horae.process.processes import Processes, Spec, guessed_secrets
from horae.process.run_settings import allowed_environment

if TYPE_CHECKING:
    from horae.core.receipt import Filed

POST: Final = ("-I", "-m", "horae.sources.plans.post")


class CommandRunner:
    def __init__(self, processes: Processes, place: run_settings.RunSettings) -> None:
        self._processes = processes
        self._place = place
        self._environment = allowed_environment(place.environ)
        self._guessed = guessed_secrets(self._environment)

    async def hold(self, job: Job) -> Held:
        if job.call is None:
            raise RunError("the entry has neither a :COMMAND: nor a :POST:")
        given = await self._place.secrets.given(job.call.variables)
        return await self._processes.hold(self._spec(job, job.call, given))

    async def obstacle(self, text: str) -> str | None:
        call = call_in(text)
        return None if call is None else await run_settings.why_held(self._place, call.variables)

    async def look_back(self, filed: Filed, run: Run) -> Ended | Unreleased | None:  # noqa: ARG002
        return await self._processes.look_back(self._place.directory_of(run), run.number)

    def _spec(self, job: Job, call: CommandCall, given: Given) -> Spec:
        place = self._place
        timeout = job.filed.policy.timeout or place.timeout
        environment = {**self._environment, **given.variables}
        # Its last line is the reason.
        secrets = self._guessed | guessed_secrets(given.variables)
        secrets |= run_settings.hidden_bytes(given)
        environment |= run_settings.facts_of(job, place, timeout=timeout)
        argv, stdin = call.argv, b""
        if call.address:
            told = {} if job.about is None else run_settings.alert_facts(job.about, place)
            filed = job.filed if job.about is None else job.about.filed
            stdin = json.dumps(run_settings.message_of(filed) | told).encode()
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
            idle=job.filed.policy.idle_timeout,
            secrets=tuple(sorted(secrets)),
        )


def sign(body: bytes, *, at: datetime, signature: bytes) -> dict[str, str]:
    stamp = str(int(at.timestamp()))
    digest = hmac.new(signature, stamp.encode() + b"." + body, sha256).hexdigest()
    return {"X-Horae-Timestamp": stamp, "X-Horae-Signature": f"sha256={digest}"}
