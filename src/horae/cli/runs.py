"""`run`, `retry`, `logs` and `cancel`: what is running now."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from codecs import getincrementaldecoder
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from functools import partial
from io import IncrementalNewlineDecoder
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Any, Final

import click

from horae.cli import client, connection, options
from horae.cli.connection import Place, read
from horae.cli.output import Form, Output, clean, echo, form_options, print_answer
from horae.core import actor, clock, prompt, views
from horae.core.ports import RunPlace
from horae.core.receipt import FINAL, HELD_BACK, OPEN, Filed, ReasonCode, Status, is_planned
from horae.core.service import Service
from horae.core.text import moment_text
from horae.errors import Exit
from horae.files.read import PlanMissingError
from horae.store import lock

if TYPE_CHECKING:
    from horae.app import App

_KEPT: Final = 1 << 20  # bytes of the beginning of an output that are always kept
LOOK: Final = 0.1  # seconds between two looks at a receipt that waits
_ASK_WHY: Final = 10  # looks after which it is asked why it waits
_TINY: Final = timedelta(microseconds=1)

raw_option = click.option("--raw", is_flag=True, help="Do not escape control characters.")
_waits_option = options.option(
    "--wait/--no-wait",
    "Show the output until the run ends, or return at once; default: wait on a terminal.",
    name="waits",
    default=None,
)


@click.command()
@click.argument("entry", metavar="ENTRY")
@click.option("--note", default="", metavar="TEXT", help="The reason, shown with the receipt.")
@_waits_option
@options.option("--key KEY", "An idempotency key: the same key returns the same receipt.")
@click.option("--workflow", metavar="NAME", help="For a file: run only this workflow.")
@options.option("--input TEXT", "For a file: the input; - is standard input.", name="given")
@click.option("--plan", is_flag=True, help="For a file: show the steps, and run nothing.")
@click.option("--resume", metavar="RUN", help="For a file: reuse the outputs of that run.")
@raw_option
@options.root_option
@options.data_option
@form_options
def run(
    entry: str,
    *,
    note: str,
    waits: bool | None,
    key: str | None,
    raw: bool,
    root: str,
    data: str | None,
    output: Output,
    **of_file: Any,
) -> int:
    """Run an entry now, or the workflows of a file.

    ENTRY is an entry, or a file that ends in .org. If an engine is running, it executes the
    run, and Ctrl-C does not stop the run; otherwise this command executes the run. The exit
    code is 0 if the run succeeded, 1 if it failed, and 124 if it exceeded its time limit. With
    an engine and without a terminal the command returns at once, with 0, unless --wait is given.
    """
    is_plan = entry.endswith(".org")
    if is_plan and os.path.isfile(entry):
        from horae.sources.workflows.commands import run_file

        return run_file(entry, output=output, data=data, **of_file)
    if any(each not in {None, False} for each in of_file.values()):
        if is_plan:
            raise PlanMissingError(entry)
        said = "--workflow, --input, --plan and --resume are for a file that ends in .org"
        raise click.UsageError(said)
    place = Place.of(root=root, data=data)
    is_new = not place.is_known
    try:
        screen = RunScreen(output, raw=raw, waits=waits)
        return _run_entry(entry, place, screen, note=note, key=key)
    except views.EntryNotFoundError as error:
        from horae.sources.triggers.source import unread_hint

        if is_plan:
            raise PlanMissingError(entry) from None
        if is_new and (hint := unread_hint(root)):
            echo(f"horae: {error}{hint}", err=True)
            return error.exit_code
        raise


def _run_entry(
    entry: str, place: Place, screen: RunScreen, *, note: str, key: str | None = None
) -> int:
    refusal = None
    if place.store is not None:
        refusal = _no_engine(place, "and no node leads; `horae cluster nodes` lists the nodes")
    if screen.waits is False or key is not None:
        flag = "--no-wait" if screen.waits is False else "--key"
        refusal = _no_engine(place, f"and {flag} needs one; start it with `horae up`")

    def by_engine(far: client.Far) -> Mapping[str, Any]:
        run_number = actor.own_run(place.directory)  # of the run inside which this command runs
        parent = int(run_number) if run_number else None
        said: dict[str, Any] = {"note": note, "parent_run": parent, "idempotency_key": key}
        return connection.through(far, place, lambda service: service.run_now(entry, **said)).data()

    return screen.run(
        place, by_engine, lambda service: service.run_now(entry, note=note), refusal=refusal
    )


@click.command()
@click.argument("receipt", type=click.IntRange(1, 2**63 - 1))
@_waits_option
@raw_option
@options.answer_options
def retry(receipt: int, *, waits: bool | None, raw: bool, place: Place, output: Output) -> int:
    """Run the entry of a receipt again.

    The entry gets a new receipt with the parameters of the old one: the scheduled time, if it
    is still part of the schedule, or the title, the body and the metadata of a trigger. For a
    tick of an agent, a new tick starts. A receipt that is still waiting or running cannot be
    retried. The exit code is that of `horae run`.
    """
    told = read(place, lambda service: service.receipt(receipt)).line
    filed = told.filed
    if filed.status in OPEN:
        reason = f"receipt {receipt} is {filed.status}; it can be retried after it has ended"
        raise views.RunStateError(told.title, reason)
    note = f"retry of receipt {receipt}"
    if filed.source == "trigger":
        text = connection.ask(place, lambda ledger: ledger.text(filed.digest))
        if text is not None:  # else it is pruned
            return _retry_trigger(place, filed, text, output)
    screen = RunScreen(output, raw=raw, waits=waits)
    if filed.receipt.key.startswith("tick:"):
        from horae.sources.crew.commands import tick_now

        is_watched = sys.stdout.isatty() if waits is None else waits
        return tick_now(told.title, place, RunScreen(output, raw=raw, waits=is_watched), note=note)
    if _has_time(place, filed):
        return _retry_planned(place, filed, screen)
    return _run_entry(str(filed.entry), place, screen, note=note)


def _has_time(place: Place, filed: Filed) -> bool:
    """Tell whether a receipt is about one scheduled time that its entry still has."""
    receipt, at = filed.receipt, filed.receipt.planned_at
    has_time = is_planned(receipt.key) or receipt.key.startswith("backfill:")
    if not has_time or receipt.count != 1 or at + _TINY > clock.SystemClock().now():
        return False
    word = str(filed.entry)
    span: dict[str, Any] = {"start": at, "end": at + _TINY}
    plan = read(place, lambda service: service.backfill(word, **span, dry_run=True))
    return len(plan.moments) == 1


def _retry_planned(place: Place, filed: Filed, screen: RunScreen) -> int:
    at, word = filed.receipt.planned_at, str(filed.entry)
    name = f"retry-{filed.number}-{connection.new_id()}"

    refusal = None
    if screen.waits is False or place.store is not None:
        refusal = _no_engine(place, "and only an engine can do that; start it with `horae up`")

    async def again(service: Service) -> views.ReceiptLine:
        done = await service.backfill(word, start=at, end=at + _TINY, name=name)
        return done.lines[0]

    return screen.run(
        place, lambda far: connection.through(far, place, again).data(), again, refusal=refusal
    )


def _retry_trigger(place: Place, filed: Filed, text: str, output: Output) -> int:
    from horae.cli.trigger_access import TriggerAccess

    order = prompt.read_order(text)
    entry = read(place, lambda service: service.entry(str(filed.entry)))
    word = entry.address.removeprefix("trigger:")
    said: dict[str, Any] = {name: order.values.get(name, "") for name in ("title", "body")}
    said["metadata"] = dict(order.metadata)
    access = TriggerAccess(root=place.root, data=str(place.directory))
    made = access.write(lambda triggers: triggers.trigger_now(word, said))
    text = f"{made['workflow']}: receipt {made['receipt']}, {made['status']} ({made['reason']})"
    print_answer(output, made, text)
    return Exit.OK


@click.command()
@click.argument("what", metavar="RUN|ENTRY")
@click.option("-f", "--follow", is_flag=True, help="Follow the output until the run ends.")
@click.option("--tail", type=click.IntRange(0), metavar="N", help="Only the last N lines.")
@raw_option
@options.place_options
def logs(what: str, *, follow: bool, tail: int | None, raw: bool, place: Place) -> int:
    """Show the output of a run.

    Name the run by its number, or an entry for its last run. The numbers in `horae history` are
    receipt numbers; `horae why ENTRY` shows the run numbers. If stdout is not a terminal, the
    output is unchanged; on a terminal control characters are shown as text.
    """
    found = read(place, lambda service: _meant(service, what))
    number = found.run.number
    engine = lock.engine_in(place.directory)
    far = None if engine is None else client.Far(place.directory, pid=engine.pid)
    if engine is None and place.store is not None:
        far = connection.leader_of(place, place.store)
    screen = RunScreen(Output(Form.TABLE), raw=raw)
    if far is None or not far.answers():
        from horae.process.processes import LOG_NAME

        at_home = RunPlace(place.directory, place.directory, {}, timedelta(0))
        path = at_home.directory_of(found.run) / LOG_NAME
        last, is_going = tail, True
        while is_going:
            is_going = follow and _goes_on(place, number)
            last = None if screen.show_file(path, last=last) else last
            if is_going:
                sleep(LOOK)
    else:
        start = 0
        if tail is not None:
            whole = b"".join(_log(far, number))
            screen.show(_last_lines(whole, tail))
            start = _length(whole)
        for part in _log(far, number, start=start, follow=follow) if follow or tail is None else ():
            screen.show(part)
    if not screen.has_shown and tail != 0:
        was_more = bool(found.run.facts.get("output"))
        run_of = f"run {number} of {found.line.title}"
        gone = f"the output of {run_of} has been removed"
        echo(f"horae: {gone if was_more else f'{run_of} wrote no output'}", err=True)
    return Exit.OK


@click.command()
@click.argument("what", metavar="RUN|ENTRY")
@click.option("--reason", default="", metavar="TEXT", help="The reason, shown with the receipt.")
@options.answer_options
def cancel(what: str, *, reason: str, place: Place, output: Output) -> None:
    """Cancel a run and all processes it started.

    Name the entry that is running, or the run by its number (in `horae why ENTRY`; the
    numbers in `horae history` are those of receipts). Only an engine can cancel a run; end a
    `horae run` without an engine with Ctrl-C.
    """
    far = connection.engine_at(place)
    if far is None:
        raise _no_engine(place, "so there is nothing to cancel")
    found = read(place, lambda service: _meant(service, what, far=far))
    said = far.post("runs", found.run.number, "cancel", body={"reason": reason})
    already = "" if said["changed"] else " already"
    print_answer(output, said, f"{said['title']}: run {said['run']} is{already} being cancelled")


def _goes_on(place: Place, number: int) -> bool:
    """Tell whether a command without an engine is executing a run."""
    is_used = bool(connection.engine_here(place).user)
    return is_used and read(place, lambda service: service.run(number)).run.ended_at is None


async def _meant(service: Service, what: str, *, far: client.Far | None = None) -> views.RunLine:
    """Return the run that is meant; of an entry the last one, or that in progress at an engine."""
    if what.isascii() and what.isdecimal():
        number = int(what[:19])
        if number >= 2**63:
            raise views.RunNotFoundError(number)
        return await service.run(number)
    if far is None:
        return await service.last_run(what)
    return await service.going(what, obstacle=partial(_at_the_gate, far))


def _length(shown: bytes) -> int:
    """Return the length of an output of which this much was given: some may be left out."""
    left_out = re.search(rb"\n\[(\d{1,18}) bytes of output left out\]\n", shown[_KEPT : _KEPT + 64])
    return len(shown) + (int(left_out[1]) - len(left_out[0]) if left_out else 0)


def _last_lines(data: bytes, count: int | None) -> bytes:
    r"""Return the last lines of some output; all of them without a count.

    >>> _last_lines(b"one\ntwo\nthree\n", 2), _last_lines(b"one\n", 0)
    (b'two\nthree\n', b'')
    """
    if count is None:
        return data
    whole = data.removesuffix(b"\n")
    start = len(whole)
    for _ in range(count):
        start = whole.rfind(b"\n", 0, start)
        if start < 0:
            return data
    return data[start + 1 :] if count else b""


def _no_engine(place: Place, rest: str) -> client.EngineUnreachableError:
    return client.EngineUnreachableError(str(place.directory), f"no engine is running here, {rest}")


def _at_the_gate(far: client.Far, receipt: int) -> str:
    line = far.get("gate", limit=1000)["waiting"]
    return next((str(each["reason"]) for each in line if each["receipt"] == receipt), "")


def _obstacle(far: client.Far, told: Mapping[str, Any]) -> str:
    title = told["title"]
    if told["status"] == Status.HELD:
        return f"{title} is held: {told['reason']}"
    if reason := _at_the_gate(far, told["receipt"]):
        return f"{title} waits: {reason}"
    start_at = datetime.fromisoformat(told["start_at"]).replace(microsecond=0)
    start = f"starts at {moment_text(start_at, told['zone'])} or later"
    if told["runs"]:
        last = told["runs"][-1]
        ended = f"attempt {last['attempt']} {last['outcome'] or 'ended'} ({told['reason']})"
        return f"{title}: {ended}; attempt {last['attempt'] + 1} {start}"
    return f"{title} waits: {told['reason']}; the run {start}"


def _log(far: client.Far, number: int, *, start: int = 0, follow: bool = False) -> Iterator[bytes]:
    asked = {"from": start or None, "follow": 1 if follow else None}
    return far.stream("runs", number, "log", **asked)


class RunScreen:
    """Where a run is shown: its output as it is into a pipe, safe on a terminal, and its end."""

    def __init__(self, output: Output, *, raw: bool = False, waits: bool | None = None) -> None:
        is_terminal = sys.stdout.isatty()
        self._output, self._is_raw = output, raw or not is_terminal
        self.waits, self.has_shown, self._at = waits, False, 0
        self._waits = is_terminal and output.is_text if waits is None else waits
        decoder = getincrementaldecoder("utf-8")(errors="replace")
        self._decoder = IncrementalNewlineDecoder(decoder, translate=True)

    def show(self, part: bytes) -> None:
        if not self._output.is_text:
            return
        self.has_shown |= bool(part)
        text = "\t".join(map(clean, self._decoder.decode(part).split("\t")))  # tabs stay
        click.echo(part if self._is_raw else text, nl=False)
        sys.stdout.flush()

    def show_file(self, path: Path, *, last: int | None = None) -> bool:
        """Show what was added to a file, or its *last* lines; tell whether it can be read."""
        try:
            with path.open("rb") as file:
                file.seek(self._at)
                part = file.read()
        except OSError:  # nothing was printed yet, or it was removed
            return False
        self._at += len(part)
        self.show(_last_lines(part, last))
        return True

    def follow(self, far: client.Far, asked: Mapping[str, Any]) -> int:
        """Show a receipt of an engine, and what its runs put out until it is final or held back."""
        number = asked["receipt"]
        if not self._waits:
            said = f"{asked['title']}: receipt {number}, {asked['status']}"
            print_answer(self._output, asked, said)
            return Exit.OK
        try:
            return self._end(self._wait_for(far, number))
        except KeyboardInterrupt:
            ends = f"`horae cancel {asked['entry']}` ends it"
            echo(f"horae: receipt {number} is still running; {ends}", err=True)
            raise

    def _wait_for(self, far: client.Far, receipt: int) -> dict[str, Any]:
        shown: set[int] = set()
        why, looks = "", 0
        while True:
            told: dict[str, Any] = far.get("receipts", receipt)
            coming = [each["run"] for each in told["runs"] if each["run"] not in shown]
            for number in coming:
                shown.add(number)
                for part in _log(far, number, follow=True):
                    self.show(part)
            if coming:
                continue
            is_held_back = told["status"] == Status.HELD and told.get("reason_code") in HELD_BACK
            if is_held_back or Status(told["status"]) in FINAL:
                return told
            looks += 1
            if looks % _ASK_WHY == 0 and self._output.is_text:
                again = _obstacle(far, told)
                if again != why:
                    echo(f"horae: {again}", err=True)
                why = again
            sleep(LOOK)

    def run(
        self,
        place: Place,
        by_engine: Callable[[client.Far], Mapping[str, Any]],
        ask: Callable[[Service], Awaitable[views.ReceiptLine]],
        *,
        refusal: client.EngineUnreachableError | None,
    ) -> int:
        """Let an engine run what is asked; without one it runs here, unless there is a refusal."""

        def opening() -> AbstractAsyncContextManager[App]:
            from horae.app import build

            if refusal is not None:
                raise refusal
            connection.refuse_no_root(place.root, place.directory)
            return build(place.config, command=connection.command_words())

        async def here(app: App) -> int:
            task = asyncio.create_task(app.run_once(ask))
            showing = asyncio.create_task(self._show_while(app, task))
            try:
                filed = await task
            finally:
                await showing
            return self._end((await app.service.receipt(filed.number)).data())

        return connection.by_engine_or_alone(
            place, lambda far: self.follow(far, by_engine(far)), opening, here
        )

    async def _show_while(self, app: App, running: asyncio.Task[Filed]) -> None:
        path, is_over = None, False
        while not is_over:
            is_over = running.done()
            for live in app.engine.launch.runs.values():
                path = app.log_of(live)
            if path is None and is_over and running.exception() is None:  # it was quicker than we
                path = app.log_of((await app.ledger.runs_of(running.result().number))[-1])
            if path is not None:
                self.show_file(path)
            if not is_over:
                await asyncio.wait([running], timeout=LOOK)

    def _end(self, told: Mapping[str, Any]) -> int:
        status, again = Status(told["status"]), ""
        if self._output.is_text:  # beside what its run has put out
            if status is Status.WAITING:
                when = moment_text(datetime.fromisoformat(told["start_at"]), told["zone"])
                again = f"; an engine retries it at {when} or later; start one with `horae up`"
            ended = str(told["status"]).replace("_", " ")
            echo(f"horae: {told['title']}: {ended}: {told['reason']}{again}", err=True)
        else:
            print_answer(self._output, told, "")
        return exit_of(status, told.get("reason_code"))  # an older engine gives none


def exit_of(status: Status, reason_code: str | None) -> int:
    if status in {Status.DONE, Status.NO_WORK}:
        return Exit.OK
    is_too_long = status is Status.KILLED and reason_code == ReasonCode.TIME_LIMIT
    return Exit.TIMED_OUT if is_too_long else Exit.FINDINGS
