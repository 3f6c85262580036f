"""The house: every room wired together. Settings in, a running engine out.

async with open_house(load(".")) as house:
    await keep(house, stop=stop)
"""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from horae.app import SystemClock, machine_zone
from horae.engine.almanac import LONGEST_REST, Almanac
from horae.engine.desk import Desk, EngineFacts
from horae.engine.ports import RunError
from horae.rules.entry import Work, key_time
from horae.rules.gate import Capacity
from horae.rules.misfire import Status
from horae.runner.command import CommandRunner, Place
from horae.runner.logs import tidy
from horae.runner.processes import LOG_NAME, Processes
from horae.store.sqlite import SqliteLedger
from horae.workspace.org import OrgSource
from horae.workspace.watch import changes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from horae.config import Config
    from horae.engine.ports import Clock, Ended, Filed, Held, Job, Run, Runner, Unreleased

NIGHT: Final = timedelta(hours=3, minutes=30)  # after midnight in UTC: backups, old output
_SIGNATURE: Final = "post.key"


class Runners:
    """For each kind of work whoever makes its runs."""

    def __init__(self, runners: Mapping[Work, Runner]) -> None:
        self._runners = runners

    async def hold(self, job: Job) -> Held:
        """Make a run that waits for its go."""
        runner = self._runners.get(job.filed.work)
        if runner is None:
            raise RunError(f"this version of horae does not run a {job.filed.work} by itself yet")
        return await runner.hold(job)

    async def look_back(self, filed: Filed, run: Run) -> Ended | Unreleased | None:
        """Return how a run ended that an engine before this one made; None is unknown."""
        runner = self._runners.get(filed.work)
        return None if runner is None else await runner.look_back(filed, run)


@dataclass(frozen=True, slots=True)
class House:
    """One plan root with its ledger, its engine, and the desk where people ask."""

    config: Config
    root: Path
    clock: Clock
    ledger: SqliteLedger
    almanac: Almanac
    desk: Desk
    place: Place
    zone_name: str  # of the plans
    notes: list[str]  # what is not as it should be, in words

    @property
    def data(self) -> Path:
        """The data directory."""
        return self.place.data

    def log_of(self, run: Run) -> Path:
        """Return where the output of a run is."""
        return self.place.directory_of(run) / LOG_NAME

    def facts(self) -> EngineFacts:
        """Return what is known of the engine itself."""
        started_at = self.almanac.started_at
        told = [str(each) for some in self.almanac.problems.values() for each in some]
        trouble = [] if self.almanac.trouble is None else [str(self.almanac.trouble)]
        return EngineFacts(
            True,
            str(self.data),
            pid=os.getpid(),
            since="" if started_at is None else key_time(started_at),
            problems=(*trouble, *told, *self.notes),
        )

    def is_well(self) -> bool:
        """Tell whether the loop turns, and what it decides is written down."""
        turned_at, now = self.almanac.turned_at, self.clock.now()
        lags = turned_at is None or abs(now - turned_at) > 2 * LONGEST_REST
        return not lags and self.almanac.trouble is None


@asynccontextmanager
async def open_house(config: Config, *, clock: Clock | None = None) -> AsyncIterator[House]:
    """Give a house whose ledger is locked and open, and whose engine has not started."""
    clock = clock or SystemClock()
    root = Path(config.root).resolve()
    data = Path(os.path.abspath(config.data))  # noqa: PTH100 - a link to it stays one
    zone_name = config.zone or machine_zone().key
    async with AsyncExitStack() as rooms:
        ledger = await SqliteLedger.open(data, now=clock.now())
        rooms.push_async_callback(ledger.close)
        processes = await rooms.enter_async_context(Processes(data))
        place = Place(root, data, os.environ, config.run_timeout, _signature(data / _SIGNATURE))
        commands = CommandRunner(processes, place)
        almanac = Almanac(
            clock=clock,
            ledger=ledger,
            runner=Runners({Work.COMMAND: commands, Work.POST: commands}),
            sources=[
                OrgSource(
                    root,
                    zone_name=zone_name,
                    limit=config.plan_max_bytes,
                    most=config.plan_max_files,
                )
            ],
            capacity=Capacity(config.gate_slots, config.crew_max_concurrent),
        )
        desk = Desk(
            ledger=ledger, clock=clock, ids=new_id, poke=almanac.note_change, zone_name=zone_name
        )
        yield House(config, root, clock, ledger, almanac, desk, place, zone_name, [])


async def keep(
    house: House, *, stop: asyncio.Event, turned: Callable[[], None] = lambda: None
) -> None:
    """Keep the hours until *stop* is set, then let what runs end, within bounds."""
    almanac = house.almanac
    await almanac.start()
    parts = [
        almanac.run(turned=turned),
        _watch(house, stop),
        _by_night(house),
        _beat(house),
        stop.wait(),
    ]
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()  # a part that failed ends all of it, and says why
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await almanac.stop(within=house.config.run_drain)
    await almanac.turn()


async def run_once(house: House, word: str, *, note: str = "") -> Filed:
    """Run one entry here and now, and nothing else; return how its receipt ended."""
    almanac = house.almanac
    await almanac.launch.look_back()
    await almanac.rescan("org")
    asked = await house.desk.run_now(word, note=note)
    almanac.launch.start(asked.filed)
    await almanac.launch.rest()
    if almanac.launch.failure is not None:
        raise almanac.launch.failure
    filed = await house.ledger.receipt(asked.filed.number)
    assert filed is not None, "it was just filed"
    return filed


def new_id() -> str:
    """Return a name that nothing else has."""
    from secrets import token_hex

    return token_hex(6)


async def _watch(house: House, stop: asyncio.Event) -> None:
    """Read the plans again when they have changed."""
    found = changes(
        [house.root],
        quiet=house.config.watch_quiet,
        poll=house.config.watch_poll,
        stop=stop,
        ignored=[house.data],
        note=house.notes.append,
    )
    async for _ in found:
        house.almanac.request("org")


async def _by_night(house: House) -> None:
    """Each night copy the ledger, and drop the output of runs that is too old or too much."""
    never = asyncio.Event()
    while True:
        now = house.clock.now()
        midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
        night = midnight + NIGHT
        await house.clock.wait(never, until=night if night > now else night + timedelta(days=1))
        await house.ledger.back_up_nightly(house.data, now=house.clock.now())
        config = house.config
        await asyncio.to_thread(
            tidy,
            house.data / "runs",
            now=house.clock.now(),
            keep=config.logs_keep,
            most=config.logs_most,
        )


async def _beat(house: House) -> None:
    """Ask for an address from time to time, while all is well."""
    address = house.config.alert_heartbeat
    never = asyncio.Event()
    while True:
        await house.clock.wait(never, until=house.clock.now() + house.config.alert_every)
        if address is not None and house.is_well():
            await asyncio.to_thread(_ask_for, address)


def _ask_for(address: str) -> None:
    """Ask for an address; whoever is behind it notices if nobody does."""
    from urllib.request import Request, urlopen

    request = Request(address, headers={"User-Agent": "horae"})  # noqa: S310 - http(s) only
    with suppress(OSError, ValueError), urlopen(request, timeout=10) as answer:  # noqa: S310
        answer.read(1024)


def _signature(path: Path) -> bytes:
    """Return what signs the messages of this house; it is made the first time."""
    from secrets import token_hex

    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with suppress(FileExistsError):
        descriptor = os.open(path, flags, 0o600)
        try:
            os.write(descriptor, token_hex(32).encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    return path.read_bytes()


def is_good(filed: Filed) -> bool:
    """Tell whether a receipt ended well."""
    return filed.status in {Status.DONE, Status.NO_WORK}
