"""The one function that calls git, with everything off that a repository could switch on.

What cannot be switched off by name is refused before the call, in `trust`.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import tempfile
from contextlib import suppress
from datetime import timedelta
from typing import Final, NamedTuple, TypedDict, Unpack

from horae.errors import Exit, HoraeError

TIMEOUT: Final = timedelta(seconds=60)
OUTPUT: Final = 32 * 2**20  # bytes of stdout; the names in a tree of 100,000 files fit
_COMPLAINT: Final = 64 * 2**10  # bytes of stderr
_GRACE: Final = 2.0  # git removes its lock files when it is asked to end
_LOOK: Final = 0.2  # seconds between two looks at how much it has printed

# A repository cannot change these: what stands on the command line comes last.
_SWITCHES: Final = """
    core.hooksPath=/dev/null core.fsmonitor=false core.symlinks=false core.protectHFS=true
    core.protectNTFS=true core.attributesFile=/dev/null core.pager=cat core.editor=false
    core.gitProxy= core.askPass= core.quotePath=false credential.helper= diff.external=
    log.showSignature=false commit.gpgSign=false push.gpgSign=false push.followTags=false
    push.recurseSubmodules=no merge.autoStash=false merge.verifySignatures=false
    rerere.enabled=false fetch.fsckObjects=true transfer.fsckObjects=true
    fetch.recurseSubmodules=false fetch.writeCommitGraph=false submodule.recurse=false
    safe.bareRepository=explicit gc.auto=0 maintenance.auto=false http.followRedirects=false
    remote.origin.uploadpack=git-upload-pack remote.origin.receivepack=git-receive-pack
    protocol.allow=never protocol.https.allow=always protocol.ssh.allow=always
    protocol.ext.allow=never
"""
_NO_MAIL: Final = re.compile(r"[^\w.+-]+")  # what stands in no address
_ENVIRONMENT: Final = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "true",
    "SSH_ASKPASS": "true",
    "GIT_PROTOCOL_FROM_USER": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_LFS_SKIP_SMUDGE": "1",
    "GIT_EDITOR": "false",
    "GIT_SSH_COMMAND": "ssh -oBatchMode=yes -oConnectTimeout=10 -oStrictHostKeyChecking=yes",
    "LC_ALL": "C",
}

_CREDENTIALS: Final = re.compile(r"(?<=://)[^/\s'\"]*@")
_QUERY: Final = re.compile(r"(?i)([?&][\w-]*(?:token|key|secret|password)[\w-]*=)[^&\s'\"]+")


class GitError(HoraeError, code="git"):
    def __init__(self, place: str, reason: str) -> None:
        self.place = place
        self.reason = masked(reason)
        super().__init__(f"{place}: {self.reason}")


class GitTimeoutError(GitError, code="git_timeout", exit_code=Exit.TIMED_OUT):
    pass


class GitRefusedError(GitError, code="git_refused", exit_code=Exit.VERIFICATION):
    """A repository that could make git run something, or that git itself does not trust."""


class LocalOriginError(GitRefusedError):
    """An origin on this machine that the settings do not name."""


class GitBusyError(GitError, code="git_busy", exit_code=Exit.CONFLICT):
    pass


class Author(NamedTuple):
    name: str
    email: str

    @classmethod
    def named(cls, name: str) -> Author:
        return cls(name, f"{_NO_MAIL.sub('-', name)}@horae.localhost")


HORAE: Final = Author.named("horae")


class GitOutput(NamedTuple):
    """What a call of git came to; stderr is masked, and only stdout can be parsed."""

    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode("utf-8", "replace").strip()

    @property
    def items(self) -> list[str]:
        """What stdout says, where a zero byte ends each item."""
        return self.out.decode(errors="surrogateescape").split("\0")

    @property
    def why(self) -> str:
        """The line of stderr that says what went wrong; of several, the one git means."""
        lines = [line.strip() for line in self.err.splitlines() if line.strip()]
        meant = [line for line in lines if line.startswith(("fatal:", "error:"))]
        line = (meant or lines or ["git gave no reason"])[0]
        return line.partition(": ")[2] if meant else line


def masked(text: str) -> str:
    """Return *text* without the credentials of the addresses in it."""
    return _QUERY.sub(r"\1***", _CREDENTIALS.sub("***@", text))


class CallOptions(TypedDict, total=False):
    local: bool  # the one open protocol is that of paths on this machine
    author: Author
    committer: Author
    as_person: bool  # with the settings that our user has
    common: str  # the directory with the settings, the branches and the objects
    stdin: bytes
    timeout: timedelta
    most: int  # bytes of the largest file that git may write (Linux)


async def call(directory: str, *args: str, **said: Unpack[CallOptions]) -> GitOutput:
    """Call git in *directory* and return what it said; the call ends, whatever git does.

    Nothing is inherited from the machine's settings of git, and only two protocols are open. A
    call has a process group of its own, a time, and so much output. That goes to files: the end
    of a pipe would come only when all that git has started have closed it.
    """
    local, timeout = said.get("local"), said.get("timeout", TIMEOUT)
    author, committer = said.get("author", HORAE), said.get("committer", HORAE)
    options = [*_SWITCHES.split(), f"protocol.file.allow={'always' if local else 'never'}"]
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
        **_ENVIRONMENT,
        "GIT_ALLOW_PROTOCOL": "file" if local else "https:ssh",
        # A repository above the one that is meant is none of our business.
        "GIT_CEILING_DIRECTORIES": os.path.dirname(os.path.realpath(directory)),
        "GIT_AUTHOR_NAME": author.name,
        "GIT_AUTHOR_EMAIL": author.email,
        "GIT_COMMITTER_NAME": committer.name,
        "GIT_COMMITTER_EMAIL": committer.email,
    }
    if (common := said.get("common")) is not None:
        own = {"GIT_DIR": os.path.join(directory, ".git"), "GIT_WORK_TREE": directory}
        environment |= own | {"GIT_COMMON_DIR": common}
    if said.get("as_person"):
        del environment["GIT_CONFIG_GLOBAL"], environment["GIT_CONFIG_NOSYSTEM"]
    with (
        tempfile.TemporaryFile() as given,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
    ):
        given.write(said.get("stdin", b""))
        given.seek(0)
        try:
            process = await asyncio.create_subprocess_exec(
                *("git", *(word for option in options for word in ("-c", option)), *args),
                cwd=directory,
                env=environment,
                stdin=given,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        except FileNotFoundError as error:
            is_there = os.path.isdir(directory)
            reason = "git is not installed" if is_there else "is not a directory"
            raise GitError(directory, reason) from error
        if (most := said.get("most")) is not None and sys.platform == "linux":
            import resource

            with suppress(OSError):  # it has just ended
                resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (most, most))

        def is_too_much() -> bool:
            return max(os.fstat(file.fileno()).st_size for file in (out, err)) > OUTPUT

        try:
            async with asyncio.timeout(timeout.total_seconds()):
                while process.returncode is None and not is_too_much():
                    with suppress(TimeoutError):  # so that a flood does not fill the disk
                        await asyncio.wait_for(process.wait(), _LOOK)
        except TimeoutError:
            await _end(process, signal.SIGTERM, signal.SIGKILL)
            reason = f"took longer than {timeout.total_seconds():g} s and was terminated"
            raise GitTimeoutError(directory, f"git {args[0]} {reason}") from None
        except BaseException:
            _kill(process.pid, signal.SIGKILL)
            raise
        if is_too_much():
            if process.returncode is None:
                await _end(process, signal.SIGKILL)
            raise GitRefusedError(directory, f"git {args[0]} printed more than {OUTPUT:,} bytes")
        for file in (out, err):
            file.seek(0)
        complaint = masked(err.read(_COMPLAINT).decode("utf-8", "replace"))
        return GitOutput(process.returncode or 0, out.read(), complaint)


async def _end(process: asyncio.subprocess.Process, *numbers: signal.Signals) -> None:
    for number in numbers:
        _kill(process.pid, number)
        with suppress(TimeoutError):  # killed, it ends when the disk answers
            await asyncio.wait_for(process.wait(), _GRACE)


def _kill(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):  # the group has ended
        os.killpg(group, number)
