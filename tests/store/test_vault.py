"""Values of secrets beside the ledger, kept in files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from horae.core.ports import LedgerWriteError
from horae.store import database

if TYPE_CHECKING:
    from pathlib import Path

FIRST = "c4nary-first-c4nary"


def files_with(directory: Path, value: str) -> list[str]:
    """Return the files beneath a directory whose bytes hold a value."""
    found = (each for each in directory.rglob("*") if each.is_file())
    return sorted(
        each.relative_to(directory).as_posix()
        for each in found
        if value.encode() in each.read_bytes()
    )


def test_a_link_in_place_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "secrets").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(LedgerWriteError):
        database.keep(tmp_path, "KEY", FIRST)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_any_name_makes_a_file_of_ours(tmp_path: Path) -> None:
    for name in ("../../x", "", "a/b", "naïve", "x" * 300):
        kept = database.keep(tmp_path, name, FIRST)
        assert files_with(tmp_path, FIRST) == [kept.removeprefix("${").removesuffix("}")]
        database.forget(tmp_path, [kept, "${OTHER}", "../ledger.db"])
        assert files_with(tmp_path, FIRST) == []
