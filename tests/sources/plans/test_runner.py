"""What a headline calls is run where its plan is, with the facts of its run and little else."""

from __future__ import annotations

import asyncio
import hmac
import json
import threading
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from horae.core.entry import Occasion, Origin, Policy, Work
from horae.core.launch import with_call
from horae.core.ports import Ended, Followed, Job, Run, RunError, Unreleased
from horae.core.receipt import Filed, Receipt, Status
from horae.process.processes import LOG_NAME, Processes
from horae.process.run_settings import RunSettings
from horae.sources.plans.runner import CommandRunner
from reasons import because

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

AT = datetime(2026, 4, 1, 9, tzinfo=UTC)


def job(text: str, *, about: Followed | None = None, policy: Policy | None = None) -> Job:
    receipt = Receipt(
        "cron:2026-04-01T09:00:00Z",
        Status.STARTING,
        because("the scheduled time was reached"),
        AT,
        AT,
    )
    filed = Filed(
        7,
        3,
        receipt,
        AT,
        Origin("plans/garden.org", 4),
        "digest",
        "abc123",
        policy or Policy(),
        source="org",
        title="Water",
        work=Work.COMMAND,
    )
    return with_call(Job(filed, Run(11, 7, 1, AT), text, about))


def headline(**props: str) -> str:
    drawer = "".join(f":{key}: {value}\n" for key, value in props.items())
    return f"* Water\n:PROPERTIES:\n{drawer}:END:\n"


def place_of(tmp_path: Path, **environ: str) -> RunSettings:
    (tmp_path / "plans").mkdir(exist_ok=True)
    (tmp_path / ".horae").mkdir(exist_ok=True)
    known = {"PATH": "/usr/bin:/bin", "HOME": "/tmp", **environ}
    return RunSettings(tmp_path, tmp_path / ".horae", known, timedelta(seconds=20), b"key")


def run(place: RunSettings, what: Job) -> tuple[Ended, str]:
    """Run a job to its end; return how it ended and what it printed."""

    async def running() -> Ended:
        async with Processes(place.data) as processes:
            held = await CommandRunner(processes, place).hold(what)
            held.go()
            return await held.ended()

    ended = asyncio.run(running())
    log = place.directory_of(what.run) / LOG_NAME
    return ended, log.read_text() if log.exists() else ""


def test_it_works_where_its_plan_is_and_reads_nothing(tmp_path: Path) -> None:
    ended, said = run(place_of(tmp_path), job(headline(COMMAND="sh -c 'pwd; cat; echo end'")))
    assert (ended.outcome, ended.exit_code) == (Status.DONE, 0)
    assert said.splitlines() == [str(tmp_path / "plans"), "end"]


def test_it_knows_the_facts_of_its_run_and_only_the_variables_it_may(tmp_path: Path) -> None:
    place = place_of(tmp_path, AWS_PROFILE="garden", DATABASE_URL="postgres://secret")
    _, said = run(place, job(headline(COMMAND="env", ENV="AWS_PROFILE")))
    known = dict(line.split("=", 1) for line in said.splitlines())
    assert {name: value for name, value in known.items() if name.startswith("HORAE_")} == {
        "HORAE_ACTUAL": "2026-04-01T09:00:00Z",
        "HORAE_ATTEMPT": "1",
        "HORAE_COMMIT": "abc123",
        "HORAE_DATA": str(tmp_path / ".horae"),
        "HORAE_DEADLINE": "2026-04-01T09:00:20Z",
        "HORAE_ENTRY": "3",
        "HORAE_KEY": "cron:2026-04-01T09:00:00Z",
        "HORAE_PLANNED": "2026-04-01T09:00:00Z",
        "HORAE_RECEIPT": "7",
        "HORAE_RUN": "11",
        "HORAE_TITLE": "Water",
    }
    assert known["AWS_PROFILE"] == "garden"
    assert "DATABASE_URL" not in known


def test_an_alert_knows_what_it_follows(tmp_path: Path) -> None:
    place, failed = place_of(tmp_path), job(headline(COMMAND="sh -c 'echo dry; echo hose; exit 4'"))
    ended, _ = run(place, failed)
    ran = replace(failed.run, facts=ended.facts)
    events = (Occasion.FAILED, Occasion.STUCK)
    call = headline(COMMAND="sh -c 'env; cat $HORAE_AFTER_LOG'")
    alert = replace(job(call, about=Followed(failed.filed, events, ran)), run=Run(12, 8, 1, AT))
    _, said = run(place, alert)
    assert "HORAE_AFTER_ENTRY=Water" in said
    assert "HORAE_AFTER_STATUS=starting" in said
    assert "HORAE_AFTER_REASON_CODE=other\n" in said
    assert "HORAE_AFTER_FILE=plans/garden.org:4" in said
    assert "HORAE_AFTER_EVENT=failed stuck\n" in said
    assert "HORAE_AFTER_TAIL=dry\nhose\n" in said
    assert said.endswith("dry\nhose\n")


def test_an_alert_about_what_never_ran_knows_that_there_is_no_output(tmp_path: Path) -> None:
    about = Followed(job("").filed, (Occasion.MISSED,))
    _, said = run(place_of(tmp_path), job(headline(COMMAND="env"), about=about))
    known = dict(line.partition("=")[::2] for line in said.splitlines())
    names = ("HORAE_AFTER_EVENT", "HORAE_AFTER_LOG", "HORAE_AFTER_TAIL")
    assert [known[name] for name in names] == ["missed", "", ""]


def test_a_secret_that_it_is_given_is_in_no_reason(tmp_path: Path) -> None:
    place = place_of(tmp_path, DB_PASSWORD="rosebud-1941")
    call = headline(COMMAND="sh -c 'echo no login with $DB_PASSWORD; exit 4'", ENV="DB_PASSWORD")
    ended, said = run(place, job(call))
    assert ended.reason == "exit code 4: no login with [secret]"
    assert "rosebud" not in said
    assert "rosebud" not in str(ended.facts)


def test_its_own_wall_clock_wins_over_the_setting(tmp_path: Path) -> None:
    policy = Policy(timeout=timedelta(milliseconds=300))
    ended, _ = run(place_of(tmp_path), job(headline(COMMAND="sleep 60"), policy=policy))
    assert ended.outcome is Status.KILLED


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("* Water\n", "has neither a :COMMAND: nor a :POST:"),
        ("", "has neither"),
        (headline(COMMAND="say 'hello"), "no closing quotation"),
    ],
)
def test_a_text_that_calls_nothing_cannot_be_run(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(RunError, match=reason):
        run(place_of(tmp_path), job(text))


def test_a_program_that_is_not_there_is_failed_and_names_it(tmp_path: Path) -> None:
    try:
        ended, _ = run(place_of(tmp_path), job(headline(COMMAND="no-such-program --now")))
    except RunError as error:
        reason = error.reason
    else:
        assert ended.outcome is Status.FAILED
        reason = ended.reason
    assert "no-such-program" in reason


def test_what_was_never_let_go_is_known_to_the_next_engine(tmp_path: Path) -> None:
    place, what = place_of(tmp_path), job(headline(COMMAND="touch made"))

    async def dropped() -> Ended | Unreleased | None:
        async with Processes(place.data) as processes:
            await CommandRunner(processes, place).hold(what)
        async with Processes(place.data) as processes:
            return await CommandRunner(processes, place).look_back(what.filed, what.run)

    assert asyncio.run(dropped()) == Unreleased()
    assert not (tmp_path / "plans" / "made").exists()


# Messages


class _Box(BaseHTTPRequestHandler):
    """Takes messages, and answers as its path says."""

    taken: list[tuple[dict[str, str], bytes]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.taken.append((dict(self.headers), body))
        code = int(self.path.strip("/") or 200)
        self.send_response(code)
        if code == 302:
            self.send_header("Location", "/200")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def box() -> Iterator[tuple[str, list[tuple[dict[str, str], bytes]]]]:
    """Give an address that takes messages, and what it took."""
    taken: list[tuple[dict[str, str], bytes]] = []
    server = HTTPServer(("127.0.0.1", 0), type("Box", (_Box,), {"taken": taken}))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", taken
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_message_is_signed_and_says_what_happened(tmp_path: Path) -> None:
    with box() as (address, taken):
        ended, said = run(place_of(tmp_path), job(headline(POST=f"{address}/200")))
    assert (ended.outcome, said) == (Status.DONE, "200 OK\n")
    [(headers, body)] = taken
    assert json.loads(body)["key"] == "cron:2026-04-01T09:00:00Z"
    stamp = headers["X-Horae-Timestamp"]
    assert stamp == str(int(AT.timestamp()))
    expected = hmac.new(b"key", stamp.encode() + b"." + body, sha256).hexdigest()
    assert headers["X-Horae-Signature"] == f"sha256={expected}"


@pytest.mark.parametrize("code", [302, 404, 500])
def test_a_message_that_is_not_taken_fails_and_goes_nowhere_else(tmp_path: Path, code: int) -> None:
    with box() as (address, taken):
        ended, _ = run(place_of(tmp_path), job(headline(POST=f"{address}/{code}")))
    assert ended.outcome is Status.FAILED
    assert str(code) in ended.reason
    assert len(taken) == 1


def test_an_address_that_nobody_answers_fails(tmp_path: Path) -> None:
    with box() as (address, _):
        pass
    ended, _ = run(place_of(tmp_path), job(headline(POST=address)))
    assert ended.outcome is Status.FAILED
    assert "could not be reached" in ended.reason
