"""Writing users' files: what an edit changes, what it never loses, and how it fails."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import inspect
import itertools
import json
import os
import random
import re
import shutil
import socket
import stat
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from horae.errors import Exit
from horae.files import edit as module
from horae.files.edit import (
    EditConflictError,
    Splice,
    SpliceError,
    create,
    edit,
    remove,
    spliced,
)
from horae.files.read import PlanFileError, PlanMissingError, read_plan
from scale import scaled

if TYPE_CHECKING:
    from collections.abc import Callable

OLD = b"* TODO Water the plants\r\n"
NEW = b"* DONE Water the plants\r\n"
DONE = [Splice(2, 6, b"DONE")]

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="leases are Linux's")


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "plan.org"
    path.write_bytes(OLD)
    return path


def finish(plan: Path) -> str:
    """Edit the plan that holds OLD so that it holds NEW."""
    return edit(plan, DONE, expected=sha256(OLD))


def refusal(action: Callable[..., object], *arguments: object, **options: object) -> str:
    with pytest.raises(PlanFileError) as caught:
        action(*arguments, **options)
    return caught.value.reason


def names(directory: Path) -> list[str]:
    return sorted(entry.name for entry in directory.iterdir())


def program(function: Callable[..., object], *arguments: object) -> list[str]:
    """Return the command that calls a function, which imports what it needs, and prints JSON."""
    lines = [
        "from __future__ import annotations",
        inspect.getsource(function),
        f"import json; print(json.dumps({function.__name__}(*{arguments!r})))",
    ]
    return [sys.executable, "-c", "\n".join(lines)]


def started(function: Callable[..., object], *arguments: object) -> subprocess.Popen[str]:
    """Call a function in a process of its own."""
    pipe = subprocess.PIPE
    return subprocess.Popen(program(function, *arguments), stdin=pipe, stdout=pipe, text=True)


def answer(process: subprocess.Popen[str]) -> Any:
    """Return what the function answered."""
    output, _ = process.communicate()
    assert process.returncode == 0
    return json.loads(output)


# What an edit changes


def test_an_edit_returns_the_digest_of_what_it_wrote(plan: Path) -> None:
    assert finish(plan) == sha256(NEW)
    assert plan.read_bytes() == NEW
    assert names(plan.parent) == ["plan.org"]


def test_what_was_read_can_be_edited_and_edited_again(plan: Path) -> None:
    content = read_plan(plan)
    digest = edit(plan, DONE, expected=content.digest)
    edit(plan, [Splice(23, 25, b"\n")], expected=digest)
    assert plan.read_bytes() == b"* DONE Water the plants\n"


PIECES = [
    *("* TODO Water", "SCHEDULED: <2026-04-01 Wed>", ":PROPERTIES:", "#+TITLE:", "  ", "x" * 300),
    *("\n", "\n", "\r\n", "\r\n", "\r", "\n\r", "\t", "\v", "\f", "\0", "\x85", "\u2028", "\u2029"),
    *("\ufeff", "é", "e\u0301", "日本", "𝔘", "👩‍🌾", "\u202e", "\U0010ffff"),
]
BROKEN = [
    b"\xff",
    b"\xfe\xff",
    b"\xc3",
    b"\xe2\x82",
    b"\xed\xa0\x80",
    b"\xf8\x88",
    b"\x80",
    b"\0\0",
]


def written_by_someone(chance: random.Random) -> bytes:
    """Return a file as any editor on any system may have left it."""
    ending = chance.choice(["\n", "\r\n", "\r", ""])
    pieces = [chance.choice(PIECES).encode() + ending.encode() for _ in range(chance.randrange(40))]
    if chance.random() < 0.3:
        pieces.insert(chance.randrange(len(pieces) + 1), chance.choice(BROKEN))
    if chance.random() < 0.2:
        pieces.insert(0, b"\xef\xbb\xbf")
    content = b"".join(pieces)
    return content.rstrip() if chance.random() < 0.3 else content


def some_splices(chance: random.Random, length: int) -> list[Splice]:
    """Return splices that go forward, some empty and some touching."""
    places = sorted(chance.choices(range(length + 1), k=2 * chance.randrange(6)))
    texts = [piece.encode() for piece in PIECES] + BROKEN + [b"", b""]
    pairs = zip(places[::2], places[1::2], strict=True)
    return [Splice(start, end, chance.choice(texts)) for start, end in pairs]


def test_an_edit_changes_its_own_spans_and_no_other_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)  # ten thousand of them are slow
    path = tmp_path / "plan.org"
    chance = random.Random(23)
    for _ in range(scaled(10_000)):
        content = written_by_someone(chance)
        splices = some_splices(chance, len(content))
        mode = chance.choice([0o600, 0o640, 0o644, 0o664, 0o666, 0o700, 0o755, 0o1644, 0o2770])
        path.write_bytes(content)
        path.chmod(mode)
        expected = bytearray(content)
        for splice in reversed(splices):
            expected[splice.start : splice.end] = splice.data

        digest = edit(path, splices, expected=sha256(content))

        assert path.read_bytes() == expected
        assert digest == sha256(bytes(expected))
        assert stat.S_IMODE(path.stat().st_mode) == mode
        path.chmod(0o600)
    assert names(tmp_path) == ["plan.org"]


def test_an_edit_that_changes_nothing_writes_nothing(plan: Path) -> None:
    plan.chmod(0o640)
    before = plan.stat()
    assert edit(plan, [], expected=sha256(OLD)) == sha256(OLD)
    assert edit(plan, [Splice(2, 6, b"TODO")], expected=sha256(OLD)) == sha256(OLD)
    after = plan.stat()
    assert (after.st_ino, after.st_mtime_ns, after.st_ctime_ns) == (
        before.st_ino,
        before.st_mtime_ns,
        before.st_ctime_ns,
    )


def test_an_empty_file_can_be_filled_and_a_full_one_emptied(plan: Path) -> None:
    digest = edit(plan, [Splice(0, len(OLD), b"")], expected=sha256(OLD))
    assert plan.read_bytes() == b""
    edit(plan, [Splice(0, 0, b"* A\n"), Splice(0, 0, b"* B\n")], expected=digest)
    assert plan.read_bytes() == b"* A\n* B\n"


@pytest.mark.parametrize(
    ("splices", "message"),
    [
        ([Splice(0, 99, b"")], "splice 1 (0:99) must end at 25 or earlier"),
        ([Splice(26, 26, b"x")], "splice 1 (26:26) must end at 25 or earlier"),
        ([Splice(-1, 2, b"")], "splice 1 (-1:2) must start at 0 or later"),
        ([Splice(5, 3, b"")], "splice 1 (5:3) ends before it starts"),
        ([Splice(0, 4, b""), Splice(3, 5, b"")], "splice 2 (3:5) must start at 4 or later"),
        ([Splice(9, 9, b""), Splice(2, 2, b"")], "splice 2 (2:2) must start at 9 or later"),
    ],
)
def test_a_splice_that_does_not_fit_is_named_and_nothing_is_written(
    plan: Path, splices: list[Splice], message: str
) -> None:
    with pytest.raises(SpliceError) as caught:
        edit(plan, splices, expected=sha256(OLD))
    assert str(caught.value) == message
    assert plan.read_bytes() == OLD
    assert names(plan.parent) == ["plan.org"]


def test_splices_may_touch(plan: Path) -> None:
    assert spliced(b"abc", [Splice(0, 1, b"x"), Splice(1, 2, b""), Splice(2, 2, b"y")]) == b"xyc"


def test_attributes_that_people_gave_a_file_are_kept(plan: Path) -> None:
    try:
        os.setxattr(plan, "user.colour", b"green")
    except OSError:
        pytest.skip("this file system has no such attributes")
    finish(plan)
    assert os.getxattr(plan, "user.colour") == b"green"


@on_linux
def test_the_access_list_of_a_file_is_kept_and_none_is_inherited(tmp_path: Path) -> None:
    def entry(tag: int, rights: int, user: int = 0xFFFFFFFF) -> bytes:
        return tag.to_bytes(2, "little") + rights.to_bytes(2, "little") + user.to_bytes(4, "little")

    # owner rw, user 4711 r, group -, mask r, others -
    listed = (2).to_bytes(4, "little") + b"".join(
        [entry(1, 6), entry(2, 4, 4711), entry(4, 0), entry(16, 4), entry(32, 0)]
    )
    plain, shared = tmp_path / "plain.org", tmp_path / "shared.org"
    plain.write_bytes(OLD)
    shared.write_bytes(OLD)
    try:
        os.setxattr(shared, "system.posix_acl_access", listed)
        os.setxattr(tmp_path, "system.posix_acl_default", listed)
    except OSError:
        pytest.skip("this file system has no access lists")
    plain.chmod(0o640)
    finish(plain)
    finish(shared)
    assert os.getxattr(shared, "system.posix_acl_access") == listed
    assert "system.posix_acl_access" not in os.listxattr(plain)
    assert stat.S_IMODE(plain.stat().st_mode) == 0o640


def test_a_group_that_cannot_be_kept_gives_no_other_group_its_rights(
    plan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan.chmod(0o2664)
    status = plan.stat()
    foreign = os.stat_result([*status[:5], status.st_gid + 1, *status[6:]])
    monkeypatch.setattr(os, "fchown", failing(errno.EPERM))
    with plan.open("rb") as old, (tmp_path / "new").open("wb") as new:
        home = module._Home(-1, "plan.org")
        module._dress(new.fileno(), module._Old("plan.org", home, old.fileno(), foreign, OLD))
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o644


# What an edit refuses


def test_a_file_that_changed_since_it_was_read_is_left_alone(plan: Path) -> None:
    plan.write_bytes(b"someone's\n")
    with pytest.raises(EditConflictError) as caught:
        finish(plan)
    assert str(caught.value) == f"{plan}: changed since it was read; read it again"
    assert caught.value.exit_code == Exit.CONFLICT
    assert plan.read_bytes() == b"someone's\n"


def test_a_file_is_removed_only_if_it_is_as_it_was_read(plan: Path) -> None:
    digest = sha256(plan.read_bytes())
    plan.write_bytes(b"* by a person\n")
    assert "changed since it was read" in refusal(remove, plan, expected=digest)
    assert plan.read_bytes() == b"* by a person\n"
    remove(plan, expected=sha256(b"* by a person\n"))
    assert names(plan.parent) == []


def test_a_missing_file_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(PlanMissingError, match=r"none\.org: does not exist"):
        edit(tmp_path / "none.org", DONE, expected="")
    with pytest.raises(PlanMissingError, match="its directory does not exist"):
        edit(tmp_path / "none" / "plan.org", DONE, expected="")


def test_only_plain_files_are_edited(plan: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(plan.parent)
    Path("directory.org").mkdir()
    Path("link.org").symlink_to("plan.org")
    Path("dangling.org").symlink_to("nowhere")
    os.mkfifo("fifo.org")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket.org")
    plain = "only regular files can be plans"
    link = "is a symbolic link, which is not followed; name the file itself"
    reasons = {
        "directory.org": f"is a directory; {plain}",
        "fifo.org": f"is a FIFO; {plain}",
        "socket.org": f"is a socket or a device; {plain}",
        "link.org": link,
        "dangling.org": link,
        "..": f"is a directory; {plain}",
        "directory.org/": f"is a directory; {plain}",
    }
    for name, reason in reasons.items():
        assert refusal(edit, name, DONE, expected=sha256(OLD)) == reason
    assert plan.read_bytes() == OLD


def test_a_hard_linked_file_is_not_parted_from_its_other_name(plan: Path) -> None:
    other = plan.with_name("other.org")
    other.hardlink_to(plan)
    assert (
        refusal(finish, plan) == "has 2 hard links, which an edit would break; remove all but one"
    )
    assert other.read_bytes() == plan.read_bytes() == OLD
    other.unlink()
    assert finish(plan)


def test_a_file_of_another_user_is_left_alone(plan: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = plan.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    assert refusal(finish, plan) == f"belongs to user {owner}; only its owner can edit it"


def test_a_file_that_its_owner_made_read_only_is_left_alone(plan: Path) -> None:
    plan.chmod(0o444)
    assert refusal(finish, plan) == "is read-only; give its owner write permission"
    assert plan.read_bytes() == OLD


def test_no_edit_makes_a_file_that_could_not_be_read_again(plan: Path) -> None:
    grow = [Splice(0, 0, b"x" * 100)]
    assert refusal(edit, plan, grow, expected=sha256(OLD), limit=124) == (
        "would have 125 bytes; a plan may have 124"
    )
    assert refusal(edit, plan, DONE, expected=sha256(OLD), limit=24) == (
        "has 25 bytes; a plan may have 24"
    )
    assert refusal(create, plan.with_name("new.org"), b"12345", limit=4) == (
        "would have 5 bytes; a plan may have 4"
    )
    assert names(plan.parent) == ["plan.org"]


@pytest.mark.parametrize("name", ["", "a\0b.org", "\ud800"])
def test_an_impossible_name_is_refused_in_words(name: str) -> None:
    assert refusal(edit, name, DONE, expected="") == "is not a valid file name"
    assert refusal(create, name, b"") == "is not a valid file name"


@pytest.mark.parametrize("part", [".git", ".GIT ", "git~1", ".g\u200cit"])
def test_gits_own_files_are_never_written(tmp_path: Path, part: str) -> None:
    (tmp_path / part).mkdir()
    path = tmp_path / part / "config"
    path.write_bytes(OLD)
    reason = "is inside .git; files of git cannot be plans"
    for root in (None, tmp_path):
        assert refusal(edit, path, DONE, expected=sha256(OLD), root=root) == reason
        assert refusal(create, path.with_name("hook"), b"", root=root) == reason
    assert names(tmp_path / part) == ["config"]


def test_beneath_a_root_no_link_leads_out(plan: Path) -> None:
    root = plan.parent / "root"
    (root / "in").mkdir(parents=True)
    (root / "out").symlink_to(plan.parent)
    (root / "in" / "plan.org").write_bytes(OLD)
    reason = "'out' in its path is a link or not a directory"
    assert refusal(edit, root / "out" / "plan.org", DONE, expected=sha256(OLD), root=root) == reason
    assert refusal(create, root / "out" / "new.org", b"", root=root) == reason
    assert refusal(create, f"{root}/../new.org", b"", root=root) == f"is outside {root}"
    edit(root / "in" / "plan.org", DONE, expected=sha256(OLD), root=root)
    assert (root / "in" / "plan.org").read_bytes() == NEW
    assert plan.read_bytes() == OLD


# Making a file


def test_a_new_file_is_made_with_the_mode_of_any_new_file(tmp_path: Path) -> None:
    path = tmp_path / "new.org"
    assert create(path, NEW) == sha256(NEW)
    assert path.read_bytes() == NEW
    (tmp_path / "other.org").write_bytes(NEW)
    assert path.stat().st_mode == (tmp_path / "other.org").stat().st_mode
    assert path.stat().st_nlink == 1
    assert names(tmp_path) == ["new.org", "other.org"]


@pytest.mark.parametrize("kind", ["file", "directory", "dangling link", "fifo"])
def test_what_has_the_name_already_keeps_it(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "plan.org"
    match kind:
        case "file":
            path.write_bytes(OLD)
        case "directory":
            path.mkdir()
        case "fifo":
            os.mkfifo(path)
        case _:
            path.symlink_to("nowhere")
    before = path.lstat()
    with pytest.raises(EditConflictError, match="already exists and is not changed") as caught:
        create(path, NEW)
    assert caught.value.exit_code == Exit.CONFLICT
    assert path.lstat().st_ino == before.st_ino
    assert names(tmp_path) == ["plan.org"]


def test_a_file_in_no_directory_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(PlanMissingError, match="its directory does not exist"):
        create(tmp_path / "none" / "plan.org", NEW)


def test_a_file_system_without_hard_links_is_named_as_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", failing(errno.EPERM))
    assert refusal(create, tmp_path / "plan.org", NEW) == (
        "not written: a new file needs a file system with hard links"
    )
    assert names(tmp_path) == []


def test_of_many_who_make_one_file_one_succeeds(tmp_path: Path) -> None:
    path = tmp_path / "plan.org"

    def attempt(number: int) -> str | None:
        with suppress(EditConflictError):
            return create(path, b"%d\n" % number)
        return None

    with ThreadPoolExecutor(8) as pool:
        made = [digest for digest in pool.map(attempt, range(32)) if digest]
    assert made == [sha256(path.read_bytes())]
    assert names(tmp_path) == ["plan.org"]


# In which order


def failing(number: int) -> Callable[..., None]:
    """Return a system call that fails."""

    def call(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    return call


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the calls that matter to the disk, in the order they are made."""
    log: list[str] = []

    def kind(target: object) -> str:
        if isinstance(target, int):
            return "directory" if stat.S_ISDIR(os.fstat(target).st_mode) else "file"
        return re.sub("[0-9a-f]{16}", "X", target) if isinstance(target, str) else ""

    def recorded(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(target: object, *rest: Any, **options: Any) -> Any:
            result = real(target, *rest, **options)
            log.append(f"{name} {kind(target)}".strip())
            return result

        return call

    for name in ("write", "fchmod", "fsync", "rename", "link", "unlink"):
        monkeypatch.setattr(os, name, recorded(name, getattr(os, name)))
    monkeypatch.setattr(module, "_exchange", recorded("exchange", module._exchange))
    return log


TEMPORARY = ".horae-edit-X.tmp"


def test_bytes_are_durable_before_the_name_and_the_name_before_the_answer(
    plan: Path, calls: list[str]
) -> None:
    finish(plan)
    assert calls == [
        *("write file", "fchmod file", "fsync file"),
        *("exchange", "fsync directory", f"unlink {TEMPORARY}"),
    ]


def test_the_order_is_the_same_where_files_cannot_be_exchanged(
    plan: Path, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_exchange", lambda *_: False)
    finish(plan)
    assert plan.read_bytes() == NEW
    assert calls == [
        *("write file", "fchmod file", "fsync file"),
        *(f"rename {TEMPORARY}", "fsync directory"),
    ]


def test_a_new_file_is_durable_before_it_has_its_name(tmp_path: Path, calls: list[str]) -> None:
    create(tmp_path / "plan.org", NEW)
    assert calls == [
        *("write file", "fsync file"),
        *(f"link {TEMPORARY}", "fsync directory", f"unlink {TEMPORARY}"),
    ]


def test_a_write_cut_short_is_continued(plan: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, data[:7]))
    finish(plan)
    assert plan.read_bytes() == NEW


def one_edit_and_one_new_file(directory: str) -> None:
    import os

    from horae.files.edit import Splice, create, edit
    from horae.files.read import read_plan

    os.chdir(directory)
    edit("plan.org", [Splice(2, 6, b"DONE")], expected=read_plan("plan.org").digest)
    create("new.org", b"new")


def test_the_kernel_sees_the_same_order(plan: Path) -> None:
    tracer = shutil.which("strace")
    if (
        tracer is None
        or subprocess.run([tracer, "-o", "/dev/null", "true"], check=False).returncode
    ):
        pytest.skip("strace is not here, or may not trace")
    log = plan.parent / "log"
    calls = "openat,flock,write,fsync,rename,renameat,renameat2,linkat,unlink,unlinkat"
    trace = [tracer, "-f", "-y", "-e", f"trace={calls}", "-o", str(log)]
    traced = [*trace, *program(one_edit_and_one_new_file, str(plan.parent))]
    subprocess.run(traced, check=True, capture_output=True)

    here = re.escape(str(plan.parent))
    temporary = r"\.horae-edit-[0-9a-f]{16}\.tmp"
    order = [
        rf"flock\(\d+<{here}>, LOCK_EX\|LOCK_NB\) += 0",
        rf'openat\(\d+<{here}>, "plan\.org", O_RDONLY\|.*O_NOFOLLOW\|O_CLOEXEC\) = ',
        rf'openat\(\d+<{here}>, "{temporary}", O_WRONLY\|O_CREAT\|O_EXCL\|.*, 0600\) = ',
        rf"write\(\d+<{here}/{temporary}>, .* = 25",
        rf"fsync\(\d+<{here}/{temporary}>\) += 0",
        rf'renameat2\(.*"{temporary}", .*"plan\.org", RENAME_EXCHANGE\) = 0',
        rf"fsync\(\d+<{here}>\) += 0",
        rf'unlinkat\(.*"{temporary}", 0\) += 0',
        rf"flock\(\d+<{here}>, LOCK_UN\) += 0",
        rf"flock\(\d+<{here}>, LOCK_EX\|LOCK_NB\) += 0",
        rf'openat\(\d+<{here}>, "{temporary}", O_WRONLY\|O_CREAT\|O_EXCL\|.*, 0666\) = ',
        rf"write\(\d+<{here}/{temporary}>, .* = 3",
        rf"fsync\(\d+<{here}/{temporary}>\) += 0",
        rf'linkat\(.*"{temporary}", .*"new\.org", 0\) += 0',
        rf"fsync\(\d+<{here}>\) += 0",
        rf'unlinkat\(.*"{temporary}", 0\) += 0',
        rf"flock\(\d+<{here}>, LOCK_UN\) += 0",
    ]
    lines = log.read_text().splitlines()
    first = next(number for number, line in enumerate(lines) if re.search(order[0], line))
    ours = [line for line in lines[first:] if str(plan.parent) in line and '"."' not in line]
    assert len(ours) == len(order)
    for line, pattern in zip(ours, order, strict=True):
        assert re.search(pattern, line)


# Others who save


def before_each_exchange(
    monkeypatch: pytest.MonkeyPatch, actions: list[Callable[[], object]]
) -> None:
    """Take one of the actions right before each exchange, as long as there are any."""
    real = module._exchange

    def exchange(home: module._Home, name: str) -> bool:
        if actions:
            actions.pop(0)()
        return real(home, name)

    monkeypatch.setattr(module, "_exchange", exchange)


def saved_by_rename(path: Path, data: bytes) -> None:
    other = path.with_name(f"{path.name}~")
    other.write_bytes(data)
    other.replace(path)


@pytest.mark.parametrize("saves", [1, 2, 3, 4])
def test_a_save_in_the_very_last_moment_wins(
    plan: Path, saves: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [b"save %d\n" % number for number in range(saves)]
    actions: list[Callable[[], object]] = [partial(saved_by_rename, plan, text) for text in texts]
    before_each_exchange(monkeypatch, actions)
    with pytest.raises(EditConflictError) as caught:
        finish(plan)
    assert caught.value.reason == "was saved by another program in the meantime; read it again"
    assert actions == []
    assert plan.read_bytes() == texts[-1]
    assert names(plan.parent) == ["plan.org"]


def test_a_file_that_is_removed_in_the_last_moment_stays_removed(
    plan: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before_each_exchange(monkeypatch, [plan.unlink])
    with pytest.raises(EditConflictError, match="was removed while it was edited"):
        finish(plan)
    assert names(plan.parent) == []


def test_a_file_that_is_saved_and_then_removed_stays_removed(
    plan: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before_each_exchange(monkeypatch, [partial(saved_by_rename, plan, b"saved\n"), plan.unlink])
    with pytest.raises(EditConflictError, match="was saved by another program"):
        finish(plan)
    assert names(plan.parent) == []


@pytest.mark.parametrize("kind", ["link", "directory", "fifo"])
def test_whatever_takes_the_place_of_the_file_in_the_last_moment_keeps_it(
    plan: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def replace() -> None:
        plan.unlink()
        match kind:
            case "link":
                plan.symlink_to("elsewhere")
            case "directory":
                plan.mkdir()
            case _:
                os.mkfifo(plan)

    before_each_exchange(monkeypatch, [replace])
    with pytest.raises(EditConflictError):
        finish(plan)
    assert not plan.is_file()
    assert names(plan.parent) == ["plan.org"]


def before_first_sync(monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]) -> None:
    """Do something when the new file is written and not yet synced."""
    real = os.fsync

    def fsync(descriptor: int) -> None:
        monkeypatch.setattr(os, "fsync", real)
        action()
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)


@pytest.mark.parametrize("can_exchange", [True, False])
@pytest.mark.parametrize("save", [Path.write_bytes, saved_by_rename])
def test_a_save_while_the_new_file_is_written_wins(
    plan: Path,
    save: Callable[[Path, bytes], object],
    can_exchange: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not can_exchange:
        monkeypatch.setattr(module, "_exchange", lambda *_: False)
    before_first_sync(monkeypatch, partial(save, plan, b"someone's\n"))
    with pytest.raises(EditConflictError, match="was saved by another program"):
        finish(plan)
    assert plan.read_bytes() == b"someone's\n"
    assert names(plan.parent) == ["plan.org"]


def test_a_save_of_equal_length_and_time_is_noticed_too(
    plan: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    time_of_old = plan.stat().st_mtime_ns

    def save() -> None:
        plan.write_bytes(OLD.upper())
        os.utime(plan, ns=(time_of_old, time_of_old))

    before_first_sync(monkeypatch, save)
    with pytest.raises(EditConflictError):
        finish(plan)
    assert plan.read_bytes() == OLD.upper()


def test_a_displaced_save_is_put_back_before_anything_else_is_made_durable(
    plan: Path, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before_each_exchange(monkeypatch, [partial(saved_by_rename, plan, b"someone's\n")])
    with pytest.raises(EditConflictError):
        finish(plan)
    assert calls[-4:] == ["exchange", "exchange", "fsync directory", f"unlink {TEMPORARY}"]


@on_linux
def test_a_file_that_someone_has_open_for_writing_is_left_alone(
    plan: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    with plan.open("ab") as file:
        assert refusal(finish, plan) == "is open for writing in another program"
        file.write(b"appended\n")
    assert plan.read_bytes() == OLD + b"appended\n"
    with plan.open("rb"):
        edit(plan, DONE, expected=sha256(OLD + b"appended\n"))
    assert plan.read_bytes() == NEW + b"appended\n"


@on_linux
@pytest.mark.parametrize("moment", ["before the exchange", "after it"])
def test_someone_who_opens_the_old_file_during_the_exchange_is_noticed_and_wins(
    plan: Path, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[int] = []
    real = module._takes_lease

    def takes_lease(old: module._Old) -> bool:
        held.append(old.descriptor)
        return real(old)

    def save_in_place() -> None:
        # A path through the descriptor finds the old file, as if looked up before the exchange.
        Path(f"/proc/self/fd/{held[0]}").write_bytes(b"someone's\n")

    def begin_to_save() -> None:
        editor.start()
        while fcntl.fcntl(held[0], fcntl.F_GETLEASE) == fcntl.F_RDLCK:
            pass  # until the editor stands before the file, and waits

    def begin_to_save_and_sync(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            monkeypatch.setattr(os, "fsync", lambda _: None)
            begin_to_save()

    editor = threading.Thread(target=save_in_place)
    monkeypatch.setattr(module, "_takes_lease", takes_lease)
    if moment == "before the exchange":
        before_each_exchange(monkeypatch, [begin_to_save])
    else:
        monkeypatch.setattr(os, "fsync", begin_to_save_and_sync)
    with pytest.raises(EditConflictError, match="was saved by another program"):
        finish(plan)
    editor.join()
    assert plan.read_bytes() == b"someone's\n"
    assert names(plan.parent) == ["plan.org"]


def test_without_leases_an_edit_still_goes_through(
    plan: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_takes_lease", lambda _: False)
    finish(plan)
    assert plan.read_bytes() == NEW


def save_at_random(path: str, saves: int, seed: int) -> list[str]:
    """Save like a person's editor, in place or by rename; return what became of each save."""
    import os
    import random
    from pathlib import Path

    plan, chance, found = Path(path), random.Random(seed), []

    def text_after(saved: str) -> str:
        tries, text = 0, plan.read_text()
        # An edit that came too late may be seen until it is taken back.
        while not text.startswith(saved) and tries < 20_000:
            tries, text = tries + 1, plan.read_text()
        return text

    saved = plan.read_text()
    for number in range(saves):
        for _ in range(chance.randrange(100)):
            plan.read_text()
        found.append(text_after(saved))
        saved = f"save {number}\n"
        target = chance.choice([plan, Path(f"{path}~")])
        with target.open("w") as file:
            for _ in range(chance.choice([0, 100, 20_000])):
                os.getpid()  # the file is empty for up to some milliseconds
            file.write(saved)
        if target != plan:
            target.replace(plan)
    return [*found, text_after(saved)]


def appended(path: Path, line: str) -> bool:
    """Try to put a line at the end of a file; False if someone else was saving."""
    try:
        content = read_plan(path)
        edit(path, [Splice(at := len(content.data), at, line.encode())], expected=content.digest)
    except PlanFileError:
        return False
    return True


@on_linux
@pytest.mark.parametrize("saver", ["thread", "process"])
def test_no_save_is_ever_lost_and_every_conflict_is_reported(plan: Path, saver: str) -> None:
    plan.write_text("start\n")
    saves = scaled(2_000)
    with ThreadPoolExecutor(1) as pool:
        if saver == "thread":
            result = pool.submit(save_at_random, str(plan), saves, 7)
        else:
            result = pool.submit(answer, started(save_at_random, str(plan), saves, 7))
        succeeded = set()
        for number in itertools.count():
            if result.done():
                break
            if appended(plan, f"+{number}\n"):
                succeeded.add(f"+{number}")
        found = result.result()

    assert succeeded
    for number, text in enumerate(found):
        first, *added = text.splitlines()
        assert first == ("start" if number == 0 else f"save {number - 1}")
        assert set(added) <= succeeded
    assert names(plan.parent) == ["plan.org"]


# The lock


def append_lines(path: str, name: str, count: int) -> int:
    """Append lines one edit at a time; return how often someone else was first."""
    from horae.files.edit import EditConflictError, Splice, edit
    from horae.files.read import read_plan

    conflicts = 0
    for number in range(count):
        while True:
            content = read_plan(path)
            at = len(content.data)
            try:
                edit(path, [Splice(at, at, f"{name} {number}\n".encode())], expected=content.digest)
                break
            except EditConflictError:
                conflicts += 1
    return conflicts


def test_edits_of_threads_and_processes_wait_for_one_another(plan: Path) -> None:
    plan.write_bytes(b"")
    count = scaled(400)
    processes = [started(append_lines, str(plan), f"process {n}", count) for n in range(2)]
    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(append_lines, str(plan), f"thread {n}", count) for n in range(2)]
        for job in jobs:
            job.result()
    for process in processes:
        answer(process)
    wanted = [
        f"{kind} {n} {i}" for kind in ("thread", "process") for n in (0, 1) for i in range(count)
    ]
    assert sorted(plan.read_text().splitlines()) == sorted(wanted)
    assert names(plan.parent) == ["plan.org"]


def test_a_holder_that_is_stuck_is_given_up_on(plan: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    directory = os.open(plan.parent, os.O_RDONLY)
    fcntl.flock(directory, fcntl.LOCK_EX)
    with pytest.raises(EditConflictError) as caught:
        finish(plan)
    assert caught.value.reason == "another program has locked its directory"
    assert sum(pauses) == pytest.approx(10)
    os.close(directory)
    assert finish(plan)


def test_the_lock_is_free_after_an_error_and_descriptors_are_given_back(plan: Path) -> None:
    before = len(names(Path("/dev/fd")))
    for _ in range(20):
        with pytest.raises(EditConflictError):
            edit(plan, DONE, expected="other")
        with pytest.raises(SpliceError):
            edit(plan, [Splice(9, 1, b"")], expected=sha256(OLD))
        with pytest.raises(EditConflictError):
            create(plan, b"")
    assert finish(plan)
    assert len(names(Path("/dev/fd"))) == before


def test_a_directory_that_cannot_be_locked_is_named_as_the_reason(
    plan: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcntl, "flock", failing(errno.EBADF))
    assert refusal(create, plan.with_name("new.org"), b"") == (
        "its directory cannot be locked (bad file descriptor); use a local file system"
    )


# What killed edits leave


def edit_slowly(path: str) -> str:
    """Edit, but say so and wait for a word when the new file is written."""
    import os
    import sys
    from unittest import mock

    from horae.files.edit import Splice, edit
    from horae.files.read import read_plan

    real, calls = os.fsync, []

    def fsync(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == 1:
            print("written", flush=True)
            sys.stdin.readline()
        real(descriptor)

    with mock.patch.object(os, "fsync", fsync):
        return edit(path, [Splice(2, 6, b"DONE")], expected=read_plan(path).digest)


def test_the_file_of_a_living_writer_is_not_swept(
    plan: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = plan.with_name("other.org")
    other.write_bytes(OLD)
    process = started(edit_slowly, str(plan))
    assert process.stdout is not None
    assert process.stdout.readline() == "written\n"
    monkeypatch.setattr(module, "_LOCK_ATTEMPTS", 1)
    with pytest.raises(EditConflictError, match="has locked"):
        finish(other)
    assert len(names(plan.parent)) == 3
    output, _ = process.communicate("go\n")
    assert json.loads(output) == sha256(NEW)
    assert plan.read_bytes() == NEW
    assert names(plan.parent) == ["other.org", "plan.org"]


def test_the_file_of_a_killed_writer_is_swept_by_the_next(plan: Path) -> None:
    other = plan.with_name("other.org")
    other.write_bytes(OLD)
    process = started(edit_slowly, str(plan))
    assert process.stdout is not None
    assert process.stdout.readline() == "written\n"
    process.kill()
    process.communicate()
    assert len(names(plan.parent)) == 3
    finish(other)
    assert plan.read_bytes() == OLD
    assert names(plan.parent) == ["other.org", "plan.org"]


def test_no_file_of_a_user_is_swept(plan: Path) -> None:
    mine = [".horae-edit-.tmp", ".horae-edit-0123456789abcdef", ".horae-edit-notes.tmp"]
    mine += [".horae-edit-0123456789ABCDEF.tmp", "x.horae-edit-0123456789abcdef.tmp"]
    for name in mine:
        plan.with_name(name).write_text("mine")
    plan.with_name(".horae-edit-000000000000000d.tmp").mkdir()
    plan.with_name(".horae-edit-000000000000000e.tmp").symlink_to("plan.org")
    before = names(plan.parent)
    plan.with_name(".horae-edit-0123456789abcdef.tmp").write_text("left by a killed edit")
    finish(plan)
    assert names(plan.parent) == before


def kill_at_every_step(directory: str, action: str) -> list[list[object]]:
    """Kill a child at each line of the editor; return what each left, before and after the next."""
    import os
    import signal
    import sys
    from pathlib import Path
    from unittest import mock

    from horae.files import edit as module
    from horae.files.read import digest_of

    mock.patch.object(os, "fsync").start()  # a killed process loses nothing that it wrote
    plan, other = Path(directory, "plan.org"), Path(directory, "other.org")
    old = b"* TODO Water the plants\r\n"
    digest = digest_of(old)

    def run() -> None:
        if action == "create":
            module.create(plan, b"* DONE Water the plants\r\n")
        else:
            module.edit(plan, [module.Splice(2, 6, b"DONE")], expected=digest)

    def killed_at(step: int) -> bool:
        left = step

        def trace(frame: Any, event: str, _: object) -> Any:
            nonlocal left
            if frame.f_code.co_filename != module.__file__:
                return None
            left -= event == "line"
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return trace

        child = os.fork()
        if child == 0:
            sys.settrace(trace)
            run()
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        assert os.WIFSIGNALED(status) or status == 0
        return os.WIFSIGNALED(status)

    def text() -> str:
        return plan.read_bytes().decode() if plan.exists() else ""

    results: list[list[object]] = []
    while True:
        plan.unlink(missing_ok=True)
        if action == "edit":
            plan.write_bytes(old)
        was_killed = killed_at(len(results) + 1)
        found, litter = text(), len({*plan.parent.iterdir()} - {plan})
        other.write_bytes(old)
        module.edit(other, [module.Splice(0, 0, b"* ")], expected=digest)
        other.unlink()
        links = plan.stat().st_nlink if plan.exists() else 1
        left = len({*plan.parent.iterdir()} - {plan})
        results.append([found, litter, text(), links, left])
        if not was_killed:
            return results


@pytest.mark.parametrize("action", ["edit", "create"])
def test_a_kill_at_any_step_leaves_old_or_new_and_the_next_edit_sweeps(
    tmp_path: Path, action: str
) -> None:
    results = answer(started(kill_at_every_step, str(tmp_path), action))
    old = OLD.decode() if action == "edit" else ""
    assert len(results) > 50
    assert {found for found, *_ in results} == {old, NEW.decode()}
    assert [found for found, *_ in results] == sorted(
        (f for f, *_ in results), reverse=action == "edit"
    )
    assert {litter for _, litter, *_ in results} == {0, 1}
    for found, _, later, links, left in results:
        assert (later, links, left) == (found, 1, 0)
    assert results[-1][:2] == [NEW.decode(), 0]


# Disks that fail


def failing_sync(of: str, number: int) -> Callable[[int], None]:
    """Return an fsync that fails for files or for directories."""
    real = os.fsync

    def fsync(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode) == (of == "directory"):
            raise OSError(number, os.strerror(number))
        real(descriptor)

    return fsync


@pytest.mark.parametrize("of", ["file", "directory"])
def test_a_failing_sync_leaves_the_old_bytes_and_no_litter(
    plan: Path, of: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    inode = plan.stat().st_ino
    monkeypatch.setattr(os, "fsync", failing_sync(of, errno.EIO))
    assert refusal(finish, plan) == "not written: input/output error"
    assert refusal(create, plan.with_name("new.org"), NEW) == ("not written: input/output error")
    assert plan.read_bytes() == OLD
    assert plan.stat().st_ino == inode
    assert names(plan.parent) == ["plan.org"]
    monkeypatch.undo()
    assert finish(plan)


def test_an_edit_that_cannot_be_taken_back_says_that_it_is_there(
    plan: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_exchange", lambda *_: False)
    monkeypatch.setattr(os, "fsync", failing_sync("directory", errno.EIO))
    assert refusal(finish, plan) == ("written, but a power cut may undo it: input/output error")
    assert plan.read_bytes() == NEW


@pytest.mark.parametrize("how", ["in place", "by rename"])
def test_a_save_over_an_edit_that_is_taken_back_is_kept(
    plan: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fsync(descriptor: int) -> None:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            return
        monkeypatch.setattr(os, "fsync", lambda _: None)
        if how == "in place":
            plan.write_bytes(b"someone's\n")
        else:
            saved_by_rename(plan, b"someone's\n")
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fsync)
    assert refusal(finish, plan) == "not written: input/output error"
    assert plan.read_bytes() == b"someone's\n"
    assert names(plan.parent) == ["plan.org"]


@pytest.mark.parametrize("how", ["in place", "by rename", "removed"])
def test_a_save_over_a_new_file_that_is_taken_back_is_kept(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "plan.org"

    def fsync(descriptor: int) -> None:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            return
        match how:
            case "in place":
                path.write_bytes(b"someone's\n")
            case "by rename":
                saved_by_rename(path, b"someone's\n")
            case _:
                path.unlink()
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fsync)
    assert refusal(create, path, NEW) == "not written: input/output error"
    assert names(tmp_path) == ([] if how == "removed" else ["plan.org"])
    assert how == "removed" or path.read_bytes() == b"someone's\n"


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "no space left on device"),
        (errno.EDQUOT, "disk quota exceeded"),
        (errno.EIO, "input/output error"),
        (errno.EROFS, "read-only file system"),
    ],
)
@pytest.mark.parametrize("call", ["write", "fchmod", "fsync"])
def test_a_failing_call_is_told_in_words_and_changes_nothing(
    plan: Path, call: str, number: int, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, call, failing(number))
    assert refusal(finish, plan) == f"not written: {words}"
    assert plan.read_bytes() == OLD
    assert names(plan.parent) == ["plan.org"]


def test_a_mount_point_is_told_in_words(plan: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_exchange", failing(errno.EBUSY))
    assert refusal(finish, plan) == "not written: is a mount point, which cannot be replaced"
    assert names(plan.parent) == ["plan.org"]


def fill_the_disk(directory: str, limit: int) -> list[object]:
    """Edit and create where there is no room; then once there is."""
    import resource
    from pathlib import Path

    from horae.files.edit import Splice, create, edit
    from horae.files.read import PlanFileError, digest_of

    plan, filler = Path(directory, "plan.org"), Path(directory, "filler")
    plan.write_bytes(b"* A\n")
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    else:
        filler.write_bytes(b"x" * 60_000)

    large, digest, results = b"x" * 60_000, digest_of(b"* A\n"), list[object]()
    try:
        edit(plan, [Splice(4, 4, large)], expected=digest)
    except PlanFileError as error:
        results.append(error.reason)
    try:
        create(plan.with_name("new.org"), large)
    except PlanFileError as error:
        results.append(error.reason)
    results += [plan.read_text(), sorted(path.name for path in plan.parent.iterdir())]

    filler.unlink(missing_ok=True)
    edit(plan, [Splice(4, 4, large[:1_000])], expected=digest)
    return [*results, plan.stat().st_size, [path.name for path in plan.parent.iterdir()]]


def test_a_file_size_limit_changes_nothing_and_leaves_no_litter(tmp_path: Path) -> None:
    reason = "not written: file too large"
    assert answer(started(fill_the_disk, str(tmp_path), 50_000)) == [
        *(reason, reason, "* A\n", ["plan.org"], 1_004, ["plan.org"])
    ]


def test_a_full_disk_changes_nothing_and_leaves_no_litter(tmp_path: Path) -> None:
    mount = 'mount -t tmpfs -o size=96k none "$0" && exec "$@"'
    alone = ["unshare", "--map-root-user", "--mount", "sh", "-c", mount, str(tmp_path)]
    try:
        subprocess.run([*alone, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no disk of its own can be mounted here")
    result = subprocess.run(
        [*alone, *program(fill_the_disk, str(tmp_path), 0)], check=True, capture_output=True
    )
    reason = "not written: no space left on device"
    assert json.loads(result.stdout) == [
        *(reason, reason, "* A\n", ["filler", "plan.org"], 1_004, ["plan.org"])
    ]


def edit_as_a_mortal(directory: str) -> list[object]:
    """Edit in a directory that takes no new file, as a user who is not root."""
    import os
    from pathlib import Path

    from horae.files.edit import Splice, create, edit
    from horae.files.read import PlanFileError, digest_of

    os.chdir(directory)
    here, plan = Path(), Path("plan.org")
    plan.write_bytes(b"* A\n")
    splices, digest, results = [Splice(0, 0, b"x")], digest_of(b"* A\n"), list[object]()
    if os.geteuid() == 0:
        os.chown(plan, 65534, 65534)
        os.chown(here, 65534, 65534)
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)

    here.chmod(0o500)
    try:
        edit(plan, splices, expected=digest)
    except PlanFileError as error:
        results.append(error.reason)
    try:
        create("new.org", b"x")
    except PlanFileError as error:
        results.append(error.reason)
    here.chmod(0o700)
    edit(plan, splices, expected=digest)
    return [*results, plan.read_text(), [path.name for path in here.iterdir()]]


def test_a_directory_that_may_not_be_written_is_told_in_words(tmp_path: Path) -> None:
    reason = "not written: a file cannot be created in its directory: permission denied"
    assert answer(started(edit_as_a_mortal, str(tmp_path))) == [
        *(reason, reason, "x* A\n", ["plan.org"])
    ]
