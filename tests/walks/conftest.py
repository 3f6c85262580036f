"""A plan root for each walk."""

from pathlib import Path

import pytest

from walks.stage import PERSON, Ground


@pytest.fixture
def ground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ground:
    """A plan root whose settings name a crew; nobody is in it yet."""
    made = Ground(tmp_path / "plan", tmp_path / "side")
    made.root.mkdir()
    made.side.mkdir()
    settings = 'zone = "UTC"\nlisten = "127.0.0.1:0"\n[crew]\ndef = "crew.org"\n'
    made.write("horae.toml", settings + '[run]\ndrain = "0s"\n')
    for name, value in PERSON.items():
        monkeypatch.setenv(name, value)
    return made
