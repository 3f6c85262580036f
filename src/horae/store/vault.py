"""Values of secrets that came with a request: files of the data directory, never in the ledger.

A backup is a copy of the ledger, so none of them is in it. Each has a name of its own that is
never used again: what an older ledger refers to is there as it was, or is not there.
"""

from __future__ import annotations

import logging
import os
import re
from secrets import token_hex
from typing import TYPE_CHECKING, Final

from horae.core.ports import read_json
from horae.core.private import write_durably
from horae.core.secret import FOLDER, WEBHOOK_SECRETS, kept_in
from horae.store import database

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator
    from pathlib import Path

log = logging.getLogger(__name__)

_ODD: Final = re.compile(r"[^A-Za-z0-9._-]+")
_AGENT: Final = "agent:"


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
    for name, text in connection.execute("SELECT name, spec FROM trigger").fetchall():
        config = (read_json(text, dict) or {}).get("config")
        if not isinstance(config, dict):
            continue
        env = config.get("env")
        values = env.values() if isinstance(env, dict) else map(config.get, WEBHOOK_SECRETS)
        is_agent = name.startswith(_AGENT)
        whose = f"agent {name.removeprefix(_AGENT)}" if is_agent else f"webhook {name}"
        yield from ((whose, value) for value in values if isinstance(value, str))
