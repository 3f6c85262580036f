"""The only place that finds and reads plan files.

A name is never trusted: a file is opened without waiting, checked through its descriptor, and read
only if it is regular and not too large. Below a root no link is followed.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from horae.errors import Exit, HoraeError

if TYPE_CHECKING:
    from collections.abc import Iterator

StrPath: TypeAlias = "str | os.PathLike[str]"

LIMIT: Final = 16 * 2**20
MOST: Final = 20_000

# The pauses add up to 0.15 s: longer than an editor needs for one save.
_ATTEMPTS: Final = 5
_PAUSE: Final = 0.01

# Windows lacks most of these, and would turn CRLF into LF without the last.
_READ: Final = os.O_RDONLY | sum(
    getattr(os, name, 0) for name in ("O_NONBLOCK", "O_CLOEXEC", "O_NOCTTY", "O_BINARY")
)
_NO_LINK: Final[int] = getattr(os, "O_NOFOLLOW", 0)
_DIRECTORY: Final[int] = _READ | getattr(os, "O_DIRECTORY", 0)
_HAS_DIRECTORY_DESCRIPTORS: Final = os.open in os.supports_dir_fd


class PlanFileError(HoraeError, code="plan_file"):
    def __init__(
        self, path: str, reason: str, *, line: int | None = None, column: int | None = None
    ) -> None:
        self._raw_path = path  # unescaped, and not among the facts
        self.path = printable(path)  # on one line
        self.reason, self.line, self.column = reason, line, column
        place = [self.path, *(str(each) for each in (line, column) if each is not None)]
        super().__init__(f"{':'.join(place)}: {reason}")

    @property
    def raw_path(self) -> str:
        return self._raw_path

    def below(self, root: StrPath) -> PlanFileError:
        return self.about(short_name(self._raw_path, root))

    def about(self, name: str) -> PlanFileError:
        if type(self) is PlanMissingError:
            return PlanMissingError(name, self.reason)
        is_plain = type(self) is PlanFileError
        own = {"line": self.line, "column": self.column}
        return PlanFileError(name, self.reason, **own) if is_plain else self


class PlanMissingError(PlanFileError, code="plan_missing", exit_code=Exit.NOT_FOUND):
    def __init__(self, path: str, reason: str = "does not exist") -> None:
        super().__init__(path, reason)


class Content(NamedTuple):
    """A file's content at one time; `text.encode()` equals `data`."""

    path: str
    data: bytes
    text: str

    @property
    def digest(self) -> str:
        return digest_of(self.data)


class PlanFiles(NamedTuple):
    plans: tuple[str, ...]
    problems: tuple[PlanFileError, ...]


def read_plan(path: StrPath, *, root: StrPath | None = None, limit: int = LIMIT) -> Content:
    name = checked_name(path)
    base = None if root is None else checked_name(root)
    for attempt in range(_ATTEMPTS):
        if attempt:
            time.sleep(_PAUSE * 2 ** (attempt - 1))
        with told(name), _opened(name, base) as descriptor:
            data = read_open_file(descriptor, name, limit=limit)
        if data is not None:
            return Content(name, data, decoded(name, data))
    raise PlanFileError(name, "changed while it was read; try again once it is saved")


def find_plans(
    root: StrPath,
    *,
    suffixes: tuple[str, ...] = (".org",),
    most: int = MOST,
    is_flat: bool = False,
    inside: StrPath | None = None,
) -> PlanFiles:
    """Return the plans below *root*, at most *most*, in the order of their paths.

    Not entered: directories whose name begins with a dot, except `.agentd`; `.git` in any spelling;
    directories with a repository of their own; links to directories. A file whose name begins with
    a dot is not a plan: editors use such files as locks. If *is_flat*, no directory is entered, and
    one with the name of a plan is a problem. *inside* is a directory from which no link is followed
    on the way to *root*.
    """
    name = checked_name(root)
    plans: list[str] = []
    problems: list[PlanFileError] = []
    if inside is not None and (found := obstacle(name, root=checked_name(inside))) is not None:
        raise found
    with told(name):
        top = name if name.endswith("/") else f"{name}/"
        stack = _steps(top, suffixes, is_root=True, is_flat=is_flat)
    while stack:
        path, problem = stack.pop()
        if path.endswith("/") and not problem:
            try:
                stack += _steps(path, suffixes)
            except FileNotFoundError:
                continue
            except OSError as error:  # one bad directory does not end the search
                stack.append((path, f"cannot be listed: {in_words(error)}"))
        elif len(plans) + len(problems) == most:
            reason = f"has more than {most} plans; the rest are ignored"
            problems.append(PlanFileError(name, reason))
            break
        elif problem:
            problems.append(PlanFileError(path, problem))
        else:
            plans.append(path)
    return PlanFiles(tuple(plans), tuple(problems))


def _steps(
    directory: str, suffixes: tuple[str, ...], *, is_root: bool = False, is_flat: bool = False
) -> list[tuple[str, str]]:
    with os.scandir(directory) as listing:
        entries = list(listing)
    if not is_root and any(is_git(entry.name) for entry in entries):
        return []
    steps = []
    for entry in entries:
        name, is_directory = entry.name, entry.is_dir(follow_symlinks=False)
        is_hidden = name.startswith(".") and not (is_directory and name == ".agentd")
        is_other = not name.endswith(suffixes) and (is_flat or not is_directory)
        if is_hidden or is_other or (is_directory and is_git(name)):
            continue
        problem = ""
        if any("\ud800" <= character <= "\udfff" for character in name):
            problem = "its name is not UTF-8; rename it"
        elif is_directory and is_flat:
            problem = "is a directory; only regular files can be plans"
        elif not is_directory and not entry.is_file(follow_symlinks=False):
            kind = "a symbolic link" if entry.is_symlink() else "a FIFO, a socket or a device"
            problem = f"is {kind}; only regular files can be plans"
        # A directory's path ends in a slash, which sorts it in place.
        steps.append((f"{directory}{name}{'/' * (is_directory and not problem)}", problem))
    return sorted(steps, reverse=True)


def digest_of(data: bytes) -> str:
    import hashlib  # loads OpenSSL, which commands without files to read do not need

    return hashlib.sha256(data).hexdigest()


def checked_name(path: StrPath) -> str:
    name = os.fspath(path)
    try:
        raw = os.fsencode(name)
    except UnicodeEncodeError:
        raw = b""
    if not raw or b"\0" in raw:
        raise PlanFileError(name, "is not a valid file name")
    return name


def short_name(path: StrPath, root: StrPath) -> str:
    """Return *path* relative to *root*, if it is below it; else unchanged.

    >>> short_name("/plans/ops/night.org", "/plans"), short_name("/etc/hosts", "/plans")
    ('ops/night.org', '/etc/hosts')
    """
    return os.fspath(path).removeprefix(f"{os.fspath(root).rstrip('/')}/")


def names_of(root: StrPath, path: str) -> Iterator[str]:
    for whole in (os.path.abspath, os.path.realpath):  # unresolved links first
        name = os.path.relpath(whole(path), whole(root))
        if name.partition(os.sep)[0] != os.pardir:
            yield name
        yield whole(path)


def printable(path: str) -> str:
    r"""Return *path* as one line that any terminal can show.

    >>> print(printable("two\nlines.org"), printable("caf\udce9.org"))
    two\nlines.org caf\xe9.org
    """
    shown = (
        character
        if character.isprintable()
        # How Python represents a byte that is not UTF-8.
        else f"\\x{ord(character) - 0xDC00:02x}"
        if "\udc80" <= character <= "\udcff"
        else character.encode("unicode_escape").decode()
        for character in path
    )
    return "".join(shown) or "''"


# The characters that HFS+ ignores in a name.
_UNSEEN: Final = dict.fromkeys(
    [*range(0x200C, 0x2010), *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF]
)


def is_git(name: str) -> bool:
    r"""Return whether any file system treats *name* as `.git`.

    >>> [is_git(name) for name in (".GIT ", "git~1", ".g\u200cit", ".git::$DATA", ".github")]
    [True, True, True, True, False]
    """
    # NTFS reads `:` as the start of a stream, ignores dots and spaces at the end, and has
    # a short name for the directory as well.
    plain = name.translate(_UNSEEN).partition(":")[0].rstrip(" .").casefold()
    return plain == ".git" or (plain.startswith("git~") and plain[4:].isdigit())


@contextmanager
def told(path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        there, above = path, os.path.dirname(path.rstrip("/"))
        while not os.path.lexists(there) and above not in {there, ""}:
            there, above = above, os.path.dirname(above)
        if os.path.islink(there) and not os.path.exists(there):
            # The target may only be unavailable, such as a disk that is not mounted.
            reason = "is a broken symbolic link; repair or remove it"
            raise PlanFileError(there, reason) from error
        raise PlanMissingError(path) from error
    except OSError as error:
        raise PlanFileError(path, in_words(error)) from error


_WORDS: Final = {  # where the words of the system say too little
    errno.EBUSY: "is a mount point, which cannot be replaced",
    errno.ELOOP: "is a symbolic link, which is not followed; name the file itself",
    errno.ENOENT: "does not exist",
    errno.ENOTDIR: "is not a directory, or a part of its path is a file",
    errno.ENXIO: "is a socket or a device; only regular files can be plans",
}


def in_words(error: OSError) -> str:
    return _WORDS.get(error.errno or 0) or (error.strerror or str(error)).lower()


def obstacle(directory: str, *, root: str) -> PlanFileError | None:
    here = root.removesuffix("/")
    for step in filter(None, directory.removeprefix(f"{here}/").split("/")):
        here = f"{here}/{step}"
        try:
            mode = os.lstat(here).st_mode
        except FileNotFoundError:
            return None
        except OSError as error:
            return PlanFileError(here, in_words(error))
        if not stat.S_ISDIR(mode):
            return PlanFileError(here, f"is {_kind(mode)}, not a directory")
    return None


@contextmanager
def directory_of(path: str, *, root: str | None) -> Iterator[tuple[int, str]]:
    first, steps, last = _way(path, root)
    try:
        directory = os.open(first, _DIRECTORY)
    except FileNotFoundError as error:
        raise PlanMissingError(path, "its directory does not exist") from error
    try:
        for step in steps:
            try:
                inner = os.open(step, _DIRECTORY | _NO_LINK, dir_fd=directory)
            except FileNotFoundError as error:
                raise PlanMissingError(path, "its directory does not exist") from error
            except OSError as error:
                # Systems have different errors for a link in place of a directory.
                if error.errno not in {errno.ENOTDIR, errno.ELOOP, errno.EMLINK}:
                    raise
                reason = f"{printable(step)!r} in its path is a link or not a directory"
                raise PlanFileError(path, reason) from error
            os.close(directory)
            directory = inner
        yield directory, last
    finally:
        os.close(directory)


def _way(path: str, root: str | None) -> tuple[str, list[str], str]:
    if root is None:
        parent, last = os.path.split(path)
        first, steps, named = parent or ".", [], path.split("/")
    else:
        first = root
        inside = path.removeprefix(f"{root.removesuffix('/')}/")
        named = [part for part in inside.split("/") if part not in {"", "."}]
        if inside == path or ".." in named:
            raise PlanFileError(path, f"is outside {printable(root)}")
        *steps, last = named or [""]
    if last in {"", ".", ".."}:
        raise PlanFileError(path, "is a directory; only regular files can be plans")
    if any(map(is_git, named)):
        raise PlanFileError(path, "is inside .git; files of git cannot be plans")
    return first, steps, last


@contextmanager
def _opened(path: str, root: str | None) -> Iterator[int]:
    if root is not None and _HAS_DIRECTORY_DESCRIPTORS:
        with directory_of(path, root=root) as (directory, last):
            descriptor = os.open(last, _READ | _NO_LINK, dir_fd=directory)
    else:
        real = path if root is None else os.path.realpath(path)
        if root is not None and not real.startswith(os.path.realpath(f"{root}/x")[:-1]):
            raise PlanFileError(path, f"is outside {printable(root)}")
        descriptor = os.open(real, _READ)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def read_open_file(descriptor: int, path: str, *, limit: int) -> bytes | None:
    """Return the bytes of an open regular file, or None if it changed meanwhile."""
    before = os.fstat(descriptor)
    if not stat.S_ISREG(before.st_mode):
        raise PlanFileError(path, f"is {_kind(before.st_mode)}; only regular files can be plans")
    if before.st_size > limit:
        raise PlanFileError(path, f"has {before.st_size:,} bytes; a plan may have {limit:,}")
    data = bytes_of(descriptor, before.st_size)
    after = os.fstat(descriptor)
    is_steady = len(data) == before.st_size and stamp_of(before) == stamp_of(after)
    return data if is_steady else None


def head_of(path: StrPath, most: int, *, follows_link: bool = True) -> bytes:
    """Return the first bytes of a regular file without waiting; raises OSError."""
    descriptor = os.open(path, _READ if follows_link else _READ | _NO_LINK)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "is not a regular file", os.fspath(path))
        return bytes_of(descriptor, most - 1)
    finally:
        os.close(descriptor)


def bytes_of(descriptor: int, size: int) -> bytes:
    os.lseek(descriptor, 0, os.SEEK_SET)
    data = os.read(descriptor, size + 1)
    while len(data) <= size and (more := os.read(descriptor, size + 1 - len(data))):
        data += more
    return data


def stamp_of(status: os.stat_result) -> tuple[int, int, int, int]:
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _kind(mode: int) -> str:
    kinds = {
        stat.S_IFDIR: "a directory",
        stat.S_IFIFO: "a FIFO",
        stat.S_IFLNK: "a symbolic link",
        stat.S_IFREG: "a file",
        stat.S_IFSOCK: "a socket",
    }
    return kinds.get(stat.S_IFMT(mode), "a device")


def decoded(path: str, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        at = error.start
    line = data.count(b"\n", 0, at) + 1
    before = data[data.rfind(b"\n", 0, at) + 1 : at].decode()
    column = len(before.removeprefix("\ufeff")) + 1
    reason = f"0x{data[at]:02x} at byte {at} is not UTF-8; save the file as UTF-8"
    raise PlanFileError(path, reason, line=line, column=column)
