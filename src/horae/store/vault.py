"""Values of secrets that came with a request: files of the data directory, never in the ledger.

A backup is a copy of the ledger, so none of them is in it. Each has a name of its own that is
never used again: what an older ledger refers to is there as it was, or is not there.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sqlite3
from contextlib import closing, suppress
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final

from horae.core.ports import LedgerError, compact
from horae.core.private import write_durably
from horae.core.secret import FOLDER, WEBHOOK, WEBHOOK_SECRETS, is_kept, is_reference, kept_in
from horae.store import database

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

log = logging.getLogger(__name__)

_ODD: Final = re.compile(r"[^A-Za-z0-9._-]+")
_AGENT: Final = "agent:"
_COPIES: Final = ("backups/ledger-*.db", "ledger-before-*.db", "ledger-rescued*.db")


def keep(directory: Path, name: str, text: str) -> str:
    """Write a value into a file that its owner alone can read; return what stands for it."""
    folder = directory / FOLDER
    file = f"{_ODD.sub('_', name)[:80]}-{token_hex(8)}"
    database.prepare_folder(folder)
    with database.sqlite_errors(str(folder)):
        # Through the folder itself, so that no link leads elsewhere.
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
    """Yield what may name a secret in a ledger: whose it is, and the text."""
    for _, name, spec in _specs(connection):
        is_agent = name.startswith(_AGENT)
        whose = f"agent {name.removeprefix(_AGENT)}" if is_agent else f"webhook {name}"
        yield from ((whose, text) for text in _texts(spec).values())


def seal(connection: sqlite3.Connection, directory: Path) -> None:
    """Move the values of secrets out of a ledger from before, and out of our copies of it.

    Nothing of them is left in the bytes of the database. To do it twice changes nothing.
    """
    kept: dict[tuple[str, str], str] = {}

    def put(name: str, text: str) -> str:
        if (name, text) not in kept:
            kept[name, text] = keep(directory, name, text)
        return kept[name, text]

    def put_known(name: str, text: str) -> str:
        # What only a copy knows is not used any more, and is not kept.
        return kept.get((name, text), f"${{{FOLDER}/{_ODD.sub('_', name)[:80]}-gone}}")

    _seal_one(connection, put)
    for copy in (each for pattern in _COPIES for each in directory.glob(pattern)):
        try:
            with closing(database.connect_draft(copy)) as other:
                _seal_one(other, put_known)
        except (sqlite3.Error, LedgerError) as error:
            log.warning("cannot remove the values of secrets from %s: %s", copy.name, error)


def _seal_one(connection: sqlite3.Connection, put: Callable[[str, str], str]) -> None:
    """Move the values out of one database, and leave nothing of them in its bytes."""
    rows = list(_specs(connection))
    with database.transaction(connection):
        for number, name, spec in rows:
            is_agent = name.startswith(_AGENT)
            config = spec["config"]
            where = config.get("env", {}) if is_agent else config
            sealed = {
                field: put(field if is_agent else f"{WEBHOOK}{name}", text)
                for field, text in _texts(spec).items()
                if text and not is_reference(text) and not is_kept(text)
            }
            if sealed:
                where.update(sealed)
                change = "UPDATE trigger SET spec = ? WHERE rowid = ?"
                connection.execute(change, (compact(spec), number))
    had_some = "SELECT EXISTS (SELECT 1 FROM entry WHERE source = 'trigger')"
    if rows or connection.execute(had_some).fetchone()[0]:
        _rewrite(connection)


def _rewrite(connection: sqlite3.Connection) -> None:
    """Write all of a database anew: what was deleted is in none of its pages, nor in its log."""
    connection.execute("VACUUM")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _specs(connection: sqlite3.Connection) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Yield every trigger and agent; one that cannot be understood is left as it is."""
    for row in connection.execute("SELECT rowid, name, spec FROM trigger").fetchall():
        with suppress(ValueError, TypeError):  # it stays as it is
            spec = json.loads(row[2])
            if isinstance(spec, dict) and isinstance(spec.get("config"), dict):
                yield int(row[0]), str(row[1]), spec


def _texts(spec: dict[str, Any]) -> dict[str, str]:
    config = spec["config"]
    env = config.get("env")
    fields = env if isinstance(env, dict) else {name: config.get(name) for name in WEBHOOK_SECRETS}
    return {str(name): text for name, text in fields.items() if isinstance(text, str)}
