"""Everything that may be asked of a running engine is asked for over its socket."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import httpx

from core.world import story
from horae.core.actor import user_name
from horae.core.clock import SystemClock
from horae.core.ports import LedgerWriteError
from horae.process import output
from horae.web.api import asgi_app, operations
from horae.web.front import Front
from horae.web.router import BODY
from horae.web.serve import listen_tcp, serve_tcp
from horae.web.stream import log_parts
from scale import scaled
from waiting import until
from web.stage import JSON, PLAN, engine, shell

if TYPE_CHECKING:
    import pytest

    from horae.files.git.repository import Logged

USER = user_name(os.getuid())


POSTS = (
    "entries/Digest/run",
    "entries/Digest/pause",
    "entries/Digest/resume",
    "entries/Digest/backfill",
    "runs/1/cancel",
    "prune",
    "rescan",
)


def problem(answer: httpx.Response) -> dict[str, Any]:
    """Return an error after a look at its shape."""
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    said: dict[str, Any] = answer.json()
    assert said["status"] == answer.status_code
    assert said["type"] == f"urn:horae:error:{said['code']}"
    assert {"title", "detail", "facts", "exit_code"} <= said.keys()
    assert "Traceback" not in answer.text
    return said


@story
async def test_a_run_that_is_asked_for_is_run_and_its_log_is_there(tmp_path: Path) -> None:
    async with engine(tmp_path) as here:
        asked = await here.post("entries/Digest/run", {"note": "for the visit"})
        assert (asked["title"], asked["actor"]) == ("Digest", f"cli:{USER}")
        assert asked["reason"] == f"requested by {USER}, on the command line: for the visit"
        told = await here.ended(asked["receipt"])
        assert (told["status"], told["reason"]) == ("done", "all the news")
        assert told["note"] == "for the visit"
        [run] = told["runs"]
        assert await here.log(run["run"]) == b"all the news\n"
        assert await here.log(run["run"], from_=4) == b"the news\n"
        assert await here.log(run["run"], from_=10**9) == b""
        about = await here.get(f"runs/{run['run']}")
        assert (about["title"], about["outcome"], about["exit_code"]) == ("Digest", "done", 0)
        assert about["receipt"] == asked["receipt"]


@story
async def test_lines_of_a_log_are_found_by_number_and_by_text(tmp_path: Path) -> None:
    async with engine(tmp_path) as here:
        asked = await here.post("entries/Digest/run", {})
        [run] = (await here.ended(asked["receipt"]))["runs"]
        found = await here.front.service.run_of(run["run"])
        directory = here.front.log_of(found).parent
        log = output.Log(bytes(directory), head=1 << 16, tail=1 << 19)
        for number in range(1, 100_001):
            log.write(b"line %06d\r\n" % number)
        log.close()
        lines = f"runs/{run['run']}/lines"
        told = await here.get(lines, line=99_999, limit=1)
        [row] = told["lines"]
        assert (row["line"], row["text"], row["from"]) == (99_999, "line 099999", 99_998 * 13)
        assert await here.log(run["run"], from_=row["from"], to=row["to"]) == b"line 099999\r"
        assert (told["count"], told["size"], told["next"]) == (100_000, 1_300_000, 100_000)
        [(first, head), (tail, last)] = told["kept"]
        assert (first, head, last) == (1, (1 << 16) // 13 + 1, 100_000)
        beyond = (await here.get(lines, line=head + 1, limit=1))["lines"]
        assert [each["line"] for each in beyond] == [tail], "the lines in between are gone"
        hits = await here.get(lines, search="LINE 09999")
        assert [each["line"] for each in hits["lines"]] == [*range(99_990, 100_000)]
        part = {"line": 100_000, "tail": 5}
        assert await here.log(run["run"], **part) == b"line 100000\r\n"
        answer = await here.client.get(
            f"/api/v1/runs/{run['run']}/log?from=70000&exact=1&download=1"
        )
        start = int(answer.headers["Log-From"])
        assert start > 70_000, "the next byte that is kept"
        assert len(answer.content) == 1_300_000 - start
        assert (
            answer.headers["Content-Disposition"] == f'attachment; filename="run-{run["run"]}.log"'
        )


@story
async def test_a_log_is_followed_until_its_run_ends(tmp_path: Path) -> None:
    async with engine(tmp_path) as here:
        number = await here.running("Long")
        follow = f"/api/v1/runs/{number}/log?follow=1"
        async with here.client.stream("GET", follow) as answer:
            parts = answer.aiter_bytes()
            assert await anext(parts) == b"begun\n"
            await here.post(f"runs/{number}/cancel", {"reason": "enough"})
            assert [part async for part in parts] == []
        about = await here.get(f"runs/{number}")
        who = f"{USER}, on the command line"
        assert (about["outcome"], about["reason"]) == ("killed", f"cancelled by {who}: enough")


@story
async def test_a_follower_hears_all_that_a_run_puts_out_last(tmp_path: Path) -> None:
    plan = shell("Tells", "for i in 1 2 3 4 5; do echo $i; sleep 0.05; done; echo last")
    async with engine(tmp_path, plan) as here:
        number = await here.running("Tells")
        assert await here.log(number, follow=1) == b"1\n2\n3\n4\n5\nlast\n"


@story
async def test_what_is_put_out_while_the_end_is_looked_for_is_heard_too(tmp_path: Path) -> None:
    path = tmp_path / "output.log"
    path.write_bytes(b"first\n")

    def ends_now() -> bool:
        with path.open("ab") as file:
            file.write(b"last\n")
        return False

    parts = log_parts(path, 0, goes_on=ends_now, clock=SystemClock())
    assert b"".join([part async for part in parts]) == b"first\nlast\n"


@story
async def test_whoever_follows_a_long_log_gets_the_newest_and_hears_what_was_left_out(
    tmp_path: Path,
) -> None:
    head, tail = 1 << 20, 1 << 20
    log = output.Log(bytes(tmp_path), head=head, tail=tail)
    lines = [b"%07d\n" % n for n in range(6 * head // 8 + 100)]  # six MiB and a bit
    turn = iter([lines[: head // 4], lines[head // 4 : -50], lines[-50:]])

    def goes_on() -> bool:
        more = next(turn, None)
        if more is None:
            return False
        log.write(b"".join(more))
        return True

    path = tmp_path / "output.log"
    parts = log_parts(path, 0, goes_on=goes_on, clock=SystemClock())
    heard = b"".join([part async for part in parts])
    begin, left_out, end = re.split(rb"\n\[(\d+) bytes of output left out\]\n", heard)
    whole = b"".join(lines)
    assert begin == whole[: 2 * head]
    assert len(begin) + int(left_out) + len(end) == len(whole)
    assert whole.endswith(end)
    assert tail <= len(end) <= tail + tail // output.PARTS
    again = log_parts(path, 0, goes_on=lambda: False, clock=SystemClock())
    gone = len(whole) - head - len(end)
    left_out_line = b"\n[%d bytes of output left out]\n" % gone
    assert b"".join([part async for part in again]) == whole[:head] + left_out_line + end


@story
async def test_only_a_run_that_goes_on_is_cancelled(tmp_path: Path) -> None:
    async with engine(tmp_path) as here:
        number = await here.running("Long")
        first, second = await asyncio.gather(
            here.post(f"runs/{number}/cancel"), here.ask(f"runs/{number}/cancel")
        )
        assert first["changed"] is True
        if second.status_code == 200:
            assert second.json()["changed"] is False
        told = await here.ended(first["receipt"])
        assert told["reason"] == f"cancelled by {USER}, on the command line"
        over = problem(await here.ask(f"runs/{number}/cancel"))
        assert (over["status"], over["code"]) == (409, "run_state")
        assert f"run {number} already ended at" in over["detail"]
        assert problem(await here.ask("runs/99/cancel"))["code"] == "run_not_found"


@story
async def test_an_edit_is_recorded_only_with_its_file_and_what_was_done(tmp_path: Path) -> None:
    async with engine(tmp_path) as here:
        answer = await here.client.post("/api/v1/edits", json={"file": "plan.org"})
        assert (answer.status_code, problem(answer)["detail"]) == (400, "what is missing")


@story
async def test_a_note_is_one_line_and_cannot_pass_for_another(tmp_path: Path) -> None:
    async with engine(tmp_path) as here:
        note = {"note": "away\n2026-06-05 done: by nobody\r\n"}
        asked = await here.post("entries/Digest/run", note)
        assert asked["reason"].endswith(": away 2026-06-05 done: by nobody")
        paused = await here.post("entries/Digest/pause", note)
        assert paused["pause"]["note"] == "away 2026-06-05 done: by nobody"


@story
async def test_an_entry_rests_and_goes_on(tmp_path: Path) -> None:
    async with engine(tmp_path) as here:
        rest = await here.post("entries/Digest/pause", {"note": "away", "until": "2h"})
        assert (rest["changed"], rest["pause"]["note"]) == (True, "away")
        left = datetime.fromisoformat(rest["pause"]["until"]) - datetime.now(UTC)
        assert timedelta(minutes=119) < left <= timedelta(hours=2)
        conflict = problem(await here.ask("entries/Digest/run"))
        assert (conflict["status"], conflict["code"]) == (409, "entry_state")
        assert (await here.post("entries/Digest/pause"))["changed"] is False
        assert (await here.post("entries/Digest/resume"))["changed"] is True
        until = (datetime.now(UTC) + timedelta(days=1)).isoformat()
        assert (await here.post("entries/Digest/pause", {"until": until}))["changed"] is True
        past = problem(await here.ask("entries/Digest/pause", {"until": "2020-01-01T00:00:00Z"}))
        assert (past["status"], past["exit_code"]) == (400, 2)


@story
async def test_a_backfill_runs_what_is_past_and_the_same_name_files_nothing_twice(
    tmp_path: Path,
) -> None:
    async with engine(tmp_path) as here:
        body = {"from": "2026-03-01T00:00:00Z", "to": "2026-03-04T00:00:00Z", "id": "march"}
        plan = await here.post("entries/digest-1/backfill", {**body, "dry_run": True})
        assert (plan["count"], plan["receipts"]) == (3, [])
        filed = await here.post("entries/digest-1/backfill", body)
        assert (filed["moments"], len(filed["receipts"])) == (plan["moments"], 3)
        assert (await here.post("entries/digest-1/backfill", body))["receipts"] == filed["receipts"]
        ends = [(await here.ended(each))["status"] for each in filed["receipts"]]
        assert ends == ["done", "done", "done"]


@story
async def test_many_requests_with_one_key_are_one_receipt(tmp_path: Path) -> None:
    async with engine(tmp_path) as here:
        answers = await asyncio.gather(
            *(here.post("entries/Digest/run", key="für einmal") for _ in range(100))
        )
        assert len({each["receipt"] for each in answers}) == 1
        told = await here.ended(answers[0]["receipt"])
        assert (told["key"], len(told["runs"])) == ("idem:für einmal", 1)
        assert (await here.get("receipts"))["cursor"] is None
        assert len((await here.get("receipts"))["receipts"]) == 1


@story
async def test_an_entry_goes_by_every_name_that_can_be_quoted(tmp_path: Path) -> None:
    async with engine(tmp_path) as here:
        for word in ("Soil/water & light", "soil/WATER & light", "4", "plan.org:15"):
            entry = await here.get(f"entries/{quote(word, safe='')}")
            assert entry["title"] == "Soil/water & light"
        asked = await here.post(f"entries/{quote('Soil/water & light', safe='')}/run")
        assert (await here.ended(asked["receipt"]))["status"] == "done"
        unknown = await here.client.get("/api/v1/entries/Digets")
        assert problem(unknown)["facts"]["near"] == ["Digest"]
        for word in ("%00", "%FF%FE", "9" * 5000, "x" * 10_000, "..%2F..", "run"):
            assert problem(await here.client.get(f"/api/v1/entries/{word}"))["status"] == 404


@story
async def test_entries_come_in_pages(tmp_path: Path) -> None:
    async with engine(tmp_path) as here:
        titles: list[list[str]] = []
        cursor: int | None = 0
        while cursor is not None:
            page = await here.get("entries", limit=3, cursor=cursor)
            titles.append([each["title"] for each in page["entries"]])
            cursor = page["cursor"]
        assert titles == [["Digest", "Fails", "Long"], ["Soil/water & light"]]


@story
async def test_receipts_are_chosen_as_a_history_is(tmp_path: Path) -> None:
    async with engine(tmp_path) as here:
        good = (await here.post("entries/Digest/run"))["receipt"]
        bad = (await here.post("entries/Fails/run"))["receipt"]
        assert (await here.ended(bad))["runs"][0]["exit_code"] == 3
        await here.ended(good)

        async def numbers(query: str) -> list[int]:
            answer = await here.client.get(f"/api/v1/receipts?{query}")
            return [each["receipt"] for each in answer.json()["receipts"]]

        assert await numbers("") == [bad, good]
        assert await numbers("entry=Digest") == [good]
        assert await numbers("status=failed&status=killed") == [bad]
        assert await numbers(f"cursor={bad}") == [good]
        assert await numbers("limit=1") == [bad]
        assert await numbers("since=2999-01-01T00:00:00Z") == []
        wrong = problem(await here.client.get("/api/v1/receipts?status=lost"))
        assert "status must be one of waiting, held" in wrong["detail"]


@story
async def test_how_things_stand_says_what_the_service_says(tmp_path: Path) -> None:
    async with engine(tmp_path) as here:
        stands = await here.get("status")
        assert stands["engine"]["running"] is True
        assert [each["title"] for each in stands["next"]] == ["Digest"]
        assert stands["entries"] == 4
        why = await here.get("why", entry="Digest")
        assert "scheduled in" in why["answers"][0]["said"]
        asked = await here.get("why", entry="Digest", at="2026-01-01T09:00")
        assert "the entry was first seen later" in asked["answers"][0]["said"]
        answer = await here.client.get("/api/v1/why?entry=Digest&at=tomorrow")
        assert problem(answer)["code"] == "asked_moment"


@story
async def test_how_things_stand_is_never_older_than_the_question(tmp_path: Path) -> None:
    async with engine(tmp_path) as here:

        async def ask_on() -> None:
            while True:
                await here.get("status")

        others = [asyncio.create_task(ask_on()) for _ in range(4)]
        for verb, count in [("pause", 1), ("resume", 0)] * 5:
            await here.post(f"entries/Digest/{verb}")
            assert len((await here.get("status"))["paused"]) == count
        for other in others:
            other.cancel()
        await asyncio.gather(*others, return_exceptions=True)


@story
async def test_events_are_told_in_order_from_a_number_on(tmp_path: Path) -> None:
    async with engine(tmp_path) as here:
        await here.ended((await here.post("entries/Digest/run"))["receipt"])
        whole = await here.get("events")
        first = await here.get("events", limit=2)
        rest = await here.get("events", after=first["after"])
        numbers = [each["event"] for each in whole["events"]]
        assert numbers == sorted(numbers)
        assert first["events"] + rest["events"] == whole["events"]
        assert (await here.get("events", after=rest["after"]))["events"] == []


@story
async def test_the_gate_says_who_holds_and_who_waits_for_what(tmp_path: Path) -> None:
    async with engine(tmp_path, slots=1) as here:
        number = await here.running("Long")
        waiting = await here.post("entries/Digest/run", {"note": "for the visit"})

        async def full() -> Any:
            found = await here.get("gate")
            return found if found["waiting"] else None

        gate = await until(full)
        assert [each["title"] for each in gate["holding"]] == ["Long"]
        assert (gate["slots"], gate["in_line"]) == (1, 1)
        [line] = gate["waiting"]
        assert (line["receipt"], line["title"]) == (waiting["receipt"], "Digest")
        assert line["reason"] == "no slot is free; gate.slots is 1"
        why = await here.get("why", entry=line["title"])
        said = [each["said"] for each in why["answers"]]
        requested = f"requested by {USER}, on the command line: for the visit"
        assert f"waiting: no slot is free; gate.slots is 1; {requested}" in said
        await here.post(f"runs/{number}/cancel")
        assert (await here.ended(waiting["receipt"]))["status"] == "done"


@story
async def test_what_is_asked_for_inside_a_run_rides_in_its_slot(tmp_path: Path) -> None:
    async with engine(tmp_path, slots=1) as here:
        number = await here.running("Long")
        asked = await here.post("entries/Digest/run", {"parent_run": number})
        told = await here.ended(asked["receipt"])
        assert (told["status"], told["parent"]) == ("done", told["receipt"] - 1)
        await here.post(f"runs/{number}/cancel")
        await here.ended(told["parent"])
        later = await here.post("entries/Digest/run", {"parent_run": number})
        assert later["parent"] is None, "a run that is over has no slot to ride in"
        unknown = await here.ask("entries/Digest/run", {"parent_run": 99})
        assert problem(unknown)["code"] == "run_not_found"


@story
async def test_plans_are_read_again_when_that_is_asked_for(tmp_path: Path) -> None:
    async with engine(tmp_path) as here:
        (tmp_path / "more.org").write_text(shell("New", "echo new"))
        sources = (await here.post("rescan"))["sources"]
        assert sources[0] == {"source": "org", "problems": []}
        assert (await here.get("entries/New"))["armed"] is True
        (tmp_path / "more.org").write_bytes(b"* Broken \xff\n")
        [source] = (await here.post("rescan", {"source": "org"}))["sources"]
        assert "more.org" in source["problems"][0]
        assert problem(await here.ask("rescan", {"source": "moon"}))["status"] == 400


@story
async def test_old_receipts_are_folded_when_that_is_asked_for(tmp_path: Path) -> None:
    async with engine(tmp_path) as here:
        await here.ended((await here.post("entries/Digest/run"))["receipt"])
        before = {"before": "2020-01-01T00:00:00Z", "dry_run": True}
        assert (await here.post("prune", before))["receipts"] == 0
        later = problem(await here.ask("prune", {"before": "2999-01-01T00:00:00Z"}))
        assert "prune needs a past time" in later["detail"]


@story
async def test_health_tells_whether_the_loop_turns_and_can_write(tmp_path: Path) -> None:
    async with engine(tmp_path) as here:

        async def health() -> tuple[int, Any]:
            answer = await here.client.get("/healthz")
            return answer.status_code, answer.json()

        async def healthy() -> Any:
            code, found = await health()
            return found if code == 200 else None

        found = await until(healthy)
        assert (found["ok"], found["problems"]) == (True, [])
        loop, now = here.front.engine, here.front.clock.now()
        loop.turned_at = now - timedelta(seconds=90)
        assert (await health())[1]["problems"] == ["the scheduling loop has not run for 90 s"]
        loop.turned_at = now + timedelta(hours=1)
        assert "the clock was set back" in (await health())[1]["problems"][0]
        loop.turned_at = now
        loop.trouble = LedgerWriteError("/somewhere", "the disk is full", remedy="make room")
        status, said = await health()
        assert (status, said["ledger_writable"]) == (503, False)
        assert said["problems"] == ["the ledger cannot be written: the disk is full"]


BODIES = [
    (b"", 200),
    (b"{}", 200),
    (b'{"note": null}', 200),
    (b"[]", 400),
    (b"null", 400),
    (b'"note"', 400),
    (b"{", 400),
    (b"\xff\xfe", 400),
    (b'{"note": "\\ud800"}', 400),
    (b'{"note": 7}', 400),
    (b'{"note": ["x"]}', 400),
    (b'{"nose": "x"}', 400),
    (b'{"parent_run": "x"}', 400),
    (b'{"parent_run": true}', 400),
    (b'{"parent_run": 1.5}', 400),
    (b'{"parent_run": -1}', 400),
    (b'{"parent_run": 1e400}', 400),
    (b'{"parent_run": ' + b"9" * 5000 + b"}", 400),
    (b'{"parent_run": 99999999999999999999}', 400),
    (b'{"note": "' + b"x" * 10_001 + b'"}', 400),
    (b"[" * 200_000, 400),
    (b'{"a":' * 100_000, 400),
    (b" " * (BODY + 1), 413),
]


@story
async def test_a_body_is_a_small_json_object_with_known_fields(tmp_path: Path) -> None:
    async with engine(tmp_path) as here:
        for body, status in BODIES:
            answer = await here.client.post(
                "/api/v1/entries/Digest/run", content=body, headers=JSON
            )
            assert answer.status_code == status, (body[:40], answer.text)
            if status != 200:
                problem(answer)

        async def endless() -> Any:
            for _ in range(40):
                yield b" " * (BODY // 20)

        sent = await here.client.post("/api/v1/entries/Digest/run", content=endless(), headers=JSON)
        assert problem(sent)["status"] == 413
        said = problem(await here.ask("entries/Digest/pause", {"not": "x"}))
        assert said["detail"] == "unknown field 'not'; the fields are note, until"


@story
async def test_what_is_no_json_is_refused_whatever_it_says(tmp_path: Path) -> None:
    async with engine(tmp_path) as here:
        for kind in ("text/plain", "application/x-www-form-urlencoded", "application/jsonp", ""):
            headers = {"Content-Type": kind}
            for path in POSTS:
                answer = await here.client.post(f"/api/v1/{path}", content=b"{}", headers=headers)
                assert problem(answer)["status"] == 415
        charset = {"Content-Type": "Application/JSON; charset=utf-8"}
        answer = await here.client.post("/api/v1/rescan", content=b"{}", headers=charset)
        assert answer.status_code == 200


QUESTIONS = [
    ("receipts?limit=0", 400),
    ("receipts?limit=1001", 400),
    ("receipts?limit=x", 400),
    ("receipts?limit=1&limit=2", 400),
    ("receipts?nose=1", 400),
    ("receipts?since=yesterday", 400),
    ("receipts?since=0001-01-01T00:00:00%2B10:00", 400),
    ("receipts?since=9999-12-31T23:59:59-10:00", 400),
    ("receipts?since=2026-02-01T00:00:00Z&until=2026-01-01T00:00:00Z", 400),
    ("receipts?cursor=-1", 400),
    ("receipts?entry=Digets", 404),
    ("receipts/x", 400),
    ("receipts/99", 404),
    ("receipts/" + "9" * 5000, 400),
    ("runs/99", 404),
    ("runs/99/log", 404),
    ("runs/1/log?from=x", 400),
    ("why", 400),
    ("why?entry=Digest&at=0001-01-01", 400),
    ("why?entry=Digest&at=9999-12-31T23:59", 400),
    ("why?entry=Digest&at=0002-01-01", 200),
    ("why?entry=Digest&at=9998-12-30T23:59", 200),
    ("events?after=9999999999999999999", 400),
    ("events?after=999999999999999999", 200),
    ("entries?cursor=999999999999999999", 200),
    ("status?limit=1000", 200),
    ("status/", 404),
    ("nowhere", 404),
    ("", 404),
]


@story
async def test_a_question_that_cannot_be_answered_says_what_is_wrong(tmp_path: Path) -> None:
    async with engine(tmp_path) as here:
        for path, status in QUESTIONS:
            answer = await here.client.get(f"/api/v1/{path}")
            assert answer.status_code == status, (path[:60], answer.text)
            if status != 200:
                problem(answer)


@story
async def test_a_route_takes_only_its_own_method(tmp_path: Path) -> None:
    async with engine(tmp_path) as here:
        for path in ("prune", "rescan", "runs/1/cancel"):
            answer = await here.client.get(f"/api/v1/{path}")
            assert problem(answer)["status"] == 405
            assert answer.headers["allow"] == "POST"
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"):
            answer = await here.client.request(method, "/api/v1/status")
            assert problem(answer)["status"] == 405
            assert answer.headers["allow"] == "GET, HEAD"
        # What is asked for in a wrong way is said before what is wrong with its body.
        answer = await here.client.put("/api/v1/prune", content=b" " * (BODY + 1))
        assert problem(answer)["status"] == 405
        assert (await here.client.head("/api/v1/status")).status_code == 200


@story
async def test_a_405_names_every_method_that_the_path_has(tmp_path: Path) -> None:
    async with engine(tmp_path) as here:
        for path, methods in {
            "/workflows": "GET, HEAD, POST",
            "/workflows/report": "DELETE, GET, HEAD, PUT",
            "/api/v1/tokens": "GET, HEAD, POST",
            "/api/v1/runs/1/log": "GET",
            "/login/code": "GET",
        }.items():
            answer = await here.client.request("BREW", path)
            assert (answer.status_code, answer.headers["allow"]) == (405, methods), path


@story
async def test_a_long_answer_is_compressed_for_those_who_take_it_so(tmp_path: Path) -> None:
    async with engine(tmp_path) as here:

        async def encoding(path: str, accepted: str) -> str | None:
            answer = await here.client.get(path, headers={"Accept-Encoding": accepted})
            assert answer.status_code == 200
            found: str | None = answer.headers.get("content-encoding")
            return found

        whole = (await here.client.get("/openapi.json", headers={"Accept-Encoding": ""})).content
        sent = await here.client.get("/openapi.json", headers={"Accept-Encoding": "br, gzip"})
        assert sent.headers["content-encoding"] == "gzip"
        assert sent.content == whole
        assert int(sent.headers["content-length"]) < len(whole) / 5
        assert sent.headers["vary"] == "accept-encoding"
        assert sent.headers["x-content-type-options"] == "nosniff"
        assert await encoding("/docs", "gzip") == "gzip"
        assert await encoding("/docs", "gzip;q=0, br") is None
        assert await encoding("/healthz", "gzip") is None, "it is small"
        number = await here.running("Digest")
        assert await encoding(f"/api/v1/runs/{number}/log", "gzip") is None, "it may be followed"


@story
async def test_what_is_asked_for_ends_when_its_client_leaves(tmp_path: Path) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def slow(_: int) -> list[Logged]:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return []

    async with engine(tmp_path) as here:
        listener, stop = listen_tcp("127.0.0.1", 0), asyncio.Event()
        front = replace(here.front, is_public=True, changes=slow)
        serving = asyncio.create_task(serve_tcp(asgi_app(front), listener, stop=stop))
        _, writer = await asyncio.open_connection(*listener.getsockname())
        writer.write(b"GET /_changes HTTP/1.1\r\nHost: localhost\r\n\r\n")
        async with asyncio.timeout(20):
            await begun.wait()
            writer.close()
            assert await ended.wait()
            stop.set()
            await serving


@story
async def test_no_answer_may_be_kept_guessed_or_run_and_none_names_the_server(
    tmp_path: Path,
) -> None:
    async with engine(tmp_path) as here:
        for path in ("/healthz", "/api/v1/status", "/api/v1/nowhere", "/api/v1/runs/1/log"):
            headers = (await here.client.get(path)).headers
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["cache-control"] == "no-store"
            assert headers["content-security-policy"].startswith("default-src 'none'")
            assert not {"server", "access-control-allow-origin"} & headers.keys()


@story
async def test_a_bug_is_told_without_its_insides(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with engine(tmp_path) as here:
        front = here.front
        broken = Front(
            service=front.engine,  # type: ignore[arg-type]
            engine=front.engine,
            facts=front.facts,
            log_of=front.log_of,
            clock=front.clock,
        )
        wire = httpx.ASGITransport(asgi_app(broken), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=wire, base_url="http://localhost") as client:
            said = problem(await client.get("/api/v1/status"))
        assert (said["status"], said["code"]) == (500, "error")
        assert "Engine" not in json.dumps(said)
        assert "AttributeError" in caplog.text, "whoever keeps the engine sees where"


def anything(chance: random.Random, depth: int = 0) -> object:
    """Return some JSON."""
    words = [
        "",
        "x",
        "2h",
        "2020-01-01T00:00:00Z",
        "9999-12-31T23:59:59Z",
        "\0",
        "\u202e",
        "🌱" * 9,
    ]
    plain = [None, True, 0, -1, 1, 2**63, 1.5, 1e308, *words]
    if depth > 2 or chance.random() < 0.7:
        return chance.choice(plain)
    if chance.random() < 0.5:
        return [anything(chance, depth + 1) for _ in range(chance.randrange(3))]
    return {str(anything(chance, 3)): anything(chance, depth + 1) for _ in range(3)}


@story
async def test_whatever_is_asked_for_is_answered_and_never_breaks_the_engine(
    tmp_path: Path,
) -> None:
    chance = random.Random(7)
    names = ["note", "until", "parent_run", "from", "to", "id", "dry_run", "reason", "before"]
    async with engine(tmp_path, PLAN, slots=1) as here:
        for _ in range(scaled(4000)):
            body = {chance.choice(names): anything(chance) for _ in range(chance.randrange(4))}
            whole = body if chance.random() < 0.9 else anything(chance)
            path = chance.choice(POSTS)
            answer = await here.client.post(f"/api/v1/{path}", json=whole)
            assert answer.status_code < 500, (path, whole, answer.text)
            if answer.status_code != 200:
                problem(answer)
        assert (await here.get("status"))["engine"]["running"] is True


def test_every_route_and_every_field_is_in_the_reference() -> None:
    root = Path(__file__).resolve().parents[2]
    page = (root / "docs/reference/http.md").read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| `/")]
    scopes = {path: row[1] for row in rows for path in re.findall(r"`([^`]+)`", row[0])}
    assert {each.shown_path for each in operations()} == set(scopes)
    for each in operations():
        assert re.search(rf"\b{each.access}\b", scopes[each.shown_path]), each.path
    fields = {name for each in operations() for name in each.fields}
    headers = {name for each in operations() for name in each.headers}
    named = fields | headers
    assert sorted(each for each in named if not re.search(rf"`{each}[`=]", page)) == []


@story
async def test_a_host_that_looks_like_a_path_changes_no_answer(tmp_path: Path) -> None:
    async with engine(tmp_path) as here:
        for host in ("localhost/api/run/7?", "localhost/health#", "x/webhooks/", "[", "a@b:c/"):
            for path in ("/api/v1/nothing", "/api/v1/receipts/999", "/agents/nobody"):
                usual = await here.client.get(path)
                claimed = await here.client.get(path, headers={"Host": host})
                assert (claimed.status_code, claimed.headers["content-type"], claimed.text) == (
                    usual.status_code,
                    usual.headers["content-type"],
                    usual.text,
                ), (host, path)
            asked = await here.client.put("/api/v1/status", headers={"Host": host})
            assert asked.status_code == 405, host


@story
async def test_no_title_gives_a_terminal_orders(tmp_path: Path) -> None:
    plan = "* Red \x1b[31m\x9b2J\n:PROPERTIES:\n:SCHEDULE: 0 9 * * *\n:COMMAND: true\n:END:\n"
    async with engine(tmp_path, plan) as here:
        for path in ("/metrics", "/api/v1/status", "/api/v1/entries", "/api/v1/no%1b%5b2J"):
            text = (await here.client.get(path)).text
            assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", text), path
