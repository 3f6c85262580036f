"""What a person does to a cluster at work: look at it, drain and stop nodes."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

from cluster.audit import audit
from cluster.stage import HASTY, KNOWN, Node, Stage, entry, horae
from commands import start_command
from horae import __version__
from horae.store.sql import migrations

LEASE = 15  # seconds: longer than a lead may take to be handed over
SOON = 4.0  # seconds: on an idle machine it takes one, and without being told up to ten
NAMES = ("east", "west")


def at_work(stage: Stage, plan: str = "") -> list[Node]:
    """Return nodes that have joined, while runs of a plan of every second are made.

    Which node takes a run is not promised: one may take all of them, if it has room. What each
    node has to run is in the plan with its `:HOST:`, or is more than one node has room for.
    """
    stage.write({"plan.org": plan or entry("Count", stage.effect("count"))})
    nodes = [stage.member(name).joined() for name in NAMES]
    stage.until(stage.happened)
    return nodes


def asked(stage: Stage, *words: str) -> Any:
    """Return what a command answers in JSON."""
    code, said = horae(stage, *words, "--json")
    assert code == 0, said
    return json.loads(said)


def followed(stage: Stage, leader: str, *, since: float) -> float:
    """Return after how many seconds another node leads."""
    stage.until(lambda: stage.leader() not in {leader, ""})
    return time.monotonic() - since


def test_a_leader_that_drains_hands_the_lead_over_at_once_and_its_runs_end(tmp_path: Path) -> None:
    with closing(Stage(tmp_path, lease=LEASE)) as stage:
        # A node has room for eight.
        plan = "".join(entry(f"Long {n}", stage.effect(f"long{n}", 4)) for n in range(12))
        at_work(stage, plan)
        leader = stage.leader()
        other = next(each for each in NAMES if each != leader)
        stage.until(lambda: stage.do("SELECT 1 FROM run WHERE member = %s", leader))
        began = time.monotonic()
        told = asked(stage, "cluster", "drain", leader, "--wait", "--root", str(stage.service))
        took = time.monotonic() - began
        assert told == {"node": leader, "draining": True, "leads": False}
        assert stage.leader() == other
        query = "SELECT 1 FROM run WHERE member = %s AND ended_at IS NULL"
        assert stage.do(query, leader) == []
        [[taken_at]] = stage.do(
            "SELECT max(started_at) FROM run WHERE member = %s AND outcome IS NOT NULL", leader
        )
        handed = stage.members[other].said()
        assert "this node is the leader in term 3" in handed, handed
        print(f"drained after {took:.1f} s")

        at = stage.count("status = 'done'")
        stage.until(lambda: stage.count("status = 'done'") > at + 8)
        assert stage.do("SELECT max(started_at) FROM run WHERE member = %s", leader) == [
            (taken_at,)
        ], "it took a run although it drains"
        row = next(each for each in asked(stage, "cluster", "nodes") if each["node"] == leader)
        assert (row["state"], row["leads"], row["runs"]) == ("draining", False, 0)
        assert stage.members[leader].stop() == 0
        audit(stage)


def test_the_lead_is_handed_over_long_before_its_lease_ends(tmp_path: Path) -> None:
    with closing(Stage(tmp_path, lease=2 * LEASE)) as stage:
        at_work(stage)
        leader = stage.leader()
        began = time.monotonic()
        assert horae(stage, "cluster", "drain", leader)[0] == 0
        assert followed(stage, leader, since=began) < SOON

        leader = stage.leader()
        assert horae(stage, "cluster", "drain", leader, "--off")[0] == 0
        other = next(each for each in NAMES if each != leader)
        assert horae(stage, "cluster", "drain", other, "--off")[0] == 0
        began = time.monotonic()
        assert stage.members[leader].stop() == 0
        assert followed(stage, leader, since=began) < SOON
        audit(stage)


def test_a_decision_is_logged_by_the_leader_that_made_it(tmp_path: Path) -> None:
    with closing(Stage(tmp_path, lease=LEASE)) as stage:
        nodes = at_work(stage, entry("Long", stage.effect("long", 600)))  # other times are skipped

        def logged(node: Node) -> list[str]:
            return [line.split("Long")[1] for line in node.logged() if "  skipped  " in line]

        east, west = sorted(nodes, key=lambda node: node.name != stage.leader())
        stage.until(lambda: len(logged(east)) > 2)
        assert horae(stage, "cluster", "drain", east.name)[0] == 0
        stage.until(lambda: len(logged(west)) > 4)
        assert set(logged(east)).isdisjoint(logged(west))


def test_who_drains_goes_on_to_lead_where_no_other_can(stage: Stage) -> None:
    stage.write({"plan.org": entry("Count", stage.effect("count"))})
    east = stage.member("east").joined()
    stage.until(lambda: stage.leader() == "east")
    worker = stage.member("box", "cluster worker").joined()
    code, said = horae(stage, "cluster", "drain", "east", "--wait")
    alone = "east has no runs; it still leads, because no other node can"
    assert (code, said.startswith(alone)) == (0, True), said
    stage.until(lambda: worker.name in {each.node for each in stage.happened()})
    [[term]] = stage.do("SELECT term FROM lease")
    at = stage.count()
    stage.until(lambda: stage.count() > at + stage.lease)
    assert stage.do("SELECT term FROM lease") == [(term,)]

    stage.member("west").joined()  # which can
    stage.until(lambda: stage.leader() == "west")
    assert east.is_up


def test_every_answer_names_the_node_and_each_logs_what_it_did(stage: Stage) -> None:
    fails = "".join(
        entry(f"Fail {name}", stage.effect("fail", code=1), schedule="@yearly", host=name)
        for name in NAMES
    )
    nodes = at_work(stage, entry("Count", stage.effect("count")) + fails)
    [place] = [("--root", str(each.root), "--data", str(each.data)) for each in nodes[:1]]
    made = {(each.entry, each.key): each.node for each in stage.happened()}
    stage.until(lambda: stage.count("status = 'done'") > 3)
    rows = asked(stage, "history", *place, "--status", "done")
    assert {row["node"] for row in rows} <= set(NAMES)
    for row in rows:
        assert made.get((str(row["entry"]), row["key"]), row["node"]) == row["node"]
    newest = rows[0]
    receipt = json.loads(nodes[0].ask(f"/api/v1/receipts/{newest['receipt']}")[1])
    assert [each["node"] for each in receipt["runs"]] == [receipt["node"]] == [newest["node"]]
    when = newest["planned_at"]
    [why] = json.loads(nodes[0].ask(f"/api/v1/why?entry=Count&at={when}")[1])["answers"]
    assert [each["node"] for each in why["runs"]] == [why["node"]] == [newest["node"]]
    said = horae(stage, "why", f"Count@{when}", *place)[1]
    assert re.search(rf"\(run \d+\): started .* UTC on {newest['node']}, done", said), said
    assert f"done on {newest['node']}" in horae(stage, "history", *place)[1]
    page = nodes[0].ask(f"/receipts/{newest['receipt']}")[1].decode()
    assert f"<dt>node</dt><dd>{newest['node']}</dd>" in page
    assert f'title="the node of the run">{newest["node"]}</span>' in nodes[0].ask("/")[1].decode()

    for name in NAMES:
        assert horae(stage, "run", f"Fail {name}", *place, "--wait")[0] != 0
    for each in nodes:
        assert each.stop() == 0
    for each in nodes:
        logged = each.logged()
        assert {re.split(r" {2,}", line)[1] for line in logged} == {each.name}
        done = [line for line in logged if "  done  " in line and "Count" in line]
        tried = [line for line in logged if "Fail" in line and re.search("attempt|  failed", line)]
        query = "SELECT count(*) FROM run JOIN filed ON filed.number = run.receipt"
        query += " WHERE title LIKE %s AND member = %s AND outcome IS NOT NULL"
        assert [(len(done),)] == stage.do(query, "Count", each.name)
        assert [(len(tried),)] == stage.do(query, "Fail %", each.name)
        assert tried


def test_a_node_that_stops_logs_the_ends_of_the_runs_that_it_waited_for(stage: Stage) -> None:
    stage.write({"plan.org": entry("Long", stage.effect("long", 600), schedule="@yearly")})
    east = stage.member("east", settings={"HORAE_RUN_DRAIN": "1m"}).joined()
    stage.until(lambda: stage.do("SELECT 1 FROM entry"))
    assert horae(stage, "run", "Long", "--root", str(east.root), "--data", str(east.data))[0] == 0
    stage.until(stage.happened)
    east.send(signal.SIGTERM)
    stage.until(lambda: stage.leader() == "")  # it has resigned, and waits for its run
    stage.finish("long")
    assert east.ended() == 0
    assert [line for line in east.logged() if "  done  " in line and "Long" in line]


def test_what_a_lost_node_ran_is_logged_by_the_leader(stage: Stage) -> None:
    long = entry("Long", stage.effect("long", 600), schedule="@yearly", host="box")
    stage.write({"plan.org": long})
    east = stage.member("east").joined()
    box = stage.member("box", "cluster worker").joined()
    stage.until(lambda: stage.do("SELECT 1 FROM entry"))
    place = ("--root", str(east.root), "--data", str(east.data))
    assert horae(stage, "run", "Long", *place)[0] == 0
    stage.until(stage.happened)
    box.kill()
    stage.until(lambda: any("box was lost during the run" in each for each in east.logged()))


def test_nodes_of_two_versions_work_side_by_side_until_the_schema_is_contracted(
    stage: Stage,
) -> None:
    steady = entry("Steady", stage.effect("steady", 600), host="east")
    counts = (entry(f"Count {name}", stage.effect(name), host=name) for name in NAMES)
    east, _ = at_work(stage, steady + "".join(counts))
    stage.until(lambda: {each.whose for each in stage.happened()} >= {"steady", *NAMES})
    generations = stage.do("SELECT name, generation FROM member ORDER BY name")
    newest = max(migrations("postgres"))

    # Expand, beside the nodes of the version before.
    assert future(stage, 1, "cluster", "migrate") == 0
    assert stage.do("SELECT version, oldest FROM term") == [(newest + 1, newest)]
    at = stage.count()
    stage.until(lambda: stage.count() > at + 2 * stage.lease)
    assert stage.do("SELECT name, generation FROM member ORDER BY name") == generations

    # One node after the other is of the new version.
    assert horae(stage, "cluster", "drain", "west", "--wait")[0] == 0
    assert stage.members["west"].stop() == 0
    west = stage.member("west", settings={"CLUSTER_SCHEMA": "1"}).joined()
    assert horae(stage, "cluster", "drain", "west", "--off")[0] == 0
    rows = {each["node"]: each["version"] for each in asked(stage, "cluster", "nodes")}
    assert rows == {"east": __version__, "west": "0.2.0"}
    sizes = "SELECT count(*) FILTER (WHERE size IS NULL) > 0, count(size) > 0 FROM run_log"
    stage.until(lambda: stage.do(sizes) == [(True, True)])  # both have copied output
    assert stage.do("SELECT generation FROM member WHERE name = 'east'") == [(generations[0][1],)]
    assert stage.count("title = 'Steady' AND status = 'running'") == 1
    assert sum(each.whose == "steady" for each in stage.happened()) == 1

    # Contract: it is for nodes of the new version alone.
    assert future(stage, 2, "cluster", "migrate") == 0
    assert stage.do("SELECT version, oldest FROM term") == [(newest + 2, newest + 1)]
    assert east.ended() == 5
    needs = f"the schema needs support for version {newest + 1}, and this horae supports {newest}"
    assert needs in east.said()
    stage.until(lambda: stage.leader() == "west")
    at = stage.count("status = 'done'")
    stage.until(lambda: stage.count("status = 'done'") > at + 2)
    assert west.is_up
    audit(stage)


def future(stage: Stage, versions: int, *words: str) -> int:
    """Return the exit code of a command of a version to come."""
    known = {each: os.environ[each] for each in KNOWN if each in os.environ}
    environ = {**known, "HORAE_STORE": stage.url(), "CLUSTER_SCHEMA": str(versions)}
    with Path(os.devnull).open("r+") as nothing:
        files = (nothing.fileno(),) * 3
        return start_command((HASTY, *words), at=stage.place, files=files, environ=environ).wait(60)


def test_an_error_that_lasts_is_logged_once_a_minute(tmp_path: Path) -> None:
    with closing(Stage(tmp_path, lease=LEASE)) as stage:
        east, _ = at_work(stage)
        for each in stage.members.values():
            each.wire.cut()
        time.sleep(6)
        for each in stage.members.values():
            each.wire.mend()
        at = stage.count("status = 'done'")
        stage.until(lambda: stage.count("status = 'done'") > at + 2)
        for each in stage.members.values():
            said = Counter(
                re.split(r" {2,}", line, maxsplit=2)[2] for line in each.said().splitlines()
            )
            assert said.most_common(1)[0][1] == 1, said
        assert "the database cannot be reached" in east.said()
