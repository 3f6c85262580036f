"""`horae init`: a small plan that works, and examples in its comments that work, too."""

import re
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from commands import run_command
from horae import check
from horae.cli.init import init
from horae.config import load
from horae.core.agent import parse_agent
from horae.org.world import tangle
from horae.sources.crew.rules import parse_crew
from horae.sources.plans.arming import entries
from horae.sources.triggers.source import read_folder
from provider import Provider, says, uses


def written(folder: Path) -> str:
    """Return the plan that is written into a folder."""
    done = CliRunner().invoke(init, [str(folder)])
    assert done.exit_code == 0
    return (folder / "plan.org").read_text()


def example(plan: str, opening: str) -> str:
    """Return what a comment shows, without its hashes, from its opening words to a line of words."""
    shown = plan.partition(opening)[2].partition("\n#\n")[2]
    lines = re.split(r"\n(?!#)|\n#\n(?=# [a-z])", shown)[0].splitlines()
    return "\n".join(line.removeprefix("#").removeprefix(" ") for line in lines) + "\n"


def test_the_plan_it_writes_is_armed_and_has_no_finding(tmp_path: Path) -> None:
    done = CliRunner().invoke(init, [str(tmp_path / "myplan")])
    assert done.exit_code == 0
    text = (tmp_path / "myplan" / "plan.org").read_text()
    assert len(entries(text)) == 3
    assert check(text) == []
    assert f"horae up {tmp_path / 'myplan'}" in done.output


def test_what_is_there_stays(tmp_path: Path) -> None:
    (tmp_path / "plan.org").write_text("* Mine\n")
    done = CliRunner().invoke(init, [str(tmp_path)])
    assert f"{tmp_path / 'plan.org'} already exists and was not changed" in done.output
    assert (tmp_path / "plan.org").read_text() == "* Mine\n"
    assert "zone = " in (tmp_path / "horae.toml").read_text()


def test_its_agent_ticks_with_a_model_and_no_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pydantic_ai")
    done = CliRunner().invoke(init, [str(tmp_path), "--agent"])
    assert done.exit_code == 0, done.output
    with Provider(uses("Read", path="NOTES.org"), says("Looked.")) as provider:
        monkeypatch.setenv("HORAE_MODEL_URL", provider.url)
        ended = run_command("horae", "agent", "tick", "caretaker", "--watch", at=tmp_path)
    assert (ended.code, "Looked." in ended.out) == (0, True), ended.err
    assert "You look after the notes" in str(provider.asked[0])
    assert provider.offered() >= {"Read", "Write"}


def test_a_settings_file_that_is_there_is_told_what_its_agent_needs(tmp_path: Path) -> None:
    (tmp_path / "horae.toml").write_text('zone = "UTC"\n')
    done = CliRunner().invoke(init, [str(tmp_path), "--agent"])
    assert 'add to it:\n[keeper]\ndef = "agent.org"' in done.output
    assert (tmp_path / "horae.toml").read_text() == 'zone = "UTC"\n'


def test_the_workflow_in_its_comments_works_without_the_hashes(tmp_path: Path) -> None:
    text = example(written(tmp_path), "# A workflow is")
    assert len(entries(text)) == 1
    assert check(text) == []
    [world] = tangle(text)["worlds"]
    assert world["edges"] == [{"from": "Collect", "to": "Summarize"}]


def test_the_crew_in_its_comments_works_without_the_hashes(tmp_path: Path) -> None:
    plan = written(tmp_path)
    crew = parse_crew(example(plan, "# A crew is"), "crew.org")
    assert [(each.name, each.definition) for each in crew.members] == [("deps", "deps.org")]
    assert not crew.diagnostics
    agent = parse_agent(example(plan, "# and its definition"), "deps.org")
    assert "NO-WORK" in agent.prompt


def test_the_trigger_in_its_comments_works_without_the_hashes(tmp_path: Path) -> None:
    text = example(written(tmp_path), "# A trigger starts")
    folder = tmp_path / ".agentd"
    (folder / "workflows").mkdir(parents=True)
    (folder / "agents").mkdir()
    (folder / "agents" / "deployer.yml").write_text("name: deployer\ncommand: [cat]\n")
    (folder / "workflows" / "deploy.yml").write_text(re.sub(r"(?m)^    ", "", text))
    found = read_folder(str(folder), environ={})
    assert (found.errors, found.warnings) == ([], [])
    assert [each.name for each in found.workflows] == ["deploy"]


@pytest.mark.parametrize("zone", ["Europe/Berlin", "UTC"])
def test_the_settings_in_its_comments_are_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, zone: str
) -> None:
    monkeypatch.setenv("TZ", zone)
    written(tmp_path)
    path = tmp_path / "horae.toml"
    comments = re.compile(r"(?m)^# (?=\[|\w+ = )")
    text = comments.sub("", path.read_text())
    assert tomllib.loads(text)["agent"] == {"command": ["claude", "-p"]}
    path.write_text(text)
    settings = load(tmp_path, environ={})
    assert settings.findings == ()
    assert settings.crew_def == tmp_path / "crew.org"
