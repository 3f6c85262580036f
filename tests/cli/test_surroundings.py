"""What `doctor` says of git, languages, the plan root, the port and a shared database."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import sqlite3
import subprocess
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from horae.cli.doctor import (
    DatabaseFacts,
    Grade,
    check_languages,
    check_programs,
    check_schema,
    check_skew,
    check_upgrade,
)
from horae.store.postgres import PostgresLedger
from horae.store.sql import migrations
from store.ledger_0_1 import VERSION, put_into
from store.server import SCHEMA, fresh, server

if TYPE_CHECKING:
    from calling import Call

KNOWN = max(migrations("postgres"))
PLAN = """\
* Look :workflow:
** Ask :component:
#+begin_src {lang}
print(1)
#+end_src
"""


def rows(call: Call, name: str, *args: str) -> list[tuple[str, str, str]]:
    """Return grade, found and remedy of each row that a doctor has under a name."""
    found: list[dict[str, Any]] = call("doctor", *args, "--json").data
    return [
        (each["grade"], each["found"], each["remedy"] or "")
        for each in found
        if each["check"] == name
    ]


def tools(folder: Path, **programs: str) -> str:
    """Return a PATH with these programs alone, each of which says something."""
    folder.mkdir()
    for name, words in programs.items():
        (folder / name).write_text(f"#!/bin/sh\necho '{words}'\n")
        (folder / name).chmod(0o755)
    return str(folder)


# Git


def test_a_git_that_is_too_old_matters_to_a_plan_under_git(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = os.environ["PATH"]
    monkeypatch.setenv("PATH", tools(tmp_path / "bin", git="git version 2.30.2"))
    remedy = "install git 2.38 or newer"
    assert rows(call, "git") == [
        ("warn", "git version 2.30.2", f"{remedy} before you put the plan in git")
    ]
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True, env={"PATH": path})
    assert rows(call, "git") == [("fail", "git version 2.30.2, but the plan is in git", remedy)]


def test_no_git_at_all_is_said(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", tools(tmp_path / "bin"))
    [(grade, found, _)] = rows(call, "git")
    assert (grade, found) == ("warn", "git is not in the PATH")


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git here")
def test_the_git_of_this_machine_will_do(call: Call) -> None:
    [(grade, found, _)] = rows(call, "git")
    assert grade == "ok"
    assert found.startswith("git version ")


# Languages


def test_the_languages_that_can_be_run_are_listed_and_the_others_too(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", tools(tmp_path / "bin", sh="", luajit=""))
    [(grade, found, remedy)] = rows(call, "languages")
    assert (grade, found) == ("ok", "blocks can be run in sh, lua")
    assert remedy.startswith("to run blocks in python, bash, js,")


def test_a_plan_with_a_block_that_nothing_here_runs_fails(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plan.org").write_text(PLAN.format(lang="golang"))
    monkeypatch.setenv("PATH", tools(tmp_path / "bin", sh=""))
    assert call("doctor").code == 1
    _, (grade, found, remedy) = rows(call, "languages")
    assert (grade, remedy) == ("fail", "install Go (https://go.dev)")
    assert found.endswith("plan.org has a block in go, which is not installed")


def test_a_language_that_nobody_knows_and_an_agent_block() -> None:
    found = list(check_languages({"sh"}, {"cobol": "plan.org", "agent": "plan.org", "sh": "x.org"}))
    assert [each.grade for each in found] == [Grade.OK, Grade.FAIL]
    assert "blocks in 'cobol' cannot be run" in found[1].found


# The plan root and the port


@pytest.mark.parametrize(
    "command",
    [
        "up nowhere", "list nowhere", "stop nowhere", "status --root nowhere",
        "doctor --root nowhere", "config --root nowhere", "task list --root nowhere",
        "trigger list --root nowhere", "agent list --root nowhere", "token list --root nowhere",
        "approval list --root nowhere", "service print --root nowhere", "run x --root nowhere",
    ],
)  # fmt: skip
def test_every_command_says_the_same_of_a_root_that_does_not_exist(
    call: Call, command: str
) -> None:
    ending = call(*command.split())
    said = "horae: nowhere: there is no such directory; `horae init nowhere` creates it\n"
    assert (ending.code, ending.out, ending.err) == (4, "", said)


@pytest.mark.parametrize("command", ["up", "list", "stop", "init"])
def test_every_command_says_the_same_of_a_root_that_is_a_file(call: Call, command: str) -> None:
    Path("plan.org").write_text("* Backup\n")
    ending = call(command, "plan.org")
    said = f"horae: plan.org: is a file; name its directory: horae {command} .\n"
    assert (ending.code, ending.err.startswith(said)) == (2, True)
    ending = call("status", "--root", "plan.org")
    said = "horae: plan.org: is a file; name its directory: horae status --root .\n"
    assert (ending.code, ending.err.startswith(said)) == (2, True)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_root_that_cannot_be_written_is_said(call: Call, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        [(grade, found, _)] = rows(call, "plan root")
    finally:
        tmp_path.chmod(0o700)
    assert grade == "warn"
    assert "cannot be written" in found


def test_a_data_directory_that_cannot_be_created_is_said(call: Call, tmp_path: Path) -> None:
    assert rows(call, "data directory")[0][2] == "`horae up` creates it"
    (tmp_path / "file").write_text("")
    [(grade, found, remedy)] = rows(call, "data directory", "--data", "file/data")
    assert (grade, remedy.endswith("or choose another with --data")) == ("fail", True)
    assert found == "file/data does not exist yet and cannot be created in file"


def test_a_port_that_is_in_use_is_said_and_a_free_one_too(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setenv("HORAE_LISTEN", f"127.0.0.1:{port}")
        [(grade, found, remedy)] = rows(call, "port")
        assert grade == "warn"
        assert found.startswith(f"127.0.0.1:{port}: ")
        assert remedy == "stop the program that listens there, or set `listen` to another port"
    monkeypatch.setenv("HORAE_LISTEN", "127.0.0.1:0")
    assert rows(call, "port") == [("ok", "127.0.0.1:0 is free", "")]


# A database that machines share


def stored(call: Call, monkeypatch: pytest.MonkeyPatch, url: str) -> dict[str, tuple[str, str]]:
    """Return what a doctor says of a database: grade, and what was found or to do."""
    monkeypatch.setenv("HORAE_STORE", url)
    names = ("store", "store schema", "store clock")
    seen = {name: rows(call, name) for name in names}
    return {name: (row[0][0], row[0][2] or row[0][1]) for name, row in seen.items() if row}


def test_a_database_that_is_well(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    url = fresh()
    asyncio.run(_made(url))
    told = stored(call, monkeypatch, url)
    assert told["store"][0] == "ok"
    assert "is PostgreSQL 1" in told["store"][1]
    assert told["store schema"] == ("ok", f"version {KNOWN}, and the database role can write it")
    assert told["store clock"] == ("ok", "this machine's clock and the database's agree")


def test_a_ledger_in_a_database_needs_none_beside_it(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".horae").mkdir(mode=0o700)
    assert rows(call, "ledger")
    monkeypatch.setenv("HORAE_STORE", "postgresql://127.0.0.1:1/none")
    assert not rows(call, "ledger")
    assert not rows(call, "backups")


def test_a_database_without_a_ledger_is_left_without_one(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = fresh()
    server().drop(SCHEMA)
    told = stored(call, monkeypatch, url)
    assert told["store schema"] == ("ok", "`horae cluster migrate` or `horae up` creates it")
    assert server().do("SELECT to_regclass('term')") == [(None,)]


def test_a_schema_of_a_newer_horae_is_refused(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    url = fresh()
    asyncio.run(_made(url))
    server().do("UPDATE term SET version = 99")
    try:
        assert stored(call, monkeypatch, url)["store schema"][0] == "ok"  # expanded, not contracted
        server().do("UPDATE term SET oldest = 99")
        told = stored(call, monkeypatch, url)
    finally:
        server().do(f"UPDATE term SET version = {KNOWN}, oldest = {KNOWN}")
    assert told["store schema"] == ("fail", "use the newer horae that wrote it, on every node")


def test_a_role_that_may_only_read_is_told_what_it_lacks(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = fresh()
    asyncio.run(_made(url))
    there = server().do("SELECT 1 FROM pg_roles WHERE rolname = 'looker'")
    server().do(
        "DROP OWNED BY looker" if there else "CREATE ROLE looker LOGIN",
        f"GRANT USAGE ON SCHEMA {SCHEMA} TO looker",
        f"GRANT SELECT ON ALL TABLES IN SCHEMA {SCHEMA} TO looker",
    )
    told = stored(call, monkeypatch, url.replace("//postgres:", "//looker:"))
    assert told["store schema"] == (
        "fail",
        "grant it SELECT, INSERT, UPDATE and DELETE on all tables of the schema",
    )


def test_a_database_that_does_not_answer_costs_one_row_and_no_password(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HORAE_STORE", "postgresql://ada:s3cret@127.0.0.1:1/none")
    ending = call("doctor")
    assert ending.code == 1
    assert "s3cret" not in ending.out + ending.err
    [(grade, found, _)] = rows(call, "store")
    assert grade == "fail"
    assert "the database cannot be reached" in found


def test_a_replica_an_old_schema_and_a_role_that_may_make_nothing() -> None:
    seen = DatabaseFacts(150004, KNOWN, may_write=True, is_replica=False, ahead=timedelta())
    grades = {
        "replica": check_schema(seen._replace(is_replica=True), known=KNOWN).grade,
        "old": check_schema(seen, known=KNOWN + 1).grade,
        "empty": check_schema(seen._replace(schema=None, may_write=False), known=KNOWN).grade,
    }
    assert grades == {"replica": Grade.FAIL, "old": Grade.WARN, "empty": Grade.FAIL}


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(29, "agree"), (-29, "agree"), (90, "1m30s ahead of"), (-3600, "1h behind")],
)
def test_clocks_that_are_apart_are_said_to_be(seconds: int, words: str) -> None:
    found = check_skew(timedelta(seconds=seconds))
    assert words in found.found
    assert found.grade is (Grade.OK if words == "agree" else Grade.WARN)


async def _made(url: str) -> None:
    """Let a database have a ledger."""
    await (await PostgresLedger.open(url)).close()


def test_another_program_with_one_of_our_names_is_told(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for folder, text in ((ours, "from horae.cli.wb import main"), (theirs, "something else")):
        folder.mkdir()
        (folder / "wb").write_text(f"#!/bin/sh\n# {text}\n")
        (folder / "wb").chmod(0o755)
    assert check_programs(str(ours)).grade is Grade.OK
    assert check_programs("").grade is Grade.OK
    hidden = check_programs(f"{ours}:{theirs}")
    assert (hidden.grade, hidden.found) == (
        Grade.WARN,
        f"{theirs}/wb is hidden by {ours}/wb",
    )
    first = check_programs(f"{theirs}:{ours}")
    assert first.found == f"{theirs}/wb is run instead of {ours}/wb"
    alone = check_programs(str(theirs))
    assert alone.found == f"{theirs}/wb is run instead of Horae's wb"


def test_a_doctor_warns_of_what_is_no_setting(call: Call, tmp_path: Path) -> None:
    (tmp_path / "horae.toml").write_text("[gate]\nfoo = 1\n")
    [(grade, found, remedy)] = rows(call, "settings")
    assert (grade, found) == ("warn", "horae.toml:2: there is no setting 'gate.foo'; it is ignored")
    assert "`horae config` lists the settings" in remedy


def test_a_doctor_says_what_an_upgrade_changes_and_changes_nothing(
    call: Call, tmp_path: Path
) -> None:
    assert rows(call, "ledger schema", "--upgrade") == [
        ("ok", "no ledger yet", "`horae up` creates it")
    ]
    put_into(tmp_path / ".horae")
    (tmp_path / "horae.toml").write_text("[gate]\nfoo = 1\n")
    before = (tmp_path / ".horae/ledger.db").read_bytes()
    ours = max(migrations())
    [schema] = rows(call, "ledger schema", "--upgrade")
    assert schema[:2] == ("warn", f"version {VERSION}, and this horae needs {ours}")
    assert f"backup: backups/ledger-schema-{VERSION}.db" in schema[2]
    [(grade, found, _)] = rows(call, "settings", "--upgrade")
    assert (grade, "gate.foo" in found) == ("warn", True)
    [(grade, found, _)] = rows(call, "engine", "--upgrade")
    assert (grade, found) == ("ok", "no engine is running")
    assert (tmp_path / ".horae/ledger.db").read_bytes() == before
    assert not (tmp_path / ".horae/backups").exists()


def test_a_doctor_names_entries_that_an_upgrade_reads_differently(
    call: Call, tmp_path: Path
) -> None:
    plan = tmp_path / "plan.org"
    headline = "* {0}\n:PROPERTIES:\n:SCHEDULE: 0 9 * * *\n:OVERLAP: queue\n:COMMAND: true\n:END:\n"
    plan.write_text(headline.format("Nightly") + headline.format("Other"))
    assert call("run", "Nightly", "--root", str(tmp_path)).code == 0
    same = ("ok", "this version reads the plan files as the ledger has them", "")
    assert rows(call, "entries", "--upgrade") == [same]
    with closing(sqlite3.connect(tmp_path / ".horae/ledger.db")) as ledger, ledger:
        # As a version would have read it that does not know the property.
        change = (
            'UPDATE entry SET spec = replace(spec, \'"overlap":"queue"\', \'"overlap":"skip"\')'
        )
        assert ledger.execute(f"{change} WHERE title = 'Nightly'").rowcount == 1
    [(grade, found, _)] = rows(call, "entries", "--upgrade")
    assert grade == "warn"
    assert found.startswith("1 is read differently: Nightly (plan.org:1): ")
    assert found.endswith(": catch-up latest, overlap skip → catch-up latest, overlap queue")
    words = "* Turns\n:PROPERTIES:\n:SCHEDULE: every other Friday at 17:30\n:COMMAND: true\n:END:\n"
    (tmp_path / "words.org").write_text(words)  # counted from a time that the ledger has
    assert call("run", "Turns", "--root", str(tmp_path)).code == 0
    [(grade, found, _)] = rows(call, "entries", "--upgrade")
    assert found.startswith("1 is read differently: Nightly (plan.org:1): ")
    plan.write_text(plan.read_text().replace("* Nightly", "* Nightly edited"))
    assert rows(call, "entries", "--upgrade") == [same]
    assert not list((tmp_path / ".horae").glob("upgrade-*"))


def test_an_upgrade_needs_room_for_a_backup() -> None:
    ours = max(migrations())
    assert check_upgrade(ours, size=10, free=0).grade == "ok"
    assert check_upgrade(ours + 1, size=10, free=100).remedy == "use the newer horae that wrote it"
    full = check_upgrade(ours - 1, size=1 << 20, free=1 << 20)
    assert (full.grade, full.remedy) == ("fail", "free 2 MiB for the upgrade")
