"""Claims: one of two agents has a task, everybody can see which, and nothing else changes."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, strategies as st

from horae.files.read import PlanFileError
from horae.org.document import read
from horae.sources.plans.claims import (
    ClaimBusyError,
    ClaimLostError,
    ClaimRefusedError,
    ClaimResult,
    HeadlineClaim,
)
from horae.sources.plans.done import HeadlineMissingError
from scale import scaled

if TYPE_CHECKING:
    from pathlib import Path

NOW = datetime(2026, 6, 6, 9, tzinfo=UTC)
STATES = "#+TODO: TODO NEXT DOING | DONE\n"
PLAN = f"{STATES}* NEXT Sow\nbeans\n* TODO Mow\n:PROPERTIES:\n:ID: mow\n:END:\nlawn\n"


def take(file: Path, name: str = "Sow", agent: str = "wren", **more: object) -> ClaimResult:
    ttl = more.pop("ttl", None)
    mine = HeadlineClaim(file, name, agent=agent, **{"now": NOW, **more})  # type: ignore[arg-type]
    return asyncio.run(mine.claim(ttl))  # type: ignore[arg-type]


def give_back(file: Path, name: str = "Sow", agent: str = "wren", **more: object) -> ClaimResult:
    mine = HeadlineClaim(file, name, agent=agent, **{"now": NOW, **more})  # type: ignore[arg-type]
    return asyncio.run(mine.release())


def git(*args: str, at: Path) -> str:
    """Call git as a person does."""
    who = ["-c", "user.name=ada", "-c", "user.email=ada@example.org"]
    command = ["git", "-c", "init.defaultBranch=main", *who, *args]
    return subprocess.run(command, cwd=at, capture_output=True, check=True, text=True).stdout


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    """Return a plan that is not under git."""
    file = tmp_path / "plan.org"
    file.write_text(PLAN)
    return file


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("claims")
    git("init", "-q", "--bare", "origin.git", at=root)
    git("clone", "-q", "origin.git", "wren", at=root)
    (root / "wren/plan.org").write_text(PLAN)
    git("add", ".", at=root / "wren")
    git("commit", "-qm", "Plan", at=root / "wren")
    git("push", "-q", "origin", "main", at=root / "wren")
    git("clone", "-q", "origin.git", "moss", at=root)
    return root


@pytest.fixture
def shared(template: Path, tmp_path: Path) -> Path:
    """Return a directory with an origin and the clones of wren and moss."""
    root = tmp_path / "shared"
    shutil.copytree(template, root)
    for name in ("wren", "moss"):
        config = root / name / ".git/config"
        config.write_text(config.read_text().replace(str(template), str(root)))
    return root


# Without git.


def test_a_claim_is_a_state_and_a_name(plan: Path) -> None:
    made = take(plan)
    assert (made.state, made.agent, made.commit) == ("DOING", "wren", None)
    assert plan.read_text() == PLAN.replace(
        "* NEXT Sow\n", "* DOING Sow\n:PROPERTIES:\n:AGENT: wren\n:END:\n"
    )


def test_a_task_is_found_by_its_id_and_its_drawer_is_used(plan: Path) -> None:
    take(plan, "mow")
    assert "* DOING Mow\n:PROPERTIES:\n:ID: mow\n:AGENT: wren\n:END:\nlawn\n" in plan.read_text()


def test_a_claimed_task_is_not_claimed_again_by_another(plan: Path) -> None:
    take(plan)
    before = plan.read_bytes()
    with pytest.raises(ClaimLostError, match="claimed by wren; claim another") as caught:
        take(plan, agent="moss")
    assert (caught.value.winner, caught.value.exit_code) == ("wren", 6)
    assert plan.read_bytes() == before


def test_a_task_that_somebody_does_without_a_claim_is_taken(plan: Path) -> None:
    plan.write_text(PLAN.replace("NEXT Sow", "DOING Sow"))
    with pytest.raises(ClaimLostError, match="an unnamed agent"):
        take(plan)


def test_an_agent_may_claim_again_what_it_has(plan: Path) -> None:
    take(plan)
    before = plan.read_bytes()
    assert not take(plan).is_changed
    assert plan.read_bytes() == before


def test_a_claim_with_an_end_says_when_and_is_renewed(plan: Path) -> None:
    made = take(plan, ttl=timedelta(hours=2))
    assert made.until == NOW + timedelta(hours=2)
    assert ":CLAIMED-UNTIL: 2026-06-06T11:00:00Z\n" in plan.read_text()
    take(plan, ttl=timedelta(hours=2), now=NOW + timedelta(hours=1))
    assert plan.read_text().count("CLAIMED-UNTIL: 2026-06-06T12:00:00Z") == 1


def test_a_claim_that_has_outlived_its_end_may_be_taken_by_others(plan: Path) -> None:
    take(plan, ttl=timedelta(hours=2))
    with pytest.raises(ClaimLostError, match="until 2026-06-06T11:00:00Z"):
        take(plan, agent="moss", now=NOW + timedelta(hours=2, seconds=-1))
    made = take(plan, agent="moss", now=NOW + timedelta(hours=2))
    assert (made.agent, made.until) == ("moss", None)
    assert "CLAIMED-UNTIL" not in plan.read_text()


def test_an_end_that_cannot_be_read_has_not_come(plan: Path) -> None:
    take(plan, ttl=timedelta(hours=2))
    plan.write_text(plan.read_text().replace("2026-06-06T11:00:00Z", "soon"))
    with pytest.raises(ClaimLostError, match="until soon"):
        take(plan, agent="moss", now=NOW + timedelta(days=900))


def test_a_file_without_the_state_is_told_the_line_to_add(plan: Path) -> None:
    plan.write_text("#+TODO: IDEA DRAFT | SENT\n* IDEA Sow\n")
    with pytest.raises(ClaimRefusedError, match=r"`#\+TODO: IDEA DRAFT DOING \| SENT`"):
        take(plan)
    plan.write_text("* TODO Sow\n")
    with pytest.raises(ClaimRefusedError, match=r"`#\+TODO: TODO DOING \| DONE`"):
        take(plan)


def test_a_task_that_is_done_is_not_claimed(plan: Path) -> None:
    plan.write_text(PLAN.replace("NEXT Sow", "DONE Sow"))
    with pytest.raises(ClaimRefusedError, match="is already DONE"):
        take(plan)


def test_an_agents_name_is_one_word(plan: Path) -> None:
    with pytest.raises(ClaimRefusedError, match="not a valid agent name"):
        take(plan, agent="wren\n:X: y")
    assert plan.read_text() == PLAN


def test_what_is_given_back_is_open_and_others_may_take_it(plan: Path) -> None:
    take(plan, ttl=timedelta(hours=2))
    assert give_back(plan).state == "TODO"
    assert plan.read_text() == PLAN.replace("NEXT Sow", "TODO Sow")
    assert take(plan, agent="moss").agent == "moss"


def test_only_its_own_agent_gives_a_task_back(plan: Path) -> None:
    take(plan)
    with pytest.raises(ClaimLostError, match="claimed by wren"):
        give_back(plan, agent="moss")
    assert ":AGENT: wren" in plan.read_text()


def test_giving_back_what_nobody_has_changes_nothing(plan: Path) -> None:
    assert not give_back(plan).is_changed
    assert plan.read_text() == PLAN


def test_a_task_that_was_finished_stays_finished_when_it_is_given_back(plan: Path) -> None:
    take(plan)
    plan.write_text(plan.read_text().replace("DOING Sow", "DONE Sow"))
    assert give_back(plan).state == "DONE"


@given(
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from(["", ":PROPERTIES:\n:ID: sow\n:END:\n", "SCHEDULED: <2026-06-06 Sat>\n"]),
    st.text(
        st.characters(exclude_characters="*#:\r\n", exclude_categories=("Cs", "Cc")), max_size=9
    ),
)
def test_a_claim_that_is_given_back_leaves_every_byte_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, newline: str, under: str, body: str
) -> None:
    file = tmp_path_factory.mktemp("bytes") / "plan.org"
    text = f"\ufeff{STATES}* TODO Sow :x:\n{under}{body}".replace("\n", newline)
    file.write_bytes(text.encode())
    take(file)
    assert read(file.read_bytes().decode()).headlines[0].props["AGENT"] == "wren"
    give_back(file)
    assert file.read_bytes() == text.encode()


# In git.


def test_without_an_origin_a_claim_is_a_commit(shared: Path) -> None:
    tree = shared / "wren"
    git("remote", "remove", "origin", at=tree)
    made = take(tree / "plan.org")
    assert made.commit == git("rev-parse", "HEAD", at=tree).strip()
    assert git("log", "-1", "--format=%an: %s", at=tree) == "wren: Claim Sow for wren\n"
    assert "* DOING Sow\n" in (tree / "plan.org").read_text()
    assert git("status", "--porcelain", at=tree) == ""
    assert not take(tree / "plan.org").is_changed
    give_back(tree / "plan.org")
    assert git("log", "-1", "--format=%s", at=tree) == "Release Sow by wren\n"


def test_a_persons_unsaved_work_is_not_claimed_over(shared: Path) -> None:
    tree = shared / "wren"
    git("remote", "remove", "origin", at=tree)
    head = git("rev-parse", "HEAD", at=tree)
    (tree / "plan.org").write_text(f"{PLAN}a person is writing\n")
    why = "because the file has uncommitted changes; commit or stash them first"
    with pytest.raises(ClaimBusyError, match=f"Sow: not claimed, {why}"):
        take(tree / "plan.org")
    assert (tree / "plan.org").read_text() == f"{PLAN}a person is writing\n"
    assert git("rev-parse", "HEAD", at=tree) == head
    git("checkout", "plan.org", at=tree)
    take(tree / "plan.org")
    claimed = (tree / "plan.org").read_text()
    (tree / "plan.org").write_text(f"{claimed}a person is writing\n")
    with pytest.raises(ClaimBusyError, match=f"Sow: not released, {why}"):
        give_back(tree / "plan.org")


def test_a_file_that_git_does_not_keep_is_only_edited(shared: Path) -> None:
    (shared / "wren/own.org").write_text(PLAN)
    assert take(shared / "wren/own.org").commit is None
    assert git("status", "--porcelain", at=shared / "wren") == "?? own.org\n"


def test_with_an_origin_a_claim_is_pushed_and_the_next_one_sees_it(shared: Path) -> None:
    made = take(shared / "wren/plan.org", local=[shared / "origin.git"])
    assert made.is_pushed
    assert made.commit == git("rev-parse", "main", at=shared / "origin.git").strip()
    assert "* DOING Sow\n" in (shared / "wren/plan.org").read_text()
    with pytest.raises(ClaimLostError, match="claimed by wren"):
        take(shared / "moss/plan.org", agent="moss", local=[shared / "origin.git"])
    # The one who lost sees why, and has nothing to undo.
    assert ":AGENT: wren" in (shared / "moss/plan.org").read_text()
    assert git("status", "--porcelain", "--branch", at=shared / "moss") == "## main...origin/main\n"


def test_a_claim_pushes_no_other_work_of_its_agent(shared: Path) -> None:
    (shared / "wren/draft.org").write_text("not finished\n")
    git("add", ".", at=shared / "wren")
    git("commit", "-qm", "Draft", at=shared / "wren")
    take(shared / "wren/plan.org", local=[shared / "origin.git"])
    assert "draft" not in git("ls-tree", "--name-only", "main", at=shared / "origin.git")
    assert (shared / "wren/draft.org").exists()
    assert "* DOING Sow\n" in (shared / "wren/plan.org").read_text()


def test_a_claim_stands_also_where_a_persons_work_keeps_the_tree_back(shared: Path) -> None:
    (shared / "wren/plan.org").write_text("a person is writing\n")
    made = take(shared / "wren/plan.org", local=[shared / "origin.git"])
    assert made.is_pushed
    assert "the working tree was not updated" in (made.note or "")
    assert (shared / "wren/plan.org").read_text() == "a person is writing\n"


def test_a_task_that_was_not_pushed_yet_is_told_apart_from_none(shared: Path) -> None:
    (shared / "wren/plan.org").write_text(f"{PLAN}* TODO New\n")
    with pytest.raises(PlanFileError, match="commit and push it first"):
        take(shared / "wren/plan.org", "New", local=[shared / "origin.git"])
    with pytest.raises(HeadlineMissingError):
        take(shared / "wren/plan.org", "Nowhere", local=[shared / "origin.git"])


@pytest.mark.parametrize("then", ["commit", "commit and push"])
def test_what_counts_under_git_is_the_committed_file_and_a_refusal_says_so(
    shared: Path, then: str
) -> None:
    home, file, local = shared / "wren", shared / "wren/plan.org", [shared / "origin.git"]
    file.write_text("* TODO Sow\n")
    git("commit", "-qam", "No state", at=home)
    if then == "commit":
        git("remote", "remove", "origin", at=home)
    else:
        git("push", "-q", "origin", "main", at=home)
    file.write_text("#+TODO: TODO DOING | DONE\n* TODO Sow\n* TODO New\n")
    said = "the committed file has no state DOING; add the line `#+TODO: TODO DOING | DONE` at the"
    with pytest.raises(ClaimRefusedError, match=re.escape(f"{said} top and {then} it")):
        take(file, local=local)
    with pytest.raises(PlanFileError, match=f"is only in the working tree; {then} it first"):
        take(file, "New", local=local)
    git("commit", "-qam", "The state", at=home)
    if then == "commit and push":
        git("push", "-q", "origin", "main", at=home)
    assert take(file, local=local).is_changed


def test_a_task_that_is_done_in_the_committed_file_is_not_claimed(shared: Path) -> None:
    file = shared / "wren/plan.org"
    git("remote", "remove", "origin", at=shared / "wren")
    file.write_text(PLAN.replace("NEXT Sow", "DONE Sow"))
    git("commit", "-qam", "Done", at=shared / "wren")
    file.write_text(PLAN)
    with pytest.raises(ClaimRefusedError, match="is already DONE in the committed file"):
        take(file)


def test_an_origin_that_is_away_is_a_matter_of_time(shared: Path) -> None:
    shutil.move(shared / "origin.git", shared / "away.git")
    with pytest.raises(ClaimBusyError, match="origin cannot be reached") as caught:
        take(shared / "wren/plan.org", local=[shared / "origin.git"])
    assert caught.value.exit_code == 75
    assert (shared / "wren/plan.org").read_text() == PLAN


def test_a_claim_with_an_origin_needs_a_branch(shared: Path) -> None:
    git("switch", "-q", "--detach", at=shared / "wren")
    said = "nothing is changed: no branch is checked out; switch to one with `git switch`"
    with pytest.raises(ClaimRefusedError, match=said):
        take(shared / "wren/plan.org", local=[shared / "origin.git"])


def _while_pushing(shared: Path, commit: str) -> None:
    """Let the origin's branch go to another commit in the middle of the next push."""
    hook = shared / "origin.git/hooks/pre-receive"
    hook.parent.mkdir(exist_ok=True)
    move = f"env -u GIT_QUARANTINE_PATH git update-ref refs/heads/main {commit}"
    hook.write_text(f"#!/bin/sh\n[ -e once ] || {{ touch once; {move}; }}\n")
    hook.chmod(0o755)


def test_a_push_that_comes_second_loses_and_both_facts_are_kept(shared: Path) -> None:
    base = git("rev-parse", "main", at=shared / "origin.git").strip()
    theirs = take(shared / "moss/plan.org", agent="moss", local=[shared / "origin.git"]).commit
    git("update-ref", "refs/heads/main", base, at=shared / "origin.git")
    assert theirs is not None
    _while_pushing(shared, theirs)
    with pytest.raises(ClaimLostError, match="claimed by moss"):
        take(shared / "wren/plan.org", local=[shared / "origin.git"])
    assert git("rev-parse", "HEAD", at=shared / "wren").strip() == theirs
    assert git("status", "--porcelain", at=shared / "wren") == ""
    attempt = git("log", "-1", "--format=%s", "refs/horae/proposed/wren", at=shared / "wren")
    assert attempt == "Claim Sow for wren\n"


def test_a_push_that_comes_second_to_something_else_is_tried_again(shared: Path) -> None:
    base = git("rev-parse", "main", at=shared / "origin.git").strip()
    other = take(
        shared / "moss/plan.org", "mow", agent="moss", local=[shared / "origin.git"]
    ).commit
    git("update-ref", "refs/heads/main", base, at=shared / "origin.git")
    assert other is not None
    _while_pushing(shared, other)
    made = take(shared / "wren/plan.org", local=[shared / "origin.git"])
    assert made.is_pushed
    assert made.commit is not None
    assert git("rev-parse", f"{made.commit}^", at=shared / "origin.git").strip() == other


_RACER = """
import asyncio, sys
from datetime import UTC, datetime
from horae.sources.plans.claims import ClaimLostError, HeadlineClaim
file, agent, origin = sys.argv[1:]
for line in sys.stdin:
    try:
        mine = HeadlineClaim(
            file, line.strip(), agent=agent, now=datetime.now(UTC), local=[origin]
        )
        asyncio.run(mine.claim())
        print("won", flush=True)
    except ClaimLostError as error:
        print(error.winner, flush=True)
"""


def test_of_two_agents_that_race_exactly_one_wins_each_time(shared: Path) -> None:
    races = max(4, scaled(50))
    tasks = [f"task-{number}" for number in range(races)]
    text = STATES + "".join(f"* TODO {task}\n\n\n\n" for task in tasks)
    for agent in ("wren", "moss"):
        git("pull", "-q", at=shared / agent)
        if agent == "wren":
            (shared / "wren/plan.org").write_text(text)
            git("commit", "-qam", "Tasks", at=shared / agent)
            git("push", "-q", "origin", "main", at=shared / agent)
    origin = str(shared / "origin.git")
    racers = {
        agent: subprocess.Popen(
            [sys.executable, "-c", _RACER, str(shared / agent / "plan.org"), agent, origin],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for agent in ("wren", "moss")
    }  # fmt: skip
    won: dict[str, str] = {}
    lost_to: dict[str, str] = {}
    for task in tasks:
        for racer in racers.values():
            assert racer.stdin is not None
            racer.stdin.write(f"{task}\n")
            racer.stdin.flush()
        said = {
            agent: racer.stdout.readline().strip()
            for agent, racer in racers.items()
            if racer.stdout
        }
        winners = [agent for agent, word in said.items() if word == "won"]
        assert len(winners) == 1, said
        won[task] = winners[0]
        lost_to[task] = next(word for word in said.values() if word != "won")
    for racer in racers.values():
        racer.communicate(timeout=30)
    assert lost_to == won
    history = git("log", "--format=%an %s", "main", at=shared / "origin.git").splitlines()
    assert [line for line in history if " Claim " in line] == [
        f"{won[task]} Claim {task} for {won[task]}" for task in reversed(tasks)
    ]
    final = read(git("show", "main:plan.org", at=shared / "origin.git"))
    assert {each.title: each.props["AGENT"] for each in final.headlines} == won
    for agent in racers:
        assert git("status", "--porcelain", at=shared / agent) == ""
