"""`up`: the engine in the foreground, with a live screen on a terminal and lines elsewhere."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections import Counter, deque
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from horae.cli.options import data_option, root_argument
from horae.cli.output import echo, print_line
from horae.engine.actor import ENGINE, acting, actor_words, user_name
from horae.errors import Exit
from horae.kernel.collector import calm_collector
from horae.rules.entry import key_time
from horae.rules.misfire import Status
from horae.rules.receipt import FINAL
from horae.timing.zone import local, zone

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from horae.config import Config
    from horae.engine.ports import Event, Ledger
    from horae.house import House
    from horae.member import Member

_QUIET: Final = frozenset({"assigned", "entry_new", "unassigned"})  # steps on the way
_DAY: Final = timedelta(days=1)
_REFRESH: Final = 0.5  # seconds between two looks at what has happened
_STALLED: Final = 10.0  # seconds between two looks for a stall


@click.command()
@root_argument
@data_option
@click.option(
    "--log",
    type=click.Choice(["screen", "plain", "json"]),
    help="How to show events; default: a screen on a terminal, else plain lines.",
)
@click.option("--seconds", type=click.FloatRange(min=0), metavar="N", help="Stop after N seconds.")
@click.option(
    "--empty-plan",
    is_flag=True,
    help="Accept a plan root without plans: all its entries are removed.",
)
@click.option(
    "--fresh-ledger",
    is_flag=True,
    help="Replace a lost or damaged ledger with a new one.",
)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation of --fresh-ledger.")
def up(
    *,
    root: str,
    data: str | None,
    log: str | None,
    seconds: float | None,
    empty_plan: bool,
    fresh_ledger: bool,
    yes: bool,
) -> int:
    """Run what is scheduled in your plan files.

    This command runs the engine until Ctrl-C or SIGTERM: it starts entries at their scheduled
    times, shows events, and serves the page, a web page for the browser.
    """
    from horae.cli.desk import refuse_no_root
    from horae.config import load
    from horae.runner.launcher import allow_descriptors

    if os.path.isfile(root):  # noqa: PTH113 - as everywhere on the way in
        where = os.path.dirname(root) or "."  # noqa: PTH120 - as above
        raise click.UsageError(f"{root}: is a file; name its directory: horae up {where}")
    config = load(root, flags={"data": data})
    # A ledger elsewhere may know the plans that should be there: then it says so and waits.
    refuse_no_root(root, Path(config.data))
    if yes and not fresh_ledger:
        raise click.UsageError("--yes goes with --fresh-ledger.")
    if fresh_ledger and not _leave_behind(config, yes=yes):
        return Exit.FINDINGS
    shown = log or ("screen" if sys.stdout.isatty() else "plain")
    for finding in config.findings:
        echo(f"horae: {finding.file}:{finding.line}: {finding.message}", err=True)
    allow_descriptors()
    if config.store is not None:
        return asyncio.run(take_part(config, shown=shown, seconds=seconds, empty_plan=empty_plan))
    _let_commands_end(config.data)
    return asyncio.run(run_plans(config, shown=shown, seconds=seconds, empty_plan=empty_plan))


def _leave_behind(config: Config, *, yes: bool) -> bool:
    """Begin a new ledger in place of a lost one, if somebody agrees; one that is whole stays."""
    from horae.app import SystemClock
    from horae.engine.ports import LedgerWholeError
    from horae.store.database import DATABASE, loss_of
    from horae.store.lock import holder_of
    from horae.store.sqlite import start_afresh

    if config.store is not None:
        raise click.UsageError("--fresh-ledger is for a ledger in the data directory, not a store.")
    directory = Path(config.data)
    if holder := holder_of(directory):
        raise holder
    lost = loss_of(directory)
    if lost is None:
        if (directory / DATABASE).exists():
            raise LedgerWholeError(str(directory / DATABASE))
        return True  # there never was one
    echo(f"horae: {lost.place}: {lost.reason}", err=True)
    if not yes and not _agrees(directory):
        echo("horae: nothing was changed", err=True)
        return False
    with acting(f"cli:{user_name(os.getuid())}"):
        old = asyncio.run(start_afresh(directory, now=SystemClock().now()))
    where = "nothing is left of the old ledger" if old is None else f"the old ledger is {old}"
    echo(f"horae: a new ledger is created; no past occurrence runs; {where}", err=True)
    return True


def _agrees(directory: Path) -> bool:
    """Ask whether the ledger of a data directory may be left behind."""
    if not sys.stdin.isatty():
        raise click.UsageError(
            "--fresh-ledger asks for confirmation, which needs a terminal; use --yes."
        )
    backups = len([*(directory / "backups").glob("*.db")])
    if backups:
        many = "1 backup is" if backups == 1 else f"{backups} backups are"
        echo(f"{many} in {directory}/backups; `horae doctor --restore` restores the newest.")
    echo(
        "A new ledger has no history, no pauses, and none of the triggers and agents that were"
        " created by request.\nPlans are read again, agents continue from their state files, and"
        " no past occurrence runs."
    )
    return click.confirm("Start a new ledger?")


@click.command()
@root_argument
@data_option
@click.option(
    "--log",
    type=click.Choice(["plain", "json"]),
    default="plain",
    show_default=True,
    help="How to show events.",
)
@click.option("--seconds", type=click.FloatRange(min=0), metavar="N", help="Stop after N seconds.")
def worker(*, root: str, data: str | None, log: str, seconds: float | None) -> int:
    """Run a node that never becomes the leader.

    DIR is a working copy of the plan, of which only the origin and horae.toml are used; the
    setting `store` names the database that all nodes share.
    """
    from horae.cli.desk import EmptyRootError
    from horae.config import load
    from horae.runner.launcher import allow_descriptors

    if not os.path.isdir(root):  # noqa: PTH112 - as above
        raise EmptyRootError(root)
    config = load(root, flags={"data": data})
    allow_descriptors()
    return asyncio.run(take_part(config, shown=log, seconds=seconds, may_lead=False))


async def take_part(
    config: Config,
    *,
    shown: str,
    seconds: float | None,
    may_lead: bool = True,
    empty_plan: bool = False,
) -> int:
    """Be a member of a cluster, and show what happens in it."""
    from horae.member import open_member

    stop = asyncio.Event()
    _stop_on_signals(stop)
    if seconds is not None:
        asyncio.get_running_loop().call_later(seconds, stop.set)
    async with open_member(config) as member:
        member.said = lambda words: echo(f"horae: {words}", err=True)
        member.turned = lambda: _notify("WATCHDOG=1")
        member.may_be_empty = empty_plan
        for note in member.notes:
            echo(f"horae: {note}", err=True)
        _notify("READY=1")
        calm_collector()
        showing = asyncio.create_task(_show_events(member, shown, stop))
        try:
            await member.keep(stop, may_lead=may_lead)
        finally:
            _notify("STOPPING=1")
            stop.set()
            await showing
    return Exit.OK


def _let_commands_end(data: Path) -> None:
    """Wait for a command that has the lock for a moment; an engine that has it answers."""
    from time import monotonic, sleep

    from horae.cli.desk import BRIEF
    from horae.cli.far import Far
    from horae.store.lock import holder_of

    gives_up_at = monotonic() + BRIEF.total_seconds()
    while holder_of(data) is not None and not Far(data).answers() and monotonic() < gives_up_at:
        sleep(0.02)


async def _show_events(member: Member, shown: str, stop: asyncio.Event) -> None:
    """Show what this member's runs come to; the leader shows all."""
    from horae.engine.ports import LedgerError

    last = await member.ledger.newest_event()
    while not stop.is_set():
        with suppress(LedgerError):
            for event in await member.ledger.events_after(last):
                last = event.number
                if shown == "json":
                    print_line(_event_data(event))
                elif line := await _told(member.ledger, member.config.zone or "UTC", event):
                    echo(line)
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), _REFRESH)


async def run_plans(
    config: Config,
    *,
    shown: str,
    seconds: float | None,
    empty_plan: bool = False,
    begin: Callable[[House, str | None], None] | None = None,
    pace: float = 0.0,
) -> int:
    """Run the plans and show what happens until a signal, or for some seconds.

    `begin` gets the link of the page and prints its own first lines in place of the usual ones;
    `pace` is the least number of seconds between two plain lines.
    """
    from horae.house import keep, open_house

    stop = asyncio.Event()
    _stop_on_signals(stop)
    if seconds is not None:
        asyncio.get_running_loop().call_later(seconds, stop.set)
    async with open_house(config) as house:
        from horae.porch import open_porch

        house.almanac.may_be_empty = empty_plan
        newest = await house.ledger.newest_event()
        porch = await open_porch(house)
        (begin or _say_where)(house, porch.link)
        showing = asyncio.create_task(_show(house, shown, stop, begins=begin is None, pace=pace))
        told = asyncio.create_task(porch.serve(stop))
        _notify("READY=1")
        calm_collector()
        house.almanac.longest_rest = min(house.almanac.longest_rest, _watched_every() / 2)
        try:
            await keep(house, stop=stop, turned=lambda: _notify("WATCHDOG=1"))
        finally:
            _notify("STOPPING=1")
            stop.set()
            await asyncio.gather(showing, told)
        await _sum_up(house, after=newest)
    return Exit.OK


def _say_where(house: House, link: str | None) -> None:
    """Say what is kept, and where it can be looked at."""
    echo(
        f"horae: running the plans in {house.root} (ledger in {house.data}); stop with Ctrl-C",
        err=True,
    )
    if link is not None:
        echo(
            f"horae: the page is at {link} (valid once; `horae open` prints another link)", err=True
        )
    for note in house.notes:
        echo(f"horae: {note}", err=True)


def _stop_on_signals(stop: asyncio.Event) -> None:
    """Let SIGTERM and Ctrl-C ask for an end; a second Ctrl-C insists."""
    loop = asyncio.get_running_loop()

    def asked() -> None:
        if stop.is_set():
            os._exit(Exit.INTERRUPTED)  # the runs' lifelines close, so they end with us
        stop.set()

    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_signal_handler(signal.SIGINT, asked)


def _watched_every() -> timedelta:
    """Return how long systemd waits for a sign of life, if it waits for ours."""
    text = os.environ.get("WATCHDOG_USEC", "")
    is_ours = os.environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
    if not is_ours or not text.isascii() or not text.isdigit() or len(text) > 12:
        return _DAY
    return timedelta(microseconds=int(text)) or _DAY


def _notify(state: str) -> None:
    """Tell systemd how we are, if it asked to be told."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as teller:
        teller.connect("\0" + address[1:] if address.startswith("@") else address)
        teller.send(state.encode())


async def _show(
    house: House, shown: str, stop: asyncio.Event, *, begins: bool, pace: float
) -> None:
    """Show what happens until it is over."""
    if shown == "screen":
        await _show_screen(house, stop)
        return
    telling = [asyncio.create_task(_tell_problems(house))]
    if begins:
        telling.append(asyncio.create_task(_tell_beginning(house)))
    try:
        async for event in _events(house, stop):
            if shown == "json":
                print_line(_event_data(event))
            else:
                line = await _event_line(house, event)
                if line:
                    echo(line)
                if line and pace:
                    # Later events wait in the ledger; after a stop they are printed at once.
                    with suppress(TimeoutError):
                        await asyncio.wait_for(stop.wait(), pace)
    finally:
        for each in telling:
            each.cancel()


async def _tell_beginning(house: House) -> None:
    """Say once on stderr who ticks first and when, and what could not run."""
    while house.almanac.turned_at is None:
        await asyncio.sleep(_REFRESH / 5)
    engine = house.facts()
    stands = await house.desk.status(engine)
    for problem in (each for each in stands.problems if each not in engine.problems):
        echo(f"horae: {problem}", err=True)
    if not stands.entries and not stands.unarmed:
        echo(f"horae: {house.root} has no entries; `horae init` writes an example plan", err=True)
    ticking = [(each.entry.next_at, each) for each in stands.agents if each.entry.next_at]
    if ticking:
        at, first = min(ticking, key=lambda each: each[0])
        when = f"{local(at, zone(house.zone_name)):%Y-%m-%d %H:%M:%S} {house.zone_name}"
        echo(f"horae: the first tick is that of {first.name}, at {when}", err=True)


async def _tell_problems(house: House) -> None:
    """Say on stderr what is in the way as soon as it is, and not again while it stays."""
    from horae.engine.ports import LedgerError

    known = set(house.notes)  # which were said at the start
    stall, look_at = "", 0.0
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(_REFRESH)
        if loop.time() >= look_at:
            look_at = loop.time() + _STALLED
            with suppress(LedgerError):  # which is said where it is written
                stall = await house.almanac.stall()
        problems = (stall, *house.facts().problems) if stall else house.facts().problems
        for problem in dict.fromkeys(problems):
            if problem not in known:
                echo(f"horae: {problem}", err=True)
        known = set(problems)


async def _events(house: House, stop: asyncio.Event) -> AsyncIterator[Event]:
    """Yield what happens from now on, and at the end what is left of it."""
    last = await house.ledger.newest_event()
    is_last = False
    while True:
        for event in await house.ledger.events_after(last):
            last = event.number
            yield event
        if is_last:
            return
        is_last = stop.is_set() and not house.almanac.launch.receipts
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), _REFRESH)
        if stop.is_set():
            await asyncio.sleep(0 if is_last else _REFRESH / 5)


def _event_data(event: Event) -> dict[str, object]:
    """Return an event as one line of JSON."""
    return {
        "event": event.number,
        "at": key_time(event.at),
        "kind": event.kind,
        "entry": event.entry,
        "receipt": event.receipt,
        "actor": event.actor,
        **event.facts,
    }


async def _event_line(house: House, event: Event) -> str:
    """Return an event in one line for people; the steps between say nothing."""
    return await _told(house.ledger, house.zone_name, event)


async def _told(ledger: Ledger, zone_name: str, event: Event) -> str:
    at = f"{local(event.at, zone(zone_name)):%Y-%m-%d %H:%M:%S} {zone_name}"
    if event.kind != "receipt":
        if event.kind in _QUIET:
            return ""
        title = event.facts.get("title")
        if title is None and event.entry is not None:
            entry = await ledger.entry(event.entry)
            title = entry.mark.title if entry is not None else None
        facts = [
            f"{name}={value}"
            for name, value in event.facts.items()
            if name != "title" and value not in (None, "")
        ]
        by = [] if event.actor == ENGINE else [f"by {actor_words(event.actor)}"]
        said = "  ".join(filter(None, [str(title or ""), " ".join([*facts, *by])]))
        return f"{at}  {event.kind:<11}  {said}"
    status = Status(str(event.facts["status"]))
    filed = None if event.receipt is None else await ledger.receipt(event.receipt)
    is_new = "key" in event.facts  # it was just decided, and nothing has happened yet
    if status is Status.STARTING or (status is Status.WAITING and is_new):
        return ""
    title = "" if filed is None else f"{filed.title}  {filed.origin}"
    return f"{at}  {status:<11}  {title}  {event.facts['reason']}"


async def _show_screen(house: House, stop: asyncio.Event) -> None:
    """Draw how things stand, again and again."""
    from rich.live import Live

    from horae.cli.screen import drawn
    from horae.cli.tables import console

    lines: deque[str] = deque(maxlen=10)

    async def listen() -> None:
        async for event in _events(house, stop):
            line = await _event_line(house, event)
            if line:
                lines.append(line)

    listening = asyncio.create_task(listen())
    with Live(console=console(), auto_refresh=False, screen=False, transient=True) as live:
        while not stop.is_set():
            if house.almanac.turned_at is None:  # before the first turn nothing is decided yet
                await asyncio.sleep(_REFRESH / 5)
                continue
            stands = await house.desk.status(house.facts(), limit=8)
            waits = house.almanac.gate.obstacles(now=house.clock.now())
            live.update(drawn(house, stands, waits, lines), refresh=True)
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), _REFRESH)
    await listening
    for line in lines:
        echo(line)


async def _sum_up(house: House, *, after: int) -> None:
    """Say in a few lines what became of the time."""
    counts: Counter[str] = Counter()
    while events := await house.ledger.events_after(after):
        after = events[-1].number
        told = (str(event.facts["status"]) for event in events if event.kind == "receipt")
        counts.update(status for status in told if status in FINAL)
    said = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    since = key_time(house.almanac.started_at or house.clock.now())
    what = f"receipts since {since}: {said}" if said else f"no receipts since {since}"
    echo(f"horae: stopped; {what}", err=True)
