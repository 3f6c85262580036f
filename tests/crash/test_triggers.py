"""Kill anything around the fires of triggers: one dispatch per fire time, no prompt twice."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

from crash.audit import effects_of
from crash.stage import Home, Life, snapshot, until_gone
from horae.cli.trigger_access import AnyTriggers, TriggerAccess
from horae.errors import HoraeError
from ledger_audit import SECOND
from scale import scaled

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


GONE: Final = 10.0  # seconds; 2 are promised, on a machine that does nothing else
SLOTS: Final = {"HORAE_GATE_SLOTS": "16", "HORAE_RUN_DRAIN": "5s"}
# Like effect.py, but the key is the one that it was told: its prompt is nothing else.
AGENT: Final = """\
import os, sys, time
known = [os.environ[f"HORAE_{name}"] for name in ("ENTRY", "ATTEMPT", "RUN")]
line = " ".join([known[0], sys.stdin.read().strip(), *known[1:], str(os.getpid()), "alone"])
effects = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
os.write(effects, f"{line}\\n".encode())
os.fsync(effects)
time.sleep(float(sys.argv[2]))
"""
FIRED: Final = {"done", "failed", "killed", "interrupted"}
OVER: Final = FIRED | {
    "waiting",  # for the engine after the last one
    "skipped",
    "coalesced",
    "missed",
}


@dataclass
class People:
    """Those who make workflows while the engine lives and dies."""

    home: Home
    dice: Random
    delays: list[str] = field(default_factory=list)
    refused: int = 0  # requests that an engine died over

    def ask(self, work: Callable[[AnyTriggers], Awaitable[Any]]) -> Any:
        """Do something through the engine that runs, else with their own hand."""
        return TriggerAccess(root=str(self.home.plans), data=str(self.home.data)).write(work)

    def hire(self, name: str, seconds: float) -> None:
        """Make an agent that takes so long for anything."""
        program = self.home.place / "agent.py"
        program.write_text(AGENT)
        command = [sys.executable, "-I", "-S", str(program), str(self.home.effects), str(seconds)]
        env = {"CRASH_LIFE": "any"}  # so that what is left of it is found
        said = {"name": name, "command": command, "env": env, "working_dir": str(self.home.place)}
        self.ask(lambda triggers: triggers.create_agent(said))

    def repeat(self, name: str, agent: str, **options: str) -> None:
        """Make a workflow that fires every second."""
        self._make(name, agent, {"type": "cron", "expression": "* * * * * *"}, **options)

    def delay(self) -> None:
        """Make a workflow that fires once about now, or let one that has fired do so again."""
        try:
            if self.delays and self.dice.random() < 0.3:
                again = self.dice.choice(self.delays)
                self.ask(lambda triggers: triggers.update(again, {"enabled": True}))
                return
            run_at = datetime.now(UTC) + timedelta(seconds=self.dice.uniform(-0.5, 1.2))
            name = f"delay-{len(self.delays)}-{self.refused}"
            config = {"type": "delay", "run_at": run_at.isoformat()}
            self._make(name, self.dice.choice(["quick", "slow", "other"]), config)
            self.delays.append(name)
        except (HoraeError, OSError):
            self.refused += 1

    def _make(self, name: str, agent: str, config: dict[str, str], **options: str) -> None:
        said = {"name": name, "agent": agent, "trigger_config": config, **options}
        said["prompt_template"] = "{{source_id}}"
        self.ask(lambda triggers: triggers.create(said))


def strike(life: Life, victim: str) -> bool:
    """Kill one of a life's processes; False: there was none."""
    if victim == "engine":
        life.kill()
        return True
    targets = [life.launcher()] if victim == "launcher" else life.supervisors()[:1]
    if not targets or targets[0] is None:
        return False
    try:
        os.kill(targets[0].pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def test_whatever_is_killed_around_a_fire_time_it_has_one_dispatch_and_no_second_prompt(
    home: Home,
) -> None:
    dice = Random(9)
    people = People(home, dice)
    for name, seconds in (("quick", 0.0), ("slow", 1.3), ("other", 0.2), ("shared", 0.4)):
        people.hire(name, seconds)
    people.repeat("quick", "quick")
    people.repeat("slow", "slow")
    people.repeat("queued", "other", overlap="queue")
    people.repeat("late", "quick", catchup="latest")
    for each in ("left", "right"):  # one of the two finds their agent busy
        people.repeat(each, "shared")
    struck: Counter[str] = Counter()
    life = home.up(settings=SLOTS)
    while struck.total() < scaled(200):
        victim = dice.choice(["engine"] * 6 + ["launcher", "supervisor"])
        meanwhile = Thread(target=people.delay)
        if dice.random() < 0.85:  # else while it still takes over from the one before
            life.begun()
            people.delay()
            time.sleep(dice.uniform(0, 1.3))
            if dice.random() < 0.3:
                meanwhile.start()
                time.sleep(dice.uniform(0, 0.05))
        else:
            time.sleep(dice.uniform(0, 0.8))
        assert life.process.poll() is None, life.said()
        struck[victim] += strike(life, victim)
        if victim == "engine":
            if meanwhile.ident is not None:
                meanwhile.join()
            until_gone(lambda: snapshot(home.data), within=GONE)
            life = home.up(settings=SLOTS)
        elif meanwhile.ident is not None:
            meanwhile.join()
    life.begun()
    seen = home.count("status = 'done'")
    life.until(lambda: home.count("status = 'done'") > seen)
    life.until(lambda: not open_delays(home), within=120)
    assert life.stop() == 0
    assert not snapshot(home.data)

    told = account(home)
    print(f"{dict(struck)} killed, {people.refused} requests refused")
    for line in told:
        print(line)
    assert "bug in horae" not in home.said()
    assert "Traceback" not in home.said()


def open_delays(home: Home) -> list[tuple[Any, ...]]:
    """Return the delays that have not fired, or have not disabled themselves yet."""
    return home.rows(
        "SELECT name FROM trigger WHERE spec LIKE '%\"delay\"%' AND is_enabled"
        " UNION ALL SELECT key FROM receipt"
        " WHERE key LIKE 'delay:%' AND status IN ('waiting', 'held', 'starting', 'running')"
    )


def account(home: Home) -> list[str]:
    """Return what there is, counted; raise an AssertionError if anything is lost or double."""
    entries = dict(home.rows("SELECT address, number FROM entry WHERE source = 'trigger'"))
    fires = generations = 0
    for uuid, spec, is_enabled, times in home.rows(
        "SELECT id, spec, is_enabled, enabled_times FROM trigger WHERE name NOT LIKE 'agent:%'"
    ):
        entry = entries.pop(f"trigger:{uuid}")
        if '"cron"' in spec:
            fires += every_second_has_one_dispatch(home, entry)
        else:
            assert not is_enabled, f"{uuid} has not disabled itself"
            names = [f"delay:{uuid}", *(f"delay:{uuid}:{n}" for n in range(2, times + 1))]
            found = home.rows(
                "SELECT key, status FROM receipt WHERE entry = ? ORDER BY number", entry
            )
            assert [key for key, _ in found] == names
            assert {status for _, status in found} <= FIRED
            generations += times
    assert not entries
    return [
        f"{fires} fire times and {generations} delays, {home.count()} receipts",
        *nothing_is_unexplained(home),
    ]


def every_second_has_one_dispatch(home: Home, entry: int) -> int:
    """Return how many fire times a workflow has had, each with exactly one dispatch."""
    query = "SELECT first_seen_at, accounted_to FROM entry WHERE number = ?"
    [(first, last)] = home.rows(query, entry)
    planned = Counter(range(first // SECOND + 1, last // SECOND + 1))
    found: Counter[int] = Counter()
    for key, start, through, count in home.rows(
        "SELECT key, planned_at, through_at, count FROM receipt WHERE entry = ?", entry
    ):
        moment = datetime.fromtimestamp(start // SECOND, UTC)
        assert key == f"cron:{moment:%Y-%m-%dT%H:%M:%SZ}"
        covered = range(start // SECOND, (through or start) // SECOND + 1)
        assert len(covered) == count
        found.update(covered)
    assert found == planned, f"{entry}: missing {planned - found}, double {found - planned}"
    return planned.total()


def nothing_is_unexplained(home: Home) -> list[str]:
    """Return the receipts by status and reason; each agrees with what its agent was told."""
    effects = effects_of(home)
    told = Counter((each.entry, each.key) for each in effects)
    assert max(told.values()) == 1, f"told twice: {told.most_common(3)}"
    per_run = Counter(each.run for each in effects)
    reasons: Counter[str] = Counter()
    for number, entry, key, status, reason in home.rows(
        "SELECT number, entry, key, status, reason FROM receipt"
    ):
        assert status in OVER, f"{key} of {entry} is {status} after the stop"
        assert reason, f"{key} of {entry} is {status}, and nobody says why"
        was_told = told.pop((entry, key), 0)
        runs = home.rows("SELECT number, outcome, ended_at FROM run WHERE receipt = ?", number)
        assert all(ended_at is not None for _, _, ended_at in runs)
        released = [run for run, outcome, _ in runs if outcome is not None]
        assert len(released) <= 1, f"{key} of {entry} was let go {len(released)} times"
        assert sum(per_run.pop(run, 0) for run in released) == was_told
        if status == "done":
            assert was_told, f"{key} of {entry} is done, and its agent was told nothing"
        if was_told:
            assert status in FIRED
        reasons[f"{status}: {re.sub(r'[0-9]+', 'N', reason)}"] += 1
    assert not told, f"told without a dispatch: {told}"
    assert not per_run, f"told by runs that the ledger does not know: {per_run}"
    return [f"{len(effects)} prompts", *(f"{n:6} {each}" for each, n in reasons.most_common())]
