"""The tools of a model that we call ourselves: each call is checked, bounded and shown.

Links below the working directory are not followed. A shell can do what its user can; the policy
only decides which commands run.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import stat
from contextlib import contextmanager, suppress
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Final

from horae.core import tool_policy
from horae.core.receipt import shown
from horae.process.output import Masker
from horae.sources.agents.transcript import MOST_TEXT, Turn, TurnKind

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping
    from pathlib import Path

SHELL_SECONDS: Final = 120  # default time limit of a command
LONGEST_SHELL: Final = 600
MOST_SHOWN: Final = 30_000  # characters of a tool's result for the model
MOST_READ: Final = 4 << 20  # bytes of a file
MOST_FETCHED: Final = 1 << 20
FETCH_SECONDS: Final = 20

_LINE: Final = 200  # characters of an argument in the transcript
_HALF: Final = MOST_SHOWN // 2
_KEPT: Final = _HALF - 200  # bytes of each end of an output, with room for a note
_NO_LINK: Final = os.O_NOFOLLOW | os.O_CLOEXEC
_GIT: Final = (
    "git", "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false",
    "-c", "commit.gpgSign=false", "-c", "core.pager=cat", "-c", "core.editor=false",
    "-c", "gc.auto=0", "-c", "maintenance.auto=false", "-c", "submodule.recurse=false",
)  # fmt: skip


class ToolError(Exception):
    """A call that is refused; the model gets the message, and continues."""


@dataclass(eq=False)
class Toolbox:
    work: Path
    policy: tool_policy.ToolPolicy
    _: KW_ONLY
    environment: Mapping[str, str]
    spellings: tuple[bytes, ...] = ()
    agent: str = "agent"
    say: Callable[[Turn], None] = lambda _: None

    def __post_init__(self) -> None:
        self._root = os.open(self.work, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def close(self) -> None:
        os.close(self._root)

    # The tools of the model, which gets their docstrings.

    async def bash(self, command: str, seconds: int = SHELL_SECONDS) -> str:
        """Run a command with `sh -c` in the working directory and return its output."""
        limit = max(1, min(seconds, LONGEST_SHELL))
        argv = ("sh", "-c", command)
        return await self._use(tool_policy.BASH, command, lambda: self._run(argv, seconds=limit))

    async def read(self, path: str, first: int = 1, lines: int = 2000) -> str:
        """Return lines of a text file in the working directory, starting at line `first`."""

        async def reading() -> str:
            whole = self._content(path).splitlines(keepends=True)
            return "".join(whole[max(0, first - 1) :][: max(0, lines)])

        return await self._use(tool_policy.READ, path, reading)

    async def write(self, path: str, content: str) -> str:
        """Write a file in the working directory; the file is created if it does not exist."""
        return await self._use(tool_policy.WRITE, path, lambda: self._put(path, content))

    async def edit(self, path: str, old: str, new: str) -> str:
        """Replace `old`, which must occur exactly once in the file, with `new`."""

        async def editing() -> str:
            content = self._content(path)
            count = content.count(old) if old else 0
            if count != 1:
                raise ToolError(f"the old text occurs {count} times, not once")
            await self._put(path, content.replace(old, new))
            return "replaced"

        return await self._use(tool_policy.EDIT, path, editing)

    async def grep(self, pattern: str, path: str = ".") -> str:
        """Return the lines that match an extended regular expression, with file and line."""

        async def searching() -> str:
            steps = _steps(path)
            with self._directory(steps[:-1]) as parent:
                self._look(steps, parent)
            where = ("/".join(steps),) if steps else ()
            argv = ("grep", "-rnIE", "--exclude-dir=.git", "-e", pattern, "--", *where)
            return await self._run(argv, seconds=SHELL_SECONDS, fine=(0, 1)) or "no line matches"

        return await self._use(tool_policy.GREP, path, searching)

    async def web_fetch(self, url: str) -> str:
        """Fetch an http or https address and return its content as text."""
        return await self._use(tool_policy.FETCH, url, lambda: self._fetch(url))

    async def git(self, message: str) -> str:
        """Commit all changes in the working directory."""

        async def committing() -> str:
            if not message.strip():
                raise ToolError("the message is empty")
            await self._run((*_GIT, "add", "--all", "--", "."), seconds=60)
            if "\0" in message:
                raise ToolError("the message contains a NUL byte")
            names = (f"user.name={self.agent}", f"user.email={self.agent}@horae.local")
            argv = (*_GIT, "-c", names[0], "-c", names[1], "commit", "--no-verify", "--quiet")
            said = await self._run((*argv, f"--message={message}"), seconds=60, fine=(0, 1))
            return said or "committed"

        return await self._use(tool_policy.GIT, "commit", committing)

    async def _use(self, tool: str, argument: str, action: Callable[[], Awaitable[str]]) -> str:
        """Run a tool if the policy allows it; return the result for the model, without secrets."""
        line = shown(self.mask(argument[: _LINE * 8]))[:_LINE]
        self.say(Turn(TurnKind.TOOL, line, tool))
        is_error = True
        match tool_policy.decide(self.policy, tool, argument):
            case tool_policy.Answer.DENY:
                told = f"refused: the tool policy does not allow {tool} with these arguments"
            case tool_policy.Answer.ASK:
                told = f"refused: {tool} needs approval, and no user is available to approve it"
            case tool_policy.Answer.ALLOW:
                try:
                    told, is_error = await action(), False
                except ToolError as error:
                    told = f"error: {error}"
                except OSError as error:
                    told = f"error: {error.strerror or error}"
                    if error.errno in {errno.ELOOP, errno.ENOTDIR}:
                        told = "error: a part of the path is a link or not a directory"
        told = self.mask(told)
        self.say(Turn(TurnKind.RESULT, told[: MOST_TEXT + 1], is_error=is_error))
        if len(told) <= MOST_SHOWN:
            return told
        left_out = f"[{len(told) - 2 * _HALF} characters left out]"
        return f"{told[:_HALF]}\n{left_out}\n{told[-_HALF:]}"

    def tell(self, kind: TurnKind, text: str) -> None:
        self.say(Turn(kind, self.mask(text)))

    def mask(self, text: str) -> str:
        masker = Masker(self.spellings)
        data = text.encode("utf-8", "replace")
        return (masker.feed(data) + masker.rest()).decode("utf-8", "replace")

    def _content(self, path: str) -> str:
        steps = _steps(path)
        with self._directory(steps[:-1]) as parent:
            self._look(steps, parent)
            flags = os.O_RDONLY | os.O_NONBLOCK | _NO_LINK
            descriptor = os.open(steps[-1] if steps else ".", flags, dir_fd=parent)
            with os.fdopen(descriptor, "rb") as file:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise ToolError("not a regular file")
                data = file.read(MOST_READ + 1)
        if len(data) > MOST_READ:
            raise ToolError(f"the file is larger than {MOST_READ} bytes")
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise ToolError("the file is not UTF-8 text") from None

    async def _put(self, path: str, content: str) -> str:
        steps = _steps(path)
        if not steps:
            raise ToolError("the path does not name a file")
        with self._directory(steps[:-1], makes=True) as parent:
            mode = 0o644
            with suppress(FileNotFoundError):  # a new file
                found = os.stat(steps[-1], dir_fd=parent, follow_symlinks=False)
                if not stat.S_ISREG(found.st_mode):
                    raise ToolError("not a regular file")
                mode = stat.S_IMODE(found.st_mode) & 0o777
            new = f".horae-tool-{os.getpid()}.tmp"
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _NO_LINK
            try:
                with os.fdopen(os.open(new, flags, mode, dir_fd=parent), "wb") as file:
                    file.write(content.encode("utf-8", "replace"))
                os.replace(new, steps[-1], src_dir_fd=parent, dst_dir_fd=parent)
            except OSError:
                with suppress(OSError):  # the first error is the one to report
                    os.remove(new, dir_fd=parent)
                raise
        return f"wrote {len(content)} characters"

    @contextmanager
    def _directory(self, steps: list[str], *, makes: bool = False) -> Iterator[int]:
        """Yield a directory below the working directory; links on the way are not followed."""
        here = os.dup(self._root)
        try:
            for step in steps:
                if makes:
                    with suppress(FileExistsError):  # it is opened below
                        os.mkdir(step, dir_fd=here)
                there = os.open(step, os.O_RDONLY | os.O_DIRECTORY | _NO_LINK, dir_fd=here)
                os.close(here)
                here = there
            yield here
        finally:
            os.close(here)

    def _look(self, steps: list[str], parent: int) -> None:
        if steps:
            found = os.stat(steps[-1], dir_fd=parent, follow_symlinks=False)
            if stat.S_ISLNK(found.st_mode):
                raise ToolError("the path is a link; use the path it points to")

    async def _run(
        self, argv: tuple[str, ...], *, seconds: float, fine: tuple[int, ...] = (0,)
    ) -> str:
        output, loop = _ToolOutput(), asyncio.get_running_loop()
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                cwd=self.work,
                env=self.environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output.writing,
                stderr=output.writing,
                process_group=0,
            )
        except (OSError, ValueError) as error:
            os.close(output.reading)
            raise ToolError(f"{argv[0]}: {getattr(error, 'strerror', error)}") from None
        finally:
            os.close(output.writing)
        loop.add_reader(output.reading, output.take)
        try:
            async with asyncio.timeout(seconds):
                # Without pipes of its own, this is the end of the process, not of its output.
                code = await process.wait()
        except TimeoutError:
            raise ToolError(f"the command took longer than {seconds:g} s and was killed") from None
        finally:
            with suppress(ProcessLookupError, PermissionError):  # the group has ended
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
            loop.remove_reader(output.reading)
            for _ in range(64):  # the rest of the pipe, without waiting for its end
                if not output.take():
                    break
            os.close(output.reading)
        text = output.text()
        if code not in fine:
            raise ToolError(f"exit code {code}" + (f"\n{text}" if text else ""))
        return text

    async def _fetch(self, url: str) -> str:
        mode, allowed = tool_policy.Mode.ALLOW_LIST, tool_policy.Answer.ALLOW
        is_named = any(
            tool_policy.decide(tool_policy.ToolPolicy(mode, (each,)), tool_policy.FETCH, url)
            is allowed
            for each in self.policy.tools
            if each.argument is not None and "domain:*" not in each.argument
        )
        return await asyncio.to_thread(_get, url, allow_private=is_named)


class _ToolOutput:
    """A pipe that is read as it fills; its beginning and its end are kept."""

    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()
        os.set_blocking(self.reading, False)
        self._head, self._tail, self._total = b"", b"", 0

    def take(self) -> bool:
        try:
            data = os.read(self.reading, 1 << 16)
        except BlockingIOError:
            return False
        if not data:
            asyncio.get_running_loop().remove_reader(self.reading)
            return False
        self._total += len(data)
        room = _KEPT - len(self._head)
        self._head += data[:room]
        self._tail = (self._tail + data[room:])[-_KEPT:]
        return True

    def text(self) -> str:
        left_out = self._total - len(self._head) - len(self._tail)
        middle = f"\n[{left_out} bytes left out]\n".encode() if left_out else b""
        return (self._head + middle + self._tail).decode("utf-8", "replace")


def _steps(path: str) -> list[str]:
    steps = [step for step in path.split("/") if step not in {"", "."}]
    if path.startswith("/") or ".." in steps or "\0" in path:
        raise ToolError("only paths below the working directory, without `..`, are allowed")
    for step in steps:  # some file systems treat each of these as `.git`
        plain = step.casefold().replace("\u200c", "").rstrip(". ").partition(":")[0]
        if plain in {".git", "git~1"}:
            raise ToolError("files in .git cannot be changed; use Git to commit")
    return steps


def _get(url: str, *, allow_private: bool) -> str:
    from urllib.error import HTTPError, URLError
    from urllib.parse import urljoin, urlsplit
    from urllib.request import HTTPRedirectHandler, Request, build_opener

    class Stay(HTTPRedirectHandler):
        def redirect_request(self, *_: object) -> None: ...

    if urlsplit(url).scheme not in {"http", "https"}:
        raise ToolError("only http and https can be fetched")
    if not allow_private and not _is_public(urlsplit(url).hostname or ""):
        raise ToolError("only public addresses can be fetched; name the host in the tool policy")
    request = Request(url, headers={"User-Agent": "horae"})  # noqa: S310 - see above
    try:
        with build_opener(Stay()).open(request, timeout=FETCH_SECONDS) as answer:
            return str(answer.read(MOST_FETCHED).decode("utf-8", "replace"))
    except HTTPError as error:
        if onward := error.headers.get("Location"):  # the policy may not allow that one
            raise ToolError(f"it redirects to {urljoin(url, onward)}; fetch that") from None
        raise ToolError(f"the address answered {error.code} {error.reason}") from None
    except (URLError, OSError, ValueError) as error:
        raise ToolError(
            f"the address cannot be reached: {getattr(error, 'reason', error)}"
        ) from None


def _is_public(host: str) -> bool:
    from ipaddress import ip_address
    from socket import getaddrinfo

    try:
        found = {entry[4][0] for entry in getaddrinfo(host, None)}
    except (OSError, UnicodeError):
        return False
    return bool(found) and all(ip_address(str(each).partition("%")[0]).is_global for each in found)
