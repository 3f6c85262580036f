"""The lock on a data directory: one engine or command at a time, and others learn the holder.

It is a POSIX record lock. The kernel drops it when the process dies, for whatever reason, and a
forked child does not inherit it, so a run that outlives its engine blocks nothing. It is also
dropped when the process closes *any* descriptor of the file: so only this module may open it, and
never twice.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
import struct
import sys
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from msgspec import MsgspecError, Struct, field, json
from msgspec.structs import replace

from horae.core.text import instant_text
from horae.errors import Exit, HoraeError

if TYPE_CHECKING:
    from datetime import datetime

NAME: Final = "lock"
_MOUNTS: Final = Path("/proc/self/mountinfo")

# On these, other machines may not see locks, and SQLite's shared memory is not shared.
_NETWORK: Final = frozenset({
    "9p", "afs", "beegfs", "ceph", "cifs", "fuse.ceph", "fuse.glusterfs", "fuse.s3fs",
    "fuse.sshfs", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "orangefs", "smb3",
    "smbfs",
})  # fmt: skip
_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
_OCTAL: Final = re.compile(r"\\([0-7]{3})")

# struct flock, to query the holder: type, whence, start, length, pid.
_FLOCK: Final = "hhqqi4x" if sys.platform == "linux" else "qqihh"
_HELD: Final[dict[tuple[int, int], int]] = {}  # file -> our process id, if we hold it


class LockUse(StrEnum):
    ENGINE = "engine"  # runs plans and answers requests
    RUN = "run"  # executes one run, without an engine
    COMMAND = "command"  # changes the ledger, without an engine

    @classmethod
    def _missing_(cls, value: object) -> LockUse:  # noqa: ARG003 - a newer horae has more of them
        return cls.ENGINE


class LockHolder(Struct, frozen=True):
    pid: int | None
    command: str = ""  # such as `horae run`; of an engine only the program
    since: str = ""
    use: LockUse = LockUse.ENGINE  # missing in locks of older versions
    # The engine waits for its runs and takes no requests.
    is_stopping: bool = field(default=False, name="stopping")
    zone: str = ""  # of the plans
    restarts: int = 0  # of an engine, in the same process
    restart_error: str = ""  # why the last one failed

    @property
    def is_engine(self) -> bool:
        return self.use is LockUse.ENGINE

    @property
    def name(self) -> str:
        return "another process" if self.pid is None else f"process {self.pid}"

    @property
    def remedy(self) -> str:
        if self.is_engine and not self.is_stopping:
            return "stop it with `horae stop`"
        is_run = self.use is LockUse.RUN
        ends = ", or press Ctrl-C there to end the run" if is_run else ""
        return f"wait until it has ended{ends}"


class DataLockedError(HoraeError, code="data_locked", exit_code=Exit.CONFLICT):
    def __init__(self, path: str, holder: LockHolder) -> None:
        self.path = path
        self.pid, self.command, self.since = holder.pid, holder.command, holder.since
        what = f" ({holder.command})" if holder.command else ""
        when = f" since {instant_text(holder.since, holder.zone or 'UTC')}" if holder.since else ""
        used = f"in use by {holder.name}{what}{when}"
        if holder.is_engine and not holder.is_stopping:
            used = f"an engine is already running here ({holder.name}{when and f',{when}'})"
        super().__init__(f"{path}: {used}; {holder.remedy}")


class NetworkDiskError(HoraeError, code="network_disk", exit_code=Exit.USAGE):
    """A data directory on a disk whose locks may not exclude other machines."""

    def __init__(self, path: str, kind: str) -> None:
        self.path, self.kind = path, kind
        super().__init__(
            f"{path}: is on {kind}, a network file system, where locks and SQLite are not safe;"
            " put the data directory on a local disk (--data, HORAE_DATA)"
        )


class Lock:
    _descriptor: int | None

    def __init__(self, descriptor: int, path: Path) -> None:
        self.path = path
        self._hold(descriptor)

    @classmethod
    def acquire(
        cls, directory: Path, *, now: datetime, use: LockUse = LockUse.ENGINE, command: str = ""
    ) -> Lock:
        """Take the lock on a directory without waiting; the error names its holder."""
        refuse_network_disk(directory)
        path = directory / NAME
        _refuse_our_own(path)
        descriptor = os.open(path, _FLAGS, 0o600)
        try:
            _lock(descriptor, path)
        except BaseException:
            os.close(descriptor)
            raise
        # Without arguments, as one of them may be a secret.
        command = command or (Path(sys.argv[0]).name if sys.argv and sys.argv[0] else "python")
        since = f"{now:%Y-%m-%dT%H:%M:%SZ}"
        said = {"pid": os.getpid(), "command": command, "since": since, "use": use}
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.encode(said) + b"\n", 0)
        return cls(descriptor, path)

    @classmethod
    def adopt(cls, descriptor: int, directory: Path) -> Lock:
        path = directory / NAME
        _lock(descriptor, path)  # a kernel before 5.11 drops it if that image had threads
        return cls(descriptor, path)

    def hand_over(self) -> int:
        """Return the descriptor of the lock, which stays held, and forget it."""
        descriptor, self._descriptor = self._descriptor, None
        assert descriptor is not None, "the lock is held"
        return descriptor

    def note(self, **facts: object) -> None:
        """Write facts about the engine into the lock, for other processes."""
        if self._descriptor is None:
            return
        with suppress(OSError, MsgspecError):  # the facts in the file are optional
            said = json.decode(os.pread(self._descriptor, 4096, 0), type=dict)
            data = json.encode({**said, **facts}) + b"\n"
            os.pwrite(self._descriptor, data, 0)
            os.ftruncate(self._descriptor, len(data))

    def keep(self) -> None:
        """Take the lock again if its file was removed; raise an error if another process has it.

        Users remove lock files that seem to be stale, and then a second engine could start.
        """
        path = self.path
        if self._descriptor is None:
            return
        with suppress(OSError):  # it does not exist
            if _file(path.lstat()) == self.file:
                return
        with suppress(OSError):  # something else in its place excludes others, too
            descriptor = os.open(path, _FLAGS | os.O_NONBLOCK, 0o600)
            try:
                _lock(descriptor, path)
                os.pwrite(descriptor, os.pread(self._descriptor, 4096, 0), 0)
            except BaseException:
                os.close(descriptor)
                raise
            self.release()
            self._hold(descriptor)

    def _hold(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.file = _file(os.fstat(descriptor))
        _HELD[self.file] = os.getpid()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        if self._descriptor is None:
            return
        descriptor, self._descriptor = self._descriptor, None
        _HELD.pop(self.file, None)
        os.close(descriptor)


def refuse_network_disk(directory: Path) -> None:
    with suppress(OSError):  # where mounts cannot be read, nothing is known
        kind = file_system(_MOUNTS.read_text(errors="surrogateescape"), os.path.realpath(directory))
        if kind in _NETWORK:
            raise NetworkDiskError(str(directory), kind)


def file_system(mounts: str, path: str) -> str:
    r"""Return the type of a path's file system, from the kernel's list of mounts.

    >>> mounts = "1 0 8:1 / / rw - ext4 /dev/sda rw\n2 1 0:4 / /srv rw shared:1 - nfs4 host:/ rw"
    >>> file_system(mounts, "/srv/plans"), file_system(mounts, "/srvs")
    ('nfs4', 'ext4')
    """
    found, kind = "", ""
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split(" ")
        if len(fields) < 5 or not after:
            continue
        point = _OCTAL.sub(lambda match: chr(int(match[1], 8)), fields[4])
        is_above = path == point or path.startswith(point.rstrip("/") + "/")
        # Of two mounts at one place, the later one is visible.
        if is_above and len(point) >= len(found):
            found, kind = point, after.split(" ", 1)[0]
    return kind


def holder_of(directory: Path) -> LockHolder | None:
    path = directory / NAME
    _refuse_our_own(path)  # closing the file would drop our own lock
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO}:
            return None  # no lock file
        raise
    try:
        is_lock = stat.S_ISREG(os.fstat(descriptor).st_mode)
        is_free = not is_lock or _holder(descriptor) is None
        return None if is_free else _held_by(descriptor)
    finally:
        os.close(descriptor)


def engine_in(directory: Path) -> LockHolder | None:
    """Return the engine that holds a data directory; other commands do not count."""
    holder = holder_of(directory)
    return holder if holder is not None and holder.is_engine else None


def engine_zone(directory: Path) -> str:
    with suppress(OSError, DataLockedError):  # unreadable, or locked by this process
        holder = engine_in(directory)
        return "" if holder is None else holder.zone
    return ""


def writer_of(path: Path) -> int | None:
    """Return the process that blocks writes to a ledger, if the system can tell."""
    files = set()
    for each in (path, path.with_name(f"{path.name}-shm")):
        with suppress(OSError):  # not a ledger on SQLite
            device, inode = _file(each.stat())
            files.add(f"{os.major(device):02x}:{os.minor(device):02x}:{inode}")
    with suppress(OSError):  # only Linux has it
        for line in Path("/proc/locks").read_text().splitlines():
            match line.split():
                case [_, "POSIX", _, "WRITE", pid, file, *_] if file in files and int(pid) > 0:
                    return int(pid)
    return None


def _refuse_our_own(path: Path) -> None:
    """Raise an error if this process holds the lock, as opening the file would drop it."""
    with suppress(OSError):  # an unreadable file is not ours
        pid, place = os.getpid(), str(path.parent)
        if _HELD.get(_file(path.stat())) == pid:
            raise DataLockedError(place, LockHolder(pid, "this process", use=LockUse.COMMAND))


def _file(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _lock(descriptor: int, path: Path) -> None:
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in {errno.EACCES, errno.EAGAIN}:
            raise
        raise DataLockedError(str(path.parent), _held_by(descriptor)) from None


def _held_by(descriptor: int) -> LockHolder:
    pid = _holder(descriptor)
    # The file may be damaged, or be of a former holder.
    with suppress(MsgspecError):
        said = json.decode(os.pread(descriptor, 4096, 0), type=LockHolder)
        if pid in {None, said.pid}:
            return replace(said, pid=pid)
    return LockHolder(pid)


def _holder(descriptor: int) -> int | None:
    if sys.platform == "linux":
        ask = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = struct.unpack(_FLOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, ask))
    else:
        ask = struct.pack(_FLOCK, 0, 0, 0, fcntl.F_WRLCK, os.SEEK_SET)
        _, _, pid, kind, _ = struct.unpack(_FLOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, ask))
    return None if kind == fcntl.F_UNLCK or pid <= 0 else pid
