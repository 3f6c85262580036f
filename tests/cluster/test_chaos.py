"""Three members and one PostgreSQL under everything that can happen to them."""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import closing, suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import pytest

from cluster.audit import audit
from cluster.stage import Stage, entry
from cluster.test_clocks import LIBRARIES, clock_off_by
from ledger_audit import SECOND
from process.stage import children
from scale import SCALE, scaled
from store.server import server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from cluster.stage import Node

NAMES: Final = ("one", "two", "three")
BURST: Final = 40  # entries that are due at one time: more than may run at once
FAILOVER: Final = 5  # seconds beyond the lease in which the next leader decides
LONG: Final = 3600  # seconds of a run that only a fault ends
SEED: Final = int(os.environ.get("CLUSTER_SEED", "11"))


def plan(stage: Stage) -> str:
    """Return a plan of every second: short, longer than most faults, than all, and tried again."""
    lengths = "".join(entry(f"for {n} s", stage.effect(f"for{n}", n)) for n in (1, 5, 20, 90))
    return (
        entry("short", stage.effect("short"))
        + lengths
        + entry("steady", stage.effect("steady", LONG))
        + entry("again", stage.effect("again", 0.2), retry="2 1s")
    )


def bursting(stage: Stage, at: int) -> str:
    """Return a plan of many entries that are due at one time."""
    schedule = time.strftime("%S %M %H %d %m *", time.gmtime(at))
    return "".join(
        entry(f"burst {n}", stage.effect(f"burst{n}"), schedule=schedule) for n in range(BURST)
    )


DAY: Final = "* one\n:PROPERTIES:\n:NEXT: two\n:END:\n* two\n:PROPERTIES:\n:NEXT: one\n:END:\n"


class Chaos:
    """What happens to a cluster, round by round."""

    def __init__(self, stage: Stage, *, seed: int) -> None:
        self.stage = stage
        self.random = random.Random(seed)
        self.pauses: dict[str, list[float]] = {}
        self.back_at = 0  # when the database was there again
        self.excused: set[str] = set()  # runs that began beside one that was frozen
        self.faults: dict[str, Callable[[], None]] = {
            "kill": lambda: self.kill(self.anybody()),
            "kill the leader": lambda: self.kill(self.leader()),
            "restart at once": lambda: self.restart(self.anybody()),
            "freeze the leader": lambda: self.freeze(self.leader()),
            "freeze": lambda: self.freeze(self.busiest()),
            "freeze the whole leader": lambda: self.freeze(self.leader(), is_whole=True),
            "freeze a whole node": lambda: self.freeze(self.busiest(), is_whole=True),
            "lose the leader in a burst": self.burst,
            "cut off": lambda: self.cut(self.anybody()),
            "cut off with its runs": lambda: self.cut(self.busiest()),
            "nothing goes out": lambda: self.hold_up(self.leader(), there=True, back=False),
            "nothing comes back": lambda: self.hold_up(self.leader(), there=False, back=True),
            "nothing goes through": lambda: self.hold_up(self.anybody(), there=True, back=True),
            "everything takes longer": lambda: self.delay(self.leader()),
            "its connections are forgotten": self.forget,
            "all connections end": self.terminate,
            "postgres restarts": lambda: self.restart_postgres(signal.SIGINT),
            "postgres crashes": lambda: self.restart_postgres(signal.SIGQUIT),
            "postgres is away": lambda: self.restart_postgres(signal.SIGINT, away=10),
            "the queue is emptied": self.empty_queue,
            "the origin is gone": self.lose_origin,
            "drained and used again": lambda: self.drain(self.anybody()),
            "one more joins and leaves": self.join,
        }
        if LIBRARIES:
            self.faults["a clock is wrong"] = lambda: self.set_clock(self.anybody())
        if SCALE >= 1:
            self.faults["postgres is away for a minute"] = lambda: self.restart_postgres(
                signal.SIGINT, away=60
            )

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
        self.stage.until(lambda: self._newest() >= at + 2 * SECOND)
        self.stage.until(self._is_as_written)
        seen = self._pause_since(max(start, self.back_at))
        self.pauses.setdefault(name, []).append(seen)
        account = audit(self.stage, excused=self.excused)
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
        query = "SELECT DISTINCT decided_at FROM receipt WHERE decided_at > %s ORDER BY 1"
        moments = [start, *(row[0] for row in self.stage.do(query, start))]
        return float(max(b - a for a, b in pairwise(moments)) / SECOND)

    def rest(self, least: float, most: float) -> None:
        """Wait for some time, in leases."""
        time.sleep(self.random.uniform(least, most) * self.stage.lease)

    def anybody(self) -> Node:
        return self.stage.members[self.random.choice(NAMES)]

    def busiest(self) -> Node:
        return max(
            (self.stage.members[each] for each in NAMES), key=lambda node: len(node.living())
        )

    def leader(self) -> Node:
        self.stage.until(lambda: self.stage.leader() in NAMES)
        return self.stage.members[self.stage.leader()]

    def kill(self, node: Node) -> None:
        """Kill a member, and let it be away for about as long as a lease."""
        node.kill()
        self.rest(0, 1.5)

    def restart(self, node: Node) -> None:
        """Kill a member, and start it before anybody misses it."""
        node.kill()
        self.stage.member(node.name)

    def freeze(self, node: Node, *, is_whole: bool = False) -> None:
        """Let a member sleep longer than its lease lasts; it must have written nothing when awake.

        As a *whole* it sleeps with its runs, and with what would end them in time.
        """
        frozen = stop(node.process.pid, is_whole=is_whole)
        frozen_at, asleep = time.monotonic(), set(node.living()) if is_whole else set()
        query = "SELECT generation, until <= clock_timestamp() FROM member WHERE name = %s"
        generation = self.stage.do(query, node.name)[0][0]
        self.stage.until(lambda: self.stage.do(query, node.name)[0][1])
        if not is_whole:
            self.stage.until(lambda: not node.children(), within=5)
        is_open = (
            "SELECT count(*) FROM run WHERE member = %s AND generation = %s AND ended_at IS NULL"
        )
        self.stage.until(lambda: self.stage.do(is_open, node.name, generation) == [(0,)])
        is_reaped = "SELECT 1 FROM member WHERE name = %s AND is_reaped"
        self.stage.until(lambda: self.stage.do(is_reaped, node.name))
        before = self._runs_of(node, generation)
        assert time.monotonic() - frozen_at > self.stage.lease * 0.5
        for pid in frozen:
            with suppress(ProcessLookupError):  # one that woke first has ended it
                os.kill(pid, signal.SIGCONT)
        self.stage.until(lambda: not asleep & {*node.living()}, within=5)
        # A run that sleeps does nothing, and yet is there: what took its place saw it.
        happened = self.stage.happened()
        whose = {each.whose for each in happened if each.run in asleep}
        beside = (each for each in happened if each.company == "beside")
        self.excused |= {each.run for each in beside if each.whose in whose}
        newer = "SELECT 1 FROM member WHERE name = %s AND generation > %s"
        self.stage.until(lambda: self.stage.do(newer, node.name, generation))
        assert self._runs_of(node, generation) == before, "a former holder has written"

    def _runs_of(self, node: Node, generation: int) -> list[tuple[object, ...]]:
        query = "SELECT * FROM run WHERE member = %s AND generation = %s ORDER BY number"
        return self.stage.do(query, node.name, generation)

    def cut(self, node: Node) -> None:
        """Break all connections of a member, and let none be made for about as long as a lease."""
        node.wire.cut()
        self.rest(0.2, 2)
        node.wire.mend()

    def hold_up(self, node: Node, *, there: bool, back: bool) -> None:
        """Let nothing arrive for a while; what was sent arrives late."""
        node.wire.hold_up(there=there, back=back)
        self.rest(0.2, 2)
        node.wire.mend()

    def delay(self, node: Node) -> None:
        """Let everything that a member says and hears take up to a third of a second longer."""
        for _ in range(30):
            node.wire.hold_up()
            time.sleep(self.random.uniform(0.05, 0.3))
            node.wire.mend()
            time.sleep(0.02)

    def forget(self) -> None:
        """Let the connections of the leader be dead, and nobody be told."""
        self.leader().wire.forget()

    def terminate(self) -> None:
        """End every connection to the database."""
        self.stage.do(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )

    def restart_postgres(self, how: signal.Signals, *, away: float = 0) -> None:
        """Let PostgreSQL end, and be away for a moment, or for so many seconds."""
        server().halt(how)
        time.sleep(away or self.random.uniform(0, 2))
        server().start()
        self.back_at = time.time_ns() // 1000

    def empty_queue(self) -> None:
        """Forget all jobs, again and again."""
        for _ in range(50):
            self.stage.do("TRUNCATE pgqueuer, pgqueuer_log")
            time.sleep(0.02)

    def drain(self, node: Node) -> None:
        """Let a member get nothing more to run for a while; what it runs goes on."""
        change = "UPDATE member SET is_draining = %s WHERE name = %s"
        self.stage.do(change, True, node.name)
        self.rest(0.2, 1)
        self.stage.do(change, False, node.name)

    def join(self) -> None:
        """Let a further member take part for a while."""
        node = self.stage.member("four").joined()
        self.rest(0.5, 2)
        assert node.stop() == 0

    def lose_origin(self) -> None:
        """Let nobody fetch the plan for a while; what is known of it goes on."""
        away = self.stage.origin.rename(self.stage.origin.with_suffix(".away"))
        self.rest(0.5, 2)
        away.rename(self.stage.origin)

    def set_clock(self, node: Node) -> None:
        """Let the clock of a member be wrong from now on, until it is started again."""
        node.kill()
        wrong = clock_off_by(self.random.choice(("-10m", "+10m", "-2s", "+400d")))
        self.stage.member(node.name, settings=wrong).joined()
        self.rest(0.5, 1)

    def burst(self) -> None:
        """Kill the leader while it decides what is due at one time, and others begin it."""
        armed = "SELECT count(*) FROM entry WHERE title LIKE 'burst%%' AND next_at = %s"
        at = 0
        while self.stage.do(armed, at * SECOND) != [(BURST,)]:
            if time.time() > at - 1:  # it has taken too long to be armed in time
                at = int(time.time()) + 6
                self.stage.write({"burst.org": bursting(self.stage, at)})
            time.sleep(0.1)
        leader = self.leader()
        time.sleep(max(0.0, at + self.random.uniform(0, 0.5) - time.time()))
        leader.kill()
        made = "SELECT entry, status FROM receipt WHERE planned_at = %s AND key LIKE 'cron:%%'"
        made += " AND entry IN (SELECT number FROM entry WHERE title LIKE 'burst%%')"
        open_ = {"waiting", "starting", "running"}

        def are_over() -> bool:
            found = self.stage.do(made, at * SECOND)
            return len(found) == BURST and not open_ & {row[1] for row in found}

        self.rest(0, 1)
        self.stage.member(leader.name)
        self.stage.until(are_over)
        assert len({row[0] for row in self.stage.do(made, at * SECOND)}) == BURST


def stop(pid: int, *, is_whole: bool) -> list[int]:
    """Stop a process, and if so all that come from it; return which."""
    os.kill(pid, signal.SIGSTOP)
    found = [pid]
    for each in children(pid) if is_whole else ():
        found += stop(each, is_whole=True)
    return found


@pytest.fixture
def chaos(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Chaos]:
    """Give a cluster of three that is at work, with a lease of so many seconds."""
    with closing(Stage(tmp_path, lease=request.param)) as stage:
        crew = {name: stage.effect(name, 0.5) for name in ("wren", "moss")}
        stage.crew(crew, {"plan.org": plan(stage)}, day=DAY)
        for name in NAMES:
            stage.member(name)
        for name in NAMES:
            stage.members[name].joined()
        stage.until(lambda: stage.count("status = 'done'") > 3)
        yield Chaos(stage, seed=SEED)


@pytest.mark.parametrize(
    ("chaos", "rounds"),
    [
        pytest.param(3, scaled(100), id="lease of 3 s"),
        pytest.param(
            15,
            scaled(25),
            id="lease of 15 s",
            marks=pytest.mark.skipif(SCALE < 1, reason="it takes a quarter of an hour"),
        ),
    ],
    indirect=["chaos"],
)
def test_whatever_happens_every_moment_has_one_receipt_and_no_effect_comes_twice(
    chaos: Chaos, rounds: int
) -> None:
    chaos.run(rounds)

    stage = chaos.stage
    for name in NAMES:
        assert stage.members[name].stop() == 0
    account = audit(stage, is_over=True, excused=chaos.excused)
    ends = "SELECT status, reason, count(*) FROM receipt WHERE status <> 'done' GROUP BY 1, 2"
    print(account, chaos.pauses, *stage.do(ends), sep="\n")
    assert account.receipts["done"] > rounds
    longest = {name: max(found) for name, found in chaos.pauses.items()}
    assert max(longest.values()) <= stage.lease + FAILOVER, longest
