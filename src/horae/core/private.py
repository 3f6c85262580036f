"""Files with mode 0600, never opened through a link."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import BinaryIO, TypeAlias

StrPath: TypeAlias = str | os.PathLike[str]


def private_file(path: StrPath, flags: int = os.O_TRUNC, *, folder: int | None = None) -> BinaryIO:
    """Open a private file for writing; *folder* is the descriptor of its directory."""
    flags |= os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.fdopen(os.open(path, flags, 0o600, dir_fd=folder), "wb")


def write_durably(path: StrPath, data: bytes, *, folder: int | None = None) -> None:
    with private_file(path, os.O_EXCL, folder=folder) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def replace_durably(path: StrPath, data: bytes) -> None:
    """Replace the content of a private file; a crash leaves the old or the new one."""
    beside = f"{os.fspath(path)}.{os.urandom(8).hex()}.new"
    try:
        write_durably(beside, data)
        os.replace(beside, path)
    except OSError:
        with suppress(OSError):  # the first error is the one to report
            os.remove(beside)
        raise
    sync(os.path.dirname(path) or ".")


def sync(path: StrPath) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
