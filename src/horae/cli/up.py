"""`up` and `stop`: the engine in the foreground, with a live screen or a log, and its end."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import groupby, starmap
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import click

from horae.cli import client, options
from horae.cli.connection import (
    BRIEF,
    EmptyRootError,
    NotAnEngineError,
    Place,
    command_words,
    read,
    refuse_no_root,
)
from horae.cli.options import flag, option
from horae.cli.output import Output, console, echo, form_options, json_text, print_answer
from horae.config import Config, load
from horae.core import actor, clock
from horae.core.entry import key_time
from horae.core.explain import requested_words
from horae.core.ports import Event, Ledger, LedgerBusyError, LedgerError, LedgerWholeError
from horae.core.receipt import FINAL, ReasonCode, Status
from horae.core.text import QUOTED, in_zone, period_text
from horae.errors import Exit, HoraeError
from horae.org.collector import calm_collector
from horae.process.launcher import allow_descriptors
from horae.store import database, lock, sqlite
from horae.timing.duration import format_duration, parse_duration
from horae.timing.zone import local, zone

if TYPE_CHECKING:
    from horae.app import App
    from horae.store.ledger import SqlLedger

    _Look: TypeAlias = Callable[[int], Awaitable[tuple[list[Event], int]]]

_NEW_LEDGER: Final = """\
A new ledger has no history, no pauses, and none of the triggers and agents that were created by \
request.
Plans are read again, agents continue from their state files, and scheduled times that have passed \
do not run."""

T = TypeVar("T")

EVENTS: Final = "horae.events"  # the logger of what is in the ledger
LEVELS: Final = ("debug", "info", "warning", "error")
FIELDS: Final = ("source", "entry", "receipt", "run")  # that a record may carry


level_option = options.choice_option(
    "--log-level", "Write lines of this level and above.", LEVELS, name="level", default="info"
)

log = logging.getLogger(__name__)
events_log = logging.getLogger(EVENTS)

# Events on the way to others, and events that need somebody's attention.
_BARE: Final = frozenset({"file", "reason", "what"})  # facts of events that need no name
_NOUNS: Final = frozenset({"agent", "member", "token", "trigger"})  # that stand before a name
_KINDS: Final = {
    "entry_back": "added again",
    "entry_gone": "removed",
    "entry_mended": "repaired",
    "clock_step": "clock set",
}
_MINOR: Final = frozenset({"entry_new"})
_MAJOR: Final = frozenset(
    {"clock_step", "entry_broken", "member_lost", "poll_failed", "undelivered"}
)
_DAY: Final = timedelta(days=1)
_REFRESH: Final = 0.5  # seconds between two looks at what has happened
_TOGETHER: Final = 0.05  # seconds in which what is written is read together
_UNTOLD: Final = 2.0  # the same, of what this process has not written
_STALLED: Final = 10.0  # seconds between two looks for a stall
_LOOK: Final = 0.2  # seconds between two checks of an engine that stops
_TOLD: Final = 5.0  # seconds after which progress is printed again
_MARGIN: Final = timedelta(seconds=30)  # beyond `run.drain`, for an engine to end its runs
_GOING: Final = (Status.STARTING, Status.RUNNING)
_NOT_RUN: Final = (Status.SKIPPED, Status.COALESCED, Status.MISSED)
_BAD: Final = (Status.FAILED, Status.KILLED, Status.INTERRUPTED, Status.MISSED, Status.HELD)
_SHOWN: Final = 5  # runs that progress names
_REPEAT: Final = 60.0  # seconds in which the same warning is logged once


@click.command()
@options.root_argument
@options.data_option
@options.choice_option(
    "--log",
    "The format of the log; default: a screen on a terminal, else plain.",
    ["screen", "plain", "json"],
    name="form",
)
@level_option
@options.seconds_option
@flag(
    "--empty-plan", "Accept that the plan root has no plan files any more: its entries are removed."
)
@flag("--fresh-ledger", "Replace a lost or damaged ledger with a new one.")
@flag("--yes", "Do not ask for confirmation of --fresh-ledger.")
def up(
    *, root: str, data: str | None, form: str | None, fresh_ledger: bool, yes: bool, **how: Any
) -> int:
    """Run what is scheduled in your plan files.

    This command runs the engine until Ctrl-C or SIGTERM: it starts entries at their scheduled
    times, shows events, and serves the page, a web page for the browser.
    """
    if os.path.isfile(root):
        where = os.path.dirname(root) or "."
        raise click.UsageError(f"{root}: is a file; name its directory: horae up {where}")
    config = load(root, flags={"data": data})
    # A ledger elsewhere may know the plans that should be there: then it says so and waits.
    refuse_no_root(root, config.data)
    if yes and not fresh_ledger:
        raise click.UsageError("--yes goes with --fresh-ledger.")
    if fresh_ledger and not _leave_behind(config, yes=yes):
        return Exit.FINDINGS
    shown = form or ("screen" if sys.stdout.isatty() else "plain")
    zone_name = config.zone or clock.machine_zone().key
    with logging_to(shown, level=how.pop("level"), zone_name=zone_name, node=config.node_name):
        log_notes(f"{each.file}:{each.line}: {each.advice}" for each in config.findings)
        allow_descriptors()
        if config.store is not None:
            return asyncio.run(take_part(config, is_json=shown == "json", **how))
        # A command has the lock for a moment; an engine that has it answers.
        gives_up_at, far = monotonic() + BRIEF.total_seconds(), client.Far(config.data)
        while lock.holder_of(config.data) and not far.answers() and monotonic() < gives_up_at:
            sleep(0.02)
        return asyncio.run(run_plans(config, shown=shown, **how))


def _leave_behind(config: Config, *, yes: bool) -> bool:
    """Begin a new ledger in place of a lost one, if somebody agrees; one that is whole stays."""
    if config.store is not None:
        raise click.UsageError("--fresh-ledger is for a ledger in the data directory, not a store.")
    directory = config.data
    if holder := lock.holder_of(directory):
        raise lock.DataLockedError(str(directory), holder)
    lost = database.loss_of(directory)
    if lost is None:
        if (directory / database.DATABASE).exists():
            raise LedgerWholeError(str(directory / database.DATABASE))
        return True  # there never was one
    echo(f"horae: {lost.place}: {lost.reason}", err=True)
    if not yes:
        if not sys.stdin.isatty():
            needs = "asks for confirmation, which needs a terminal; use --yes."
            raise click.UsageError(f"--fresh-ledger {needs}")
        if backups := len([*(directory / "backups").glob("*.db")]):
            many = "1 backup is" if backups == 1 else f"{backups} backups are"
            echo(f"{many} in {directory}/backups; `horae doctor --restore` restores the newest.")
        echo(_NEW_LEDGER)
        if not click.confirm("Start a new ledger?"):
            echo("horae: nothing was changed", err=True)
            return False
    with actor.acting(f"cli:{actor.user_name(os.getuid())}"):
        now = clock.SystemClock().now()
        old = asyncio.run(sqlite.start_afresh(directory, now=now, command=command_words()))
    where = "the old ledger could not be saved" if old is None else f"the old ledger is {old}"
    passed = "scheduled times that have passed do not run"
    echo(f"horae: a new ledger is created; {passed}; {where}", err=True)
    return True


@click.command()
@options.root_argument
@options.data_option
@options.choice_option(
    "--log", "The format of the log.", ["plain", "json"], name="form", default="plain"
)
@level_option
@options.seconds_option
def worker(*, root: str, data: str | None, form: str, level: str, seconds: float | None) -> int:
    """Run a node that never becomes the leader.

    DIR is a working copy of the plan, of which only the origin and horae.toml are used; the
    setting `store` names the database that all nodes share.
    """
    if not os.path.isdir(root):
        raise EmptyRootError(root)
    config = load(root, flags={"data": data})
    allow_descriptors()
    zone_name, is_json = config.zone or "UTC", form == "json"
    with logging_to(form, level=level, zone_name=zone_name, node=config.node_name):
        return asyncio.run(take_part(config, seconds=seconds, may_lead=False, is_json=is_json))


async def take_part(
    config: Config,
    *,
    seconds: float | None,
    is_json: bool,
    may_lead: bool = True,
    empty_plan: bool = False,
) -> int:
    from horae.cluster.node import open_member

    stop = _stop_event(seconds)
    async with AsyncExitStack() as stack:
        member = await _when_free(lambda: stack.enter_async_context(open_member(config)), stop)
        if member is None:
            return Exit.OK
        turned = asyncio.Event()
        member.turned = partial(_note_turn, turned)
        member.may_be_empty = empty_plan
        log_notes(member.notes)
        _notify("READY=1")
        calm_collector()
        newest = await member.ledger.newest_event()
        how: dict[str, Any] = {"each_alone": is_json, "look": member.events_after}
        events = _log_events(member.ledger, newest, stop, zone_name=config.zone or "UTC", **how)
        logging_events = asyncio.create_task(events)

        async def problems() -> list[str]:
            found = () if member.leading is None else member.leading.facts().problems
            # The node logs what is wrong with its copy of the plan.
            return [each for each in found if each != member.plan.trouble]

        logging_problems = asyncio.create_task(_log_problems(problems, member.notes, turned))
        try:
            await member.keep(stop, may_lead=may_lead)
        finally:
            _notify("STOPPING=1")
            stop.set()
            member.ledger.written.set()
            logging_problems.cancel()
            await logging_events
    return Exit.OK


async def _log_problems(
    problems: Callable[[], Awaitable[Iterable[str]]], known: Iterable[str], turned: asyncio.Event
) -> None:
    """Log each problem once, after the turn of the engine that has met it."""
    logged = set(known)
    while True:
        await asyncio.sleep(_REFRESH)
        with suppress(TimeoutError):  # the wait is over
            await asyncio.wait_for(turned.wait(), _STALLED)
        turned.clear()
        now = dict.fromkeys(await problems())
        log_notes(each for each in now if each not in logged)
        for problem in logged.difference(now):
            log.debug("resolved: %s", problem)
        logged = set(now)


async def run_plans(
    config: Config,
    *,
    shown: str,
    seconds: float | None,
    empty_plan: bool = False,
    begin: Callable[[App, str | None], None] | None = None,
    pace: float = 0.0,
) -> int:
    """Run the plans until a signal; `begin` gets the link of the page and prints its own lines."""
    from horae.app import build, keep, start  # not for --help
    from horae.web.app import open_server

    stop = _stop_event(seconds)
    async with AsyncExitStack() as stack:
        app = await _when_free(lambda: stack.enter_async_context(build(config)), stop)
        if app is None:
            return Exit.OK
        app.engine.may_be_empty = empty_plan
        newest = await app.ledger.newest_event()
        server = await open_server(app)
        (begin or _say_where)(app, server.link)
        over, turned = asyncio.Event(), asyncio.Event()
        beside = [asyncio.create_task(_log_stop(app, stop))]
        if shown == "screen":
            show = _show_screen(app, _events(app.ledger, after=newest, over=over), stop)
        else:
            how: dict[str, Any] = {"each_alone": shown == "json", "pace": pace, "stop": stop}
            show = _log_events(app.ledger, newest, over, zone_name=app.context.zone_name, **how)
            stall, look_at = "", 0.0

            async def problems() -> list[str]:
                nonlocal stall, look_at
                if monotonic() >= look_at:
                    look_at = monotonic() + _STALLED
                    try:
                        stall = await app.engine.stall()
                    except LedgerError as error:  # a problem of its own, of which the engine knows
                        log.debug("cannot look for a stall: %s", error)
                return [*filter(None, [stall]), *app.facts().problems]

            beside.append(asyncio.create_task(_log_problems(problems, app.notes, turned)))
            if begin is None:
                beside.append(asyncio.create_task(_log_beginning(app)))
        showing = asyncio.create_task(show)
        told = asyncio.create_task(server.serve(stop))
        _notify("READY=1")
        calm_collector()
        app.engine.longest_rest = min(app.engine.longest_rest, _watched_every() / 2)
        try:
            if await _when_free(lambda: start(app), stop):
                await keep(app, stop=stop, turned=partial(_note_turn, turned))
        finally:
            _notify("STOPPING=1")
            stop.set()
            over.set()
            app.ledger.written.set()
            try:
                await asyncio.gather(showing, told)
            finally:
                for each in beside:
                    each.cancel()
        await _sum_up(app, after=newest)
    return Exit.OK


async def _log_stop(app: App, stop: asyncio.Event) -> None:
    """Tell that the engine is stopping: in the log, and to commands that look at its lock."""
    await stop.wait()
    if isinstance(app.ledger, sqlite.SqliteLedger):
        app.ledger.note_lock(stopping=True)
    try:
        going = await app.service.history(statuses=_GOING, limit=100)
    except LedgerError as error:  # the engine says so, too, and acts on it
        log.debug("cannot read which runs are in progress: %s", error)
        return
    if going.lines:
        most, runs = format_duration(app.config.run_drain), [each.title for each in going.lines]
        hint = " (Ctrl-C again ends them now)" if sys.stdin.isatty() else ""
        log.info("stopping; waiting up to %s for %s%s", most, _runs_text(runs), hint)


async def _when_free(part: Callable[[], Awaitable[T]], stop: asyncio.Event) -> T | None:
    """Return what a part of the start gives as soon as the ledger is free; None: stopped before."""
    is_told = False
    while True:
        try:
            return await part()
        except LedgerBusyError as error:
            pid = lock.writer_of(Path(error.place))
            who = error.reason if pid is None else f"process {pid} is writing to the ledger"
            if not is_told:
                log.warning("%s: %s; waiting until the ledger is free", error.place, who)
            is_told = True
        _notify("WATCHDOG=1")
        with suppress(TimeoutError):  # the wait is over
            await asyncio.wait_for(stop.wait(), _REFRESH)
        if stop.is_set():
            return None


def _say_where(app: App, link: str | None) -> None:
    log.info("running the plans in %s (ledger in %s); stop with Ctrl-C", app.root, app.data)
    if link is not None:
        log.info("open the page at %s (the link works once; `horae open` prints a new one)", link)
    log_notes(app.notes)


def log_notes(notes: Iterable[str]) -> None:
    for note in notes:
        log.warning("%s", note)


def _stop_event(seconds: float | None) -> asyncio.Event:
    """Return an event that SIGTERM and Ctrl-C set, or some seconds; a second Ctrl-C insists."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()

    def interrupted() -> None:
        if stop.is_set():
            log.warning("ended by a second Ctrl-C; runs in progress end with the engine")
            os._exit(Exit.INTERRUPTED)  # the runs' lifelines close, so they end with us
        stop.set()

    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_signal_handler(signal.SIGINT, interrupted)
    if seconds is not None:
        loop.call_later(seconds, stop.set)
    return stop


def _watched_every() -> timedelta:
    """Return how long systemd waits for a sign of life, if it waits for ours."""
    text = os.environ.get("WATCHDOG_USEC", "")
    is_ours = os.environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
    if not is_ours or not text.isascii() or not text.isdigit() or len(text) > 12:
        return _DAY
    return timedelta(microseconds=int(text)) or _DAY


def _note_turn(turned: asyncio.Event) -> None:
    turned.set()
    _notify("WATCHDOG=1")


def _notify(state: str) -> None:
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    # A systemd that does not listen restarts the service when its own time is over.
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as teller:
        teller.connect("\0" + address[1:] if address.startswith("@") else address)
        teller.send(state.encode())


async def _log_events(
    ledger: SqlLedger,
    after: int,
    over: asyncio.Event,
    *,
    zone_name: str,
    each_alone: bool = False,
    pace: float = 0.0,
    stop: asyncio.Event | None = None,
    look: _Look | None = None,
) -> None:
    """Log the events after a number until *over*; *pace* is the least time between two lines.

    Scheduled times that did not run for one reason are one line, unless *each_alone*.
    """
    found = _events(ledger, after=after, over=over, look=look, each_alone=each_alone)
    async for alike in found:
        event, level = alike[0], _level(alike[0])
        if not events_log.isEnabledFor(level):
            continue
        try:
            word, text = await _words(ledger, alike, zone_name)
        except LedgerError as error:  # the engine says so, too, and acts on it
            log.debug("cannot log event %d: %s", event.number, error)
            continue
        data = {"event": event.number, "at": key_time(event.at)}
        data |= {name: getattr(event, name) for name in ("kind", "entry", "receipt", "actor")}
        extra = {"at": event.at, "word": word, "event": data | dict(event.facts)}
        events_log.log(level, "%s", text, extra=extra)
        if pace and stop is not None:
            # Later events wait in the ledger; after a stop they are logged at once.
            with suppress(TimeoutError):  # the wait is over
                await asyncio.wait_for(stop.wait(), pace)


async def _log_beginning(app: App) -> None:
    while app.engine.turned_at is None:
        await asyncio.sleep(_REFRESH / 5)
    facts = app.facts()
    stands = await app.service.status(facts)
    log_notes(each for each in stands.problems if each not in facts.problems)
    if not stands.entries and not stands.unarmed:
        log.warning("%s has no entries; `horae init` writes an example plan", app.root)
    ticking = [(each.entry.next_at, each) for each in stands.agents if each.entry.next_at]
    if ticking:
        at, first = min(ticking, key=lambda each: each[0])
        when = f"{local(at, zone(app.context.zone_name)):%Y-%m-%d %H:%M:%S} {app.context.zone_name}"
        log.info("first tick: %s, at %s", first.name, when)


async def _events(
    ledger: SqlLedger,
    *,
    after: int,
    over: asyncio.Event,
    look: _Look | None = None,
    each_alone: bool = False,
) -> AsyncIterator[Sequence[Event]]:
    """Yield the events after a number until the engine is *over*, the last ones included.

    Those of one line of the log come together, unless *each_alone*. *look* returns only some of
    them, and how far it has looked.
    """

    async def look_at_all(number: int) -> tuple[list[Event], int]:
        found = await ledger.events_after(number)
        return found, found[-1].number if found else number

    look = look or look_at_all
    while True:
        is_last = over.is_set()
        ledger.written.clear()
        try:
            while True:
                found, looked_at = await look(after)
                for _, alike in groupby(found, key=_number if each_alone else _line_key):
                    yield [*alike]
                is_all, after = looked_at == after, looked_at
                if is_all or not found:
                    break
        except LedgerError as error:  # the engine says so, too, and acts on it
            log.debug("cannot read events: %s", error)
        if is_last:
            return
        with suppress(TimeoutError):  # the wait is over
            # Another node of a cluster may have written, too.
            await asyncio.wait_for(ledger.written.wait(), _UNTOLD)
        await asyncio.sleep(_TOGETHER)


def _number(event: Event) -> object:
    return event.number


def _line_key(event: Event) -> object:
    """Return what scheduled times that did not run have in common if they share a line."""
    facts = event.facts
    if event.kind != "receipt" or facts["status"] not in _NOT_RUN or "key" not in facts:
        return event.number
    return event.entry, facts["status"], facts["reason"], facts.get("reason_code")


def _level(event: Event) -> int:
    """Return how important an event is: a receipt that ends is one line at INFO."""
    if event.kind in _MAJOR:
        return logging.WARNING
    if event.kind != "receipt":
        return logging.DEBUG if event.kind in _MINOR else logging.INFO
    is_new = "key" in event.facts  # it was just decided, and nothing has happened yet
    status = Status(str(event.facts["status"]))
    is_edit = event.facts.get("reason_code") == ReasonCode.ENTRY_BROKEN  # an event of its own
    if status in _GOING or (status is Status.WAITING and is_new) or is_edit:
        return logging.DEBUG
    return logging.WARNING if status in _BAD else logging.INFO


# Their words are what a run printed, or a word about how it ended.
_RESULTS: Final = frozenset({ReasonCode.COMPLETED, ReasonCode.NO_WORK})
# Of a receipt that was held.
_RELEASED: Final = frozenset(
    [
        "approved",
        "policy_changed",
        "agent_available",
        "engine_restarted",
        "ready",
        "retry_requested",
    ]
)


async def _words(ledger: Ledger, alike: Sequence[Event], zone_name: str) -> tuple[str, str]:
    event = alike[0]
    if event.kind == "receipt":
        read = [await ledger.receipt(each.receipt) for each in alike if each.receipt is not None]
        known = [each for each in read if each is not None]
        filed = known[0] if known else None
        where = "" if filed is None else f"{filed.title}  {filed.origin}"
        code, reason = event.facts.get("reason_code"), str(event.facts["reason"])
        reason = reason if code in QUOTED else in_zone(reason, zone_name)
        if filed is not None and event.facts["status"] in _NOT_RUN:
            receipts = [each.receipt for each in known]
            first, last, count = receipts[0], receipts[-1], sum(each.count for each in receipts)
            through = last.through_at or (last.planned_at if last is not first else None)
            where += f"  {period_text(first.planned_at, through, count, zone_name)}"
        if code in _RESULTS:
            reason = f"result: {reason}"
        if filed is not None and filed.attempts and event.facts["status"] == Status.WAITING:
            is_released = code in _RELEASED
            said = f"attempt {filed.attempts} failed, and the next one waits"
            reason = f"{'can start' if is_released else said}: {reason}"
        if filed is not None and filed.receipt.note and event.facts["status"] in FINAL:
            reason = f"{reason}; {requested_words(filed)}"
        return str(event.facts["status"]), f"{where}  {reason}"
    word = _KINDS.get(event.kind, event.kind.removeprefix("entry_").replace("_", " "))
    entry = None if event.entry is None else await ledger.entry(event.entry)
    facts = {name: value for name, value in event.facts.items() if value not in (None, "")}
    facts.pop("node", None)  # it is that of the log
    subject, note = str(facts.get("title", "")), facts.pop("note", "")
    if entry is not None:
        subject = f"{entry.mark.title}  {entry.item.origin}"
    if entry is not None and event.kind == "entry_gone":
        return word, subject
    if not isinstance(facts.get("title"), list):
        facts.pop("title", None)
    if len(facts) > 1 and str(facts.get("file", "-")) in str(facts.get("what", "")):
        facts.pop("file")
    what, action, rest = str(facts.get("what", "")).partition(" added: ")
    if event.kind == "edited" and action:
        word, facts["what"] = "added", f"{what}: {rest}"
    elif event.kind == "edited" and what.isalpha():
        word = str(facts.pop("what"))
    told = [*starmap(_fact_words, facts.items())]
    told += [] if event.actor == actor.ENGINE else [f"by {actor.actor_words(event.actor)}"]
    told += [f"({note})"] if note else []
    return word, in_zone("  ".join(filter(None, [subject, " ".join(told)])), zone_name)


def _fact_words(name: str, value: object) -> str:
    """Return a fact of an event in words.

    >>> _fact_words("rule", ["0 9 * * *", "0 8 * * *"]), _fact_words("token", "ci")
    ('schedule: 0 9 * * * → 0 8 * * *', 'token ci')
    """
    if isinstance(value, list):
        name = {"rule": "schedule", "address": "id"}.get(name, name)
        return f"{name}: {' → '.join(str(each or 'none') for each in value)}"
    if name in _BARE:
        return str(value)
    return f"{name} {value}" if name in _NOUNS or name == "until" else f"{name}: {value}"


async def _show_screen(
    app: App, events: AsyncIterator[Sequence[Event]], stop: asyncio.Event
) -> None:
    from rich.live import Live

    from horae.cli.status import drawn

    lines: deque[str] = deque(maxlen=10)

    async def listen() -> None:
        async for alike in events:
            if events_log.isEnabledFor(_level(alike[0])):
                word, text = await _words(app.ledger, alike, app.context.zone_name)
                lines.append(plain_line(alike[0].at, app.context.zone_name, word, text))

    listening = asyncio.create_task(listen())
    with Live(console=console(), auto_refresh=False, transient=True) as live:
        while not stop.is_set():
            if app.engine.turned_at is None:  # before the first turn nothing is decided yet
                await asyncio.sleep(_REFRESH / 5)
                continue
            stands = await app.service.status(app.facts(), limit=8)
            waits = app.engine.gate.obstacles(now=app.clock.now())
            reasons = {each.ask.number: each.reason for each in waits}
            live.update(drawn(str(app.root), stands, reasons, lines), refresh=True)
            with suppress(TimeoutError):  # the wait is over
                await asyncio.wait_for(stop.wait(), _REFRESH)
    await listening
    for line in lines:
        echo(line)


async def _sum_up(app: App, *, after: int) -> None:
    last: dict[int | None, str] = {}  # the status of each receipt that was written
    while events := await app.ledger.events_after(after):
        after = events[-1].number
        told = (event for event in events if event.kind == "receipt")
        last.update((event.receipt, str(event.facts["status"])) for event in told)
    counts = sorted(Counter(last.values()).items())
    said = ", ".join(f"{count} {status}" for status, count in counts)
    since = key_time(app.engine.started_at or app.clock.now())
    what = f"receipts since {since}: {said}" if said else f"no receipts since {since}"
    log.info("stopped; %s", what)


# stop


class NotStoppedError(HoraeError, code="not_stopped", exit_code=Exit.TIMED_OUT):
    def __init__(self, pid: int | None, within: timedelta, runs: list[str]) -> None:
        self.pid, self.runs = pid, runs
        what = f", with {_runs_text(runs)}" if runs else ""
        still = f"is still running after {format_duration(within)}{what}"
        ends = "it ends its runs after the time in the setting run.drain"
        remedy = f"to wait longer, or end the engine and its runs with `kill -9 {pid}`"
        super().__init__(
            f"the engine (process {pid}) {still}; {ends}: run `horae stop` again {remedy}"
        )


class CannotStopError(HoraeError, code="cannot_stop", exit_code=Exit.UNAUTHORISED):
    def __init__(self, directory: str, reason: str) -> None:
        self.directory, self.reason = directory, reason
        super().__init__(f"{directory}: {reason}")


@click.command()
@options.root_argument
@option(
    "--timeout LENGTH", "How long to wait, such as 2m; default: the setting run.drain plus 30s."
)
@click.option("--no-wait", is_flag=True, help="Return at once; the engine stops by itself.")
@options.data_option
@options.as_place
@form_options
def stop(*, timeout: str | None, no_wait: bool, place: Place, output: Output) -> None:
    """Stop the engine; its runs get time to end.

    The engine starts no more runs and waits for the current ones to end, at most for the time
    in the setting run.drain; then it ends them. This command waits until the engine has ended
    and shows which runs it waits for. Exit code 124: the engine was still running after --timeout.
    """
    within = place.config.run_drain + _MARGIN if timeout is None else parse_duration(timeout)
    began, before = monotonic(), lock.engine_in(place.directory)
    pid = _end_engine(place, within=within, waits=not no_wait, says=output.is_text)
    is_over = pid is not None and not no_wait
    told = {"stopped": is_over, "pid": pid, "seconds": round(monotonic() - began, 1)}
    none = f"no engine is running in {place.directory}"
    text = f"the engine (process {pid}) has stopped"
    if not is_over:
        already = "already " if before is not None and before.is_stopping else ""
        runs = _runs_in_progress(place)
        waits = f"; it waits for {_runs_text(runs)}" if runs else ""
        text = f"the engine (process {pid}) is {already}stopping{waits}"
    print_answer(output, told, none if pid is None else text)


def _end_engine(place: Place, *, within: timedelta, waits: bool, says: bool) -> int | None:
    """Stop the engine of a data directory, wait for its end, and return its process, if any."""
    asked = seen = None
    told: list[str] | None = None
    began = told_at = monotonic()
    while True:
        holder = lock.holder_of(place.directory)
        if holder is not None and holder.use is lock.LockUse.RUN and seen is None:
            executes = f"it executes `{holder.command}` and ends with its run"
            remedy = "press Ctrl-C in its terminal to end it"
            raise NotAnEngineError(holder, f"is not an engine: {executes}; {remedy}")
        if holder is None or not holder.is_engine or asked not in {None, holder.pid}:
            return asked or seen  # another one may be started
        seen = holder.pid
        # Without an answer it may be starting, or stopping already.
        if asked is None and client.Far(place.directory, pid=holder.pid).answers():
            _signal(place, holder.pid)
            asked = holder.pid
        if not waits and (asked is not None or holder.is_stopping):
            return seen
        runs = _runs_in_progress(place)
        now = monotonic()
        if now >= began + within.total_seconds():
            raise NotStoppedError(holder.pid, within, runs)
        if says and (runs != told or now - told_at >= _TOLD):
            told, told_at = runs, now
            waited = format_duration(timedelta(seconds=int(now - began)))
            length = format_duration(within)
            what = _runs_text(runs) if runs else "the engine to stop"
            echo(f"horae: waiting for {what} ({waited} of at most {length})", err=True)
        sleep(_LOOK)


def _runs_in_progress(place: Place) -> list[str]:
    with suppress(HoraeError):  # the ledger is being closed: nothing runs any more
        found = read(place, lambda service: service.history(statuses=_GOING, limit=100))
        return [line.title for line in found.lines if line.filed.status in _GOING]
    return []


def _signal(place: Place, pid: int | None) -> None:
    if not pid:
        reason = "the engine runs in another container or on another machine"
        raise CannotStopError(str(place.directory), reason)
    try:
        with suppress(ProcessLookupError):  # it has just ended
            os.kill(pid, signal.SIGTERM)
    except PermissionError:
        whose = f"the engine (process {pid}) belongs to another user"
        how = "stop it as that user, or with `systemctl stop` if it is a service"
        raise CannotStopError(str(place.directory), f"{whose}; {how}") from None


def _runs_text(runs: list[str]) -> str:
    more = f" and {len(runs) - _SHOWN} more" if len(runs) > _SHOWN else ""
    return f"{len(runs)} run{'s' * (len(runs) != 1)}: {', '.join(runs[:_SHOWN])}{more}"


# The log: events of the ledger on stdout, all else on stderr, as text or JSON


@contextmanager
def logging_to(form: str, *, level: str, zone_name: str, node: str = "") -> Iterator[None]:
    """Write what is logged inside the block: `plain` in a zone, `json` in UTC, or on a `screen`."""
    handler = LogHandler()
    is_json = form == "json"
    handler.setFormatter(JsonFormatter(node) if is_json else PlainFormatter(zone_name, node))
    handler.addFilter(RepeatFilter())
    handler.setLevel(level.upper())
    root, ours = logging.getLogger(), logging.getLogger("horae")
    before = ours.level
    root.addHandler(handler)  # other packages log warnings and errors here, too
    ours.setLevel(level.upper())
    logging.captureWarnings(True)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        root.removeHandler(handler)
        ours.setLevel(before)


class LogHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):  # the reader is gone or the disk is full: the engine goes on
            echo(self.format(record), err=record.name != EVENTS)


class RepeatFilter(logging.Filter):
    """Lets the same warning or error through once a minute, and says how often it was repeated."""

    def __init__(self) -> None:
        super().__init__()
        self._logged: dict[tuple[str, str], tuple[float, int]] = {}  # when, and how often since

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING or record.name == EVENTS:
            return True
        now, text = record.created, record.getMessage()
        at, count = self._logged.get((record.name, text), (now - _REPEAT, 0))
        if 0 <= now - at < _REPEAT:
            self._logged[record.name, text] = at, count + 1
            return False
        known = self._logged.items()
        self._logged = {key: each for key, each in known if 0 <= now - each[0] < 2 * _REPEAT}
        self._logged[record.name, text] = now, 0
        if count:
            often = "once" if count == 1 else f"{count:,} times"
            record.msg, record.args = f"{text} (repeated {often} in the last minute)", None
        return True


class PlainFormatter(logging.Formatter):
    def __init__(self, zone_name: str, node: str = "") -> None:
        super().__init__()
        self._zone_name = zone_name
        self._node = f"{node}  " if node else ""

    def format(self, record: logging.LogRecord) -> str:
        word = getattr(record, "word", None) or record.levelname.lower()
        text = record.getMessage()
        # The words of an event may quote the output of a run, which stays as it is.
        text = text if record.name == EVENTS else in_zone(text, self._zone_name)
        text += f"\n{self.formatException(record.exc_info)}" if record.exc_info else ""
        return plain_line(_at(record), self._zone_name, word, text, self._node)


def plain_line(at: datetime, zone_name: str, word: str, text: str, node: str = "") -> str:
    when = f"{at.astimezone(zone(zone_name)):%Y-%m-%d %H:%M:%S} {zone_name}"
    return f"{when}  {node}{word:<11}  {text}".rstrip().replace("\n", "\n    ")


class JsonFormatter(logging.Formatter):
    def __init__(self, node: str = "") -> None:
        super().__init__()
        self._node = {"node": node} if node else {}

    def format(self, record: logging.LogRecord) -> str:
        data = {**self._node, "at": key_time(_at(record)), "level": record.levelname.lower()}
        data |= {"logger": record.name, "message": record.getMessage()}
        fields = {name: getattr(record, name) for name in FIELDS if hasattr(record, name)}
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json_text(getattr(record, "event", fields) | data, separators=(",", ":"))


def _at(record: logging.LogRecord) -> datetime:
    at = getattr(record, "at", None)
    return at if isinstance(at, datetime) else datetime.fromtimestamp(record.created, UTC)
