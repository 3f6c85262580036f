"""`horae demo`: everything once, with real processes, in a directory that is gone afterwards."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

from horae.cli.demo import TOUR, write_plan

if TYPE_CHECKING:
    from pathlib import Path

    from calling import Call

HORAE = [sys.executable, "-m", "horae.cli.main"]


def demo(folder: Path, *args: str, **environ: str) -> subprocess.Popen[str]:
    """Start a demo whose temporary directory is made in a folder."""
    return subprocess.Popen(
        [*HORAE, "demo", *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(folder), "HORAE_LISTEN": "127.0.0.1:0", **environ},
    )


def counts(out: str) -> dict[str, int]:
    """Return how many receipts of each entry ended well, by the summary."""
    table = out.partition("how they ended")[2].splitlines()
    rows = [re.fullmatch(r" *\d+  (.+?)  +.*?(\d+) done.*", line) for line in table]
    return {row[1]: int(row[2]) for row in rows if row}


def until(condition: object, *, within: float = 60.0) -> None:
    """Wait until something is so."""
    assert callable(condition)
    end = time.monotonic() + within
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.05)


def test_the_plan_has_no_finding_and_everything_is_armed(call: Call, tmp_path: Path) -> None:
    write_plan(tmp_path)
    checked = call("check", str(tmp_path), "--table")
    assert (checked.code, checked.out) == (0, "5 files checked, no problems\n")
    titles = {each["title"] for each in call("next", str(tmp_path), "-n", "200", "--json").data}
    assert {"Count the seconds", "Look at the garden", "Water the beans"} <= titles


def test_within_seconds_each_kind_of_entry_has_run_and_nothing_is_left(tmp_path: Path) -> None:
    missing = {
        "Count the seconds",
        "Look at the garden",
        "Water the beans (handed out)",
        "chime",
        "once",
        "wren",
        "moss",
    }
    wanted = {*missing}
    running = demo(tmp_path)
    assert running.stdout is not None
    gives_up = threading.Timer(120, running.kill)
    gives_up.start()
    lines: list[str] = []
    for line in running.stdout:
        lines.append(line)
        missing -= {*re.findall(r"  done  +(.+?)  ", line)}
        if not missing:
            break
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=60)
    gives_up.cancel()
    assert running.returncode == 0, err
    assert not missing, "".join(lines)
    ended = counts(out)
    assert wanted <= ended.keys()
    assert ended["once"] == 1
    assert re.search(r"the page is at http://horae-[0-9a-f]{24}\.localhost:\d+/login/", err)
    assert any("horae why" in line for line in lines)
    assert [*tmp_path.iterdir()] == []


def test_the_tour_is_ten_lines_of_what_to_try() -> None:
    lines = [line for line in TOUR.splitlines() if line.startswith("  ")]
    assert len(lines) + 1 == 10  # and the page
    for word in ("status", "why", "history", "tick", "task", "run", "plan.org", "kill -9", "up ."):
        assert any(word in line for line in lines), word


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_it_can_be_stopped_at_any_time_and_leaves_nothing(
    tmp_path: Path, by: signal.Signals
) -> None:
    running = demo(tmp_path)
    until(lambda: [*tmp_path.glob("horae-demo-*/.horae/runs/*/*")])
    running.send_signal(by)
    out, err = running.communicate(timeout=60)
    assert running.returncode == 0, err
    assert "how they ended" in out
    assert [*tmp_path.iterdir()] == []


def test_with_keep_it_stays_and_can_be_gone_on_with(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    out, err = demo(tmp_path, "--seconds", "3", "--keep", str(kept)).communicate(timeout=60)
    assert f"horae up {kept}" in out, err
    assert (kept / ".agentd" / "workflows" / "once.yml").is_file()
    assert (kept / ".horae" / "ledger.db").is_file()
    again = demo(tmp_path, "--keep", str(kept))
    _, err = again.communicate(timeout=60)
    assert again.returncode == 6
    assert err == (
        f"horae: {kept}: something is there already; name a new directory,"
        f" or go on with what is there: horae up {kept}\n"
    )


def test_a_port_that_is_in_use_is_said_and_another_one_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        done = demo(tmp_path, "--seconds", "1", HORAE_LISTEN=where)
        _, err = done.communicate(timeout=60)
    assert done.returncode == 0
    said = re.search(rf"horae: {where}: .*; the demo takes port (\d+)\n", err)
    assert said, err
    assert re.search(rf"the page is at http://horae-\w+\.localhost:{said[1]}/login/", err)


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
    until(lambda: [*kept.glob(".horae/runs/*/*")])
    running.kill()
    running.communicate(timeout=60)
    up = [*HORAE, "up", str(kept), "--seconds", "3"]
    subprocess.run(
        up, check=True, capture_output=True, env={**os.environ, "HORAE_LISTEN": "127.0.0.1:0"}
    )
    history = subprocess.run(
        [*HORAE, "history", "--root", str(kept), "--json", "-n", "1000"],
        check=True,
        capture_output=True,
        text=True,
    )
    keys = re.findall(r'"entry": (\d+),\n.*\n *"key": "(.*)"', history.stdout)
    assert keys
    assert len(keys) == len({*keys})
