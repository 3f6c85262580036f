"""The SQLite file of a ledger: created, opened, checked, migrated and copied.

One connection writes to a data directory, and only it moves the write-ahead log into the database;
the lock on the directory excludes other processes. Readers cannot write.

Secrets that came with a request are files next to it, so that no backup contains them. Their names
are never used again: what an older ledger refers to is unchanged, or missing.
"""

from __future__ import annotations

import logging
import os
import re
import sqlite3
from contextlib import closing, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from horae.core.ports import (
    LedgerBusyError,
    LedgerDamagedError,
    LedgerError,
    LedgerNewerError,
    LedgerWriteError,
    read_json,
)
from horae.core.private import sync, write_durably
from horae.core.secret import FOLDER, WEBHOOK_SECRETS, kept_in
from horae.store.sql import migrations

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

log = logging.getLogger(__name__)

MEMORY: Final = ":memory:"
PATIENCE: Final = timedelta(seconds=5)  # for another process that writes
# Never deferred: a transaction that reads first and writes later fails when it meets a writer.
BEGIN: Final = "BEGIN IMMEDIATE"
DATABASE: Final = "ledger.db"
DRAFT: Final = f"{DATABASE}.new"
BACKUPS: Final = "backups"
MARK: Final = "HORAE"  # exists if there was ever a ledger here
APPLICATION: Final = 0x486F7261  # "Hora"
IN_USE: Final = f"{DATABASE}-open"  # exists while a ledger is open, and after a crash
_TRIAL: Final = "upgrade-"  # prefix of a directory for a copy
_BESIDE: Final = ("-wal", "-shm", "-open")

_FILES: Final = {
    ".gitignore": "*\n",
    IN_USE: "The ledger beside this file is open, or was not closed.\n",
    MARK: "A data directory of horae. It holds the record of what has run.\n",
}
_BUSY: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_REFUSED: Final = frozenset({
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_READONLY,
})  # fmt: skip
_BROKEN: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_RESTORE: Final = "restore a backup with `horae restore FILE`"
_FRESH: Final = "start with a new ledger: `horae up --fresh-ledger`"


@contextmanager
def sqlite_errors(place: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if (said := meant(place, error)) is error:
            raise
        raise said from error


def meant(place: str, error: Exception) -> Exception:
    # The lowest byte of an extended code is its kind.
    kind = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if kind in _BUSY:
        reason = "another process is writing to the ledger; nothing was recorded"
        return LedgerBusyError(place, reason, remedy="try again, or stop that process")
    if kind in _REFUSED or isinstance(error, OSError):
        why = error.strerror if isinstance(error, OSError) else error
        remedy = "free disk space, or make the file system writable, and try again"
        return LedgerWriteError(place, f"cannot be written ({why})", remedy=remedy)
    return _damaged(place, f"the ledger is damaged ({error})") if kind in _BROKEN else error


def prepare(directory: Path) -> None:
    with sqlite_errors(str(directory)):
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except (FileExistsError, FileNotFoundError, PermissionError) as error:
            reason, remedy = f"cannot be created ({error.strerror})", "use another directory"
            if isinstance(error, FileExistsError):
                reason, remedy = "not a directory", "move it, or name another directory"
            raise LedgerWriteError(str(directory), reason, remedy=remedy) from error
        if directory.stat().st_mode & 0o077:
            directory.chmod(0o700)
        _write_once(directory, ".gitignore")


def prepare_folder(folder: Path) -> None:
    with sqlite_errors(str(folder)):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def open_writer(directory: Path, *, patience: timedelta) -> sqlite3.Connection:
    """Return the one writing connection to a valid database of our version."""
    path = directory / DATABASE
    refuse_loss(path, was_there=(directory / MARK).exists())
    with sqlite_errors(str(path)):
        with suppress(FileExistsError):  # it is opened below
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_RDWR, 0o600))
        connection = _connect(str(path), patience)
        try:
            _check_pages(connection, str(path))
            check(connection, str(path), may_be_empty=not (directory / MARK).exists())
            connection.execute("PRAGMA journal_mode = WAL")
            _back_up_older(connection, directory)
            migrate(connection)
            _write_once(directory, MARK)
            _write_once(directory, IN_USE)
        except BaseException:
            close_writer(connection, directory)
            raise
    return connection


def close_writer(connection: sqlite3.Connection, directory: Path) -> None:
    connection.close()
    with suppress(OSError):  # then the next start says how to continue
        os.remove(directory / IN_USE)


def open_reader(path: Path, *, patience: timedelta) -> sqlite3.Connection:
    with sqlite_errors(str(path)):
        return _connect(f"{path.absolute().as_uri()}?mode=ro", patience, is_uri=True)


def open_memory() -> sqlite3.Connection:
    connection = _connect(MEMORY, PATIENCE)
    migrate(connection)
    return connection


def copy_tables(
    source: sqlite3.Connection, target: sqlite3.Connection, tables: Iterable[str]
) -> None:
    source.execute("BEGIN")  # an engine may write meanwhile
    for table in tables:
        rows = source.execute(f"SELECT * FROM {table}")  # noqa: S608 - a name of ours
        marks = ", ".join("?" * len(rows.description))
        target.executemany(f"INSERT INTO {table} VALUES ({marks})", map(tuple, rows))  # noqa: S608
    source.execute("COMMIT")


def check(connection: sqlite3.Connection, place: str, *, may_be_empty: bool = False) -> None:
    application, version = (
        connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("application_id", "user_version")
    )
    if version == 0 and not connection.execute("SELECT 1 FROM sqlite_schema").fetchone():
        if not may_be_empty:
            raise _damaged(place, "the ledger file is empty")
        return
    if application != APPLICATION:
        raise _damaged(place, "not a ledger of horae, but another database")
    oldest, newest = min(migrations()), max(migrations())
    reason = f"the schema has version {version}, and this horae supports"
    if version > newest:
        remedy = "use the newer horae that wrote it"
        raise LedgerNewerError(place, f"{reason} {newest}", remedy=remedy)
    if version < oldest:
        remedy = f"open it first with a build of horae that upgrades it to version {oldest}"
        raise LedgerError(place, f"{reason} {oldest} to {newest}", remedy=remedy)


def _check_pages(connection: sqlite3.Connection, place: str, how: str = "quick_check") -> None:
    problem = connection.execute(f"PRAGMA {how}(1)").fetchone()[0]
    if problem != "ok":
        raise _damaged(place, f"the ledger is damaged ({problem})")


def version_of(connection: sqlite3.Connection) -> int:
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version


def _back_up_older(connection: sqlite3.Connection, directory: Path) -> None:
    """Make the verified copy without which a ledger is not migrated."""
    if 0 < (version := version_of(connection)) < max(migrations()):
        target = directory / older_backup(version)
        prepare_folder(target.parent)
        copy_into(connection, target)
        made = [n for n in range(1, version + 1) if (directory / older_backup(n)).exists()]
        for older in made[:-2]:
            os.remove(directory / older_backup(older))
        log.info("the ledger has schema %d; its backup before the upgrade is %s", version, target)


def older_backup(version: int) -> str:
    return f"{BACKUPS}/ledger-schema-{version}.db"


def migrate(connection: sqlite3.Connection) -> None:
    version = version_of(connection)
    if version < max(migrations()):
        from horae.store import recode  # texts of another version

        connection.create_function("recode_entry", 1, recode.entry, deterministic=True)
        connection.create_function("recode_policy", 1, recode.policy, deterministic=True)
    for number, script in migrations().items():
        if number <= version:
            continue
        # One transaction, or each statement would commit on its own.
        marks = f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {number};"
        connection.executescript(f"{BEGIN};\n{script}\n{marks} COMMIT;")


def try_migrations(directory: Path) -> None:
    path = directory / DATABASE
    with sqlite_errors(str(path)), looking_into(path) as ledger:
        check(ledger, str(path))
        if version_of(ledger) == max(migrations()):
            return
    try:
        with migrated_copy(directory):
            pass
    except sqlite3.Error as error:
        reason = f"its schema cannot be upgraded ({error})"
        raise LedgerError(str(path), reason, remedy="install the version before") from error


@contextmanager
def migrated_copy(directory: Path) -> Iterator[sqlite3.Connection]:
    with (
        TemporaryDirectory(prefix=_TRIAL, dir=directory) as place,
        draft_of(directory / DATABASE, Path(place)) as draft,
    ):
        yield draft


def copy_into(connection: sqlite3.Connection, target: Path) -> None:
    part = target.with_name(f"{target.name}.part")
    with sqlite_errors(str(target)):
        try:
            _create(part)
            connection.execute("VACUUM INTO ?", (str(part),))
            verify(part)
            sync(part)
            part.replace(target)
            sync(target.parent)
        finally:
            with suppress(OSError):  # it was renamed, or the first error is reported
                os.remove(part)


def verify(path: Path) -> None:
    place = str(path)
    if not path.is_file() or path.stat().st_size == 0:
        reason = "not a backup: the file is empty"
        raise LedgerDamagedError(place, reason, remedy="name another backup")
    with sqlite_errors(place), looking_into(path) as connection:
        _check_pages(connection, place)
        check(connection, place)
        _check_pages(connection, place, "integrity_check")


def looking_into(path: Path) -> closing[sqlite3.Connection]:
    return closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True))


@contextmanager
def draft_of(backup: Path | None, directory: Path) -> Iterator[sqlite3.Connection]:
    """Yield a draft of a ledger of our version: a copy of the backup, or empty.

    All writes to it are kept at the end, or none.
    """
    path = directory / DRAFT
    with sqlite_errors(str(path)):
        _create(path)
        with closing(_connect(str(path), PATIENCE)) as draft:
            if backup is not None:
                with looking_into(backup) as source:
                    source.backup(draft)
            draft.execute("PRAGMA journal_mode = DELETE")
            migrate(draft)
            draft.execute(BEGIN)
            with draft:  # commits or rolls back
                yield draft


def put_in_place(directory: Path, *, aside: str) -> Path:
    path, draft, old = directory / DATABASE, directory / DRAFT, directory / aside
    sync(draft)
    # The database first: if we are killed after that, the next start notices that it is missing.
    # Its log must be moved before the draft comes, which would use it as its own.
    for suffix in ("", *_BESIDE):
        with suppress(FileNotFoundError):  # some may not exist
            Path(f"{path}{suffix}").replace(f"{old}{suffix}")
    sync(directory)
    draft.replace(path)
    _write_once(directory, MARK)
    sync(directory)
    return old


def _connect(name: str, patience: timedelta, *, is_uri: bool = False) -> sqlite3.Connection:
    connection = sqlite3.connect(
        name,
        timeout=patience.total_seconds(),
        isolation_level=None,
        # One thread at a time uses it, but another one may close it.
        check_same_thread=False,
        uri=is_uri,
        cached_statements=256,
    )
    connection.row_factory = sqlite3.Row
    try:
        for pragma in ("synchronous = FULL", "foreign_keys = ON", "trusted_schema = OFF"):
            connection.execute(f"PRAGMA {pragma}")
    except BaseException:
        connection.close()
        raise
    return connection


def loss_of(directory: Path) -> LedgerDamagedError | None:
    """Return how the ledger of a data directory is damaged or lost; None if it is not.

    A ledger of a newer version is not lost: it raises an error.
    """
    path, was_there = directory / DATABASE, (directory / MARK).exists()
    if not was_there and not path.exists():
        return None
    try:
        refuse_loss(path, was_there=was_there)
        verify(path)
    except LedgerDamagedError as error:
        return error
    return None


def refuse_loss(path: Path, *, was_there: bool) -> None:
    if not was_there:
        return
    if not path.exists():
        raise _damaged(str(path), "the ledger file is missing")
    if path.stat().st_size == 0:
        raise _damaged(str(path), "the ledger file is empty")
    # SQLite keeps its log while a ledger is open, so it exists after a crash.
    in_use = path.with_name(IN_USE)
    if in_use.exists() and not Path(f"{path}-wal").exists():
        merged = f"remove {in_use.name} if sqlite3 has already merged the log"
        lost = "its log (ledger.db-wal) with the last writes is missing"
        reason, remedy = f"the ledger was not closed, and {lost}", f"{_RESTORE}, or {merged}"
        raise LedgerDamagedError(str(path), reason, remedy=f"{remedy}, or {_FRESH}")


def _damaged(place: str, reason: str) -> LedgerDamagedError:
    """Return the error for a damaged ledger, and mark it so that it is not used."""
    remedy = f"{_RESTORE}, or {_FRESH}" if place.endswith(DATABASE) else _RESTORE
    return LedgerDamagedError(place, reason, remedy=remedy)


def _write_once(directory: Path, name: str) -> None:
    with suppress(FileExistsError):  # it has the same content
        write_durably(directory / name, _FILES[name].encode())
        sync(directory)


def _create(path: Path) -> None:
    with suppress(FileNotFoundError):  # it does not exist
        os.remove(path)
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_RDWR, 0o600))


_ODD: Final = re.compile(r"[^A-Za-z0-9._-]+")
_AGENT: Final = "agent:"


def keep(directory: Path, name: str, text: str) -> str:
    """Store a value in a file that only its owner can read; return its reference."""
    folder = directory / FOLDER
    file = f"{_ODD.sub('_', name)[:80]}-{token_hex(8)}"
    prepare_folder(folder)
    with sqlite_errors(str(folder)):
        # By the descriptor of the folder, so that no link leads elsewhere.
        inside = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.fchmod(inside, 0o700)
            write_durably(file, text.encode("utf-8", "surrogateescape"), folder=inside)
            os.fsync(inside)
        finally:
            os.close(inside)
    return f"${{{FOLDER}/{file}}}"


def forget(directory: Path, texts: Iterable[str]) -> None:
    for path in (path for text in texts for path in kept_in(text)):
        try:
            os.remove(directory / path)
        except FileNotFoundError:
            continue
        except OSError as error:
            log.warning("cannot remove the secret %s: %s", path, error.strerror)


def named_in(connection: sqlite3.Connection) -> Iterator[tuple[str, str]]:
    for name, text in connection.execute("SELECT name, spec FROM trigger").fetchall():
        config = (read_json(text, dict) or {}).get("config")
        if not isinstance(config, dict):
            continue
        env = config.get("env")
        values = env.values() if isinstance(env, dict) else map(config.get, WEBHOOK_SECRETS)
        is_agent = name.startswith(_AGENT)
        whose = f"agent {name.removeprefix(_AGENT)}" if is_agent else f"webhook {name}"
        yield from ((whose, value) for value in values if isinstance(value, str))
