"""Finding plans and reading them, in trees that other people made."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings, strategies as st

from horae.errors import Exit
from horae.files import read as files
from horae.files.read import (
    PlanFileError,
    PlanMissingError,
    directory_of,
    find_plans,
    is_git,
    printable,
    read_plan,
)
from scale import scaled

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "plan.org"
    path.write_bytes(b"* TODO Water the plants\n")
    return path


def refusal(action: Callable[..., object], *arguments: object, **options: object) -> str:
    with pytest.raises(PlanFileError) as caught:
        action(*arguments, **options)
    return caught.value.reason


# Reading


def test_a_plan_is_read_as_bytes_text_and_digest(plan: Path) -> None:
    content = read_plan(plan)
    assert content.path == str(plan)
    assert content.data == b"* TODO Water the plants\n"
    assert content.text == "* TODO Water the plants\n"
    assert content.digest == "09605527a5cff5c9367bcb233a1e942cf3b683b41a2dd1c3fd631c85ac8ab8a8"


@given(text=st.text())
@settings(max_examples=scaled(2_000))
def test_the_text_of_a_plan_gives_its_bytes_back(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "lossless.org"
    path.write_bytes(text.encode())
    content = read_plan(path)
    assert content.text == text
    assert content.text.encode() == content.data == path.read_bytes()


@pytest.mark.parametrize(
    "data",
    [b"", b"\xef\xbb\xbf* BOM\r\n", b"no final newline", b"a\0b\n", b"lone\rCR\r\n\tand tab"],
    ids=["empty", "byte-order mark", "no newline", "NUL", "CR"],
)
def test_odd_text_is_still_text(plan: Path, data: bytes) -> None:
    plan.write_bytes(data)
    assert read_plan(plan).text.encode() == data


def test_a_byte_order_mark_stays_the_first_character(plan: Path) -> None:
    plan.write_bytes(b"\xef\xbb\xbf* A\n")
    assert read_plan(plan).text == "\ufeff* A\n"


@pytest.mark.parametrize(
    ("data", "line", "column", "what"),
    [
        (b"\xff", 1, 1, "0xff at byte 0"),
        (b"* A\n  caf\xe9\n", 2, 6, "0xe9 at byte 9"),
        ("* Äß𝔘".encode() + b"\xc3(", 1, 6, "0xc3 at byte 10"),
        (b"\xef\xbb\xbf\xfe", 1, 1, "0xfe at byte 3"),
        (b"a\r\nb\r\n\xed\xa0\x80", 3, 1, "0xed at byte 6"),
        (b"* cut short \xe2\x82", 1, 13, "0xe2 at byte 12"),
    ],
)
def test_the_first_byte_that_is_not_utf8_is_named(
    plan: Path, data: bytes, line: int, column: int, what: str
) -> None:
    plan.write_bytes(data)
    with pytest.raises(PlanFileError) as caught:
        read_plan(plan)
    message = f"{plan}:{line}:{column}: {what} is not UTF-8; save the file as UTF-8"
    assert str(caught.value) == message


def test_line_and_column_are_also_given_to_machines(plan: Path) -> None:
    plan.write_bytes(b"one\ntwo \xff")
    with pytest.raises(PlanFileError) as caught:
        read_plan(plan)
    assert (caught.value.path, caught.value.line, caught.value.column) == (str(plan), 2, 5)
    assert str(caught.value).startswith(f"{plan}:2:5: ")


@given(before=st.text(), bad=st.sampled_from([b"\xff", b"\xc3", b"\x80", b"\xed\xa0\x80"]))
@settings(max_examples=scaled(2_000))
def test_any_text_before_the_bad_byte_counts_lines_and_columns(
    tmp_path_factory: pytest.TempPathFactory, before: str, bad: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "bad.org"
    path.write_bytes(before.encode() + bad)
    with pytest.raises(PlanFileError) as caught:
        read_plan(path)
    last = before.rsplit("\n", maxsplit=1)[-1]
    assert caught.value.line == len(before.split("\n"))
    assert caught.value.column == len(last.removeprefix("\ufeff")) + 1


def test_a_missing_file_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(PlanMissingError, match=r"none\.org: does not exist") as caught:
        read_plan(tmp_path / "none.org")
    assert caught.value.exit_code == Exit.NOT_FOUND


def test_only_plain_files_are_read_and_none_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's path must be short
    os.mkfifo("fifo.org")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket.org")
        assert refusal(read_plan, "socket.org") == (
            "is a socket or a device; only regular files can be plans"
        )
    assert refusal(read_plan, "fifo.org") == "is a FIFO; only regular files can be plans"
    assert refusal(read_plan, ".") == "is a directory; only regular files can be plans"
    assert refusal(read_plan, "/dev/null") == "is a device; only regular files can be plans"


def test_a_named_link_is_followed_but_not_to_a_fifo(plan: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.org"
    link.symlink_to(plan)
    assert read_plan(link).data == plan.read_bytes()
    assert read_plan(link).path == str(link)
    os.mkfifo(tmp_path / "fifo")
    link.unlink()
    link.symlink_to(tmp_path / "fifo")
    assert refusal(read_plan, link) == "is a FIFO; only regular files can be plans"
    link.unlink()
    link.symlink_to(link)
    assert refusal(read_plan, link).startswith("is a symbolic link")


def test_a_plan_may_have_16_mib_and_no_byte_more(plan: Path) -> None:
    with plan.open("wb") as file:
        file.truncate(16 * 2**20)
    assert len(read_plan(plan).data) == 16_777_216
    with plan.open("ab") as file:
        file.write(b"x")
    assert refusal(read_plan, plan) == "has 16,777,217 bytes; a plan may have 16,777,216"
    assert refusal(read_plan, plan, limit=10).endswith("a plan may have 10")


@pytest.mark.parametrize("name", ["", "a\0b.org", "\ud800.org"])
def test_an_impossible_name_is_refused_in_words(name: str) -> None:
    assert refusal(read_plan, name) == "is not a valid file name"


def test_a_name_that_is_too_long_is_refused_in_words(tmp_path: Path) -> None:
    assert refusal(read_plan, tmp_path / ("x" * 300)) == "file name too long"


def writer_during_reads(plan: Path, times: int) -> Callable[[int, int], bytes]:
    """Return an `os.read` before whose first *times* calls somebody appends to the plan."""
    left = times
    real = os.read

    def read(descriptor: int, count: int) -> bytes:
        nonlocal left
        if left and count > 1:
            left -= 1
            with plan.open("ab") as file:
                file.write(b"more\n")
        return real(descriptor, count)

    return read


def test_a_file_that_changes_while_it_is_read_is_read_again(
    plan: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    monkeypatch.setattr(os, "read", writer_during_reads(plan, 4))
    assert read_plan(plan).data == b"* TODO Water the plants\n" + b"more\n" * 4
    assert pauses == [0.01, 0.02, 0.04, 0.08]


def test_a_file_that_never_stands_still_is_reported(
    plan: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    monkeypatch.setattr(os, "read", writer_during_reads(plan, 1_000))
    assert refusal(read_plan, plan) == ("changed while it was read; try again once it is saved")


def test_a_rewrite_of_equal_length_is_noticed_by_its_time(
    plan: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    real = os.read
    seen: list[bytes] = []

    def read(descriptor: int, count: int) -> bytes:
        data = real(descriptor, count)
        if not seen:
            plan.write_bytes(b"* DONE Water the plants\n")
            os.utime(plan, ns=(0, 0))
        seen.append(data)
        return data

    monkeypatch.setattr(os, "read", read)
    assert read_plan(plan).data == b"* DONE Water the plants\n"
    assert seen[0] == b"* TODO Water the plants\n"


def test_a_file_that_grows_without_end_is_read_no_further_than_it_was(
    plan: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    asked: list[int] = []
    real = os.read

    def read(descriptor: int, count: int) -> bytes:
        asked.append(count)
        with plan.open("ab") as file:
            file.write(b"x" * 1_000)
        return real(descriptor, count)

    monkeypatch.setattr(os, "read", read)
    assert "changed while it was read" in refusal(read_plan, plan)
    assert max(asked) <= plan.stat().st_size + 1


def test_descriptors_are_given_back_whatever_happens(plan: Path, tmp_path: Path) -> None:
    def count() -> int:
        return len(list(Path("/dev/fd").iterdir()))

    os.mkfifo(tmp_path / "fifo.org")
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / "bad.org").write_bytes(b"\xff")
    before = count()
    for _ in range(20):
        read_plan(plan, root=tmp_path)
        find_plans(tmp_path)
        for name in ("fifo.org", "none.org", "deep/none/x.org", "deep/er/bad.org", "plan.org/x"):
            refusal(read_plan, tmp_path / name, root=tmp_path)
    assert count() == before


# Beneath a root


def test_beneath_a_root_no_link_is_followed(plan: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key.org").write_text("secret")
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    (root / "sub" / "in.org").write_text("in")
    (root / "out.org").symlink_to(secret / "key.org")
    (root / "inner.org").symlink_to("sub/in.org")
    (root / "dir").symlink_to(secret)
    assert read_plan(root / "sub" / "in.org", root=root).text == "in"
    for name in ("out.org", "inner.org"):
        assert refusal(read_plan, root / name, root=root) == (
            "is a symbolic link, which is not followed; name the file itself"
        )
    assert refusal(read_plan, root / "dir" / "key.org", root=root) == (
        "'dir' in its path is a link or not a directory"
    )


@pytest.mark.parametrize(
    "path", ["/etc/hostname", "../secret.org", "{root}/../secret.org", "{root}x/a.org", "a.org"]
)
def test_a_path_outside_the_root_is_refused_before_any_open(
    tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "secret.org").write_text("secret")
    name = path.format(root=root)
    opened: list[object] = []
    monkeypatch.setattr(os, "open", lambda *arguments, **_: opened.append(arguments))
    assert refusal(read_plan, name, root=root) == f"is outside {root}"
    assert opened == []


@pytest.mark.parametrize("part", [".git", ".GIT", "git~1", ".g\u200cit"])
def test_gits_own_files_are_never_read_beneath_a_root(tmp_path: Path, part: str) -> None:
    (tmp_path / part).mkdir()
    (tmp_path / part / "x.org").write_text("x")
    assert refusal(read_plan, tmp_path / part / "x.org", root=tmp_path) == (
        "is inside .git; files of git cannot be plans"
    )


def test_a_missing_directory_is_named_as_the_reason(tmp_path: Path) -> None:
    with pytest.raises(PlanMissingError, match="its directory does not exist"):
        read_plan(tmp_path / "none" / "x.org", root=tmp_path)
    with pytest.raises(PlanMissingError, match="its directory does not exist"):
        read_plan(tmp_path / "none" / "x.org", root=tmp_path / "none")


@pytest.mark.parametrize("name", ["{root}/", "{root}/.", "{root}/sub/.."])
def test_a_root_is_no_plan(tmp_path: Path, name: str) -> None:
    (tmp_path / "sub").mkdir()
    reason = refusal(read_plan, name.format(root=tmp_path), root=tmp_path)
    assert reason.startswith(("is a directory", "is outside"))


def test_a_root_may_be_written_in_several_ways(plan: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(plan.parent)
    for root in (".", "./", str(plan.parent), f"{plan.parent}/", plan.parent):
        (found,) = find_plans(root).plans
        assert read_plan(found, root=root).data == plan.read_bytes()


@pytest.mark.parametrize("swap", ["file", "directory"])
def test_a_file_swapped_for_a_link_just_before_it_is_opened_is_not_followed(
    tmp_path: Path, swap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "plan.org").write_text("secret")
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    (root / "sub" / "plan.org").write_text("mine")
    (found,) = find_plans(root).plans
    real = os.open

    def open_after_swap(
        path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None
    ) -> int:
        if swap == "file" and path == "plan.org":
            (root / "sub" / "plan.org").unlink()
            (root / "sub" / "plan.org").symlink_to(tmp_path / "outside" / "plan.org")
        if swap == "directory" and path == "sub":
            (root / "sub").rename(tmp_path / "gone")
            (root / "sub").symlink_to(tmp_path / "outside")
        return real(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", open_after_swap)
    assert "link" in refusal(read_plan, found, root=root)


def test_a_file_swapped_for_a_fifo_just_before_it_is_opened_hangs_nobody(
    plan: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open

    def open_after_swap(
        path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None
    ) -> int:
        if path == "plan.org":
            plan.unlink()
            os.mkfifo(plan)
        return real(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", open_after_swap)
    assert refusal(read_plan, plan, root=plan.parent) == (
        "is a FIFO; only regular files can be plans"
    )


def test_a_directory_moved_while_it_is_read_stays_the_same_directory(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "plan.org").write_text("mine")
    path = str(tmp_path / "a" / "plan.org")
    with directory_of(path, root=str(tmp_path)) as (directory, name):
        (tmp_path / "a").rename(tmp_path / "b")
        descriptor = os.open(name, os.O_RDONLY, dir_fd=directory)
        assert os.read(descriptor, 10) == b"mine"
        os.close(descriptor)


def test_without_directory_descriptors_real_paths_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "in.org").write_text("in")
    (tmp_path / "rootless.org").write_text("secret")
    (root / "out.org").symlink_to(tmp_path / "rootless.org")
    monkeypatch.setattr(files, "_HAS_DIRECTORY_DESCRIPTORS", False)
    assert read_plan(root / "in.org", root=root).text == "in"
    for name in ("out.org", "../rootless.org"):
        reason = refusal(read_plan, f"{root}/{name}", root=root)
        assert reason == f"is outside {root}"


# Finding


def made(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("* A\n")


def names_of(root: Path) -> list[str]:
    found = find_plans(root)
    assert found.problems == ()
    return [name.removeprefix(f"{root}/") for name in found.plans]


def test_plans_are_found_at_any_depth_in_the_order_of_their_paths(tmp_path: Path) -> None:
    names = ["a-b.org", "a.org", "a/b.org", "a/b/c.org", "a0.org", "ä.org", "Z.org"]
    for name in random.Random(1).sample(names, len(names)):
        made(tmp_path, name)
    made(tmp_path, "notes.md", "org", "plan.orgy", "plan.org~", "#plan.org#", "a/x.txt")
    assert names_of(tmp_path) == sorted(names)


def test_other_suffixes_can_be_asked_for(tmp_path: Path) -> None:
    made(tmp_path, "a.org", "b.md", "c.yml", ".agentd/agents/d.yaml", ".batty/e.yml")
    found = find_plans(tmp_path, suffixes=(".yml", ".yaml")).plans
    assert found == (f"{tmp_path}/.agentd/agents/d.yaml", f"{tmp_path}/c.yml")


def test_a_tree_without_plans_is_no_error(tmp_path: Path) -> None:
    assert find_plans(tmp_path) == ((), ())


def test_hidden_things_are_passed_by_in_silence(tmp_path: Path) -> None:
    made(tmp_path, ".horae/a.org", ".venv/b.org", ".hidden.org", "._plan.org", "plan.org")
    (tmp_path / ".#plan.org").symlink_to("ana@service.4711:1767225600")  # an Emacs lock
    assert names_of(tmp_path) == ["plan.org"]


GIT_SPELLINGS = [
    ".git",
    ".GIT",
    ".Git ",
    ".git.",
    ".git . .",
    ".git::$INDEX_ALLOCATION",
    ".g\u200cit",
    "\ufeff.git",
    ".gi\u206ft\u200d",
    "git~1",
    "GIT~1",
    "git~2.",
]


@pytest.mark.parametrize("name", GIT_SPELLINGS)
def test_git_is_not_entered_however_it_is_spelled(tmp_path: Path, name: str) -> None:
    assert is_git(name)
    made(tmp_path, f"{name}/hidden.org", "plan.org")
    assert names_of(tmp_path) == ["plan.org"]


@pytest.mark.parametrize(
    "name", [".github", "git", "git~", "git~x", "agit~1", ".gitmodules", "my.git", ".gi", "g.it"]
)
def test_what_only_resembles_git_is_not_taken_for_it(name: str) -> None:
    assert not is_git(name)


@pytest.mark.parametrize("name", GIT_SPELLINGS)
@pytest.mark.parametrize("kind", ["directory", "file", "dangling link"])
def test_a_directory_with_a_repository_of_its_own_is_not_entered(
    tmp_path: Path, name: str, kind: str
) -> None:
    made(tmp_path, "clone/plan.org", "clone/deep/plan.org", "plan.org")
    match kind:
        case "directory":
            (tmp_path / "clone" / name).mkdir()
        case "file":
            (tmp_path / "clone" / name).write_text("gitdir: elsewhere\n")
        case _:
            (tmp_path / "clone" / name).symlink_to("nowhere")
    assert names_of(tmp_path) == ["plan.org"]


def test_the_root_may_be_a_repository_itself(tmp_path: Path) -> None:
    made(tmp_path, ".git/description.org", "plan.org")
    assert names_of(tmp_path) == ["plan.org"]


def test_links_to_directories_are_not_followed_and_cannot_make_a_circle(tmp_path: Path) -> None:
    made(tmp_path, "a/plan.org")
    (tmp_path / "a" / "up").symlink_to(tmp_path)
    (tmp_path / "b").symlink_to(tmp_path / "a")
    assert names_of(tmp_path) == ["a/plan.org"]


def test_what_is_not_a_plain_file_is_reported_and_the_rest_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made(tmp_path, "a.org", "z.org", "dir.org/inside.org")
    os.mkfifo("fifo.org")
    Path("link.org").symlink_to("a.org")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket.org")
    found = find_plans(".")
    assert found.plans == ("./a.org", "./dir.org/inside.org", "./z.org")
    assert [str(problem) for problem in found.problems] == [
        "./fifo.org: is a FIFO, a socket or a device; only regular files can be plans",
        "./link.org: is a symbolic link; only regular files can be plans",
        "./socket.org: is a FIFO, a socket or a device; only regular files can be plans",
    ]


def test_a_name_that_is_not_utf8_is_reported_and_the_rest_goes_on(tmp_path: Path) -> None:
    raw = os.fsencode(tmp_path)
    try:
        Path(os.fsdecode(raw + b"/dos\xff")).mkdir()
        for name in (b"/caf\xe9.org", b"/dos\xff/a.org", b"/caf\xe9.txt", b"/plan.org"):
            os.close(os.open(raw + name, os.O_CREAT | os.O_WRONLY))
    except OSError:
        pytest.skip("this file system takes only UTF-8 names")
    found = find_plans(tmp_path)
    assert found.plans == (f"{tmp_path}/plan.org",)
    assert [str(problem) for problem in found.problems] == [
        rf"{tmp_path}/caf\xe9.org: its name is not UTF-8; rename it",
        rf"{tmp_path}/dos\xff: its name is not UTF-8; rename it",
    ]


def test_a_directory_that_cannot_be_listed_is_reported_and_the_rest_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tmp_path, "a.org", "closed/b.org", "z.org")
    real = os.scandir

    def scandir(path: str) -> object:
        if path.endswith("/closed/"):
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    found = find_plans(tmp_path)
    assert [Path(plan).name for plan in found.plans] == ["a.org", "z.org"]
    assert [str(problem) for problem in found.problems] == [
        f"{tmp_path}/closed/: cannot be listed: permission denied"
    ]


def test_a_directory_removed_during_the_walk_is_simply_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tmp_path, "a.org", "going/b.org")
    real = os.scandir

    def scandir(path: str) -> object:
        if path.endswith("/going/"):
            Path(path, "b.org").unlink()
            Path(path).rmdir()
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    assert names_of(tmp_path) == ["a.org"]


def test_a_tree_deeper_than_any_path_is_reported_and_the_rest_goes_on(tmp_path: Path) -> None:
    made(tmp_path, "z.org")
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(30):
        os.mkdir("d" * 200, dir_fd=here)
        inner = os.open("d" * 200, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    found = find_plans(tmp_path)
    assert found.plans == (f"{tmp_path}/z.org",)
    assert [problem.reason for problem in found.problems] == [
        "cannot be listed: file name too long"
    ]


def test_a_root_that_is_missing_or_no_directory_is_an_error(plan: Path, tmp_path: Path) -> None:
    with pytest.raises(PlanMissingError, match="none: does not exist"):
        find_plans(tmp_path / "none")
    assert refusal(find_plans, plan) == "is not a directory, or a part of its path is a file"


def test_twenty_thousand_plans_are_found_and_no_more(tmp_path: Path) -> None:
    count = scaled(20_000)
    names = [f"{number % 97:02}/{number:05}.org" for number in range(count)]
    for folder in range(97):
        (tmp_path / f"{folder:02}").mkdir()
    for name in names:
        os.close(os.open(f"{tmp_path}/{name}", os.O_CREAT | os.O_WRONLY))
    assert names_of(tmp_path) == sorted(names)
    assert find_plans(tmp_path, most=count).problems == ()
    fewer = find_plans(tmp_path, most=count - 1)
    assert fewer.plans == find_plans(tmp_path).plans[:-1]
    assert [problem.reason for problem in fewer.problems] == [
        f"has more than {count - 1} plans; the rest are ignored"
    ]


def test_problems_are_bounded_like_plans(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / f"{number:02}.org").symlink_to("nowhere")
    found = find_plans(tmp_path, most=10)
    assert len(found.problems) == 11
    assert found.problems[-1].reason == "has more than 10 plans; the rest are ignored"


# Words


def test_a_path_is_always_shown_as_one_printable_line() -> None:
    assert printable("plans/naïve plan.org") == "plans/naïve plan.org"
    assert printable("a\nb\x1b[31m\u202e.org") == r"a\nb\x1b[31m\u202e.org"
    assert printable(os.fsdecode(b"caf\xe9")) == r"caf\xe9"
    assert printable("") == "''"


@given(st.text(st.characters()))
def test_no_path_breaks_its_line(path: str) -> None:
    assert printable(path).isprintable()
    printable(path).encode()


def test_reading_needs_neither_pathlib_nor_openssl() -> None:
    code = "import sys, horae.files.read; print({'pathlib', 'hashlib', 'dataclasses'} & {*sys.modules})"
    answer = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:] = {sys.path!r}; {code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stdout == "set()\n"
