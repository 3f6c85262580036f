"""An entry is named by its file as a shell writes it; a finding and an error name theirs."""

from __future__ import annotations

import asyncio
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from horae.core.source import Scan
from horae.org.document import read
from horae.sources.plans.arming import scan_plan
from horae.store.sqlite import SqliteLedger

if TYPE_CHECKING:
    from calling import Call

SEEN = datetime.fromisoformat("2026-03-31T12:30Z")
WORKFLOW = (
    "name: standup\nagent: {agent}\nsource:\n  type: cron\n  expression: '{cron}'\n"
    "prompt_template: Begin.\n"
)


def plan(title: str) -> str:
    return f"* {title}\n:PROPERTIES:\n:SCHEDULE: 0 9 * * *\n:COMMAND: true\n:END:\n"


@pytest.fixture
def kept(call: Call, tmp_path: Path) -> Call:
    """A ledger that knows one plan in the root and one of the same name below it."""
    top, below = tmp_path / "plan.org", tmp_path / "sub" / "plan.org"
    below.parent.mkdir()
    top.write_text(plan("Top"))
    below.write_text(plan("Below"))

    async def keeping() -> None:
        ledger = await SqliteLedger.open(tmp_path / ".horae", now=SEEN)
        found = [
            each
            for path in (top, below)
            for each in scan_plan(
                read(path.read_text()), file=str(path.relative_to(tmp_path)), zone_name="UTC"
            )
        ]
        await ledger.scan("org", Scan(tuple(found)), now=SEEN, term=1)
        await ledger.close()

    asyncio.run(keeping())
    return call


def meant(call: Call, word: str, *args: str) -> str:
    """Return the title of the entry that a word means."""
    found: str = call("pause", word, *args, "--json").data["title"]
    return found


@pytest.mark.parametrize(
    ("word", "title"),
    [
        ("plan.org:1", "Top"),
        ("./plan.org:1", "Top"),
        ("sub/../plan.org:1", "Top"),
        ("./sub//plan.org:1", "Below"),
        ("{here}/plan.org:1", "Top"),
        ("{here}/sub/plan.org:1", "Below"),
    ],
)
def test_a_file_is_named_as_a_shell_writes_it(
    kept: Call, tmp_path: Path, word: str, title: str
) -> None:
    assert meant(kept, word.format(here=tmp_path)) == title


@pytest.mark.parametrize(
    ("word", "title"),
    [
        ("plan.org:1", "Top"),  # as the ledger writes it
        ("./plan.org:1", "Below"),
        ("../plan.org:1", "Top"),
        ("sub/plan.org:1", "Below"),
        ("./sub/plan.org:1", "Below"),  # from here there is none, so from the root
    ],
)
def test_a_file_is_looked_for_from_here_and_from_the_plan_root(
    kept: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str, title: str
) -> None:
    monkeypatch.chdir(tmp_path / "sub")
    assert meant(kept, word, "--root", "..") == title


def test_an_entry_whose_file_is_known_by_its_whole_path_goes_by_the_short_one(
    call: Call, tmp_path: Path
) -> None:
    (tmp_path / "horae.toml").write_text('[crew]\ndef = "crew.org"\n')
    (tmp_path / "crew.org").write_text("* wren\n:PROPERTIES:\n:DEF: wren.org\n:END:\n")
    definition = "* Wren :agent:\n:PROPERTIES:\n:COMMAND: true\n:END:\nHi.\n"
    (tmp_path / "wren.org").write_text(definition)
    assert call("agent", "tick", "wren").code == 0
    for word in ("crew.org:1", "./crew.org:1", f"{tmp_path}/crew.org:1"):
        assert meant(call, word) == "wren"


def test_a_link_to_the_plan_root_leads_there(kept: Call, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "sub")
    assert meant(kept, "./link/plan.org:1") == "Below"


@pytest.mark.parametrize("command", ["why", "history", "pause", "resume", "run", "backfill"])
def test_every_command_takes_it(kept: Call, command: str) -> None:
    more = ("--from", "2026-03-01", "--dry-run") if command == "backfill" else ()
    assert kept(command, "./plan.org:1", *more, "--json").code == 0


@pytest.mark.parametrize("word", ["./plan.org:99", "../plan.org:1", "./plan.org", "./plan.org:x"])
def test_a_place_without_an_entry_is_said_as_it_was_written(kept: Call, word: str) -> None:
    ending = kept("history", word)
    assert (ending.code, repr(word) in ending.err) == (4, True)


# horae check of .agentd


@pytest.fixture
def folder(call: Call) -> Path:
    assert call("--version").code == 0  # the call is made in a directory of its own
    folder = Path(".agentd")
    for name in ("agents", "workflows"):
        (folder / name).mkdir(parents=True)
    (folder / "agents/reporter.yml").write_text("name: reporter\ncommand: [cat]\n")
    return folder


def test_a_good_folder_has_no_findings(call: Call, folder: Path) -> None:
    text = WORKFLOW.format(agent="reporter", cron="0 9 * * *")
    (folder / "workflows/standup.yml").write_text(text)
    ending = call("check", "--json")
    assert (ending.code, ending.data, ending.err) == (0, [], "")


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        (WORKFLOW.format(agent="reporter", cron="0 24 * * *"), (5, 3), "outside 0-23"),
        (WORKFLOW.format(agent="nobody", cron="0 9 * * *"), (2, 1), "'nobody' not found"),
        ("name: standup\nagent: [1\n", (2, 8), ""),
        ("agent: reporter\nsource:\n  type: manual\n", (1, 1), "name is missing"),
    ],
)
def test_what_is_wrong_in_a_file_of_triggers_is_found_where_it_stands(
    call: Call, folder: Path, text: str, place: tuple[int, int], message: str
) -> None:
    (folder / "workflows/standup.yml").write_text(text)
    ending = call("check", "--json")
    found = ending.data[0]
    assert (ending.code, found["file"]) == (1, ".agentd/workflows/standup.yml")
    assert (found["line"], found["column"]) == place
    assert message in found["message"]
    applied = call("trigger", "apply", ".agentd", "--dry-run")
    assert (applied.code, found["message"] in applied.err) == (1, True)


def test_one_agent_in_two_files_is_found_in_both(call: Call, folder: Path) -> None:
    (folder / "agents/twice.yml").write_text("name: reporter\ncommand: [cat]\n")
    first, second = call("check", "--json").data
    for found, other in ((first, second), (second, first)):
        assert found["code"] == "agentd"
        assert found["message"] == f"the agent 'reporter' is also in {other['file']}"


def test_an_odd_field_is_a_warning_beside_the_findings_of_plans(call: Call, folder: Path) -> None:
    (folder / "agents/reporter.yml").write_text("name: reporter\ncomand: [cat]\n")
    Path("plan.org").write_text("* Sow\nSCHEDULED: <2026-6-6>\n")
    lacks, odd, wrong = call("check", "--json").data
    assert "has no command" in lacks["message"]
    assert (odd["file"], odd["line"], odd["column"]) == (".agentd/agents/reporter.yml", 2, 1)
    assert (odd["severity"], odd["fix"]) == ("warning", "did you mean command?")
    assert wrong["code"] == "date-shape"


def test_the_folder_of_another_root_is_named_from_here(call: Call, folder: Path) -> None:
    Path("other").mkdir()
    folder.rename("other/.agentd")
    Path("other/.agentd/agents/reporter.yml").write_text("name: two words\n")
    [found] = call("check", "other", "--json").data
    assert found["file"] == "other/.agentd/agents/reporter.yml"


def test_a_ledger_that_cannot_be_read_hides_no_finding(call: Call, folder: Path) -> None:
    (folder / "agents/reporter.yml").write_text("name: reporter\ncomand: [cat]\n")
    Path(".horae").mkdir()
    Path(".horae/ledger.db").write_bytes(b"no ledger at all" * 100)
    ending = call("check", "--json")
    assert ending.code == 0
    assert {each["severity"] for each in ending.data} == {"info", "warning"}


# horae done, horae task


@pytest.mark.parametrize(
    ("stamp", "column"),
    [("<2026-02-30 +1d>", 12), ("<2026-06-06 25:00 +1d>", 12), ("<2026-06-06 +1h>", 12)],
)
def test_a_stamp_that_cannot_move_on_is_named_with_its_place(
    call: Call, stamp: str, column: int
) -> None:
    text = f"Preamble.\n* TODO Sow\nSCHEDULED: {stamp}\n"
    Path("plan.org").write_text(text)
    ending = call("done", "plan.org", "Sow")
    assert ending.code == 1
    assert ending.err.startswith(f"horae: plan.org:3:{column}: ")
    assert Path("plan.org").read_text() == text


def test_a_stamp_in_the_text_is_named_with_its_own_line(call: Call) -> None:
    Path("plan.org").write_text("* TODO Sow\n\nEvery year, <2026-02-30 +1y>.\n")
    assert "plan.org:3:13: " in call("done", "plan.org", "Sow").err


def test_a_new_task_cannot_wait_for_itself(call: Call) -> None:
    ending = call("task", "add", "First", "--depends-on", "1", "--table")
    assert (ending.code, "task #1 would depend on itself" in ending.err) == (2, True)
    assert not list(Path("board").glob("tasks/*.md"))


def test_a_new_task_cannot_wait_for_one_that_waits_for_it(call: Call) -> None:
    assert call("task", "add", "First", "--depends-on", "2").code == 0
    ending = call("task", "add", "Second", "--depends-on", "1", "--table")
    assert "#2" in ending.err
    assert call("task", "add", "Second", "--json").data["id"] == 2


def test_a_task_cannot_be_set_to_wait_for_itself(call: Call) -> None:
    assert call("task", "add", "First").code == 0
    ending = call("task", "edit", "1", "--set", "depends_on=1", "--table")
    assert "would depend on itself" in ending.err


# horae trigger


@pytest.fixture
def follower(call: Call, folder: Path) -> Call:
    assert call("trigger", "apply", str(folder)).code == 0
    first = ("trigger", "add", "first", "--agent", "reporter", "--manual", "--prompt", "Go.")
    assert call(*first).code == 0
    then = ("trigger", "add", "then", "--agent", "reporter", "--after", "first", "--prompt", "Go.")
    assert call(*then).code == 0
    return call


def test_a_trigger_that_follows_another_is_shown_with_its_name(follower: Call) -> None:
    first = follower("trigger", "show", "first", "--json").data["id"]
    for command in (("list",), ("show", "then")):
        assert "of first" in " ".join(follower("trigger", *command, "--table").out.split())
    shown = follower("trigger", "show", "then", "--json").data
    assert shown["trigger_config"]["source_workflow_id"] == first
    assert follower("trigger", "remove", "first").code == 0
    assert f"of {first}" in follower("trigger", "show", "then", "--table").out


def test_a_trigger_that_was_removed_is_made_again_by_command(follower: Call) -> None:
    assert follower("trigger", "remove", "then").code == 0
    ending = follower("run", "then", "--table")
    assert ending.code == 6
    assert "add it again with `horae trigger add then`" in ending.err
