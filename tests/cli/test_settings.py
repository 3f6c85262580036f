"""`horae config` says what is in force, and where it comes from."""

import json
from pathlib import Path

import pytest

from horae.cli.group import horae as command
from horae.cli.run import run


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("HORAE_ZONE", "HORAE_GATE_SLOTS", "WB_TENANT", "HORAE_TENANT"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "horae.toml").write_text('zone = "Europe/Berlin"\n[gate]\nslots = 8\n')
    return tmp_path


def test_each_value_shows_where_it_comes_from(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HORAE_GATE_SLOTS", "2")
    monkeypatch.setenv("WB_TENANT", "wren")
    assert run(command, name="horae", args=["config", "--table", "--show-origin"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(
        line.startswith("zone = Europe/Berlin  # ") and "horae.toml:1" in line for line in lines
    )
    [slots] = [line for line in lines if line.startswith("gate.slots")]
    assert slots.startswith("gate.slots = 2  # environment HORAE_GATE_SLOTS, over ")
    assert slots.endswith("horae.toml:3 (8)")
    assert "tenant = wren  # environment WB_TENANT" in lines


def test_one_setting_can_be_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(command, name="horae", args=["config", "gate.slots", "--json"]) == 0
    [row] = json.loads(capsys.readouterr().out)
    assert (row["name"], row["value"]) == ("gate.slots", 8)
    assert row["overrides"] == [{"origin": "default", "value": 4}]


def test_an_unknown_setting_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(command, name="horae", args=["config", "gate.slot"]) == 2
    said = capsys.readouterr().err
    assert "there is no setting 'gate.slot'; did you mean gate.slots?" in said
    assert "Usage: horae config [OPTIONS] [NAME]\n" in said
    assert "horae config show" not in said


def test_a_second_name_is_a_usage_error_of_the_same_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(command, name="horae", args=["config", "show", "zone"]) == 2
    said = capsys.readouterr().err
    assert ("Usage: horae config" in said, "config show" in said) == (True, False)


def test_a_name_that_is_near_no_setting_says_where_the_settings_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(command, name="horae", args=["config", "colour"]) == 2
    assert "there is no setting 'colour'; `horae config` lists" in capsys.readouterr().err


def test_an_unknown_key_is_said_and_the_rest_counts(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / "horae.toml").write_text('zon = "Europe/Berlin"\ntenant = "wren"\n')
    assert run(command, name="horae", args=["config", "tenant", "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)[0]["value"] == "wren"
    assert "zon" in said.err
    assert "horae.toml:1" in said.err


def test_a_bad_value_says_where_it_stands(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "horae.toml").write_text("[gate]\nslots = 0\n")
    assert run(command, name="horae", args=["config"]) == 2
    assert "horae.toml:2" in capsys.readouterr().err
