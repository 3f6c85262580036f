"""An engine that is restarted keeps its process and its runs, also under another build."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest

import horae
from commands import HORAE, is_healthy, run_command
from crash.audit import audit
from crash.stage import Home, Life, entry, until_gone
from crash.test_conditions import mounted
from crash.test_crash import GONE, SLOTS, motley
from horae.client import Client
from horae.extras.exporters.units import EngineUnit, systemd_unit
from horae.process.handover import VARIABLE
from horae.web import address
from scale import scaled
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

# Each waits until its file is there.
LONG = "sh -c 'echo $$ >> begun; while [ ! -e go-{0} ]; do sleep 0.2; done; echo {0} >> ended'"
SYSTEMD = Path("/lib/systemd/systemd")
MANY = {"HORAE_GATE_SLOTS": "21", "HORAE_LISTEN": "127.0.0.1:0"}


def asked(title: str, command: str, **props: str) -> str:
    """Return a headline that runs on request."""
    lines = "".join(f":{name}: {value}\n" for name, value in props.items())
    return f"* {title}\n:PROPERTIES:\n:COMMAND: {command}\n{lines}:END:\n"


def up(home: Home, program: Sequence[str] = (), **settings: str) -> Life:
    """Start an engine that can be restarted, and return when it has read the plan."""
    life = home.up(settings={**MANY, **settings}, program=program, is_plain=True)
    life.until(lambda: is_healthy(home.data))
    return life


def call(home: Home, *words: str) -> Any:
    """Return what a command answers as JSON."""
    place = ("--root", str(home.plans), "--data", str(home.data), "--json")
    said = run_command("horae", *words, *place)
    assert said.code == 0, said.err
    return said.data


def start(home: Home, *titles: str) -> None:
    """Run entries, and return when all of them are running."""
    numbers = [Client(home.data).run_now(title).receipt for title in titles]
    theirs = f"status = 'running' AND number IN ({', '.join(map(str, numbers))})"
    wait_until(lambda: home.count(theirs) == len(titles), said=home.said)


def let_go(home: Home, *titles: str) -> None:
    """Let runs end, and return when all have."""
    for title in titles:
        (home.plans / f"go-{title}").touch()
    wait_until(lambda: home.count("status IN ('starting', 'running')") == 0, said=home.said)


def restart(home: Home, *words: str) -> Any:
    return call(home, "restart", *words)


def until_one_more(life: Life) -> None:
    """Return when one more receipt is done."""
    seen = life.home.count("status = 'done'")
    life.until(lambda: life.home.count("status = 'done'") > seen)


def statuses(home: Home) -> list[tuple[str, str]]:
    """Return how each receipt stands, and why."""
    return home.rows("SELECT status, reason_code FROM receipt ORDER BY number")


def build(home: Home) -> dict[str, str]:
    """Copy the package, and return the settings by which an engine runs the copy."""
    shutil.copytree(Path(horae.__file__).parent, home.place / "build/horae")
    return {"PYTHONPATH": str(home.place / "build"), "PYTHONDONTWRITEBYTECODE": "1"}


def change(home: Home, file: str, old: str, new: str) -> None:
    """Change the build that an engine runs."""
    path = home.place / "build/horae" / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_runs_go_on_in_the_same_process_and_end_as_usual(home: Home) -> None:
    home.write(asked("one", LONG.format("one")), asked("two", LONG.format("two")))
    life = up(home)
    start(home, "one", "two")
    # Before a command is executed, its process looks like the supervisor that forked it.
    begun = home.plans / "begun"
    wait_until(lambda: begun.exists() and len(begun.read_text().split()) == 2, said=home.said)
    before = {each for each in life.remains() if each.life or each.engine}
    told = restart(home)
    assert (told["restarted"], told["pid"], told["version"]) == (True, life.pid, horae.__version__)
    assert "2 runs continue" in life.said()
    assert before <= set(life.remains())  # also the launcher: it is above them
    held = Client(home.data).gate().holding
    assert len(held) == 2
    with closing(HTTPConnection("127.0.0.1", _port(life))) as port:  # it is the same
        port.request("GET", "/healthz")
        assert port.getresponse().status == 200
    Client(home.data).run_now("one")  # a second one waits for the first
    let_go(home, "one", "two")
    wait_until(lambda: home.count("status = 'done'") == 3)
    assert statuses(home) == [("done", "completed")] * 3
    assert sorted((home.plans / "ended").read_text().split()) == ["one", "one", "two"]
    assert home.rows("SELECT sum(deaths) FROM receipt") == [(0,)]
    wait_until(lambda: len([each for each in life.remains() if each.parent == life.pid]) == 1)
    assert life.stop() == 0
    assert not life.remains()


def _port(life: Life) -> int:
    return int(life.said().partition(".localhost:")[2].partition("/")[0])


def test_however_often_it_is_restarted_each_time_has_one_receipt_and_no_effect_comes_twice(
    home: Home,
) -> None:
    home.write(*motley(home))
    life = up(home, **SLOTS | {"HORAE_RUN_DRAIN": "30s"})
    for _ in range(scaled(40)):
        until_one_more(life)
        restart(home)
    until_one_more(life)
    assert life.stop() == 0
    assert not life.remains()
    account = audit(home, alone=("Quick", "Late", "Queued", "Slow", "Again", "Stubborn"))
    assert account.receipts["interrupted"] == 0
    assert home.rows("SELECT sum(deaths) FROM receipt") == [(0,)]


def migration(home: Home, text: str) -> int:
    """Give the build that an engine runs another schema, and return its version."""
    folder = home.place / "build/horae/store/sql/migrations"
    version = max(int(each.name[:4]) for each in folder.glob("*.sql")) + 1
    (folder / f"{version:04}_more.sql").write_text(text.format(version))
    return version


def schema(home: Home) -> int:
    [(version,)] = home.rows("PRAGMA user_version")
    return int(version)


def test_twenty_runs_outlive_every_restart_into_other_builds_and_schemas(home: Home) -> None:
    settings = build(home)
    titles = [f"r{number}" for number in range(20)]
    home.write(*(asked(title, LONG.format(title)) for title in titles))
    (home.plans / "second.org").write_text(entry("Quick", home.effect(), catchup="all"))
    life = up(home, HORAE, **settings, HORAE_GATE_SLOTS="22")
    start(home, *titles)
    before = {each for each in life.remains() if each.pid in _pids_of_runs(home)}
    assert len(before) == 20
    took, version, descriptors, wanted = [], horae.__version__, 0, schema(home)
    for count in range(scaled(100, few=4)):
        until_one_more(life)
        if count % 3 == 1:  # another version
            version, old = f"99.0.{count}", version
            change(home, "__init__.py", f'"{old}"', f'"{version}"')
        if count % 3 == 2:  # another schema
            wanted = migration(home, "CREATE TABLE more_{0} AS SELECT * FROM event;")
        told = restart(home)
        took.append(told["seconds"])
        assert (told["pid"], told["version"]) == (life.pid, version)
        assert schema(home) == wanted
        assert before <= set(life.remains()), count
        held = [each.title for each in Client(home.data).gate().holding]
        assert sorted(set(held) - {"Quick"}) == sorted(titles)
        found = len(os.listdir(f"/proc/{life.pid}/fd"))
        descriptors = descriptors or found
        assert found <= descriptors + 8  # those of a run that comes or goes; nothing piles up
    for title in titles:
        (home.plans / f"go-{title}").touch()
    wait_until(lambda: home.count(f"status = 'done' AND entry IN ({LONG_ONES})") == 20)
    assert life.stop() == 0
    assert not life.remains()
    assert sorted((home.plans / "ended").read_text().split()) == sorted(titles)
    assert home.rows("SELECT sum(deaths) FROM receipt") == [(0,)]
    assert not home.count("status IN ('interrupted', 'killed', 'failed')")
    with closing(sqlite3.connect(home.data / "ledger.db")) as ledger:
        # The audit is about what is due every second.
        ledger.executescript(
            "DELETE FROM run WHERE receipt IN"
            f" (SELECT number FROM receipt WHERE entry IN ({LONG_ONES}));"
            f"DELETE FROM receipt WHERE entry IN ({LONG_ONES});"
            "DELETE FROM entry WHERE title <> 'Quick';"
        )
    account = audit(home, alone=("Quick",))
    sys.stdout.write(f"{len(took)} restarts, {max(took)} s at most; {account}\n")


LONG_ONES = "SELECT number FROM entry WHERE title <> 'Quick'"


def _pids_of_runs(home: Home) -> set[int]:
    return {pid for (pid,) in home.rows("SELECT pid FROM run WHERE ended_at IS NULL")}


def test_a_schema_that_cannot_be_upgraded_leaves_everything_as_it_is(home: Home) -> None:
    settings = build(home)
    home.write(asked("one", LONG.format("one")))
    life = up(home, HORAE, **settings)
    start(home, "one")
    version = schema(home)
    migration(home, "CREATE TABLE more AS SELECT * FROM event; DROP TABLE absent;")
    said = run_command("horae", "restart", "--root", str(home.plans), "--data", str(home.data))
    assert said.code == 6
    assert "its schema cannot be upgraded (no such table: absent)" in said.err
    assert schema(home) == version
    assert not list(home.data.glob("upgrade-*"))
    assert call(home, "status")["engine"]["pid"] == life.pid
    let_go(home, "one")
    assert statuses(home) == [("done", "completed")]


def test_systemd_hears_of_a_restart_as_of_a_reload(home: Home) -> None:
    home.write(asked("one", LONG.format("one")))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(home.place / "notify"))
        listener.settimeout(30)
        heard: list[str] = []

        def hear(wanted: str) -> None:
            while wanted not in heard:
                heard.extend(listener.recv(1000).decode().splitlines())

        life = up(home, NOTIFY_SOCKET=str(home.place / "notify"), WATCHDOG_USEC="60000000")
        hear("READY=1")
        start(home, "one")
        heard.clear()
        began = time.monotonic()
        restart(home)
        hear("READY=1")
        told = [each for each in heard if each != "WATCHDOG=1"]
        assert [each.partition("=")[0] for each in told] == ["RELOADING", "MONOTONIC_USEC", "READY"]
        assert began <= int(told[1].partition("=")[2]) / 1e6 <= time.monotonic()
        let_go(home, "one")
        life.process.send_signal(signal.SIGTERM)
        hear("STOPPING=1")
        assert life.ended() == 0
    assert statuses(home) == [("done", "completed")]


@pytest.mark.skipif(
    os.geteuid() != 0 or not SYSTEMD.exists(), reason="systemd, and to be root, is needed for this"
)
def test_a_reload_by_systemd_keeps_the_process_and_its_runs(home: Home) -> None:
    home.data = home.plans / ".horae"
    home.write(asked("one", LONG.format("one")))
    (home.plans / "horae.toml").write_text('listen = "127.0.0.1:0"\n')
    program = home.place / "horae"
    program.write_text(f'#!/bin/sh\nexec {" ".join(HORAE)} "$@"\n')
    program.chmod(0o700)
    unit = home.place / "config/systemd/user/horae.service"
    unit.parent.mkdir(parents=True)
    unit.write_text(systemd_unit(EngineUnit(str(program), str(home.plans), is_user=True)))
    with systemd(home) as control:
        control("start", "horae")
        wait_until(lambda: is_healthy(home.data))
        process = control("show", "horae", "-p", "MainPID")
        start(home, "one")
        control("reload", "horae")
        assert control("show", "horae", "-p", "MainPID") == process
        assert control("show", "horae", "-p", "ActiveState,ReloadResult,NRestarts").split() == [
            "ReloadResult=success", "NRestarts=0", "ActiveState=active",
        ]  # fmt: skip
        let_go(home, "one")
        control("stop", "horae")
        assert control("show", "horae", "-p", "Result").strip() == "Result=success"
    assert statuses(home) == [("done", "completed")]


@contextmanager
def systemd(home: Home) -> Iterator[Callable[..., str]]:
    """Run a manager of services, as that of a user who is logged in; yield `systemctl`."""
    # It looks whether the machine was booted by one like it. The path of its socket is short.
    words = "mount --make-rprivate / && mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/system"
    with TemporaryDirectory(prefix="systemd-") as place:
        environ = {**os.environ, "XDG_RUNTIME_DIR": place, "HOME": str(home.place)}
        environ |= {"XDG_CONFIG_HOME": str(home.place / "config")}

        def control(*words: str) -> str:
            told = subprocess.run(
                ["systemctl", "--user", *words],
                check=True, env=environ, capture_output=True, text=True, timeout=60,
            )  # fmt: skip
            return told.stdout

        def is_up() -> bool:
            with suppress(subprocess.CalledProcessError):
                return bool(control("list-units"))
            return False

        manager = subprocess.Popen(
            ["unshare", "-m", "sh", "-c", f"{words} && exec {SYSTEMD} --user"], env=environ
        )
        try:
            wait_until(lambda: is_up() or manager.poll() is not None)
            if manager.poll() is not None:
                pytest.skip("systemd cannot run here")
            yield control
        finally:
            manager.terminate()
            manager.wait(30)


def test_a_newer_version_is_told_of_and_takes_over(home: Home) -> None:
    settings = build(home)
    home.write(asked("one", LONG.format("one")))
    life = up(home, HORAE, **settings)
    start(home, "one")
    change(home, "__init__.py", f'"{horae.__version__}"', '"99.0.0"')
    due = f"horae 99.0.0 is installed, and {horae.__version__} is running; `horae restart`"
    wait_until(lambda: due in life.said())
    assert any(due in each for each in call(home, "status")["problems"])
    assert restart(home)["version"] == "99.0.0"
    assert "restarted with horae 99.0.0" in life.said()
    assert not call(home, "status")["problems"]
    let_go(home, "one")
    assert statuses(home) == [("done", "completed")]


def test_a_run_whose_supervisor_the_new_version_cannot_talk_to_is_ended_and_says_so(
    home: Home,
) -> None:
    settings = build(home)
    home.write(asked("one", LONG.format("one")))
    life = up(home, HORAE, **settings)
    start(home, "one")
    change(home, "process/supervisor.py", "PROTOCOL = 1", "PROTOCOL = 2")
    restart(home)
    assert statuses(home) == [("interrupted", "unknown_protocol")]
    assert not [each for each in life.remains() if each.life]


def test_a_version_that_cannot_start_leaves_everything_as_it_is(home: Home) -> None:
    settings = build(home)
    home.write(asked("one", LONG.format("one")))
    life = up(home, HORAE, **settings)
    start(home, "one")
    change(home, "app.py", "async def keep(", "async def keep)(")
    place = ("--root", str(home.plans), "--data", str(home.data))
    said = run_command("horae", "restart", *place)
    assert said.code == 6
    assert "the engine is not restarted and continues as it is: " in said.err
    assert "SyntaxError" in said.err
    assert call(home, "status")["engine"]["pid"] == life.pid
    let_go(home, "one")
    assert statuses(home) == [("done", "completed")]


def test_an_image_that_cannot_be_executed_leaves_the_old_one_with_its_runs(home: Home) -> None:
    # It says that it could start, and then it is gone.
    python = home.place / "python"
    python.write_text(
        f'#!/bin/sh\ncase "${VARIABLE}" in try*) rm "$0" ;; esac\nexec {sys.executable} "$@"\n'
    )
    python.chmod(0o700)
    program = f"import sys; sys.executable = {str(python)!r}\n"
    program += "from horae.cli.main import main; sys.exit(main())"
    home.write(asked("one", LONG.format("one")))
    life = up(home, (sys.executable, "-c", program))
    start(home, "one")
    said = run_command("horae", "restart", "--root", str(home.plans), "--data", str(home.data))
    assert said.code == 6, said.err
    assert "No such file or directory" in said.err
    assert f"{python}: No such file or directory" in life.said()
    assert "continuing with horae" in life.said()
    assert call(home, "status")["engine"]["pid"] == life.pid
    let_go(home, "one")
    assert statuses(home) == [("done", "completed")]
    assert life.stop() == 0


def test_a_new_image_waits_for_a_ledger_that_cannot_be_written_and_its_runs_go_on(
    home: Home,
) -> None:
    with mounted(home.place / "disk", "size=20m") as disk:
        home.data = disk / "data"
        python = home.place / "python"
        python.write_text(
            f'#!/bin/sh\ncase "${VARIABLE}" in [0-9]*) cat /dev/zero > {disk}/filler 2> /dev/null ;; esac\n'
            f'exec {sys.executable} "$@"\n'
        )
        python.chmod(0o700)
        program = f"import sys; sys.executable = {str(python)!r}\n"
        program += "from horae.cli.main import main; sys.exit(main())"
        home.write(asked("one", LONG.format("one")))
        life = up(home, (sys.executable, "-c", program))
        start(home, "one")
        before = {each for each in life.remains() if each.life}
        Client(home.data).restart()
        life.until(lambda: "waiting until the ledger is free" in life.said())
        assert before <= set(life.remains())
        (disk / "filler").unlink()
        life.until(lambda: "1 run continues" in life.said())
        assert before <= set(life.remains())
        let_go(home, "one")
        assert statuses(home) == [("done", "completed")]
        assert life.stop() == 0


def test_sighup_restarts_an_engine_without_a_terminal(home: Home) -> None:
    home.write(asked("one", LONG.format("one")))
    life = up(home)
    start(home, "one")
    life.process.send_signal(signal.SIGHUP)
    life.until(lambda: "1 run continues" in life.said())
    let_go(home, "one")
    assert statuses(home) == [("done", "completed")]


def test_a_run_can_be_cancelled_and_keeps_its_time_limit_after_a_restart(home: Home) -> None:
    home.write(
        asked("one", LONG.format("one")),
        asked("late", "sleep 1000", TIMEOUT="12s"),
        asked("stopped", "sleep 1000", TIMEOUT="12s"),
    )
    life = up(home)
    start(home, "one", "late", "stopped")
    os.kill(_supervisor(home, "stopped"), signal.SIGSTOP)  # then the engine sees to the limit
    restart(home)
    assert call(home, "cancel", "one", "--reason", "enough")["changed"]
    wait_until(lambda: home.count("status IN ('starting', 'running')") == 0, said=home.said)
    assert statuses(home) == [
        ("killed", "cancelled"), ("killed", "time_limit"), ("interrupted", "supervisor_lost"),
    ]  # fmt: skip
    assert not [each for each in life.remains() if each.life]


def _supervisor(home: Home, title: str) -> int:
    [(pid,)] = home.rows(
        "SELECT run.pid FROM run JOIN receipt ON receipt.number = run.receipt"
        " JOIN entry ON entry.number = receipt.entry WHERE entry.title = ?",
        title,
    )
    return int(pid)


def test_an_engine_that_is_killed_after_a_restart_ends_its_runs(home: Home) -> None:
    home.write(asked("one", LONG.format("one")), asked("two", LONG.format("two")))
    life = up(home)
    start(home, "one")
    restart(home)
    start(home, "two")  # of a launcher of its own
    wait_until(lambda: len((home.plans / "begun").read_text().split()) == 2)
    life.kill()
    until_gone(life.remains, within=GONE)
    up(home)
    wait_until(lambda: home.count("status = 'interrupted'") == 2)
    assert statuses(home) == [("interrupted", "engine_exited")] * 2


WORKFLOW = """* Flow :workflow:
:PROPERTIES:
:SCHEDULE: 0 0 1 1 *
:END:
** first :component:
#+begin_src sh
touch "$HORAE_PLAN_DIR/flowing"; while [ ! -e "$HORAE_PLAN_DIR/go-flow" ]; do sleep 0.2; done
echo first
#+end_src
"""


def test_a_workflow_is_waited_for_or_ended_when_its_time_is_over(home: Home) -> None:
    home.write(WORKFLOW, asked("one", LONG.format("one")))
    life = up(home, HORAE_RUN_DRAIN="1s")
    start(home, "one", "Flow")
    restart(home)
    assert statuses(home) == [("running", "started"), ("interrupted", "engine_restarted")]
    start(home, "Flow")
    wait_until((home.plans / "flowing").exists)
    assert Client(home.data).restart(wait=True).pid == life.pid
    life.until(lambda: "waiting as long as needed for runs that cannot continue" in life.said())
    time.sleep(1.5)  # longer than it would be without --wait
    assert life.said().count("restarted with horae") == 1
    assert call(home, "status")["engine"]["running"]  # it answers meanwhile
    let_go_of = home.plans / "go-flow"
    let_go_of.touch()
    life.until(lambda: life.said().count("restarted with horae") == 2)
    let_go(home, "one")
    assert [each for each, _ in statuses(home)] == ["done", "interrupted", "done"]


def test_a_stop_that_waits_lets_every_run_end(home: Home) -> None:
    home.write(asked("one", LONG.format("one")))
    life = up(home, HORAE_RUN_DRAIN="100ms")
    start(home, "one")
    place = ("--root", str(home.plans), "--data", str(home.data))
    said = run_command("horae", "stop", "--wait", "--timeout", "1s", *place)
    assert said.code == 124
    assert "stopping; waiting as long as needed for 1 run: one" in life.said()
    assert home.count("status = 'running'") == 1
    (home.plans / "go-one").touch()
    assert life.ended() == 0
    assert statuses(home) == [("done", "completed")]


def test_a_stop_while_it_waits_to_restart_is_a_stop(home: Home) -> None:
    home.write(WORKFLOW, asked("one", LONG.format("one")))
    life = up(home, HORAE_RUN_DRAIN="1s")
    start(home, "one", "Flow")
    Client(home.data).restart(wait=True)
    life.until(lambda: "waiting as long as needed for runs that cannot continue" in life.said())
    life.process.send_signal(signal.SIGTERM)
    assert life.ended() == 0
    assert statuses(home) == [("interrupted", "engine_stopped")] * 2
    assert not life.remains()


def test_clients_are_answered_by_the_new_image_and_streams_are_closed(home: Home) -> None:
    home.write(asked("one", LONG.format("one")))
    life = up(home)
    with socket.socket(socket.AF_UNIX) as stream, address(home.data) as where:
        stream.connect(where)
        stream.sendall(b"GET /api/v1/events/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
        stream.settimeout(30)
        assert b"retry: 1000" in stream.recv(1 << 16) + stream.recv(1 << 16)
        Client(home.data).restart()
        while stream.recv(1 << 16):
            pass  # until it is told all, and closed
    # Nobody accepts now, but the socket listens.
    assert Client(home.data).status().engine.pid == life.pid


def test_a_log_is_followed_across_restarts_to_the_byte(home: Home) -> None:
    count = "i=0; while [ ! -e go-count ]; do i=$((i+1)); echo line $i; sleep 0.01; done; echo last"
    home.write(asked("count", f"sh -c '{count}'"))
    life = up(home)
    start(home, "count")
    words = (*HORAE, "logs", "-f", "count", "--root", str(home.plans), "--data", str(home.data))
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as follower:
        assert follower.stdout is not None
        for _ in range(2):
            assert follower.stdout.readline().startswith("line ")
            restart(home)
        let_go(home, "count")
        rest = follower.stdout.read().splitlines()
        assert follower.wait() == 0
    assert rest.pop() == "last"
    assert rest == [f"line {number}" for number in range(3, len(rest) + 3)]
    assert life.stop() == 0


def test_the_token_of_a_run_is_good_after_a_restart(home: Home) -> None:
    script = home.place / "script"
    words = f"{HORAE[0]} -m {HORAE[2]} status --json"
    script.write_text(f"while [ ! -e go-one ]; do sleep 0.2; done\n{words} > answer\n")
    home.write(asked("one", f"sh {script}", API="read"))
    up(home)
    start(home, "one")
    restart(home)
    let_go(home, "one")
    assert statuses(home) == [("done", "completed")]
    assert json.loads((home.plans / "answer").read_text())["engine"]["running"]


def test_without_an_engine_nothing_is_restarted(home: Home) -> None:
    assert restart(home) == {"restarted": False, "pid": None, "version": None, "seconds": 0.0}
    said = run_command("horae", "restart", "--root", str(home.plans), "--data", str(home.data))
    assert (said.code, said.out) == (0, f"no engine is running in {home.data}\n")


@pytest.mark.parametrize("way", ["retry", "queue"])
def test_what_waits_is_started_by_the_new_image(home: Home, way: str) -> None:
    if way == "retry":
        home.write(entry("Again", home.effect(0, 3), schedule="0 0 1 1 *", retry="1 3s"))
        title, count = "Again", 2
    else:
        home.write(asked("one", LONG.format("one")))
        title, count = "one", 2
    life = up(home)
    Client(home.data).run_now(title)
    if way == "retry":
        life.until(lambda: home.count("attempts = 1 AND status = 'waiting'"))
    else:
        wait_until(lambda: home.count("status = 'running'") == 1)
        Client(home.data).run_now(title)
    restart(home)
    (home.plans / "go-one").touch()
    life.until(
        lambda: home.rows("SELECT count(*) FROM run WHERE ended_at IS NOT NULL") == [(count,)]
    )


MANIFEST = """* tina
:PROPERTIES:
:DEF: tina.org
:INTERVAL: 1000h
:END:
* dora
:PROPERTIES:
:DEF: dora.org
:INTERVAL: 1000h
:END:
"""
MEMBER = """* {0} :agent:
:PROPERTIES:
:ID: {0}
:COMMAND: sh {1} {0}
:END:
** System prompt
Do it.
"""
TASK = "---\nid: 1\ntitle: Notes\nstatus: todo\nassignee: dora\n---\n\nWrite them.\n"


def test_a_tick_and_a_task_of_the_board_end_as_usual_after_a_restart(home: Home) -> None:
    script = home.place / "agent"
    script.write_text(
        f'cat > /dev/null; while [ ! -e {home.plans}/go-"$1" ]; do sleep 0.2; done; echo "$1 did it"'
    )
    (home.plans / "crew.org").write_text(MANIFEST)
    for name in ("tina", "dora"):
        (home.plans / f"{name}.org").write_text(MEMBER.format(name, script))
    (home.plans / "horae.toml").write_text('[crew]\ndef = "crew.org"\nstagger = "1000h"\n')
    task = home.plans / "board/tasks/001-notes.md"
    task.parent.mkdir(parents=True)
    task.write_text(TASK)
    life = up(home)
    wait_until(lambda: home.count("status = 'running'") == 1, said=home.said)  # the task
    call(home, "agent", "tick", "tina")
    wait_until(lambda: home.count("status = 'running'") == 2, said=home.said)
    restart(home)
    assert "2 runs continue" in life.said()
    assert "claimed_by: dora" in task.read_text()
    assert len(Client(home.data).gate().holding) == 2
    let_go(home, "tina", "dora")
    assert statuses(home) == [("done", "completed")] * 2
    reasons = {reason for (reason,) in home.rows("SELECT reason FROM receipt")}
    assert reasons == {"tina did it", "dora did it"}
    wait_until(lambda: "status: done" in task.read_text())
    [(memory,)] = home.rows("SELECT memory FROM entry WHERE title = 'tina'")
    assert memory  # what the tick hands on to the next is recorded
