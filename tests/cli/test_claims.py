"""`claim`, `release` and `done` as a person or an agent types them."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from calling import Call
from horae.core.actor import user_name
from horae.core.clock import SystemClock
from horae.core.ports import Event
from horae.store.sqlite import SqliteLedger

USER = user_name(os.getuid())
STATES = "#+TODO: TODO DOING | DONE\n"


def git(*words: str) -> str:
    who = ("-c", "user.name=ada", "-c", "user.email=ada@example.org")
    command = ["git", "-c", "init.defaultBranch=main", *who, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    file = tmp_path / "plan.org"
    file.write_text(f"{STATES}* TODO Sow\n* TODO Water\nSCHEDULED: <2026-06-01 Mon +1d>\n")
    return file


def test_a_task_is_claimed_and_given_back(call: Call, plan: Path) -> None:
    ending = call("claim", "plan.org", "Sow", "--agent", "wren", "--ttl", "2h", "--json")
    assert ending.code == 0
    assert ending.data["until"].endswith("Z")
    assert {**ending.data, "until": None} == {
        "file": "plan.org", "id": "Sow", "title": "Sow", "state": "DOING", "agent": "wren",
        "until": None, "changed": True, "commit": None, "pushed": False, "note": None,
    }  # fmt: skip
    assert "* DOING Sow\n" in plan.read_text()
    ending = call("release", "plan.org", "Sow", "--agent", "wren", "--table")
    assert (ending.code, ending.out) == (0, "plan.org: Sow: released\n")
    assert "AGENT" not in plan.read_text()


def test_people_read_sentences(call: Call, plan: Path) -> None:
    assert call("claim", "plan.org", "Sow", "--agent", "wren", "--table").out == (
        "plan.org: Sow: claimed for wren\n"
    )
    assert call("claim", "plan.org", "Sow", "--agent", "wren", "--table").out == (
        "plan.org: Sow: already claimed by wren\n"
    )
    assert call("release", "plan.org", "Water", "--agent", "wren", "--table").out == (
        "plan.org: Water: not claimed\n"
    )


def test_a_claim_in_a_file_that_git_does_not_track_says_that_it_is_not_committed(
    call: Call, plan: Path
) -> None:
    git("init", "-q", ".")
    said = "saved, not committed: the file is not tracked by git"
    assert call("claim", plan.name, "Sow", "--agent", "wren", "--table").out == (
        f"plan.org: Sow: claimed for wren\n{said}\n"
    )
    assert call("claim", plan.name, "Sow", "--agent", "wren", "--table").out == (
        "plan.org: Sow: already claimed by wren\nnot committed: the file is not tracked by git\n"
    )
    assert call("release", plan.name, "Sow", "--agent", "wren", "--json").data["note"] == said


def test_a_lost_claim_is_exit_code_six_and_names_the_winner(call: Call, plan: Path) -> None:
    call("claim", "plan.org", "Sow", "--agent", "wren")
    ending = call("claim", "plan.org", "Sow", "--agent", "moss")
    assert (ending.code, ending.err) == (
        6,
        "horae: plan.org: Sow: claimed by wren; claim another headline\n",
    )


def test_a_file_without_the_state_is_a_matter_of_usage(call: Call, plan: Path) -> None:
    plan.write_text("* TODO Sow\n")
    ending = call("claim", "plan.org", "Sow", "--agent", "wren")
    assert ending.code == 2
    assert "#+TODO: TODO DOING | DONE" in ending.err


def test_an_origin_on_this_machine_is_asked_where_the_settings_or_the_person_say_so(
    call: Call, plan: Path, tmp_path: Path
) -> None:
    origin = tmp_path / "side" / "origin.git"
    git("init", "-q", "--bare", str(origin))
    git("init", "-q", ".")
    git("add", "plan.org")
    git("commit", "-qm", "Begin")
    git("remote", "add", "origin", str(origin))
    git("push", "-q", "origin", "main")
    refused = call("claim", "plan.org", "Sow", "--agent", "wren")
    assert refused.code == 2
    assert "list it in the setting git.local" in refused.err
    assert "* TODO Sow\n" in plan.read_text()
    taken = call("claim", "plan.org", "Sow", "--agent", "wren", "--local", "--json")
    assert (taken.code, taken.data["pushed"]) == (0, True)
    (tmp_path / "horae.toml").write_text("git.local = ['side/origin.git']\n")
    free = call("release", "plan.org", "Sow", "--agent", "wren", "--json")
    assert (free.code, free.data["pushed"]) == (0, True)
    again = call("claim", "plan.org", "Sow", "--agent", "moss", "--json")
    assert (again.code, again.data["pushed"]) == (0, True)
    said = git("--git-dir", str(origin), "log", "--format=%an %s", "main").splitlines()
    assert said[:3] == [
        "moss Claim Sow for moss",
        "wren Release Sow by wren",
        "wren Claim Sow for wren",
    ]


@pytest.mark.parametrize("is_relative", [False, True])
def test_an_agent_in_its_clone_asks_the_origin_that_the_plan_root_means(
    call: Call, plan: Path, tmp_path: Path, *, is_relative: bool
) -> None:
    home = tmp_path / "home" / "plans"
    home.mkdir(parents=True)
    origin = home.parent / "origin.git"
    git("init", "-q", "--bare", str(origin))
    plan.rename(home / "plan.org")
    (home / "horae.toml").write_text("git.local = ['../origin.git']\ncrew.def = 'crew.org'\n")
    (home / "crew.org").write_text("* wren\n:PROPERTIES:\n:DEF: wren.org\n:END:\n")
    # The tick has the ledger and never listens: nobody has to wait until it would.
    script = "from horae.cli import connection, main; connection.STARTING = connection.BRIEF; main.main()"
    claim = f"{sys.executable} -c '{script}' claim plan.org Sow --agent wren"
    (home / "wren.org").write_text(
        f"* wren :agent:\n:PROPERTIES:\n:COMMAND: {claim}\n:END:\nYou write.\n"
    )
    git("init", "-q", str(home))
    git("-C", str(home), "add", ".")
    git("-C", str(home), "commit", "-qm", "Begin")
    address = "../origin.git" if is_relative else str(origin)
    git("-C", str(home), "remote", "add", "origin", address)
    git("-C", str(home), "push", "-q", "origin", "main")
    # Neither from above, nor from its clone in the data directory, is ../origin.git the same.
    ending = call("agent", "tick", "wren", "--root", "home/plans", "--table")
    assert ending.code == 0, ending
    assert git("--git-dir", str(origin), "log", "--format=%an %s", "main").splitlines() == [
        "wren Claim Sow for wren",
        "ada Begin",
    ]


def test_a_headline_is_done(call: Call, plan: Path) -> None:
    ending = call("done", "plan.org", "Sow", "--at", "2026-06-09 12:00", "--table")
    assert (ending.code, ending.out) == (0, "plan.org:2: Sow: DONE\n")
    assert "* DONE Sow\nCLOSED: [2026-06-09 Tue 12:00]\n" in plan.read_text()
    again = call("done", "plan.org", "Sow", "--table")
    assert (again.code, again.out) == (0, "plan.org:2: Sow: was DONE already\n")


def test_a_headline_that_repeats_comes_round_again(call: Call, plan: Path) -> None:
    ending = call("done", "plan.org", "Water", "--at", "2026-06-09T12:00:00Z", "--jsonl")
    assert ending.data == {
        "file": "plan.org", "line": 3, "title": "Water", "before": "TODO", "after": "TODO",
        "moved": [{"from": "<2026-06-01 Mon +1d>", "to": "<2026-06-02 Tue +1d>"}],
        "changed": True, "commit": None, "note": None,
    }  # fmt: skip
    ending = call("done", "plan.org", "Water", "--at", "2026-06-09T12:00:00Z", "--table")
    assert ending.out == (
        "plan.org:3: Water: done, and repeats\n<2026-06-02 Tue +1d> -> <2026-06-03 Wed +1d>\n"
    )


def test_an_entry_that_no_longer_runs_is_told(call: Call, plan: Path) -> None:
    for rule in (":SCHEDULE: 0 3 * * *", ":AFTER: failed"):
        plan.write_text(f"* Back up\n:PROPERTIES:\n{rule}\n:COMMAND: true\n:END:\n")
        said = call("done", "plan.org", "Back up", "--table").out.splitlines()
        assert said[:2] == [
            "plan.org:1: Back up: DONE",
            "the entry no longer runs; to run it again, remove the state DONE",
        ]
    plan.write_text("* Back up\n:PROPERTIES:\n:SCHEDULE: 0 3 * * *\n:END:\n")
    assert "no longer runs" not in call("done", "plan.org", "Back up", "--table").out


def test_an_unknown_headline_is_not_found(call: Call, plan: Path) -> None:
    ending = call("done", "plan.org", "Sowing")
    assert (ending.code, ending.err) == (
        4,
        "horae: plan.org: no headline has the :ID: or the title 'Sowing'; did you mean 'Sow'?\n",
    )


def test_what_is_done_is_committed_in_the_name_of_who_did_it(
    call: Call, plan: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(plan.parent / "nobody"))
    git("init", "-q", ".")
    git("add", "plan.org")
    git("commit", "-qm", "Begin")
    call("done", "plan.org", "Water")
    by = "--format=%an <%ae>, %cn"
    assert git("show", "-s", by) == f"{USER} <{USER}@horae.localhost>, horae\n"
    git("config", "user.name", "Ada Lovelace")
    git("config", "user.email", "ada@example.org")
    call("done", "plan.org", "Water")
    assert git("show", "-s", by) == "Ada Lovelace <ada@example.org>, horae\n"


def test_an_edit_of_a_plan_or_a_task_is_recorded_with_who_made_it(call: Call, plan: Path) -> None:
    (plan.parent / "board" / "tasks").mkdir(parents=True)
    call("claim", "plan.org", "Sow", "--agent", "wren")
    assert not (plan.parent / ".horae").exists(), "no ledger is made for it"
    asyncio.run(kept(plan.parent / ".horae"))
    (plan.parent / "jobs.txt").write_text("0 3 * * * true\n0 4 * * * false\n")
    for line in (
        "claim plan.org Sow --agent wren",  # it was so already
        "release plan.org Sow --agent wren",
        "done plan.org Water",
        "task add Weed",
        "task transition 1 todo",
        "import crontab jobs.txt --into plan.org",
    ):
        assert call(*line.split()).code == 0
    events = asyncio.run(kept(plan.parent / ".horae"))
    assert {(each.kind, each.actor) for each in events} == {("edited", f"cli:{USER}")}
    assert [(each.facts["file"], each.facts["what"]) for each in events] == [
        ("plan.org", "Sow: released"),
        ("plan.org", "Water: done"),
        ("board/tasks/001-weed.md", "Task #1 added: board/tasks/001-weed.md"),
        ("board/tasks/001-weed.md", "Task #1 transitioned to todo."),
        ("plan.org", "2 jobs imported"),
    ]


async def kept(directory: Path) -> list[Event]:
    """Return what the ledger of a directory, which is made if there is none, has of events."""
    ledger = await SqliteLedger.open(directory, now=SystemClock().now())
    events = await ledger.events_after(0)
    await ledger.close()
    return events


def test_what_is_done_is_committed_alone_and_without_hooks(call: Call, plan: Path) -> None:
    git("init", "-q", ".")
    git("add", "plan.org")
    git("commit", "-qm", "Begin")
    hook = plan.parent / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    (plan.parent / "notes.txt").write_text("a person's own\n")
    git("add", "notes.txt")
    ending = call("done", "plan.org", "Water", "--at", "2026-06-09 12:00", "--table")
    sha = git("rev-parse", "HEAD").strip()
    assert ending.out.splitlines() == [
        "plan.org:3: Water: done, and repeats",
        "<2026-06-01 Mon +1d> -> <2026-06-02 Tue +1d>",
        f"committed as {sha[:12]}",
    ]
    assert git("show", "--format=%cn: %s", "--name-only") == "horae: Complete Water\n\nplan.org\n"
    assert git("status", "--porcelain") == "A  notes.txt\n"
    assert call("done", "plan.org", "Sow", "--json").data["commit"] == (
        git("rev-parse", "HEAD").strip()
    )


def test_beside_a_persons_own_changes_what_is_done_is_not_committed(call: Call, plan: Path) -> None:
    git("init", "-q", ".")
    git("add", "plan.org")
    git("commit", "-qm", "Begin")
    plan.write_text(f"{plan.read_text()}* TODO Weed\n")
    ending = call("done", "plan.org", "Sow", "--json")
    assert (ending.code, ending.data["changed"], ending.data["commit"]) == (0, True, None)
    assert "saved, not committed" in ending.data["note"]
    assert "* DONE Sow" in plan.read_text()
    assert git("log", "--format=%s") == "Begin\n"
