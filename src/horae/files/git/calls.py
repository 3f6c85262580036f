"""The only function that calls git, with everything disabled that a repository could enable.

Some settings make git run a program, and cannot be disabled because their keys contain names
(`filter.*`, `url.*`). So the settings are read first, and only known harmless ones are accepted.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import tempfile
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple, TypedDict, Unpack

from horae.errors import Exit, HoraeError
from horae.files.git.layout import layout
from horae.files.read import head_of, is_git, printable, stamp_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

TIMEOUT: Final = timedelta(seconds=60)
OUTPUT: Final = 32 * 2**20  # bytes of stdout; the names in a tree of 100,000 files fit
_COMPLAINT: Final = 64 * 2**10  # bytes of stderr
_GRACE: Final = 2.0  # git removes its lock files when it is asked to end
_LOOK: Final = 0.2  # seconds between checks of the size of its output

# A repository cannot change these: the command line takes precedence.
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
_NO_MAIL: Final = re.compile(r"[^\w.+-]+")  # characters not allowed in an address
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
    """A repository that could make git run a program, or that git itself does not trust."""


class LocalOriginError(GitRefusedError):
    """An origin on this machine that the settings do not allow."""


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
    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode("utf-8", "replace").strip()

    @property
    def items(self) -> list[str]:
        return self.out.decode(errors="surrogateescape").split("\0")

    @property
    def why(self) -> str:
        """The line of stderr with the error; of several, the one that git means."""
        lines = [line.strip() for line in self.err.splitlines() if line.strip()]
        meant = [line for line in lines if line.startswith(("fatal:", "error:"))]
        line = (meant or lines or ["git gave no reason"])[0]
        return line.partition(": ")[2] if meant else line


def masked(text: str) -> str:
    return _QUERY.sub(r"\1***", _CREDENTIALS.sub("***@", text))


class CallOptions(TypedDict, total=False):
    local: bool  # allow local paths, and no other protocol
    author: Author
    committer: Author
    as_person: bool  # with the settings of our user
    common: str  # the directory with settings, branches and objects
    stdin: bytes
    timeout: timedelta
    most: int  # bytes of the largest file that git may write (Linux)


async def call(directory: str, *args: str, **said: Unpack[CallOptions]) -> GitOutput:
    """Call git in *directory* and return its output; the call is always bounded.

    The machine's settings of git are ignored, and only two protocols are allowed. A call has a
    process group, a time limit and a limit of output. The output goes to files, as the end of a
    pipe would come only when all child processes have closed it.
    """
    local, timeout = said.get("local"), said.get("timeout", TIMEOUT)
    author, committer = said.get("author", HORAE), said.get("committer", HORAE)
    options = [*_SWITCHES.split(), f"protocol.file.allow={'always' if local else 'never'}"]
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
        **_ENVIRONMENT,
        "GIT_ALLOW_PROTOCOL": "file" if local else "https:ssh",
        # A repository above the intended one is never used.
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
                    with suppress(TimeoutError):  # so that the output cannot fill the disk
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


_CONFIG_LIMIT: Final = 2**20

# Section.variable, or section.*.variable where a name comes between. None of these can name a
# program, except core.hooksPath, which each of our calls sets.
_HARMLESS: Final = """
    advice.* branch.*.description branch.*.gh-merge-base branch.*.github-pr-owner-number
    branch.*.merge branch.*.pushremote branch.*.rebase branch.*.remote branch.*.vscode-merge-base
    branch.autosetupmerge branch.autosetuprebase color.* column.* commit.gpgsign core.abbrev
    core.autocrlf core.bare core.bigfilethreshold core.checkstat core.commitgraph
    core.compression core.deltabasecachelimit core.eol core.filemode core.fscache core.hookspath
    core.ignorecase core.logallrefupdates core.longpaths core.multipackindex core.packedgitlimit
    core.packedgitwindowsize core.precomposeunicode core.preloadindex core.protecthfs
    core.protectntfs core.quotepath core.repositoryformatversion core.safecrlf
    core.sharedrepository core.sparsecheckout core.sparsecheckoutcone core.splitindex
    core.symlinks core.trustctime core.untrackedcache core.whitespace diff.algorithm
    diff.colormoved diff.mnemonicprefix diff.renamelimit diff.renames extensions.noop
    extensions.objectformat extensions.refstorage extensions.worktreeconfig feature.manyfiles
    fetch.prune fetch.prunetags format.pretty gc.auto gc.autodetach gc.autopacklimit
    gc.pruneexpire gc.reflogexpire gc.worktreepruneexpire gui.geometry gui.wmstate
    i18n.commitencoding index.skiphash index.threads index.version init.defaultbranch log.date
    log.decorate
    maintenance.auto maintenance.strategy merge.conflictstyle merge.ff merge.log
    merge.renamelimit merge.renames merge.stat pack.threads pack.windowmemory pull.ff pull.rebase
    push.autosetupremote push.default push.followtags rebase.autosquash rebase.autostash
    receive.denycurrentbranch receive.denydeletes receive.denynonfastforwards
    remote.*.fetch remote.*.gh-resolved remote.*.prune remote.*.prunetags remote.*.push
    remote.*.pushurl remote.*.skipdefaultupdate remote.*.tagopt remote.*.url remote.pushdefault
    rerere.autoupdate rerere.enabled status.* tag.sort user.email user.name user.signingkey
    user.useconfigonly
"""
_ALLOWED: Final = frozenset(_HARMLESS.split())
_BOOLEAN: Final = frozenset({"true", "false", "yes", "no", "on", "off", "1", "0", ""})

_ATTRIBUTES: Final = frozenset(
    {"text", "eol", "crlf", "binary", "whitespace", "export-ignore", "export-subst", "delta"}
)
_DRIVERS: Final = frozenset({"text", "binary", "union"})

# Files that users commit under a name that begins with .git.
_EXPECTED: Final = frozenset({
    ".git-blame-ignore-revs", ".gitattributes", ".gitea", ".github", ".gitignore", ".gitkeep",
    ".gitlab", ".gitlab-ci.yml", ".gitmessage",
})  # fmt: skip
_KINDS: Final = {"160000": "a submodule", "120000": "a symbolic link"}


# In a clone, next to its settings.
_SHARED: Final = ("objects", "refs", "packed-refs", "logs", "shallow", "info/exclude")
# Settings for the capabilities of a file system.
_OF_THE_DISK: Final = ("core.filemode", "core.ignorecase", "core.precomposeunicode")


class PullGuard:
    def __init__(self, root: str, *, timeout: timedelta = TIMEOUT) -> None:
        self._root = root
        self._timeout = timeout
        self._seen: object = None
        self._settings: dict[str, list[str]] = {}

    async def settings(self) -> Mapping[str, Sequence[str]]:
        """Return all settings by key; raise GitRefusedError if one is not known to be harmless."""
        here = layout(self._root)
        if here is None:
            raise GitRefusedError(self._root, "is not a git repository; run `git init`")
        configs = [f"{here.common}/config", f"{here.directory}/config.worktree"]
        attributes = {f"{each}/info/attributes" for each in here}
        seen: list[object] = [here]
        for path in (*configs, *sorted(attributes)):
            with suppress(OSError):  # it does not exist
                seen.append((path, stamp_of(os.stat(path))))
        if seen != self._seen:
            found: dict[str, list[str]] = {}
            for path in configs:
                for key, value in await _judged_config(path, self._timeout):
                    found.setdefault(key, []).append(value)
            for path in attributes:
                _judge_attributes(path)
            self._settings, self._seen = found, seen
        return self._settings


@contextmanager
def without_settings(clone: str, plan: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield a common directory with the branches and objects of a clone, and our settings.

    In git, only the common directory has settings, hooks and attributes. Those of the clone do not
    count, even if they change while git reads them.
    """
    directory = os.path.join(clone, ".git")
    if os.path.islink(directory) or not os.path.isdir(directory):
        raise GitRefusedError(clone, "its .git is not a directory")
    kept = [
        f"\t{key.partition('.')[2]} = {value}"
        for key in _OF_THE_DISK
        for value in plan.get(key, ())[-1:]
        if value.lower() in _BOOLEAN
    ]
    config = ["[core]", "\tbare = false", *kept]
    if hashes := [value for value in plan.get("extensions.objectformat", ()) if value.isalnum()]:
        config += ["\trepositoryformatversion = 1", f"[extensions]\n\tobjectformat = {hashes[-1]}"]
    with tempfile.TemporaryDirectory(prefix="horae-git-") as common:
        os.mkdir(os.path.join(common, "info"))
        for name in _SHARED:
            os.symlink(os.path.join(directory, name), os.path.join(common, name))
        with open(os.path.join(common, "config"), "w", encoding="utf-8") as file:
            file.write("\n".join([*config, ""]))
        yield common


async def origin_in(clone: str) -> str | None:
    return dict(await _config(os.path.join(clone, ".git", "config"), TIMEOUT)).get(
        "remote.origin.url"
    )


async def _config(path: str, timeout: timedelta) -> list[tuple[str, str]]:
    if not os.path.lexists(path):
        return []
    if not os.path.isfile(path):
        raise GitRefusedError(path, "is not a regular file")
    if os.path.getsize(path) > _CONFIG_LIMIT:
        raise GitRefusedError(path, "is larger than 1 MiB")
    # Outside of any repository; --file reads no other settings and no includes.
    words = ("config", "--file", os.path.abspath(path), "--null", "--list")
    said = await call("/", *words, timeout=timeout)
    if said.code:
        raise GitRefusedError(path, f"cannot be read: {said.why}")
    items = said.out.decode("utf-8", "surrogateescape").split("\0")
    return [(key, value) for key, _, value in (item.partition("\n") for item in items) if key]


async def _judged_config(path: str, timeout: timedelta) -> list[tuple[str, str]]:
    pairs = await _config(path, timeout)
    for key, value in pairs:
        if not is_allowed(key, value):
            variable = re.compile(rf"(?i)(?:^|\]|\s){re.escape(key.rpartition('.')[2])}\s*(?:=|$)")
            with suppress(OSError):  # then the message has no line
                lines = head_of(path, _CONFIG_LIMIT).decode("utf-8", "replace").split("\n")
                path += next(
                    (f":{n}" for n, each in enumerate(lines, 1) if variable.search(each)), ""
                )
            shown = printable(key)
            raise GitRefusedError(
                path,
                f"{shown} is a setting that may run a program; remove it with"
                f" `git config --unset-all {shown}`, or keep it in your own ~/.gitconfig",
            )
    return pairs


def is_allowed(key: str, value: str = "") -> bool:
    """Return whether a setting is known to run no program.

    >>> [is_allowed(key) for key in ("user.name", "branch.a.b.merge", "filter.x.smudge")]
    [True, True, False]
    """
    section, _, rest = key.partition(".")
    name, _, variable = rest.rpartition(".")
    if key == "core.fsmonitor":  # other values name a program
        return value.lower() in _BOOLEAN
    if key == "core.bare":
        return value.lower() in {"false", "no", "off", "0"}
    shape = f"{section}.*.{variable}" if name else f"{section}.{variable}"
    return shape in _ALLOWED or f"{section}.*" in _ALLOWED


def _judge_attributes(path: str) -> None:
    """Refuse attributes that name a filter, or a driver that is not git's own."""
    try:
        lines = head_of(path, _CONFIG_LIMIT).decode("utf-8", "replace").split("\n")
    except FileNotFoundError:
        return
    for number, line in enumerate(lines, start=1):
        for word in [] if line.lstrip().startswith("#") else line.split()[1:]:
            name, _, value = word.lstrip("-!").partition("=")
            is_ours = name in {"merge", "diff"} and value in _DRIVERS | {""}
            if not (name in _ATTRIBUTES or is_ours or name.startswith("linguist-")):
                reason = f"{printable(word)} is an attribute that may run a program"
                raise GitRefusedError(f"{path}:{number}", reason)


@dataclass(frozen=True, slots=True)
class ImportLimits:
    file: int = 64 * 2**20  # bytes per file
    total: int = 512 * 2**20  # bytes of all files that are new or changed, and of one fetch
    count: int = 50_000  # files that are new or changed
    reserved: tuple[str, ...] = (".horae",)  # paths from the root that only the engine may write


def objection(changes: Iterable[tuple[str, bytes, int]], limits: ImportLimits) -> str | None:
    total = 0
    for count, (mode, path, size) in enumerate(changes, start=1):
        total += size
        parts = os.fsdecode(path).split("/")
        depths = range(1, len(parts) + 1)
        reason = None
        if mode in _KINDS:
            reason = f"is {_KINDS[mode]}, which is not accepted from a pull"
        elif any(octet < 0x20 or octet == 0x7F for octet in path):
            reason = "has a control character in its name"
        elif len(path) > 4096:
            reason = "has a name of more than 4,096 bytes"
        elif any(is_git(p) or (p.lower()[:4] == ".git" and p not in _EXPECTED) for p in parts):
            reason = "belongs to git itself"
        elif any("/".join(parts[:n]).casefold() in limits.reserved for n in depths):
            reason = "is inside the data directory of the engine"
        elif size > limits.file:
            reason = f"has {size:,} bytes; at most {limits.file:,} are accepted"
        if reason is not None:
            return f"{printable(os.fsdecode(path))}: {reason}"
        if count > limits.count:
            return f"more than {limits.count:,} files would change at once"
        if total > limits.total:
            return f"more than {limits.total:,} bytes would change at once"
    return None
