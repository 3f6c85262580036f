"""`run`, `retry`, `logs` and `cancel`: what is running now."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from codecs import getincrementaldecoder
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, suppress
from datetime import timedelta
from io import IncrementalNewlineDecoder
from itertools import chain
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Any, Final

import click

from horae.cli import connection, options
from horae.cli.connection import Place, read
from horae.cli.moments import moment_or_length
from horae.cli.output import Form, Output, clean, echo, form_options, print_answer
from horae.cli.plan_root import ask_files
from horae.client import Client, EngineUnreachableError
from horae.core import actor, clock, views
from horae.core.ports import RunPlace
from horae.core.receipt import FINAL, HELD_BACK, Filed, ReasonCode, Status
from horae.core.text import in_zone, moment_text
from horae.errors import Exit, HoraeError
from horae.files.read import PlanMissingError
from horae.process.logs import CHUNK, LogSelection, RunLog
from horae.sources import triggers, workflows
from horae.sources.agents.transcript import Transcript
from horae.store import lock

if TYPE_CHECKING:
    from horae.app import App

LOOK: Final = 0.1  # seconds between two looks at a receipt that waits
_ASK_WHY: Final = 10  # looks after which it is asked why it waits
_LONG_LINE: Final = 1 << 20  # bytes


class DownloadError(HoraeError, code="download", exit_code=Exit.CONFLICT):
    def __init__(self, path: str, error: OSError) -> None:
        self.path = path
        exists = isinstance(error, FileExistsError)
        why = "the file exists; name another file" if exists else str(error.strerror)
        super().__init__(f"{path}: {why}")


raw_option = click.option("--raw", is_flag=True, help="Show the output unchanged.")
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
@options.root_of_data_option
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
        return workflows.commands.run_file(entry, output=output, data=data, **of_file)
    if any(each not in {None, False} for each in of_file.values()):
        if is_plan:
            raise PlanMissingError(entry)
        said = "--workflow, --input, --plan and --resume are for a file that ends in .org"
        raise click.UsageError(said)
    place = Place.of(root=root, data=data)
    is_new = not place.is_known
    try:
        screen = RunScreen(output, raw=raw, waits=waits)
        if is_new and place.server is None and place.store is None:
            _refuse_unwritten(entry, place, output)
        return _run_entry(entry, place, screen, note=note, key=key)
    except HoraeError as error:
        if error.code != views.EntryNotFoundError.code:
            raise
        if is_plan:
            raise PlanMissingError(entry) from None
        if is_new and (hint := triggers.source.unread_hint(root)):
            echo(f"horae: {error}{hint}", err=True)
            return error.exit_code
        if place.server is None:
            with suppress(views.EntryNotFoundError):  # as the ledger says it, with its names
                _refuse_unwritten(entry, place, output)
        raise


def _refuse_unwritten(word: str, place: Place, output: Output) -> None:
    """Raise an error unless the plan files have an entry of that name that is armed."""
    # The run itself says what cannot be read and matters to it.
    silent = output._replace(is_silent=True)
    line = ask_files(place, lambda service: service.entry(place.word(word)), silent, word=word)
    if line.reason is not None:
        said = f"{line.title} ({line.origin}): it does not run: {line.reason}"
        own: dict[str, Any] = {"code": "entry_state", "exit_code": Exit.CONFLICT}
        raise HoraeError(said, **own, title=line.title)


def _run_entry(
    entry: str, place: Place, screen: RunScreen, *, note: str, key: str | None = None
) -> int:
    own: dict[str, Any] = {"note": note, "idempotency_key": key}
    if inside := actor.own_run(place.directory):  # the run inside which this command runs
        own["parent_run"] = int(inside)
    flag = "--no-wait" if screen.waits is False else "" if key is None else "--key"
    return screen.run(place, lambda service: service.run_now(place.word(entry), **own), flag=flag)


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
    filed = connection.read_any(place, lambda service: service.receipt(receipt))
    is_tick = filed.key.startswith("tick:")
    is_watched = sys.stdout.isatty() if waits is None and is_tick else waits
    screen, inside = RunScreen(output, raw=raw, waits=is_watched), actor.own_run(place.directory)
    own = {"receipt": receipt, "parent_run": int(inside) if inside else None}
    flag = "--no-wait" if screen.waits is False and not is_tick else ""
    return screen.run(place, lambda service: service.retry(str(filed.entry), **own), flag=flag)


@click.command()
@click.argument("what", metavar="RUN|ENTRY")
@click.option("-f", "--follow", is_flag=True, help="Follow the output until the run ends.")
@options.option("-n --tail N", "Only the last N lines.", type=click.IntRange(0))
@options.option("--since TIME", "Only what was written since TIME, or in the last 10m.")
@options.option("--grep PATTERN", "Only lines that match this regular expression.")
@options.option("--step NAME", "Only the output of this step of a workflow.")
@options.option("--attempt N", "The Nth attempt instead of the last.", type=click.IntRange(1))
@options.option("--download FILE", "Write the output to a new file.")
@raw_option
@options.place_options
def logs(
    what: str,
    *,
    follow: bool,
    tail: int | None,
    raw: bool,
    place: Place,
    since: str | None = None,
    grep: str | None = None,
    step: str | None = None,
    attempt: int | None = None,
    download: str | None = None,
) -> int:
    """Show the output of a run.

    Name the run by its number, or an entry for its last run. The numbers in `horae history` are
    receipt numbers; `horae why ENTRY` shows the run numbers. The event stream of an agent program
    is shown as text: what the agent wrote, its tool calls and their results. On a terminal control
    characters are shown as text. With --raw the output is unchanged.
    """
    try:
        pattern = None if grep is None else re.compile(os.fsencode(grep))
    except re.error as error:
        raise click.UsageError(f"--grep {grep!r} is not a regular expression: {error}.") from None
    wanted = LogSelection(step=step, tail=tail)
    if since is not None:
        now = clock.SystemClock().now()
        begin = moment_or_length(since, place.zone, now, such_as="10m", is_ago=True)
        wanted = wanted._replace(since=begin)
    found = connection.read_any(place, lambda service: _meant(service, what, attempt=attempt))
    parts = _log_parts(place, found.run, wanted, follow=follow)
    if pattern is not None:
        parts = matching(parts, pattern)
    if download is not None:
        return _download(parts, download)
    screen = RunScreen(Output(Form.TABLE), raw=raw)
    for part in parts:
        screen.show(part)
    screen.end()
    if not screen.has_shown and wanted == LogSelection() and pattern is None:
        was_more = bool(found.facts.get("output"))
        run_of = f"run {found.run} of {found.title}"
        gone = f"the output of {run_of} has been removed"
        echo(f"horae: {gone if was_more else f'{run_of} wrote no output'}", err=True)
    return Exit.OK


def _log_parts(place: Place, number: int, wanted: LogSelection, *, follow: bool) -> Iterator[bytes]:
    engine = None if place.server else lock.engine_in(place.directory)
    client = place.server if engine is None else Client(place.directory, pid=engine.pid)
    if client is None and place.store is not None:
        client = connection.leader_of(place, place.store)
    if client is not None and client.answers():
        try:
            yield from client.log(
                number, tail=wanted.tail, follow=follow, since=wanted.since, step=wanted.step
            )
        except EngineUnreachableError:
            run = read(place, lambda service: service.run_of(number))
            if engine is None or run.ended_at is None:
                raise
            # The engine was stopped, and the run ended with it.
        return
    from horae.process.processes import LOG_NAME

    at_home = RunPlace(place.directory, place.directory, {}, timedelta(0))
    path = at_home.directory_of(read(place, lambda service: service.run_of(number))) / LOG_NAME
    log, at, end, is_going = RunLog(path), 0, None, True
    while is_going:
        is_going = follow and _goes_on(place, number)
        if not at:
            at, end = log.select(wanted)
        while end is None or at < end:
            part, at = log.read(at, CHUNK if end is None else min(CHUNK, end - at))
            if not part:
                break
            yield part
        if is_going:
            sleep(LOOK)


def matching(parts: Iterable[bytes], pattern: re.Pattern[bytes]) -> Iterator[bytes]:
    """Yield the lines that match a pattern; one that is very long is looked at in pieces."""
    rest = b""
    for part in chain(parts, [b""]):
        *whole, rest = (rest + part).split(b"\n")
        if rest and (not part or len(rest) > _LONG_LINE):
            whole, rest = [*whole, rest], b""
        if found := b"".join(each + b"\n" for each in whole if pattern.search(each)):
            yield found


def _download(parts: Iterator[bytes], name: str) -> int:
    size = 0
    try:
        with open(name, "xb") as file:
            for part in parts:
                size += file.write(part)
    except OSError as error:
        raise DownloadError(name, error) from error
    echo(f"horae: {name}: {size:,} bytes", err=True)
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
    client = connection.engine_at(place)
    if client is None:
        raise _no_engine(place, "so there is nothing to cancel")
    found = connection.through(client, lambda engine: _meant(engine, place.word(what), going=True))
    said = client.cancel(found.run, reason=reason)
    already = "" if said.changed else " already"
    print_answer(output, said, f"{said.title}: run {said.run} is{already} being cancelled")


def _goes_on(place: Place, number: int) -> bool:
    """Tell whether a command without an engine is executing a run."""
    is_used = bool(connection.engine_here(place).user)
    return is_used and read(place, lambda service: service.run(number)).ended_at is None


async def _meant(
    service: connection.AnyService, what: str, *, going: bool = False, attempt: int | None = None
) -> views.RunLine:
    """Return the run that is meant; of an entry the last one, or the one that is *going*."""
    if not (what.isascii() and what.isdecimal()):
        found = await service.last_run(what, going=going)
    elif (number := int(what[:19])) < 2**63:
        found = await service.run(number)
    else:
        raise views.RunNotFoundError(number)
    if attempt is None:
        return found
    runs = (await service.receipt(found.receipt)).runs
    if (run := next((each.run for each in runs if each.attempt == attempt), None)) is None:
        raise views.RunNotFoundError(f"attempt {attempt} of receipt {found.receipt}")
    return await service.run(run)


def _no_engine(place: Place, rest: str) -> EngineUnreachableError:
    return EngineUnreachableError(str(place.directory), f"no engine is running here, {rest}")


def _at_the_gate(client: Client, receipt: int) -> str:
    line = client.gate(limit=1000).waiting
    return next((each.reason for each in line if each.receipt == receipt), "")


def _obstacle(client: Client, told: views.ReceiptDetail) -> str:
    title = told.title
    if told.status is Status.HELD:
        return f"{title} is held: {in_zone(told.reason, told.zone, told.reason_code)}"
    if reason := _at_the_gate(client, told.receipt):
        return f"{title} waits: {reason}"
    start = f"starts at {moment_text(told.start_at.replace(microsecond=0), told.zone)} or later"
    if told.runs:
        last = told.runs[-1]
        ended = f"attempt {last.attempt} {last.outcome or 'ended'} ({told.reason})"
        return f"{title}: {ended}; attempt {told.attempts + 1} {start}"
    return f"{title} waits: {told.reason}; the run {start}"


class RunScreen:
    """Where a run is shown: its output as it is into a pipe, safe on a terminal, and its end."""

    def __init__(self, output: Output, *, raw: bool = False, waits: bool | None = None) -> None:
        is_terminal = sys.stdout.isatty()
        self._output, self._is_raw = output, raw or not is_terminal
        self.waits, self.has_shown, self._at = waits, False, 0
        self._transcript = None if raw else Transcript()
        self._waits = is_terminal and output.is_text if waits is None else waits
        decoder = getincrementaldecoder("utf-8")(errors="replace")
        self._decoder = IncrementalNewlineDecoder(decoder, translate=True)

    def show(self, part: bytes) -> None:
        if not self._output.is_text:
            return
        self.has_shown |= bool(part)
        if self._transcript is not None:
            part = self._transcript.feed(part)
        self._print(part)

    def end(self) -> None:
        """Show what is left of an output that has ended."""
        if self._transcript is not None and self._output.is_text:
            self._print(self._transcript.rest())

    def _print(self, part: bytes) -> None:
        text = "\t".join(map(clean, self._decoder.decode(part).split("\t")))  # tabs stay
        click.echo(part if self._is_raw else text, nl=False)
        sys.stdout.flush()

    def show_file(self, path: Path) -> None:
        """Show what was added to a log."""
        log = RunLog(path)
        while (found := log.read(self._at))[0]:
            part, self._at = found
            self.show(part)

    def follow(self, client: Client, asked: views.ReceiptLine) -> int:
        """Show a receipt of an engine, and what its runs put out until it is final or held back."""
        number = asked.receipt
        if not self._waits:
            said = f"{asked.title}: receipt {number}, {asked.status}"
            print_answer(self._output, asked, said)
            return Exit.OK
        try:
            return self._end(self._wait_for(client, number))
        except KeyboardInterrupt:
            ends = f"`horae cancel {asked.entry}` ends it"
            echo(f"horae: receipt {number} is still running; {ends}", err=True)
            raise

    def _wait_for(self, client: Client, receipt: int) -> views.ReceiptDetail:
        shown: set[int] = set()
        why, looks = "", 0
        while True:
            told = client.receipt(receipt)
            coming = [each.run for each in told.runs if each.run not in shown]
            for number in coming:
                shown.add(number)
                for part in client.log(number, follow=True):
                    self.show(part)
                self.end()
            if coming:
                continue
            is_held_back = told.status is Status.HELD and told.reason_code in HELD_BACK
            if is_held_back or told.status in FINAL:
                return told
            looks += 1
            if looks % _ASK_WHY == 0 and self._output.is_text:
                again = _obstacle(client, told)
                if again != why:
                    echo(f"horae: {again}", err=True)
                why = again
            sleep(LOOK)

    def run(
        self,
        place: Place,
        asked: Callable[[connection.AnyService], Awaitable[views.ReceiptLine]],
        *,
        flag: str = "",
    ) -> int:
        """Let an engine run what is asked; without one it runs here, unless a *flag* needs one."""

        def opening() -> AbstractAsyncContextManager[App]:
            from horae.app import build

            if flag:
                raise _no_engine(place, f"and {flag} needs one; start it with `horae up`")
            if place.store is not None:
                no_leader = "and no node leads; `horae cluster nodes` lists the nodes"
                raise _no_engine(place, no_leader)
            return build(place.config, command=connection.command_words())

        async def here(app: App) -> int:
            task = asyncio.create_task(app.run_once(asked))
            showing = asyncio.create_task(self._show_while(app, task))
            try:
                filed = await task
            finally:
                await showing
            return self._end(await app.service.receipt(filed.number))

        return connection.by_engine_or_alone(
            place,
            lambda client: self.follow(client, connection.through(client, asked)),
            opening,
            here,
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
        self.end()

    def _end(self, told: views.ReceiptDetail) -> int:
        again = ""
        if self._output.is_text:  # beside what its run has put out
            if told.status is Status.WAITING:
                when = moment_text(told.start_at, told.zone)
                again = f"; an engine retries it at {when} or later; start one with `horae up`"
            ended = told.status.replace("_", " ")
            reason = in_zone(told.reason, told.zone, told.reason_code)
            echo(f"horae: {told.title}: {ended}: {reason}{again}", err=True)
        else:
            print_answer(self._output, told, "")
        return exit_of(told.status, told.reason_code)


def exit_of(status: Status, reason_code: str | None) -> int:
    if status in {Status.DONE, Status.NO_WORK}:
        return Exit.OK
    is_too_long = status is Status.KILLED and reason_code == ReasonCode.TIME_LIMIT
    return Exit.TIMED_OUT if is_too_long else Exit.FINDINGS
