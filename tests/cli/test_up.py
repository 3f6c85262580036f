"""`horae up` keeps the hours of real plans with real processes, and stops when it is told to."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from commands import HORAE, PipedCommand, is_healthy, run_command
from process.stage import holders
from waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from calling import Ending

PLAN = """* Tick
:PROPERTIES:
:SCHEDULE: * * * * * *
:COMMAND: sh -c 'echo "$HORAE_KEY" >> seen'
:END:
"""


def up(root: Path, *args: str, stdin: int | None = None, **environ: str) -> PipedCommand:
    """Start an engine."""
    known = {**os.environ, "HORAE_LISTEN": "127.0.0.1:0", **environ}
    return PipedCommand("horae", "up", root, *args, environ=known, stdin=stdin)


def up_for(seconds: str, root: Path, *args: str) -> Ending:
    """Let an engine run for a while."""
    environ = {**os.environ, "HORAE_LISTEN": "127.0.0.1:0"}
    return run_command("horae", "up", str(root), "--seconds", seconds, *args, environ=environ)


def seen(root: Path) -> list[str]:
    path = root / "seen"
    return path.read_text().split() if path.exists() else []


def wait_for(root: Path, count: int) -> None:
    """Wait until so many runs have left their mark."""
    wait_until(lambda: len(seen(root)) >= count)


def history(root: Path, *args: str) -> list[dict[str, object]]:
    rows = run_command("horae", "history", "--root", str(root), *args, "--json").data
    found: list[dict[str, object]] = rows["receipts"] if isinstance(rows, dict) else rows
    return found


def test_it_fires_stops_by_itself_and_says_what_became_of_the_time(tmp_path: Path) -> None:
    (tmp_path / "plan.org").write_text(PLAN)
    code, out, err = up_for("3", tmp_path, "--log", "plain")
    assert code == 0, err
    keys = seen(tmp_path)
    assert len(keys) >= 1
    assert len(set(keys)) == len(keys)
    assert re.search(r"\d\d:\d\d:\d\d \S+  done         Tick  plan.org:1", out)
    assert f"running the plans in {tmp_path}" in err
    assert re.search(r"stopped; receipts since [^Z]+ UTC: \d+ done", err)


def test_lines_for_programs_are_json(tmp_path: Path) -> None:
    (tmp_path / "plan.org").write_text(PLAN)
    engine = up(tmp_path, "--log", "json", "--log-level", "debug")
    try:
        wait_for(tmp_path, 1)
    finally:
        engine.send_signal(signal.SIGTERM)
        out, _ = engine.communicate(timeout=30)
    events = [json.loads(line) for line in out.splitlines()]
    assert {"event", "at", "kind", "entry", "receipt"} <= events[0].keys()
    assert any(each["kind"] == "receipt" for each in events)


def test_a_plan_that_is_saved_counts_at_once_and_sigterm_ends_it_well(tmp_path: Path) -> None:
    (tmp_path / "plan.org").write_text("* Nothing yet\n")
    engine = up(tmp_path)
    try:
        wait_until(lambda: is_healthy(tmp_path / ".horae"))
        (tmp_path / "plan.org").write_text(PLAN)
        wait_for(tmp_path, 2)
    finally:
        engine.send_signal(signal.SIGTERM)
        engine.communicate(timeout=30)
    assert engine.returncode == 0
    before = len(seen(tmp_path))
    receipts = history(tmp_path)
    assert {each["status"] for each in receipts} <= {"done", "skipped"}
    wait_until(lambda: not holders(tmp_path / ".horae"))  # no launcher that could start another
    assert len(seen(tmp_path)) == before


def test_what_runs_when_it_is_stopped_may_end_and_then_must(tmp_path: Path) -> None:
    text = PLAN.replace("* * * * * *", "* * * * * *").replace("echo", "sleep 60; echo")
    (tmp_path / "plan.org").write_text(text)
    engine = up(tmp_path, "--log", "json", "--log-level", "debug", HORAE_RUN_DRAIN="5s")
    for line in engine.stdout:
        if json.loads(line).get("status") == "running":
            break
    engine.send_signal(signal.SIGTERM)
    began = time.monotonic()
    messages = (json.loads(line)["message"] for line in engine.stderr)
    assert "stopping; waiting up to 5s for 1 run: Tick" in messages
    place = ("--root", str(tmp_path))
    stopping = f"the engine (process {engine.pid}) is already stopping; it waits for 1 run: Tick\n"
    assert run_command("horae", "stop", "--no-wait", *place).out == stopping
    status = run_command("horae", "status", *place).out
    assert f": engine stopping (process {engine.pid}, since " in status
    assert "), waiting for 1 run\n" in status
    assert "\nnext\n" not in status
    refused = run_command("horae", "run", "Tick", *place)
    assert (refused.code, "is stopping; try again when it has ended" in refused.err) == (3, True)
    engine.communicate(timeout=30)
    assert time.monotonic() - began < 20
    assert engine.returncode == 0
    assert "interrupted" in {each["status"] for each in history(tmp_path)}
    assert not seen(tmp_path)


def test_a_second_engine_is_refused_and_told_who_was_first(tmp_path: Path) -> None:
    (tmp_path / "plan.org").write_text(PLAN)
    first = up(tmp_path)
    try:
        wait_for(tmp_path, 1)
        second = up(tmp_path)
        _, err = second.communicate(timeout=30)
        assert second.returncode == 6
        assert str(first.pid) in err
    finally:
        first.send_signal(signal.SIGINT)
        first.communicate(timeout=30)
    assert first.returncode == 0


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = up(tmp_path / "none")
    _, err = done.communicate(timeout=30)
    assert done.returncode == 4
    assert "there is no such directory; `horae init" in err


def test_systemd_hears_that_it_is_ready_alive_and_stopping(tmp_path: Path) -> None:
    (tmp_path / "plan.org").write_text(PLAN)
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(address)
        listener.settimeout(20)
        engine = up(tmp_path, NOTIFY_SOCKET=address)
        heard: list[str] = []
        while "WATCHDOG=1" not in heard:
            heard.append(listener.recv(100).decode())
        engine.terminate()
        while "STOPPING=1" not in heard:
            heard.append(listener.recv(100).decode())
        engine.communicate(timeout=30)
    assert heard[0] == "READY=1"


def test_systemd_hears_from_an_idle_engine_as_often_as_it_wants_to(tmp_path: Path) -> None:
    (tmp_path / "plan.org").write_text(PLAN.replace("* * * * * *", "0 0 1 1 *"))
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(address)
        listener.settimeout(20)
        engine = up(tmp_path, NOTIFY_SOCKET=address, WATCHDOG_USEC="500000")
        signs = 0
        while signs < 12:  # with a rest of 30 s there would be two or three
            signs += listener.recv(100) == b"WATCHDOG=1"
        assert engine.poll() is None
        engine.terminate()
        engine.communicate(timeout=30)


def test_on_a_terminal_it_draws_what_is_now_and_next(tmp_path: Path) -> None:
    (tmp_path / "plan.org").write_text(PLAN.replace("* * * * * *", "0 0 1 1 *"))
    ours, theirs = pty.openpty()
    engine = subprocess.Popen(
        [*HORAE, "up", str(tmp_path), "--seconds", "6"],
        stdout=theirs,
        stderr=theirs,
        stdin=theirs,
        env={
            **os.environ,
            "HORAE_LISTEN": "127.0.0.1:0",
            "TERM": "xterm",
            "COLUMNS": "120",
            "LINES": "40",
        },
    )
    os.close(theirs)
    drawn = b""
    while True:
        try:
            drawn += os.read(ours, 65536)
        except OSError:
            break
    os.close(ours)
    assert engine.wait(timeout=30) == 0
    text = " ".join(re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn.decode()).split())
    assert "1 armed" in text
    assert "next" in text
    assert "Tick" in text


def test_a_root_without_a_plan_is_said_and_its_entries_go_only_if_told_so(tmp_path: Path) -> None:
    root, data = tmp_path / "plans", tmp_path / "data"
    root.mkdir()
    (root / "plan.org").write_text(PLAN)
    engine = up(root, "--data", str(data))
    wait_for(root, 1)
    engine.terminate()
    engine.communicate(timeout=30)
    shutil.rmtree(root)
    engine = up(root, "--data", str(data), "--log", "json")
    try:
        lines = map(json.loads, engine.stderr)
        said = next(line["message"] for line in lines if "does not exist, but" in line["message"])
        assert said.endswith("run `horae stop` and then `horae up --empty-plan`")
        place = ("--root", str(root), "--data", str(data))
        status = run_command("horae", "status", "--json", *place).data
        assert (status["entries"], status["next"]) == (1, [])
        why = run_command("horae", "why", "Tick", *place).out
        assert f"cannot run: {said}" in why
        assert "scheduled in" not in why
        refused = run_command("horae", "run", "Tick", "--root", str(root), "--data", str(data))
        assert (refused.code, refused.err) == (6, f"horae: {said}\n")
        root.mkdir()
        (root / "plan.org").write_text(PLAN)
        wait_for(root, 1)
    finally:
        engine.terminate()
        engine.communicate(timeout=30)
    (root / "plan.org").unlink()
    ended_at = time.time()
    wait_until(lambda: time.time() >= int(ended_at) + 1)  # a moment that no engine saw
    engine = up(root, "--data", str(data), "--empty-plan", "--log", "plain")
    try:
        assert next(
            line for line in engine.stdout if re.search(r"  removed +Tick  plan.org:1", line)
        )
    finally:
        engine.terminate()
        engine.communicate(timeout=30)
    last = history(root, "--data", str(data))[0]
    assert (last["status"], last["reason"]) == ("skipped", "no longer in the plan")


DELAY = """name: remind
agent: bot
source:
  type: delay
  run_at: 2026-01-01T09:00:00Z
prompt_template: hello
"""


def test_a_lost_ledger_is_left_behind_if_asked_to_and_nothing_past_fires(tmp_path: Path) -> None:
    (tmp_path / "plan.org").write_text(
        f"{PLAN}* Once\nSCHEDULED: <2026-01-01 Thu 09:00>\n:PROPERTIES:\n"
        ":COMMAND: sh -c 'echo once >> past'\n:END:\n"
    )
    bot = tmp_path / "bot"
    bot.write_text(f"#!/bin/sh\ntouch {tmp_path}/past\n")
    bot.chmod(0o755)
    for folder, text in (("agents", f"name: bot\ncommand: {bot}\n"), ("workflows", DELAY)):
        (tmp_path / ".agentd" / folder).mkdir(parents=True)
        (tmp_path / ".agentd" / folder / "bot.yml").write_text(text)
    data = tmp_path / ".horae"
    (data / "runs" / "2026-01-01" / "41").mkdir(parents=True)  # it ran, long ago
    (data / "HORAE").write_text("There was a ledger here.\n")
    (data / "ledger.db").touch()
    lost = f"{data}/ledger.db: the ledger file is empty"

    refused = up(tmp_path)
    _, err = refused.communicate(timeout=30)
    assert (refused.returncode, lost in err) == (5, True)
    assert "`horae up --fresh-ledger`" in err
    unasked = up(tmp_path, "--fresh-ledger")
    _, err = unasked.communicate(timeout=30)
    assert unasked.returncode == 2
    assert "use --yes" in err
    assert (data / "ledger.db").read_bytes() == b""

    begun = up(tmp_path, "--fresh-ledger", "--yes", "--log", "plain")
    said = []
    for line in begun.stderr:  # until that is said, too
        said.append(line)
        if "remind" in line:
            break
    wait_for(tmp_path, 1)
    begun.send_signal(signal.SIGTERM)
    begun.communicate(timeout=30)
    err = "".join(said)
    assert begun.returncode == 0, err
    assert lost in err
    assert re.search(rf"the old ledger is {data}/ledger-before-\d{{8}}T\d{{6}}Z.db", err)
    assert "remind (.agentd/workflows/bot.yml:1) is disabled" in err
    assert "the scheduled time, 2026-01-01 Thu 09:00 UTC, was before that" in err
    assert not (tmp_path / "past").exists()
    found = history(tmp_path)
    assert {row["title"]: row["status"] for row in found} == {"Tick": "done", "Once": "skipped"}
    assert up_for("0", tmp_path, "--log", "plain").code == 0
    assert not (tmp_path / "past").exists(), "nor at the next start"
    whole = up(tmp_path, "--fresh-ledger", "--yes")
    _, err = whole.communicate(timeout=30)
    assert (whole.returncode, "the ledger is intact and is not replaced" in err) == (6, True)


def test_on_a_terminal_it_asks_before_a_ledger_is_left_behind(tmp_path: Path) -> None:
    (tmp_path / "plan.org").write_text(PLAN)
    (tmp_path / ".horae" / "backups").mkdir(parents=True)
    (tmp_path / ".horae" / "backups" / "ledger-1.db").touch()
    (tmp_path / ".horae" / "HORAE").write_text("There was a ledger here.\n")
    parent, child = pty.openpty()
    asked = up(tmp_path, "--fresh-ledger", stdin=child)
    os.write(parent, b"n\n")
    out, err = asked.communicate(timeout=30)
    assert asked.returncode == 1
    assert "1 backup is in" in out
    assert "Start a new ledger? [y/N]" in out
    assert "nothing was changed" in err
    assert not (tmp_path / ".horae" / "ledger.db").exists()


def test_a_line_about_an_entry_names_it(tmp_path: Path) -> None:
    (tmp_path / "plan.org").write_text(PLAN)
    engine = up(tmp_path, "--log", "plain")
    wait_for(tmp_path, 1)
    assert run_command("horae", "pause", "Tick", "--root", str(tmp_path)).code == 0
    engine.send_signal(signal.SIGINT)
    out, err = engine.communicate(timeout=30)
    assert re.search(
        r"  paused       Tick  plan.org:1  by \S+, on the command line$", out, re.MULTILINE
    ), err


def test_an_engine_can_be_stopped_whatever_is_in_its_settings_now(tmp_path: Path) -> None:
    (tmp_path / "plan.org").write_text(PLAN)
    engine = up(tmp_path, "--log", "json")
    wait_for(tmp_path, 1)
    (tmp_path / "horae.toml").write_text('zone = "Mars/X"\n')
    said = next(
        found for line in engine.stderr if "Mars/X" in (found := json.loads(line)["message"])
    )
    assert said.startswith("settings: ")
    assert said.endswith("; the engine keeps the settings that it started with")
    for command in ("status", "stop"):
        ending = run_command("horae", command, "--root", str(tmp_path))
        assert (ending.code, "zone 'Mars/X' is not a time zone" in ending.err) == (0, True)
    engine.communicate(timeout=30)
    assert engine.returncode == 0
    assert run_command("horae", "status", "--root", str(tmp_path)).code == 2


def test_it_names_the_line_of_what_is_no_setting(tmp_path: Path) -> None:
    (tmp_path / "plan.org").write_text(PLAN)
    (tmp_path / "horae.toml").write_text("[gate]\nfoo = 1\n")
    err = up_for("0.1", tmp_path, "--log", "plain").err
    assert "horae.toml:2: there is no setting 'gate.foo'; it is ignored" in err


def test_members_of_a_crew_that_is_no_longer_set_are_removed(tmp_path: Path) -> None:
    (tmp_path / "keep.org").write_text("* keep :agent:\n:PROPERTIES:\n:COMMAND: true\n:END:\n")
    settings = tmp_path / "horae.toml"
    settings.write_text('[keeper]\ndef = "keep.org"\n')
    rows = ["list", "--root", str(tmp_path), "--json"]
    up_for("0.5", tmp_path)
    assert [each["title"] for each in run_command("horae", *rows).data] == ["keep"]
    settings.write_text("")
    up_for("0.5", tmp_path)
    assert run_command("horae", *rows).data == []


def test_a_schedule_first_fires_at_its_first_time(tmp_path: Path) -> None:
    first = (datetime.now(UTC) + timedelta(seconds=4)).replace(microsecond=0)
    bound = f":FROM: {first:%Y-%m-%dT%H:%M:%SZ}\n:END:"
    (tmp_path / "plan.org").write_text(PLAN.replace(":END:", bound))
    engine = up(tmp_path)
    wait_for(tmp_path, 2)
    engine.terminate()
    engine.communicate(timeout=30)
    planned = sorted(str(each["planned_at"]) for each in history(tmp_path))
    assert datetime.fromisoformat(planned[0]) == first


def test_a_ledger_that_another_process_writes_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "plan.org").write_text(PLAN)
    assert up_for("1", tmp_path).code == 0
    before = len(seen(tmp_path))
    with closing(sqlite3.connect(tmp_path / ".horae/ledger.db", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        engine = up(tmp_path, "--log", "plain")
        waits = next(line for line in engine.stderr if "waiting until the ledger is free" in line)
        assert f"process {os.getpid()} is writing to the ledger" in waits
        assert len(seen(tmp_path)) == before
        other.execute("ROLLBACK")
        wait_for(tmp_path, before + 1)
        engine.send_signal(signal.SIGTERM)
        _, err = engine.communicate(timeout=30)
    assert engine.returncode == 0, err
    assert "waiting until the ledger is free" not in err


def test_sigterm_ends_an_engine_that_waits_for_its_ledger(tmp_path: Path) -> None:
    (tmp_path / "plan.org").write_text(PLAN)
    assert up_for("1", tmp_path).code == 0
    before = len(seen(tmp_path))
    with closing(sqlite3.connect(tmp_path / ".horae/ledger.db", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        engine = up(tmp_path, "--log", "plain")
        assert any("waiting until the ledger is free" in line for line in engine.stderr)
        engine.send_signal(signal.SIGTERM)
        engine.communicate(timeout=60)
    assert engine.returncode == 0
    assert len(seen(tmp_path)) == before
