"""A token counts on every machine, says who asked wherever it is asked, and ends everywhere."""

from __future__ import annotations

import json
import time
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPResponse, IncompleteRead
from typing import TYPE_CHECKING

from cluster.stage import Stage, entry, horae

if TYPE_CHECKING:
    from cluster.stage import Node


def ask(
    node: Node, path: str, token: str, *, method: str = "GET", **headers: str
) -> tuple[int, bytes]:
    """Return what a member answers to somebody with a token."""
    with closing(HTTPConnection("127.0.0.1", node.port, timeout=30)) as wire:
        given = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        body = b"{}" if method == "POST" else None
        wire.request(method, f"/api/v1/{path}", body, {**given, **headers})
        answer = wire.getresponse()
        return answer.status, answer.read()


def see(node: Node, path: str, cookie: str) -> HTTPResponse:
    """Return what a member answers to a browser."""
    host = f"horae-{(node.data / 'host').read_text()[:24]}.localhost"
    wire = HTTPConnection("127.0.0.1", node.port, timeout=30)
    wire.request("GET", path, headers={"Host": host, "Cookie": cookie, "Connection": "close"})
    return wire.getresponse()


def pages(nodes: tuple[Node, ...], cookie: str) -> list[int]:
    """Return with which statuses members answer a browser that asks for the page."""
    found = []
    for node in nodes:
        with closing(see(node, "/", cookie)) as answer:
            found.append(answer.status)
    return found


def test_a_token_counts_on_every_machine_and_ends_on_every_machine(stage: Stage) -> None:
    stage.write({"plan.org": entry("Once", "true", schedule="@yearly")})
    east, box = stage.member("east").joined(), stage.member("box", "cluster worker").joined()
    stage.until(lambda: stage.leader() == "east")
    near = ("--root", str(box.root), "--data", str(box.data))

    def add(name: str, scopes: str, *place: str) -> str:
        """Return a token that is made on a machine, or where no member runs."""
        where = place or ("--root", str(stage.service), "--data", str(stage.place / "person"))
        code, said = horae(stage, "token", "add", name, "--scope", scopes, "--json", *where)
        assert code == 0, said
        return str(json.loads(said)["token"])

    (stage.place / "person").mkdir()
    ops, looks = add("ops", "read,run", *near), add("looks", "read")
    for node in (east, box):
        assert ask(node, "status", looks)[0] == 200
        assert ask(node, "entries/Once/run", looks, method="POST")[0] == 403
        forged = {"Horae-Actor": "cli:root", "Horae-Scopes": "admin"}
        assert ask(node, "entries/Once/run", looks, method="POST", **forged)[0] == 403
        status, said = ask(node, "entries/Once/run", ops, method="POST", **forged)
        assert status == 200, said
        receipt = json.loads(said)["receipt"]
        [[actor]] = stage.do("SELECT actor FROM receipt WHERE number = %s", receipt)
        assert actor == "token:ops"
    actors = stage.do("SELECT actor FROM event WHERE kind = 'token_added' ORDER BY number")
    assert all(actor.startswith("cli:") for (actor,) in actors)

    with closing(HTTPConnection("127.0.0.1", box.port, timeout=30)) as wire:
        headers = {"Authorization": f"Bearer {looks}"}
        wire.request("GET", "/api/v1/events/stream", headers=headers)
        stream = wire.getresponse()
        assert stream.read1(100) == b"retry: 1000\n\n"
        assert east.ask("/api/v1/tokens/looks/revoke", method="POST", body=b"{}")[0] == 200
        began = time.monotonic()
        with suppress(IncompleteRead):
            while stream.read1(1000):
                pass
        assert time.monotonic() - began < 3
    assert [ask(node, "status", looks)[0] for node in (east, box)] == [401, 401]

    # So does a session, which was begun on one of them and is ended on the other.
    link = json.loads(ask(box, "login", ops, method="POST")[1])["url"]
    with closing(see(box, f"/login/{link.rpartition('/')[2]}", "")) as begun:
        cookie = str(begun.getheader("Set-Cookie")).partition(";")[0]
    assert pages((east, box), cookie) == [200, 200]
    with closing(see(box, "/api/v1/events/stream", cookie)) as stream:
        assert stream.read1(100) == b"retry: 1000\n\n"
        [found] = json.loads(east.ask("/api/v1/sessions")[1])["sessions"]
        assert (found["token"], found["scopes"]) == ("ops", ["read", "run"])
        ending = f"/api/v1/sessions/{found['id']}/end"
        assert east.ask(ending, method="POST", body=b"{}")[0] == 200
        began = time.monotonic()
        with suppress(IncompleteRead):
            while stream.read1(1000):
                pass
        assert time.monotonic() - began < 3
    assert pages((east, box), cookie) == [401, 401]

    # The operator's token is replaced on all of them, too.
    old = (east.data / "token").read_text().strip()
    status, said = box.ask("/api/v1/token", method="POST", body=b"{}")
    assert status == 200, (said, east.said()[-3000:])
    stage.until(lambda: ask(box, "status", old)[0] == ask(east, "status", old)[0] == 401)
    assert east.ask("/api/v1/status")[0] == box.ask("/api/v1/status")[0] == 200
    assert (east.data / "token").read_text() == (box.data / "token").read_text()
    assert ask(box, "status", ops)[0] == 200, "those that have a name stay"


def test_a_run_asks_its_own_machine_and_no_commit_sets_what_that_machine_starts(
    stage: Stage,
) -> None:
    told, over = stage.place / "told", stage.place / "over"
    script = f"sh -c 'env > {told}; until test -e {over}; do sleep 0.2; done'"
    once = entry("Once", "true", schedule="@yearly")
    ask_it = entry("Ask", script, schedule="@yearly", host="box", api="read run")
    stage.write({"plan.org": once + ask_it})
    east, box = stage.member("east").joined(), stage.member("box", "cluster worker").joined()
    stage.until(lambda: stage.leader() == "east")
    assert east.ask("/api/v1/entries/Ask/run", method="POST", body=b"{}")[0] == 200
    stage.until(lambda: told.exists() and "HORAE_URL" in told.read_text())
    known = dict(line.split("=", 1) for line in told.read_text().splitlines() if "=" in line)
    token = known["HORAE_TOKEN"]
    assert known["HORAE_URL"] == f"http://127.0.0.1:{box.port}"
    assert ask(box, "status", token)[0] == 200  # which the leader answers
    assert ask(east, "status", token)[0] == 401  # it is no run of that machine
    status, said = ask(box, "entries/Once/run", token, method="POST")
    assert status == 200, said
    [[actor]] = stage.do("SELECT actor FROM receipt WHERE number = %s", json.loads(said)["receipt"])
    assert actor == "agent:Ask"
    over.touch()
    stage.until(lambda: ask(box, "status", token)[0] == 401)

    stage.write({}, more='\n[agent]\ncommand = ["theirs"]\n')
    waits = "changes agent.command in horae.toml; it takes effect after `horae config trust`"
    for node in (east, box):
        stage.until(lambda node=node: waits in node.said())  # type: ignore[misc]
        found = json.loads(node.ask("/api/v1/settings/waiting")[1])
        assert [each["written"] for each in found["waiting"]] == [["theirs"]]
    assert any(waits in each for each in json.loads(box.ask("/api/v1/status")[1])["problems"])
    code, said_now = horae(
        stage, "config", "trust", "--yes", "--root", str(box.root), "--data", str(box.data)
    )
    assert (code, "update it with git pull" in said_now) == (0, True)
    assert json.loads(box.ask("/api/v1/settings/waiting")[1])["waiting"] == []
    assert len(json.loads(east.ask("/api/v1/settings/waiting")[1])["waiting"]) == 1
