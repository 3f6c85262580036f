"""Settings: the strongest source wins, and every value says where it came from."""

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from random import Random

import jsonschema_rs
import pytest
from hypothesis import given, strategies as st

from horae.config import Config, SettingError, SettingOrigin, load
from horae.core.settings import SETTINGS, ListenAddress, Setting, mask
from scale import scaled

SECRET = "s3cret-c4nary"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in an empty plan root, so that a file in it is called by its bare name."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def settings_from(
    toml: str | bytes = "", flags: Mapping[str, object] | None = None, **environ: str
) -> Config:
    """Return the settings of the plan root we stand in."""
    if toml:
        Path("horae.toml").write_bytes(toml.encode() if isinstance(toml, str) else toml)
    return load(".", environ=environ, flags=flags)


def refused(
    toml: str | bytes = "", flags: Mapping[str, object] | None = None, **environ: str
) -> SettingError:
    with pytest.raises(SettingError) as caught:
        settings_from(toml, flags, **environ)
    return caught.value


def origin_of(name: str, config: Config) -> SettingOrigin:
    [row] = [row for row in config.origins() if row.name == name]
    return row


def fits_schema(toml: str) -> bool:
    text = (Path(__file__).parents[1] / "schemas" / "settings.schema.json").read_text()
    written = json.loads(json.dumps(tomllib.loads(toml), default=str))
    return bool(jsonschema_rs.is_valid(json.loads(text), written))


def test_all_values_that_cannot_be_read_are_named_at_once(root: Path) -> None:
    error = refused('zone = "Europe/Berln"\n[run]\ndrain = "soon"\n')
    assert sorted(line[:12] for line in str(error).splitlines()) == [
        "horae.toml:1", "horae.toml:3",
    ]  # fmt: skip


# Defaults


@pytest.mark.usefixtures("root")
def test_without_any_setting_the_defaults_hold() -> None:
    config = settings_from()
    assert {setting.name: getattr(config, setting.field) for setting in SETTINGS} == {
        "data": Path(".horae"),
        "zone": None,
        "store": None,
        "listen": ListenAddress("127.0.0.1", 7117),
        "server.remote": False,
        "server.names": None,
        "server.url": None,
        "server.trusted_proxies": None,
        "server.public": False,
        "tenant": "local",
        "gitops": False,
        "git.local": None,
        "plan.max_bytes": 16 * 1024 * 1024,
        "plan.max_files": 20_000,
        "check.floor": timedelta(minutes=1),
        "run.timeout": timedelta(hours=1),
        "run.drain": timedelta(seconds=30),
        "run.memory": None,
        "run.processes": None,
        "run.cpus": None,
        "watch.quiet": timedelta(milliseconds=200),
        "watch.poll": None,
        "logs.keep": timedelta(days=30),
        "logs.most": 4 * 2**30,
        "logs.head": 32 * 2**20,
        "logs.tail": 32 * 2**20,
        "alert.heartbeat": None,
        "alert.every": timedelta(minutes=1),
        "gate.slots": 4,
        "agent.command": None,
        "agent.uncommitted": None,
        "board.dir": None,
        "board.budget": None,
        "board.command": None,
        "board.max": 1,
        "board.auto_dispatch": True,
        "budget": None,
        "crew.budget": None,
        "crew.def": None,
        "crew.max_concurrent": 2,
        "crew.stagger": timedelta(seconds=30),
        "keeper.def": None,
        "keeper.interval": timedelta(hours=1),
        "keeper.continuous": False,
        "keeper.breather": timedelta(seconds=45),
        "keeper.timeout": timedelta(minutes=15),
        "keeper.mode": "plan",
        "cluster.name": None,
        "cluster.labels": None,
        "cluster.runs": 4,
        "cluster.lease": timedelta(seconds=15),
        "cluster.patience": timedelta(minutes=5),
        "cluster.branch": None,
        "cluster.address": None,
        "lifecycle.def": None,
    }
    assert {row.origin for row in config.origins()} == {"default"}
    assert config.findings == ()


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_a_row_says_all_there_is_to_know(setting: Setting) -> None:
    assert setting.field == setting.name.replace(".", "_")
    assert setting.kind.words
    assert setting.variables[0] == "HORAE_" + setting.flag[2:].upper().replace("-", "_")
    assert all(name.startswith("WB_") for name in setting.variables[1:])


def test_no_two_settings_share_a_name_a_flag_or_a_variable() -> None:
    flags = [setting.flag for setting in SETTINGS]
    variables = [name for setting in SETTINGS for name in setting.variables]
    assert len(set(flags)) == len(flags)
    assert len(set(variables)) == len(variables)


def test_a_root_that_does_not_exist_has_the_defaults(tmp_path: Path) -> None:
    config = load(tmp_path / "nowhere", environ={})
    assert config.data == tmp_path / "nowhere" / ".horae"


# Which one wins


@pytest.mark.usefixtures("root")
def test_the_file_beats_the_default_the_environment_the_file_and_a_flag_all() -> None:
    toml = "tenant = 'from-file'"
    assert settings_from(toml).tenant == "from-file"
    assert settings_from(toml, WB_TENANT="from-wb").tenant == "from-wb"
    both = {"HORAE_TENANT": "from-horae", "WB_TENANT": "from-wb"}
    assert load(".", environ=both).tenant == "from-horae"
    assert load(".", environ=both, flags={"tenant": "from-flag"}).tenant == "from-flag"


@pytest.mark.usefixtures("root")
def test_a_value_says_where_it_is_from_and_what_it_overrides() -> None:
    config = settings_from(
        "# ours\n\ntenant = 'from-file'",
        {"tenant": "from-flag"},
        HORAE_TENANT="from-horae",
        WB_TENANT="from-wb",
    )
    assert origin_of("tenant", config) == (
        "tenant",
        "from-flag",
        "flag --tenant",
        (
            ("environment HORAE_TENANT", "from-horae"),
            ("environment WB_TENANT", "from-wb"),
            ("horae.toml:3", "from-file"),
            ("default", "local"),
        ),
    )


@pytest.mark.usefixtures("root")
def test_an_empty_variable_and_a_flag_that_was_not_given_count_as_unset() -> None:
    config = settings_from(flags={"tenant": None}, HORAE_TENANT="", WB_TENANT="from-wb")
    assert origin_of("tenant", config).origin == "environment WB_TENANT"


@pytest.mark.usefixtures("root")
def test_a_bad_value_that_is_overridden_does_no_harm() -> None:
    config = settings_from("gate.slots = 'many'", HORAE_GATE_SLOTS="8")
    assert config.gate_slots == 8
    assert origin_of("gate.slots", config).overrides[0] == ("horae.toml:1", "many")


@pytest.mark.usefixtures("root")
def test_the_environment_of_the_process_counts_when_none_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HORAE_TENANT", "from-process")
    assert load(".").tenant == "from-process"


@pytest.mark.usefixtures("root")
def test_a_flag_for_no_setting_is_a_mistake_in_the_program() -> None:
    with pytest.raises(KeyError, match="no such setting: zoen"):
        load(".", environ={}, flags={"zoen": "UTC"})


@pytest.mark.usefixtures("root")
def test_settings_are_frozen() -> None:
    config = settings_from()
    for name in ("tenant", "root", "other"):
        with pytest.raises(AttributeError, match="immutable"):
            setattr(config, name, "x")


# What a value can be


@pytest.mark.usefixtures("root")
def test_the_older_variables_count_in_milliseconds_where_they_say_so() -> None:
    config = settings_from(
        WB_KEEPER_DEF="/data/agents/keeper.org",
        WB_KEEPER_INTERVAL_MS="3600000",
        WB_KEEPER_CONTINUOUS="1",
        WB_KEEPER_BREATHER_MS="45000",
        WB_KEEPER_RUN_TIMEOUT_MS="900000",
        WB_KEEPER_MODE="edit",
        WB_LIFECYCLE_DEF="/data/lifecycle.org",
        WB_TENANT="local",
        WB_DATA="/data",
        WB_GITOPS="1",
        WB_CREW_DEF="/data/crew.org",
        WB_CREW_STAGGER_MS="0",
        WB_CREW_MAX_CONCURRENT="3",
    )
    assert config.keeper_def == Path("/data/agents/keeper.org")
    assert config.keeper_interval == timedelta(hours=1)
    assert config.keeper_continuous is True
    assert config.keeper_breather == timedelta(seconds=45)
    assert config.keeper_timeout == timedelta(minutes=15)
    shown = {row.name: row.value for row in config.origins()}
    assert (shown["keeper.timeout"], shown["crew.stagger"]) == ("900000ms", "0ms")
    assert config.keeper_mode == "edit"
    assert config.lifecycle_def == Path("/data/lifecycle.org")
    assert config.data == Path("/data")
    assert config.gitops is True
    assert config.crew_def == Path("/data/crew.org")
    assert config.crew_stagger == timedelta()
    assert config.crew_max_concurrent == 3


TYPED = """\
zone = "Europe/Berlin"
listen = "[::1]:8000"
gitops = true
agent.command = ["my-agent", "--once", ""]

[plan]
max_bytes = "2 MiB"
max_files = 100

[keeper]
interval = "1h30m"
"""


@pytest.mark.usefixtures("root")
def test_a_file_holds_numbers_switches_lists_and_lengths_of_time() -> None:
    config = settings_from(TYPED)
    assert config.zone == "Europe/Berlin"
    assert config.listen == ("::1", 8000)
    assert str(config.listen) == "[::1]:8000"
    assert config.gitops is True
    assert config.agent_command == ("my-agent", "--once", "")
    assert config.plan_max_bytes == 2 * 1024 * 1024
    assert config.plan_max_files == 100
    assert config.keeper_interval == timedelta(minutes=90)


@pytest.mark.usefixtures("root")
def test_a_command_in_the_environment_is_divided_as_a_shell_would_and_no_shell_runs() -> None:
    config = settings_from(HORAE_AGENT_COMMAND="my-agent --say 'two words; $HOME'")
    assert config.agent_command == ("my-agent", "--say", "two words; $HOME")


@pytest.mark.usefixtures("root")
def test_a_list_in_the_environment_is_written_as_in_the_file_or_divided() -> None:
    for labels in ('["gpu", "berlin"]', "gpu,berlin", "gpu berlin"):
        assert settings_from(HORAE_CLUSTER_LABELS=labels).cluster_labels == ("gpu", "berlin")
    for command in ('["claude", "-p"]', "claude -p"):
        assert settings_from(HORAE_AGENT_COMMAND=command).agent_command == ("claude", "-p")
    # The program `[` is a command, too.
    assert settings_from(HORAE_AGENT_COMMAND='[ "a" ]').agent_command == ("[", "a", "]")
    config = settings_from(HORAE_GIT_LOCAL='["/srv/a.git", "/srv/b.git"]')
    assert config.git_local == (Path("/srv/a.git"), Path("/srv/b.git"))


def test_a_path_begins_at_the_file_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "horae.toml").write_text("crew.def = 'crew.org'\nkeeper.def = '/k.org'\n")
    config = load(tmp_path, environ={"HORAE_LIFECYCLE_DEF": "life.org", "HOME": "/home/ada"})
    assert config.crew_def == tmp_path / "crew.org"
    assert config.keeper_def == Path("/k.org")
    assert config.lifecycle_def == Path("life.org")
    assert config.data == tmp_path / ".horae"


def test_each_of_several_paths_begins_where_one_alone_would(tmp_path: Path) -> None:
    (tmp_path / "horae.toml").write_text("git.local = ['/srv/plans.git', 'own.git', '~/x.git']\n")
    config = load(tmp_path, environ={"HOME": "/home/ada"})
    assert config.git_local == (
        Path("/srv/plans.git"),
        tmp_path / "own.git",
        Path("/home/ada/x.git"),
    )
    # Whoever says it, wherever the command is called: it is one place.
    config = load(tmp_path, environ={"HORAE_GIT_LOCAL": "/srv/a.git:b.git"})
    assert config.git_local == (Path("/srv/a.git"), tmp_path / "b.git")
    again = load(tmp_path, environ={}, flags={"git.local": config.git_local})
    assert again.git_local == config.git_local
    for bad in ("4", "[4]", "['']"):
        (tmp_path / "horae.toml").write_text(f"git.local = {bad}\n")
        with pytest.raises(SettingError, match="is not paths such as"):
            _ = load(tmp_path, environ={}).git_local


@pytest.mark.usefixtures("root")
def test_a_path_may_begin_at_home() -> None:
    assert settings_from("data = '~/plans'", HOME="/home/ada").data == Path("/home/ada/plans")
    assert "write it without ~" in str(refused("data = '~/plans'"))
    assert "write it without ~" in str(refused("data = '~bob/plans'", HOME="/home/ada"))


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("HORAE_GATE_SLOTS", "four", "gate.slots 'four' is not a whole number from 1 to 1,024"),
        ("HORAE_GATE_SLOTS", "0", "gate.slots '0' is not a whole number from 1 to 1,024"),
        ("HORAE_GATE_SLOTS", "-1", "is not a whole number"),
        ("HORAE_GATE_SLOTS", "1_0", "is not a whole number"),
        ("HORAE_GATE_SLOTS", "٤", "is not a whole number"),
        ("HORAE_GATE_SLOTS", "9" * 5000, "…"),
        ("WB_CREW_MAX_CONCURRENT", "0", "crew.max_concurrent '0' is not a whole number from 1"),
        ("HORAE_PLAN_MAX_BYTES", "16MB", "is not a number of bytes such as 16MiB"),
        ("HORAE_PLAN_MAX_BYTES", "0", "is not a number of bytes such as 16MiB"),
        ("HORAE_KEEPER_INTERVAL", "60", "a duration such as 30s or 1h30m; write 60s or 60m"),
        ("HORAE_KEEPER_INTERVAL", "90 minutes", "write 1h30m"),
        ("HORAE_KEEPER_INTERVAL", "0s", "write 1s or more"),
        ("WB_KEEPER_INTERVAL_MS", "1h", "is not a number of milliseconds such as 30000"),
        ("WB_KEEPER_INTERVAL_MS", "0", "is not a number of milliseconds such as 30000"),
        ("HORAE_KEEPER_CONTINUOUS", "maybe", "is not true or false"),
        ("WB_KEEPER_MODE", "delete", "keeper.mode 'delete' is not plan or edit"),
        ("HORAE_ZONE", "Europe/Berlim", "did you mean Europe/Berlin?"),
        ("HORAE_ZONE", "../../etc/passwd", "is not a time zone such as Europe/Berlin"),
        ("HORAE_ZONE", "Berlin", "is not a time zone; did you mean Europe/Berlin?"),
        ("WB_TENANT", "../other", "is not a name of at most 64 letters"),
        ("WB_TENANT", "..", "is not a name of at most 64 letters"),
        ("HORAE_LISTEN", "7117", "is not a host and port such as 127.0.0.1:7117 or [::1]:7117"),
        ("HORAE_LISTEN", "localhost:70000", "is not a host and port"),
        ("HORAE_LISTEN", "::1:7117", "is not a host and port"),
        (
            "HORAE_SERVER_TRUSTED_PROXIES",
            "127.0.0.1,proxy",
            "'proxy' does not appear to be an IPv4",
        ),
        ("HORAE_SERVER_TRUSTED_PROXIES", "10.0.0.1/8", "10.0.0.1/8 has host bits set"),
        ("HORAE_STORE", "mysql://db/x", "is not a PostgreSQL address"),
        ("HORAE_AGENT_COMMAND", "my-agent 'x", "No closing quotation"),
        ("HORAE_AGENT_COMMAND", " ", "is not a command"),
        ("HORAE_DATA", "a\nb", "is not a path"),
        ("HORAE_DATA", "caf\udce9", "is not a path"),
    ],
)
def test_a_bad_variable_is_named_with_its_value_and_what_would_be_right(
    name: str, value: str, words: str
) -> None:
    with pytest.raises(SettingError) as caught:
        load(".", environ={name: value})
    error = caught.value
    assert str(error).startswith(f"environment {name}: ")
    assert words in str(error)
    assert len(str(error)) < 250
    assert error.exit_code == 2


BAD = [
    ("[gate]\nslots = true", "horae.toml:2: gate.slots True is not a whole number"),
    ("gate.slots = 4.5", "horae.toml:1: gate.slots 4.5 is not a whole number"),
    ("gate.slots = [4]", "horae.toml:1: gate.slots 'a list' is not a whole number"),
    ("gate.slots = {}", "horae.toml:1: gate.slots 'a table' is not a whole number"),
    ("gate = {slots = 0}", "horae.toml:1: gate.slots 0 is not a whole number"),
    ("zone = 2026-06-06", "horae.toml:1: zone '2026-06-06' is not a time zone"),
    ("keeper.interval = 60", "write it in quotes, with a unit"),
    ("gitops = 1", "horae.toml:1: gitops 1 is not true or false"),
    ("agent.command = []", "horae.toml:1: agent.command [] is not a command such as"),
    ("agent.command = ['']", "horae.toml:1: agent.command [''] is not a command such as"),
    ("agent.command = ['a', 1]", "agent.command 'a list' is not a command such as"),
    ('agent.command = ["a\\u0000"]', "is not a command such as"),
    ("board.dir = '/srv/board'", "board.dir '/srv/board' is not a path relative to the plan"),
]
# What a schema cannot say, or need not.
ONLY_READ = ("zone =", "agent.command = ['']", 'agent.command = ["a\\u')


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize(("toml", "words"), BAD)
def test_a_bad_value_in_the_file_is_named_with_its_line(toml: str, words: str) -> None:
    assert words in str(refused(toml))
    assert fits_schema(toml) == toml.startswith(ONLY_READ)


@pytest.mark.usefixtures("root")
def test_a_bad_flag_is_named() -> None:
    assert str(refused(flags={"gate.slots": 0})) == (
        "flag --gate-slots: gate.slots 0 is not a whole number from 1 to 1,024"
    )


@pytest.mark.usefixtures("root")
def test_an_error_keeps_its_facts() -> None:
    assert refused("tenant = '/'").data() == {
        "code": "setting",
        "message": "horae.toml:1: tenant '/' is not a name of at most 64 letters, digits, "
        "`.`, `_` and `-`",
        "facts": {
            "origin": "horae.toml:1",
            "reason": "is not a name of at most 64 letters, digits, `.`, `_` and `-`",
            "setting": "tenant",
            "value": "/",
        },
    }


# The file


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize(
    ("toml", "words"),
    [
        ("zone = 'UTC'\nthis is no toml", "horae.toml:2:6: "),
        ("zone = 'UTC", "horae.toml:1:12: "),
        ("zone =", "horae.toml:1:7: "),
        ("a = 1\nzone = '''\n\n", "horae.toml:4:1: "),
        ("zone = 'UTC'\nzone = 'UTC'", "horae.toml:2:13: zone is set twice"),
        ("[gate]\nslots = 4\ngate = 1\nslots = 5", "horae.toml:4:10: gate.slots is set twice"),
        ("[gate]\nslots = 4\n[gate]", "horae.toml:3:6: gate is set twice"),
        ("a = " + "9" * 5000, "horae.toml: "),
        ("a = " + "[" * 5000, "horae.toml: too many nested brackets"),
        ("a." * 5000 + "a = 1", "horae.toml:1: 100 dots in one line"),
        ("x" * 70_000, "horae.toml: has 70,000 bytes"),
        (b"ok = 1\nzone = '\xff'", "horae.toml:2:9: 0xff at byte 15 is not UTF-8"),
    ],
)
def test_a_broken_file_is_named_with_line_and_column(toml: str | bytes, words: str) -> None:
    assert str(refused(toml)).startswith(words)


@pytest.mark.usefixtures("root")
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs POSIX")
def test_only_a_plain_file_is_read() -> None:
    path = Path("horae.toml")
    path.mkdir()
    assert "is a directory" in str(refused())
    path.rmdir()
    os.mkfifo(path)
    assert "is a FIFO" in str(refused())
    path.unlink()
    path.symlink_to("/etc/hostname")
    assert "is a symbolic link" in str(refused())


@pytest.mark.usefixtures("root")
def test_a_byte_order_mark_and_crlf_are_read() -> None:
    config = settings_from("\ufeff# ours\r\n[gate]\r\nslots = 7\r\n")
    assert origin_of("gate.slots", config)[1:3] == (7, "horae.toml:3")


def test_a_file_elsewhere_is_called_by_its_path(tmp_path: Path) -> None:
    (tmp_path / "horae.toml").write_text("gate.slots = 7")
    config = load(tmp_path, environ={})
    assert origin_of("gate.slots", config).origin == f"{tmp_path}/horae.toml:1"


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize(
    ("toml", "line"),
    [
        ("gate.slots = 7", 1),
        ("# gate.slots = 1\n\n  gate . slots=7 # seven", 3),
        ("[gate] # the gate\n\nslots = 7", 3),
        ("[plan]\nmax_files = 1\n[ 'gate' ]\n\"slots\" = 7", 4),
        ("gate = { slots = 7 }", 1),
        ("text = '''\ngate.slots = 1\n'''\ngate.slots = 7", 4),
        ('text = """\n[gate]\nslots = 1 \\"""\n"""""\n[gate]\nslots = 7', 6),
        ("list = [ # ]\n  '[gate]', [1, 2],\n]\ngate.slots = 7", 4),
        ('a = \'"\'\nb = "\'\\""\n[gate]\nslots = 7', 4),
        ("[[other]]\nx = 1\n[[other]]\nx = 2\n[gate]\nslots = 7", 6),
        ("x = 1979-05-27 07:32:00\n########\n[gate]\nslots = 7", 4),
        ('"ga\\u0074e".slots = 7', None),
    ],
)
def test_the_line_of_a_value_is_found_in_any_layout(toml: str, line: int | None) -> None:
    origin = f"horae.toml:{line}" if line else "horae.toml"
    assert origin_of("gate.slots", settings_from(toml))[1:3] == (7, origin)


FILLERS = [
    ["# zone = 'UTC'"],
    [""],
    ["strange = '''", "gate.slots = 1", "'''"],
    ['strange = """', "[gate]", 'a \\""" b""', '"""'],
    ["strange = [", "  'slots = 1', # ]", "  [1, [2]],", "]"],
    ["strange = {a = '}', b = [1, 2]}"],
    ['strange = "# \\" ["   # "'],
]
GOOD = {
    "gate.slots": "7",
    "plan.max_files": "1_000",
    "plan.max_bytes": '"1MiB"',
    "run.memory": '"2G"',
    "run.cpus": "1.5",
    "crew.stagger": "'10s'",
    "crew.def": "'''crew.org'''",
    "keeper.mode": '"edit"',
    "cluster.name": '"box1"',
    "cluster.labels": '["gpu", "berlin"]',
    "server.url": '"https://plans.example.org:8443/"',
    "server.trusted_proxies": '["127.0.0.1", "10.0.0.0/8", "::1"]',
    "cluster.runs": "8",
    "cluster.lease": '"30s"',
    "cluster.patience": '"10m"',
    "cluster.branch": '"main"',
    "cluster.address": '"box1.example.org:7117"',
    "agent.command": '[\n  "a", # [\n  "b"\n]',
    "tenant": "'x'",
    "gitops": "true",
}


@pytest.mark.parametrize("name", GOOD)
def test_the_schema_of_the_file_accepts_what_is_read(name: str) -> None:
    assert fits_schema(f"{name} = {GOOD[name]}")
    assert not fits_schema(f"{name}s = {GOOD[name]}")


def test_every_default_is_what_the_file_may_hold() -> None:
    written = {each.name: each.default for each in SETTINGS if each.default is not None}
    assert fits_schema("\n".join(f"{name} = {json.dumps(each)}" for name, each in written.items()))


class Draft:
    """A file in the making that remembers on which line each setting was put."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.lines: list[str] = []
        self.expected: dict[str, str] = {}

    def fill(self) -> None:
        """Add something that looks like settings and is none, under a new name."""
        name = f"strange{len(self.lines)}"
        self.lines += [line.replace("strange", name) for line in self.random.choice(FILLERS)]

    def add(self, key: str, name: str) -> None:
        self.fill()
        self.expected[name] = f"horae.toml:{len(self.lines) + 1}"
        self.lines += f"{key} = {GOOD[name]}".split("\n")

    def add_all(self, names: list[str]) -> None:
        sections = {name.partition(".")[0] for name in names if "." in name}
        tables = [section for section in sorted(sections) if self.random.random() < 0.7]
        for name in names:
            if name.partition(".")[0] not in tables:
                self.add(self.random.choice([name, name.replace(".", " . ")]), name)
        for table in tables:
            self.lines.append(f"[{table}]")
            for name in names:
                if name.startswith(f"{table}."):
                    self.add(name.partition(".")[2], name)


@pytest.mark.usefixtures("root")
def test_lines_are_right_however_tables_keys_and_strings_are_mixed() -> None:
    random = Random(7)
    for _ in range(scaled(10_000)):
        draft = Draft(random)
        draft.add_all(random.sample(list(GOOD), k=random.randrange(1, len(GOOD))))
        config = settings_from("\n".join(draft.lines))
        found = {row.name: row.origin for row in config.origins() if row.origin != "default"}
        assert found == draft.expected, "\n".join(draft.lines)


# What is no setting


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize(
    ("toml", "line", "name", "fix"),
    [
        ("[gate]\nslot = 4", 2, "'gate.slot'", "did you mean gate.slots?"),
        ("slots = 4", 1, "'slots'", "did you mean gate.slots?"),
        ("Zone = 'UTC'", 1, "'Zone'", "did you mean zone?"),
        ("time_zone = 'UTC'", 1, "'time_zone'", "did you mean zone?"),
        ("port = 7200", 1, "'port'", "did you mean listen?"),
        ("'gate.slots' = 4", 1, "'gate.slots'", "did you mean gate.slots?"),
        ("\ncolour = 'red'", 2, "'colour'", None),
        ("[colours]", 1, "'colours'", None),
        ("[gate]\n[gate.inner]", 2, "'gate.inner'", None),
        ("gate = 4", 1, "'gate'", None),
        ("[[crew]]\nname = 'x'", 1, "'crew'", None),
        ("zone.name = 'UTC'", 1, "'zone.name'", None),
    ],
)
def test_what_is_no_setting_is_a_finding_and_the_rest_holds(
    toml: str, line: int, name: str, fix: str | None
) -> None:
    config = settings_from(toml)
    [finding] = config.findings
    assert (finding.file, finding.line, finding.code) == ("horae.toml", line, "setting-unknown")
    assert finding.message == f"there is no setting {name}; it is ignored"
    assert finding.fix == fix
    assert config.gate_slots == 4


@pytest.mark.usefixtures("root")
def test_an_empty_table_of_settings_is_no_finding() -> None:
    assert settings_from("[gate]\n[crew]\n").findings == ()


@pytest.mark.usefixtures("root")
def test_all_findings_are_listed_in_the_order_of_the_file() -> None:
    config = settings_from("b = 1\na = 1\n" + "".join(f"x{n} = 1\n" for n in range(5000)))
    assert [finding.line for finding in config.findings] == list(range(1, 5003))


@pytest.mark.usefixtures("root")
def test_no_file_raises_anything_else() -> None:
    pieces = [
        *("zone", "gate", "slots", ".", "=", " = ", "4", "'UTC'", '"', "'", "'''", '"""', "[", "]"),
        *(
            "[[",
            "]]",
            "{",
            "}",
            ",",
            "#",
            "\n",
            "\n",
            "\r\n",
            "\t",
            "\\",
            "true",
            "1e9",
            "é",
            "\x00",
        ),
        *("[gate]\n", "slots = 4\n", "zone = 'UTC'\n", "crew.stagger = '1s'\n", "2026-06-06", "-1"),
    ]
    random = Random(11)
    read = 0
    for _ in range(scaled(40_000)):
        toml = "".join(random.choices(pieces, k=random.randrange(1, 12)))
        try:
            settings_from(toml)
            read += 1
        except SettingError as error:
            assert str(error).startswith("horae.toml")  # noqa: PT017 - both ends are fine
    assert read > scaled(40_000) // 50


# Secrets


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize(
    "store",
    [
        f"postgresql://horae:{SECRET}@db/plans",
        f"postgresql://{SECRET}@db/plans",
        f"postgresql://horae:a@b/c?d#{SECRET}@db/plans",
        f"postgresql://db/plans?password={SECRET}",
        f"postgresql://db/plans?password=p@{SECRET}",
        f"postgres://horae:{SECRET}@db:5432/plans?sslmode=require#{SECRET}",
    ],
)
def test_a_password_is_never_shown(store: str) -> None:
    config = settings_from(f"store = '{store}'", {"store": store}, HORAE_STORE=store)
    assert config.store == store
    assert SECRET not in repr(config.origins())
    assert SECRET not in repr(config)
    assert origin_of("store", config).value != "***"


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("store", [f"host=db password={SECRET}", f"my-sql://u:{SECRET}@db", SECRET])
def test_a_password_is_not_shown_in_an_error_either(store: str) -> None:
    error = refused(HORAE_STORE=store)
    assert SECRET not in str(error)
    assert SECRET not in repr(error.data())
    assert error.__context__ is None or error.__suppress_context__


@given(st.text(st.characters(codec="utf-8")), st.text(st.characters(codec="utf-8")))
def test_no_user_and_no_password_can_hide_from_the_mask(user: str, password: str) -> None:
    shown = mask(f"postgresql://{user}:{password}@db/plans")
    assert shown in {"postgresql://***@db/plans", "postgresql://***"}
    shown = mask(f"postgresql://db/plans?user={user}&password={password}")
    assert shown in {"postgresql://db/plans?***", "postgresql://***"}


@pytest.mark.usefixtures("root")
def test_an_unset_secret_is_shown_as_unset() -> None:
    assert origin_of("store", settings_from()).value is None


# Loading


def test_nothing_is_read_at_import() -> None:
    code = """
import os, sys
class Untouchable(dict):
    def __getitem__(self, name): raise AssertionError(name)
    get = __getitem__
os.environ = Untouchable()
import horae.config
slow = {"tomllib", "yaml", "click", "difflib", "zoneinfo", "asyncio"}
assert not slow & sys.modules.keys(), slow & sys.modules.keys()
"""
    run = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path[:0] = {sys.path}\n{code}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr


# Where secrets are


def test_the_settings_say_where_a_secret_is_and_never_what_it_is(root: Path) -> None:
    toml = "[secrets]\nKEY = 'cmd:pass show key'\nDB = 'file:../db'\nWORD = 'env:HOST'\n"
    found = settings_from(toml).secrets
    assert {name: str(each) for name, each in found.items()} == {
        "KEY": "cmd:pass show key",
        "DB": f"file:{root.parent / 'db'}",
        "WORD": "env:HOST",
    }


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("KEY = 'hunter2!'", "write file:PATH, cmd:COMMAND or env:NAME"),
        ("KEY = 7", "write file:PATH, cmd:COMMAND or env:NAME"),
        ("KEY = 'file:'", "write file:PATH, cmd:COMMAND or env:NAME"),
        ("KEY = 'cmd:\"x'", "no closing quotation"),
        ("KEY = 'env:HORAE_STORE'", "reserved for the engine"),
        ("HORAE_TOKEN = 'env:OTHER'", "reserved for the engine"),
        ("'a/b' = 'env:OTHER'", "letters, digits and underscores"),
        ("a.b = 'env:OTHER'", "letters, digits and underscores"),
    ],
)
def test_a_source_of_a_secret_that_cannot_be_is_told_without_what_was_written(
    line: str, reason: str
) -> None:
    said = str(refused(f"[secrets]\n{line}\n"))
    assert said.startswith("horae.toml:2: secrets.")
    assert reason in said
    assert "hunter2" not in said
