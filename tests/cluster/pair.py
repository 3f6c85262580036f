"""Two PostgreSQL servers as an operator has them, of the system's own packages if there are any."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from cluster.stage import Stage
from waiting import PATIENCE

if TYPE_CHECKING:
    from cluster.wires import Wire

PACKAGES: Final = Path("/usr/lib/postgresql")


class Pair:
    """A primary, and where a standby goes; servers do not run as root."""

    def __init__(self) -> None:
        known = sorted(PACKAGES.glob("*/bin/pg_basebackup"), key=lambda each: int(each.parts[4]))
        found = known[-1] if known else shutil.which("pg_basebackup")
        if found is None:
            pytest.skip("PostgreSQL is not installed here")
        self.bin = Path(found).resolve().parent
        self.user = "postgres" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
        # A short name: the sockets' must fit into a hundred bytes.
        self.home = Path(tempfile.mkdtemp(prefix="horae-ha-", dir="/tmp"))
        self.primary, self.standby = self.home / "primary", self.home / "standby"
        self.hosts = tuple(self.home / name for name in ("db1", "db2"))
        for each in self.hosts:
            each.mkdir()
        if os.geteuid() == 0:
            try:
                account = pwd.getpwnam(self.user)
            except KeyError:
                pytest.skip(f"there is no user {self.user} that servers could run as")
            for each in (self.home, *self.hosts):
                os.chown(each, account.pw_uid, account.pw_gid)
            self.home.chmod(0o755)
        self.do(f"initdb -D {self.primary} -U postgres -A trust")
        self.settings(self.primary, self.hosts[0])
        self.do(f"pg_ctl -D {self.primary} -l {self.home}/primary.log -w start")

    def settings(self, data: Path, host: Path) -> None:
        """Let a server listen in a directory of its own; what is not needed after a test may go."""
        (data / "postgresql.conf").write_text(
            f"listen_addresses = ''\nunix_socket_directories = '{host}'\n"
            "max_connections = 50\nfull_page_writes = off\nhot_standby = on\n"
        )

    def do(self, script: str) -> str:
        """Do what an operator types, as the user of the servers; return what is said."""
        as_user = ["runuser", "-u", self.user, "--"] if os.geteuid() == 0 else []
        done = subprocess.run(
            [*as_user, "env", f"PATH={self.bin}:/usr/bin:/bin", "sh", "-ec", script],
            cwd=self.home,
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def sql(self, text: str, *, database: str = "postgres", user: str = "postgres") -> str:
        """Do what an operator types into psql on the primary."""
        asked = self.home / "asked.sql"
        asked.write_text(text)
        words = f"-v ON_ERROR_STOP=1 -h {self.hosts[0]} -U {user} -d {database} -f {asked}"
        return self.do(f"psql -q -At {words}")

    def close(self) -> None:
        for each in (self.primary, self.standby):
            with suppress(AssertionError, subprocess.SubprocessError):  # it does not run
                self.do(f"pg_ctl -D {each} -m immediate stop")
        shutil.rmtree(self.home, ignore_errors=True)


class PairStage(Stage):
    """A stage on two servers, of which nodes use the one that is the primary."""

    def __init__(self, place: Path, pair: Pair, *, lease: int) -> None:
        self.pair = pair
        super().__init__(place, lease=lease, name="horae")

    def url(self, wire: Wire | None = None, *, user: str = "horae", more: str = "") -> str:  # noqa: ARG002
        hosts = ",".join(map(str, self.pair.hosts))
        return f"postgresql://{user}@/horae?host={hosts}&target_session_attrs=read-write{more}"
