"""`up` and `worker`: the engine in the foreground, with a live screen or a log."""

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
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar

import click
from msgspec.structs import replace

from horae import __version__
from horae.app import App, build, end, keep, start, try_reader
from horae.cli import options
from horae.cli.connection import (
    BRIEF,
    command_words,
    refuse_no_root,
)
from horae.cli.options import flag
from horae.cli.output import console, echo, json_text, runs_text
from horae.client import Client
from horae.config import Config, load
from horae.core import actor, clock
from horae.core.entry import key_time
from horae.core.explain import requested_words
from horae.core.ports import (
    Event,
    Ledger,
    LedgerBusyError,
    LedgerError,
    LedgerUnavailableError,
    LedgerWholeError,
)
from horae.core.receipt import FINAL, GOING, ReasonCode, Status
from horae.core.text import QUOTED, in_zone, period_text
from horae.errors import Exit
from horae.org.document import calm_collector
from horae.process import handover
from horae.process.launcher import allow_descriptors
from horae.sources import load_all
from horae.store import database, lock, sqlite
from horae.timing.duration import format_duration
from horae.timing.zone import local, zone
from horae.web.app import WebServer, open_server

if TYPE_CHECKING:
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
    "settings_trusted": "trusted",
}
_MINOR: Final = frozenset({"entry_new"})
_MAJOR: Final = frozenset(
    {"clock_step", "entry_broken", "member_lost", "poll_failed", "undelivered"}
)
_DAY: Final = timedelta(days=1)
_REFRESH: Final = 0.5  # seconds between two looks at what has happened
_TOGETHER: Final = 0.05  # seconds in which what is written is read together
_UNTOLD: Final = 2.0  # the same, of what this process has not written
_PAGE: Final = 1000  # events that are read at a time, at most
_STALLED: Final = 10.0  # seconds between two looks for a stall, and at the disk
_ALIVE: Final = 5.0  # seconds between two signs of life
_NOT_RUN: Final = (Status.SKIPPED, Status.COALESCED, Status.MISSED)
_BAD: Final = (Status.FAILED, Status.KILLED, Status.INTERRUPTED, Status.MISSED, Status.HELD)
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
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
    config = load(root, flags={"data": data})
    if handover.is_trial():
        return _try_out(config)
    given = handover.handed_over()
    # A ledger elsewhere may know the plans that should be there: then it says so and waits.
    refuse_no_root(root, config.data)
    if yes and not fresh_ledger:
        raise click.UsageError("--yes requires --fresh-ledger.")
    # The image before this one has begun a fresh one already.
    if fresh_ledger and given is None and not _leave_behind(config, yes=yes):
        return Exit.FINDINGS
    shown = form or ("screen" if sys.stdout.isatty() else "plain")
    zone_name = config.zone or clock.machine_zone().key
    with logging_to(shown, level=how.pop("level"), zone_name=zone_name, node=config.node_name):
        log_notes(f"{each.file}:{each.line}: {each.advice}" for each in config.findings)
        allow_descriptors()
        # A command has the lock for a moment; an engine that has it answers.
        gives_up_at, client = monotonic() + BRIEF.total_seconds(), Client(config.data)
        is_first = config.store is None and given is None  # else to look would drop our own lock
        while is_first and lock.holder_of(config.data) and monotonic() < gives_up_at:
            if client.answers():
                break
            sleep(0.02)
        while True:
            control = handover.EngineControl(asyncio.Event(), config.run_drain)
            if config.store is not None:
                part = take_part(config, is_json=shown == "json", control=control, **how)
            else:
                part = run_plans(config, shown=shown, control=control, given=given, **how)
            code = asyncio.run(part)
            if not control.restart.is_set():
                return code
            sys.stdout.flush()
            given = handover.execute(control.handed)


def _try_out(config: Config) -> int:
    """Say that this image of the program could start: it loads, and can open the ledger."""
    try_reader()
    load_all()
    path = config.data / database.DATABASE
    if config.store is not None:
        import horae.node  # noqa: F401
    elif path.exists():
        database.try_migrations(config.data)
    echo(handover.trial_answer())
    return Exit.OK


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
        old = sqlite.start_afresh(directory, now=now, command=command_words())
    where = "nothing was left of the old ledger" if old is None else f"the old ledger is {old}"
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
        raise options.NoRootError(root, "clone the repository of the plan, and name the clone")
    config = load(root, flags={"data": data})
    allow_descriptors()
    zone_name, is_json = config.zone or "UTC", form == "json"
    with logging_to(form, level=level, zone_name=zone_name, node=config.node_name):
        while True:
            control = handover.EngineControl(asyncio.Event(), config.run_drain)
            how: dict[str, Any] = {"seconds": seconds, "is_json": is_json, "control": control}
            code = asyncio.run(take_part(config, may_lead=False, **how))
            if not control.restart.is_set():
                return code
            handover.execute(None)


async def take_part(
    config: Config,
    *,
    seconds: float | None,
    is_json: bool,
    may_lead: bool = True,
    empty_plan: bool = False,
    control: handover.EngineControl,
) -> int:
    from horae.node import open_member

    stop = _hear_signals(control, seconds, may_restart=True)
    restarting = asyncio.create_task(_stop_to_restart(control))
    async with AsyncExitStack() as stack:
        member = await _when_free(lambda: stack.enter_async_context(open_member(config)), stop)
        if member is None:
            return Exit.OK
        over, turned = asyncio.Event(), asyncio.Event()
        member.turned = partial(_note_turn, turned)
        member.may_be_empty = empty_plan
        member.control = control
        log_notes(member.notes)
        _notify("READY=1")
        calm_collector()
        newest = await member.ledger.newest_event()
        how: dict[str, Any] = {"each_alone": is_json, "look": member.events_after}
        events = _log_events(member.ledger, newest, over, zone_name=config.zone or "UTC", **how)
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
            over.set()  # only now: until here the node records ends of its runs
            member.ledger.written.set()
            logging_problems.cancel()
            await logging_events
    restarting.cancel()
    return Exit.OK


async def _stop_to_restart(control: handover.EngineControl) -> None:
    """Let a node stop when it is to be restarted: its runs are not handed over."""
    await control.restart.wait()
    log.info("restarting; its runs have %s to end", format_duration(control.drain))
    control.stop.set()


async def _log_problems(
    problems: Callable[[], Awaitable[Iterable[str]]], known: Iterable[str], turned: asyncio.Event
) -> None:
    """Log each problem once, after the turn of the engine that has met it."""
    logged = set(known)
    while True:
        with suppress(TimeoutError):  # the wait is over
            await asyncio.wait_for(turned.wait(), _STALLED)
        await asyncio.sleep(_REFRESH)  # for the turns that follow at once
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
    control: handover.EngineControl | None = None,
    given: handover.HandOver | None = None,
) -> int:
    """Run the plans until a signal; `begin` gets the link of the page and prints its own lines.

    With a *control* it can be restarted; *given* is what the image before has handed over.
    """
    may_restart = control is not None
    control = control or handover.EngineControl(asyncio.Event(), config.run_drain)
    ends_at = None if seconds is None else monotonic() + seconds
    ends_at = ends_at if given is None else given.stops_at
    left = None if ends_at is None else max(0.0, ends_at - monotonic())
    stop = _hear_signals(control, left, may_restart=may_restart)
    held = None if given is None else lock.Lock.adopt(given.lock, config.data)
    async with AsyncExitStack() as stack:
        opened = partial(build, config, lock=held, given=given)
        has_runs = given is not None  # they would end with us
        app = await _when_free(lambda: stack.enter_async_context(opened()), stop, retries=has_runs)
        if app is None:
            return Exit.OK
        app.control = control if may_restart else None
        app.engine.may_be_empty = empty_plan
        newest = await app.ledger.newest_event()
        server = await open_server(app, listeners=None if given is None else given.listeners)
        if given is None:
            (begin or _say_where)(app, server.link)
        else:
            _say_again(app, given)
        begins = begin is None and given is None
        shown_as = EventView(shown, newest, pace, begins=begins)
        listeners = await _keep(app, server, control, shown_as, given)
        if listeners is not None:
            # From here on they wait for the next image, or for us if it stays the same.
            signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
            handed = await app.hand_over(listeners)
            if handed is not None:
                count = 1 if given is None else given.count + 1
                control.handed = replace(handed, count=count, stops_at=ends_at)
                return Exit.OK
            await end(app)
        await _sum_up(app, after=newest)
    return Exit.OK


class EventView(NamedTuple):
    """How events are shown: the form, after which one, and the least time between two lines."""

    form: str
    after: int
    pace: float
    begins: bool  # whether what is first to come is told


async def _keep(
    app: App,
    server: WebServer,
    control: handover.EngineControl,
    view: EventView,
    given: handover.HandOver | None,
) -> dict[str, int] | None:
    """Run an app, answer requests and show events until a stop; then return None.

    If it is to be restarted, return the descriptors of what it listens on.
    """

    async def started() -> bool:
        await start(app)
        if given is not None and isinstance(app.ledger, sqlite.SqliteLedger):
            app.ledger.note_lock(restarts=given.count, restart_error=given.error)
        return True

    over, turned, stop = asyncio.Event(), asyncio.Event(), control.stop
    listeners = None
    beside = [asyncio.create_task(each) for each in (_log_stop(app, control), _reload(control))]
    if view.form == "screen":
        events = _events(app.ledger, after=view.after, over=over)
        show = _show_screen(app, events, app.closing)
    else:
        how: dict[str, Any] = {"each_alone": view.form == "json", "pace": view.pace}
        how |= {"stop": app.closing, "zone_name": app.context.zone_name}
        show = _log_events(app.ledger, view.after, over, **how)
        beside.append(asyncio.create_task(_log_problems(_problems(app), app.notes, turned)))
        if view.begins:
            beside.append(asyncio.create_task(_log_beginning(app)))
    running = [asyncio.create_task(each) for each in (show, server.serve(app.closing))]
    _notify("READY=1")
    calm_collector()
    app.engine.longest_rest = min(app.engine.longest_rest, _watched_every() / 2)
    try:
        if await _when_free(started, stop):
            await keep(app, stop=stop, turned=partial(_note_turn, turned))
            listeners = server.hand_over() if control.restart.is_set() else None
    finally:
        if listeners is None:
            _notify("STOPPING=1")
            stop.set()
        app.closing.set()
        over.set()
        app.ledger.written.set()
        try:
            await asyncio.gather(*running)
        finally:
            for each in beside:
                each.cancel()
    return listeners


def _problems(app: App) -> Callable[[], Awaitable[list[str]]]:
    stall, on_disk, look_at = "", list[str](), 0.0

    async def problems() -> list[str]:
        nonlocal stall, on_disk, look_at
        if monotonic() >= look_at:
            look_at, on_disk = monotonic() + _STALLED, app.on_disk()
            try:
                stall = await app.engine.stall()
            except LedgerError as error:  # a problem of its own, of which the engine knows
                log.debug("cannot check for a stall: %s", error)
        return [*filter(None, [stall]), *app.facts(on_disk=on_disk).problems]

    return problems


async def _log_stop(app: App, control: handover.EngineControl) -> None:
    """Tell that the engine is stopping: in the log, and to commands that look at its lock."""
    await control.stop.wait()
    app.closing.set()
    if isinstance(app.ledger, sqlite.SqliteLedger):
        app.ledger.note_lock(stopping=True)
    runs = await _going(app)
    if runs:
        hint = " (Ctrl-C again ends them now)" if sys.stdin.isatty() else ""
        log.info("stopping; waiting %s for %s%s", _most(control), runs_text(runs), hint)
    await _stay_alive()


async def _reload(control: handover.EngineControl) -> None:
    """Tell that the engine is being restarted: in the log, and to systemd."""
    await control.restart.wait()
    _notify(f"RELOADING=1\nMONOTONIC_USEC={int(monotonic() * 1e6)}")
    log.info("restarting; waiting %s for runs that cannot continue", _most(control))
    await _stay_alive()


async def _stay_alive() -> None:
    """Tell systemd that we are alive, while no turn of the engine does."""
    while True:
        _notify("WATCHDOG=1")
        await asyncio.sleep(min(_ALIVE, _watched_every().total_seconds() / 2))


def _most(control: handover.EngineControl) -> str:
    drain = control.drain
    return "as long as needed" if drain == handover.UNBOUNDED else f"up to {format_duration(drain)}"


async def _going(app: App) -> list[str]:
    try:
        going = await app.service.history(statuses=GOING, limit=100)
    except LedgerError as error:  # the engine says so, too, and acts on it
        log.debug("cannot read which runs are in progress: %s", error)
        return []
    return [each.title for each in going.receipts]


async def _when_free(
    part: Callable[[], Awaitable[T]], stop: asyncio.Event, *, retries: bool = False
) -> T | None:
    """Return what a part of the start gives as soon as the ledger is free; None: stopped before.

    It *retries* also as long as the ledger cannot be written.
    """
    is_told, waits_for = False, LedgerUnavailableError if retries else LedgerBusyError
    while True:
        try:
            return await part()
        except waits_for as error:
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


def _say_again(app: App, given: handover.HandOver) -> None:
    count = len(given.processes.runs)
    going = f"{count} run{'s' * (count != 1)} continue{'s' * (count == 1)}"
    what = "continuing" if given.error else "restarted"
    log.info("%s with horae %s in %s; %s", what, __version__, app.root, going)
    log_notes(app.notes)


def log_notes(notes: Iterable[str]) -> None:
    for note in notes:
        log.warning("%s", note)


def _hear_signals(
    control: handover.EngineControl, seconds: float | None, *, may_restart: bool
) -> asyncio.Event:
    """Return an event that SIGTERM and Ctrl-C set, or some seconds; a second Ctrl-C insists.

    SIGHUP asks for a restart, unless it may say that the terminal of the engine is gone.
    """
    loop, stop = asyncio.get_running_loop(), control.stop
    asked: set[asyncio.Task[None]] = set()

    def interrupted() -> None:
        if stop.is_set():
            log.warning("ended by a second Ctrl-C; runs in progress end with the engine")
            os._exit(Exit.INTERRUPTED)  # the runs' lifelines close, so they end with us
        control.end()

    async def restart() -> None:
        try:
            await control.ask_restart(wait=False)
        except handover.RestartError as error:
            log.warning("%s", error)

    loop.add_signal_handler(signal.SIGTERM, control.end)
    loop.add_signal_handler(signal.SIGINT, interrupted)
    if may_restart and not _has_terminal():
        loop.add_signal_handler(signal.SIGHUP, lambda: asked.add(loop.create_task(restart())))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    if seconds is not None:
        loop.call_later(seconds, control.end)
    return stop


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


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
    ticking = [(each.next_run, each) for each in stands.agents if each.next_run]
    if ticking:
        at, first = min(ticking, key=lambda each: each[0])
        when = f"{local(at, zone(app.context.zone_name)):%Y-%m-%d %H:%M:%S} {app.context.zone_name}"
        log.info("first tick: %s, at %s", first.agent, when)


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
        found = await ledger.events_after(number, limit=_PAGE)
        return found, found[-1].number if found else number

    while True:
        is_last = over.is_set()
        ledger.written.clear()
        try:
            while True:
                found, looked_at = await (look or look_at_all)(after)
                for _, alike in groupby(found, key=_number if each_alone else _line_key):
                    yield [*alike]
                after = looked_at
                if len(found) < _PAGE:
                    break
        except LedgerError as error:  # the engine says so, too, and acts on it
            log.debug("cannot read events: %s", error)
        if is_last:
            return
        with suppress(TimeoutError):  # the wait is over
            # Another node of a cluster may have written, too.
            await asyncio.wait_for(ledger.written.wait(), None if look is None else _UNTOLD)
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
    if status in GOING or (status is Status.WAITING and is_new) or is_edit:
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


async def _receipt_words(ledger: Ledger, alike: Sequence[Event], zone_name: str) -> tuple[str, str]:
    event = alike[0]
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
        receipt = filed.receipt
        said = requested_words(filed.actor, receipt.reason.code, receipt.note)
        reason = f"{reason}; {said}"
    return str(event.facts["status"]), f"{where}  {reason}"


async def _words(ledger: Ledger, alike: Sequence[Event], zone_name: str) -> tuple[str, str]:
    event = alike[0]
    if event.kind == "receipt":
        return await _receipt_words(ledger, alike, zone_name)
    word = _KINDS.get(event.kind, event.kind.removeprefix("entry_").replace("_", " "))
    entry = None if event.entry is None else await ledger.entry(event.entry)
    facts = {name: value for name, value in event.facts.items() if value not in (None, "", [])}
    facts.pop("node", None)  # it is that of the log
    subject, note = str(facts.get("title", "")), facts.pop("note", "")
    if event.kind.startswith("token_"):
        subject = str(facts.pop("token", ""))
    if entry is not None:
        subject = f"{entry.mark.title}  {entry.item.origin}"
    if entry is not None and event.kind == "entry_gone":
        return "closed or removed" if entry.source == "board" else word, subject
    if not isinstance(facts.get("title"), list):
        facts.pop("title", None)
    if len(facts) > 1 and str(facts.get("file", "-")) in str(facts.get("what", "")):
        facts.pop("file")
    what, action, rest = str(facts.get("what", "")).partition(" added: ")
    if event.kind == "edited" and action:
        word, facts["what"] = "added", f"{what}: {rest}"
    elif event.kind == "edited" and what.isalpha():
        word = str(facts.pop("what"))
    elif event.kind == "settings_trusted":
        lists = [facts.get(name, []) for name in ("settings", "commits")]
        names = [", ".join(dict.fromkeys(map(str, e))) for e in lists if isinstance(e, list)]
        facts = {"what": " of commit ".join(filter(None, names))}
    told = " ".join(starmap(_fact_words, facts.items()))
    by = "" if event.actor == actor.ENGINE else f"by {actor.actor_words(event.actor)}"
    told = ", ".join(filter(None, [told, by])) + (f" ({note})" if note else "")
    return word, in_zone("  ".join(filter(None, [subject, told.strip()])), zone_name)


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
    """Lets the same warning or error through once a minute, and says how often it was repeated.

    Two are the same if they differ only in the words of an exception of one class, or of a ledger
    that cannot be used: what is said of a database that is away changes with each attempt.
    """

    def __init__(self) -> None:
        super().__init__()
        self._logged: dict[tuple[str, ...], tuple[float, int]] = {}  # when, and how often since

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING or record.name == EVENTS:
            return True
        now, args = record.created, record.args if isinstance(record.args, tuple) else ()
        same = (record.name, str(record.msg), *map(_kind, args))
        at, count = self._logged.get(same, (now - _REPEAT, 0))
        if 0 <= now - at < _REPEAT:
            self._logged[same] = at, count + 1
            return False
        known = self._logged.items()
        self._logged = {key: each for key, each in known if 0 <= now - each[0] < 2 * _REPEAT}
        self._logged[same] = now, 0
        if count:
            often = "once" if count == 1 else f"{count:,} times"
            text = f"{record.getMessage()} (repeated {often} in the last minute)"
            record.msg, record.args = text, None
        return True


def _kind(arg: object) -> str:
    if isinstance(arg, LedgerUnavailableError):
        return str(LedgerUnavailableError)
    return str(type(arg) if isinstance(arg, Exception) else arg)


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
