"""Kill anything at any moment: every moment keeps its one receipt, and nothing happens twice."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from random import Random

import pytest

from crash.audit import audit, effects_of
from crash.life import STEPS
from crash.stage import Home, Life, below, entry, snapshot, until_gone
from scale import scaled

GONE = 2.0  # seconds, on a machine that does nothing else
SLOTS = {"HORAE_GATE_SLOTS": "16", "HORAE_RUN_DRAIN": "5s"}


def motley(home: Home) -> tuple[str, ...]:
    """Return entries of every kind, each of them due every second."""
    return (
        entry("Quick", home.effect()),
        entry("Late", home.effect(), catchup="all"),
        entry("Queued", home.effect(0.3), catchup="all", overlap="queue"),
        entry("Slow", home.effect(0.8)),
        entry("Crowd", home.effect(1.2), overlap="allow"),
        entry("Again", home.effect(0.05, 3), retry="2 1s", catchup="none"),
        entry("Stubborn", f"sh -c 'trap \"\" TERM; {home.effect(0.6)}; exit 0'", retry="1 1s"),
    )


def strike(life: Life, victim: str) -> float | None:
    """Kill one of a life's processes and return how long its own lived on; None: there is none."""
    if victim == "engine":
        life.kill()
        return None
    everyone = snapshot(life.home.data)
    launcher = life.launcher()
    supervisors = [each for each in life.supervisors() if below([each], everyone)]  # none rests
    targets = [launcher] if victim == "launcher" else supervisors[:1]
    if not targets or targets[0] is None:
        return None
    orphans = [] if victim == "launcher" else below([targets[0]], everyone)
    try:
        os.kill(targets[0].pid, signal.SIGKILL)
    except ProcessLookupError:
        return None
    return until_gone(lambda: orphans, within=GONE)


@pytest.mark.parametrize("seed", [1, 2])
def test_whatever_is_killed_each_moment_has_one_receipt_and_no_effect_comes_twice(
    home: Home, seed: int
) -> None:
    home.write(*motley(home))
    dice = Random(seed)
    struck: Counter[str] = Counter()
    worst = 0.0
    life = home.up(settings=SLOTS)
    while struck.total() < scaled(150):
        victim = dice.choice(["engine", "engine", "launcher", "supervisor"])
        if dice.random() < 0.8:  # else while it still takes over from the one before
            life.begun()
        time.sleep(dice.uniform(0.3, 1.5))
        assert life.process.poll() is None, life.said()
        lived_on = strike(life, victim)
        if victim == "engine":
            dead, life = life, home.up(settings=SLOTS)
            lived_on = until_gone(dead.remains, within=GONE)
        if lived_on is not None:
            struck[victim] += 1
            worst = max(worst, lived_on)
    life.begun()
    seen = home.count("status = 'done'")
    life.until(lambda: home.count("status = 'done'") > seen)
    assert life.stop() == 0
    assert not life.remains()

    account = audit(home, alone=("Quick", "Late", "Queued", "Slow", "Again", "Stubborn"))
    print(f"seed {seed}: {dict(struck)}, worst {worst:.2f} s, {account}")
    assert "bug in horae" not in home.said()
    assert "Traceback" not in home.said()
    assert (home.data / "launcher.log").read_text() == ""


def test_a_crash_at_any_step_of_a_run_loses_nothing_and_repeats_nothing(home: Home) -> None:
    home.write(
        entry("Quick", home.effect(), catchup="all", overlap="allow"),
        entry("Other", home.effect(), catchup="all", overlap="queue"),
        # What no alert can follow is settled with its end.
        "* Call me :workflow:\n:PROPERTIES:\n:AFTER: missed of Nobody\n:COMMAND: true\n:END:\n",
    )
    # One slot, and the second time: the receipt that an engine died over runs through in the
    # next life, before that dies over another one.
    one_slot = {"HORAE_GATE_SLOTS": "1"}
    died: dict[str, list[str]] = {}
    worst = 0.0
    for step in STEPS:
        for _ in range(scaled(10)):
            is_recovery = "taken over" in step
            if is_recovery:  # so that there is something to take over
                assert (
                    home.up(die=("after running", 2), settings=one_slot).ended() == -signal.SIGKILL
                )
            life = home.up(die=(step, 1 if is_recovery else 2), settings=one_slot)
            assert life.ended() == -signal.SIGKILL, f"{step}: {life.said()}"
            died.setdefault(step, []).append(life.died_over())
            worst = max(worst, until_gone(life.remains, within=GONE))
    life = home.up().begun()
    life.until(lambda: home.count("status = 'waiting' AND attempts = 0") == 0)
    assert life.stop() == 0

    account = audit(home)
    print(f"{sum(map(len, died.values()))} aimed kills, worst {worst:.2f} s: {account}")
    for step, those in died.items():
        for about in those:
            told = how_it_ended(home, about)
            assert told in expected(step), f"{step}, {about}: {told}"
    assert "bug in horae" not in home.said()


def expected(step: str) -> set[tuple[str, int]]:
    """Return how a receipt may end over which an engine died at a step: its status and effects."""
    if step == "after go":  # it may be over before it is noticed that nobody listens
        return {("done", 1), ("interrupted", 1), ("interrupted", 0)}
    if "decided" in step:
        return {("", 0)}
    return {("done", 1)}


def how_it_ended(home: Home, about: str) -> tuple[str, int]:
    """Return the status of the receipt that a note names, and how many effects it had."""
    kind, _, number = about.partition(" ")
    if kind == "nobody":
        return "", 0
    if kind == "run":
        # A run whose opening was not kept has no row: its number was given again.
        number = str(home.rows("SELECT receipt FROM run WHERE number = ?", int(number))[0][0])
    found = home.rows("SELECT entry, key, status FROM receipt WHERE number = ?", int(number))
    owner, key, status = found[0]
    return status, sum(1 for each in effects_of(home) if (each.entry, each.key) == (owner, key))


def test_what_three_engines_died_over_is_set_aside_and_says_so(home: Home) -> None:
    home.write(entry("Poison", home.effect(), catchup="all"))
    for _ in range(3):
        life = home.up(die=("after running", 1), settings={"HORAE_GATE_SLOTS": "1"})
        assert life.ended() == -signal.SIGKILL
    life = home.up()
    life.until(lambda: home.count("status = 'failed'"))
    life.until(lambda: home.count("status = 'done'"))
    assert life.stop() == 0
    told = home.rows("SELECT reason, attempts FROM receipt WHERE status = 'failed'")
    assert told == [("given up: the engine exited 3 times while starting the run", told[0][1])]
    audit(home)


def test_runs_die_with_their_engine_however_they_hide(home: Home) -> None:
    from process.stage import HOSTILE

    hostile = home.place / "hostile.sh"
    hostile.write_text(HOSTILE)
    home.write(*(entry(f"Hostile {each}", f"sh {hostile}") for each in range(4)))
    life = home.up(settings={"HORAE_GATE_SLOTS": "4"}).begun()
    life.until(lambda: len([each for each in life.remains() if each.life]) >= 4 * 6)
    life.kill()
    took = until_gone(life.remains, within=GONE)
    print(f"hostile trees were gone after {took:.2f} s")
    after = home.up()
    after.until(lambda: home.count("status = 'interrupted'") >= 4)
    after.kill()
    until_gone(after.remains, within=GONE)
    reasons = home.rows("SELECT DISTINCT reason FROM receipt WHERE status = 'interrupted'")
    assert reasons == [("the engine exited during the run",)]


def test_a_run_dies_with_its_supervisor_also_if_its_launcher_died_before(home: Home) -> None:
    home.write(entry("Slow", home.effect(8)))
    life = home.up().begun()
    life.until(lambda: [each for each in life.remains() if each.life])
    everyone = snapshot(home.data)
    (supervisor,) = life.supervisors()
    launcher = life.launcher()
    assert launcher is not None
    os.kill(launcher.pid, signal.SIGKILL)
    until_gone(lambda: [launcher], within=GONE)
    os.kill(supervisor.pid, signal.SIGKILL)
    until_gone(lambda: below([supervisor], everyone), within=GONE)
    life.until(lambda: home.count("status = 'interrupted'"))
