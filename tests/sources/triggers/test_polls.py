"""Issues and pull requests on GitHub start agents: a real engine, and a real program called gh."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import sys
import time
from typing import TYPE_CHECKING, Any, Final

import pytest

from crash.stage import Home, snapshot, until_gone
from horae.cli.trigger_access import TriggerAccess
from horae.sources.triggers.kinds import GithubKind, TriggerError, read_polled
from horae.sources.triggers.runner import PollError, poll_wait

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# It answers as gh 2.23 does, and takes no option that this one does not know. What it is asked
# for stands in `answer.json`, or `failure` says with which words and which code it fails.
GH: Final = """\
#!{python}
import argparse, json, pathlib, sys, time
here = pathlib.Path(__file__).parent
with (here / "calls").open("a") as calls:
    print(json.dumps([time.time(), *sys.argv[1:]]), file=calls)
parser = argparse.ArgumentParser(prog="gh", exit_on_error=False, allow_abbrev=False)
parser.add_argument("what", choices=["issue", "pr"])
parser.add_argument("verb", choices=["list"])
parser.add_argument("--repo", "-R", required=True)
parser.add_argument("--state", "-s", choices=["open", "closed", "all"], default="open")
parser.add_argument("--limit", "-L", type=int, default=30)
parser.add_argument("--label", "-l", action="append", default=[])
parser.add_argument("--json", required=True)
try:
    asked = parser.parse_args()
except (argparse.ArgumentError, SystemExit) as error:
    print(error, file=sys.stderr)
    sys.exit(1)
known = set("assignees author body closed closedAt comments createdAt id labels milestone number"
            " projectCards reactionGroups state title updatedAt url".split())
if asked.what == "pr":
    known |= {{"baseRefName", "headRefName", "isDraft", "mergedAt", "files"}}
for field in asked.json.split(","):
    if field not in known:
        print(f'Unknown JSON field: "{{field}}"', file=sys.stderr)
        sys.exit(1)
failure = here / "failure"
if failure.exists():
    code, _, said = failure.read_text().partition(" ")
    (sys.stdout if code == "0" else sys.stderr).write(said)
    sys.exit(int(code))
answer = here / "answer.json"
rows = json.loads(answer.read_text()) if answer.exists() else []
rows = [each for each in rows if each["kind"] == asked.what]
for label in asked.label:
    rows = [each for each in rows if label in [one["name"] for one in each["labels"]]]
rows.sort(key=lambda each: -each["number"])
print(json.dumps([{{name: each.get(name) for name in asked.json.split(",")}} for each in rows]))
"""
AGENT: Final = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read().rstrip() + '\\n')"
LIMIT: Final = "HTTP 403: API rate limit exceeded for user ID 1. (https://api.github.com/graphql)"


class GitHub:
    """What the program knows, and how it was called."""

    def __init__(self, place: Path) -> None:
        self._place = place
        place.mkdir()
        program = place / "gh"
        program.write_text(GH.format(python=sys.executable))
        program.chmod(program.stat().st_mode | stat.S_IXUSR)

    @property
    def path(self) -> str:
        """A search path on which it is found first."""
        return f"{self._place}{os.pathsep}{os.environ['PATH']}"

    def lists(self, *rows: dict[str, Any]) -> None:
        """Let these be there."""
        part = self._place / "answer.part"
        part.write_text(json.dumps(rows))
        part.replace(self._place / "answer.json")

    def fails(self, code: int, said: str) -> None:
        """Let it fail from now on, or with code 0 say something else."""
        part = self._place / "failure.part"
        part.write_text(f"{code} {said}")
        part.replace(self._place / "failure")

    def is_well(self) -> None:
        """Let it answer again."""
        (self._place / "failure").unlink()

    def calls(self, what: str = "issue") -> list[float]:
        """Return when it was called."""
        log = self._place / "calls"
        lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        return [at for at, *words in lines if words[0] == what]


def issue(number: int, kind: str = "issue", *labels: str) -> dict[str, Any]:
    """Return an issue or a pull request as gh tells of it."""
    return {
        "kind": kind,
        "number": number,
        "title": f"It leaks {{{{body}}}} {number}",
        "body": "Drip.",
        "url": f"https://github.com/o/r/issues/{number}",
        "labels": [{"id": "x", "name": each, "color": "d73a4a"} for each in labels],
        "assignees": [{"id": "y", "login": "fern", "name": ""}],
        "headRefName": "fix",
        "baseRefName": "main",
        "isDraft": False,
    }


@pytest.fixture
def github(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GitHub:
    made = GitHub(tmp_path / "bin")
    monkeypatch.setenv("PATH", made.path)
    return made


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path)
    yield home
    home.end()
    until_gone(lambda: snapshot(home.data), within=10)


def make(home: Home, name: str, kind: str, template: str, **config: Any) -> None:
    """Make a workflow that looks every second, and its agent."""
    room = TriggerAccess(root=str(home.plans), data=str(home.data))
    command = [sys.executable, "-c", AGENT, str(home.place / f"{name}.told")]
    agent = {"name": name, "command": command, "working_dir": str(home.place)}
    room.write(lambda triggers: triggers.create_agent(agent))
    flow = {
        "name": name,
        "agent": name,
        "trigger_config": {"type": kind, "owner": "o", "repo": "r", **config},
        "prompt_template": template,
        "poll_interval_secs": 1,
    }
    room.write(lambda triggers: triggers.create(flow))


def told(home: Home, name: str) -> list[str]:
    """Return what an agent was told."""
    path = home.place / f"{name}.told"
    return path.read_text().splitlines() if path.exists() else []


def events(home: Home, kind: str) -> list[dict[str, Any]]:
    """Return the facts of the events of a kind."""
    found = home.rows("SELECT facts FROM event WHERE kind = ? ORDER BY number", kind)
    return [json.loads(facts) for (facts,) in found]


def dispatches(home: Home) -> list[tuple[str, str, str]]:
    """Return each dispatch: its workflow, source id and status."""
    query = (
        "SELECT title, key, status FROM receipt JOIN entry ON entry.number = entry ORDER BY 1, 2"
    )
    return home.rows(query)


def test_a_new_issue_is_dispatched_once_also_after_a_crash(home: Home, github: GitHub) -> None:
    template = "{{source_id}} {{title}} {{body}} {{labels}} {{assignee}} {{url}}"
    make(home, "bugs", "github_issues", template, labels=["bug", "help wanted"])
    pull = "{{source_id}} {{title}} {{head_ref}} {{base_ref}} {{is_draft}}"
    make(home, "pulls", "github_pull_requests", pull, state="all")
    github.lists(issue(5, "issue", "bug"))  # not one that is asked for
    life = home.up().begun()
    began = time.time()
    life.until(lambda: len(github.calls()) >= 2)
    assert dispatches(home) == []
    github.lists(issue(7, "issue", "bug", "help wanted"), issue(8, "pr"))
    life.until(lambda: home.count("status = 'done'") == 2)
    seen = len(github.calls())
    life.until(lambda: len(github.calls()) >= seen + 2)
    once = [("bugs", "7", "done"), ("pulls", "8", "done")]
    assert dispatches(home) == once
    assert told(home, "bugs") == [
        "7 It leaks {{body}} 7 Drip. bug, help wanted fern https://github.com/o/r/issues/7"
    ]
    assert told(home, "pulls") == ["8 It leaks {{body}} 8 fix main false"]
    # Each looks at its own interval, and never more often.
    for what in ("issue", "pr"):
        gaps = [b - a for a, b in zip(github.calls(what), github.calls(what)[1:], strict=False)]
        assert min(gaps) > 0.9
        assert github.calls(what)[0] - began > -1

    life.kill()
    until_gone(lambda: snapshot(home.data), within=10)
    seen = len(github.calls())
    life = home.up().begun()
    life.until(lambda: len(github.calls()) >= seen + 2)
    assert dispatches(home) == once
    github.lists(*(issue(number, "issue", "bug", "help wanted") for number in (7, 9)))
    life.until(lambda: home.count("status = 'done'") == 3)
    assert [key for name, key, _ in dispatches(home) if name == "bugs"] == ["7", "9"]
    assert life.stop() == 0
    assert events(home, "poll_failed") == []
    assert len(told(home, "bugs")) == 2


def test_a_failure_is_told_once_waits_longer_and_is_over_when_it_goes_well(
    home: Home, github: GitHub
) -> None:
    make(home, "bugs", "github_issues", "{{title}}")
    github.fails(1, LIMIT)
    life = home.up().begun()
    life.until(lambda: len(github.calls()) >= 3)
    [first] = events(home, "poll_failed")
    assert first["trigger"] == "bugs"
    assert first["reason"] == f"gh exited with 1: {LIMIT}"
    at = github.calls()
    assert at[1] - at[0] > 2.9  # an interval of 1 s, and 2 s for one failure
    assert at[2] - at[1] > 4.9
    github.fails(0, '[{"number": 7, "title": "It le')
    life.until(lambda: "did not return a list" in events(home, "poll_failed")[-1]["reason"])
    github.lists(issue(7))
    github.is_well()
    life.until(lambda: events(home, "poll_recovered") == [{"trigger": "bugs"}])
    life.until(lambda: dispatches(home) == [("bugs", "7", "done")])
    assert life.stop() == 0
    assert "Traceback" not in home.said()


def test_without_gh_creation_says_what_is_missing(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    with pytest.raises(TriggerError, match="program gh, which is not installed"):
        make(home, "bugs", "github_issues", "{{title}}")


async def call(argv: list[str]) -> str:
    """Run a program as an engine is to do it."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*argv, stdout=pipe, stderr=pipe)
    said, errors = await process.communicate()
    if process.returncode:
        raise PollError(argv[0], process.returncode, errors.decode())
    return said.decode()


@pytest.mark.parametrize(
    ("code", "said", "reason"),
    [
        (1, LIMIT, f"gh exited with 1: {LIMIT}"),
        (
            4,
            "To get started with GitHub CLI, please run:  gh auth login\nAlternatively, …",
            "gh exited with 4: To get started with GitHub CLI, please run:  gh auth login; Alt",
        ),
        (1, "error connecting to api.github.com\ncheck your internet\n", "api.github.com; check"),
        (1, "", "no error output"),
    ],
)
def test_an_error_of_gh_is_handed_on_in_its_own_words(
    github: GitHub, code: int, said: str, reason: str
) -> None:
    github.fails(code, said)
    config = {
        "type": "github_issues",
        "owner": "o",
        "repo": "r",
        "state": "open",
        "labels": ["bug"],
    }
    with pytest.raises(PollError) as told:
        asyncio.run(call(GithubKind.of(config).poll_command()))
    assert reason in str(told.value)


@pytest.mark.parametrize(
    "said", ["", "{}", "null", "[", "[[[[", "\x00", '{"message": "Not Found"}']
)
def test_what_is_no_list_is_an_error(github: GitHub, said: str) -> None:
    github.fails(0, said)
    config = {"type": "github_pull_requests", "owner": "o", "repo": "r", "state": "all"}
    with pytest.raises(TriggerError, match="gh did not return a list"):
        read_polled(asyncio.run(call(GithubKind.of(config).poll_command())))


def test_the_wait_after_a_failure_grows_and_has_an_end() -> None:
    waits = [poll_wait(60, errors).total_seconds() for errors in (0, 1, 2, 15, 1000)]
    assert waits == [60, 62, 64, 90, 90]
