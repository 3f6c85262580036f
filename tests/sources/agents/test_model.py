"""The model runner: a loop of a model and its tools, each call checked, bounded and written down."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from horae.core.agent import Agent, AgentDefinition, RunnerKind
from horae.core.entry import Origin
from horae.core.ports import Ended, Run
from horae.core.receipt import Status
from horae.core.secret import parse_source
from horae.core.tool_policy import OPEN, ToolPolicy, parse_policy
from horae.files.git.trees import Trees
from horae.process.processes import Processes, can_kill_trees
from horae.process.run_settings import NamedSecrets, RunSettings
from horae.sources.agents import model
from horae.sources.agents.model import MissingExtraError, ModelOrder, Report, is_offered, work
from horae.sources.agents.runner import (
    RESULT_NAME,
    AgentHost,
    Part,
    Provider as Where,
    Registry,
)
from horae.sources.agents.tools import MOST_SHOWN, Toolbox
from horae.sources.agents.transcript import Transcript
from provider import Provider, Reply, fails, says, uses
from store.ledger_suite import story
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

pytest.importorskip("pydantic_ai")

KEY = "sk-canary-0123456789"
ENVIRON = {"PATH": os.environ["PATH"], "MODEL_API_KEY": KEY}
ALL = {"mode": "allow_all"}


def only(*tools: str) -> dict[str, object]:
    return {"mode": "allow_list", "tools": list(tools)}


def asked(home: Path, url: str, **options: Any) -> ModelOrder:
    facts = {
        "agent": "wren",
        "model": "small-1",
        "url": url,
        "key": "MODEL_API_KEY",
        "system": "You write.",
        "prompt": "Sweep.",
        "tools": ALL,
        "result": str(home / RESULT_NAME),
        "retries": 1,
    }
    return ModelOrder(**{**facts, **options})


def worked(home: Path, *replies: Reply, **options: Any) -> tuple[Report, Provider]:
    """Let a scripted model work in a directory, and return its report and what it was asked."""
    with Provider(*replies) as provider:
        order = asked(home, provider.url, **options)
        report = asyncio.run(work(order, environ=ENVIRON, work_in=home, say=lambda _: None))
    return report, provider


# The loop


def test_a_model_uses_its_tools_until_it_is_done(tmp_path: Path) -> None:
    report, provider = worked(
        tmp_path,
        uses("Write", path="notes/a.txt", content="swept\n"),
        uses("Bash", command="cat notes/a.txt; echo; pwd"),
        says("All swept."),
    )
    assert report == Report("All swept.", "", "small-1", steps=3, tokens_in=300, tokens_out=30)
    assert provider.told() == ["wrote 6 characters", f"swept\n\n{tmp_path}\n"]


def test_it_is_told_who_it_is_what_is_asked_and_which_tools_there_are(tmp_path: Path) -> None:
    _, provider = worked(tmp_path, says("ok"))
    said = provider.asked[0]
    assert [each["content"] for each in said["messages"]] == ["You write.", "Sweep."]
    assert said["model"] == "small-1"
    assert provider.keys == [f"Bearer {KEY}"]
    assert provider.offered() == {"Bash", "Read", "Write", "Edit", "Grep", "Git", "Done"}


def test_done_ends_the_run_with_its_last_word(tmp_path: Path) -> None:
    report, provider = worked(tmp_path, uses("Done", text="NO-WORK: nothing new"), says("more"))
    assert (report.text, report.error) == ("NO-WORK: nothing new", "")
    assert len(provider.asked) == 1


def test_a_refused_tool_is_told_to_the_model_which_goes_on(tmp_path: Path) -> None:
    _, provider = worked(
        tmp_path,
        uses("Bash", command="git status; touch evil"),
        uses("Bash", command="git --version"),
        says("ok"),
        tools=only("Bash(git *)"),
    )
    assert provider.told()[0] == "refused: the tool policy does not allow Bash with these arguments"
    assert provider.told()[1].startswith("git version")
    assert not (tmp_path / "evil").exists()
    assert provider.offered() == {"Bash", "Done"}


def test_what_needs_approval_is_refused_since_nobody_is_there(tmp_path: Path) -> None:
    _, provider = worked(
        tmp_path,
        uses("Write", path="a", content=""),
        says("ok"),
        tools={"mode": "require_approval"},
    )
    assert "approval" in provider.told()[0]
    assert not (tmp_path / "a").exists()


def test_too_many_steps_are_a_failure(tmp_path: Path) -> None:
    report, provider = worked(tmp_path, uses("Bash", command="true"), steps=4)
    assert report.error == "not finished after 4 steps"
    assert (report.steps, len(provider.asked)) == (4, 4)


def test_too_many_tokens_are_a_failure(tmp_path: Path) -> None:
    reply = Reply(calls=(("Bash", {"command": "true"}),), tokens=(900, 100))
    report, _ = worked(tmp_path, reply, tokens=2500)
    assert report.error == "not finished after 2500 tokens"
    assert (report.tokens_in, report.tokens_out) == (2700, 300)


def test_an_error_of_the_provider_is_a_failure(tmp_path: Path) -> None:
    report, _ = worked(tmp_path, fails(400, "no such model"))
    assert report.error == "the model small-1 answered 400: no such model"


def test_a_passing_error_of_the_provider_is_tried_again(tmp_path: Path) -> None:
    report, provider = worked(tmp_path, fails(503, retry_after_ms="1"), says("ok"))
    assert (report.text, report.error, len(provider.asked)) == ("ok", "", 2)


def test_a_provider_that_cannot_be_reached_is_a_failure(tmp_path: Path) -> None:
    order = asked(tmp_path, "http://127.0.0.1:9/v1", retries=0)
    report = asyncio.run(work(order, environ=ENVIRON, work_in=tmp_path, say=lambda _: None))
    assert report.error.startswith("the model small-1 could not be called")


@pytest.mark.parametrize(
    "reply",
    [uses("Bash", order="ls"), uses("Fly", to="moon"), Reply(text="")],
    ids=["arguments", "tool", "nothing"],
)
def test_a_model_that_only_answers_nonsense_is_a_failure(tmp_path: Path, reply: Reply) -> None:
    report, provider = worked(tmp_path, reply)
    assert report.error.startswith("the model small-1 returned an invalid answer")
    assert len(provider.asked) <= 4


def test_what_a_known_model_costs_is_reckoned(tmp_path: Path) -> None:
    from pydantic_ai.usage import RunUsage

    usage = RunUsage(requests=1, input_tokens=1_000_000, output_tokens=0)
    order = asked(tmp_path, "https://api.openai.com/v1", model="gpt-4o")
    assert model._cost(order, usage) == 2.5
    assert model._cost(asked(tmp_path, "http://127.0.0.1/v1"), usage) is None


def test_without_the_extra_it_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydantic_ai", None)
    with pytest.raises(MissingExtraError, match=r"pip install '\.\[model\]'"):
        model.require_extra()


def test_the_web_is_offered_only_by_its_name() -> None:
    assert not is_offered(OPEN, "WebFetch")
    assert is_offered(parse_policy(only("WebFetch(domain:example.org)")), "WebFetch")
    assert not is_offered(parse_policy(only("Read")), "Bash")
    assert is_offered(parse_policy({"mode": "deny_list", "tools": ["Bash(rm *)"]}), "Bash")
    assert not is_offered(parse_policy({"mode": "deny_list", "tools": ["Bash"]}), "Bash")


# The tools


def used(
    home: Path, *uses: Callable[[Toolbox], Any], policy: ToolPolicy = OPEN, **options: Any
) -> list[str]:
    """Call tools one after the other, and return what each gave."""

    async def using() -> list[str]:
        box = Toolbox(home, policy, environment={"PATH": os.environ["PATH"]}, **options)
        try:
            return [await each(box) for each in uses]
        finally:
            box.close()

    return asyncio.run(using())


def test_files_are_read_written_and_edited(tmp_path: Path) -> None:
    assert used(
        tmp_path,
        lambda box: box.write("a/b.txt", "one\ntwo\nthree\n"),
        lambda box: box.edit("a/b.txt", "two", "2"),
        lambda box: box.read("a/b.txt", 2, 1),
        lambda box: box.edit("a/b.txt", "e", "E"),
        lambda box: box.read("none.txt"),
    ) == [
        "wrote 14 characters",
        "replaced",
        "2\n",
        "error: the old text occurs 3 times, not once",
        "error: No such file or directory",
    ]
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a", "b.txt"]


def test_a_file_keeps_its_mode(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text("old")
    script.chmod(0o755)
    used(tmp_path, lambda box: box.write("run.sh", "new"))
    assert (script.read_text(), script.stat().st_mode & 0o777) == ("new", 0o755)


@pytest.mark.parametrize(
    "path",
    [
        "../secret", "/etc/passwd", "link/secret", "to-file", "a/../../secret", "fifo",
        ".git/config", ".GIT/hooks/x", ".git./config", "git~1/config", "dir", "\0",
    ],
)  # fmt: skip
def test_no_path_leads_out_of_the_working_directory_or_into_git(tmp_path: Path, path: str) -> None:
    home = tmp_path / "work"
    for each in (home / ".git", home / "dir"):
        each.mkdir(parents=True)
    (home / ".git" / "config").write_text("secret")
    (tmp_path / "secret").write_text("secret")
    (home / "link").symlink_to(tmp_path)
    (home / "to-file").symlink_to(tmp_path / "secret")
    os.mkfifo(home / "fifo")
    told = used(
        home,
        lambda box: box.read(path),
        lambda box: box.write(path, "evil"),
        lambda box: box.edit(path, "secret", "evil"),
    )
    assert all(each.startswith("error: ") for each in told)
    files = [each for each in tmp_path.rglob("*") if each.is_file()]
    assert {each.read_text() for each in files} == {"secret"}


def test_grep_finds_lines_and_follows_no_link(tmp_path: Path) -> None:
    home = tmp_path / "work"
    home.mkdir()
    (home / "a.txt").write_text("one\ntwo\n")
    (tmp_path / "b.txt").write_text("two\n")
    (home / "out").symlink_to(tmp_path)
    found = used(
        home,
        lambda box: box.grep("^tw."),
        lambda box: box.grep("-e"),
        lambda box: box.grep("two", "out"),
        lambda box: box.grep("two", ".."),
        lambda box: box.grep("("),
    )
    assert found[:2] == ["a.txt:2:two\n", "no line matches"]
    assert all(each.startswith("error: ") for each in found[2:])


def test_a_command_has_a_time_limit_and_leaves_nothing_behind(tmp_path: Path) -> None:
    told = used(
        tmp_path,
        lambda box: box.bash("echo begun; (sleep 100; touch late) & sleep 100", 1),
        lambda box: box.bash("sleep 100 & echo $!"),
        lambda box: box.bash("cat; echo; exit 3"),
    )
    assert told[0] == "error: the command took longer than 1 s and was killed"
    assert told[2] == "error: exit code 3\n\n"
    left = Path(f"/proc/{int(told[1])}/cwd")  # what is killed is gone when it next has a turn
    wait_until(lambda: not left.exists())


def test_a_flood_of_output_is_kept_at_both_ends(tmp_path: Path) -> None:
    (told,) = used(tmp_path, lambda box: box.bash("echo first; yes | head -c 3000000; echo last"))
    assert told.startswith("first\n")
    assert told.endswith("last\n")
    assert "bytes left out" in told
    assert len(told) < MOST_SHOWN + 100


def test_a_commit_takes_all_changes_and_runs_no_hook(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    hook = tmp_path / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\ntouch hooked\n")
    hook.chmod(0o755)
    (tmp_path / "a.txt").write_text("a")
    told = used(
        tmp_path,
        lambda box: box.git("Add a\n\n--amend"),
        lambda box: box.git("Again"),
        lambda box: box.git(" "),
        agent="wren",
    )
    assert told[0] == "committed"
    assert "nothing to commit" in told[1]
    assert told[2] == "error: the message is empty"
    log = ["git", "-C", str(tmp_path), "log", "--format=%an %ae %B"]
    said = subprocess.run(log, capture_output=True, text=True, check=True).stdout
    assert said.strip() == "wren wren@horae.local Add a\n\n--amend"
    assert not (tmp_path / "hooked").exists()


def test_the_web_reaches_what_the_policy_names_and_no_private_address_else(tmp_path: Path) -> None:
    from http.server import BaseHTTPRequestHandler, HTTPServer
    from threading import Thread

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_away = self.path == "/away"
            self.send_response(302 if is_away else 200)
            if is_away:
                self.send_header("Location", "http://localhost:1/x")
            self.end_headers()
            self.wfile.write(b"a page")

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Page) as server:
        Thread(target=server.serve_forever, args=(0.01,)).start()
        page = f"http://127.0.0.1:{server.server_port}"
        named = parse_policy(only("WebFetch(domain:127.0.0.1)"))
        told = used(
            tmp_path,
            lambda box: box.web_fetch(f"{page}/"),
            lambda box: box.web_fetch(f"{page}/away"),
            lambda box: box.web_fetch("file:///etc/passwd"),
            policy=named,
        )
        near = parse_policy(only("WebFetch", "WebFetch(domain:example.org)"))
        beside = used(tmp_path, lambda box: box.web_fetch(page), policy=near)
        bare = used(
            tmp_path, lambda box: box.web_fetch(page), policy=parse_policy(only("WebFetch"))
        )
        server.shutdown()
    assert told[0] == "a page"
    assert told[1] == "error: it redirects to http://localhost:1/x; fetch that"
    assert told[2].startswith("refused")
    assert "only public addresses" in bare[0]
    assert "only public addresses" in beside[0]


# As a run


class Stage:
    """A place to run a model in, under the supervisor."""

    def __init__(self, home: Path) -> None:
        self.work, self.data = home / "work", home / "data"
        self.work.mkdir()
        self.data.mkdir()
        self.environ = dict(ENVIRON)
        self.run = Run(7, 1, 1, datetime(2026, 6, 6, tzinfo=UTC))
        self.named: NamedSecrets | None = None
        self.directory = self.place.directory_of(self.run)

    @property
    def place(self) -> RunSettings:
        limit = timedelta(seconds=60)
        return RunSettings(self.work, self.data, self.environ, limit, named=self.named)

    async def told(
        self,
        url: str,
        *,
        timeout: timedelta = timedelta(seconds=60),
        until: Any = None,
        is_named: bool = False,
    ) -> Ended:
        definition = AgentDefinition(
            "wren", "wren", "You write.", model="small-1", runner=RunnerKind.MODEL
        )
        async with Processes(self.data) as processes:
            provider = Where(url=url, key="MODEL_API_KEY", is_named=is_named)
            host = AgentHost(
                Registry(provider=provider),
                processes,
                self.place,
                Trees(self.place.root, self.data),
            )
            who = Agent("wren", definition, Origin("wren.org", 1), variables=("BOT_TOKEN",))
            part = Part(7, self.directory)
            held = await host.hold(who, "Sweep.", run=part, timeout=timeout)
            held.go()
            if until is not None:
                await asyncio.to_thread(until)
                held.cancel("enough")
            ended = await held.ended()
            assert await host.look_back(self.run) == ended
            return ended

    def left(self) -> str:
        return "\n".join(path.read_text(errors="replace") for path in self.directory.iterdir())


pids = pytest.mark.skipif(not can_kill_trees(), reason="runs need pidfds")


@pids
@story
async def test_a_model_is_a_run_like_all_others_and_its_first_word_counts(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    with Provider(uses("Bash", command="pwd"), says("NO-WORK: all swept\nReally.")) as provider:
        ended = await stage.told(provider.url)
    assert (ended.outcome, ended.reason) == (Status.NO_WORK, "NO-WORK: all swept")
    facts = {name: ended.facts[name] for name in ("text", "tokens", "steps", "model")}
    assert facts == {
        "text": "NO-WORK: all swept\nReally.",
        "tokens": 220,
        "steps": 2,
        "model": "small-1",
    }
    log = Transcript()
    shown = (log.feed((stage.directory / "output.log").read_bytes()) + log.rest()).decode()
    assert shown.splitlines() == [
        "small-1",
        "> Bash: pwd",
        f"  {stage.work}",
        "NO-WORK: all swept",
        "Really.",
        "2 steps, 200 tokens in, 20 tokens out",
    ]
    assert provider.told() == [f"{stage.work}\n"]


@pids
@story
async def test_a_run_that_is_ended_still_says_what_it_has_used(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    with Provider(Reply(calls=(("Bash", {"command": "true"}),)), Reply(hangs=True)) as provider:

        def second_call() -> None:
            provider.asked_once.wait(30)
            while len(provider.asked) < 2:
                provider.closing.wait(0.01)

        ended = await stage.told(provider.url, until=second_call)
    assert (ended.outcome, ended.reason) == (Status.KILLED, "enough")
    assert (ended.facts["steps"], ended.facts["tokens"]) == (1, 110)


@pids
@story
async def test_the_key_of_a_model_may_be_where_the_settings_say(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.environ.pop("MODEL_API_KEY", None)
    sources = {"MODEL_API_KEY": parse_source("cmd:printf canary-key")}
    stage.named = NamedSecrets(sources, stage.environ)
    with Provider(says("It is canary-key.")) as provider:
        ended = await stage.told(provider.url, is_named=True)
    assert provider.keys == ["Bearer canary-key"]
    assert ended.facts["text"] == "It is [secret]."
    assert "canary-key" not in stage.left()


@pids
@story
async def test_no_secret_is_in_what_a_run_leaves_or_what_the_model_is_told(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    secrets = {
        "BOT_TOKEN": "canary-given",
        "ENGINE_SECRET": "canary-of-engine",
        "MODEL_API_KEY": KEY,
    }
    stage.environ |= secrets
    (stage.work / "leak").write_text("\n".join(secrets.values()))
    with Provider(
        uses("Bash", command="env; cat leak"),
        uses("Bash", command="tr '\\0' '\\n' < /proc/$PPID/environ"),
        uses("Bash", command="echo canary-of-engine >&2; false"),
        fails(400, f"bad key {KEY} and canary-of-engine"),
    ) as provider:
        ended = await stage.told(provider.url)
    assert ended.outcome is Status.FAILED
    assert "answered 400" in ended.reason
    everything = stage.left() + json.dumps(dict(ended.facts)) + ended.reason
    for secret in secrets.values():
        assert secret not in everything
    # What is not in its own environment the program cannot know, so the model may be told it.
    told = provider.told()
    assert KEY not in str(told)
    assert "canary-given" not in str(told)
    assert "MODEL_API_KEY" not in told[0]
