"""The settings, each declared once: kind, default, help, older variable, and what protects it.

The struct `Settings` is the table. The checks, `HORAE_` variables and options, `horae config`,
`schemas/settings.schema.json` and the tables of docs/reference/settings.md follow from it.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Final, Generic, Literal, NamedTuple, TypeAlias, TypeVar, cast

from msgspec import Meta, Struct, convert

from horae.timing.duration import DurationError, parse_duration

LEAST_MEMORY: Final = 16 << 20  # bytes that a run may be held to
SECRETS: Final = "secrets"  # the table that says where the value of each secret is

T = TypeVar("T")
Way: TypeAlias = tuple[str, ...]  # the parts of a setting's name


# What a setting can hold


def _line(raw: object) -> Any:
    if not isinstance(raw, str):
        return raw
    if not raw.strip().isprintable() or not raw.strip():
        raise ValueError
    return raw.strip()


def _lines(raw: list[str]) -> tuple[str, ...]:
    return tuple(map(_line, raw))


class SettingKind(NamedTuple, Generic[T]):
    words: str
    shape: Any  # what `horae.toml` holds: checked by msgspec, and published as a JSON Schema
    make: Callable[[Any], T]
    take: Callable[[object], object] = _line  # what is written, from a text in the environment too

    def read(self, raw: object) -> T:
        """Return the value that is written; the ValueError may say what would be right."""
        if isinstance(raw, Path | tuple):  # a value in use, as a node of a cluster passes it on
            raw = str(raw) if isinstance(raw, Path) else [*map(str, raw)]
        taken = self.take(raw)
        return self.make(convert(taken, self.shape, strict=not isinstance(raw, str)))


def matching(pattern: str, words: str) -> SettingKind[str]:
    return SettingKind(words, Annotated[str, Meta(pattern=f"^{pattern}$")], str)


def whole(most: int) -> SettingKind[int]:
    words = f"a whole number from 1 to {most:,}"
    return SettingKind(words, Annotated[int, Meta(ge=1, le=most)], int)


def several(
    words: str,
    item: Any,
    make: Callable[[list[str]], tuple[T, ...]],
    divide: Callable[[str], list[str]] = lambda text: text.replace(",", " ").split(),
) -> SettingKind[tuple[T, ...]]:
    """Return the kind of a list; a text holds it as the file does, or divided."""

    def take(raw: object) -> object:
        if not isinstance(raw, str):
            return raw
        return json.loads(raw) if raw.lstrip().startswith('["') else divide(raw)

    return SettingKind(words, item, make, take)


def _switch(raw: object) -> object:
    word = raw.strip().lower() if isinstance(raw, str) else ""
    return {"yes": True, "on": True, "no": False, "off": False}.get(word, word or raw)


def _size(raw: int | str, *, least: int = 1) -> int:
    number, unit = str(raw).removesuffix("iB"), 1
    if number[-1] in "KMG":
        number, unit = number[:-1], 1024 ** ("KMG".index(number[-1]) + 1)
    size = int(number) * unit
    if 0 < size < least:
        raise ValueError(f"the minimum is {least >> 20}M")
    if not 0 < size <= 2**40:
        raise ValueError
    return size


def _quoted(raw: object) -> object:
    if isinstance(raw, int):
        raise ValueError("write it in quotes, with a unit")  # noqa: TRY004 - a reason to print
    return _line(raw)


def _length(text: str, *, allow_zero: bool = False) -> timedelta:
    try:
        return parse_duration(text, allow_zero=allow_zero)
    except DurationError as error:
        raise ValueError(f"write {error.suggestion}" if error.suggestion else "") from None


def _zone(text: str) -> str:
    from horae.timing.zone import ZoneError, zone  # loads the zones, which `horae query` needs not

    try:
        zone(text)
    except ZoneError as error:
        hint = f"did you mean {error.suggestion}?" if error.suggestion else ""
        raise ValueError(hint) from None
    return text


def _budget(text: str) -> str:
    from horae.core.budget import parse_budget  # only if there is one

    parse_budget(text, "UTC")
    return text


def _command(raw: list[str]) -> tuple[str, ...]:
    # An argument may be empty or hold a line break; what runs may not.
    if not raw[0].strip() or any("\0" in part for part in raw):
        raise ValueError
    return tuple(raw)


class ListenAddress(NamedTuple):
    host: str
    port: int

    @classmethod
    def of(cls, text: str) -> ListenAddress:
        host, _, port = text.rpartition(":")
        return cls(host.strip("[]"), int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _address(text: str) -> ListenAddress:
    found = ListenAddress.of(text)
    if found.port > 65535:
        raise ValueError
    return found


def _networks(raw: list[str]) -> tuple[str, ...]:
    for each in raw:
        ip_network(each)  # its ValueError says what is wrong
    return tuple(raw)


def _paths(raw: list[str]) -> tuple[Path, ...]:
    return tuple(map(Path, _lines(raw)))


_BYTES: Final = (
    Annotated[int, Meta(ge=1, le=2**40)]
    | Annotated[str, Meta(pattern="^[0-9]{1,13} ?([KMG](iB)?)?$")]
)
_Id: TypeAlias = Annotated[str, Meta(pattern=r"^(?!\.+$)[A-Za-z0-9._-]{1,64}$")]
_Host: TypeAlias = Annotated[str, Meta(pattern=r"^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)$")]
# A duration that is not one gets a suggestion, so msgspec does not check it.
_UNITS: Final = Annotated[str, Meta(extra_json_schema={"pattern": "^([0-9]+(ms|[wdhms]))+$"})]

SWITCH: Final = SettingKind("true or false", bool, bool, _switch)
SIZE: Final = SettingKind("a number of bytes such as 16MiB", _BYTES, _size)
MEMORY: Final = SIZE._replace(
    words="a number of bytes such as 512M or 2G", make=partial(_size, least=LEAST_MEMORY)
)
CORES: Final = SettingKind(
    "a number of cores from 0.01 to 1024 such as 1.5",
    Annotated[float, Meta(ge=0.01, le=1024)],
    float,
)
LENGTH: Final = SettingKind("a duration such as 30s or 1h30m", _UNITS, _length, _quoted)
LENGTH_OR_ZERO: Final = LENGTH._replace(make=partial(_length, allow_zero=True))
MILLISECONDS: Final = SettingKind("a number of milliseconds such as 30000", int, int)
ZONE: Final = SettingKind("a time zone such as Europe/Berlin", str, _zone)
ID: Final = SettingKind("a name of at most 64 letters, digits, `.`, `_` and `-`", _Id, str)
PATH: Final = SettingKind("a path", str, Path)
PATHS: Final = several(
    'paths such as ["/srv/git/plans.git"]', list[str], _paths, lambda text: text.split(":")
)
BENEATH: Final = matching("[^/].*", "a path relative to the plan root")
STORE: Final = matching(
    "postgres(ql)?://.+", "a PostgreSQL address such as postgresql://host/horae"
)
WEB: Final = matching("https?://[!-~]+", "an address such as https://example.org/ping")
SITE: Final = matching(
    "https://[A-Za-z0-9.-]+(:[0-9]{1,5})?/?", "an address such as https://plans.example.org"
)
BUDGET: Final = SettingKind("a budget such as $2/day; 200k tokens/week; 20 runs/day", str, _budget)
COMMAND: Final = several(
    'a command such as ["my-agent", "--once"]',
    Annotated[list[str], Meta(min_length=1)],
    _command,
    shlex.split,  # its ValueError names the quote that is not closed
)
UNCOMMITTED: Final = SettingKind("deliver or branch", Literal["deliver", "branch"], str)
MODE: Final = SettingKind("plan or edit", Literal["plan", "edit"], str)
LABELS: Final = several('labels such as ["gpu", "berlin"]', list[_Id], _lines)
NAMES: Final = several('names of hosts such as ["plans.example.org"]', list[_Host], _lines)
NETWORKS: Final = several('addresses such as ["127.0.0.1", "10.0.0.0/8"]', list[str], _networks)
ADDRESS: Final = SettingKind(
    "a host and port such as 127.0.0.1:7117 or [::1]:7117",
    Annotated[str, Meta(pattern=r"^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+):[0-9]{1,5}$")],
    _address,
)

# Why a commit that is pulled may not set a setting
_ACCESS: Final = "controls access to this machine"
_OUTSIDE: Final = "sets a path that may be outside the plan root"
_SPENDS: Final = "limits what runs may spend"
_STARTS: Final = "starts programs"


# The table


class Setting(NamedTuple):
    """The declaration of one setting."""

    kind: SettingKind[Any]
    help: str
    default: str | int | None = None
    older: str = ""  # variable of Workbooks
    guard: str = ""  # why it counts only in the engine's own configuration
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
        return mask(value) if self.is_secret and value is not None else plain(value)


def setting(kind: SettingKind[T], *declared: Any, **more: Any) -> T:
    """Declare a field of `Settings`, as a `Setting`; without a default it is optional."""
    return cast("T", Setting(kind, *declared, **more))


class Settings(Struct, frozen=True, eq=False, kw_only=True):
    data: Path = setting(
        PATH, "directory for the files of Horae", ".horae", older="WB_DATA", guard=_OUTSIDE
    )
    zone: str | None = setting(ZONE, "time zone of org plans; default: the zone of this machine")
    store: str | None = setting(
        STORE,
        "database of the ledger; default: a file in `data`",
        guard="names an external database",
        is_secret=True,
    )
    listen: ListenAddress = setting(
        ADDRESS, "address on which the server listens", "127.0.0.1:7117", guard=_ACCESS
    )
    server_remote: bool = setting(
        SWITCH, "allow `listen` to be reachable from other machines", False, guard=_ACCESS
    )
    server_names: tuple[str, ...] | None = setting(
        NAMES, "accepted host names besides localhost", guard=_ACCESS
    )
    server_url: str | None = setting(
        SITE, "public address of the page behind a proxy", guard=_ACCESS
    )
    server_trusted_proxies: tuple[str, ...] | None = setting(
        NETWORKS, "proxies whose `X-Forwarded-For` is trusted", guard=_ACCESS
    )
    server_public: bool = setting(
        SWITCH,
        "show the state of the agents and the newest commits without a login",
        False,
        guard=_ACCESS,
    )
    tenant: str = setting(
        ID,
        "directory in `WB_DATA` that is the plan root; has no effect in `horae.toml`",
        "local",
        older="WB_TENANT",
        is_of_engine=False,
    )
    gitops: bool = setting(
        SWITCH,
        "pull before each tick of an agent; without an agent nothing is pulled",
        False,
        older="WB_GITOPS",
        guard="controls whether the plan is pulled",
    )
    git_local: tuple[Path, ...] | None = setting(
        PATHS, "local repositories that are allowed as origin", guard="names external repositories"
    )
    plan_max_bytes: int = setting(SIZE, "maximum size of a plan", "16MiB")
    plan_max_files: int = setting(
        whole(1_000_000), "maximum number of plans in a plan root", 20_000
    )
    check_floor: timedelta = setting(
        LENGTH, "`check` reports rules that fire more often", "1m", is_of_engine=False
    )
    run_timeout: timedelta = setting(LENGTH, "time limit of runs without `:TIMEOUT:`", "1h")
    run_drain: timedelta = setting(
        LENGTH_OR_ZERO, "time that runs get to finish when Horae stops", "30s"
    )
    run_memory: int | None = setting(MEMORY, "memory limit of a run, by cgroup")
    run_processes: int | None = setting(
        whole(1_000_000), "limit of processes and threads of a run, by cgroup"
    )
    run_cpus: float | None = setting(CORES, "CPU limit of a run in cores, by cgroup")
    watch_quiet: timedelta = setting(
        LENGTH, "time without changes before a plan is read again", "200ms"
    )
    watch_poll: timedelta | None = setting(
        LENGTH,
        "poll for changes at this interval instead of watching; in a cluster also the interval at"
        " which the origin of the plan is fetched (default there: 15s)",
    )
    logs_keep: timedelta = setting(LENGTH, "time for which the output of runs is kept", "30d")
    logs_most: int = setting(SIZE, "maximum size of the output that is kept", "4GiB")
    logs_head: int = setting(
        SIZE, "length of the beginning of a run's output that is kept", "32MiB"
    )
    logs_tail: int = setting(SIZE, "length of the end of a run's output that is kept", "32MiB")
    alert_heartbeat: str | None = setting(
        WEB,
        "URL to request regularly while Horae is healthy (dead man's switch)",
        guard="sets an external address",
        is_secret=True,
    )
    alert_every: timedelta = setting(LENGTH, "interval of the heartbeat", "1m")
    gate_slots: int = setting(whole(1024), "maximum number of concurrent runs", 4)
    budget: str | None = setting(
        BUDGET, "what all runs together may spend, such as `$20/day`", guard=_SPENDS
    )
    agent_command: tuple[str, ...] | None = setting(
        COMMAND,
        "command that runs agents without a command of their own",
        guard=_STARTS,
        is_hot=True,
    )
    agent_uncommitted: str | None = setting(
        UNCOMMITTED,
        "what becomes of files that an agent has not committed; default: `deliver` for members"
        " of the crew, `branch` for other agents",
        guard=_STARTS,
    )
    board_dir: str | None = setting(
        BENEATH,
        "directory of the board; default: `board`,"
        " or `.batty/team_config/board` if only that exists",
        guard=_OUTSIDE,
    )
    board_budget: str | None = setting(
        BUDGET, "what runs for tasks of the board may spend", guard=_SPENDS
    )
    board_command: tuple[str, ...] | None = setting(
        COMMAND, "without a crew: command that gets the tasks of the board", guard=_STARTS
    )
    board_max: int = setting(whole(1024), "tasks that `board.command` gets at the same time", 1)
    board_auto_dispatch: bool = setting(
        SWITCH,
        "assign tasks in `todo` or `backlog` to free members of the crew, or to `board.command`",
        True,
    )
    crew_def: Path | None = setting(
        PATH,
        "manifest of the crew; takes precedence over a keeper",
        older="WB_CREW_DEF",
        guard=_STARTS,
    )
    crew_budget: str | None = setting(BUDGET, "what runs of the crew may spend", guard=_SPENDS)
    crew_max_concurrent: int = setting(
        whole(1024), "concurrent runs of the crew", 2, older="WB_CREW_MAX_CONCURRENT"
    )
    crew_stagger: timedelta = setting(
        LENGTH_OR_ZERO, "delay between members at start", "30s", older="WB_CREW_STAGGER_MS"
    )
    keeper_def: Path | None = setting(
        PATH, "agent file of a single keeper", older="WB_KEEPER_DEF", guard=_STARTS
    )
    keeper_interval: timedelta = setting(
        LENGTH, "time from the end of a tick to the next", "1h", older="WB_KEEPER_INTERVAL_MS"
    )
    keeper_continuous: bool = setting(
        SWITCH, "tick without an interval", False, older="WB_KEEPER_CONTINUOUS"
    )
    keeper_breather: timedelta = setting(
        LENGTH, "pause between continuous ticks", "45s", older="WB_KEEPER_BREATHER_MS"
    )
    keeper_timeout: timedelta = setting(
        LENGTH,
        "time limit of ticks, and of requests to `/api/run`",
        "15m",
        older="WB_KEEPER_RUN_TIMEOUT_MS",
    )
    keeper_mode: str = setting(
        MODE, "mode in the prompt of a tick, for its instructions", "plan", older="WB_KEEPER_MODE"
    )
    cluster_name: str | None = setting(
        ID, "name of this node; default: the host name", guard="identifies this machine"
    )
    cluster_labels: tuple[str, ...] | None = setting(
        LABELS, "labels of this node, matched by `:HOST:`"
    )
    cluster_runs: int = setting(whole(1024), "maximum number of concurrent runs on this node", 4)
    cluster_lease: timedelta = setting(
        LENGTH, "time after which a silent node counts as lost", "15s"
    )
    cluster_patience: timedelta = setting(
        LENGTH_OR_ZERO, "time for which runs continue while no node reaches the database", "5m"
    )
    cluster_branch: str | None = setting(
        ID, "branch that holds the plan; default: the current branch", guard="selects the plan"
    )
    cluster_address: ListenAddress | None = setting(
        ADDRESS, "address at which other nodes reach this one; default: `listen`", guard=_ACCESS
    )
    lifecycle_def: Path | None = setting(
        PATH, "lifecycle of a single keeper", older="WB_LIFECYCLE_DEF", guard=_OUTSIDE
    )


# Only the declared ones have a default, and there are no others.
SETTINGS: Final[tuple[Setting, ...]] = tuple(
    each._replace(field=field)
    for field, each in zip(Settings.__struct_fields__, Settings.__struct_defaults__, strict=True)
)
_OPEN: Final = {each.path[0] for each in SETTINGS if not each.guard}
# A guarded setting, or a table with only such settings, and why a pulled commit may not set it.
GUARDED: Final[Mapping[str, str]] = {
    SECRETS: "controls what runs can read",
    **{
        each.name if each.path[0] in _OPEN else each.path[0]: each.guard
        for each in SETTINGS
        if each.guard
    },
}


def is_guarded(way: Way) -> bool:
    """Return whether a setting counts only in the engine's own configuration.

    >>> is_guarded(("agent", "command")), is_guarded(("secrets", "KEY")), is_guarded(("zone",))
    (True, True, False)
    """
    return any(".".join(way[:length]) in GUARDED for length in range(1, len(way) + 1))


# Names that options, properties and other programs have for a setting.
_OTHER_NAMES: Final = {"tz": "zone", "timezone": "zone", "port": "listen", "address": "listen"}


def meant_setting(name: str) -> str | None:
    """Return the setting that *name* was probably meant to be.

    >>> [meant_setting(name) for name in ("gate.slot", "slots", "gaet.slots")]
    ['gate.slots', 'gate.slots', 'gate.slots']
    >>> meant_setting("zoen"), meant_setting("tz"), meant_setting("colour")
    ('zone', 'zone', None)
    """
    from difflib import get_close_matches

    if (meant := _OTHER_NAMES.get(name.lower().replace("_", ""))) is not None:
        return meant
    names = [each.name for each in SETTINGS]
    near = get_close_matches(name.lower(), names, n=1, cutoff=0.75)
    inner = [full for full in names if full.endswith(f".{name.lower()}")]
    return next(iter([*near, *(inner if len(inner) == 1 else [])]), None)


# What may be shown


def plain(value: object) -> object:
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, list):
        return value if all(isinstance(part, str) for part in value) else "a list"
    return "a table" if isinstance(value, dict) else str(value)


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
