"""What a repository may say, and what may come out of one: settings, attributes, trees.

Some settings make git run a program, and cannot be switched off because their names hold names
(`filter.*`, `url.*`). So the settings are read first, and only known harmless ones are accepted.
"""

from __future__ import annotations

import os
import re
import tempfile
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from horae.files.git.calls import TIMEOUT, GitRefusedError, call
from horae.files.git.layout import layout
from horae.files.read import head_of, is_git, printable, stamp_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import timedelta

_CONFIG_LIMIT: Final = 2**20

# Section.variable, or section.*.variable where a name stands between. None of these can name a
# program, save core.hooksPath, which every call of ours sets itself.
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
_HEADER: Final = re.compile(r'[ \t]*\[[ \t]*([\w.-]+)(?:[ \t]+"((?:[^"\\]|\\.)*)")?[ \t]*\]')
_VARIABLE: Final = re.compile(r"[ \t]*([A-Za-z][\w-]*)")

_ATTRIBUTES: Final = frozenset(
    {"text", "eol", "crlf", "binary", "whitespace", "export-ignore", "export-subst", "delta"}
)
_DRIVERS: Final = frozenset({"text", "binary", "union"})

# What people keep beside their files under a name that begins with .git.
_EXPECTED: Final = frozenset({
    ".git-blame-ignore-revs", ".gitattributes", ".gitea", ".github", ".gitignore", ".gitkeep",
    ".gitlab", ".gitlab-ci.yml", ".gitmessage",
})  # fmt: skip
_KINDS: Final = {"160000": "a submodule", "120000": "a symbolic link"}


# Of a clone, beside its settings.
_SHARED: Final = ("objects", "refs", "packed-refs", "logs", "shallow", "info/exclude")
# Settings that say what a file system can do.
_OF_THE_DISK: Final = ("core.filemode", "core.ignorecase", "core.precomposeunicode")


class PullGuard:
    def __init__(self, root: str, *, timeout: timedelta = TIMEOUT) -> None:
        self._root = root
        self._timeout = timeout
        self._seen: object = None
        self._settings: dict[str, list[str]] = {}

    async def settings(self) -> Mapping[str, Sequence[str]]:
        """Return all settings by their keys, or refuse the repository and name the odd one."""
        here = layout(self._root)
        if here is None:
            raise GitRefusedError(self._root, "is not a git repository; run `git init`")
        configs = [f"{here.common}/config", f"{here.directory}/config.worktree"]
        attributes = {f"{each}/info/attributes" for each in here}
        seen: list[object] = [here]
        for path in (*configs, *sorted(attributes)):
            with suppress(OSError):  # it is not there
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
    """Give a directory with the branches and objects of a clone, and settings of our own.

    To git it is the common directory, which alone has settings, hooks and attributes. What those
    of the clone say does not count, also if they change while git reads them.
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
    """Return the origin that a clone names; none of its settings count."""
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
    # Outside of any repository; with --file no other settings are read, and none included.
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
            with suppress(OSError):  # then it is named without the line
                lines = head_of(path, _CONFIG_LIMIT).decode("utf-8", "replace").split("\n")
                if (number := line_of(lines, key)) is not None:
                    path = f"{path}:{number}"
            shown = printable(key)
            raise GitRefusedError(
                path,
                f"{shown} is a setting that may run a program; remove it with"
                f" `git config --unset-all {shown}`, or keep it in your own ~/.gitconfig",
            )
    return pairs


def is_allowed(key: str, value: str = "") -> bool:
    """Tell whether a setting is known to run nothing.

    >>> [is_allowed(key) for key in ("user.name", "branch.a.b.merge", "filter.x.smudge")]
    [True, True, False]
    """
    section, _, rest = key.partition(".")
    name, _, variable = rest.rpartition(".")
    if key == "core.fsmonitor":  # else it names a program
        return value.lower() in _BOOLEAN
    if key == "core.bare":
        return value.lower() in {"false", "no", "off", "0"}
    shape = f"{section}.*.{variable}" if name else f"{section}.{variable}"
    return shape in _ALLOWED or f"{section}.*" in _ALLOWED


def line_of(lines: Iterable[str], key: str) -> int | None:
    """Return the line that sets *key*, counted from 1."""
    prefix = ""
    for number, line in enumerate(lines, start=1):
        rest = line
        if header := _HEADER.match(line):
            name = "" if header[2] is None else re.sub(r"\\(.)", r"\1", header[2]) + "."
            prefix = f"{header[1].lower()}.{name}"
            rest = line[header.end() :]
        variable = _VARIABLE.match(rest)
        if variable and f"{prefix}{variable[1].lower()}" == key:
            return number
    return None


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
    file: int = 64 * 2**20  # bytes of one file
    total: int = 512 * 2**20  # bytes of all files that are new or changed, and of one fetch
    count: int = 50_000  # files that are new or changed
    reserved: tuple[str, ...] = (".horae",)  # what nobody else may write, from the root


def objection(changes: Iterable[tuple[str, bytes, int]], limits: ImportLimits) -> str | None:
    """Return why files, by mode, path and size, must not come into a tree; None if they may."""
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
