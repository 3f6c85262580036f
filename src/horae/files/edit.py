"""The only functions that write a user's file: `edit`, `create`, `move` and `remove`.

Each locks the directory, compares the file with what the caller read, writes and syncs a temporary
file next to it, exchanges the two, checks what was displaced, and syncs the directory. Other
programs do not know our lock, so an editor may save at any time; that save wins. On Linux a lease
on the old file tells whether another program opens it for writing, and an exchange restores what it
displaced. Elsewhere a save between the last check and the rename is lost.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import logging
import os
import re
import signal
import stat
import sys
import time
from contextlib import contextmanager, suppress
from shutil import rmtree
from typing import TYPE_CHECKING, Final, NamedTuple

from horae.errors import Exit, HoraeError
from horae.files import read
from horae.files.read import LIMIT, PlanFileError, StrPath, checked_name, in_words, told

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

log = logging.getLogger(__name__)
_PAUSE: Final = 0.005
_LOCK_ATTEMPTS: Final = 2_000  # a save takes milliseconds, so ten seconds mean a hung holder
_LEASE_ATTEMPTS: Final = 20  # a fork holds copies of descriptors until it runs its program

_TEMPORARY: Final = re.compile(r"\.horae-edit-[0-9a-f]{16}\.tmp")
_WITHOUT_LINKS: Final = {errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}
_WITHOUT_EXCHANGE: Final = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP}
_EXCHANGE: Final = 2  # the same value in both system calls
_FREE: Final = 1 if sys.platform == "linux" else 4  # fail if the name exists
_CALL: Final = {"linux": "renameat2", "darwin": "renameatx_np"}.get(sys.platform, "")
_rename_call: Final = getattr(ctypes.CDLL(None, use_errno=True), _CALL, None)


class EditConflictError(PlanFileError, code="edit_conflict", exit_code=Exit.CONFLICT):
    """A file that changed during the edit, or is in use; the other change is kept."""


class SpliceError(HoraeError, code="splice"):
    def __init__(self, number: int, splice: Splice, reason: str) -> None:
        self.number = number
        self.start = splice.start
        self.end = splice.end
        super().__init__(f"splice {number} ({splice.start}:{splice.end}) {reason}")


class Splice(NamedTuple):
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
    """Apply *splices* to the file whose digest is *expected*; return its new digest.

    After a return, the new content survives a power failure. After an error, the file is as others
    left it.
    """
    with _opened(path, root, expected, limit) as old:
        data = spliced(old.data, splices)
        if data != old.data:
            _check_size(old.path, data, limit)
            with _temporary(old.path, old.home, 0o600) as (name, new), _writing(old.path):
                _fill(new, data)
                _dress(new, old)
                os.fsync(new)
                with _leased(old) as check:
                    check(old.path, old.home)
                    _exchange_or_rename(old, name, check)
        return read.digest_of(data)


def create(path: StrPath, data: bytes, *, root: StrPath | None = None, limit: int = LIMIT) -> str:
    """Create a file in one step, durably; return its digest."""
    name = checked_name(path)
    _check_size(name, data, limit)
    with (
        told(name),
        _locked(name, root) as home,
        _temporary(name, home, 0o666) as (temporary, descriptor),
        _writing(name),
    ):
        at = home.descriptor
        _fill(descriptor, data)
        os.fsync(descriptor)
        ours = _mark(_Home(at, temporary))
        try:
            # Unlike a rename, a link never replaces another file.
            os.link(temporary, home.name, src_dir_fd=at, dst_dir_fd=at, follow_symlinks=False)
        except FileExistsError as error:
            raise EditConflictError(name, "already exists and is not changed") from error
        except OSError as error:
            if error.errno not in _WITHOUT_LINKS:
                raise
            reason = "not written: a new file needs a file system with hard links"
            raise PlanFileError(name, reason) from error
        try:
            os.fsync(at)
        except BaseException:
            if _mark(home) == ours:
                os.unlink(home.name, dir_fd=at)
            raise
    return read.digest_of(data)


def move(
    path: StrPath,
    target: StrPath,
    *,
    expected: str,
    root: StrPath | None = None,
    limit: int = LIMIT,
) -> None:
    """Rename the file whose digest is *expected*; *target* must not exist.

    After an error, the file is where others left it. The directory of *target* must exist.
    """
    there = checked_name(target)
    with (
        told(there),
        read.directory_of(there, root=None if root is None else checked_name(root)) as place,
        _opened(path, root, expected, limit) as old,
        _writing(old.path),
        _leased(old) as check,
    ):
        home, new = old.home, _Home(*place)
        check(old.path, home)
        try:
            if not _rename_with(_FREE, home, new):
                # Two steps; in between the file has both names.
                at, to = home.descriptor, new.descriptor
                os.link(home.name, new.name, src_dir_fd=at, dst_dir_fd=to, follow_symlinks=False)
                os.fsync(to)
                if _mark(home) == _mark_of(old.status):
                    os.unlink(home.name, dir_fd=at)
                    os.fsync(at)
                return
        except FileExistsError as error:
            raise EditConflictError(there, "already exists and is not changed") from error
        except FileNotFoundError as error:
            raise EditConflictError(old.path, "was removed while it was moved") from error
        try:
            check(there, new)
            os.fsync(new.descriptor)
            os.fsync(home.descriptor)
            # Another program may have found the file under its old name, and open it only now.
            check(there, new)
        except BaseException:
            # If another file was saved under the old name meanwhile, both are kept.
            with suppress(OSError):
                _rename_with(_FREE, new, home)
            raise


def remove(path: StrPath, *, expected: str) -> None:
    with _opened(path, None, expected, LIMIT) as old, _writing(old.path), _leased(old) as check:
        check(old.path, old.home)
        os.unlink(old.home.name, dir_fd=old.home.descriptor)
        os.fsync(old.home.descriptor)


def remove_tree(path: StrPath) -> None:
    rmtree(path, ignore_errors=True)


def remove_stale(path: StrPath) -> None:
    with suppress(FileNotFoundError):  # it was removed
        os.unlink(path)


def spliced(content: bytes, splices: Sequence[Splice]) -> bytes:
    """Return *content* with each span replaced; spans are in order and do not overlap."""
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
    descriptor: int
    name: str


class _Old(NamedTuple):
    path: str
    home: _Home
    descriptor: int
    status: os.stat_result
    data: bytes


def _check_size(path: str, data: bytes, limit: int) -> None:
    if len(data) > limit:
        raise PlanFileError(path, f"would have {len(data):,} bytes; a plan may have {limit:,}")


@contextmanager
def _locked(path: str, root: StrPath | None) -> Iterator[_Home]:
    base = None if root is None else checked_name(root)
    with read.directory_of(path, root=base) as (directory, name):
        for _ in range(_LOCK_ATTEMPTS):
            try:
                fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(_PAUSE)
            except OSError as error:
                why = f"its directory cannot be locked ({in_words(error)}); use a local file system"
                raise PlanFileError(path, why) from error
        else:
            raise EditConflictError(path, "another program has locked its directory")
        try:
            # A temporary file exists only while its writer holds the lock: these were left behind.
            with os.scandir(directory) as entries:
                left = [entry.name for entry in entries if _TEMPORARY.fullmatch(entry.name)]
            for each in left:
                # A remaining one does no harm: it is hidden, and not a plan.
                with suppress(OSError):
                    status = os.stat(each, dir_fd=directory, follow_symlinks=False)
                    if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid():
                        os.unlink(each, dir_fd=directory)
            yield _Home(directory, name)
        finally:
            # Closing is not enough if a fork has a copy of the descriptor.
            fcntl.flock(directory, fcntl.LOCK_UN)


@contextmanager
def _opened(path: StrPath, root: StrPath | None, expected: str, limit: int) -> Iterator[_Old]:
    name = checked_name(path)
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
    with told(name), _locked(name, root) as home:
        descriptor = os.open(home.name, flags, dir_fd=home.descriptor)
        try:
            data = read.read_open_file(descriptor, name, limit=limit)
            if data is None:
                raise EditConflictError(name, "is being saved by another program; try again")
            status = os.fstat(descriptor)
            if (links := status.st_nlink) > 1:
                why = f"has {links} hard links, which an edit would break; remove all but one"
                raise PlanFileError(name, why)
            if (owner := status.st_uid) != os.geteuid():
                raise PlanFileError(name, f"belongs to user {owner}; only its owner can edit it")
            if not status.st_mode & stat.S_IWUSR:
                raise PlanFileError(name, "is read-only; give its owner write permission")
            if read.digest_of(data) != expected:
                raise EditConflictError(name, "changed since it was read; read it again")
            yield _Old(name, home, descriptor, status, data)
        finally:
            os.close(descriptor)


@contextmanager
def _temporary(path: str, home: _Home, mode: int) -> Iterator[tuple[str, int]]:
    name = f".horae-edit-{os.urandom(8).hex()}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(name, flags, mode, dir_fd=home.descriptor)
    except OSError as error:
        reason = f"not written: a file cannot be created in its directory: {in_words(error)}"
        raise PlanFileError(path, reason) from error
    try:
        yield name, descriptor
    finally:
        with suppress(OSError):  # it was renamed; a remaining one is hidden, and not a plan
            os.unlink(name, dir_fd=home.descriptor)
        os.close(descriptor)


@contextmanager
def _writing(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise PlanFileError(path, f"not written: {in_words(error)}") from error


def _fill(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _dress(descriptor: int, old: _Old) -> None:
    mode = stat.S_IMODE(old.status.st_mode)
    if os.fstat(descriptor).st_gid != old.status.st_gid:
        try:
            os.fchown(descriptor, -1, old.status.st_gid)
        except PermissionError:
            # Another group must not get the rights of the old one, only those of others.
            mode = mode & 0o1707 | (mode & 0o007) << 3
    os.fchmod(descriptor, mode)
    mine, its = _attributes(descriptor), _attributes(old.descriptor)
    for name in mine.keys() - its.keys():
        os.removexattr(descriptor, name)
    for name, value in its.items():
        os.setxattr(descriptor, name, value)


def _attributes(descriptor: int) -> dict[str, bytes]:
    if sys.platform != "linux":
        return {}
    try:
        names = os.listxattr(descriptor)
    except OSError:
        return {}
    kept = [each for each in names if each.startswith("user.") or each == "system.posix_acl_access"]
    return {name: os.getxattr(descriptor, name) for name in kept}


@contextmanager
def _leased(old: _Old) -> Iterator[Callable[[str, _Home], None]]:
    """Block programs that open the old file for writing; yield a check that it is unchanged.

    The check gets the current place of the old file. Without leases, open writers go unnoticed.
    """
    has_lease = _takes_lease(old)

    def check(path: str, home: _Home) -> None:
        is_same = _mark(home) == _mark_of(old.status) and (
            not has_lease or fcntl.fcntl(old.descriptor, fcntl.F_GETLEASE) == fcntl.F_RDLCK
        )
        if not is_same or read.bytes_of(old.descriptor, len(old.data)) != old.data:
            reason = "was saved by another program in the meantime; read it again"
            raise EditConflictError(path, reason)

    try:
        yield check
    finally:
        if has_lease:
            fcntl.fcntl(old.descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)


def _takes_lease(old: _Old) -> bool:
    """Request a lease, which fails while the file is open for writing."""
    if sys.platform != "linux":
        return False
    # A lease is broken with SIGIO, which would end the process; SIGURG is ignored.
    fcntl.fcntl(old.descriptor, fcntl.F_SETSIG, signal.SIGURG)
    for _ in range(_LEASE_ATTEMPTS):
        try:
            fcntl.fcntl(old.descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        except BlockingIOError:
            time.sleep(_PAUSE)
        except OSError:
            return False
        else:
            return True
    raise EditConflictError(old.path, "is open for writing in another program")


def _mark_of(status: os.stat_result) -> tuple[int, ...]:
    return read.stamp_of(status)[:3]  # an exchange changes the last


def _mark(home: _Home) -> tuple[int, ...] | None:
    with suppress(FileNotFoundError):  # the result is None
        return _mark_of(os.stat(home.name, dir_fd=home.descriptor, follow_symlinks=False))
    return None


def _exchange_or_rename(old: _Old, new: str, check: Callable[[str, _Home], None]) -> None:
    at, displaced = old.home.descriptor, _Home(old.home.descriptor, new)
    ours = _mark(displaced)
    try:
        exchanged = _exchange(old.home, new)
    except FileNotFoundError as error:
        raise EditConflictError(old.path, "was removed while it was edited") from error
    if not exchanged:  # a rename cannot be undone
        os.rename(new, old.home.name, src_dir_fd=at, dst_dir_fd=at)
        try:
            os.fsync(at)
        except OSError as error:
            reason = f"written, but a power cut may undo it: {in_words(error)}"
            raise PlanFileError(old.path, reason) from error
        return
    try:
        check(old.path, displaced)
        os.fsync(at)
        # Another program may have found the old file before the exchange, and open it only now.
        check(old.path, displaced)
    except BaseException:
        # Exchange until that displaces our own content, as an editor may save in between.
        with suppress(FileNotFoundError):  # the user removed the file, so it stays removed
            while True:
                theirs = _mark(displaced)
                _exchange(old.home, new)
                if _mark(displaced) == ours:
                    break
                ours = theirs
        with suppress(OSError):  # the edit failed already, and that is reported
            os.fsync(at)
        raise


def _exchange(home: _Home, name: str) -> bool:
    return _rename_with(_EXCHANGE, _Home(home.descriptor, name), home)


def _rename_with(flag: int, old: _Home, new: _Home) -> bool:
    """Rename atomically with a flag; False where the system does not support that."""
    if _rename_call is None:
        return False
    one, other = os.fsencode(old.name), os.fsencode(new.name)
    if _rename_call(old.descriptor, one, new.descriptor, other, flag) == 0:
        return True
    number = ctypes.get_errno()
    if number in _WITHOUT_EXCHANGE:
        return False
    raise OSError(number, os.strerror(number), old.name)


def mirror(path: Path, text: str) -> None:
    """Let a file of state say something; if it cannot be written, it is the next time."""
    data = f"{text}\n".encode("utf-8", "replace")
    try:
        try:
            known = read.head_of(path, LIMIT, follows_link=False)
        except FileNotFoundError:
            create(path, data)
        else:
            edit(path, [Splice(0, len(known), data)], expected=read.digest_of(known))
    except (PlanFileError, OSError) as error:
        log.warning("cannot write %s: %s", path, error)
