"""A small plan that works, written where there is none."""

from pathlib import Path

from click.testing import CliRunner

from horae.cli.init import init
from horae.rules.armed import entries
from horae.rules.check import check


def test_the_plan_it_writes_is_armed_and_has_no_finding(tmp_path: Path) -> None:
    done = CliRunner().invoke(init, [str(tmp_path / "hours")])
    assert done.exit_code == 0
    text = (tmp_path / "hours" / "plan.org").read_text()
    assert len(entries(text)) == 3
    assert check(text) == []
    assert f"horae up {tmp_path / 'hours'}" in done.output


def test_what_is_there_stays(tmp_path: Path) -> None:
    (tmp_path / "plan.org").write_text("* Mine\n")
    done = CliRunner().invoke(init, [str(tmp_path)])
    assert "is there already, and stays as it is" in done.output
    assert (tmp_path / "plan.org").read_text() == "* Mine\n"
    assert "zone = " in (tmp_path / "horae.toml").read_text()
