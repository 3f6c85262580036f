"""Three members and one PostgreSQL under everything that can happen to them."""

from __future__ import annotations

import os
import random
import signal
import time
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import pytest

from cluster.audit import audit
from cluster.stage import LEASE, entry
from scale import scaled
from store.server import server

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.stage import Node, Stage

NAMES: Final = ("one", "two", "three")
WITHIN: Final = LEASE + 5  # seconds from the last decision of a leader to the first of the next
LONG: Final = 3600  # seconds of a run that only a fault ends
SEED: Final = int(os.environ.get("CLUSTER_SEED", "11"))


def plan(stage: Stage) -> str:
    """Return a plan of every second: short, long, longer than all faults, and tried again."""
    return (
        entry("short", stage.effect("short"))
        + entry("long", stage.effect("long", 1.5))
        + entry("steady", stage.effect("steady", LONG))
        + entry("again", stage.effect("again", 0.2), retry="2 1s")
    )


DAY: Final = "* one\n:PROPERTIES:\n:NEXT: two\n:END:\n* two\n:PROPERTIES:\n:NEXT: one\n:END:\n"


class Chaos:
    """What happens to a cluster, round by round."""

    def __init__(self, stage: Stage, *, seed: int) -> None:
        self.stage = stage
        self.random = random.Random(seed)
        self.pauses: dict[str, list[float]] = {}
        self.faults: dict[str, Callable[[], None]] = {
            "kill": lambda: self.kill(self.anybody()),
            "kill the leader": lambda: self.kill(self.leader()),
            "restart at once": lambda: self.restart(self.anybody()),
            "freeze the leader": lambda: self.freeze(self.leader()),
            "freeze": lambda: self.freeze(self.anybody()),
            "cut off": lambda: self.cut(self.anybody()),
            "nothing goes out": lambda: self.hold_up(self.leader(), there=True, back=False),
            "nothing comes back": lambda: self.hold_up(self.leader(), there=False, back=True),
            "nothing goes through": lambda: self.hold_up(self.anybody(), there=True, back=True),
            "its connections are forgotten": self.forget,
            "all connections end": self.terminate,
            "postgres restarts": lambda: self.restart_postgres(signal.SIGINT),
            "postgres crashes": lambda: self.restart_postgres(signal.SIGQUIT),
            "the queue is emptied": self.empty_queue,
            "drained and used again": lambda: self.drain(self.anybody()),
        }

    def run(self, rounds: int) -> None:
        """Do one thing after another to it, each as often as any other."""
        todo: list[str] = []
        for _ in range(rounds):
            if not todo:
                todo = list(self.faults)
                self.random.shuffle(todo)
            self.round(todo.pop())

    def round(self, name: str) -> None:
        """Do something, wait until the cluster is whole and at work again, and look at it all."""
        start = self._newest()
        self.faults[name]()
        for each in NAMES:
            if not self.stage.members[each].is_up:
                self.stage.member(each)
        for each in NAMES:
            self.stage.members[each].joined()
        at = self._newest()
        self.stage.until(lambda: self._newest() >= at + 2_000_000)
        self.stage.until(self._is_as_written)
        seen = self._pause_since(start)
        self.pauses.setdefault(name, []).append(seen)
        account = audit(self.stage)
        print(f"{name}: {seen:.1f} s without a decision; {account.effects} effects", flush=True)

    def _is_as_written(self) -> bool:
        """Tell whether the runs that are alive are those which are open, the steady one once."""
        steady = "SELECT run.number::text FROM run JOIN receipt ON receipt.number = run.receipt"
        steady += " JOIN entry ON entry.number = receipt.entry WHERE entry.title = 'steady'"
        runs = {row[0] for row in self.stage.do(steady)}
        alive = self.stage.living_runs()
        steadily = [each for each in alive if each in runs]
        return len(steadily) == 1 and alive == self.stage.open_runs()

    def _newest(self) -> int:
        found = self.stage.do("SELECT coalesce(max(decided_at), 0) FROM receipt")
        return int(found[0][0])

    def _pause_since(self, start: int) -> float:
        query = "SELECT DISTINCT decided_at FROM receipt WHERE decided_at >= %s ORDER BY 1"
        moments = [row[0] for row in self.stage.do(query, start)]
        return float(max(b - a for a, b in pairwise(moments)) / 1_000_000)

    def anybody(self) -> Node:
        return self.stage.members[self.random.choice(NAMES)]

    def leader(self) -> Node:
        self.stage.until(lambda: self.stage.leader() in NAMES)
        return self.stage.members[self.stage.leader()]

    def kill(self, node: Node) -> None:
        """Kill a member, and let it be away for about as long as a lease."""
        node.kill()
        time.sleep(self.random.uniform(0, 1.5 * LEASE))

    def restart(self, node: Node) -> None:
        """Kill a member, and start it before anybody misses it."""
        node.kill()
        self.stage.member(node.name)

    def freeze(self, node: Node) -> None:
        """Let a member sleep longer than its lease lasts; it must have written nothing when awake."""
        node.send(signal.SIGSTOP)
        frozen_at = time.monotonic()
        query = "SELECT generation, until <= clock_timestamp() FROM member WHERE name = %s"
        generation = self.stage.do(query, node.name)[0][0]
        self.stage.until(lambda: self.stage.do(query, node.name)[0][1])
        self.stage.until(lambda: not node.children(), within=5)
        is_open = (
            "SELECT count(*) FROM run WHERE member = %s AND generation = %s AND ended_at IS NULL"
        )
        self.stage.until(lambda: self.stage.do(is_open, node.name, generation) == [(0,)])
        is_reaped = "SELECT 1 FROM member WHERE name = %s AND is_reaped"
        self.stage.until(lambda: self.stage.do(is_reaped, node.name))
        before = self._runs_of(node, generation)
        assert time.monotonic() - frozen_at > LEASE * 0.5
        node.send(signal.SIGCONT)
        newer = "SELECT 1 FROM member WHERE name = %s AND generation > %s"
        self.stage.until(lambda: self.stage.do(newer, node.name, generation))
        assert self._runs_of(node, generation) == before, "a former holder has written"

    def _runs_of(self, node: Node, generation: int) -> list[tuple[object, ...]]:
        query = "SELECT * FROM run WHERE member = %s AND generation = %s ORDER BY number"
        return self.stage.do(query, node.name, generation)

    def cut(self, node: Node) -> None:
        """Break all connections of a member, and let none be made for about as long as a lease."""
        node.wire.cut()
        time.sleep(self.random.uniform(0.5, 2 * LEASE))
        node.wire.mend()

    def hold_up(self, node: Node, *, there: bool, back: bool) -> None:
        """Let nothing arrive for a while; what was sent arrives late."""
        node.wire.hold_up(there=there, back=back)
        time.sleep(self.random.uniform(0.5, 2 * LEASE))
        node.wire.mend()

    def forget(self) -> None:
        """Let the connections of the leader be dead, and nobody be told."""
        self.leader().wire.forget()

    def terminate(self) -> None:
        """End every connection to the database."""
        self.stage.do(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )

    def restart_postgres(self, how: signal.Signals) -> None:
        """Let PostgreSQL end, and be away for a moment."""
        server().halt(how)
        time.sleep(self.random.uniform(0, 2))
        server().start()

    def empty_queue(self) -> None:
        """Forget all jobs, again and again."""
        for _ in range(50):
            self.stage.do("TRUNCATE pgqueuer, pgqueuer_log")
            time.sleep(0.02)

    def drain(self, node: Node) -> None:
        """Let a member get nothing more to run for a while; what it runs goes on."""
        change = "UPDATE member SET is_draining = %s WHERE name = %s"
        self.stage.do(change, True, node.name)
        time.sleep(self.random.uniform(0.5, LEASE))
        self.stage.do(change, False, node.name)


@pytest.fixture
def chaos(stage: Stage) -> Chaos:
    """Give a cluster of three that is at work."""
    crew = {name: stage.effect(name, 0.5) for name in ("wren", "moss")}
    stage.crew(crew, {"plan.org": plan(stage)}, day=DAY)
    for name in NAMES:
        stage.member(name)
    for name in NAMES:
        stage.members[name].joined()
    stage.until(lambda: stage.count("status = 'done'") > 3)
    return Chaos(stage, seed=SEED)


def test_whatever_happens_every_moment_has_one_receipt_and_no_effect_comes_twice(
    chaos: Chaos,
) -> None:
    chaos.run(scaled(100))

    stage = chaos.stage
    for name in NAMES:
        assert stage.members[name].stop() == 0
    account = audit(stage, is_over=True)
    ends = "SELECT status, reason, count(*) FROM receipt WHERE status <> 'done' GROUP BY 1, 2"
    print(account, chaos.pauses, *stage.do(ends), sep="\n")
    assert account.receipts["done"] > scaled(100)
    fails = ("kill", "kill the leader", "freeze the leader", "nothing comes back")
    known = sorted(each for name in fails for each in chaos.pauses.get(name, []))
    assert not known or known[int(len(known) * 0.99)] <= WITHIN, known
