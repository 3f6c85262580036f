"""What `doctor` looks at around a ledger: git, languages, the plan root, the port, the database."""

from __future__ import annotations

import os
import re
import shutil
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from horae.cli.maintenance import Check, Grade
from horae.config import untrusted
from horae.core.clock import SystemClock
from horae.core.ports import LedgerError
from horae.errors import HoraeError
from horae.files.git.repository import is_repository
from horae.files.read import PlanFileError, find_plans, read_plan
from horae.org.document import read
from horae.org.world import every, worlds
from horae.sources.workflows.languages import AGENT, LANGUAGES, language_of
from horae.store.lock import holder_of
from horae.store.sql import migrations
from horae.timing.duration import format_duration
from horae.web.serve import ListenError, listen_tcp

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from datetime import datetime

    from horae.config import Config
    from horae.store.pg_wire import DatabaseAddress

GIT: Final = (2, 38)  # merges without a working tree since then
POSTGRES: Final = 14
_SKEW: Final = timedelta(seconds=30)  # between two clocks that a time service keeps
_GIT_REMEDY: Final = "install git 2.38 or newer"
_PROGRAMS: Final = ("wb", "batty", "agent")  # beside `horae` itself
_NUMBERS: Final = re.compile(r"(\d+)\.(\d+)", re.ASCII)


def around(config: Config) -> Iterator[Check]:
    """Yield how everything is that is not the ledger's own."""
    root = Path(config.root)
    yield _check_git(root)
    yield from _check_languages(config)
    yield check_root(root)
    yield _check_settings(config)
    yield check_port(config)
    yield check_programs(os.environ.get("PATH", ""))
    if config.store is not None:
        yield from check_store(config.store)


def _check_git(root: Path) -> Check:

    return check_git(_git_version(), is_needed=root.is_dir() and is_repository(root))


def _git_version() -> str | None:
    """Return what git says of its version; None if there is none, or it does not answer."""
    import subprocess

    program = shutil.which("git")
    if program is None:
        return None
    try:
        done = subprocess.run(  # noqa: S603 - what is in the PATH
            [program, "--version"], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def check_git(said: str | None, *, is_needed: bool) -> Check:
    """Return whether this git will do; a plan that is not under git needs none.

    >>> check_git("git version 2.39.5", is_needed=True).grade.value
    'ok'
    >>> check_git("git version 2.30.2", is_needed=True).remedy
    'install git 2.38 or newer'
    """
    numbers = _NUMBERS.search(said or "")
    if numbers and (int(numbers[1]), int(numbers[2])) >= GIT:
        return Check("git", Grade.OK, said or "")
    found = said or "git is not in the PATH"
    if is_needed:
        return Check("git", Grade.FAIL, f"{found}, but the plan is in git", _GIT_REMEDY)
    return Check("git", Grade.WARN, found, f"{_GIT_REMEDY} before you put the plan in git")


def check_programs(path: str) -> Check:
    """Return whether another program has the name of one of ours, by where shells look."""
    clashes = []
    for name in _PROGRAMS:
        places = dict.fromkeys(each for each in path.split(os.pathsep) if each)
        found = [file for each in places if (file := shutil.which(name, path=each))]
        others = [file for file in found if not _is_ours(file)]
        if others:
            first = "is run instead of" if found[0] in others else "is hidden by"
            ours = next((file for file in found if file not in others), f"Horae's {name}")
            clashes.append(f"{others[0]} {first} {ours}")
    if not clashes:
        names = f"{', '.join(_PROGRAMS[:-1])} and {_PROGRAMS[-1]}"
        said = f"Horae also installs {names}; no other program in the PATH has one of these names"
        return Check("programs", Grade.OK, said)
    remedy = "call the program by its full path, or change the order of the PATH"
    return Check("programs", Grade.WARN, "; ".join(clashes), remedy)


def _is_ours(file: str) -> bool:
    """Tell whether a program is one that Horae installed."""
    try:
        with open(file, "rb") as script:
            return b"horae" in script.read(4096)
    except OSError:
        return False


def _check_settings(config: Config) -> Check:
    """Return whether all of `horae.toml` counts."""
    waiting, unknown = untrusted(config).waiting, config.findings
    if not waiting and not unknown:
        return Check("settings", Grade.OK, "all settings in horae.toml are used")
    found = [f"{each.file}:{each.line}: {each.message}" for each in unknown[:3]]
    found += [f"{len(unknown) - 3} more unknown settings"] if len(unknown) > 3 else []
    remedies = ["correct or remove it; `horae config` lists the settings"] if unknown else []
    if waiting:
        named = "; ".join(f"commit {each.commit[:12]} changes {each.name}" for each in waiting)
        found.append(f"{named}, which is not used yet")
        remedies.append("review it, and run `horae config trust` to use it")
    return Check("settings", Grade.WARN, "; ".join(found), "; ".join(remedies))


def _check_languages(config: Config) -> Iterator[Check]:
    """Say which languages blocks can be written in here, and what the plan lacks."""
    path = os.environ.get("PATH", os.defpath)
    there = {
        row.name
        for row in LANGUAGES
        if any(shutil.which(tool.program, path=path) for tool in row.tools)
    }
    yield from check_languages(there, _languages_of(config))


def check_languages(there: Collection[str], used: dict[str, str]) -> Iterator[Check]:
    """Yield which languages can be run, and each that is used (where) and cannot be.

    >>> [each.grade.value for each in check_languages({"sh"}, {"go": "plan.org:3"})]
    ['ok', 'fail']
    """
    rows = [row for row in LANGUAGES if row.name != AGENT]
    names = ", ".join(row.name for row in rows if row.name in there) or "none"
    others = ", ".join(row.name for row in rows if row.name not in there)
    remedy = f"to run blocks in {others}: install the language" if others else ""
    yield Check("languages", Grade.OK, f"blocks can be run in {names}", remedy)
    for lang, where in sorted(used.items()):
        try:
            row = language_of(lang)
        except HoraeError as error:
            yield Check("languages", Grade.FAIL, f"{where}: {error}", "use one of these languages")
            continue
        if row.name not in there and row.name != AGENT:
            found = f"{where} has a block in {row.name}, which is not installed"
            yield Check("languages", Grade.FAIL, found, row.remedy)


def _languages_of(config: Config) -> dict[str, str]:
    """Return the languages of the plan's blocks, each with a place where it is used."""
    used: dict[str, str] = {}
    try:
        plans = find_plans(config.root, most=config.plan_max_files).plans
    except PlanFileError:  # `plan root` says so
        return {}
    for path in plans:
        try:
            text = read_plan(path, root=config.root).text
        except PlanFileError:  # that is for `check`
            continue
        for world in every(worlds(read(text))):
            for component in world.components:
                if component.block is not None and component.block.lang:
                    used.setdefault(component.block.lang.lower(), os.fspath(path))
    return used


def check_root(root: Path) -> Check:
    """Return whether plans can be read and what belongs to them be written."""
    if not root.is_dir():
        return Check("plan root", Grade.FAIL, f"{root} is not a directory", f"horae init {root}")
    if not os.access(root, os.R_OK | os.X_OK):
        remedy = "give the user that runs horae read permission"
        return Check("plan root", Grade.FAIL, f"{root} cannot be read", remedy)
    if not os.access(root, os.W_OK):
        found = f"{root} cannot be written, so tasks cannot change and a rest writes no summary"
        remedy = "give the user that runs horae write permission"
        return Check("plan root", Grade.WARN, found, remedy)
    return Check("plan root", Grade.OK, f"{root} can be read and written")


def check_port(config: Config) -> Check:
    """Return whether the server can listen where it is to."""
    wanted = config.listen
    where = f"{wanted.host}:{wanted.port}"
    if holder_of(config.data) is not None:
        return Check("port", Grade.OK, f"{where} is used by the running engine")
    try:
        listen_tcp(wanted.host, wanted.port, allow_remote=config.server_remote).close()
    except ListenError as error:
        found = f"{error.address}: {error.reason}; the page would not be available"
        return Check("port", Grade.WARN, found, str(error).rpartition("; ")[2])
    return Check("port", Grade.OK, f"{where} is free")


class DatabaseFacts(NamedTuple):
    """What a database says of itself."""

    version: int  # 150004 is 15.4
    schema: int | None  # None: it holds no ledger yet
    may_write: bool
    is_replica: bool
    ahead: timedelta  # of this machine's clock


def check_store(url: str) -> Iterator[Check]:
    """Yield how the database is that machines share."""
    try:
        from horae.store.pg_wire import DIALECT, DatabaseAddress
    except ImportError as error:
        found = f"`store` is set, but {error.name} is not installed"
        yield Check("store", Grade.FAIL, found, "pip install 'horae[postgres]'")
        return
    from horae.store.postgres import SCHEMA

    try:
        address = DatabaseAddress.of(url, SCHEMA)
        seen = _ask(address)
    except LedgerError as error:
        yield Check("store", Grade.FAIL, f"{error.place}: {error.reason}", error.remedy)
        return
    yield check_server(address.place, seen.version)
    yield check_schema(seen, known=len(migrations(DIALECT)))
    yield check_skew(seen.ahead)


def check_server(place: str, version: int) -> Check:
    """Return whether a server is new enough.

    >>> check_server("postgresql://db/plans", 130011).grade.value
    'fail'
    """
    found = f"{place} is PostgreSQL {version // 10_000}.{version % 10_000}"
    if version < POSTGRES * 10_000:
        return Check("store", Grade.FAIL, found, f"use PostgreSQL {POSTGRES} or newer")
    return Check("store", Grade.OK, found)


def check_schema(seen: DatabaseFacts, *, known: int) -> Check:
    """Return whether the database holds a ledger of a version that we know, and takes ours."""
    name = "store schema"
    if seen.is_replica:
        return Check(
            name,
            Grade.FAIL,
            "the database is a read-only replica",
            "use the address of the primary",
        )
    if seen.schema is None:
        found = "the database has no ledger yet"
        if seen.may_write:
            return Check(name, Grade.OK, found, "`horae cluster migrate` or `horae up` creates it")
        remedy = "run `horae cluster migrate` once with a role that can create tables"
        return Check(name, Grade.FAIL, f"{found}, and the database role cannot create one", remedy)
    found = f"version {seen.schema}"
    if seen.schema > known:
        found = f"{found}, and this horae supports {known}"
        return Check(name, Grade.FAIL, found, "use the newer horae that wrote it, on every node")
    if not seen.may_write:
        remedy = "grant it SELECT, INSERT, UPDATE and DELETE on all tables of the schema"
        return Check(name, Grade.FAIL, f"{found}, and the database role cannot write it", remedy)
    if seen.schema < known:
        remedy = "run `horae cluster migrate` with a role that can create tables"
        return Check(name, Grade.WARN, f"{found}, and {known} is needed", remedy)
    return Check(name, Grade.OK, f"{found}, and the database role can write it")


def check_skew(ahead: timedelta) -> Check:
    """Return whether this machine's clock and the database's, which decides, are near.

    >>> check_skew(timedelta(minutes=-4)).found
    "this machine's clock is 4m behind the database's"
    """
    name = "store clock"
    if abs(ahead) < _SKEW:
        return Check(name, Grade.OK, "this machine's clock and the database's agree")
    whole = timedelta(seconds=round(abs(ahead).total_seconds()))
    found = f"this machine's clock is {format_duration(whole)} {_side(ahead)} the database's"
    remedy = "the clock of the database is used; run a time service on both"
    return Check(name, Grade.WARN, found, remedy)


def _side(ahead: timedelta) -> str:
    return "ahead of" if ahead > timedelta() else "behind"


_ASK: Final = """
SELECT current_setting('server_version_num')::int, pg_is_in_recovery(), clock_timestamp(),
    to_regclass('term') IS NOT NULL,
    has_database_privilege(current_database(), 'CREATE')
"""
_ASK_SCHEMA: Final = """
SELECT version, has_table_privilege('receipt', 'INSERT')
    AND has_table_privilege('receipt', 'UPDATE') AND has_table_privilege('term', 'UPDATE')
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
            schema = None
            if has_ledger:
                schema, may_write = wire.execute(_ASK_SCHEMA).fetchone() or (0, False)
    finally:
        wire.close()
    return DatabaseFacts(version, schema, may_write, is_replica, _middle(before, after) - there)


def _middle(before: datetime, after: datetime) -> datetime:
    return before + (after - before) / 2
