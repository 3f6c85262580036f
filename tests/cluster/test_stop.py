"""A node that is stopped: what it runs has the time that `run.drain` gives it."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from cluster.audit import audit
from cluster.stage import LEASE, entry
from horae.client import Client, EngineError

if TYPE_CHECKING:
    from cluster.stage import Stage


def test_a_node_that_is_stopped_keeps_its_lease_until_its_runs_have_ended(stage: Stage) -> None:
    stage.write({"plan.org": entry("Long", stage.effect("long", 2.5 * LEASE))})
    for name in ("east", "west"):
        stage.member(name, settings={"HORAE_RUN_DRAIN": f"{10 * LEASE}s"}).joined()
    stage.until(stage.happened)
    node = stage.members[stage.happened()[0].node]

    assert node.stop() == 0

    audit(stage)
    query = "SELECT status FROM receipt JOIN run ON run.receipt = receipt.number"
    assert stage.do(f"{query} WHERE run.member = %s AND run.number = 1", node.name) == [("done",)]
    assert stage.do("SELECT count(*) FROM event WHERE kind = 'member_lost'") == [(0,)]


def test_a_node_that_is_restarted_lets_its_runs_end_and_joins_again_in_its_process(
    stage: Stage,
) -> None:
    stage.write({"plan.org": entry("Long", stage.effect("long", LEASE), schedule="0 0 1 1 *")})
    settings = {"HORAE_RUN_DRAIN": f"{10 * LEASE}s"}
    node = stage.member("east", settings=settings, is_forked=False).joined()
    stage.until(lambda: "is the leader" in node.said())
    client = Client(node.data)

    def is_asked() -> bool:
        with suppress(EngineError):  # the leader does not answer yet, or has not read the plan
            client.run_now("Long", idempotency_key="once")
            return True
        return False

    stage.until(is_asked)
    stage.until(stage.happened)

    assert client.restart().pid == node.process.pid

    stage.until(lambda: node.said().count(" joined ") == 2)
    assert stage.do("SELECT status FROM receipt") == [("done",)]
    assert stage.do("SELECT count(*) FROM event WHERE kind = 'member_lost'") == [(0,)]
    stage.until(lambda: node.said().count("is the leader") == 2)
    assert node.is_up
