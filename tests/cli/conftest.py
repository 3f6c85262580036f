"""A fixture that runs `horae` in a directory of its own."""

from pathlib import Path

import pytest

from calling import Call, Ending
from horae.cli.group import horae as command
from horae.cli.run import run


@pytest.fixture
def call(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Call:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HORAE_ZONE", "Europe/Berlin")

    def calling(*args: str) -> Ending:
        code = run(command, name="horae", args=args)
        said = capsys.readouterr()
        return Ending(code, said.out, said.err)

    return calling
