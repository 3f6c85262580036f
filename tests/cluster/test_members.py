"""Members of a cluster, each in a process of its own: agents, labels, logs, and who knows what."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, Any

from cluster.stage import Stage, entry, git, horae

if TYPE_CHECKING:
    from pathlib import Path

DAY = """\
* add
:PROPERTIES:
:REPEAT: 3
:NEXT: audit
:END:
* audit
:PROPERTIES:
:NEXT: add
:END:
"""


def asked(stage: Stage, *words: str) -> Any:
    """Return what a command answers in JSON."""
    code, said = horae(stage, *words, "--json")
    assert code in {0, 1}, said
    return json.loads(said)


def ticks(stage: Stage, name: str) -> list[tuple[str, str, str]]:
    """Return where an agent ticked, in which state, and how it ended, oldest first."""
    rows = stage.do(
        "SELECT run.member, run.facts, receipt.status FROM run"
        " JOIN receipt ON receipt.number = run.receipt JOIN entry ON entry.number = receipt.entry"
        " WHERE entry.title = %s AND run.outcome IS NOT NULL ORDER BY receipt.number, run.number",
        name,
    )
    return [(row[0], json.loads(row[1]).get("state", ""), row[2]) for row in rows]


def test_an_agent_stays_where_it_is_and_goes_on_elsewhere_in_its_day(stage: Stage) -> None:
    agents = {name: stage.effect(name, 0.2) for name in ("wren", "moss")}
    stage.crew(agents, {}, day=DAY)
    east, west = stage.member("east"), stage.member("west")
    east.joined()
    west.joined()
    stage.until(lambda: len(ticks(stage, "wren")) >= 2 and len(ticks(stage, "moss")) >= 2)
    assert len({where for where, _, _ in ticks(stage, "wren")}) == 1

    home = ticks(stage, "wren")[0][0]
    other = west if home == "east" else east
    assert asked(stage, "cluster", "drain", home) == {"node": home, "draining": True}
    stage.until(lambda: ticks(stage, "wren")[-1][0] == other.name)
    assert horae(stage, "cluster", "drain", home, "--off")[0] == 0
    count = len(ticks(stage, "wren"))
    stage.until(lambda: len(ticks(stage, "wren")) >= count + 2)

    found = ticks(stage, "wren")
    assert {where for where, _, _ in found[count:]} == {other.name}
    day = ["add", "add", "add", "audit"] * len(found)
    assert [state for _, state, _ in found] == day[: len(found)]
    assert {status for _, _, status in found} == {"done"}
    for node in (east, west):
        left = [each.name for each in node.data.iterdir() if "wren" in each.name]
        assert left == []
        assert not (node.data / "keeper-last-run-wren").exists()
    assert [each for each in stage.happened() if each.company == "beside"] == []


def test_what_an_agent_left_on_a_lost_machine_is_reported_until_it_is_back(stage: Stage) -> None:
    stage.crew({"wren": stage.effect("wren", 6)}, {}, day=DAY)
    nodes = [stage.member(name).joined() for name in ("east", "west")]
    stage.until(lambda: any(each.what == "begun" for each in stage.happened()))
    lost = stage.members[stage.happened()[0].node]
    other = next(each for each in nodes if each is not lost)
    clone = lost.data / "trees" / "wren"
    (clone / "draft.org").write_text("* A draft\n")
    git(clone, "add", "draft.org")
    git(clone, "commit", "--quiet", "--message", "A draft")
    lost.kill()
    stage.until(lambda: stage.count("title = 'wren' AND status = 'interrupted'") == 1)

    def told() -> dict[str, str]:
        found = asked(stage, "status", "--root", str(other.root), "--data", str(other.data))
        return dict(found["agents"][0]["troubles"])

    reason = f"whether wren has undelivered work on {lost.name} is not known"
    assert told()[f"left on {lost.name}"].startswith(reason)
    stage.until(lambda: len(ticks(stage, "wren")) >= 2)
    assert ticks(stage, "wren")[-1] == (other.name, "add", "done")
    assert f"left on {lost.name}" in told()
    events = stage.do("SELECT facts FROM event WHERE kind = 'undelivered'")
    assert [json.loads(row[0])["place"] for row in events] == [lost.name]
    assert not (other.data / "plan" / "draft.org").exists()

    stage.member(lost.name).joined()
    stage.until(lambda: stage.do("SELECT 1 FROM event WHERE kind = 'delivered'"))
    stage.until((other.data / "plan" / "draft.org").exists)
    stage.until(lambda: f"left on {lost.name}" not in told())


def test_an_entry_waits_visibly_for_a_machine_with_its_label(stage: Stage) -> None:
    train = entry("Train", stage.effect("train"), host="gpu")
    stage.write({"plan.org": train + entry("Count", stage.effect("count"))})
    east = stage.member("east").joined()
    stage.until(lambda: stage.count("title = 'Count' AND status = 'done'"))
    place = ("--root", str(east.root), "--data", str(east.data))
    waits = "Train (plan.org:1) waits: no node with gpu is up"
    stage.until(lambda: waits in asked(stage, "status", *place)["problems"])
    gate = json.loads(east.ask("/api/v1/gate")[1])
    assert [each["reason"] for each in gate["waiting"]] == ["no node with gpu is up"]

    box = stage.member("box", "cluster worker", settings={"HORAE_CLUSTER_LABELS": "gpu"}).joined()
    stage.until(lambda: stage.count("title = 'Train' AND status = 'done'"))
    assert {each.node for each in stage.happened() if each.whose == "train"} == {"box"}
    rows = {row["node"]: row for row in asked(stage, "cluster", "nodes")}
    assert (rows["east"]["state"], rows["east"]["leads"]) == ("up", True)
    assert (rows["box"]["state"], rows["box"]["labels"]) == ("up", ["gpu"])

    run = next(each.run for each in stage.happened() if each.whose == "train")
    stage.until(lambda: stage.do("SELECT 1 FROM run_log WHERE run = %s", int(run)))
    assert east.ask(f"/api/v1/runs/{run}/log") == (200, b"train on box\n")
    assert box.ask("/api/v1/status")[0] == 200  # which the leader answers
    assert box.ask("/healthz")[0] == 200

    box.kill()
    stage.until(lambda: json.loads(east.ask("/api/v1/nodes")[1])["nodes"][0]["state"] == "lost")
    assert east.ask(f"/api/v1/runs/{run}/log") == (200, b"train on box\n")
    [line] = json.loads(east.ask(f"/api/v1/runs/{run}/lines?search=BOX")[1])["lines"]
    assert (line["line"], line["text"]) == (1, "train on box")
    stage.until(lambda: waits in asked(stage, "status", *place)["problems"])  # at its next moment
    box = stage.member("box", "cluster worker").joined()
    lease = "SELECT until FROM member WHERE name = 'box'"
    east.kill()  # whoever is left never leads
    stage.until(lambda: stage.leader() == "")
    leases = stage.do(lease)

    def has_renewed_twice() -> bool:
        leases.extend(each for each in stage.do(lease) if each not in leases)
        return len(leases) > 2

    stage.until(has_renewed_twice)
    assert stage.leader() == ""
    code, said = box.ask("/api/v1/status")
    assert (code, json.loads(said)["code"]) == (503, "no_leader")


def test_a_member_that_restarts_at_once_knows_how_its_runs_ended(tmp_path: Path) -> None:
    with closing(Stage(tmp_path, lease=20)) as stage:
        stage.write({"plan.org": entry("Once", stage.effect("once", 3), schedule="@yearly")})
        east = stage.member("east").joined()
        stage.until(lambda: stage.leader() == "east")
        place = ("--root", str(east.root), "--data", str(east.data))
        stage.until(lambda: stage.do("SELECT 1 FROM entry"))  # it has read the plan
        assert horae(stage, "run", "Once", *place)[0] == 0
        stage.until(stage.happened)
        stage.until(lambda: stage.count("status = 'running'"))
        east.wire.hold_up()
        stage.until(lambda: any(each.what == "over" for each in stage.happened()))
        stage.until(lambda: list(east.data.glob("runs/*/*/end.json")))
        east.kill()
        east.wire.mend()
        stage.member("east").joined()
        stage.until(lambda: not stage.count("status = 'running'"))
        found = stage.do("SELECT status, reason FROM receipt")
        assert found == [("done", "once on east")]
        assert len(stage.happened()) == 2
