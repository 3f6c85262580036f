r"""Scheduled workflows of GitHub Actions.

>>> text = "on: {schedule: [{cron: '30 5 * * 1'}]}\njobs: {a: {steps: [{run: make}]}}\n"
>>> job = read_workflow(text, name="nightly.yml").jobs[0]
>>> job.schedule, job.zone, job.script
('30 5 * * 1', 'UTC', 'set -e\n# job a\n(\nmake\n)\n')
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Final

from horae.extras.importers.crontab import DIALECTS, POLICY, foreign_rule
from horae.extras.importers.job import ForeignJob, Reading, UnfitError
from horae.files.yaml import Data, YamlError, YamlMap, read_yaml

# GitHub counts a step without a range to the end, and has no second Sunday.
_DIALECTS: Final = (
    *(each._replace(has_open_step=True) for each in DIALECTS[:4]),
    DIALECTS[4]._replace(has_open_step=True, high=6),
)
_HARMLESS: Final = "actions/checkout@"  # the plan is in the checkout
# Supported keys, and those without an effect here.
_FILE_KEYS: Final = ["name", "run-name", "on", "env", "jobs", "permissions", "concurrency"]
_JOB_KEYS: Final = ["name", "runs-on", "steps", "env", "permissions", "timeout-minutes"]
_STEP_KEYS: Final = ["name", "id", "run", "env"]


def read_workflow(text: str, *, name: str) -> Reading:
    reading = Reading()
    try:
        data = read_yaml(text)
    except YamlError as error:
        reading.refuse(error.line, error.column, error.reason, error.fix)
        return reading
    asked = data.get("on") if isinstance(data, YamlMap) else None
    if not isinstance(data, YamlMap):
        what = "this is not a workflow of GitHub Actions"
        reading.refuse(1, 1, what, "name a file of .github/workflows")
    elif not isinstance(asked, YamlMap) or not isinstance(items := asked.get("schedule"), list):
        line = data.places["on"].line if "on" in data.places else 1
        reading.refuse(line, 1, "the workflow has no `on: schedule:`", "keep it on GitHub")
    elif rules := _rules(items, line := asked.places["schedule"].line, reading):
        reading.jobs.append(_job(data, name, rules, line, reading))
    return reading


def _rules(items: list[Data], first: int, reading: Reading) -> tuple[str, ...]:
    found: dict[str, None] = {}  # without repetition, in order
    for item in items:
        if not isinstance(item, YamlMap) or not isinstance(cron := item.get("cron"), str):
            what = "an item of `schedule` has no cron"
            reading.refuse(first, 1, what, "write - cron: '0 9 * * *'")
            continue
        if (extra := next((key for key in item if key != "cron"), None)) is not None:
            what = f"`{extra}` next to cron is not supported"
            reading.refuse(*item.places[extra][:2], what, "remove it")
            continue
        texts, place = cron.split(), item.places["cron"][:2]
        if len(texts) != 5:
            reading.refuse(*place, f"the cron has {len(texts)} fields", "GitHub uses five")
            continue
        try:
            found[foreign_rule(texts, _DIALECTS)] = None  # UTC has no clock changes
        except UnfitError as error:
            reading.refuse(*place, error.what, error.remedy)
            continue
        if texts[0] in {"*", "*/1", "*/2", "*/3", "*/4"}:
            what = "GitHub runs a schedule at most every five minutes; horae runs it as written"
            reading.note(*place, what, "write */5 for every five minutes")
    return tuple(found)


def _job(
    data: YamlMap, name: str, rules: tuple[str, ...], line: int, reading: Reading
) -> ForeignJob:
    """Return a job that runs the steps here if all are shell commands, else through GitHub."""
    title = data.get("name")
    command, script, strange = "", "", "has no steps to run"
    try:
        script = "".join(_script(data))
    except UnfitError as error:
        strange = error.what
    if not script:
        command = f"gh workflow run {shlex.quote(name)}"
        asked = data["on"]
        is_open = isinstance(asked, YamlMap) and "workflow_dispatch" in asked
        needs = "" if is_open else "; this needs `workflow_dispatch:` under `on:`"
        remedy = f"the headline starts the workflow on GitHub (`{command}`){needs}"
        reading.note(line, 1, strange, remedy)
    if "concurrency" in data:
        remedy = "write `:OVERLAP: skip` or `queue` instead of allow"
        place = data.places["concurrency"][:2]
        reading.note(*place, "`concurrency` is not imported", remedy)
    title = title if isinstance(title, str) else name
    notes, short = (f"From {name}.",), name.rpartition(".")[0]
    return ForeignJob(line, title, "UTC", rules, command, "", POLICY, notes, script, short)


def _script(data: YamlMap) -> Iterator[str]:
    """Yield a bash script in which each step has a shell of its own; raises UnfitError."""
    _check(data, _FILE_KEYS, "the workflow")
    if not isinstance(jobs := data.get("jobs"), YamlMap):
        raise UnfitError("has no jobs")
    yield "set -e\n"
    yield from _exports(data.get("env"))
    for name, job in jobs.items():
        if not isinstance(job, YamlMap) or not isinstance(steps := job.get("steps"), list):
            raise UnfitError(f"job {name} has no steps of its own")
        _check(job, _JOB_KEYS, f"job {name}")
        exports = "".join(_exports(job.get("env")))
        yield f"# job {name}\n"
        for step in steps:
            yield _step(step, name, exports)


def _check(found: YamlMap, known: list[str], whose: str) -> None:
    odd = next((key for key in found if key not in known), None)
    if odd is not None:
        raise UnfitError(f"{whose} has `{odd}`, which only GitHub supports")


def _step(step: Data, name: str, exports: str) -> str:
    if not isinstance(step, YamlMap):
        raise UnfitError(f"job {name} has a step that cannot be read")
    used = step.get("uses")
    if isinstance(used, str):
        if used.startswith(_HARMLESS):
            return ""
        raise UnfitError(f"job {name} uses {used}, which only GitHub can run")
    _check(step, _STEP_KEYS, f"a step of job {name}")
    if not isinstance(run := step.get("run"), str):
        raise UnfitError(f"job {name} has a step that only GitHub can run")
    body = exports + "".join(_exports(step.get("env"))) + run.rstrip("\n") + "\n"
    if "${{" in body:
        raise UnfitError(f"job {name} contains ${{{{ … }}}}, which only GitHub expands")
    return f"(\n{body})\n"


def _exports(env: Data) -> Iterator[str]:
    if isinstance(env, YamlMap):
        for key, value in env.items():
            if not isinstance(value, str) or "${{" in value or not key.isidentifier():
                raise UnfitError(f"the variable {key} is set by GitHub")
            yield f"export {key}={shlex.quote(value)}\n"
