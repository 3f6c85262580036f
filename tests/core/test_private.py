"""Private files: only their owner can read them, and no link leads a write elsewhere."""

import os
from pathlib import Path

import pytest

from horae.core.private import private_file, replace_durably, write_durably


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_only_the_owner_can_read_a_private_file(tmp_path: Path) -> None:
    opened, made, replaced = (tmp_path / name for name in ("opened", "made", "replaced"))
    with private_file(opened) as file:
        file.write(b"one")
    write_durably(made, b"two")
    replaced.write_text("old")
    replaced.chmod(0o644)
    replace_durably(replaced, b"three")
    assert [path.read_bytes() for path in (opened, made, replaced)] == [b"one", b"two", b"three"]
    assert {mode(path) for path in (opened, made, replaced)} == {0o600}


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("theirs")
    link.symlink_to(target)
    for write in (private_file, lambda path: write_durably(path, b"ours")):
        with pytest.raises(OSError, match="link"):
            write(link)
    replace_durably(link, b"ours")  # the link itself is replaced
    assert (target.read_text(), link.is_symlink()) == ("theirs", False)


def test_a_file_is_appended_to_or_made_only_once_if_its_flag_says_so(tmp_path: Path) -> None:
    path = tmp_path / "log"
    for part in (b"a", b"b"):
        with private_file(path, os.O_APPEND) as file:
            file.write(part)
    assert path.read_bytes() == b"ab"
    with pytest.raises(FileExistsError):
        write_durably(path, b"c")


def test_what_cannot_be_replaced_stays_and_nothing_is_left_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "token"
    path.write_text("old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="space"):
        replace_durably(path, b"new")
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("token", "old")]
