"""The log of `horae up`: one line per receipt, each problem once, as text or as JSON."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import signal
import subprocess
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from commands import HORAE, is_healthy, run_command, start_command
from horae.cli.up import (
    EVENTS,
    JsonFormatter,
    PlainFormatter,
    RepeatFilter,
    _log_events,
    logging_to,
)
from horae.core.decide import decide
from horae.core.ports import EntryStep, LedgerBusyError, LedgerError, LedgerWriteError
from horae.core.source import Scan
from horae.org.document import read
from horae.sources.plans.arming import scan_plan
from horae.store.sqlite import SqliteLedger
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PLAN = """* Good
:PROPERTIES:
:ID: good
:SCHEDULE: 0 9 1 1 *
:COMMAND: echo all is well
:END:
* Bad
:PROPERTIES:
:ID: bad
:SCHEDULE: 0 9 1 1 *
:COMMAND: sh -c 'exit 3'
:END:
* Slow
:PROPERTIES:
:ID: slow
:SCHEDULE: 0 9 1 1 *
:COMMAND: sh -c 'until test -e go; do sleep 0.1; done'
:END:
"""
WORKFLOW = """* Flow :workflow:
** Hello :component:
#+begin_src python :out hello
print("hello")
#+end_src
"""
TICK = "* Tick :workflow:\n:PROPERTIES:\n:SCHEDULE: */10 * * * * *\n:END:\n"
LATIN = "* Gr\xfc\xdfe\n".encode("latin-1")
LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC  (\w+) +(\S.*)")
OF_A_LINE = {"at", "level", "logger", "message"}


class Log(NamedTuple):
    """What an engine wrote."""

    out: Path
    err: Path

    def lines(self) -> list[tuple[str, str]]:
        """Return the word and the text of each plain line; each line has both."""
        found = [LINE.fullmatch(line) for path in self for line in path.read_text().splitlines()]
        assert None not in found, [path.read_text() for path in self]
        return [(each[1], each[2]) for each in found if each]

    def records(self) -> list[dict[str, Any]]:
        """Return each line of JSON; each line is one, and has the fields of all."""
        found = [json.loads(line) for path in self for line in path.read_text().splitlines()]
        assert all(each.keys() >= OF_A_LINE for each in found)
        return found


@contextmanager
def kept(root: Path, *args: str) -> Iterator[Log]:
    """Run an engine into files while the block goes on; a file that nobody can read is there."""
    (root / "plan.org").write_text(PLAN)
    (root / "latin.org").write_bytes(LATIN)
    log = Log(root.parent / "out", root.parent / "err")
    environ = {**os.environ, "HORAE_LISTEN": "127.0.0.1:0", "HORAE_ZONE": "UTC"}
    with log.out.open("wb") as out, log.err.open("wb") as err:
        files = (0, out.fileno(), err.fileno())
        engine = start_command(("horae", "up", root, *args), files=files, environ=environ)
    try:
        wait_until(lambda: is_healthy(root / ".horae"))
        yield log
    finally:
        engine.send_signal(signal.SIGTERM)
        assert engine.wait(30) == 0, log.err.read_text()


def run_both(root: Path) -> None:
    """Run both entries, and return when they have ended."""
    for word, code in (("good", 0), ("bad", 1)):
        done = run_command("horae", "run", word, "--wait", "--root", str(root))
        assert (done.code != 0) == bool(code), done.err


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "plans").mkdir()
    return tmp_path / "plans"


def test_at_info_a_receipt_is_one_line_and_a_problem_another(root: Path) -> None:
    with kept(root) as log:
        wait_until(lambda: "save the file as UTF-8" in log.err.read_text())
        run_both(root)
    found = log.lines()
    assert [each for each in found if "plan.org:" in each[1] and each[0] != "warning"] == [
        ("done", "Good  plan.org:1  result: all is well"),
        ("failed", "Bad  plan.org:7  exit code 3"),
    ]
    assert [word for word, text in found if "save the file as UTF-8" in text] == ["warning"]
    texts = [text for word, text in found if word == "info"]
    assert texts[0].startswith(f"running the plans in {root} ")
    assert texts[-1].endswith(": 1 done, 1 failed")
    assert "debug" not in {word for word, _ in found}


def test_the_note_of_a_request_is_in_the_line_of_its_end(root: Path) -> None:
    with kept(root) as log:
        asked = ("run", "good", "--note", "before the upgrade", "--wait", "--root", str(root))
        assert run_command("horae", *asked).code == 0
        wait_until(lambda: "  done  " in log.out.read_text())
    [end] = [text for word, text in log.lines() if word == "done"]
    assert re.fullmatch("Good .*; requested by .*, on the command line: before the upgrade", end)


def test_a_line_about_a_token_begins_with_its_name(root: Path) -> None:
    with kept(root) as log:
        asked = ("token", "add", "ops", "--scope", "read,run", "--root", str(root))
        assert run_command("horae", *asked).code == 0
        wait_until(lambda: "  token added  " in log.out.read_text())
    assert re.search(
        "  token added  ops  scopes: read run, by .*, on the comm", log.out.read_text()
    )


def test_at_debug_it_tells_what_is_scanned_decided_started_and_waited_for(root: Path) -> None:
    with kept(root, "--log", "plain", "--log-level", "debug") as log:
        run_both(root)
    found = log.lines()
    good = [word for word, text in found if text.startswith("Good  plan.org:1")]
    assert good == ["new", "waiting", "starting", "running", "done"]
    said = "\n".join(text for word, text in found if word == "debug")
    assert re.search(r"scanned org: 3 entries read, 1 problems", said)
    assert re.search(r"receipt 1 \(Good\) starts", said)
    assert re.search(r"run 1 of receipt 1 is process \d+", said)
    assert re.search(r"run 1 of receipt 1 ended: done", said)
    assert re.search(r"waiting until \d{4}-", said)


def test_at_debug_it_tells_once_what_a_receipt_waits_for(root: Path) -> None:
    with kept(root, "--log-level", "debug") as log:
        for _ in range(2):
            assert run_command("horae", "run", "slow", "--no-wait", "--root", str(root)).code == 0
        wait_until(lambda: "receipt 2 waits" in log.err.read_text())
        (root / "go").touch()
        wait_until(lambda: log.out.read_text().count("  done  ") == 2)
    found = [text for _, text in log.lines() if text.startswith("receipt 2 waits")]
    assert found == ["receipt 2 waits: the entry is busy with receipt 1"]


def test_at_warning_it_tells_what_needs_attention(root: Path) -> None:
    with kept(root, "--log-level", "warning") as log:
        wait_until(lambda: "save the file as UTF-8" in log.err.read_text())
        run_both(root)
        wait_until(lambda: "failed" in log.out.read_text())
    assert {word for word, _ in log.lines()} == {"failed", "warning"}


def test_at_error_it_is_silent_about_the_faults_of_plans_and_commands(root: Path) -> None:
    with kept(root, "--log-level", "error") as log:
        run_both(root)
    assert log.lines() == []


def test_each_line_of_json_has_level_logger_and_message_and_names_its_receipt(root: Path) -> None:
    with kept(root, "--log", "json") as log:
        wait_until(lambda: "save the file as UTF-8" in log.err.read_text())
        run_both(root)
    found = log.records()
    [good, bad] = [each for each in found if each.get("kind") == "receipt"]
    assert (good["level"], good["status"], good["entry"], good["receipt"]) == ("info", "done", 1, 1)
    assert good["message"] == "Good  plan.org:1  result: all is well"
    assert (bad["level"], bad["status"], bad["reason_code"]) == ("warning", "failed", "exit_code")
    assert {each["logger"] for each in (good, bad)} == {EVENTS}
    [problem] = [each for each in found if "save the file as UTF-8" in each["message"]]
    assert (problem["level"], problem["logger"]) == ("warning", "horae.cli.up")


def test_in_json_a_line_about_a_run_has_its_numbers_as_fields(root: Path) -> None:
    with kept(root, "--log", "json", "--log-level", "debug") as log:
        run_both(root)
    found = log.records()
    runs = [each for each in found if each["logger"] == "horae.core.launch"]
    assert {(each["receipt"], each["run"]) for each in runs if "run" in each} == {(1, 1), (2, 2)}
    [scan] = [each for each in found if each["message"].startswith("scanned org")][:1]
    assert scan["source"] == "org"
    events = [each["status"] for each in found if each.get("receipt") == 1 and "status" in each]
    assert events == ["waiting", "starting", "running", "done"]


# The forms


def record(message: str, *args: object, **fields: object) -> logging.LogRecord:
    made = logging.makeLogRecord({"name": "horae.x", "msg": message, "args": args, **fields})
    made.created = datetime(2026, 6, 5, 7, tzinfo=UTC).timestamp()
    made.levelno, made.levelname = logging.WARNING, "WARNING"
    return made


def test_a_plain_line_has_the_time_of_the_plan_and_the_level() -> None:
    line = PlainFormatter("Europe/Berlin").format(record("receipt %d failed", 7, receipt=7))
    assert line == "2026-06-05 09:00:00 Europe/Berlin  warning      receipt 7 failed"


def test_a_message_of_two_lines_cannot_be_taken_for_two_messages() -> None:
    line = PlainFormatter("UTC").format(record("one\n2026-06-05 07:00:00 UTC  error  forged"))
    assert line.splitlines()[1].startswith("    2026")


def test_json_names_the_fields_that_a_record_carries() -> None:
    assert json.loads(JsonFormatter().format(record("receipt %d failed", 7, receipt=7, run=9))) == {
        "at": "2026-06-05T07:00:00Z",
        "level": "warning",
        "logger": "horae.x",
        "message": "receipt 7 failed",
        "receipt": 7,
        "run": 9,
    }


def test_in_a_cluster_every_line_names_its_node() -> None:
    line = PlainFormatter("UTC", "box1").format(record("receipt %d failed", 7))
    assert line == "2026-06-05 07:00:00 UTC  box1  warning      receipt 7 failed"
    assert json.loads(JsonFormatter("box1").format(record("no")))["node"] == "box1"


def test_the_same_warning_is_written_once_a_minute_with_its_count() -> None:
    repeats = RepeatFilter()
    start = datetime(2026, 6, 5, 7, tzinfo=UTC).timestamp()
    written = []
    for second in range(0, 150, 5):
        for each in (record("the database is %s", "away"), record("receipt %d failed", second)):
            each.created = start + second
            written += [(second, each.getMessage())] if repeats.filter(each) else []
    about = [(at, text) for at, text in written if text.startswith("the database")]
    assert about == [
        (0, "the database is away"),
        (60, "the database is away (repeated 11 times in the last minute)"),
        (120, "the database is away (repeated 11 times in the last minute)"),
    ]
    assert len(written) == 3 + 30  # each other message is another


def test_a_warning_that_quotes_another_error_of_the_same_class_is_the_same() -> None:
    repeats = RepeatFilter()
    found = [record("%s; trying again", OSError(f"attempt {n}")) for n in range(3)]
    found.append(record("%s; trying again", ValueError("attempt 3")))
    assert [repeats.filter(each) for each in found] == [True, False, False, True]


def test_all_that_is_said_of_a_database_that_is_away_is_one_warning() -> None:
    repeats = RepeatFilter()
    errors = (
        LedgerWriteError("db", "the database cannot be reached", remedy="try again"),
        LedgerBusyError("db", "the query timed out", remedy="try again"),
        LedgerError("db", "the database rejects the login", remedy="check it"),
    )
    found = [record("%s; its runs continue", each) for each in errors]
    assert [repeats.filter(each) for each in found] == [True, False, True]


@pytest.mark.parametrize("form", ["plain", "json"])
def test_a_log_shows_control_characters_and_a_traceback(
    form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    log = logging.getLogger("horae.x")
    with logging_to(form, level="info", zone_name="UTC"):
        try:
            raise ValueError("\x1b[2J")  # noqa: TRY301 - what is logged
        except ValueError:
            log.exception("no \x9bway")
    log.warning("this is not written any more")
    said = capsys.readouterr().err
    assert "Traceback" in said
    assert "\x1b" not in said
    assert "\x9b" not in said
    assert "any more" not in said
    assert form == "plain" or json.loads(said)["traceback"].endswith("ValueError: \x1b[2J")


def test_a_reader_that_is_gone_does_not_end_the_engine(root: Path) -> None:
    (root / "plan.org").write_text(PLAN)
    environ = {**os.environ, "HORAE_LISTEN": "127.0.0.1:0"}
    engine = subprocess.Popen(
        [*HORAE, "up", str(root)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environ,
    )
    assert engine.stdout is not None
    assert engine.stderr is not None
    engine.stdout.close()
    engine.stderr.close()
    wait_until(lambda: is_healthy(root / ".horae"))
    run_both(root)
    assert engine.poll() is None
    engine.send_signal(signal.SIGTERM)
    assert engine.wait(30) == 0


@pytest.mark.parametrize("program", ["horae", "wb"])
@pytest.mark.parametrize("form", ["text", "json"])
def test_a_command_without_a_log_says_a_warning_as_its_other_messages(
    tmp_path: Path, program: str, form: str
) -> None:
    (tmp_path / "plan.org").write_text(WORKFLOW)
    (tmp_path / "horae" / "cache").mkdir(parents=True)
    (tmp_path / "horae" / "cache" / "tools").touch()  # should be a directory
    environ = {**os.environ, "XDG_STATE_HOME": str(tmp_path), "HORAE_OUTPUT": form}
    done = run_command(program, "run", "plan.org", at=tmp_path, environ=environ)
    assert done.code == 0
    (line,) = done.err.splitlines()
    if form == "json":
        notice = json.loads(line)["notice"]
        assert (notice["code"], notice["facts"]) == ("warning", {})
        line = f"{program}: {notice['message']}"
    assert line.startswith(f"{program}: cannot write to the build cache: ")


@pytest.mark.parametrize(("each_alone", "lines"), [(False, 1), (True, 9)])
def test_times_that_did_not_run_for_one_reason_are_one_line_but_for_programs(
    caplog: pytest.LogCaptureFixture, *, each_alone: bool, lines: int
) -> None:
    caplog.set_level(logging.INFO, EVENTS)
    begin = datetime.fromisoformat("2026-04-01T08:00:05Z")
    found = scan_plan(read(TICK), file="plan.org", zone_name="UTC")

    async def log() -> None:
        ledger = await SqliteLedger.in_memory()
        await ledger.scan("org", Scan(tuple(found)), now=begin, term=1)
        now = begin + timedelta(seconds=100)
        [due] = await ledger.due(now=now)
        await ledger.decide([EntryStep(due.entry, decide(due.entry, now=now))], now=now, term=1)
        over = asyncio.Event()
        over.set()
        await _log_events(ledger, 0, over, zone_name="Europe/Berlin", each_alone=each_alone)
        await ledger.close()

    asyncio.run(log())
    assert [each.__dict__["word"] for each in caplog.records] == ["coalesced"] * lines
    if not each_alone:
        [said] = caplog.messages
        assert said == (
            "Tick  plan.org:1  2026-04-01 Wed 10:00:10 to 10:01:30 Europe/Berlin, 9 times"
            "  replaced by the run of 2026-04-01 Wed 10:01:40 Europe/Berlin, as catch-up is latest"
        )


@pytest.mark.parametrize(
    ("source", "word"), [("org", "removed"), ("board", "closed or removed")], ids=str
)
def test_a_task_that_is_done_is_not_said_to_be_removed(
    caplog: pytest.LogCaptureFixture, source: str, word: str
) -> None:
    caplog.set_level(logging.INFO, EVENTS)
    now = datetime.fromisoformat("2026-04-01T08:00:05Z")
    found = scan_plan(read(TICK), file="plan.org", zone_name="UTC")

    async def log() -> None:
        ledger = await SqliteLedger.in_memory()
        for items in (tuple(found), ()):
            await ledger.scan(source, Scan(items), now=now, term=1, patience=timedelta(0))
        over = asyncio.Event()
        over.set()
        await _log_events(ledger, 0, over, zone_name="UTC", each_alone=False)
        await ledger.close()

    asyncio.run(log())
    said = [(each.__dict__["word"], each.getMessage()) for each in caplog.records]
    assert (word, "Tick  plan.org:1") in said
