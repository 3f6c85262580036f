"""Every way to an agent runs it in the same way: same tree, environment, delivery and facts."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from commands import engine_up, run_command
from horae.client import connect
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from horae.client import Client

# As Claude Code answers: with tokens, cost, turns and the id of its session.
ANSWER = {
    "type": "result", "subtype": "success", "is_error": False, "num_turns": 3,
    "result": "Sown.", "session_id": "9e2e182e-e249", "total_cost_usd": 0.02,
    "usage": {"input_tokens": 900, "output_tokens": 100},
}  # fmt: skip
SCRIPT = """#!/bin/sh
cat > {side}/told
pwd > {side}/where
env | grep -o '^HORAE_[A-Z]*' | sort > {side}/names
echo "$HORAE_AGENT $HORAE_MODEL" > {side}/who
echo bed > bed-$$.txt
git add bed-$$.txt
git commit -qm 'Sow a bed'
git log -1 --format='%an %cn' > {side}/author
echo note > note.txt
echo '{answer}'
"""
PLAN = """\
* Digest :workflow:
** Sum up :component:
#+begin_src agent :agent wren
Be brief.
#+end_src
"""
TASK = "---\nid: 1\ntitle: Sow\nstatus: todo\nassignee: wren\n---\n\nSow a bed.\n"
# What is known of a run of an agent; a task and a tick know more.
FACTS = {
    "tokens": 1000, "tokens_in": 900, "tokens_out": 100, "cost": 0.02, "steps": 3,
    "session": "9e2e182e-e249", "model": "small-1", "delivered": True,
}  # fmt: skip


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root, side = tmp_path / "plan", tmp_path / "side"
    (root / "board/tasks").mkdir(parents=True)
    side.mkdir()
    (side / "claude").write_text(SCRIPT.format(side=side, answer=json.dumps(ANSWER)))
    (side / "claude").chmod(0o755)
    drawer = f":COMMAND: {side}/claude\n:MODEL: small-1\n"
    text = f"* wren :agent:\n:PROPERTIES:\n{drawer}:END:\n** System prompt\nYou are wren.\n"
    (root / "wren.org").write_text(text)
    (root / "crew.org").write_text("* wren\n:PROPERTIES:\n:DEF: wren.org\n:END:\n")
    (root / "plan.org").write_text(PLAN)
    (root / "horae.toml").write_text('[crew]\ndef = "crew.org"\n')
    (root / ".gitignore").write_text(".horae/\n")
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "ada")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "ada@example.org")
    git("init", "-q", "-b", "main", at=root)
    git("add", "-A", at=root)
    git("commit", "-qm", "Begin", at=root)
    return root


def git(*args: str, at: Path) -> str:
    return subprocess.run(["git", *args], cwd=at, check=True, capture_output=True, text=True).stdout


def ended(client: Client) -> Mapping[str, Any]:
    """Return the facts and the reason of the first receipt of an agent, once it is final."""

    def look() -> int:
        return next(
            (each.receipt for each in client.history().receipts if each.ended_at is not None), 0
        )

    run = client.receipt(wait_until(look)).runs[-1]
    return {"reason": run.reason, **run.facts}


def tick(client: Client, root: Path) -> Mapping[str, Any]:
    client.tick("wren")
    return ended(client)


def request(client: Client, root: Path) -> Mapping[str, Any]:
    wire = httpx.HTTPTransport(uds=str(root / ".horae/socket"), verify=False)
    with httpx.Client(transport=wire, base_url="http://localhost") as http:
        asked = http.post("/api/run", json={"agent": "wren", "task": "Sow."})
    assert asked.status_code == 202, asked.text
    return ended(client)


def trigger(client: Client, root: Path) -> Mapping[str, Any]:
    how = ("--agent", "wren", "--manual", "--prompt", "Sow.")
    for words in (("add", "sow", *how), ("run", "sow")):
        done = run_command("horae", "trigger", *words, at=root)
        assert done.code == 0, done.err
    return ended(client)


def task(client: Client, root: Path) -> Mapping[str, Any]:
    (root / "board/tasks/001-sow.md").write_text(TASK)
    return ended(client)


def step(client: Client, root: Path) -> Mapping[str, Any]:
    client.run_now("Digest")
    of_run = ended(client)
    return {"reason": of_run["reason"], **of_run["record"]["steps"][0].get("facts", {})}


def command(client: Client, root: Path) -> Mapping[str, Any]:
    done = run_command("horae", "agent", "run", "wren", "--json", "--root", str(root))
    assert done.code == 0 or done.data["outcome"] == "killed", done.err
    facts: Mapping[str, Any] = done.data
    return facts


@pytest.mark.parametrize("way", [tick, request, trigger, task, step, command])
def test_every_way_to_an_agent_is_the_same_run(
    root: Path, way: Callable[[Client, Path], Mapping[str, Any]]
) -> None:
    with engine_up(root):
        facts = way(connect(root), root)
    side = root.parent / "side"
    assert facts.items() >= FACTS.items()
    assert (side / "where").read_text().strip() == str(root / ".horae/trees/wren")
    assert (side / "author").read_text() == "wren wren\n"
    assert (side / "who").read_text() == "wren small-1\n"
    assert (side / "told").read_text().startswith("You are wren.\n\n")
    # What it committed is in the plan root, and what it did not is, too: it is of the crew.
    assert len(git("ls-files", "bed-*.txt", at=root).splitlines()) == 1
    assert git("show", "HEAD:note.txt", at=root) == "note\n"
    assert git("log", "--format=%an", "--", "note.txt", at=root) == "wren\n"
    assert facts["committed"] in git("log", "--format=%H", at=root)


@pytest.mark.parametrize("way", [tick, request, trigger, task, step, command])
def test_kept_work_is_named_in_status_and_shown_in_why_whatever_started_the_run(
    root: Path, way: Callable[[Client, Path], Mapping[str, Any]]
) -> None:
    with (root / "horae.toml").open("a") as settings:
        settings.write('[agent]\nuncommitted = "branch"\n')
    with engine_up(root):
        client = connect(root)
        branch = way(client, root)["branch"]
        [named] = [each for each in client.status().problems if f"kept on {branch};" in each]
        assert f"`horae agent work show {branch.removeprefix('horae-work/')}` shows it" in named
        for line in client.history().receipts[-1:]:  # `agent run` has none
            said = run_command("horae", "why", str(line.entry), at=root).out
            assert f"work: kept on {branch} (it was not committed)" in said
            assert "\n    +note\n" in said
        git("branch", "-D", branch, at=root)
        wait_until(lambda: not any(branch in each for each in client.status().problems))


@pytest.mark.parametrize("way", [tick, request, trigger, task, step, command])
def test_the_limit_is_that_of_ticks_for_ticks_and_requests_and_that_of_all_runs_else(
    root: Path, way: Callable[[Client, Path], Mapping[str, Any]]
) -> None:
    (root.parent / "side/claude").write_text("#!/bin/sh\nexec sleep 60\n")
    own, other = ("keeper", "run") if way in {tick, request} else ("run", "keeper")
    with (root / "horae.toml").open("a") as settings:
        settings.write(f'[{own}]\ntimeout = "300ms"\n[{other}]\ntimeout = "1h"\n')
    with engine_up(root):
        assert "exceeded the time limit of 300ms" in way(connect(root), root)["reason"]
