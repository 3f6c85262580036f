"""What every run gets: its directory, its program, the facts of the run, and its secrets.

A secret is read from a file, from the output of a command, or from a variable. What belongs to the
engine itself is never a source, and no message contains a value.
"""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import subprocess
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from shutil import which
from tempfile import TemporaryFile
from time import monotonic, time_ns
from typing import TYPE_CHECKING, Final

from horae.core import secret
from horae.core.actor import run_actor
from horae.core.budget import left_facts
from horae.core.command import Unready
from horae.core.entry import key_time
from horae.core.ports import Given, RunPlace, SecretError, UnaskedSecretError
from horae.core.receipt import ReasonCode
from horae.core.secret import is_own
from horae.errors import Exit, HoraeError
from horae.process.processes import LOG_NAME, TOKEN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from datetime import timedelta

    from horae.core.access import RunTokens
    from horae.core.ports import Followed, Job
    from horae.core.receipt import Filed, Reason
    from horae.core.spending import Spending


@dataclass(frozen=True, slots=True)
class RunSettings(RunPlace):
    signature: bytes = b""  # signs the body of a POST
    local: tuple[Path, ...] = ()  # addresses on this machine that a POST may call
    named: NamedSecrets | None = None  # if None, only secrets of the environment are known
    tokens: RunTokens | None = None  # of the runs that request one
    spending: Spending | None = None  # the purses of runs

    @property
    def secrets(self) -> NamedSecrets:
        return self.named or NamedSecrets({}, self.environ, root=self.root, data=self.data)

    def work_of(self, filed: Filed) -> Path:
        beside = (self.root / filed.origin.file).parent
        return beside if beside.is_dir() else self.root


def facts_of(
    job: Job, place: RunSettings, *, timeout: timedelta, api: tuple[str, ...] = ()
) -> dict[str, str]:
    filed, run = job.filed, job.run
    scopes = {*filed.policy.api, *api}
    facts = {
        "HORAE_DATA": str(place.data),
        "HORAE_ENTRY": str(filed.entry),
        "HORAE_TITLE": filed.title,
        "HORAE_KEY": filed.receipt.key,
        "HORAE_PLANNED": key_time(filed.receipt.planned_at),
        "HORAE_ACTUAL": key_time(run.started_at),
        "HORAE_ATTEMPT": str(filed.attempts + 1),
        "HORAE_RECEIPT": str(filed.number),
        "HORAE_RUN": str(run.number),
        "HORAE_DEADLINE": key_time(run.started_at + timeout),
        "HORAE_COMMIT": filed.commit or "",
        **(left_facts(job.balances) if job.balances else {}),
    }
    if place.local:
        # Absolute, as the directory may be a clone of the plan.
        facts["HORAE_GIT_LOCAL"] = os.pathsep.join(map(str, place.local))
    tokens = place.tokens
    if scopes and tokens is not None and tokens.is_served:
        facts[TOKEN] = tokens.begin(run.number, actor=run_actor(filed), scopes=scopes)
        facts |= {"HORAE_URL": tokens.url} if tokens.url else {}
    if job.about is not None:
        about = message_of(job.about.filed) | alert_facts(job.about, place)
        facts |= {f"HORAE_AFTER_{name.upper()}": str(value) for name, value in about.items()}
    return {name: value.replace("\0", "") for name, value in facts.items()}


def message_of(filed: Filed) -> dict[str, object]:
    return {
        "entry": filed.title,
        "receipt": filed.number,
        "key": filed.receipt.key,
        "status": filed.status,
        "reason": filed.receipt.reason,
        "reason_code": filed.receipt.reason.code,
        "planned": key_time(filed.receipt.planned_at),
        "file": filed.origin.place,
    }


def alert_facts(about: Followed, place: RunSettings) -> dict[str, str]:
    log = None if about.run is None else place.directory_of(about.run) / LOG_NAME
    return {
        "event": " ".join(about.event),
        "log": str(log) if log is not None and log.is_file() else "",
        "tail": "" if about.run is None else str(about.run.facts.get("tail", "")),
    }


async def why_held(
    place: RunSettings, variables: Iterable[str], own: Mapping[str, str] | None = None
) -> Reason | None:
    try:
        await place.secrets.given(variables, own)
    except SecretError as error:
        return error.reason
    return None


def hidden_bytes(given: Given) -> set[bytes]:
    return {each.encode("utf-8", "surrogateescape") for each in given.hidden}


_OF_THE_SHELL: Final = frozenset(
    {".", "alias", "cd", "eval", "exec", "export", "set", "source", "trap", "ulimit", "umask"}
)

# The variables that a command gets from our environment; all others may be secrets.
_ALLOWED: Final = frozenset({
    "PATH", "HOME", "LANG", "TZ", "TMPDIR", "USER", "SHELL",
    "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "FTP_PROXY", "NO_PROXY",
    "http_proxy", "https_proxy", "all_proxy", "ftp_proxy", "no_proxy",
})  # fmt: skip


def why_unready(
    argv: Sequence[str],
    *,
    directory: str | Path,
    environ: Mapping[str, str],
    variables: Iterable[str] = (),
) -> Unready | None:
    where, name = Path(directory), argv[0]
    if not where.is_dir():
        return Unready(f"the directory {where} does not exist", "create it, or use another one")
    if "/" in name:
        path = where / name
        if not path.exists():
            is_below = not name.startswith("/") and str(where) != "."
            hint = f" (it is relative to {where})" if is_below else ""
            hint = f"create the file, or correct the path{hint}"
            return Unready(f"the program {name} does not exist", hint)
        if path.is_dir() or not os.access(path, os.X_OK):
            return Unready(f"the program {name} is not executable", f"run `chmod +x {path}`")
        return None
    if which(name, path=allowed_environment(environ, variables).get("PATH", os.defpath)):
        return None
    if name in _OF_THE_SHELL:
        reason = f"{name} is a shell builtin, not a program"
        return Unready(reason, f"call a shell explicitly: sh -c '{name} …'")
    return Unready(f"{name} is not on the PATH", "install it, or write its full path")


def unread(
    secrets: NamedSecrets | None, variables: Iterable[str], own: Iterable[str] = ()
) -> Unready | None:
    if secrets is None:
        return None
    asked = [each.partition("=") for each in variables]
    named = [
        text or f"${{{name}}}" for name, given, text in asked if given or secrets.is_named(name)
    ]
    error = secrets.why_not([*named, *own])
    fix = "provide it, or correct [secrets] in horae.toml"
    return None if error is None else Unready(str(error), fix, ReasonCode.SECRET_UNREADABLE)


def allowed_environment(base: Mapping[str, str], names: Iterable[str] = ()) -> dict[str, str]:
    wanted = {*_ALLOWED, *(name for name in names if not is_own(name))}
    kept = {name: value for name, value in base.items() if name in wanted or name.startswith("LC_")}
    return {**kept, "TERM": "dumb"}


LARGEST: Final = 64 * 1024  # bytes of a value
LONGEST: Final = 10.0  # seconds for a command
FRESH: Final = 60.0  # seconds for which its output is used
FAILED: Final = 10.0  # seconds after which a failed one is called again
_MOST: Final = 1000  # values that are remembered for masking
_RECENT: Final = 1_000_000_000  # nanoseconds in which a change may keep the modification time
_LOOK: Final = 0.05  # seconds between checks whether a command has ended
_DATABASE: Final = "PGPASS"  # prefix of variables that open a shared ledger
_OWN_FILES: Final = ("token", "host", "post.key")  # of the data directory, under any name


@dataclass(eq=False, repr=False)  # no message contains a value
class NamedSecrets:
    """Secrets named by the settings and an environment, and those in a data directory.

    `store` is the address of a shared ledger. If not `may_call`, no command is called. `keeps` and
    `forgets` manage the files of the data directory.
    """

    sources: Mapping[str, secret.SecretSource]
    environ: Mapping[str, str]
    root: Path | None = None
    data: Path | None = None
    store: str | None = None
    may_call: bool = True
    keeps: Callable[[str, str], str] | None = None
    forgets: Callable[[Iterable[str]], None] | None = None
    # The secrets that could not be read when last needed.
    unread: dict[str, SecretError] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._known: dict[str, None] = {}  # in the order of their arrival
        self._calls: dict[str, asyncio.Task[str]] = {}  # the last call of each command
        self._until: dict[str, float] = {}  # until when its result is used
        self._own: tuple[int, tuple[str, ...]] = (0, ())  # its keys, and its directory's time

    @property
    def hidden(self) -> frozenset[str]:
        return frozenset((*self._known, *self._own_texts()))

    def is_named(self, name: str) -> bool:
        return name in self.sources

    def why_not(self, texts: Iterable[str]) -> SecretError | None:
        for text in texts:
            for name in (*secret.needed_in(text), *secret.kept_in(text)):
                try:
                    if not self._is_called(name):
                        self._look(name)
                except SecretError as error:
                    return error
        return None

    async def filled(self, text: str) -> str:
        for name in secret.kept_in(text):  # at most one
            text = await self._value(name)
        own = {name for name in self.environ if not self._is_own(name)}
        known = {*secret.needed_in(text), *self.sources, *own}
        names = [name for name in secret.names_in(text) if name in known]
        return secret.expand(text, {name: await self._value(name) for name in names})

    async def given(self, variables: Iterable[str], own: Mapping[str, str] | None = None) -> Given:
        found: dict[str, str] = {}
        hidden: set[str] = set()
        texts = dict(own or {})
        for name, is_filled, text in (each.partition("=") for each in variables):
            if is_filled or self.is_named(name):
                texts[name] = text or f"${{{name}}}"
            elif name in self.environ and not self._is_own(name):
                found[name] = self.environ[name]
                hidden.update(secret.guessed_in(name, found[name]))
        for name, text in texts.items():
            found[name] = await self.filled(text)
            hidden.add(found[name])
        return Given(found, frozenset(hidden) | self.hidden)

    async def keep(self, name: str, text: str) -> str:
        """Store a text from a request; with a shared ledger, only one that is not a secret."""
        if self.keeps is None:
            if name.startswith(secret.WEBHOOK) or secret.looks_secret(name, text):
                words = f"{name}: a shared ledger cannot store secrets; use ${{NAME}} instead, and "
                words += "configure its source in [secrets] of horae.toml on each node"
                raise HoraeError(words, code="secret_literal", exit_code=Exit.USAGE, name=name)
            return text
        kept = await asyncio.to_thread(self.keeps, name, text)
        self._remember(name, text)
        return kept

    async def forget(self, texts: Iterable[str]) -> None:
        texts = list(texts)
        for text in texts:
            for name in secret.kept_in(text):
                self.unread.pop(name, None)
        if self.forgets is not None:
            await asyncio.to_thread(self.forgets, texts)

    def _is_called(self, name: str) -> bool:
        source = self.sources.get(name)
        return source is not None and source.kind is secret.SourceKind.COMMAND

    def _is_own(self, name: str) -> bool:
        return secret.is_own(name) or (self.store is not None and name.startswith(_DATABASE))

    async def _value(self, name: str) -> str:
        try:
            value = await self._value_of(name)
        except SecretError as error:
            self.unread[name] = error
            raise
        self.unread.pop(name, None)
        return value

    async def _value_of(self, name: str) -> str:
        """Return the value of a secret; concurrent callers share one call of a command."""
        if not self._is_called(name):
            is_variable = not self.is_named(name) and "/" not in name
            return self._look(name) if is_variable else await asyncio.to_thread(self._look, name)
        call = self._calls.get(name)
        if call is None or (call.done() and monotonic() >= self._until[name]):
            call = self._calls[name] = asyncio.create_task(self._call(name))
        return await asyncio.shield(call)

    async def _call(self, name: str) -> str:
        environ = {key: each for key, each in self.environ.items() if not self._is_own(key)}
        lasts = 0.0
        try:
            if not self.may_call:
                raise UnaskedSecretError(name, "its command is not run by a check")
            words = self.sources[name].words
            said = await asyncio.to_thread(_printed, name, words, environ)
            value, lasts = self._checked(name, said), FRESH
        except SecretError:
            lasts = FAILED
            raise
        else:
            return value
        finally:
            self._until[name] = monotonic() + lasts

    async def look_again(self) -> bool:
        found = False
        for name in tuple(self.unread):
            with suppress(SecretError):  # it stays in `unread`, which is reported as a problem
                await self._value(name)
                found = True
        return found

    def _look(self, name: str) -> str:
        if name.startswith(f"{secret.FOLDER}/"):
            return self._kept(name)
        source = self.sources.get(name)
        if source is not None and source.kind is secret.SourceKind.FILE:
            return self._checked(name, self._from_file(name, Path(source.words[0])))
        variable = name if source is None else source.words[0]
        if self._is_own(variable):
            raise SecretError(name, "the name is reserved for the engine")
        if variable not in self.environ:
            where = "and is not defined" if source is None else "but named"
            raise SecretError(name, f"the variable {variable} is not set, {where} in [secrets]")
        value = self.environ[variable]
        return self._checked(name, value.encode("utf-8", "surrogateescape")) if source else value

    def _kept(self, name: str) -> str:
        file = name.removeprefix(f"{secret.FOLDER}/")
        shown = file.rpartition("-")[0] or file
        if self.data is None:
            raise SecretError(shown, "there is no data directory")
        try:
            text = _decoded(shown, _read(shown, self.data / secret.FOLDER / file))
        except FileNotFoundError:
            folder = self.data / secret.FOLDER
            raise SecretError(shown, f"{file} is not in {folder}; set it again") from None
        self._remember(shown, text)
        return text

    def _from_file(self, name: str, path: Path) -> bytes:
        try:
            real = path.parent.resolve(strict=True) / path.name
        except (OSError, RuntimeError):
            raise SecretError(name, f"{path} does not exist") from None
        for folder, what in ((self.root, "plan root"), (self.data, "data directory")):
            if folder is not None and real.is_relative_to(folder.resolve()):
                raise SecretError(name, f"{path} is in the {what}, where secrets are not allowed")
        try:
            return _read(name, real)
        except FileNotFoundError:
            raise SecretError(name, f"{path} does not exist") from None

    def _checked(self, name: str, data: bytes) -> str:
        value = _decoded(name, data).rstrip("\r\n")
        if not value:
            raise SecretError(name, "the value is empty")
        if self.store is not None and self.store in value:
            why = "the value is the address of the ledger, which is reserved for the engine"
            raise SecretError(name, why)
        if any(own in value for own in self._own_texts()):
            raise SecretError(name, "the value is a key of the engine, from its data directory")
        self._remember("", value)
        return value

    def _own_texts(self) -> tuple[str, ...]:
        if self.data is None:
            return ()
        try:
            changed = os.stat(self.data).st_mtime_ns  # a key is replaced by another file
        except OSError:
            return ()
        if changed != self._own[0] or time_ns() - changed < _RECENT:
            self._own = changed, tuple(self._read_own(self.data))
        return self._own[1]

    def _read_own(self, data: Path) -> Iterator[str]:
        for path in map(data.joinpath, _OWN_FILES):
            with suppress(OSError, SecretError):  # a missing key has no value
                if text := _decoded(path.name, _read(path.name, path)).strip():
                    yield text

    def _remember(self, name: str, text: str) -> None:
        """Mask a value from now on; one from a request only if it looks secret."""
        if not name or name.startswith(secret.WEBHOOK) or secret.guessed_in(name, text):
            self._known.pop(text, None)
            self._known[text] = None
            while len(self._known) > _MOST:
                del self._known[next(iter(self._known))]


def _read(name: str, path: Path) -> bytes:
    """Read a file that only its owner can access, without following links or waiting for a pipe."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        raise
    except OSError as error:
        why = "is a link" if path.is_symlink() else (error.strerror or str(error)).lower()
        raise SecretError(name, f"{path}: {why}") from None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise SecretError(name, f"{path} is not a regular file")
        if found.st_uid != os.geteuid():
            raise SecretError(name, f"{path} belongs to another user")
        if found.st_mode & 0o077:
            raise SecretError(name, f"other users can read {path}; run `chmod 600 {path}`")
        if found.st_size > LARGEST:
            raise SecretError(name, f"{path} is larger than {LARGEST // 1024} KiB")
        return os.read(descriptor, LARGEST + 1)
    except OSError as error:
        raise SecretError(name, f"{path}: {(error.strerror or str(error)).lower()}") from None
    finally:
        os.close(descriptor)


def _decoded(name: str, data: bytes) -> str:
    if len(data) > LARGEST:
        raise SecretError(name, f"the value is larger than {LARGEST // 1024} KiB")
    if b"\0" in data:
        raise SecretError(name, "the value contains a NUL byte")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise SecretError(name, "the value is not UTF-8 text") from None


def _printed(name: str, words: tuple[str, ...], environ: Mapping[str, str]) -> bytes:
    # Not a pipe: it ends only when all have closed it. In memory, where the system allows.
    in_memory = getattr(os, "memfd_create", None)
    with os.fdopen(in_memory("secret"), "w+b") if in_memory else TemporaryFile() as out:
        try:
            process = subprocess.Popen(  # noqa: S603 - words of the settings, and no shell
                words,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.DEVNULL,
                cwd="/",  # no relative name leads into the plan
                env=dict(environ),
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            why = (getattr(error, "strerror", None) or str(error)).lower()
            raise SecretError(name, f"{words[0]} cannot be called: {why}") from None
        until, is_over = monotonic() + LONGEST, False
        try:
            while not is_over and monotonic() < until and os.fstat(out.fileno()).st_size <= LARGEST:
                with suppress(subprocess.TimeoutExpired):  # the loop checks size and time again
                    is_over = process.wait(_LOOK) is not None
        finally:
            with suppress(ProcessLookupError, PermissionError):  # the group has ended
                os.killpg(process.pid, signal.SIGKILL)
            code = process.wait()
        out.seek(0)
        said = out.read(LARGEST + 1)
    if len(said) > LARGEST:
        raise SecretError(name, f"{words[0]} printed more than {LARGEST // 1024} KiB")
    if not is_over:
        raise SecretError(name, f"{words[0]} did not end within {LONGEST:.0f} s")
    if code:
        how = f"exit code {code}" if code > 0 else f"signal {-code}"
        raise SecretError(name, f"{words[0]} ended with {how}")
    return said
