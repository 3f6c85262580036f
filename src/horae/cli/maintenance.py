"""`backup`, `restore`, `prune` and `doctor`: how the ledger is kept well."""

from __future__ import annotations

import os
import re
import sys
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from horae.cli.connection import (
    NoLedgerError,
    Place,
    copy,
    read,
    refuse_loss,
    write,
)
from horae.cli.moments import parse_moment
from horae.cli.options import place_options
from horae.cli.output import (
    Output,
    form_options,
    print_answer,
    print_rows,
)
from horae.config import load
from horae.core.actor import acting, user_name
from horae.core.clock import SystemClock
from horae.core.ports import LedgerDamagedError, LedgerError
from horae.core.secret import FOLDER
from horae.core.text import moment_text
from horae.errors import Exit, HoraeError
from horae.store import database
from horae.store.lock import holder_of
from horae.timing.duration import DurationError, format_duration, parse_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from horae.config import Config

BACKUPS: Final = "backups"  # in the data directory
_MIB: Final = 1024 * 1024
_SQLITE: Final = b"SQLite format 3\0"  # how each of its files begins
_YEARS: Final = re.compile(r"([1-9]\d{0,2})y", re.ASCII)


class BackupError(HoraeError):
    """A backup that cannot be made where it was asked for."""

    code = "backup"
    exit_code = Exit.CONFLICT

    def __init__(self, path: str, reason: str, *, remedy: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path}: {reason}; {remedy}")


class NotBackupError(HoraeError):
    """A file to restore that does not exist, or is no file."""

    code = "no_backup"
    exit_code = Exit.NOT_FOUND

    def __init__(self, path: str, reason: str, *, remedy: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path}: {reason}; {remedy}")


class NoBackupError(HoraeError):
    """No backup that could be restored."""

    code = "no_backup"
    exit_code = Exit.NOT_FOUND

    def __init__(self, directory: str, damaged: list[str]) -> None:
        self.directory = directory
        self.damaged = damaged
        why = f": none of {len(damaged)} is intact" if damaged else ""
        super().__init__(
            f"{directory}: no backup to restore{why}; name another file: `horae restore FILE`, "
            "or start a new ledger: `horae up --fresh-ledger`"
        )


@click.command()
@click.argument("file", metavar="[FILE|DIR]", required=False)
@place_options
@form_options
def backup(file: str | None, *, root: str, data: str | None, form: str | None) -> int:
    """Write a verified copy of the ledger.

    A running engine is not interrupted. Without FILE the copy is written to backups/ in the
    data directory, named by the time.
    """
    output = Output.of(form)
    place = Place.of(root=root, data=data)
    target = _target(place, file, now=SystemClock().now())
    copy(place, target)
    size = target.stat().st_size
    print_answer(
        output, {"backup": str(target), "bytes": size}, f"{target}: {_size(size)}, verified"
    )
    return Exit.OK


@click.command()
@click.argument("file", metavar="FILE")
@place_options
@form_options
def restore(file: str, *, root: str, data: str | None, form: str | None) -> int:
    """Restore the ledger from a backup.

    Scheduled times that have passed are not run. The previous ledger is kept beside the
    restored one. The engine must be stopped.
    """
    output = Output.of(form)
    place = Place.of(root=root, data=data)
    config = load(root, flags={"data": data})
    remedy = _names_of(place.directory / BACKUPS)
    _refuse_no_backup(Path(file), remedy)
    try:
        _restore(output, place, Path(file), config)
    except LedgerDamagedError as error:
        if error.place != str(Path(file)):
            raise
        reason = error.reason.replace("the ledger is damaged", "the backup is damaged")
        raise LedgerDamagedError(file, reason, remedy=remedy) from None
    return Exit.OK


@click.command()
@click.option(
    "--before",
    default="1y",
    show_default=True,
    metavar="T",
    help="The age, such as 90d or 1y, or a time.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be removed, and remove nothing.")
@place_options
@form_options
def prune(before: str, *, dry_run: bool, root: str, data: str | None, form: str | None) -> int:
    """Remove the details of old receipts.

    Old receipts are summarised as ranges, and their runs, events and copies of the plan text are
    removed. Receipts that have not ended, or whose result has not been processed yet, are kept.
    """
    output = Output.of(form)
    place = Place.of(root=root, data=data)
    moment = _age(before, place, now=SystemClock().now())
    pruned = write(place, lambda service: service.prune(before=moment, dry_run=dry_run))
    counts = {
        "receipts": pruned.receipts,
        "runs": pruned.runs,
        "events": pruned.events,
        "texts": pruned.texts,
    }
    zone_name = place.zone.key
    said = {"before": moment.isoformat(timespec="seconds"), "dry_run": dry_run, **counts}
    words = ("receipts", "runs", "events", "copies of plan text")
    amounts = ", ".join(
        f"{counts[name]:,} {what}" for name, what in zip(counts, words, strict=True)
    )
    verb = "would remove" if dry_run else "removed"
    print_answer(
        output, said, f"{verb} details from before {moment_text(moment, zone_name)}: {amounts}"
    )
    return Exit.OK


@click.command()
@click.option("--restore", "restores", is_flag=True, help="Restore the newest intact backup.")
@place_options
@form_options
def doctor(*, restores: bool, root: str, data: str | None, form: str | None) -> int:
    """Check the installation and the ledger.

    Each problem is listed with a remedy. With --restore a damaged or missing ledger is replaced
    by the newest intact backup under backups/ in the data directory.
    """
    output = Output.of(form)
    place = Place.of(root=root, data=data)
    config = load(root, flags={"data": data})
    if restores:
        _restore_newest(output, place, config)
        return Exit.OK
    found = list(examine(place, config))
    print_rows(output, [each.data() for each in found], lambda: _print_checks(found))
    has_failed = any(each.grade is Grade.FAIL for each in found)
    return Exit.FINDINGS if has_failed else Exit.OK


def _target(place: Place, file: str | None, *, now: datetime) -> Path:
    """Return where a backup goes: never over something that is there."""
    refuse_loss(place)
    if file is None:
        home = place.directory / BACKUPS
        database.prepare_folder(home)
    else:
        home = Path(file)
    target = _unused(home, f"ledger-{now:%Y%m%dT%H%M%SZ}") if home.is_dir() else home
    if target.exists() or target.is_symlink():
        raise BackupError(
            str(target), "the file exists", remedy="name another file, or give no name"
        )
    if not target.parent.is_dir():
        raise BackupError(
            str(target), "its directory does not exist", remedy=f"create {target.parent} first"
        )
    return target


def _unused(home: Path, stem: str) -> Path:
    """Return a name for a database that nothing in a directory has."""
    suffixes = chain([""], (f"-{number}" for number in count(2)))
    names = (home / f"{stem}{suffix}.db" for suffix in suffixes)
    return next(each for each in names if not each.exists())


def _refuse_no_backup(file: Path, remedy: str) -> None:
    """Raise what is wrong with something to restore that is no database at all."""
    if not file.exists():
        raise NotBackupError(str(file), "the file does not exist", remedy=remedy)
    try:
        with file.open("rb") as opened:
            head = opened.read(len(_SQLITE))
    except OSError as error:  # a directory, or a file of another user
        raise NotBackupError(
            str(file), f"cannot be read ({error.strerror})", remedy=remedy
        ) from None
    if head and head != _SQLITE:
        reason = "not a backup: the file is not an SQLite database"
        raise LedgerDamagedError(str(file), reason, remedy=remedy)


def _names_of(home: Path) -> str:
    """Return which backups can be named, the newest first."""
    backups = _backups(home)
    if not backups:
        return f"there are no backups in {home}"
    more = f", and {len(backups) - 3} more in {home}" if len(backups) > 3 else ""
    said = "the newest backups are" if len(backups) > 1 else "there is one backup:"
    return f"{said} {', '.join(map(str, backups[:3]))}{more}"


def _restore(output: Output, place: Place, file: Path, config: Config) -> None:
    """Let a backup be the ledger, and say where the one from before is, and what is missing."""
    import asyncio

    from horae.store.sqlite import restore as restored

    had_one = place.path.exists()
    with acting(f"cli:{user_name(os.getuid())}"):  # the run that it is in may be of no ledger
        old = asyncio.run(restored(place.directory, file, now=SystemClock().now()))
    aside = str(old) if had_one else None
    before = f"the previous ledger is {aside}" if aside else "there was no ledger before"
    passed = "scheduled times that have passed do not run"
    text = f"restored {file} as the ledger of {place.directory}; {passed}; {before}"
    missing = _missing_secrets(place, config)
    lines = (text, *(f"missing: {each}" for each in missing))
    said = {"restored": str(file), "aside": aside, "missing_secrets": missing}
    print_answer(output, said, "\n".join(lines))


def _missing_secrets(place: Place, config: Config) -> list[str]:
    """Return which secrets cannot be read that triggers and agents of the ledger need."""
    from horae.config import secrets_of
    from horae.store import vault
    from horae.store.sqlite import PATIENCE

    if place.store is not None or not place.path.exists():
        return []
    secrets = secrets_of(config, may_call=False)
    with (
        database.sqlite_errors(str(place.path)),
        closing(database.open_reader(place.path, patience=PATIENCE)) as connection,
    ):
        named = list(vault.named_in(connection))
    found = ((whose, secrets.why_not([text])) for whose, text in named)
    return [f"{whose}: {error}" for whose, error in found if error is not None]


def _restore_newest(output: Output, place: Place, config: Config) -> None:
    """Restore the newest backup that is whole, unless the ledger is."""
    if _check_ledger(place).grade is Grade.OK and place.path.exists():
        raise BackupError(
            str(place.path),
            "the ledger is intact, so nothing was restored",
            remedy="to restore a backup anyway: horae restore FILE",
        )
    home = place.directory / BACKUPS
    damaged: list[str] = []
    for file in _backups(home):
        problem = _damage(file)
        if problem is None:
            _restore(output, place, file, config)
            return
        damaged.append(str(file))
        output.say(problem)
    raise NoBackupError(str(home), damaged)


def _backups(home: Path) -> list[Path]:
    """Return the backups in a directory, the newest first."""
    found = [each for each in home.glob("*.db") if each.is_file()] if home.is_dir() else []
    return sorted(found, key=lambda each: (each.stat().st_mtime_ns, each.name), reverse=True)


def _damage(path: Path) -> HoraeError | None:
    """Return what is wrong with a ledger, if something is."""
    try:
        database.verify(path)
    except HoraeError as error:
        return error
    return None


def _age(text: str, place: Place, *, now: datetime) -> datetime:
    """Return the moment that lies so far back, or that is named."""
    years = _YEARS.fullmatch(text.strip())
    if years is not None:
        year = max(1, now.year - int(years[1]))
        # 29 February has no such day in most years.
        day = 28 if (now.month, now.day) == (2, 29) else now.day
        return now.replace(year=year, day=day)
    try:
        return now - parse_duration(text)
    except DurationError:
        return parse_moment(text, place.zone, or_length="90d")


class Grade(StrEnum):
    """How well something is."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at: how it is, and what to do about it."""

    name: str
    grade: Grade
    found: str
    remedy: str = ""

    def data(self) -> dict[str, object]:
        return {
            "check": self.name,
            "grade": self.grade.value,
            "found": self.found,
            "remedy": self.remedy or None,
        }


def examine(place: Place, config: Config) -> Iterator[Check]:
    """Yield how everything is that a ledger and an engine stand on."""
    from horae.cli.doctor import around

    yield check_python(sys.version_info[:3], sys.platform)
    yield _check_reader()
    yield _check_sqlite()
    yield _check_clock()
    yield _check_zones()
    yield from around(config)
    yield from _check_data(place)
    yield from _check_secrets(place, config)
    yield from _check_runs(place, config)
    yield from _check_watches()


def _check_data(place: Place) -> Iterator[Check]:
    directory = place.directory
    if not directory.is_dir():
        found = f"{directory} does not exist yet"
        yield Check("data directory", Grade.OK, found, "`horae up` creates it")
        return
    looks: dict[str, Callable[[Place], Check]] = {
        "data directory": _check_file_system,
        "permissions": _check_permissions,
        "disk": _check_disk,
        "engine": _check_lock,
    }
    if place.store is None:  # else it is in a database, which has its own checks
        looks |= {
            "ledger": _check_ledger,
            "ledger clock": _check_ledger_clock,
            "backups": _check_backups,
        }
    for name, look in looks.items():
        try:
            yield look(place)
        except OSError as error:
            remedy = f"run horae as the owner of {directory}, or use --data"
            yield Check(name, Grade.FAIL, f"cannot be checked ({error.strerror})", remedy)


def check_python(version: tuple[int, ...], platform: str) -> Check:
    """Return whether this Python and system can do everything.

    >>> check_python((3, 12, 1), "linux").found
    'Python 3.12.1 on linux'
    """
    found = f"Python {'.'.join(map(str, version))} on {platform}"
    if version < (3, 11):
        return Check("python", Grade.FAIL, found, "use Python 3.11 or newer")
    if platform == "darwin":
        remedy = "detached processes may survive the end of their run; on Linux they are ended too"
        return Check("python", Grade.WARN, found, remedy)
    if platform != "linux":
        return Check(
            "python",
            Grade.WARN,
            found,
            "only commands that read plans work; use WSL for the others",
        )
    return Check("python", Grade.OK, found)


def _check_reader() -> Check:
    from horae.app import ReaderError
    from horae.org.selftest import misread

    wrong = misread()
    if wrong is not None:
        return Check("reader", Grade.FAIL, f"fails its self-test: {wrong}", ReaderError.remedy)
    return Check("reader", Grade.OK, "self-test of the plan parser passed")


def _check_sqlite() -> Check:
    import sqlite3

    return check_sqlite(sqlite3.sqlite_version_info)


def check_sqlite(version: tuple[int, ...]) -> Check:
    """Return whether this SQLite is new enough, and free of the fault in its log.

    >>> [check_sqlite(each).grade.value for each in ((3, 34, 1), (3, 40, 1), (3, 51, 3))]
    ['fail', 'warn', 'ok']
    """
    found = f"SQLite {'.'.join(map(str, version))}"
    if version < (3, 35):
        return Check("sqlite", Grade.FAIL, found, "use a Python with SQLite 3.35 or newer")
    if has_log_fault(version):
        return Check(
            "sqlite",
            Grade.WARN,
            f"{found} can damage a database that two programs write at the same time",
            "use SQLite 3.51.3 or newer, or let no other program write ledger.db",
        )
    return Check("sqlite", Grade.OK, found)


def has_log_fault(version: tuple[int, ...]) -> bool:
    """Tell whether a SQLite has the fault of a write-ahead log that is reset by two at once.

    It came with 3.7.0 and was mended in 3.51.3, 3.50.7 and 3.44.6; 3.52.0 was withdrawn.
    """
    if version < (3, 7, 0) or (3, 44, 6) <= version < (3, 45) or (3, 50, 7) <= version < (3, 51):
        return False
    return version < (3, 51, 3) or version[:3] == (3, 52, 0)


class ClockReading(NamedTuple):
    """What two clocks show at one moment."""

    wall: datetime
    passed: float  # seconds since whenever; nobody can set it


def _check_clock() -> Check:
    import time

    clock = SystemClock()
    first = ClockReading(clock.now(), time.monotonic())
    time.sleep(0.02)
    return check_clock(first, ClockReading(clock.now(), time.monotonic()))


def check_clock(first: ClockReading, second: ClockReading) -> Check:
    """Return whether the clock shows a likely year and goes as fast as time passes."""
    now = second.wall
    found = f"{moment_text(now, 'UTC')}"
    if not 2025 <= now.year < 2100:
        return Check(
            "clock", Grade.FAIL, f"{found}, an unlikely year", "set the clock of this machine"
        )
    passed = timedelta(seconds=second.passed - first.passed)
    drift = (second.wall - first.wall) - passed
    if abs(drift) > timedelta(milliseconds=500):
        by = format_duration(drift)
        remedy = "the clock is being changed; use a time service"
        return Check("clock", Grade.WARN, f"{found}; it jumped by {by}", remedy)
    return Check("clock", Grade.OK, found)


def _check_zones() -> Check:
    import zoneinfo

    version, where = _zone_data()
    try:
        zoneinfo.ZoneInfo.no_cache("Europe/Berlin")
    except zoneinfo.ZoneInfoNotFoundError:
        return Check("zones", Grade.FAIL, "there is no zone data", "pip install tzdata")
    if version is None:
        return Check("zones", Grade.OK, f"zone data in {where}")
    return Check("zones", Grade.OK, f"zone data {version} in {where}")


def _zone_data() -> tuple[str | None, str]:
    import zoneinfo

    for directory in map(Path, zoneinfo.TZPATH):
        if not (directory / "Europe" / "Berlin").is_file():
            continue
        for name, pattern in (("tzdata.zi", r"# version (\S+)"), ("+VERSION", r"(\S+)")):
            try:
                with (directory / name).open(encoding="utf-8", errors="replace") as file:
                    said = re.match(pattern, file.readline())
            except OSError:
                continue
            if said:
                return said[1], str(directory)
        return None, str(directory)
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("tzdata"), "the package tzdata"
    except PackageNotFoundError:
        return None, "no place"


def _check_file_system(place: Place) -> Check:
    from horae.store.lock import NetworkDiskError, refuse_network_disk

    directory = place.directory
    try:
        refuse_network_disk(directory)
    except NetworkDiskError as error:
        remedy = "put it on a local disk (--data, HORAE_DATA)"
        return Check(
            "data directory",
            Grade.FAIL,
            f"{directory} is on {error.kind}, a network file system",
            remedy,
        )
    return Check("data directory", Grade.OK, f"{directory} is on a local disk")


def _check_permissions(place: Place) -> Check:
    owner = place.directory.stat().st_uid
    if owner != os.getuid():
        found = f"{place.directory} belongs to another user ({owner})"
        return Check("permissions", Grade.FAIL, found, "run horae as that user, or use --data")
    wanted = [(place.directory, 0o700)]
    wanted += [(each, 0o600) for each in place.directory.glob("ledger*")]
    wanted += [(each, 0o600) for each in place.directory.glob(f"{FOLDER}/*")]
    remedies = [f"chmod {mode:o} {path}" for path, mode in wanted if _is_open(path, mode)]
    if remedies:
        return Check(
            "permissions", Grade.WARN, "other users can read the ledger", "; ".join(remedies)
        )
    return Check("permissions", Grade.OK, "only its owner can read the ledger")


def _check_secrets(place: Place, config: Config) -> Iterator[Check]:
    """Look whether the secrets can be read that are named, or kept; no command is called."""
    from horae.config import secrets_of

    names = [f"${{{name}}}" for name in config.secrets]
    kept = len(list(place.directory.glob(f"{FOLDER}/*")))
    if not names and not kept:
        return
    secrets = secrets_of(config, may_call=False)
    wrong = [str(error) for name in names if (error := secrets.why_not([name]))]
    with suppress(HoraeError):  # what is wrong with the ledger is said elsewhere
        wrong += _missing_secrets(place, config)
    found = f"{len(names)} defined in [secrets], {kept} stored in {place.directory / FOLDER}"
    if not wrong:
        yield Check("secrets", Grade.OK, found)
    for each in wrong:
        remedy = "provide it, or correct [secrets] in horae.toml"
        yield Check("secrets", Grade.WARN, each, remedy)


def _is_open(path: Path, mode: int) -> bool:
    """Tell whether a file may be used by more people than it should be."""
    try:
        return bool(path.stat().st_mode & 0o777 & ~mode)
    except FileNotFoundError:  # SQLite takes its log away when it is done
        return False


def _check_disk(place: Place) -> Check:
    from shutil import disk_usage

    return check_disk(disk_usage(place.directory).free)


def check_disk(free: int) -> Check:
    """Return whether there is room for receipts.

    >>> check_disk(3 * 2**20).grade.value, check_disk(5 * 2**30).found
    ('fail', '5.0 GiB free')
    """
    found = f"{_size(free)} free"
    if free < 16 * _MIB:
        return Check("disk", Grade.FAIL, found, "free disk space; until then no run starts")
    if free < 512 * _MIB:
        return Check("disk", Grade.WARN, found, "free disk space soon, or run `horae prune`")
    return Check("disk", Grade.OK, found)


def _check_lock(place: Place) -> Check:
    holder = holder_of(place.directory)
    if holder is None:
        return Check("engine", Grade.OK, "no engine is running")
    since = f" since {holder.since}" if holder.since else ""
    return Check("engine", Grade.OK, f"process {holder.pid} ({holder.command}){since}")


def _check_ledger(place: Place) -> Check:
    try:
        refuse_loss(place)
        database.verify(place.path)
    except NoLedgerError:
        return Check("ledger", Grade.OK, "no ledger yet", "`horae up` creates it")
    except LedgerDamagedError as error:
        remedy = "run `horae doctor --restore`, or without a backup `horae up --fresh-ledger`"
        return Check("ledger", Grade.FAIL, error.reason, remedy)
    except LedgerError as error:
        return Check("ledger", Grade.FAIL, error.reason, error.remedy)
    size = _size(place.path.stat().st_size)
    return Check("ledger", Grade.OK, f"{place.path} is intact, {size}")


def _check_ledger_clock(place: Place) -> Check:
    """Compare the clock with the newest receipt: a clock that was set back is seen there."""
    now = SystemClock().now()
    try:
        newest = read(place, lambda service: service.history(limit=1)).lines
    except HoraeError:
        return Check("ledger clock", Grade.OK, "nothing to compare with")
    if newest and newest[0].filed.decided_at > now + timedelta(minutes=1):
        ahead = format_duration(newest[0].filed.decided_at - now)
        return Check(
            "ledger clock",
            Grade.WARN,
            f"the newest receipt is {ahead} ahead of the clock",
            "set the clock of this machine; occurrences with a receipt do not run again",
        )
    return Check("ledger clock", Grade.OK, "the ledger is not ahead of the clock")


def _check_backups(place: Place) -> Check:
    home = place.directory / BACKUPS
    found = _backups(home)
    if not found:
        return Check("backups", Grade.WARN, f"no backup in {home}", "run `horae backup`")
    whole = next((each for each in found if _damage(each) is None), None)
    if whole is None:
        remedy = "run `horae backup`"
        return Check("backups", Grade.FAIL, f"none of {len(found)} backups is intact", remedy)
    return Check("backups", Grade.OK, f"{len(found)} found; the newest intact one is {whole.name}")


def _check_watches() -> Iterator[Check]:
    home = Path("/proc/sys/fs/inotify")
    for name, least in (("max_user_watches", 8192), ("max_user_instances", 32)):
        try:
            limit = int((home / name).read_text())
        except (OSError, ValueError):
            continue
        remedy = "" if limit >= least else f"sysctl fs.inotify.{name}={least * 8}"
        grade = Grade.OK if limit >= least else Grade.WARN
        yield Check("watches", grade, f"fs.inotify.{name} is {limit:,}", remedy)


def _check_runs(place: Place, config: Config) -> Iterator[Check]:
    """Look at how surely runs are ended, and what they can be kept from using."""
    from horae.process.cgroup import CgroupLimits, standing
    from horae.process.processes import can_kill_trees

    if can_kill_trees():
        yield Check("runs", Grade.OK, "all processes of a run end with it")
    else:
        found = "a run ends with its process group; processes that leave the group may survive"
        yield Check("runs", Grade.WARN, found, "use Linux 5.3 or newer")
    holder = None
    with suppress(HoraeError, OSError):  # what is wrong with it is said elsewhere
        holder = holder_of(place.directory)
    stands = standing(None if holder is None else holder.pid)
    found, _, remedy = stands.words.partition("; ")
    wanted = f"to limit the resources of runs: {remedy}" if remedy else ""
    yield Check("cgroups", Grade.OK, found, wanted)
    limits = CgroupLimits(config.run_memory, config.run_processes, config.run_cpus)
    for setting, why in stands.unheld(limits):
        reason, _, remedy = why.partition("; ")
        found = f"{setting} is not enforced: {reason}"
        yield Check("limits", Grade.WARN, found, remedy or f"remove {setting} from the settings")


def _print_checks(found: list[Check]) -> None:
    """Print a row per check, and how many are not well."""
    from rich.table import Table

    from horae.cli.tables import console, safe

    styles = {Grade.OK: "green", Grade.WARN: "yellow", Grade.FAIL: "bold red"}
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("", "check", "found", "what to do"):
        table.add_column(name, overflow="fold")
    for each in found:
        table.add_row(
            safe(each.grade, style=styles[each.grade]),
            safe(each.name),
            safe(each.found),
            safe(each.remedy),
        )
    console().print(table)


def _size(count: int) -> str:
    """Return a number of bytes in words.

    >>> [_size(each) for each in (12, 4096, 3 * 2**20)]
    ['12 bytes', '4.0 KiB', '3.0 MiB']
    """
    if count < 1024:
        return f"{count} bytes"
    amount = float(count)
    for unit in ("KiB", "MiB", "GiB"):
        amount /= 1024
        if amount < 1024 or unit == "GiB":
            break
    return f"{amount:.1f} {unit}"
