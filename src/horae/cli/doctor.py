"""`doctor`: the ledger, the machine it is on, and all that an engine needs."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import zoneinfo
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from importlib.metadata import version as version_of
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from horae.app import ReaderError
from horae.cli import maintenance, options
from horae.cli.connection import NoLedgerError, Place, engine_here, read, refuse_loss
from horae.cli.output import Output, print_rows, print_table, safe
from horae.client import Client
from horae.config import Config, outdated_words, secrets_of, untrusted
from horae.core import ports, secret, text, views
from horae.core.clock import SystemClock, machine_zone
from horae.core.entry import Entry, Unarmed, anchored_item
from horae.core.explain import entry_policy_words
from horae.errors import Exit, HoraeError
from horae.files.git.repository import is_repository
from horae.files.read import PlanFileError, find_plans, read_plan
from horae.org.document import misread, read as read_text
from horae.org.world import every, worlds
from horae.process import cgroup, logs, processes
from horae.sources.plans.source import OrgSource
from horae.sources.workflows.languages import AGENT, LANGUAGES, language_of
from horae.store import database, lock, sql
from horae.store.ledger import Transaction
from horae.timing.duration import format_duration
from horae.web.serve import ListenError, listen_tcp

if TYPE_CHECKING:
    from horae.store.pg_wire import DatabaseAddress

GIT: Final = (2, 38)  # merges without a working tree since then
POSTGRES: Final = 14
_MIB: Final = 1024 * 1024
_SKEW: Final = timedelta(seconds=30)  # between two clocks that a time service keeps
_GIT_REMEDY: Final = "install git 2.38 or newer"
_BACK_UP: Final = "run `horae backup` while the ledger is intact"
_PROGRAMS: Final = ("wb", "batty", "agent")  # beside `horae` itself
_NAMED: Final = 3  # entries that an upgrade reads differently
_OF_LEDGER: Final = ("ledger", "ledger clock", "backups")


class Grade(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


_STYLES: Final = {Grade.OK: "green", Grade.WARN: "yellow", Grade.FAIL: "bold red"}


class Check(NamedTuple):
    grade: Grade
    name: str
    found: str
    remedy: str = ""


_ok, _warn, _fail = (partial(Check, grade) for grade in Grade)


@click.command()
@click.option("--restore", "restores", is_flag=True, help="Restore the newest intact backup.")
@options.flag("--upgrade", "Show what this version of Horae would change.")
@options.answer_options
def doctor(*, restores: bool, upgrade: bool, place: Place, output: Output) -> int:
    """Check the installation and the ledger.

    Each problem is listed with a remedy. With --restore a damaged or missing ledger is replaced
    by the newest intact backup under backups/ in the data directory.
    """
    if restores:
        if _check_ledger(place).grade is Grade.OK and place.path.exists():
            reason = "the ledger is intact, so nothing was restored"
            remedy = "to restore a backup anyway: horae restore FILE"
            raise maintenance.BackupError(str(place.path), reason, remedy=remedy)
        maintenance.restore_newest(output, place)
        return Exit.OK
    found = list(examine_upgrade(place) if upgrade else examine(place))
    rows = [(safe(each.grade, style=_STYLES[each.grade]), *each[1:]) for each in found]
    names = ("", "check", "found", "what to do")
    data = [
        {"check": name, "grade": grade.value, "found": what, "remedy": remedy or None}
        for grade, name, what, remedy in found
    ]
    print_rows(output, data, lambda: print_table(names, rows))
    return Exit.FINDINGS if any(each.grade is Grade.FAIL for each in found) else Exit.OK


def examine(place: Place) -> Iterator[Check]:
    config, root = place.config, Path(place.root)
    yield check_python(sys.version_info[:3], sys.platform)
    wrong = misread()
    if wrong is not None:
        yield _fail("reader", f"fails its self-test: {wrong}", ReaderError.remedy)
    else:
        yield _ok("reader", "self-test of the plan parser passed")
    yield check_sqlite(sqlite3.sqlite_version_info)
    yield check_clock(SystemClock().now(), place.zone.key)
    yield _check_zones()
    yield check_git(_git_version(), is_needed=root.is_dir() and is_repository(root))
    there = {row.name for row in LANGUAGES if any(shutil.which(tool.program) for tool in row.tools)}
    yield from check_languages(there, _languages_of(config))
    yield check_root(root)
    yield _check_settings(place)
    yield check_port(config)
    yield check_programs(os.environ.get("PATH", ""))
    if config.store is not None:
        yield from check_store(config.store)
    yield from _check_data(place)
    yield from _check_secrets(place)
    yield from _check_runs(place)
    yield from _check_watches()


def examine_upgrade(place: Place) -> Iterator[Check]:
    """Compare what an earlier version has left with what this one needs."""
    if place.config.store is not None:
        yield from check_store(place.config.store)
    elif not place.path.exists():
        yield _ok("ledger schema", "no ledger yet", "`horae up` creates it")
    else:
        with database.sqlite_errors(str(place.path)), database.looking_into(place.path) as ledger:
            version = database.version_of(ledger)
        free = shutil.disk_usage(place.directory).free
        schema = check_upgrade(version, size=place.path.stat().st_size, free=free)
        yield schema
        if schema.grade is not Grade.FAIL and os.path.isdir(place.root):
            yield _check_entries(place)
    yield _check_settings(place)
    yield _check_running(place)


def check_upgrade(version: int, *, size: int, free: int) -> Check:
    name, ours = "ledger schema", max(sql.migrations())
    found = f"version {version}, and this horae needs {ours}"
    if version > ours:
        return _fail(name, found, "use the newer horae that wrote it")
    if version == ours:
        return _ok(name, f"version {version}, which this horae uses")
    if free < 2 * size:  # a backup, and as much for the log of the migration
        needs = f"free {text.size_text(2 * size)} for the upgrade"
        return _fail(name, f"{found}; {text.size_text(free)} are free", needs)
    kept = f"`horae up` or `horae restart` upgrades it; backup: {database.older_backup(version)}"
    return _warn(name, found, kept)


def _check_entries(place: Place) -> Check:
    """Compare the entries of the ledger with what this version reads in the same text."""
    config = place.config
    limits = {"limit": config.plan_max_bytes, "most": config.plan_max_files}
    scan = asyncio.run(OrgSource(place.root, zone_name=place.zone.key, **limits).scan({}))
    try:
        with database.migrated_copy(place.directory) as copy:
            known = {each.mark: each.item for each in Transaction(copy).entries()}
    except sqlite3.Error as error:
        return _fail("entries", f"the schema cannot be upgraded ({error})", "keep the old version")
    changes, at = [], SystemClock().now()
    for mark, item, *_ in scan.entries:
        was = known.get(mark)
        now = anchored_item(item, now=at, was=was)  # a phrase counts as the ledger has it
        if isinstance(was, Entry) and not (isinstance(now, Entry) and now.digest != was.digest):
            pairs = zip(_meaning(was), _meaning(now), strict=False)
            told = "; ".join(f"{one} → {two}" for one, two in pairs if one != two)
            changes += [f"{now.title} ({now.origin}): {told}"] if told else []
    if not changes:
        return _ok("entries", "this version reads the plan files as the ledger has them")
    many = f"{len(changes)} are read differently" if len(changes) > 1 else "1 is read differently"
    more = [f"and {len(changes) - _NAMED} more"] if len(changes) > _NAMED else []
    found = "; ".join([f"{many}: {changes[0]}", *changes[1:_NAMED], *more])
    return _warn("entries", found, "CHANGELOG.md says what has changed")


def _meaning(item: Entry | Unarmed) -> list[str]:
    if isinstance(item, Unarmed):
        return [f"not armed: {item.reason}"]
    rule = text.rule_words(item.rule, zone_name=item.zone)
    return [rule, item.zone, entry_policy_words(item)]


def _check_running(place: Place) -> Check:
    if lock.engine_in(place.directory) is None:
        return _ok("engine", engine_here(place).absence)
    due = next((each for each in _problems_of(place) if "`horae restart`" in each), None)
    if due is not None:
        found, _, remedy = due.partition("; ")
        return _warn("engine", found, remedy)
    return _ok("engine", "the running engine has this version")


def _problems_of(place: Place) -> tuple[str, ...]:
    with suppress(HoraeError):  # an engine that does not answer is a problem of `status`
        return Client(place.directory, timeout=5).status(limit=1).problems
    return ()


# The machine


def check_python(version: tuple[int, ...], platform: str) -> Check:
    found = f"Python {'.'.join(map(str, version))} on {platform}"
    if version < (3, 11):
        return _fail("python", found, "use Python 3.11 or newer")
    if platform == "darwin":
        remedy = "detached processes may survive the end of their run; on Linux they are ended too"
        return _warn("python", found, remedy)
    if platform != "linux":
        return _warn("python", found, "only commands that read plans work; use WSL for the others")
    return _ok("python", found)


def check_sqlite(version: tuple[int, ...]) -> Check:
    found = f"SQLite {'.'.join(map(str, version))}"
    if version < (3, 35):
        return _fail("sqlite", found, "use a Python with SQLite 3.35 or newer")
    if has_log_fault(version):
        found = f"{found} can damage a database that two programs write to at the same time"
        remedy = "use SQLite 3.51.3 or newer, or let no other program write to ledger.db"
        return _warn("sqlite", found, remedy)
    return _ok("sqlite", found)


def has_log_fault(version: tuple[int, ...]) -> bool:
    """Tell whether a SQLite has the fault of a write-ahead log that is reset by two at once."""
    # It came with 3.7.0 and was mended in 3.51.3, 3.50.7 and 3.44.6; 3.52.0 was withdrawn.
    if version < (3, 7, 0) or (3, 44, 6) <= version < (3, 45) or (3, 50, 7) <= version < (3, 51):
        return False
    return version < (3, 51, 3) or version[:3] == (3, 52, 0)


def check_clock(now: datetime, zone_name: str) -> Check:
    found = text.moment_text(now, zone_name)
    if not 2025 <= now.year < 2100:
        return _fail("clock", f"{found}, an unlikely year", "set the clock of this machine")
    return _ok("clock", found)


def _check_zones() -> Check:
    try:
        zoneinfo.ZoneInfo.no_cache("Europe/Berlin")
    except zoneinfo.ZoneInfoNotFoundError:
        return _fail("zones", "there is no zone data", "pip install tzdata")
    where = next((each for each in map(Path, zoneinfo.TZPATH) if (each / "Europe").is_dir()), None)
    if where is None:
        return _ok("zones", f"zone data {version_of('tzdata')} in the package tzdata")
    for name, pattern in (("tzdata.zi", r"# version (\S+)"), ("+VERSION", r"(\S+)")):
        with suppress(OSError):  # not every system has both
            if said := re.match(pattern, (where / name).read_text("utf-8", "replace")):
                return _ok("zones", f"zone data {said[1]} in {where}")
    return _ok("zones", f"zone data in {where}")


def _git_version() -> str | None:
    try:
        return subprocess.check_output(
            ("git", "--version"),  # noqa: S607 - what is in the PATH
            text=True,
            timeout=10,
            stderr=subprocess.DEVNULL,
        ).strip()
    except (OSError, subprocess.SubprocessError):
        return None


def check_git(said: str | None, *, is_needed: bool) -> Check:
    """Return whether this git will do; a plan that is not under git needs none.

    >>> [check_git(f"git version {each}", is_needed=True).grade.value for each in ("2.39", "2.30")]
    ['ok', 'fail']
    """
    numbers = re.search(r"(\d+)\.(\d+)", said or "", re.ASCII)
    if numbers and (int(numbers[1]), int(numbers[2])) >= GIT:
        return _ok("git", said or "")
    found = said or "git is not in the PATH"
    if is_needed:
        return _fail("git", f"{found}, but the plan is in git", _GIT_REMEDY)
    return _warn("git", found, f"{_GIT_REMEDY} before you put the plan in git")


def check_programs(path: str) -> Check:
    clashes = []
    places = dict.fromkeys(each for each in path.split(os.pathsep) if each)
    for name in _PROGRAMS:
        found = [file for each in places if (file := shutil.which(name, path=each))]
        others = [file for file in found if not _is_ours(file)]
        if others:
            first = "is run instead of" if found[0] in others else "is hidden by"
            ours = next((file for file in found if file not in others), f"Horae's {name}")
            clashes.append(f"{others[0]} {first} {ours}")
    if not clashes:
        said = "Horae also installs wb, batty and agent"
        return _ok("programs", f"{said}; no other program in the PATH has one of these names")
    remedy = "call the program by its full path, or change the order of the PATH"
    return _warn("programs", "; ".join(clashes), remedy)


def _is_ours(file: str) -> bool:
    with suppress(OSError), open(file, "rb") as script:  # what cannot be read is not ours
        return b"horae" in script.read(4096)
    return False


def check_languages(there: Collection[str], used: dict[str, str]) -> Iterator[Check]:
    """Yield which languages can be run, and each that is used (where) and cannot be."""
    names = [row.name for row in LANGUAGES if row.name != AGENT]
    others = ", ".join(name for name in names if name not in there)
    remedy = f"to run blocks in {others}, install the language" if others else ""
    known = ", ".join(name for name in names if name in there) or "none"
    yield _ok("languages", f"blocks can be run in {known}", remedy)
    for lang, where in sorted(used.items()):
        try:
            row = language_of(lang)
        except HoraeError as error:
            yield _fail("languages", f"{where}: {error}", "use one of these languages")
            continue
        if row.name not in there and row.name != AGENT:
            found = f"{where} has a block in {row.name}, which is not installed"
            yield _fail("languages", found, row.remedy)


def _languages_of(config: Config) -> dict[str, str]:
    used: dict[str, str] = {}
    with suppress(PlanFileError):  # `plan root` says so
        for path in find_plans(config.root, most=config.plan_max_files).plans:
            with suppress(PlanFileError):  # that is for `check`
                plan = read_text(read_plan(path, root=config.root).text)
                components = [each for world in every(worlds(plan)) for each in world.components]
                for lang in (each.block.lang for each in components if each.block):
                    used.setdefault(lang.lower(), os.fspath(path))
    used.pop("", None)  # a block without a language
    return used


def check_root(root: Path) -> Check:
    if not root.is_dir():
        return _fail("plan root", f"{root} is not a directory", f"horae init {root}")
    if not os.access(root, os.R_OK | os.X_OK):
        remedy = "give the user that runs horae read permission"
        return _fail("plan root", f"{root} cannot be read", remedy)
    if not os.access(root, os.W_OK):
        found = f"{root} cannot be written, so tasks and summaries of lifecycles cannot be saved"
        return _warn("plan root", found, "give the user that runs horae write permission")
    return _ok("plan root", f"{root} can be read and written")


def _check_settings(place: Place) -> Check:
    config, kept = place.config, lock.engine_zone(place.directory)
    waiting, unknown = untrusted(config).waiting, config.findings
    is_kept = bool(kept) and kept != (config.zone or machine_zone().key)
    if not waiting and not unknown and not is_kept:
        return _ok("settings", "no setting is unknown or waits for trust")
    found, remedies = [f"{each.file}:{each.line}: {each.advice}" for each in unknown[:3]], []
    if unknown:
        found += [f"{len(unknown) - 3} more unknown settings"] if len(unknown) > 3 else []
        remedies.append("correct or remove it; `horae config` lists the settings")
    if waiting:
        named = "; ".join(f"commit {str(each.commit)[:12]} changes {each.name}" for each in waiting)
        found.append(f"{named}, which is not used yet")
        remedies.append("review it, and run `horae config trust` to use it")
    if is_kept:
        found.append(outdated_words("zone", kept))
        remedies.append("restart the engine to use it")
    return _warn("settings", "; ".join(found), "; ".join(remedies))


def check_port(config: Config) -> Check:
    wanted = config.listen
    where = f"{wanted.host}:{wanted.port}"
    if lock.engine_in(config.data) is not None:
        return _ok("port", f"{where} is used by the running engine")
    try:
        listen_tcp(wanted.host, wanted.port, allow_remote=config.server_remote).close()
    except ListenError as error:
        found = f"{error.address}: {error.reason}; the page would not be available"
        return _warn("port", found, str(error).rpartition("; ")[2])
    return _ok("port", f"{where} is free")


# The data directory


def _check_data(place: Place) -> Iterator[Check]:
    directory = place.directory
    if not directory.is_dir():
        found, above = f"{directory} does not exist yet", directory
        while not above.exists():
            above = above.parent
        if os.access(above, os.W_OK | os.X_OK):
            yield _ok("data directory", found, "`horae up` creates it")
        else:
            remedy = "give the user that runs horae write permission, or choose another with --data"
            yield _fail("data directory", f"{found} and cannot be created in {above}", remedy)
        return
    looks: dict[str, Callable[[Place], Check]] = {
        "data directory": _check_file_system,
        "permissions": _check_permissions,
        "disk": _check_disk,
        "engine": _check_lock,
        "ledger": _check_ledger,
        "ledger clock": _check_ledger_clock,
        "backups": _check_backups,
    }
    if place.store is not None:  # a ledger in a database has its own checks
        looks = {name: looks[name] for name in looks if name not in _OF_LEDGER}
    for name, look in looks.items():
        try:
            yield look(place)
        except OSError as error:
            remedy = f"run horae as the owner of {directory}, or use --data"
            yield _fail(name, f"cannot be checked ({error.strerror})", remedy)


def _check_file_system(place: Place) -> Check:
    directory = place.directory
    try:
        lock.refuse_network_disk(directory)
    except lock.NetworkDiskError as error:
        found = f"{directory} is on {error.kind}, a network file system"
        return _fail("data directory", found, "put it on a local disk (--data, HORAE_DATA)")
    return _ok("data directory", f"{directory} is on a local disk")


def _check_permissions(place: Place) -> Check:
    owner = place.directory.stat().st_uid
    if owner != os.getuid():
        found = f"{place.directory} belongs to another user ({owner})"
        return _fail("permissions", found, "run horae as that user, or use --data")
    wanted = [(place.directory, 0o700)]
    for pattern in ("ledger*", f"{secret.FOLDER}/*"):
        wanted += [(each, 0o600) for each in place.directory.glob(pattern)]
    remedies = []
    for path, mode in wanted:
        with suppress(FileNotFoundError):  # SQLite takes its log away when it is done
            if path.stat().st_mode & 0o777 & ~mode:
                remedies.append(f"chmod {mode:o} {path}")
    if remedies:
        return _warn("permissions", "other users can read the ledger", "; ".join(remedies))
    return _ok("permissions", "only its owner can read the ledger")


def _check_disk(place: Place) -> Check:
    free, held = logs.room_at(place.directory).free, logs.held_in(place.directory)
    return check_disk(views.DiskLine(at=SystemClock().now(), free=free, held=held))


def check_disk(line: views.DiskLine) -> Check:
    if line.free < 16 * _MIB:
        return _fail("disk", line.words, "free disk space; until then no run starts")
    if line.free < 512 * _MIB:
        return _warn("disk", line.words, "free disk space soon")
    return _ok("disk", line.words)


def _check_lock(place: Place) -> Check:
    engine = lock.engine_in(place.directory)
    if engine is None:
        return _ok("engine", engine_here(place).absence)
    since = f" since {text.instant_text(engine.since, place.zone.key)}" if engine.since else ""
    found = f"process {engine.pid} ({engine.command}){since}"
    if not (problems := _problems_of(place)):
        return _ok("engine", found)
    many = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    return _warn("engine", f"{found}; it reports {many}", "see `horae status`")


def _check_ledger(place: Place) -> Check:
    try:
        refuse_loss(place)
        database.verify(place.path)
    except NoLedgerError:
        return _ok("ledger", "no ledger yet", "`horae up` creates it")
    except ports.LedgerDamagedError as error:
        remedy = "run `horae doctor --restore`, or without a backup `horae up --fresh-ledger`"
        return _fail("ledger", error.reason, remedy)
    except ports.LedgerError as error:
        return _fail("ledger", error.reason, error.remedy)
    return _ok("ledger", f"{place.path} is intact, {text.size_text(place.path.stat().st_size)}")


def _check_ledger_clock(place: Place) -> Check:
    """Compare the clock with the newest receipt: a clock that was set back is seen there."""
    now = SystemClock().now()
    try:
        newest = read(place, lambda service: service.history(limit=1)).receipts
    except HoraeError:
        return _ok("ledger clock", "nothing to compare with")
    if newest and newest[0].decided_at > now + timedelta(minutes=1):
        ahead = format_duration(newest[0].decided_at - now)
        remedy = "set the clock of this machine; occurrences with a receipt do not run again"
        return _warn("ledger clock", f"the newest receipt is {ahead} ahead of the clock", remedy)
    return _ok("ledger clock", "the ledger is not ahead of the clock")


def _check_backups(place: Place) -> Check:
    home = place.directory / database.BACKUPS
    found = maintenance.backups_in(home)
    if not found:
        return _warn("backups", f"no backup in {home}", _BACK_UP)
    whole = next((each for each in found if maintenance.damage_of(each) is None), None)
    if whole is None:
        return _fail("backups", f"none of {len(found)} backups is intact", _BACK_UP)
    return _ok("backups", f"{len(found)} found; the newest intact one is {whole.name}")


def _check_secrets(place: Place) -> Iterator[Check]:
    names = [f"${{{name}}}" for name in place.config.secrets]
    kept = len(list(place.directory.glob(f"{secret.FOLDER}/*")))
    if not names and not kept:
        return
    secrets = secrets_of(place.config, may_call=False)
    wrong = [str(error) for name in names if (error := secrets.why_not([name]))]
    with suppress(HoraeError):  # what is wrong with the ledger is said elsewhere
        wrong += maintenance.missing_secrets(place)
    found = f"{len(names)} defined in [secrets], {kept} stored in {place.directory / secret.FOLDER}"
    if not wrong:
        yield _ok("secrets", found)
    for each in wrong:
        yield _warn("secrets", each, "provide it, or correct [secrets] in horae.toml")


def _check_runs(place: Place) -> Iterator[Check]:
    if processes.can_kill_trees():
        yield _ok("runs", "all processes of a run end with it")
    else:
        found = "a run ends with its process group; processes that leave the group may survive"
        yield _warn("runs", found, "use Linux 5.3 or newer")
    engine = None
    with suppress(HoraeError, OSError):  # what is wrong with it is said elsewhere
        engine = lock.engine_in(place.directory)
    stands = cgroup.standing(None if engine is None else engine.pid)
    found, _, remedy = stands.words.partition("; ")
    yield _ok("cgroups", found, f"to limit the resources of runs: {remedy}" if remedy else "")
    config = place.config
    limits = cgroup.CgroupLimits(config.run_memory, config.run_processes, config.run_cpus)
    for setting, why in stands.unheld(limits):
        reason, _, remedy = why.partition("; ")
        found = f"{setting} is not enforced: {reason}"
        yield _warn("limits", found, remedy or f"remove {setting} from the settings")


def _check_watches() -> Iterator[Check]:
    for name, least in (("max_user_watches", 8192), ("max_user_instances", 32)):
        try:
            limit = int(Path("/proc/sys/fs/inotify", name).read_text())
        except (OSError, ValueError):
            continue
        found = f"fs.inotify.{name} is {limit:,}"
        if limit >= least:
            yield _ok("watches", found)
        else:
            yield _warn("watches", found, f"sysctl fs.inotify.{name}={least * 8}")


# The database that nodes share


class DatabaseFacts(NamedTuple):
    version: int  # 150004 is 15.4
    schema: int | None  # None: it holds no ledger yet
    may_write: bool
    is_replica: bool
    ahead: timedelta  # of this machine's clock
    oldest: int = 0  # version of the schema that a node must know


def check_store(url: str) -> Iterator[Check]:
    try:
        from horae.store.pg_wire import DIALECT, DatabaseAddress
        from horae.store.postgres import SCHEMA
    except ImportError as error:
        found = f"`store` is set, but {error.name} is not installed"
        remedy = "install Horae with the extra postgres: `pip install '.[postgres]'` in its clone"
        yield _fail("store", found, remedy)
        return
    try:
        address = DatabaseAddress.of(url, SCHEMA)
        seen = _ask(address)
    except ports.LedgerError as error:
        yield _fail("store", f"{error.place}: {error.reason}", error.remedy)
        return
    yield check_server(address.place, seen.version)
    yield check_schema(seen, known=max(sql.migrations(DIALECT)))
    yield check_skew(seen.ahead)


def check_server(place: str, version: int) -> Check:
    """Return whether a server is new enough.

    >>> check_server("postgresql://db/plans", 130011).grade.value
    'fail'
    """
    found = f"{place} is PostgreSQL {version // 10_000}.{version % 10_000}"
    if version < POSTGRES * 10_000:
        return _fail("store", found, f"use PostgreSQL {POSTGRES} or newer")
    return _ok("store", found)


def check_schema(seen: DatabaseFacts, *, known: int) -> Check:
    name, found = "store schema", f"version {seen.schema}"
    if seen.is_replica:
        return _fail(name, "the database is a read-only replica", "use the address of the primary")
    if seen.schema is None:
        found = "the database has no ledger yet"
        if seen.may_write:
            return _ok(name, found, "`horae cluster migrate` or `horae up` creates it")
        remedy = "run `horae cluster migrate` once with a role that can create tables"
        return _fail(name, f"{found}, and the database role cannot create one", remedy)
    if seen.oldest > known:
        remedy = "use the newer horae that wrote it, on every node"
        return _fail(name, f"{found}, and this horae supports {known}", remedy)
    if not seen.may_write:
        remedy = "grant it SELECT, INSERT, UPDATE and DELETE on all tables of the schema"
        return _fail(name, f"{found}, and the database role cannot write it", remedy)
    if seen.schema < known:
        remedy = "run `horae cluster migrate` with a role that can create tables"
        return _warn(name, f"{found}, and {known} is needed", remedy)
    return _ok(name, f"{found}, and the database role can write it")


def check_skew(ahead: timedelta) -> Check:
    if abs(ahead) < _SKEW:
        return _ok("store clock", "this machine's clock and the database's agree")
    length = format_duration(timedelta(seconds=round(abs(ahead).total_seconds())))
    side = "ahead of" if ahead > timedelta() else "behind"
    remedy = "the clock of the database is used; run a time service on both"
    return _warn("store clock", f"this machine's clock is {length} {side} the database's", remedy)


_ASK: Final = """
SELECT current_setting('server_version_num')::int, pg_is_in_recovery(), clock_timestamp(),
    to_regclass('term') IS NOT NULL,
    has_database_privilege(current_database(), 'CREATE')
"""
_ASK_SCHEMA: Final = """
SELECT version, has_table_privilege('receipt', 'INSERT')
    AND has_table_privilege('receipt', 'UPDATE') AND has_table_privilege('term', 'UPDATE'),
    coalesce(CAST(to_jsonb(term) ->> 'oldest' AS bigint), version)
FROM term
"""


def _ask(address: DatabaseAddress) -> DatabaseFacts:
    """Return what a database says of itself; nothing is written, and nothing waits for long."""
    from horae.store.pg_wire import BRIEF, PostgresConnection, postgres_errors

    wire = PostgresConnection(address, BRIEF)
    clock = SystemClock()
    try:
        with postgres_errors(address):
            wire.execute("SELECT 1")  # to connect takes its time
            before = clock.now()
            row = wire.execute(_ASK).fetchone()
            after = clock.now()
            assert row is not None, "a question without a table has an answer"
            version, is_replica, there, has_ledger, may_write = row
            schema, oldest = None, 0
            if has_ledger:
                schema, may_write, oldest = wire.execute(_ASK_SCHEMA).fetchone() or (0, False, 0)
    finally:
        wire.close()
    middle = before + (after - before) / 2
    return DatabaseFacts(version, schema, may_write, is_replica, middle - there, oldest)
