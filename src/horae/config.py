"""Settings: default < `horae.toml` < environment < flag, each with the place it came from.

The struct `Config` is the table: one field for each setting, declared by `setting`. In the
environment the name is `HORAE_` and the setting's name in capitals; the older `WB_` name, where
there is one, is weaker, and counts in milliseconds where it says so. An empty variable counts as
not set.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from datetime import timedelta
from functools import partial
from ipaddress import ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar, cast

from msgspec import Struct
from msgspec.structs import force_setattr

from horae.core.guarded import DOTS, FILE, LIMIT, Values, Way, as_values, in_force, leaves_of
from horae.errors import Exit, HoraeError
from horae.files.git.layout import arrivals_at, remember
from horae.files.read import PlanFileError, PlanMissingError, read_plan
from horae.org.plan import Diagnostic, Severity, is_id
from horae.timing.duration import DurationError, parse_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from horae.core.secret import SecretSource  # noqa: TC004 - no Config is decoded
    from horae.process.run_settings import NamedSecrets

LEAST_MEMORY: Final = 16 << 20  # bytes that a run may be held to
SECRETS: Final = "secrets"  # the table that says where the value of each secret is
_BOARD: Final = "board"  # the agent that runs `board.command`, and the first part of its names

T = TypeVar("T")


class SettingError(HoraeError, code="setting", exit_code=Exit.USAGE):
    def __init__(
        self, origin: str, reason: str, *, setting: str | None = None, value: object = None
    ) -> None:
        self.origin, self.reason = origin, reason
        self.setting, self.value = setting, _plain(value)
        what = f"{setting} {_short(self.value)} " if setting else ""
        super().__init__(f"{origin}: {what}{reason}")


class SettingsChangedError(HoraeError, code="settings_changed", exit_code=Exit.CONFLICT):
    def __init__(self) -> None:
        super().__init__(f"{FILE} has changed since it was shown; run `horae config trust` again")


class SettingValueError(ValueError): ...


def _plain(value: object) -> object:
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, list):
        return value if all(isinstance(part, str) for part in value) else "a list"
    return "a table" if isinstance(value, dict) else str(value)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def mask(value: object) -> str:
    """Return what of an address may be shown: neither a user nor a password.

    >>> mask("postgresql://horae:s3cret@db.example/plans?sslpassword=x")
    'postgresql://***@db.example/plans?***'
    >>> mask("host=db password=s3cret")
    '***'
    """
    scheme, divider, rest = str(value).partition("://")
    if not divider or not scheme.isalpha():
        return "***"
    before, *after = re.split("[?#]", rest, maxsplit=1)
    if after and "@" in after[0]:  # a password with a ? in it, or one in the query with an @
        return f"{scheme}://***"
    _, at, place = before.rpartition("@")
    return f"{scheme}://{'***@' if at else ''}{place}{'?***' if after else ''}"


# What a setting can hold


class SettingKind(NamedTuple, Generic[T]):
    words: str
    read: Callable[[object], T]
    example: str = ""


def _only_if(fits: object, value: T) -> T:
    if not fits:
        raise SettingValueError
    return value


def _text(raw: object) -> str:
    text = os.fspath(raw) if isinstance(raw, str | os.PathLike) else ""
    text = text.strip() if isinstance(text, str) else ""
    return _only_if(text and text.isprintable(), text)


def text_that(fits: Callable[[str], object], words: str, example: str = "") -> SettingKind[str]:
    def read(raw: object) -> str:
        text = _text(raw)
        return _only_if(fits(text), text)

    return SettingKind(words, read, example)


def matching(pattern: str, words: str) -> SettingKind[str]:
    return text_that(lambda text: re.fullmatch(pattern, text), words)


def _is_budget(text: str) -> object:
    from horae.core.budget import parse_budget  # only if there is one

    return parse_budget(text, "UTC")


def _is_zone(text: str) -> object:
    from horae.timing.zone import ZoneError, zone  # loads the zones, which `horae query` needs not

    try:
        return zone(text) is not None
    except ZoneError as error:
        hint = f"did you mean {error.suggestion}?" if error.suggestion else ""
        raise SettingValueError(hint) from None


def _switch(raw: object) -> bool:
    if isinstance(raw, bool):
        return raw
    word = _text(raw).lower()
    is_on = word in {"1", "true", "yes", "on"}
    return _only_if(is_on or word in {"0", "false", "no", "off"}, is_on)


def _number(raw: object) -> int:
    if isinstance(raw, int) and not isinstance(raw, bool):
        return raw
    text = _text(raw)
    # int() also takes signs, underscores, other digits, and refuses thousands of them.
    return int(_only_if(re.fullmatch(r"[0-9]{1,18}", text, re.ASCII), text))


def whole(least: int, most: int) -> SettingKind[int]:
    def read(raw: object) -> int:
        number = _number(raw)
        return _only_if(least <= number <= most, number)

    return SettingKind(f"a whole number from {least:,} to {most:,}", read)


def _size(raw: object, *, least: int = 1) -> int:
    factor = 1
    if isinstance(raw, str) and (unit := re.fullmatch(r"\s*([0-9]+) ?([KMG])(?:iB)?\s*", raw)):
        raw, factor = unit[1], 1024 ** ("KMG".index(unit[2]) + 1)
    size = _number(raw) * factor
    if 0 < size < least:
        raise SettingValueError(f"the minimum is {least >> 20}M")
    return _only_if(0 < size <= 2**40, size)


def _cores(raw: object) -> float:
    if isinstance(raw, str) and re.fullmatch(r"[0-9]{1,4}(?:\.[0-9]{1,6})?", raw.strip(), re.ASCII):
        raw = float(raw)
    if isinstance(raw, bool) or not isinstance(raw, int | float) or not 0.01 <= raw <= 1024:
        raise SettingValueError
    return float(raw)


def _length(raw: object, *, allow_zero: bool = False) -> timedelta:
    if isinstance(raw, int):
        raise SettingValueError("write it in quotes, with a unit")
    try:
        return parse_duration(_text(raw), allow_zero=allow_zero)
    except DurationError as error:
        raise SettingValueError(f"write {error.suggestion}" if error.suggestion else "") from None


def _path(raw: object) -> Path:
    return Path(_text(raw))


def _items(raw: object, split: Callable[[str], list[str]]) -> object:
    """Return a list that is written as one text, as in the file or divided by *split*."""
    if not isinstance(raw, str):
        return raw
    return json.loads(raw) if raw.lstrip().startswith('["') else split(raw)


def _command(raw: object) -> tuple[str, ...]:
    raw = _items(raw, shlex.split)  # its ValueError names the quote that is not closed
    if not isinstance(raw, list | tuple) or not raw:
        raise SettingValueError
    # An argument may be empty or hold a line break; what runs may not.
    are_texts = all(isinstance(part, str) and "\0" not in part for part in raw)
    return tuple(_only_if(are_texts and raw[0].strip(), raw))


class ListenAddress(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _address(raw: object) -> ListenAddress:
    pattern = r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9.-]+)):([0-9]{1,5})"
    match = re.fullmatch(pattern, _text(raw))
    if match is None or int(match[3]) > 65535:
        raise SettingValueError
    return ListenAddress(match[1] or match[2], int(match[3]))


def _network(raw: object) -> str:
    text = str(_only_if(isinstance(raw, str), raw))
    ip_network(text)  # its ValueError says what is wrong
    return text


def several(
    words: str, read: Callable[[object], T], divider: str = ","
) -> SettingKind[tuple[T, ...]]:
    def read_all(raw: object) -> tuple[T, ...]:
        commas = divider == ","
        raw = _items(raw, lambda t: t.replace(",", " ").split() if commas else t.split(divider))
        if not isinstance(raw, list | tuple):
            raise SettingValueError
        return tuple(map(read, raw))

    return SettingKind(words, read_all)


SWITCH: Final = SettingKind("true or false", _switch)
SIZE: Final = SettingKind("a number of bytes such as 16MiB", _size)
MEMORY: Final = SettingKind(
    "a number of bytes such as 512M or 2G", partial(_size, least=LEAST_MEMORY)
)
CORES: Final = SettingKind("a number of cores from 0.01 to 1024 such as 1.5", _cores)
LENGTH: Final = SettingKind("a duration such as 30s or 1h30m", _length)
LENGTH_OR_ZERO: Final = SettingKind(LENGTH.words, partial(_length, allow_zero=True))
MILLISECONDS: Final = SettingKind("a number of milliseconds such as 30000", _number)
ZONE: Final = text_that(_is_zone, "a time zone", "Europe/Berlin")
ID: Final = text_that(is_id, "a name of at most 64 letters, digits, `.`, `_` and `-`")
PATH: Final = SettingKind("a path", _path)
PATHS: Final = several('paths such as ["/srv/git/plans.git"]', _path, os.pathsep)
BENEATH: Final = text_that(lambda text: not os.path.isabs(text), "a path relative to the plan root")
STORE: Final = matching(
    r"postgres(?:ql)?://.+", "a PostgreSQL address such as postgresql://host/horae"
)
WEB: Final = matching(r"https?://[!-~]+", "an address such as https://example.org/ping")
SITE: Final = matching(
    r"https://[A-Za-z0-9.-]+(?::[0-9]{1,5})?/?", "an address such as https://plans.example.org"
)
BUDGET: Final = text_that(_is_budget, "a budget such as $2/day; 200k tokens/week; 20 runs/day")
COMMAND: Final = SettingKind('a command such as ["my-agent", "--once"]', _command)
UNCOMMITTED: Final = matching(r"deliver|branch", "deliver or branch")
LABELS: Final = several('labels such as ["gpu", "berlin"]', ID.read)
HOST: Final = matching(r"\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+", "a host")
NAMES: Final = several('names of hosts such as ["plans.example.org"]', HOST.read)
NETWORKS: Final = several('addresses such as ["127.0.0.1", "10.0.0.0/8"]', _network)
ADDRESS: Final = SettingKind("a host and port such as 127.0.0.1:7117 or [::1]:7117", _address)


# The table


class Setting(NamedTuple):
    """The declaration of one setting, which docs/reference/settings.md describes."""

    kind: SettingKind[Any]
    default: str | int | None
    older: str = ""  # variable of Workbooks
    is_secret: bool = False
    is_hot: bool = False  # a guarded one that a running engine uses once it is confirmed
    is_of_engine: bool = True  # else only commands use it, and no restart is needed
    field: str = ""

    @property
    def name(self) -> str:
        return self.field.replace("_", ".", 1)

    @property
    def path(self) -> Way:
        return tuple(self.name.split("."))

    @property
    def flag(self) -> str:
        return "--" + self.field.replace("_", "-")

    @property
    def variables(self) -> tuple[str, ...]:
        return tuple(filter(None, (f"HORAE_{self.field.upper()}", self.older)))

    def shown(self, value: object) -> object:
        return mask(value) if self.is_secret and value is not None else _plain(value)

    def overridden(self, given: Overridden) -> Overridden:
        """Return a written value as it may be shown, with its unit."""
        value = f"{given.value}ms" if given.is_milliseconds else given.value
        return given._replace(value=self.shown(value))

    def value(self, given: Overridden, *, root: str = "", home: str = "") -> Any:
        """Return a written value as it is used; a relative path in a file is from *root*."""
        if given.value is None:
            return None  # only a setting that is optional has no default
        kind = MILLISECONDS if given.is_milliseconds else self.kind
        # A run in a clone of the plan is told these paths, and must find the same places.
        base = os.path.abspath(root) if kind is PATHS else "" if given.is_stronger else root
        try:
            ms = f"{_number(given.value)}ms" if kind is MILLISECONDS else None
            value = self.kind.read(ms or given.value)
            if kind is PATH:
                return _placed(value, base, home)
            return tuple(_placed(each, base, home) for each in value) if kind is PATHS else value
        except ValueError as error:
            like = f" such as {kind.example}" if kind.example else ""
            reason = f"is not {kind.words}{f'; {error}' if str(error) else like}"
            shown = self.shown(given.value)
            raise SettingError(given.origin, reason, setting=self.name, value=shown) from None


def setting(kind: SettingKind[T], *declared: Any, **more: Any) -> T:
    """Declare a field of `Config`, as a `Setting`; with None as its default it is optional."""
    return cast("T", Setting(kind, *declared, **more))


class Overridden(NamedTuple):
    """A value as it is written in one place."""

    origin: str
    value: object

    @property
    def is_stronger(self) -> bool:
        """Whether a file does not change it."""
        return self.origin.startswith(("flag ", "environment "))

    @property
    def is_milliseconds(self) -> bool:
        return self.origin.startswith("environment ") and self.origin.endswith("_MS")


class SettingOrigin(NamedTuple):
    name: str
    value: object
    origin: str
    overrides: tuple[Overridden, ...]


def outdated_words(name: str, kept: object) -> str:
    """Say that a setting counts as it was until a restart; None: nothing was set."""
    said = kept if isinstance(kept, str) else json.dumps(kept)
    said = "its default" if kept is None else said
    return f"{name} is changed in {FILE}; the engine keeps {said} until it is restarted"


class Config(Struct, frozen=True, eq=False, kw_only=True):
    """All settings, frozen but for what a person confirms while an engine runs."""

    root: str
    home: str  # where the `horae.toml` is of which guarded settings count
    trusted: Values  # those of them that are in force
    findings: tuple[Diagnostic, ...]  # what `horae.toml` says that no setting is
    secrets: dict[str, SecretSource]  # where the value of each is, by name
    given: dict[str, tuple[Overridden, ...]]  # of each field the strongest first

    data: Path = setting(PATH, ".horae", "WB_DATA")
    zone: str | None = setting(ZONE, None)
    store: str | None = setting(STORE, None, is_secret=True)
    listen: ListenAddress = setting(ADDRESS, "127.0.0.1:7117")
    server_remote: bool = setting(SWITCH, False)
    server_names: tuple[str, ...] | None = setting(NAMES, None)
    server_url: str | None = setting(SITE, None)
    server_trusted_proxies: tuple[str, ...] | None = setting(NETWORKS, None)
    server_public: bool = setting(SWITCH, False)
    tenant: str = setting(ID, "local", "WB_TENANT", is_of_engine=False)
    gitops: bool = setting(SWITCH, False, "WB_GITOPS")
    git_local: tuple[Path, ...] | None = setting(PATHS, None)
    plan_max_bytes: int = setting(SIZE, "16MiB")
    plan_max_files: int = setting(whole(1, 1_000_000), 20_000)
    check_floor: timedelta = setting(LENGTH, "1m", is_of_engine=False)
    run_timeout: timedelta = setting(LENGTH, "1h")
    run_drain: timedelta = setting(LENGTH_OR_ZERO, "30s")
    run_memory: int | None = setting(MEMORY, None)
    run_processes: int | None = setting(whole(1, 1_000_000), None)
    run_cpus: float | None = setting(CORES, None)
    watch_quiet: timedelta = setting(LENGTH, "200ms")
    watch_poll: timedelta | None = setting(LENGTH, None)
    logs_keep: timedelta = setting(LENGTH, "30d")
    logs_most: int = setting(SIZE, "4GiB")
    logs_head: int = setting(SIZE, "32MiB")
    logs_tail: int = setting(SIZE, "32MiB")
    alert_heartbeat: str | None = setting(WEB, None, is_secret=True)
    alert_every: timedelta = setting(LENGTH, "1m")
    gate_slots: int = setting(whole(1, 1024), 4)
    budget: str | None = setting(BUDGET, None)
    agent_command: tuple[str, ...] | None = setting(COMMAND, None, is_hot=True)
    agent_uncommitted: str | None = setting(UNCOMMITTED, None)
    board_dir: str | None = setting(BENEATH, None)
    board_budget: str | None = setting(BUDGET, None)
    board_command: tuple[str, ...] | None = setting(COMMAND, None)
    board_max: int = setting(whole(1, 1024), 1)
    board_auto_dispatch: bool = setting(SWITCH, True)
    crew_def: Path | None = setting(PATH, None, "WB_CREW_DEF")
    crew_budget: str | None = setting(BUDGET, None)
    crew_max_concurrent: int = setting(whole(1, 1024), 2, "WB_CREW_MAX_CONCURRENT")
    crew_stagger: timedelta = setting(LENGTH_OR_ZERO, "30s", "WB_CREW_STAGGER_MS")
    keeper_def: Path | None = setting(PATH, None, "WB_KEEPER_DEF")
    keeper_interval: timedelta = setting(LENGTH, "1h", "WB_KEEPER_INTERVAL_MS")
    keeper_continuous: bool = setting(SWITCH, False, "WB_KEEPER_CONTINUOUS")
    keeper_breather: timedelta = setting(LENGTH, "45s", "WB_KEEPER_BREATHER_MS")
    keeper_timeout: timedelta = setting(LENGTH, "15m", "WB_KEEPER_RUN_TIMEOUT_MS")
    keeper_mode: str = setting(matching("plan|edit", "plan or edit"), "plan", "WB_KEEPER_MODE")
    cluster_name: str | None = setting(ID, None)
    cluster_labels: tuple[str, ...] | None = setting(LABELS, None)
    cluster_runs: int = setting(whole(1, 1024), 4)
    cluster_lease: timedelta = setting(LENGTH, "15s")
    cluster_patience: timedelta = setting(LENGTH_OR_ZERO, "5m")
    cluster_branch: str | None = setting(ID, None)
    cluster_address: ListenAddress | None = setting(ADDRESS, None)
    lifecycle_def: Path | None = setting(PATH, None, "WB_LIFECYCLE_DEF")

    def __repr__(self) -> str:
        rows = ", ".join(f"{row.name}={row.value!r}" for row in self.origins())
        return f"Config({self.root!r}, {rows})"

    @property
    def board_members(self) -> tuple[str, ...]:
        """The names under which `board.command` gets tasks; a crew gets them instead."""
        if self.board_command is None or self.crew_def is not None:
            return ()
        return (_BOARD, *(f"{_BOARD}-{number}" for number in range(2, self.board_max + 1)))

    @property
    def node_name(self) -> str:
        """The name of this node of a cluster; empty if there is none."""
        host = os.uname().nodename.partition(".")[0] or "node"
        return "" if self.store is None else self.cluster_name or host

    def accept(self, written: Values) -> None:
        file = _File(f"{self.home}/{FILE}", {way: json.loads(v) for way, v in written.items()}, {})
        secrets = dict(_secrets(file, self.home, os.environ.get("HOME", "")))
        for each in filter(lambda each: each.is_hot, SETTINGS):
            *others, default = self.given[each.field]
            kept = [one for one in others if one.is_stronger]
            if each.path in file.values:
                kept.append(Overridden(file.name, file.values[each.path]))
            found = (*kept, default)
            # An error is raised before anything has changed.
            force_setattr(self, each.field, each.value(found[0]))
            self.given[each.field] = found
        force_setattr(self, "trusted", written)
        self.secrets.clear()  # others have it, too
        self.secrets.update(secrets)

    def outdated(self, written: Config) -> Iterator[tuple[str, object]]:
        """Yield what a file sets otherwise by now, of what an engine reads at its start.

        Each is a name, and the value that counts until a restart.
        """
        for each in SETTINGS:
            own, new = self.given[each.field][0], written.given[each.field][0]
            is_changed = getattr(self, each.field) != getattr(written, each.field)
            is_of_file = not (own.is_stronger or new.is_stronger)
            if each.is_of_engine and is_changed and is_of_file:
                yield each.name, each.overridden(own).value

    def origins(self) -> tuple[SettingOrigin, ...]:
        rows = []
        for each in SETTINGS:
            best, *rest = map(each.overridden, self.given[each.field])
            rows.append(SettingOrigin(each.name, best.value, best.origin, tuple(rest)))
        for name, source in sorted(self.secrets.items()):
            rows.append(SettingOrigin(f"{SECRETS}.{name}", str(source), source.origin, ()))
        return tuple(rows)


# Only the declared ones have a default, and they stand last.
_DECLARED: Final[tuple[Setting, ...]] = Config.__struct_defaults__
SETTINGS: Final = tuple(
    each._replace(field=field)
    for each, field in zip(_DECLARED, Config.__struct_fields__[-len(_DECLARED) :], strict=True)
)


def _placed(path: Path, base: str, home: str) -> Path:
    if not str(path).startswith("~"):
        return Path(base) / path
    if path.parts[0] != "~" or not home:
        raise SettingValueError("write it without ~")
    return Path(home, *path.parts[1:])


def load(
    root: str | os.PathLike[str] = ".",
    *,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
    own: Config | None = None,
    with_file: bool = True,
) -> Config:
    """Return the settings in force for the plans beneath *root*, with those in its file or without.

    *flags* go by the setting's name, such as `gate.slots`; None means that it was not given.
    Guarded settings that arrived by a pull do not count until they are confirmed, and none of a
    clone of the plan do, where *own* has the engine's.
    """
    variables = os.environ if environ is None else environ
    options = flags or {}
    if unknown := options.keys() - {each.name for each in SETTINGS}:
        raise KeyError(f"no such setting: {', '.join(sorted(unknown))}")
    base = os.fspath(root)
    file = _read_file(base) if with_file else _File(f"{base}/{FILE}", {}, {})
    source = base if own is None else own.home
    trusted = in_force(as_values(file.values), arrivals_at(base)) if own is None else own.trusted
    file = file.with_guarded(trusted, os.path.normpath(f"{source}/{FILE}") + " as last trusted")
    home = variables.get("HOME", "")
    given: dict[str, tuple[Overridden, ...]] = {}
    for each in SETTINGS:
        names = filter(variables.get, each.variables)
        found = [Overridden(f"environment {name}", variables[name]) for name in names]
        if options.get(each.name) is not None:
            found.insert(0, Overridden(f"flag {each.flag}", options[each.name]))
        if each.path in file.values:
            found.append(Overridden(file.origin(each.path), file.values[each.path]))
        given[each.field] = (*found, Overridden("default", each.default))
    return Config(
        root=base,
        home=source,
        trusted=trusted,
        findings=tuple(_unknown(file)),
        secrets=dict(_secrets(file, source, home)),
        given=given,
        **{e.field: e.value(given[e.field][0], root=base, home=home) for e in SETTINGS},
    )


# Guarded settings that a person has not confirmed


class UnconfirmedSetting(Struct, frozen=True):
    name: str
    trusted: Any  # what counts; None if nothing is set
    written: Any
    commit: str | None  # that it arrived with; None: it was edited here

    def __str__(self) -> str:
        if self.commit:
            said = f"commit {self.commit[:12]} changes {self.name} in {FILE}"
            return f"{said}; it takes effect after `horae config trust`"
        return (
            f"{self.name} is changed in {FILE}; it takes effect after a restart of the engine"
            " or after `horae config trust`"
        )


class WaitingSettings(Struct, frozen=True):
    digest: str  # of all guarded values in the file
    waiting: tuple[UnconfirmedSetting, ...]


class TrustReport(WaitingSettings, frozen=True):
    after_restart: tuple[str, ...] = ()
    until_restart: bool = False


def guarded_in(config: Config) -> Values:
    return as_values(_read_file(config.root).values)


def untrusted(config: Config, written: Values | None = None) -> WaitingSettings:
    """Return which guarded settings in the file, or in *written*, do not count yet."""
    from hashlib import sha256

    trusted = config.trusted
    written = guarded_in(config) if written is None else written
    digest = sha256(repr(sorted(written.items())).encode()).hexdigest()
    arrivals = arrivals_at(config.root) if trusted != written else None
    waits = []
    for way in sorted(trusted.keys() | written.keys()):
        was, now = trusted.get(way), written.get(way)
        if was != now:
            old, new = (_shown_at(way, text) for text in (was, now))
            commit = None if arrivals is None else arrivals.commit_of(way, now) or None
            waits.append(UnconfirmedSetting(".".join(way), old, new, commit))
    return WaitingSettings(digest, tuple(waits))


def _shown_at(way: Way, text: str | None) -> object:
    """Return a guarded value as it may be shown; what names no source may be a secret itself."""
    if text is None:
        return None
    raw = json.loads(text)
    for each in SETTINGS:
        if each.path == way:
            return each.shown(raw)
    if way[0] != SECRETS:
        return _plain(raw)
    from horae.core.secret import parse_source  # most roots have none

    try:
        parse_source(raw if isinstance(raw, str) else "")
    except ValueError:
        return "***"
    return raw


def confirm(config: Config, digest: str) -> WaitingSettings:
    written = guarded_in(config)
    found = untrusted(config, written)
    if found.digest != digest:
        raise SettingsChangedError
    config.accept(written)
    if config.home == config.root:
        remember(config.root, None)
    return found


# The file


class _File(NamedTuple):
    name: str
    values: Mapping[Way, object]
    lines: Mapping[Way, int]
    former: Mapping[Way, str] = {}  # where values are from that the text has not

    def line(self, path: Way) -> int | None:
        ways = (path[:length] for length in range(len(path), 0, -1))
        return next((self.lines[way] for way in ways if way in self.lines), None)

    def with_guarded(self, trusted: Values, source: str) -> _File:
        written = as_values(self.values)
        ways = written.keys() | trusted.keys()
        odd = {way for way in ways if written.get(way) != trusted.get(way)}
        kept = {way: value for way, value in self.values.items() if way not in odd}
        former = {way: json.loads(trusted[way]) for way in odd if way in trusted}
        return self._replace(values=kept | former, former=dict.fromkeys(former, source))

    def origin(self, path: Way) -> str:
        if path in self.former:
            return self.former[path]
        line = self.line(path)
        return f"{self.name}:{line}" if line else self.name


def _read_file(root: str) -> _File:
    path = f"{root.removesuffix('/')}/{FILE}"
    name = os.path.normpath(path)
    try:
        text = read_plan(path, root=root, limit=LIMIT).text
    except PlanMissingError:
        return _File(name, {}, {})
    except PlanFileError as error:
        place = name if error.line is None else f"{name}:{error.line}:{error.column}"
        raise SettingError(place, error.reason) from None
    import tomllib

    text = text.removeprefix("\ufeff")
    if dots := re.search(DOTS, text):
        line = text.count("\n", 0, dots.start()) + 1
        words = "100 dots in one line; the name of a setting has at most one"
        raise SettingError(f"{name}:{line}", words)
    try:
        tables = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        words = "too many nested brackets" if isinstance(error, RecursionError) else str(error)
        problem, _, place = words.partition(" (at ")
        where = name  # a number of 5,000 digits, or 1,000 brackets
        if place:
            found = re.fullmatch(r"line (\d+), column (\d+)\)", place)
            end = (text.count("\n") + 1, len(text) - text.rfind("\n"))  # of the document
            last, column = map(int, found.groups()) if found else end
            where = f"{name}:{last}:{column}"
            before = [way for way, line in _statements(text) if line <= last]
            if before and before[-1] in before[:-1]:
                raise SettingError(where, f"{'.'.join(before[-1])} is set twice") from None
        raise SettingError(
            where, f'{problem}; write a setting as in gate.slots = 4 or zone = "UTC"'
        ) from None
    sections = {(SECRETS,), *(each.path[:-1] for each in SETTINGS)}
    leaves = {
        way: value for way, value in leaves_of(tables).items() if value != {} or way not in sections
    }
    # Of a table that is written in parts the first counts.
    return _File(name, leaves, dict(reversed([*_statements(text)])))


# Compiled when there is a file to read; most roots have none.
_PART: Final = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')"""
_KEY: Final = rf"{_PART}(?:[ \t]*\.[ \t]*{_PART})*"
_STATEMENT: Final = rf"(?:\s++|\#[^\n]*+)*(?:\[\[?[ \t]*({_KEY})[ \t]*\]\]?|({_KEY})[ \t]*=)"
_VALUE: Final = r"""(?xs)
    \"{3}(?:\\.|[^\\])*?\"{3,5} | '{3}.*?'{3,5} | "(?:\\.|[^"\\]++)*" | '[^']*' | \#[^\n]*
    | (?P<open>[\[{]) | (?P<close>[\]}]) | (?P<end>\n) | [^"'\#\[\]{}\n]++
"""


def _statements(text: str) -> Iterator[tuple[Way, int]]:
    r"""Yield each table and key of a text with its line, as far as the text is TOML.

    >>> [*_statements("zone = 'UTC'\n[gate]\nslots = 4")]
    [(('zone',), 1), (('gate',), 2), (('gate', 'slots'), 3)]
    """
    table: Way = ()
    position, line = 0, 1
    statements, tokens = re.compile(_STATEMENT), re.compile(_VALUE)
    while statement := statements.match(text, position):
        header, key = statement.groups()
        path = tuple(part.strip("\"'") for part in re.findall(_PART, header or key))
        line += text.count("\n", position, statement.end())
        position = statement.end()
        if header:
            table = path
        yield path if header else table + path, line
        depth, end = 0, position
        while (token := tokens.match(text, end)) and (depth or not token["end"]):
            depth += bool(token["open"]) - bool(token["close"])
            end = token.end()
        line += text.count("\n", position, end)
        position = end


def _unknown(file: _File) -> Iterator[Diagnostic]:
    known = {each.path for each in SETTINGS}
    strange = [path for path in file.values if path not in known and path[0] != SECRETS]
    for count, (line, path) in enumerate(sorted((file.line(path) or 1, path) for path in strange)):
        name = ".".join(path)
        # To look for a name takes a millisecond.
        meant = meant_setting(name) if count < 20 else None
        fix = f"did you mean {meant}?" if meant else None
        message = f"there is no setting {_short(name)}; it is ignored"
        yield Diagnostic(file.name, line, 1, "setting-unknown", Severity.WARNING, message, fix)


def meant_setting(name: str) -> str | None:
    """Return the setting that *name* was probably meant to be.

    >>> [meant_setting(name) for name in ("gate.slot", "slots", "gaet.slots")]
    ['gate.slots', 'gate.slots', 'gate.slots']
    >>> meant_setting("zoen"), meant_setting("colour")
    ('zone', None)
    """
    from difflib import get_close_matches

    names = [each.name for each in SETTINGS]
    near = get_close_matches(name.lower(), names, n=1, cutoff=0.75)
    inner = [full for full in names if full.endswith(f".{name.lower()}")]
    return next(iter([*near, *(inner if len(inner) == 1 else [])]), None)


def settings_hint(root: str) -> str:
    if os.path.isfile(f"{root}/{FILE}"):
        return f"set agent.command in {FILE}"
    return f"create {FILE} in the plan root and set agent.command in it"


# Secrets


def _secrets(file: _File, root: str, home: str) -> Iterator[tuple[str, SecretSource]]:
    for path, raw in file.values.items():
        if path[0] != SECRETS:
            continue
        from horae.core.secret import SecretSource, SourceKind, parse_source, why_no_name

        name, origin = ".".join(path[1:]), file.origin(path)
        try:
            why = 'secrets is a table; write [secrets] and below it NAME = "file:PATH"'
            if why := why_no_name(name) if name else why:
                raise SettingValueError(why)
            source = parse_source(raw if isinstance(raw, str) else "")
            words = source.words
            if source.kind is SourceKind.FILE:
                words = (os.path.abspath(_placed(_path(words[0]), root, home)),)
        except ValueError as error:
            said = ".".join(filter(None, (SECRETS, name[:60])))
            raise SettingError(f"{origin}: {said}", str(error)) from None
        yield name, SecretSource(source.kind, words, origin)


def secrets_of(
    config: Config, *, may_call: bool = True, environ: Mapping[str, str] | None = None
) -> NamedSecrets:
    from horae.process.run_settings import NamedSecrets
    from horae.store import database

    data = Path(os.path.abspath(config.data))
    is_shared = config.store is not None
    return NamedSecrets(
        config.secrets,
        os.environ if environ is None else environ,
        root=Path(config.root).absolute(),
        data=data,
        store=config.store,
        may_call=may_call,
        keeps=None if is_shared else partial(database.keep, data),
        forgets=None if is_shared else partial(database.forget, data),
    )


def known_names(config: Config) -> dict[str, str]:
    return {**os.environ, **dict.fromkeys(config.secrets, "")}


def state_directory() -> Path:
    base = os.environ.get("XDG_STATE_HOME", "")
    home = Path(base) if base.startswith("/") else Path.home() / ".local" / "state"
    return home / "horae"
