"""`horae demo`: everything once, with real processes, in a directory that is removed afterwards."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
from typing import TYPE_CHECKING

import pytest

from commands import PipedCommand, run_command
from horae.cli.demo import PACE, TOUR, write_plan
from horae.errors import Exit
from waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from calling import Call


def demo(folder: Path, *args: str, **environ: str) -> PipedCommand:
    """Start a demo whose temporary directory is made in a folder."""
    where = {"TMPDIR": str(folder), "HORAE_LISTEN": "127.0.0.1:0", **environ}
    return PipedCommand("horae", "demo", *args, environ={**os.environ, **where})


def counts(out: str) -> dict[str, int]:
    """Return how many receipts of each entry are done, by the summary."""
    table = out.partition("outcomes")[2].splitlines()
    rows = [re.fullmatch(r" *\d+  (.+?)  +.*?(\d+) done.*", line) for line in table]
    return {row[1]: int(row[2]) for row in rows if row}


def type_in(folder: Path, *args: str) -> str:
    """Return what a command prints in the directory of the demo, once it knows what is named."""
    [root] = folder.glob("horae-demo-*")
    until = time.monotonic() + 20
    while (ending := run_command("horae", *args, at=root)).code == Exit.NOT_FOUND:
        assert time.monotonic() < until, ending.err
    assert ending.code == 0, ending.err
    return ending.out


def test_the_plan_has_no_finding_and_everything_is_armed(call: Call, tmp_path: Path) -> None:
    write_plan(tmp_path)
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    checked = call("check", str(tmp_path), "--table")
    assert (checked.code, checked.out) == (0, "9 files checked, no problems\n")
    titles = {each["title"] for each in call("next", str(tmp_path), "-n", "200", "--json").data}
    assert {"Back up the site", "Digest of the activity", "Run the release checks"} <= titles


def test_each_kind_of_entry_runs_at_most_a_line_a_second_is_logged_and_nothing_is_left(
    tmp_path: Path,
) -> None:
    missing = {
        *("done Back up the site", "done Digest of the activity", "done Tag the release"),
        *("done Publish the release", "done Notify about failures", "done smoke-test"),
        *("done release-notes", "done triage", "done deps", "done deploy"),
        *("held deploy", "missed Announce the maintenance"),
    }
    wanted = {each.removeprefix("done ") for each in missing if each.startswith("done ")}
    began = time.monotonic()
    running = demo(tmp_path)
    gives_up = threading.Timer(150, running.kill)
    gives_up.start()
    lines: list[str] = []
    logged: list[float] = []  # when a line of the log was read, which is never before it is printed
    for line in running.stdout:
        lines.append(line)
        if not (found := re.match(r"\d{4}-\d\d-\d\d [\d:]+ \S+  (\w+) +(.*?)  ", line)):
            continue
        logged.append(time.monotonic() - began)
        missing.discard(f"{found[1]} {found[2]}")
        if len(logged) == 1:
            type_in(tmp_path, "run", "digest")
            type_in(tmp_path, "trigger", "run", "smoke-test")
        if (found[1], found[2]) == ("held", "deploy"):
            [held] = json.loads(type_in(tmp_path, "approval", "list", "--json"))
            type_in(tmp_path, "approval", "approve", str(held["receipt"]))
        if not missing:
            break
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=60)
    gives_up.cancel()
    assert running.returncode == 0, err
    assert not missing, "".join(lines)
    assert all(at >= number * PACE for number, at in enumerate(logged))
    ended = counts(out)
    assert wanted <= ended.keys()
    assert ended["release-notes"] == ended["deploy"] == 1
    # Lines that were due later are printed at the end: none is dropped.
    said = re.search(r"stopped; receipts since [^Z]+ UTC: .*?(\d+) done", err)
    assert said, err
    assert len(re.findall(r"^\d{4}-.*  done  ", "".join([*lines, out]), re.MULTILINE)) == int(
        said[1]
    )
    wrote = re.search(r"Horae wrote (\d+) receipts in \d+s, one for each occurrence:", out)
    assert wrote
    total = re.search(r"stopped; receipts since [^Z]+ UTC: (.*)", err)
    assert total
    assert sum(map(int, re.findall(r"\d+", total[1]))) == int(wrote[1])
    assert [*tmp_path.iterdir()] == []


def test_the_first_ten_lines_say_what_happens_and_where_to_look(tmp_path: Path) -> None:
    out, err = demo(tmp_path, "--seconds", "1").communicate(timeout=60)
    lines = out.splitlines()
    first = "\n".join(lines[:10])
    assert lines[0].startswith(f"This is a demo of Horae, in {tmp_path}/horae-demo-"), err
    assert re.search(r"http://horae-[0-9a-f]{24}\.localhost:\d+/login/", first)
    for words in ("Ctrl-C", "a backup", "horae status", "horae why", "horae history", "approval"):
        assert words in first, words
    assert not re.search(r"^\d{4}-", first, re.MULTILINE)
    assert "login" not in err


def test_the_tour_names_what_to_try() -> None:
    lines = [line for line in TOUR.splitlines() if line.startswith("  ")]
    for word in ("status", "why", "history", "tick", "task", "run", "plan.org", "{crash"):
        assert any(word in line for line in lines), word
    assert max(len(line) for line in lines) <= 80


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_it_can_be_stopped_at_any_time_and_leaves_nothing(
    tmp_path: Path, by: signal.Signals
) -> None:
    running = demo(tmp_path)
    wait_until(lambda: [*tmp_path.glob("horae-demo-*/.horae/runs/*/*")])
    running.send_signal(by)
    out, err = running.communicate(timeout=60)
    assert running.returncode == 0, err
    assert "outcomes" in out
    assert [*tmp_path.iterdir()] == []


def test_with_keep_it_stays_and_can_be_gone_on_with(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    out, err = demo(tmp_path, "--seconds", "3", "--keep", str(kept)).communicate(timeout=60)
    assert f"horae up {kept}" in out, err
    assert (kept / ".agentd" / "workflows" / "deploy.yml").is_file()
    assert (kept / ".horae" / "ledger.db").is_file()
    again = demo(tmp_path, "--keep", str(kept))
    _, err = again.communicate(timeout=60)
    assert again.returncode == 6
    assert err == (
        f"horae: {kept} is not empty; name a new directory,"
        f" or continue a demo that is there: horae up {kept}\n"
    )


def test_a_port_that_is_in_use_is_said_and_another_one_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        done = demo(tmp_path, "--seconds", "1", HORAE_LISTEN=where)
        out, err = done.communicate(timeout=60)
    assert done.returncode == 0, err
    said = re.search(r"localhost:(\d+)/login/\S+  \(port (\d+): the usual one is in use\)", out)
    assert said, out
    assert said[1] == said[2]


def test_the_settings_of_other_plans_do_not_count(tmp_path: Path) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    elsewhere = {
        "HORAE_STORE": "postgresql://127.0.0.1:1/none",
        "HORAE_DATA": str(tmp_path / "mine"),
        "WB_CREW_DEF": "/nowhere.org",
    }
    done = demo(folder, "--seconds", "1", **elsewhere)
    _, err = done.communicate(timeout=60)
    assert done.returncode == 0, err
    assert not (tmp_path / "mine").exists()


def test_killed_and_started_again_it_goes_on_and_nothing_runs_twice(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    running = demo(tmp_path, "--keep", str(kept))
    wait_until(lambda: [*kept.glob(".horae/runs/*/*")])
    running.kill()
    running.communicate(timeout=60)
    environ = {**os.environ, "HORAE_LISTEN": "127.0.0.1:0"}
    assert run_command("horae", "up", str(kept), "--seconds", "3", environ=environ).code == 0
    history = run_command("horae", "history", "--root", str(kept), "--json", "-n", "1000")
    keys = [(each["entry"], each["key"]) for each in json.loads(history.out)]
    assert keys
    assert len(keys) == len({*keys})
