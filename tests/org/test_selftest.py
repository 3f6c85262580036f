"""A reader that misreads is noticed before anything relies on it."""

import pytest

from horae.org import headline
from horae.org.document import misread


def test_the_reader_passes_its_own_test() -> None:
    assert misread() is None


def test_drawers_that_read_as_empty_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headline, "read_drawer", lambda *_: None)
    assert misread() == "id is read as None, not as 'backup'"
