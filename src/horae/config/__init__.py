"""Settings: default < `horae.toml` < environment < flag, each with the place it came from.

The class `Config` is the table: one row for each setting. In the environment the name is
`HORAE_` and the setting's name in capitals; the older `WB_` name, where there is one, is
weaker, and counts in milliseconds where it says so. An empty variable counts as not set.
"""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar, cast, overload

from horae.core.guarded import DOTS, FILE, LIMIT, Values, as_values, in_force
from horae.errors import Exit, HoraeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from datetime import timedelta
    from pathlib import Path

    from horae.core.guarded import Arrivals, Way
    from horae.core.secret import SecretSource
    from horae.org.plan import Diagnostic
    from horae.process.secrets import NamedSecrets

LEAST_MEMORY: Final = 16 << 20  # bytes that a run may be held to
SECRETS: Final = "secrets"  # the table that says where the value of each secret is

T = TypeVar("T")


class SettingError(HoraeError):
    """A setting that cannot be used."""

    code = "setting"
    exit_code = Exit.USAGE

    def __init__(
        self, origin: str, reason: str, *, setting: str | None = None, value: object = None
    ) -> None:
        self.origin = origin
        self.reason = reason
        self.setting = setting
        self.value = _plain(value)
        what = f"{setting} {_short(self.value)} " if setting else ""
        super().__init__(f"{origin}: {what}{reason}")


def _plain(value: object) -> object:
    """Return *value* as it can stand in JSON and in a message."""
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, list):
        return value if all(isinstance(part, str) for part in value) else "a list"
    return "a table" if isinstance(value, dict) else str(value)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


class SettingValueError(ValueError):
    """A value that is not of its setting's kind; its text, if any, says what to write."""


class SettingKind(NamedTuple, Generic[T]):
    """What a setting can hold: in words, and how it is read from what was written."""

    words: str
    read: Callable[[object], T]


class Setting(Generic[T]):
    """One setting; read from a Config it is its value."""

    def __init__(
        self,
        name: str,
        kind: SettingKind[T],
        default: str | int | None,
        about: str,
        older: str = "",
        *,
        is_secret: bool = False,
    ) -> None:
        self.name = name
        self.kind = kind
        self.default = default
        self.about = about
        self.is_secret = is_secret
        ours = "HORAE_" + name.upper().replace(".", "_")
        self.variables = (ours, older) if older else (ours,)
        self.flag = "--" + name.replace(".", "-").replace("_", "-")
        self.path = tuple(name.split("."))

    @overload
    def __get__(self, config: None, owner: type[Config]) -> Setting[T]: ...
    @overload
    def __get__(self, config: Config, owner: type[Config]) -> T: ...
    def __get__(self, config: Config | None, owner: type[Config]) -> Setting[T] | T:
        """Return the row from the table, and the value from a Config."""
        return self if config is None else config.value_of(self)

    def shown(self, value: object) -> object:
        return mask(value) if self.is_secret and value is not None else _plain(value)


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


def _text(raw: object) -> str:
    if not isinstance(raw, str | os.PathLike):
        raise SettingValueError
    text = os.fspath(raw).strip()
    if not isinstance(text, str) or not text or not text.isprintable():
        raise SettingValueError
    return text


def _switch(raw: object) -> bool:
    if isinstance(raw, bool):
        return raw
    word = _text(raw).lower()
    if word in {"1", "true", "yes", "on"}:
        return True
    if word in {"0", "false", "no", "off"}:
        return False
    raise SettingValueError


def _number(raw: object) -> int:
    if isinstance(raw, int) and not isinstance(raw, bool):
        return raw
    text = _text(raw)
    # int() also takes signs, underscores, other digits, and refuses thousands of them.
    if not re.fullmatch(r"[0-9]{1,18}", text, re.ASCII):
        raise SettingValueError
    return int(text)


def whole(least: int, most: int) -> SettingKind[int]:
    """Return the kind of the whole numbers between two."""

    def read(raw: object) -> int:
        number = _number(raw)
        if not least <= number <= most:
            raise SettingValueError
        return number

    return SettingKind(f"a whole number from {least:,} to {most:,}", read)


def _size(raw: object) -> int:
    factor = 1
    if isinstance(raw, str) and (unit := re.fullmatch(r"\s*([0-9]+) ?([KMG])(?:iB)?\s*", raw)):
        raw, factor = unit[1], 1024 ** ("KMG".index(unit[2]) + 1)
    size = _number(raw) * factor
    if not 0 < size <= 2**40:
        raise SettingValueError
    return size


def _memory(raw: object) -> int:
    size = _size(raw)
    if size < LEAST_MEMORY:
        raise SettingValueError("the minimum is 16M")
    return size


def _cores(raw: object) -> float:
    if isinstance(raw, str) and re.fullmatch(r"[0-9]{1,4}(?:\.[0-9]{1,6})?", raw.strip(), re.ASCII):
        raw = float(raw)
    if isinstance(raw, bool) or not isinstance(raw, int | float) or not 0.01 <= raw <= 1024:
        raise SettingValueError
    return float(raw)


def _length(raw: object, *, allow_zero: bool = False) -> timedelta:
    # These three kinds import their room when they are used: a command that needs one
    # setting does not wait for the others.
    from horae.timing.duration import DurationError, parse_duration

    if isinstance(raw, int):
        raise SettingValueError("write it in quotes, with a unit")
    try:
        return parse_duration(_text(raw), allow_zero=allow_zero)
    except DurationError as error:
        raise SettingValueError(f"write {error.suggestion}" if error.suggestion else "") from None


def _milliseconds(raw: object) -> str:
    return f"{_number(raw)}ms"


def _zone(raw: object) -> str:
    from horae.timing.zone import ZoneError, zone

    name = _text(raw)
    try:
        zone(name)
    except ZoneError as error:
        hint = f"did you mean {error.suggestion}?" if error.suggestion else ""
        raise SettingValueError(hint) from None
    return name


def _id(raw: object) -> str:
    from horae.org.plan import is_id

    text = _text(raw)
    if not is_id(text):
        raise SettingValueError
    return text


def _path(raw: object) -> Path:
    from pathlib import Path

    return Path(_text(raw))


def _paths(raw: object) -> tuple[Path, ...]:
    given = raw.split(os.pathsep) if isinstance(raw, str) else raw
    if not isinstance(given, list | tuple):
        raise SettingValueError
    return tuple(map(_path, given))


def _store(raw: object) -> str:
    text = _text(raw)
    if not re.match(r"postgres(?:ql)?://.", text):
        raise SettingValueError
    return text


def _web(raw: object) -> str:
    text = _text(raw)
    if not re.fullmatch(r"https?://[!-~]+", text):
        raise SettingValueError
    return text


def _site(raw: object) -> str:
    text = _text(raw)
    if not re.fullmatch(r"https://[A-Za-z0-9.-]+(?::[0-9]{1,5})?/?", text):
        raise SettingValueError
    return text


def _command(raw: object) -> tuple[str, ...]:
    if isinstance(raw, str):
        import shlex

        raw = shlex.split(raw)  # its ValueError names the quote that is not closed
    if not isinstance(raw, list | tuple) or not raw:
        raise SettingValueError
    # An argument may be empty or hold a line break; what runs may not.
    if not all(isinstance(part, str) and "\0" not in part for part in raw) or not raw[0].strip():
        raise SettingValueError
    return tuple(raw)


class ListenAddress(NamedTuple):
    """Where a server listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


_HOST: Final = r"\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+"
_ADDRESS: Final = r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9.-]+)):([0-9]{1,5})"


def _address(raw: object) -> ListenAddress:
    match = re.fullmatch(_ADDRESS, _text(raw))
    if match is None or int(match[3]) > 65535:
        raise SettingValueError
    return ListenAddress(match[1] or match[2], int(match[3]))


def _names(raw: object) -> tuple[str, ...]:
    given = raw.replace(",", " ").split() if isinstance(raw, str) else raw
    if not isinstance(given, list | tuple):
        raise SettingValueError
    if not all(isinstance(each, str) and re.fullmatch(_HOST, each) for each in given):
        raise SettingValueError
    return tuple(given)


def _networks(raw: object) -> tuple[str, ...]:
    from ipaddress import ip_network

    given = raw.replace(",", " ").split() if isinstance(raw, str) else raw
    if not isinstance(given, list | tuple):
        raise SettingValueError
    for each in given:
        if not isinstance(each, str):
            raise SettingValueError
        ip_network(each)  # its ValueError says what is wrong
    return tuple(given)


def _labels(raw: object) -> tuple[str, ...]:
    given = raw.replace(",", " ").split() if isinstance(raw, str) else raw
    if not isinstance(given, list | tuple):
        raise SettingValueError
    return tuple(map(_id, given))


def choice(*words: str) -> SettingKind[str]:
    """Return the kind of a few fixed words."""

    def read(raw: object) -> str:
        text = _text(raw)
        if text not in words:
            raise SettingValueError
        return text

    return SettingKind(" or ".join(words), read)


def optional(kind: SettingKind[T]) -> SettingKind[T | None]:
    """Return the same kind for a setting that may stay unset."""
    return SettingKind(kind.words, kind.read)


SWITCH: Final = SettingKind("true or false", _switch)
SIZE: Final = SettingKind("a number of bytes such as 16MiB", _size)
MEMORY: Final = SettingKind("a number of bytes such as 512M or 2G", _memory)
CORES: Final = SettingKind("a number of cores from 0.01 to 1024 such as 1.5", _cores)
LENGTH: Final = SettingKind("a duration such as 30s or 1h30m", _length)
LENGTH_OR_ZERO: Final = SettingKind(LENGTH.words, lambda raw: _length(raw, allow_zero=True))
MILLISECONDS: Final = SettingKind("a number of milliseconds such as 30000", _milliseconds)
ZONE: Final = SettingKind("a time zone such as Europe/Berlin", _zone)
ID: Final = SettingKind("a name of at most 64 letters, digits, `.`, `_` and `-`", _id)
PATH: Final = SettingKind("a path", _path)
PATHS: Final = SettingKind('paths such as ["/srv/git/plans.git"]', _paths)
STORE: Final = SettingKind("a PostgreSQL address such as postgresql://host/horae", _store)
WEB: Final = SettingKind("an address such as https://example.org/ping", _web)
SITE: Final = SettingKind("an address such as https://plans.example.org", _site)
COMMAND: Final = SettingKind('a command such as ["my-agent", "--once"]', _command)
LABELS: Final = SettingKind('labels such as ["gpu", "berlin"]', _labels)
NAMES: Final = SettingKind('names of hosts such as ["plans.example.org"]', _names)
NETWORKS: Final = SettingKind('addresses such as ["127.0.0.1", "10.0.0.0/8"]', _networks)
ADDRESS: Final = SettingKind("a host and port such as 127.0.0.1:7117 or [::1]:7117", _address)


class Overridden(NamedTuple):
    """A value that a stronger one hides."""

    origin: str
    value: object


class SettingOrigin(NamedTuple):
    """A setting's value as it was written, where, and what it overrides, strongest first."""

    name: str
    value: object
    origin: str
    overrides: tuple[Overridden, ...]


class UnconfirmedSetting(NamedTuple):
    """A setting that is written and does not count yet, since a person has not confirmed it."""

    name: str
    trusted: object  # what counts; None if nothing is set
    written: object
    commit: str  # that it arrived with; empty if it was edited here

    def __str__(self) -> str:
        if self.commit:
            said = f"commit {self.commit[:12]} changes {self.name} in {FILE}"
            return f"{said}; it takes effect after `horae config trust`"
        return (
            f"{self.name} is changed in {FILE}; it takes effect after a restart of the engine"
            " or after `horae config trust`"
        )

    def data(self) -> dict[str, object]:
        return {**self._asdict(), "commit": self.commit or None}


class Config:
    """All settings, frozen but for what a person confirms while an engine runs."""

    __slots__ = ("_given", "_values", "findings", "home", "root", "secrets", "trusted")

    data = Setting("data", PATH, ".horae", "directory for the files of Horae", "WB_DATA")
    zone = Setting(
        "zone", optional(ZONE), None, "time zone of org plans; default: the zone of this machine"
    )
    store = Setting(
        "store",
        optional(STORE),
        None,
        "database of the ledger; default: a file in `data`",
        is_secret=True,
    )
    listen = Setting("listen", ADDRESS, "127.0.0.1:7117", "address on which the server listens")
    server_remote = Setting(
        "server.remote", SWITCH, False, "allow `listen` to be reachable from other machines"
    )
    server_names = Setting(
        "server.names",
        optional(NAMES),
        None,
        "accepted host names besides localhost",
    )
    server_url = Setting(
        "server.url", optional(SITE), None, "public address of the page behind a proxy"
    )
    server_trusted_proxies = Setting(
        "server.trusted_proxies",
        optional(NETWORKS),
        None,
        "proxies whose `X-Forwarded-For` is trusted",
    )
    server_public = Setting(
        "server.public", SWITCH, False, "show the state of the agents without a login"
    )
    tenant = Setting(
        "tenant",
        ID,
        "local",
        "directory in `WB_DATA` that is the plan root; has no effect in `horae.toml`",
        "WB_TENANT",
    )
    gitops = Setting("gitops", SWITCH, False, "pull before each tick", "WB_GITOPS")
    git_local = Setting(
        "git.local", optional(PATHS), None, "local repositories that are allowed as origin"
    )
    plan_max_bytes = Setting("plan.max_bytes", SIZE, "16MiB", "maximum size of a plan")
    plan_max_files = Setting(
        "plan.max_files", whole(1, 1_000_000), 20_000, "maximum number of plans in a plan root"
    )
    check_floor = Setting("check.floor", LENGTH, "1m", "`check` reports rules that fire more often")
    run_timeout = Setting("run.timeout", LENGTH, "1h", "time limit of runs without `:TIMEOUT:`")
    run_drain = Setting(
        "run.drain", LENGTH_OR_ZERO, "30s", "time that runs get to finish when Horae stops"
    )
    run_memory = Setting("run.memory", optional(MEMORY), None, "memory limit of a run, by cgroup")
    run_processes = Setting(
        "run.processes",
        optional(whole(1, 1_000_000)),
        None,
        "limit of processes and threads of a run, by cgroup",
    )
    run_cpus = Setting("run.cpus", optional(CORES), None, "CPU limit of a run in cores, by cgroup")
    watch_quiet = Setting(
        "watch.quiet", LENGTH, "200ms", "time without changes before a plan is read again"
    )
    watch_poll = Setting(
        "watch.poll",
        optional(LENGTH),
        None,
        "poll for changes at this interval instead of watching; in a cluster also the interval at"
        " which the origin of the plan is fetched (default there: 15s)",
    )
    logs_keep = Setting("logs.keep", LENGTH, "30d", "time for which the output of runs is kept")
    logs_most = Setting("logs.most", SIZE, "1GiB", "maximum size of the output that is kept")
    alert_heartbeat = Setting(
        "alert.heartbeat",
        optional(WEB),
        None,
        "URL to request regularly while Horae is healthy (dead man's switch)",
        is_secret=True,
    )
    alert_every = Setting("alert.every", LENGTH, "1m", "interval of the heartbeat")
    gate_slots = Setting("gate.slots", whole(1, 1024), 4, "maximum number of concurrent runs")
    agent_command = Setting(
        "agent.command",
        optional(COMMAND),
        None,
        "command that runs agents without a command of their own",
    )
    board_dir = Setting(
        "board.dir",
        optional(SettingKind("a path from the plan root", _text)),
        None,
        "directory of the board; default: `board`, or `.batty/team_config/board` if only that"
        " exists",
    )
    board_auto_dispatch = Setting(
        "board.auto_dispatch",
        SWITCH,
        True,
        "assign tasks in `todo` or `backlog` to free members of the crew",
    )
    crew_def = Setting(
        "crew.def",
        optional(PATH),
        None,
        "manifest of the crew; takes precedence over a keeper",
        "WB_CREW_DEF",
    )
    crew_max_concurrent = Setting(
        "crew.max_concurrent",
        whole(1, 1024),
        2,
        "concurrent runs of the crew",
        "WB_CREW_MAX_CONCURRENT",
    )
    crew_stagger = Setting(
        "crew.stagger",
        LENGTH_OR_ZERO,
        "30s",
        "delay between members at start",
        "WB_CREW_STAGGER_MS",
    )
    keeper_def = Setting(
        "keeper.def", optional(PATH), None, "agent file of a single keeper", "WB_KEEPER_DEF"
    )
    keeper_interval = Setting(
        "keeper.interval",
        LENGTH,
        "1h",
        "time from the end of a tick to the next",
        "WB_KEEPER_INTERVAL_MS",
    )
    keeper_continuous = Setting(
        "keeper.continuous", SWITCH, False, "tick without an interval", "WB_KEEPER_CONTINUOUS"
    )
    keeper_breather = Setting(
        "keeper.breather", LENGTH, "45s", "pause between continuous ticks", "WB_KEEPER_BREATHER_MS"
    )
    keeper_timeout = Setting(
        "keeper.timeout", LENGTH, "15m", "time limit of a tick", "WB_KEEPER_RUN_TIMEOUT_MS"
    )
    keeper_mode = Setting(
        "keeper.mode",
        choice("plan", "edit"),
        "plan",
        "mode in the prompt of a tick, for its instructions",
        "WB_KEEPER_MODE",
    )
    cluster_name = Setting(
        "cluster.name",
        optional(ID),
        None,
        "name of this node; default: the host name",
    )
    cluster_labels = Setting(
        "cluster.labels",
        optional(LABELS),
        None,
        "labels of this node, matched by `:HOST:`",
    )
    cluster_runs = Setting(
        "cluster.runs", whole(1, 1024), 4, "maximum number of concurrent runs on this node"
    )
    cluster_lease = Setting(
        "cluster.lease", LENGTH, "15s", "time after which a silent node counts as lost"
    )
    cluster_branch = Setting(
        "cluster.branch",
        optional(ID),
        None,
        "branch that holds the plan; default: the current branch",
    )
    cluster_address = Setting(
        "cluster.address",
        optional(ADDRESS),
        None,
        "address at which other nodes reach this one; default: `listen`",
    )
    lifecycle_def = Setting(
        "lifecycle.def", optional(PATH), None, "lifecycle of a single keeper", "WB_LIFECYCLE_DEF"
    )

    root: str
    home: str  # where the `horae.toml` is of which guarded settings count
    trusted: Values  # those of them that are in force
    findings: tuple[Diagnostic, ...]  # what `horae.toml` says that no setting is
    secrets: Mapping[str, SecretSource]  # where the value of each is, by name
    _given: Mapping[str, tuple[_WrittenValue, ...]]  # all that was given, the strongest first
    _values: Mapping[str, object]  # what the strongest of them says

    def __init__(
        self,
        root: str,
        given: Mapping[str, tuple[_WrittenValue, ...]],
        findings: tuple[Diagnostic, ...] = (),
        secrets: Mapping[str, SecretSource] | None = None,
        *,
        home: str = "",
        trusted: Values | None = None,
    ) -> None:
        rows = [setting for setting in SETTINGS if setting.name in given]
        fields = {
            "root": root,
            "home": home or root,
            "trusted": trusted or {},
            "findings": findings,
            "secrets": dict(secrets or {}),
            "_given": given,
            "_values": {row.name: _value(row, given[row.name][0]) for row in rows},
        }
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{name}: settings are frozen")

    def __repr__(self) -> str:
        rows = ", ".join(f"{row.name}={row.value!r}" for row in self.origins())
        return f"Config({self.root!r}, {rows})"

    def value_of(self, setting: Setting[T]) -> T:
        if setting.name in self._values:
            return cast("T", self._values[setting.name])
        return _value(setting, _default(setting, self.root))

    def accept(self, written: Values) -> None:
        """Let guarded settings count that a person has confirmed.

        Secrets and those in HOT do so at once, all others when they are read at the next start.
        """
        given, values = dict(self._given), dict(self._values)
        for setting in HOT:
            kept = [one for one in given.pop(setting.name, ()) if one.origin.startswith(_STRONGER)]
            if setting.path in written:
                raw = json.loads(written[setting.path])
                kept.append(_WrittenValue(raw, f"{self.home}/{FILE}", base=self.root))
            values.pop(setting.name, None)
            if kept:
                given[setting.name] = tuple(kept)
                values[setting.name] = _value(setting, kept[0])
        leaves = {way: json.loads(value) for way, value in written.items()}
        file = _File(f"{self.home}/{FILE}", leaves, {})
        secrets = dict(_secrets(file, self.home, os.environ.get("HOME", "")))
        for name, value in (("trusted", written), ("_given", given), ("_values", values)):
            object.__setattr__(self, name, value)
        known = cast("dict[str, SecretSource]", self.secrets)  # others have it, too
        known.clear()
        known.update(secrets)

    def origins(self) -> tuple[SettingOrigin, ...]:
        """Return every setting: its value as written, where that is, and what it overrides."""
        named = sorted(self.secrets.items())
        return (
            *map(self._origin, SETTINGS),
            *(
                SettingOrigin(f"{SECRETS}.{name}", str(each), each.origin, ())
                for name, each in named
            ),
        )

    def _origin(self, setting: Setting[Any]) -> SettingOrigin:
        best, *rest = (*self._given.get(setting.name, ()), _default(setting, self.root))
        hidden = tuple(Overridden(one.origin, setting.shown(one.told)) for one in rest)
        return SettingOrigin(setting.name, setting.shown(best.told), best.origin, hidden)


SETTINGS: Final[tuple[Setting[Any], ...]] = tuple(
    row for row in vars(Config).values() if isinstance(row, Setting)
)


HOT: Final = (Config.agent_command,)  # guarded ones that a running engine reads again
_STRONGER: Final = ("flag ", "environment ")  # how an origin begins that a file does not change


class _WrittenValue(NamedTuple):
    """One value for a setting, as somebody wrote it."""

    raw: object
    origin: str
    base: str = ""  # where a relative path begins; empty is the current directory
    home: str = ""  # what ~ means
    is_milliseconds: bool = False

    @property
    def told(self) -> object:
        """What was written, with the unit that its variable means."""
        return f"{self.raw}ms" if self.is_milliseconds else self.raw


def _default(setting: Setting[Any], root: str) -> _WrittenValue:
    return _WrittenValue(setting.default, "default", base=root)


def _value(setting: Setting[T], given: _WrittenValue) -> T:
    """Return what was given as the setting's kind, or say where it is wrong and what is right."""
    if given.raw is None:
        return cast("T", None)  # only an optional kind has no default
    kind: SettingKind[Any] = MILLISECONDS if given.is_milliseconds else setting.kind
    try:
        raw = _milliseconds(given.raw) if given.is_milliseconds else given.raw
        value: Any = setting.kind.read(raw)
        if kind.read is _path:
            value = _placed(value, given)
        elif kind.read is _paths:
            value = tuple(_placed(each, given) for each in value)
        return cast("T", value)
    except ValueError as error:
        hint = f"; {error}" if str(error) else ""
        raise SettingError(
            given.origin,
            f"is not {kind.words}{hint}",
            setting=setting.name,
            value=setting.shown(given.raw),
        ) from None


def _placed(path: Path, given: _WrittenValue) -> Path:
    """Return where a path leads: from home, from the file that names it, or from here."""
    here = type(path)
    if not str(path).startswith("~"):
        return here(given.base) / path
    if path.parts[0] != "~" or not given.home:
        raise SettingValueError("write it without ~")
    return here(given.home, *path.parts[1:])


def load(
    root: str | os.PathLike[str] = ".",
    *,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
    own: Config | None = None,
) -> Config:
    """Return the settings in force for the plans beneath *root*.

    *flags* go by the setting's name, such as `gate.slots`; None means that it was not given.
    Guarded settings that arrived by a pull do not count until they are confirmed, and none of a
    clone of the plan do, where *own* has the engine's.
    """
    variables = os.environ if environ is None else environ
    options = flags or {}
    if unknown := options.keys() - {setting.name for setting in SETTINGS}:
        raise KeyError(f"no such setting: {', '.join(sorted(unknown))}")
    base = os.fspath(root)
    file = _read_file(base)
    arrivals = _arrivals(base) if own is None else None
    written = as_values(file.values)
    trusted = in_force(written, arrivals) if own is None else own.trusted
    source = base if own is None else own.home
    file = file.with_guarded(trusted, os.path.normpath(f"{source}/{FILE}") + " as last trusted")
    home = variables.get("HOME", "")
    # A run in a clone of the plan is told these paths, and must find the same places.
    top = os.path.abspath(base)

    given: dict[str, tuple[_WrittenValue, ...]] = {}
    for setting in SETTINGS:
        found = (
            *_from_flags(setting, options),
            *_from_environment(setting, variables),
            *_from_file(setting, file, base),
        )
        if found:
            is_shared = setting.kind.read is _paths
            given[setting.name] = tuple(
                one._replace(home=home, base=top if is_shared else one.base) for one in found
            )
    secrets = dict(_secrets(file, source, home))
    return Config(base, given, tuple(_unknown(file)), secrets, home=source, trusted=trusted)


class SettingsChangedError(HoraeError):
    """Settings that are not those that a person looked at before they confirmed them."""

    code = "settings_changed"
    exit_code = Exit.CONFLICT

    def __init__(self) -> None:
        super().__init__(f"{FILE} has changed since it was shown; run `horae config trust` again")


class Untrusted(NamedTuple):
    """What is written now of guarded settings, and which of it is not in force."""

    written: Values
    waiting: tuple[UnconfirmedSetting, ...] = ()

    @property
    def digest(self) -> str:
        """What these settings go by, so that nothing else is confirmed."""
        from hashlib import sha256

        return sha256(repr(sorted(self.written.items())).encode()).hexdigest()

    def data(self) -> dict[str, Any]:
        return {"digest": self.digest, "waiting": [each.data() for each in self.waiting]}


def untrusted(config: Config) -> Untrusted:
    """Return the guarded settings that are written now and are not in force."""
    written, trusted = as_values(_read_file(config.root).values), config.trusted
    if trusted == written:
        return Untrusted(written)
    arrivals = _arrivals(config.root)
    ways = [way for way in trusted.keys() | written.keys() if trusted.get(way) != written.get(way)]
    waits = (_waits(way, trusted.get(way), written.get(way), arrivals) for way in sorted(ways))
    return Untrusted(written, tuple(waits))


def _waits(
    way: Way, was: str | None, now: str | None, arrivals: Arrivals | None
) -> UnconfirmedSetting:
    setting = next((each for each in SETTINGS if each.path == way), None)
    shown = setting.shown if setting is not None else _source_words if way[0] == SECRETS else _plain
    old, new = (None if text is None else shown(json.loads(text)) for text in (was, now))
    return UnconfirmedSetting(
        ".".join(way), old, new, "" if arrivals is None else arrivals.commit_of(way, now)
    )


def _source_words(raw: object) -> str:
    """Return where a secret is; what is no such place may be the secret itself."""
    from horae.core.secret import parse_source

    try:
        parse_source(raw if isinstance(raw, str) else "")
    except ValueError:
        return "***"
    return str(raw)


def confirm(config: Config, digest: str) -> Untrusted:
    """Let the guarded settings count that are written now, and return what that changes.

    Where a clone of the plan is read, they count until the next start, which reads `home`.
    """
    from horae.files.git.arrivals import remember

    found = untrusted(config)
    if found.digest != digest:
        raise SettingsChangedError
    config.accept(found.written)
    if config.home == config.root:
        remember(config.root, None)
    return found


def _arrivals(root: str) -> Arrivals | None:
    from horae.files.git.arrivals import arrivals_at

    return arrivals_at(root)


def _secrets(file: _File, root: str, home: str) -> Iterator[tuple[str, SecretSource]]:
    """Yield where the value of each secret is; what is wrong is said without what was written."""
    for path, raw in file.values.items():
        if path[0] != SECRETS:
            continue
        from horae.core.secret import SecretSource, SourceKind, parse_source, why_no_name

        name, origin = ".".join(path[1:]), file.origin(path)
        try:
            if not name:
                raise SettingValueError(
                    'secrets is a table; write [secrets] and below it NAME = "file:PATH"'
                )
            if why := why_no_name(name):
                raise SettingValueError(why)
            source = parse_source(raw if isinstance(raw, str) else "")
            words = source.words
            if source.kind is SourceKind.FILE:
                where = _placed(_path(words[0]), _WrittenValue(raw, "", base=root, home=home))
                words = (os.path.abspath(where),)
        except ValueError as error:
            said = ".".join(filter(None, (SECRETS, name[:60])))
            raise SettingError(f"{origin}: {said}", str(error)) from None
        yield name, SecretSource(source.kind, words, origin)


def _from_flags(setting: Setting[Any], flags: Mapping[str, object]) -> Iterator[_WrittenValue]:
    if flags.get(setting.name) is not None:
        yield _WrittenValue(flags[setting.name], f"flag {setting.flag}")


def _from_environment(setting: Setting[Any], environ: Mapping[str, str]) -> Iterator[_WrittenValue]:
    for name in setting.variables:
        if environ.get(name):
            in_milliseconds = name.endswith("_MS")
            yield _WrittenValue(
                environ[name], f"environment {name}", is_milliseconds=in_milliseconds
            )


def _from_file(setting: Setting[Any], file: _File, root: str) -> Iterator[_WrittenValue]:
    if setting.path in file.values:
        yield _WrittenValue(file.values[setting.path], file.origin(setting.path), base=root)


class _File(NamedTuple):
    """What `horae.toml` says."""

    name: str
    values: Mapping[tuple[str, ...], object]
    lines: Mapping[tuple[str, ...], int]
    former: Mapping[tuple[str, ...], str] = {}  # where values are from that the text has not

    def line(self, path: tuple[str, ...]) -> int | None:
        """Return the line on which a value is set, or the table or array around it."""
        ways = (path[:length] for length in range(len(path), 0, -1))
        return next((self.lines[way] for way in ways if way in self.lines), None)

    def with_guarded(self, trusted: Values, source: str) -> _File:
        """Return the file as if its guarded settings were these, which come from *source*."""
        written = as_values(self.values)
        ways = written.keys() | trusted.keys()
        odd = {way for way in ways if written.get(way) != trusted.get(way)}
        kept = {way: value for way, value in self.values.items() if way not in odd}
        former = {way: json.loads(trusted[way]) for way in odd if way in trusted}
        return self._replace(values=kept | former, former=dict.fromkeys(former, source))

    def origin(self, path: tuple[str, ...]) -> str:
        """Return file and line of a value, or the file alone."""
        if path in self.former:
            return self.former[path]
        line = self.line(path)
        return f"{self.name}:{line}" if line else self.name


def _read_file(root: str) -> _File:
    from horae.files.read import PlanFileError, PlanMissingError, read_plan

    path = f"{root.removesuffix('/')}/{FILE}"
    name = os.path.normpath(path)
    try:
        text = read_plan(path, root=root, limit=LIMIT).text
    except PlanMissingError:
        return _File(name, {}, {})
    except PlanFileError as error:
        raise SettingError(name, error.reason) from None
    text = text.removeprefix("\ufeff")
    return _File(name, dict(_leaves(_parsed(text, name))), _lines(text))


def _parsed(text: str, name: str) -> dict[str, Any]:
    import tomllib

    if dots := re.search(DOTS, text):
        line = text.count("\n", 0, dots.start()) + 1
        raise SettingError(
            f"{name}:{line}", "100 dots in one line; the name of a setting has at most one"
        )
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise _broken(text, name, error) from None


def _broken(text: str, name: str, error: Exception) -> SettingError:
    words = "too many nested brackets" if isinstance(error, RecursionError) else str(error)
    problem, _, place = words.partition(" (at ")
    numbers = re.fullmatch(r"line (\d+), column (\d+)\)", place)
    if numbers:
        where = f"{name}:{numbers[1]}:{numbers[2]}"
    elif place:  # the end of the document
        where = f"{name}:{text.count(chr(10)) + 1}:{len(text) - text.rfind(chr(10))}"
    else:  # a number of 5,000 digits, or 1,000 brackets
        where = name
    return SettingError(where, f"{problem}; write a setting as in gate.slots = 4")


def _leaves(tables: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], object]]:
    """Yield each value with its path; an empty table is a value, too, if no setting is in it."""
    sections = {(SECRETS,), *(setting.path[:-1] for setting in SETTINGS)}
    stack: list[tuple[tuple[str, ...], object]] = [((), tables)]
    while stack:
        path, value = stack.pop()
        if isinstance(value, dict) and (value or path in sections):
            stack += [((*path, key), inner) for key, inner in value.items()]
        else:
            yield path, value


# Compiled when there is a file to read; most roots have none.
_PART: Final = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')"""
_KEY: Final = rf"{_PART}(?:[ \t]*\.[ \t]*{_PART})*"
_STATEMENT: Final = rf"(?:\s++|\#[^\n]*+)*(?:\[\[?[ \t]*({_KEY})[ \t]*\]\]?|({_KEY})[ \t]*=)"
_VALUE: Final = r"""(?xs)
    \"{3}(?:\\.|[^\\])*?\"{3,5} | '{3}.*?'{3,5} | "(?:\\.|[^"\\]++)*" | '[^']*' | \#[^\n]*
    | (?P<open>[\[{]) | (?P<close>[\]}]) | (?P<end>\n) | [^"'\#\[\]{}\n]++
"""


def _lines(text: str) -> dict[tuple[str, ...], int]:
    r"""Return the line of each table and key of a text that is known to be TOML.

    >>> _lines("zone = 'UTC'\n[gate]\nslots = 4")
    {('zone',): 1, ('gate',): 2, ('gate', 'slots'): 3}
    """
    lines: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    position, line = 0, 1
    pattern = re.compile(_STATEMENT)
    while statement := pattern.match(text, position):
        header, key = statement.groups()
        path = tuple(part.strip("\"'") for part in re.findall(_PART, header or key))
        line += text.count("\n", position, statement.end())
        position = statement.end()
        if header:
            table = path
        lines.setdefault(path if header else table + path, line)
        end = _end_of_value(text, position)
        line += text.count("\n", position, end)
        position = end
    return lines


def _end_of_value(text: str, position: int) -> int:
    depth = 0
    pattern = re.compile(_VALUE)
    while token := pattern.match(text, position):
        if token["end"] and depth == 0:
            break
        depth += bool(token["open"]) - bool(token["close"])
        position = token.end()
    return position


def _unknown(file: _File) -> Iterator[Diagnostic]:
    """Yield a finding for everything in the file that is no setting."""
    known = {setting.path for setting in SETTINGS}
    strange = [
        (file.line(path) or 1, path)
        for path in file.values
        if path not in known and path[0] != SECRETS
    ]
    if not strange:
        return
    from horae.org.plan import Diagnostic, Severity

    for count, (line, path) in enumerate(sorted(strange)):
        name = ".".join(path)
        meant = (
            meant_setting(name) if count < 20 else None
        )  # to look for a name takes a millisecond
        fix = f"write {meant}" if meant else None
        message = f"there is no setting {_short(name)}; it is ignored"
        message += f"; did you mean {meant}?" if meant else ""
        yield Diagnostic(file.name, line, 1, "setting-unknown", Severity.WARNING, message, fix)


def meant_setting(name: str) -> str | None:
    """Return the setting that *name* was probably meant to be.

    >>> [meant_setting(name) for name in ("gate.slot", "slots", "gaet.slots")]
    ['gate.slots', 'gate.slots', 'gate.slots']
    >>> meant_setting("zoen"), meant_setting("colour")
    ('zone', None)
    """
    from difflib import get_close_matches

    names = [setting.name for setting in SETTINGS]
    near = get_close_matches(name.lower(), names, n=1, cutoff=0.75)
    inner = [full for full in names if full.endswith(f".{name.lower()}")]
    return next(iter([*near, *(inner if len(inner) == 1 else [])]), None)


def settings_hint(root: str) -> str:
    """Return where to name a command for every agent that has none."""
    if os.path.isfile(f"{root}/{FILE}"):
        return f"set agent.command in {FILE}"
    return f"create {FILE} in the plan root and set agent.command in it"


def secrets_of(
    config: Config, *, may_call: bool = True, environ: Mapping[str, str] | None = None
) -> NamedSecrets:
    """Return who knows the values of secrets; beside a shared ledger nobody keeps new ones."""
    from functools import partial
    from pathlib import Path

    from horae.process.secrets import NamedSecrets

    data = Path(os.path.abspath(config.data))
    is_shared = config.store is not None
    return NamedSecrets(
        config.secrets,
        os.environ if environ is None else environ,
        root=Path(config.root).absolute(),
        data=data,
        store=config.store,
        may_call=may_call,
        keep=None if is_shared else partial(_keep, data),
        forget=None if is_shared else partial(_forget, data),
    )


def known_names(config: Config) -> dict[str, str]:
    """Return the names that a file may name a secret by: variables, and those of the settings."""
    return {**os.environ, **dict.fromkeys(config.secrets, "")}


def _keep(data: Path, name: str, text: str) -> str:
    from horae.store import vault  # most commands keep nothing, and need not load it

    return vault.keep(data, name, text)


def _forget(data: Path, texts: Iterable[str]) -> None:
    from horae.store import vault

    vault.forget(data, texts)


def state_directory() -> Path:
    """Return where runs are kept of plans that have no data directory."""
    from pathlib import Path

    base = os.environ.get("XDG_STATE_HOME", "")
    home = Path(base) if base.startswith("/") else Path.home() / ".local" / "state"
    return home / "horae"
