"""The only functions that write a user's file: `edit`, `create`, `move` or `remove` one.

A save goes through these steps, and leaves the old bytes or the new ones at each:

1. Lock the directory the file is in. The lock is `flock` on the directory itself: it
   holds between threads and between processes, outlives the rename that replaces the
   file, dies with its holder, and leaves nothing beside the user's files.
2. Sweep. A temporary file exists only while its writer holds the lock, so one that is
   found by the next holder has lost its writer.
3. Open the file, judge it, and compare it with what the caller read.
4. Write the new bytes to a temporary file beside it, with its mode, and sync that.
5. Look again, exchange the two, look at what was displaced, sync the directory, look a
   last time, and remove the old file, which now has the temporary name.

Other programs do not know our lock, so a person may save at any moment; that save wins.
Linux lets us keep this to the end: a lease on the old file tells who has it open for
writing, and an exchange, unlike a rename, gives back what it displaced. Where the
system has no exchange the last look and the rename are two calls, and a save that
falls between them is lost.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import re
import signal
import stat
import sys
import time
from contextlib import contextmanager, suppress
from shutil import rmtree
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from horae.errors import Exit, HoraeError
from horae.files.read import (
    LIMIT,
    PlanFileError,
    StrPath,
    bytes_of,
    checked_name,
    digest_of,
    directory_of,
    in_words,
    read_open_file,
    told,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

# 2,000 times 5 ms: a save takes milliseconds, so ten seconds mean a stuck holder.
_LOCK_ATTEMPTS: Final = 2_000
_LOCK_PAUSE: Final = 0.005

# 20 times 5 ms: a fork holds copies of descriptors until it runs its program.
_LEASE_ATTEMPTS: Final = 20
_LEASE_PAUSE: Final = 0.005

_Mark: TypeAlias = tuple[int, int, int]

_TEMPORARY: Final = re.compile(r"\.horae-edit-[0-9a-f]{16}\.tmp")
_ACCESS_LIST: Final = "system.posix_acl_access"
_WITHOUT_LINKS: Final = {errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}


class EditConflictError(PlanFileError):
    """A file that changed under the edit, or is in use; what others wrote stays."""

    code = "edit_conflict"
    exit_code = Exit.CONFLICT


class SpliceError(HoraeError):
    """A splice that does not fit the content it is for."""

    code = "splice"

    def __init__(self, number: int, splice: Splice, reason: str) -> None:
        self.number = number
        self.start = splice.start
        self.end = splice.end
        super().__init__(f"splice {number} ({splice.start}:{splice.end}) {reason}")


class Splice(NamedTuple):
    """New bytes for the span from *start* up to *end*, in bytes of the old content."""

    start: int
    end: int
    data: bytes


def edit(
    path: StrPath,
    splices: Sequence[Splice],
    *,
    expected: str,
    root: StrPath | None = None,
    limit: int = LIMIT,
) -> str:
    """Put *splices* into the file whose digest is *expected*; return its new digest.

    When this returns, the new content survives a power cut. When it raises, the file is as
    others left it.
    """
    name = checked_name(path)
    with told(name), _locked(name, root) as home, _opened(name, home, limit) as old:
        if digest_of(old.data) != expected:
            raise EditConflictError(name, "changed since it was read; read it again")
        data = spliced(old.data, splices)
        if data != old.data:
            _check_size(name, data, limit)
            _replace(old, data)
        return digest_of(data)


def create(path: StrPath, data: bytes, *, root: StrPath | None = None, limit: int = LIMIT) -> str:
    """Make a file that was not there, whole and durable at once; return its digest."""
    name = checked_name(path)
    _check_size(name, data, limit)
    with told(name), _locked(name, root) as home:
        _make(name, home, data)
    return digest_of(data)


def move(
    path: StrPath,
    target: StrPath,
    *,
    expected: str,
    root: StrPath | None = None,
    limit: int = LIMIT,
) -> None:
    """Give the file whose digest is *expected* the name *target*, which no other file has.

    When this returns, the file survives a power cut under its new name, and only there. When
    it raises, it is where others left it. The directory of *target* must be there.
    """
    name, there = checked_name(path), checked_name(target)
    base = None if root is None else checked_name(root)
    with (
        told(there),
        directory_of(there, root=base) as (descriptor, last),
        told(name),
        _locked(name, root) as home,
        _opened(name, home, limit) as old,
    ):
        if digest_of(old.data) != expected:
            raise EditConflictError(name, "changed since it was read; read it again")
        new = old._replace(path=there, home=_Home(descriptor, last))
        with _writing(name), _leased(old) as is_leased:
            _check_unchanged(old, home.name, is_leased)
            _carry(old, new, is_leased)


def remove(
    path: StrPath, *, expected: str, root: StrPath | None = None, limit: int = LIMIT
) -> None:
    """Remove the file whose digest is *expected*; when this raises, the file is as it was."""
    name = checked_name(path)
    with told(name), _locked(name, root) as home, _opened(name, home, limit) as old:
        if digest_of(old.data) != expected:
            raise EditConflictError(name, "changed since it was read; read it again")
        with _writing(name), _leased(old) as is_leased:
            _check_unchanged(old, home.name, is_leased)
            os.unlink(home.name, dir_fd=home.descriptor)
            os.fsync(home.descriptor)


def remove_tree(path: StrPath) -> None:
    """Remove a directory of our own as far as that can be done."""
    rmtree(path, ignore_errors=True)


def spliced(content: bytes, splices: Sequence[Splice]) -> bytes:
    r"""Return *content* with each span replaced; spans go forward and never overlap.

    >>> spliced(b"* TODO one\r\n", [Splice(2, 6, b"DONE"), Splice(10, 10, b" :x:")])
    b'* DONE one :x:\r\n'
    """
    pieces: list[bytes] = []
    at = 0
    for number, splice in enumerate(splices, start=1):
        if splice.end < splice.start:
            raise SpliceError(number, splice, "ends before it starts")
        if splice.start < at:
            raise SpliceError(number, splice, f"must start at {at} or later")
        if splice.end > len(content):
            raise SpliceError(number, splice, f"must end at {len(content)} or earlier")
        pieces += content[at : splice.start], splice.data
        at = splice.end
    return b"".join([*pieces, content[at:]])


class _Home(NamedTuple):
    """The locked directory that a file is in, and the file's name there."""

    descriptor: int
    name: str


class _Old(NamedTuple):
    """The file as it was when the lock was taken."""

    path: str
    home: _Home
    descriptor: int
    status: os.stat_result
    data: bytes


class _Temporary(NamedTuple):
    """The new file, until it has its name."""

    name: str
    descriptor: int


def _check_size(path: str, data: bytes, limit: int) -> None:
    """Refuse to write what could not be read again."""
    if len(data) > limit:
        raise PlanFileError(path, f"would have {len(data):,} bytes; a plan may have {limit:,}")


@contextmanager
def _locked(path: str, root: StrPath | None) -> Iterator[_Home]:
    """Hold the lock of the directory *path* is in, swept of what killed edits left."""
    base = None if root is None else checked_name(root)
    with directory_of(path, root=base) as (descriptor, name):
        _lock(path, descriptor)
        try:
            _sweep(descriptor)
            yield _Home(descriptor, name)
        finally:
            # Closing would not do if a fork took a copy of the descriptor with it.
            fcntl.flock(descriptor, fcntl.LOCK_UN)


def _lock(path: str, directory: int) -> None:
    """Take the lock, and give up on a holder that is stuck."""
    for _ in range(_LOCK_ATTEMPTS):
        try:
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_LOCK_PAUSE)
        except OSError as error:
            reason = f"its directory cannot be locked ({in_words(error)}); use a local file system"
            raise PlanFileError(path, reason) from error
        else:
            return
    raise EditConflictError(path, "another program has locked its directory")


def _sweep(directory: int) -> None:
    """Remove the temporary files whose writers died; the lock says that they did."""
    with os.scandir(directory) as entries:
        left = [entry.name for entry in entries if _TEMPORARY.fullmatch(entry.name)]
    for name in left:
        # What cannot be removed does no harm: it is hidden, and no plan.
        with suppress(OSError):
            status = os.stat(name, dir_fd=directory, follow_symlinks=False)
            if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid():
                os.unlink(name, dir_fd=directory)


@contextmanager
def _opened(path: str, home: _Home, limit: int) -> Iterator[_Old]:
    """Yield the file that is to be edited, if it is one that an edit may replace."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
    descriptor = os.open(home.name, flags, dir_fd=home.descriptor)
    try:
        data = read_open_file(descriptor, path, limit=limit)
        if data is None:
            raise EditConflictError(path, "is being saved by another program; try again")
        status = os.fstat(descriptor)
        _check_editable(path, status)
        yield _Old(path, home, descriptor, status, data)
    finally:
        os.close(descriptor)


def _check_editable(path: str, status: os.stat_result) -> None:
    """Refuse a file that would become another one by being replaced."""
    if status.st_nlink > 1:
        reason = f"has {status.st_nlink} hard links, which an edit would break; remove all but one"
        raise PlanFileError(path, reason)
    if status.st_uid != os.geteuid():
        raise PlanFileError(path, f"belongs to user {status.st_uid}; only its owner can edit it")
    if not status.st_mode & stat.S_IWUSR:
        raise PlanFileError(path, "is read-only; give its owner write permission")


@contextmanager
def _temporary(path: str, home: _Home, mode: int) -> Iterator[_Temporary]:
    """Yield a new file beside the user's; whatever has its name afterwards is removed."""
    name = f".horae-edit-{os.urandom(8).hex()}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(name, flags, mode, dir_fd=home.descriptor)
    except OSError as error:
        reason = f"not written: a file cannot be created in its directory: {in_words(error)}"
        raise PlanFileError(path, reason) from error
    try:
        yield _Temporary(name, descriptor)
    finally:
        with suppress(OSError):  # it was renamed; what is left is hidden, and no plan
            os.unlink(name, dir_fd=home.descriptor)
        os.close(descriptor)


@contextmanager
def _writing(path: str) -> Iterator[None]:
    """Say of every error that nothing was written."""
    try:
        yield
    except OSError as error:
        raise PlanFileError(path, f"not written: {in_words(error)}") from error


def _fill(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _make(path: str, home: _Home, data: bytes) -> None:
    """Give a file with *data* its name, if nothing has it; the umask cuts its mode."""
    with _temporary(path, home, 0o666) as new, _writing(path):
        _fill(new.descriptor, data)
        os.fsync(new.descriptor)
        ours = _mark(home, new.name)
        _link(path, home, new)
        try:
            os.fsync(home.descriptor)
        except BaseException:
            if _mark(home, home.name) == ours:
                os.unlink(home.name, dir_fd=home.descriptor)
            raise


def _link(path: str, home: _Home, new: _Temporary) -> None:
    """Give the new file a second name, which unlike a rename never takes it from another."""
    at = home.descriptor
    try:
        os.link(new.name, home.name, src_dir_fd=at, dst_dir_fd=at, follow_symlinks=False)
    except FileExistsError as error:
        raise EditConflictError(path, "already exists and is not changed") from error
    except OSError as error:
        if error.errno not in _WITHOUT_LINKS:
            raise
        reason = "not written: a new file needs a file system with hard links"
        raise PlanFileError(path, reason) from error


def _replace(old: _Old, data: bytes) -> None:
    """Put a file with *data* in the place of the old one, unless someone is saving it."""
    with _temporary(old.path, old.home, 0o600) as new, _writing(old.path):
        _fill(new.descriptor, data)
        _dress(new.descriptor, old)
        os.fsync(new.descriptor)
        with _leased(old) as is_leased:
            _check_unchanged(old, old.home.name, is_leased)
            _exchange_or_rename(old, new, is_leased)


def _dress(descriptor: int, old: _Old) -> None:
    """Give the new file the group, the mode and the attributes of the old one."""
    mode = stat.S_IMODE(old.status.st_mode)
    if os.fstat(descriptor).st_gid != old.status.st_gid:
        try:
            os.fchown(descriptor, -1, old.status.st_gid)
        except PermissionError:
            # Another group must not gain what the old one had: it gets what all have.
            mode = mode & 0o1707 | (mode & 0o007) << 3
    os.fchmod(descriptor, mode)
    mine, its = _attributes(descriptor), _attributes(old.descriptor)
    for name in mine.keys() - its.keys():
        os.removexattr(descriptor, name)
    for name, value in its.items():
        os.setxattr(descriptor, name, value)


def _attributes(descriptor: int) -> dict[str, bytes]:
    """Return the attributes that people give a file; the system's own come by themselves."""
    if sys.platform != "linux":
        return {}
    try:
        names = os.listxattr(descriptor)
    except OSError:
        return {}
    kept = [name for name in names if name.startswith("user.") or name == _ACCESS_LIST]
    return {name: os.getxattr(descriptor, name) for name in kept}


@contextmanager
def _leased(old: _Old) -> Iterator[Callable[[], bool]]:
    """Make whoever opens the old file for writing wait, and yield the question if anyone does.

    Where there are no leases the answer is always that nobody does.
    """
    if not _takes_lease(old):
        yield lambda: True
        return
    try:
        yield lambda: fcntl.fcntl(old.descriptor, fcntl.F_GETLEASE) == fcntl.F_RDLCK
    finally:
        fcntl.fcntl(old.descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)


def _takes_lease(old: _Old) -> bool:
    """Ask for a lease on the old file, which nobody gets while it is open for writing."""
    if sys.platform != "linux":
        return False
    # A lease is broken with SIGIO, which would end the process; this signal is ignored.
    fcntl.fcntl(old.descriptor, fcntl.F_SETSIG, signal.SIGURG)
    for _ in range(_LEASE_ATTEMPTS):
        try:
            fcntl.fcntl(old.descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        except BlockingIOError:
            time.sleep(_LEASE_PAUSE)
        except OSError:
            return False
        else:
            return True
    raise EditConflictError(old.path, "is open for writing in another program")


def _check_unchanged(old: _Old, name: str, is_leased: Callable[[], bool]) -> None:
    """Look whether the old file stands under *name*, as it was, and nobody writes to it."""
    same = _mark(old.home, name) == _mark_of(old.status)
    if not (same and is_leased() and _still_reads(old)):
        raise EditConflictError(
            old.path, "was saved by another program in the meantime; read it again"
        )


def _still_reads(old: _Old) -> bool:
    """Tell whether the old file has the bytes it had."""
    return bytes_of(old.descriptor, len(old.data)) == old.data


def _mark_of(status: os.stat_result) -> _Mark:
    """Return what tells a file from another, and from itself before a save."""
    return status.st_ino, status.st_size, status.st_mtime_ns


def _mark(home: _Home, name: str) -> _Mark | None:
    with suppress(FileNotFoundError):  # the answer is none
        return _mark_of(os.stat(name, dir_fd=home.descriptor, follow_symlinks=False))
    return None


def _exchange_or_rename(old: _Old, new: _Temporary, is_leased: Callable[[], bool]) -> None:
    """Give the new file its name, for good."""
    ours = _mark(old.home, new.name)
    try:
        exchanged = _exchange(old.home, new.name)
    except FileNotFoundError as error:
        raise EditConflictError(old.path, "was removed while it was edited") from error
    if not exchanged:
        _rename(old, new)
        return
    try:
        # The old file now has the name of the new one.
        _check_unchanged(old, new.name, is_leased)
        os.fsync(old.home.descriptor)
        # A writer may have found the old file before the exchange, and open it only now.
        _check_unchanged(old, new.name, is_leased)
    except BaseException:
        _take_back(old.home, new.name, ours)
        raise


def _rename(old: _Old, new: _Temporary) -> None:
    """Replace the old file where files cannot be exchanged; this cannot be taken back."""
    at = old.home.descriptor
    os.rename(new.name, old.home.name, src_dir_fd=at, dst_dir_fd=at)
    try:
        os.fsync(at)
    except OSError as error:
        reason = f"written, but a power cut may undo it: {in_words(error)}"
        raise PlanFileError(old.path, reason) from error


def _take_back(home: _Home, name: str, ours: _Mark | None) -> None:
    """Exchange again, until what that displaces is what we had put there ourselves.

    A person may save between any two exchanges; the last save ends up in its place.
    """
    with suppress(FileNotFoundError):  # a person removed the file, and so it stays removed
        while True:
            theirs = _mark(home, name)
            _exchange(home, name)
            if _mark(home, name) == ours:
                break
            ours = theirs
    with suppress(OSError):  # the edit failed already, and that is reported
        os.fsync(home.descriptor)


def _carry(old: _Old, new: _Old, is_leased: Callable[[], bool]) -> None:
    """Give the old file its new name; if it turns out to be another file, give that back."""
    try:
        if not _rename_to_free(old.home, new.home):
            _link_and_remove(old.home, new.home, _mark_of(old.status))
            return
    except FileExistsError as error:
        raise EditConflictError(new.path, "already exists and is not changed") from error
    except FileNotFoundError as error:
        raise EditConflictError(old.path, "was removed while it was moved") from error
    try:
        _check_unchanged(new, new.home.name, is_leased)
        os.fsync(new.home.descriptor)
        os.fsync(old.home.descriptor)
        # A writer may have found the file under its old name, and open it only now.
        _check_unchanged(new, new.home.name, is_leased)
    except BaseException:
        # Whoever saved under the old name meanwhile stands there: then this copy stays, too.
        with suppress(OSError):
            _rename_to_free(new.home, old.home)
        raise


def _rename_to_free(old: _Home, new: _Home) -> bool:
    """Rename a file, but over no other one; False where that is not possible in one step."""
    if _rename_call is None:
        return False
    one, other = os.fsencode(old.name), os.fsencode(new.name)
    if _rename_call(old.descriptor, one, new.descriptor, other, _FREE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _WITHOUT_EXCHANGE:
        return False
    raise OSError(number, os.strerror(number), old.name)


def _link_and_remove(old: _Home, new: _Home, ours: _Mark) -> None:
    """Move a file where that takes two steps; between them it has both names."""
    at, there = old.descriptor, new.descriptor
    os.link(old.name, new.name, src_dir_fd=at, dst_dir_fd=there, follow_symlinks=False)
    os.fsync(there)
    if _mark(old, old.name) == ours:
        os.unlink(old.name, dir_fd=at)
        os.fsync(at)


_EXCHANGE: Final = 2  # the same number in both calls
_FREE: Final = 1 if sys.platform == "linux" else 4  # only if nothing has that name
_CALL: Final = {"linux": "renameat2", "darwin": "renameatx_np"}.get(sys.platform, "")
_rename_call: Final = getattr(ctypes.CDLL(None, use_errno=True), _CALL, None)
_WITHOUT_EXCHANGE: Final = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP}


def _exchange(home: _Home, name: str) -> bool:
    """Swap the file and the one called *name* in one step; False where that is not possible."""
    if _rename_call is None:
        return False
    at, one, other = home.descriptor, os.fsencode(name), os.fsencode(home.name)
    if _rename_call(at, one, at, other, _EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _WITHOUT_EXCHANGE:
        return False
    raise OSError(number, os.strerror(number), home.name)
