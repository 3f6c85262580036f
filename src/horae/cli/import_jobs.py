"""`import`: the hours that another scheduler keeps, as headlines of a plan."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from functools import partial, wraps
from operator import itemgetter
from shutil import which
from typing import Any, Final, NamedTuple

import click

from horae.cli import group, moments, options
from horae.cli.output import Output, echo, form_options, print_answer
from horae.cli.sources import existing, plan_root, replace_file
from horae.core.entry import CronRule, OnceRule, key_time
from horae.core.text import wall_text, words
from horae.errors import Exit, HoraeError
from horae.extras.importers import job as jobs
from horae.extras.importers.apscheduler import read_program
from horae.extras.importers.crontab import USERS, read_crontab
from horae.extras.importers.github import read_workflow
from horae.extras.importers.systemd import read_timer, unit_of
from horae.files.read import LIMIT, PlanFileError, decoded, read_plan
from horae.org.document import read
from horae.sources import board
from horae.timing.zone import local, zone

_ALREADY: Final = " already has this job as "
_ONLY: Final = "one rule or one time; write a headline instead (without --tasks)"


class ImportRequest(NamedTuple):
    paths: tuple[str, ...]
    into: str | None
    tasks: str | None
    now: datetime
    zone_name: str
    output: Output


@click.group("import", cls=group.SharedGroup)
def import_() -> None:
    """Import jobs from cron, systemd, GitHub Actions, APScheduler.

    Each imported job is listed with its next three times; each job that cannot be imported, with
    the reason.
    """


def _reader(
    name: str | None = None, *, zone_of: str = "input that names none"
) -> Callable[[Callable[..., jobs.Reading]], click.Command]:
    """Return a decorator that makes a command of a function that reads a text, of a path."""

    def made(read: Callable[..., jobs.Reading]) -> click.Command:
        @wraps(read)
        def called(*, at: str | None, tz: str | None, **given: Any) -> int:
            request = {name: given.pop(name) for name in ("paths", "into", "tasks", "output")}
            if request["into"] and request["tasks"]:
                raise click.UsageError("use --into or --tasks, not both.")
            now, where = moments.moment_and_zone(at, tz=tz)
            now = now.replace(microsecond=0)
            asked = ImportRequest(**request, now=now, zone_name=where.key)
            return _import(asked, partial(read, asked, **given))

        command = options.at_option(form_options(called))
        command = options.option("--tz ZONE", f"The time zone of {zone_of}.")(command)
        command = options.option("--tasks DIR", "Write Markdown tasks into DIR instead.")(command)
        command = options.option("--into FILE", "Append the headlines to this plan.")(command)
        paths = click.argument("paths", metavar="FILE|-...", nargs=-1, required=True)
        return import_.command(name)(paths(command))

    return made


@_reader()
@options.flag("--system", "Expect a user before each command, as in /etc/crontab.")
def crontab(asked: ImportRequest, text: str, _: str, *, system: bool) -> jobs.Reading:
    """Import the jobs of a crontab."""
    from pwd import getpwall  # not on Windows

    # The users of this machine whose names are no commands, beside those of any machine.
    users = USERS | {each.pw_name for each in getpwall() if which(each.pw_name) is None}
    return read_crontab(text, zone_name=asked.zone_name, is_system=system, users=users)


@_reader()
def systemd(asked: ImportRequest, text: str, path: str) -> jobs.Reading:
    """Import systemd timers and their services.

    `systemctl cat NAME.timer NAME.service` prints both, for `-`.
    """
    name = "stdin.timer" if path == "-" else os.path.basename(path)
    if name.endswith(".service") and f"{path.removesuffix('service')}timer" in asked.paths:
        return jobs.Reading()  # read with its timer
    service, unit = None, unit_of(text, name=name)
    with suppress(PlanFileError):  # then it is not known
        if path != "-" and "/" not in unit and "\0" not in unit:
            service = read_plan(os.path.join(os.path.dirname(path), unit)).text
    return read_timer(text, name=name, service=service, zone_name=asked.zone_name)


@_reader("github-actions", zone_of="--at; GitHub schedules are in UTC")
def github_actions(_: ImportRequest, text: str, path: str) -> jobs.Reading:
    """Import scheduled workflows of GitHub Actions."""
    return read_workflow(text, name=os.path.basename(path))


@_reader()
def apscheduler(asked: ImportRequest, text: str, path: str) -> jobs.Reading:
    """Import jobs that a Python program adds to APScheduler 3.

    The program is read and never run; only literal arguments of the call are used.
    """
    name = "jobs.py" if path == "-" else os.path.basename(path)
    return read_program(text, name=name, zone_name=asked.zone_name, now=asked.now)


def _import(asked: ImportRequest, understand: Callable[[str, str], jobs.Reading]) -> int:
    if asked.into is not None and not asked.into.endswith(".org"):
        raise PlanFileError(asked.into, "is not a plan; name a file that ends in .org")
    old = None if asked.into is None else existing(asked.into)
    plan, code = read("" if old is None else old.text), int(Exit.OK)
    titles = {each.title for each in plan.headlines}
    known = jobs.meanings(plan)
    ids = titles | {each.props.get("ID", "") for each in plan.headlines}
    found: list[jobs.ImportedJob] = []
    data: dict[str, list[object]] = {"jobs": [], "remarks": []}
    for path in asked.paths:
        try:
            reading = understand(_text(path), path)
        except HoraeError as error:
            asked.output.say(error)
            code = code or error.exit_code
            continue
        lines = [(each.line, f"{path}:{each}") for each in reading.remarks]
        data["remarks"] += [{"file": path, **each._asdict()} for each in reading.remarks]
        missed = any(not each.is_taken for each in reading.remarks)
        for job in reading.jobs:
            imported = jobs.import_job(job, now=asked.now, taken=titles, ids=ids)
            twin = jobs.clone_of(imported.text, known) if imported.is_taken else None
            if imported.is_taken:
                rule = imported.entry and imported.entry.rule
                is_one = isinstance(rule, CronRule) and len(rule.crons) == 1
                is_one = is_one or isinstance(rule, OnceRule)
                reason = f"a task has {_ONLY}" if asked.tasks and not is_one else ""
                reason = f"{asked.into}{_ALREADY}'{twin.title}'" if twin else reason
                imported = imported._replace(reason=reason)
            if not asked.output.is_text:
                data["jobs"].append({"file": path, **_data(imported)})
            lines.append((job.line, f"{path}:{_said(imported)}"))
            if imported.is_taken and not imported.reason:
                titles.add(imported.job.title)
                ids.add(imported.job.name)
                found.append(imported)
            missed = missed or not imported.is_taken or bool(imported.reason)
        code = code or (Exit.FINDINGS if missed else Exit.OK)
        for _, text in sorted(lines, key=itemgetter(0)):
            echo(text, err=True)
    if not found and not data["remarks"] and code == Exit.OK:
        echo(f"horae: no jobs in {', '.join(asked.paths)}", err=True)
    _write(asked, found)
    if not asked.output.is_text:
        print_answer(asked.output, data, "")
    return code


def _said(imported: jobs.ImportedJob) -> str:
    job = imported.job
    if not imported.is_taken or imported.reason:
        # A job that is there already got a new name, which is written nowhere.
        title = "" if _ALREADY in imported.reason else f"'{job.title}': "
        return f"{job.line}:1: not imported: {title}{imported.reason}"
    zone_name = imported.entry.zone if imported.entry else job.zone
    place = zone(zone_name)
    times = ", ".join(wall_text(local(at, place)) for at in imported.fires)
    return f"{job.line}: '{job.title}': next {times} ({zone_name})"


def _data(imported: jobs.ImportedJob) -> dict[str, object]:
    job, entry = imported.job, imported.entry
    return {
        "line": job.line,
        "title": job.title,
        "taken": imported.is_taken and not imported.reason,
        "reason": imported.reason or None,
        "id": job.name,
        "schedule": job.schedule or job.stamp or None,
        "zone": job.zone or None,
        "words": words(entry.rule, zone_name=entry.zone) if entry else None,
        "command": job.command or None,
        "fires": [key_time(at) for at in imported.fires],
        "text": imported.text,
    }


def _write(asked: ImportRequest, found: list[jobs.ImportedJob]) -> None:
    if not found:
        return
    from horae.cli.connection import record_edits  # not on Windows

    text = "\n".join(each.text for each in found)
    if asked.tasks is not None:
        paths = [*_add_tasks(asked.tasks, found, asked.now)]
        for path in paths:
            echo(f"wrote {path}", err=True)
        record_edits(plan_root((asked.tasks,)), [(each, "imported") for each in paths])
    elif asked.into is not None:
        old = existing(asked.into)
        before = b"" if old is None else old.data
        gap = b"" if not before or before.endswith(b"\n") else b"\n"
        replace_file(asked.into, before + gap + text.encode(), old)
        many = "s" * (len(found) != 1)
        record_edits(plan_root((asked.into,)), [(asked.into, f"{len(found)} job{many} imported")])
        echo(f"wrote {len(found)} headline{many} to {asked.into}", err=True)
    elif asked.output.is_text:
        click.echo(text, nl=False)


def _add_tasks(directory: str, found: list[jobs.ImportedJob], now: datetime) -> Iterator[str]:
    tasks = board.tasks.Board(os.path.abspath(directory))
    for each in found:
        assert each.entry is not None
        rule, job = each.entry.rule, each.job
        body = "\n".join([jobs.in_words(each.entry), *job.notes])
        body += f"\n\n```sh\n{(job.command or job.script).strip()}\n```\n"
        fields: dict[str, Any] = {"created": key_time(now)}
        if isinstance(rule, OnceRule):
            fields |= {"status": "todo", "scheduled_for": key_time(rule.at)}
        else:
            cron = {"cron_schedule": job.schedule, "cron_last_run": key_time(now)}
            fields |= {"status": "done", **cron, "timezone": each.entry.zone}
        yield os.path.relpath(tasks.add(job.title, fields, body=body).path)


def _text(path: str) -> str:
    if os.path.isdir(path):
        raise PlanFileError(path, "is a directory; name the files in it")
    if path != "-":
        return read_plan(path).text
    data = sys.stdin.buffer.read(LIMIT + 1)
    if len(data) > LIMIT:
        raise PlanFileError("-", f"is longer than {LIMIT:,} bytes; split it")
    return decoded("-", data)
