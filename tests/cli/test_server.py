"""`HORAE_SERVER`: commands ask an engine elsewhere, with a token."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import threading
from contextlib import suppress
from queue import Queue
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

import horae
from calling import Call, Ending, call_here
from horae.core.receipt import FINAL
from horae.sources.triggers.agent_cli import agent
from waiting import wait_until
from web.stage import engine_process

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

AGENT = "name: teller\ncommand: [cat]\nenv:\n  TOKEN: ${SET_THERE:-none}\n"
WORKFLOW = "name: tells\nagent: teller\nsource:\n  type: manual\nprompt_template: Go.\n"


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str, Path]]:
    root = tmp_path_factory.mktemp("there")
    with engine_process(root):
        client = horae.connect(root)
        token = client.add_token("ops", scopes="admin").token
        yield f"http://127.0.0.1:{urlsplit(client.calendar().url).port}", token, root


@pytest.fixture
def elsewhere(engine: tuple[str, str, Path], call: Call, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Return a way to call commands in an empty directory, with the engine as their server."""
    monkeypatch.setenv("HORAE_SERVER", engine[0])
    monkeypatch.setenv("HORAE_TOKEN", engine[1])
    return call


def test_the_status_of_an_engine_elsewhere_is_shown(elsewhere: Call, tmp_path: Path) -> None:
    shown = elsewhere("status")
    assert (shown.code, shown.err) == (0, "")
    assert "engine running (process " in shown.out
    assert elsewhere("status", "--json").data["engine"]["running"] is True
    assert {each["title"] for each in elsewhere("list", "--json").data} >= {"Digest", "Long"}
    assert "Soil/water & light" in elsewhere("list").out
    assert [*tmp_path.iterdir()] == [], "nothing is created here"
    assert elsewhere("status", "--at", "2026-01-01").code == 2


def test_an_entry_is_run_there_and_its_output_shown_here(elsewhere: Call) -> None:
    ran = elsewhere("run", "Digest", "--wait", "--note", "from here")
    assert (ran.code, ran.out) == (0, "all the news\n")
    assert elsewhere("run", "Fails", "--wait").code == 1
    assert elsewhere("logs", "Digest").out == "all the news\n"
    [newest] = elsewhere("history", "Digest", "-n", "1", "--json").data
    assert (newest["actor"], newest["note"]) == ("token:ops", "from here")
    again = elsewhere("retry", str(newest["receipt"]), "--wait")
    assert (again.code, again.out) == (0, "all the news\n")
    assert elsewhere("retry", "999999").code == 4
    [newest] = elsewhere("history", "Digest", "-n", "1", "--json").data
    why = elsewhere("why", "Digest")
    assert why.out.startswith("Digest  plan.org:1  entry ")
    assert f"receipt {newest['receipt']} (key " in why.out
    assert elsewhere("why", "Digest", "--json").data["entry"]["title"] == "Digest"
    assert elsewhere("why", "Digest@2026-01-01", "--json").data["from"][:10] == "2026-01-01"
    assert elsewhere("why", "Digets").code == 4


def test_a_run_is_cancelled_there(elsewhere: Call) -> None:
    number = elsewhere("run", "Long", "--no-wait", "--json").data["receipt"]

    def begun() -> bool:
        return elsewhere("logs", "Long").out == "begun\n"

    wait_until(begun)
    assert "is being cancelled" in elsewhere("cancel", "Long").out
    wait_until(lambda: elsewhere("history", "Long", "-n", "1", "--json").data[0]["status"] in FINAL)
    assert elsewhere("history", "Long", "--json").data[0]["receipt"] == number
    ended = elsewhere("cancel", "Long")
    assert (ended.code, "no run is in progress" in ended.err) == (6, True)


def test_an_entry_is_paused_resumed_and_backfilled_there(elsewhere: Call) -> None:
    assert "is paused" in elsewhere("pause", "Digest", "--until", "2h").out
    assert "is resumed" in elsewhere("resume", "Digest").out
    span = ("--from", "2026-01-01", "--to", "2026-01-03", "--dry-run", "--json")
    assert elsewhere("backfill", "Digest", *span).data["count"] == 2
    assert elsewhere("prune", "--dry-run", "--json").data["dry_run"] is True


def test_triggers_are_managed_there(elsewhere: Call, tmp_path: Path) -> None:
    for name, text in (("agents/a.yml", AGENT), ("workflows/w.yml", WORKFLOW)):
        (tmp_path / ".agentd" / name).parent.mkdir(parents=True)
        (tmp_path / ".agentd" / name).write_text(text)
    applied = elsewhere("trigger", "apply", ".agentd", "--json")
    assert [(each["verb"], each["name"]) for each in applied.data] == [
        ("create", "teller"),
        ("create", "tells"),
    ], applied.err
    assert "tells  enabled" in elsewhere("trigger", "list").out
    made = elsewhere("trigger", "add", "after", "--agent", "teller", "--prompt", "x",
                     "--after", "tells")  # fmt: skip
    assert (made.code, made.err) == (0, "")
    assert "waits for the end of tells" in elsewhere("trigger", "show", "after").out
    assert elsewhere("trigger", "run", "tells").out.startswith("tells: receipt ")
    assert elsewhere("trigger", "history", "tells", "--json").data[0]["receipt"]
    assert elsewhere("approval", "list").out == "no runs are waiting for approval\n"
    assert elsewhere("trigger", "remove", "nothing").code == 4
    assert elsewhere("trigger", "remove", "after").code == 0

    def words(*args: str) -> Ending:
        return call_here(agent, "agent", *args)

    assert "Name: teller\n" in words("orchestrator", "list-agents").out
    assert words("orchestrator", "health").out.startswith("Status: ok\n")
    assert words("apply", ".agentd").code == 0
    missing = words("orchestrator", "create-workflow", "--name", "x", "--agent-name", "nobody",
                    "--trigger-type", "manual", "--prompt-template", "y")  # fmt: skip
    assert missing.err.startswith("Error: Agent 'nobody' not found. ")
    assert "Working Dir: .\n" in words("orchestrator", "get-agent", "teller").out, "the root there"
    wait_until(lambda: words("orchestrator", "logs", "--name", "teller").out == "Go.\n")
    assert words("teardown", ".agentd").code == 0


def test_tokens_are_managed_there(elsewhere: Call) -> None:
    assert elsewhere("token", "add", "reads", "--scope", "read").out.startswith("horae_")
    assert "reads" in elsewhere("token", "list").out
    assert elsewhere("token", "sessions").out == "no browser is logged in\n"
    assert elsewhere("token", "revoke", "reads").out == "token reads is revoked\n"


def test_the_token_may_be_in_a_file(
    engine: tuple[str, str, Path], elsewhere: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HORAE_TOKEN", "")
    refused = elsewhere("status")
    assert (refused.code, "token" in refused.err) == (7, True)
    file = tmp_path / "token"
    file.write_text(f"{engine[1]}\n")
    for args in (
        ("--token-file", str(file), "--json", "status"),
        (f"--token-file={file}", "status", "--json"),
        ("--json", "--token-file", str(file), "status"),
    ):
        assert elsewhere(*args).data["engine"]["running"] is True
    assert elsewhere("--token-file", str(tmp_path / "none"), "status").code == 2


def test_a_command_that_works_with_files_says_that_it_is_local(
    elsewhere: Call, tmp_path: Path
) -> None:
    (tmp_path / "plan.org").write_text(
        "* Here\n:PROPERTIES:\n:SCHEDULE: 0 9 * * *\n:COMMAND: true\n:END:\n"
    )
    for name, *args in (("next", "plan.org"), ("check", "plan.org"), ("agent list",)):
        said = elsewhere(*name.split(), *args).err
        note = (
            f"horae: `horae {name}` works with the files of this machine; HORAE_SERVER is not used"
        )
        assert said.startswith(note), said
    assert "Here" in elsewhere("next", "plan.org").out


def test_a_directory_that_is_not_used_is_said_once(elsewhere: Call, tmp_path: Path) -> None:
    note = "horae: HORAE_SERVER names the engine; --root, --data and DIR are not used\n"
    assert elsewhere("list", str(tmp_path)).err == note
    assert elsewhere("history", "--data", str(tmp_path)).err == note


def test_a_server_that_does_not_answer_or_is_none_is_an_error(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HORAE_SERVER", "http://127.0.0.1:1")
    silent = call("status")
    assert (silent.code, "http://127.0.0.1:1: no engine answers" in silent.err) == (3, True)
    health = call_here(agent, "agent", "orchestrator", "health")
    assert (health.code, "no engine answers" in health.err, health.out) == (1, True, "")
    monkeypatch.setenv("HORAE_SERVER", "127.0.0.1:1")
    assert call("status").code == 2


@pytest.fixture
def over_tls(engine: tuple[str, str, Path], tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """Return the address of a proxy that speaks TLS for the engine, and its certificate."""
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
         "-keyout", str(key), "-out", str(certificate)],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    behind = urlsplit(engine[0]).port
    assert behind is not None

    async def passed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        near, far = await asyncio.open_connection("127.0.0.1", behind)
        try:
            await asyncio.gather(_copied(reader, far), _copied(near, writer))
        finally:  # also if the proxy is stopped before both ends have closed
            for each in (far, writer):
                each.close()
                with suppress(OSError, ssl.SSLError):
                    await each.wait_closed()

    async def proxied() -> None:
        server = await asyncio.start_server(passed, "127.0.0.1", 0, ssl=context)
        port.put(server.sockets[0].getsockname()[1])
        await asyncio.to_thread(stop.wait)
        server.close()

    port, stop = Queue[int](), threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(proxied()))
    thread.start()
    yield f"https://localhost:{port.get()}", certificate
    stop.set()
    thread.join()


async def _copied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError, ssl.SSLError):  # a client may end a connection before it is used
        while part := await reader.read(65536):
            writer.write(part)
            await writer.drain()
    writer.close()


def test_an_engine_is_asked_over_tls_if_its_certificate_is_trusted(
    elsewhere: Call, over_tls: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, certificate = over_tls
    monkeypatch.setenv("HORAE_SERVER", url)
    refused = elsewhere("status")
    assert refused.code == 3
    assert "certificate" in refused.err
    assert "SSL_CERT_FILE" in refused.err
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    ran = elsewhere("run", "Digest", "--wait")
    assert (ran.code, ran.out) == (0, "all the news\n")


def test_inside_a_run_its_own_engine_is_asked(
    elsewhere: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HORAE_RUN", "1")
    here = elsewhere("status")
    assert (here.code, "no ledger in " in here.err) == (4, True)
