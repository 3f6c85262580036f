"""Settings that start programs count from the engine's own configuration, never from a pull."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec import structs

import horae.core.settings as table
from horae.app import build, keep
from horae.cli.group import horae as command
from horae.cli.run import run
from horae.cli.up import _words
from horae.config import SettingError, SettingsChangedError, confirm, load, untrusted
from horae.context import TrustError
from horae.core.actor import acting
from horae.core.settings import GUARDED, SETTINGS, is_guarded
from horae.files.git.layout import NAME, ArrivalsError, arrivals_at
from horae.files.git.repository import Git, UpdateRefusal

PERSON = {
    "GIT_AUTHOR_NAME": "ada",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_COMMITTER_NAME": "ada",
    "GIT_COMMITTER_EMAIL": "ada@example.org",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
}
MINE = 'zone = "UTC"\n[agent]\ncommand = ["mine"]\n'
THEIRS = 'zone = "Europe/Berlin"\n[agent]\ncommand = ["theirs"]\n'


def git(*args: str, at: Path) -> str:
    words = ["git", "-c", "init.defaultBranch=main", "-c", "protocol.file.allow=always", *args]
    environ = {**os.environ, **PERSON}
    done = subprocess.run(words, cwd=at, capture_output=True, check=True, text=True, env=environ)
    return done.stdout.strip()


@dataclass(frozen=True)
class World:
    """A plan root, and the clone that it is brought up to date from."""

    root: Path

    @property
    def plan(self) -> Path:
        return self.root / "plan"

    @property
    def peer(self) -> Path:
        return self.root / "peer"

    def push(self, text: str | None, name: str = "horae.toml", **others: str) -> str:
        """Let the peer commit a file, or its end; return the commit."""
        if text is None:
            git("rm", "-q", name, at=self.peer)
        for path, content in {name: text, **others}.items():
            if content is not None:
                (self.peer / path).parent.mkdir(exist_ok=True)
                (self.peer / path).write_text(content)
        git("add", "-A", at=self.peer)
        git("commit", "-qm", "change the settings", at=self.peer)
        return git("rev-parse", "HEAD", at=self.peer)

    def pull(self) -> bool:
        """Let the engine pull; tell whether the tree was brought up to date."""
        return not asyncio.run(Git(self.plan).pull(source=self.peer)).is_refused

    def command(self, where: str = ".") -> tuple[str, ...] | None:
        """Return what would run agents after a start now."""
        return load(str(self.plan / where), environ={}).agent_command


@pytest.fixture
def world(tmp_path: Path) -> World:
    git("init", "-q", "plan", at=tmp_path)
    world = World(tmp_path)
    (world.plan / "horae.toml").write_text(MINE)
    (world.plan / "plan.org").write_text("* TODO Sow\n")
    git("add", ".", at=world.plan)
    git("commit", "-qm", "begin", at=world.plan)
    git("clone", "-q", "plan", "peer", at=tmp_path)
    return world


def test_every_setting_that_names_a_program_or_a_place_is_guarded() -> None:
    kinds = (
        table.PATH, table.PATHS, table.COMMAND, table.ADDRESS,
        table.STORE, table.WEB, table.NAMES, table.NETWORKS,
    )  # fmt: skip
    reaching = [each for each in SETTINGS if each.kind in kinds]
    assert [each.name for each in reaching if not is_guarded(each.path)] == []
    for name in ("secrets.KEY", "agent.command", "board.dir", "server.remote", "gitops"):
        assert is_guarded(tuple(name.split(".")))
    for name in ("zone", "gate.slots", "agents", "secret"):
        assert not is_guarded(tuple(name.split(".")))


def test_every_guarded_name_is_a_setting_or_a_table_of_settings() -> None:
    known = {".".join(each.path[:length]) for each in SETTINGS for length in (1, 2)} | {"secrets"}
    assert [name for name in GUARDED if name not in known] == []


def test_a_pulled_command_does_not_count_and_other_settings_do(world: World) -> None:
    commit = world.push(THEIRS)
    assert world.pull()
    config = load(str(world.plan), environ={})
    assert (config.agent_command, config.zone) == (("mine",), "Europe/Berlin")
    [waits] = untrusted(config).waiting
    assert (waits.name, waits.trusted, waits.written) == ("agent.command", ["mine"], ["theirs"])
    assert waits.commit == commit
    [row] = [row for row in config.origins() if row.name == "agent.command"]
    assert row.origin.endswith("horae.toml as last trusted")
    assert (world.plan / ".git" / NAME).stat().st_mode & 0o777 == 0o600


def test_a_flag_or_a_variable_is_the_engines_own(world: World) -> None:
    world.push(THEIRS)
    world.pull()
    environ = {"HORAE_AGENT_COMMAND": "own"}
    assert load(str(world.plan), environ=environ).agent_command == ("own",)


def test_what_is_confirmed_counts_and_nothing_else(world: World) -> None:
    world.push(THEIRS)
    world.pull()
    config = load(str(world.plan), environ={})
    looked_at = untrusted(config).digest
    world.push(THEIRS.replace("theirs", "worse"))
    world.pull()
    with pytest.raises(SettingsChangedError):
        confirm(config, looked_at)
    assert world.command() == ("mine",)
    confirm(config, untrusted(config).digest)
    assert (config.agent_command, world.command()) == (("worse",), ("worse",))
    world.push(THEIRS)
    world.pull()
    assert world.command() == ("worse",)


def test_a_persons_own_edit_counts_at_the_next_start_and_only_what_it_says(world: World) -> None:
    world.push('listen = "0.0.0.0:1"\n' + THEIRS)
    world.pull()
    (world.plan / "horae.toml").write_text(f"listen = '127.0.0.1:2'\n{THEIRS}")
    config = load(str(world.plan), environ={})
    assert (str(config.listen), config.agent_command) == ("127.0.0.1:2", ("mine",))
    (world.plan / "horae.toml").write_text(THEIRS.replace("theirs", "my edit"))
    assert world.command() == ("my edit",)


@pytest.mark.parametrize(
    "texts",
    [
        (THEIRS, THEIRS.replace("theirs", "worse")),  # two pulls
        (None, THEIRS),  # the file is removed, and comes back
        ("[agent\n", THEIRS),  # it is broken, and mended
        ("x = 1\n" * 20_000, THEIRS),  # it is too large, and then not
        (THEIRS, "", THEIRS),  # the setting goes, and comes back
        (THEIRS, MINE + "# back\n", THEIRS),  # a revert, and a revert of it
    ],
)
def test_no_order_of_pulls_makes_a_pulled_command_count(
    world: World, texts: tuple[str | None, ...]
) -> None:
    for text in texts:
        world.push(text)
        world.pull()
        try:
            assert world.command() == ("mine",)
        except SettingError:
            assert text is not None  # broken: then nothing starts at all
    assert world.command() == ("mine",)


def test_a_pulled_secret_source_does_not_count_and_is_taken_over_when_trusted(
    world: World,
) -> None:
    own = '[secrets]\nKEY = "env:MINE"\n'
    (world.plan / "horae.toml").write_text(own)
    git("commit", "-qam", "name a secret", at=world.plan)
    git("pull", "-q", at=world.peer)
    world.push('[secrets]\nKEY = "cmd:cat /etc/passwd"\nOTHER = "not a source, but a value"\n')
    world.pull()
    config = load(str(world.plan), environ={})
    known = config.secrets  # as those who read secrets have it
    assert {name: str(each) for name, each in known.items()} == {"KEY": "env:MINE"}
    seen = untrusted(config)
    assert [(each.name, each.written) for each in seen.waiting] == [
        ("secrets.KEY", "cmd:cat /etc/passwd"),
        ("secrets.OTHER", "***"),
    ]
    with pytest.raises(SettingError):
        confirm(config, seen.digest)
    world.push('[secrets]\nKEY = "cmd:pass show key"\n')
    world.pull()
    confirm(config, untrusted(config).digest)
    assert {name: str(each) for name, each in known.items()} == {"KEY": "cmd:pass show key"}


def test_a_revert_leaves_nothing_that_waits(world: World) -> None:
    world.push(THEIRS)
    world.pull()
    world.push(MINE)
    world.pull()
    assert untrusted(load(str(world.plan), environ={})).waiting == ()


def test_a_pull_that_changes_nothing_guarded_is_not_remembered(world: World) -> None:
    world.push(MINE.replace("UTC", "Europe/Berlin"))
    world.pull()
    assert arrivals_at(world.plan) is None
    assert world.command() == ("mine",)


def test_a_file_that_arrives_in_a_directory_below_sets_no_command_there(world: World) -> None:
    world.push(THEIRS, "below/horae.toml", **{"below/plan.org": "* TODO Mow\n"})
    world.pull()
    assert world.command("below") is None
    assert load(str(world.plan / "below"), environ={}).zone == "Europe/Berlin"


def test_another_data_directory_does_not_arrive(world: World) -> None:
    world.push(f'data = "lair"\n{MINE}', **{"lair/token": "known\n"})
    world.pull()
    assert load(str(world.plan), environ={}).data == world.plan / ".horae"


def test_a_link_in_place_of_the_file_does_not_come_in(world: World) -> None:
    (world.peer / "evil.toml").write_text(THEIRS)
    (world.peer / "horae.toml").unlink()
    (world.peer / "horae.toml").symlink_to("evil.toml")
    git("add", "-A", at=world.peer)
    git("commit", "-qm", "link", at=world.peer)
    assert not world.pull()
    assert world.command() == ("mine",)


def test_attributes_that_change_a_file_on_its_way_to_the_disk_do_not_help(world: World) -> None:
    text = MINE.replace("mine", "./$Id$")
    world.push(text, **{".gitattributes": "horae.toml ident\n"})
    world.pull()
    assert "$Id: " in (world.plan / "horae.toml").read_text()
    assert world.command() == ("mine",)


def test_a_pull_that_is_refused_changes_nothing_of_what_counts(world: World) -> None:
    world.push(THEIRS)
    world.pull()
    (world.plan / "horae.toml").write_text(THEIRS + "# mine\n")
    world.push(THEIRS.replace("theirs", "worse"))
    pulled = asyncio.run(Git(world.plan).pull(source=world.peer))
    assert pulled.why is UpdateRefusal.DIRTY
    assert world.command() == ("mine",)


def test_a_crash_in_the_midst_of_a_pull_lets_nothing_count(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.push(THEIRS.replace("theirs", "./$Id$"), **{".gitattributes": "horae.toml ident\n"})
    monkeypatch.setattr("horae.files.git.repository.after_pull", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        world.pull()
    assert "$Id: " in (world.plan / "horae.toml").read_text()
    assert world.command() == ("mine",)


def test_what_an_agent_delivers_is_a_pull_too(world: World) -> None:
    clone = world.root / "tree"
    git("clone", "-q", "plan", "tree", at=world.root)
    (clone / "horae.toml").write_text(THEIRS)
    git("commit", "-qam", "work", at=clone)
    assert asyncio.run(Git(world.plan).deliver(clone, agent="wren", run="7")).is_delivered
    assert (world.plan / "horae.toml").read_text() == THEIRS
    assert world.command() == ("mine",)


def test_a_clone_of_the_plan_has_its_guarded_settings_from_the_engines_own(world: World) -> None:
    own = load(str(world.plan), environ={})
    (world.peer / "horae.toml").write_text(THEIRS + '[crew]\ndef = "crew.org"\n')
    shared = load(str(world.peer), environ={}, own=own)
    assert (shared.agent_command, shared.crew_def, shared.zone) == (
        ("mine",),
        None,
        "Europe/Berlin",
    )
    assert [each.name for each in untrusted(shared).waiting] == ["agent.command", "crew.def"]
    confirm(shared, untrusted(shared).digest)
    assert shared.agent_command == ("theirs",)
    assert world.command() == ("mine",)  # until the working copy is brought up to date


def test_a_damaged_note_lets_nothing_start(world: World) -> None:
    (world.plan / ".git" / NAME).write_text("{")
    with pytest.raises(ArrivalsError, match="remove this file if the settings are correct"):
        world.command()


def test_a_running_engine_keeps_its_command_until_somebody_trusts_the_new_one(
    world: World,
) -> None:
    async def told() -> None:
        config = load(str(world.plan), environ={}, flags={"listen": "127.0.0.1:0"})
        async with build(config) as app:
            stop, turned = asyncio.Event(), asyncio.Event()
            keeping = asyncio.create_task(keep(app, stop=stop, turned=turned.set))
            await turned.wait()
            (world.plan / "horae.toml").write_text(MINE.replace("mine", "edit"))
            await app.settings.refresh()
            [note] = app.settings.notes
            assert note == (
                "settings: agent.command is changed in horae.toml; it takes effect after a restart"
                " of the engine or after `horae config trust`"
            )
            git("checkout", "-q", "horae.toml", at=world.plan)
            commit = world.push(THEIRS)
            git(
                "pull", "-q", str(world.peer), "main", at=world.plan
            )  # by a person, or another program
            await app.settings.refresh()
            zone = "settings: zone is changed in horae.toml; the engine keeps UTC until it is restarted"
            pulled, told = app.facts().problems
            assert pulled == (
                f"settings: commit {commit[:12]} changes agent.command in horae.toml; it takes"
                " effect after `horae config trust`"
            )
            assert told == zone
            assert (config.agent_command, world.command()) == (("mine",), ("mine",))
            seen = await app.settings.look()
            with acting("agent:wren"), pytest.raises(TrustError):
                await app.settings.trust(seen.digest)
            assert config.agent_command == ("mine",)
            said = await app.settings.trust(seen.digest)
            assert (said.after_restart, said.until_restart) == ((), False)
            assert config.agent_command == ("theirs",)
            assert app.facts().problems == (zone,)
            [event] = [
                each for each in await app.ledger.events_after(0) if each.kind == "settings_trusted"
            ]
            assert event.facts["settings"] == ["agent.command"]
            word, text = await _words(app.ledger, [event], "UTC")
            assert (word, text[:23]) == ("trusted", "agent.command of commit")
            edit = structs.replace(event, facts={**event.facts, "commits": []})
            assert await _words(app.ledger, [edit], "UTC") == ("trusted", "agent.command")
            edit = structs.replace(edit, actor="cli:ada")
            by = "agent.command, by ada, on the command line"
            assert await _words(app.ledger, [edit], "UTC") == ("trusted", by)
            stop.set()
            await keeping

    asyncio.run(told())


def test_trust_asks_and_status_and_doctor_tell(
    world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def horae(*args: str) -> tuple[int, str]:
        code = run(command, name="horae", args=[*args, "--root", str(world.plan)])
        said = capsys.readouterr()
        return code, said.out + said.err

    monkeypatch.delenv("HORAE_AGENT_COMMAND", raising=False)
    commit = world.push(THEIRS)
    world.pull()
    run(command, name="horae", args=["up", str(world.plan), "--seconds", "0"])
    capsys.readouterr()
    [problem] = json.loads(horae("status", "--json")[1])["problems"]
    assert problem.startswith(f"settings: commit {commit[:12]} changes agent.command")
    [check] = [
        each for each in json.loads(horae("doctor", "--json")[1]) if each["check"] == "settings"
    ]
    assert (check["grade"], f"commit {commit[:12]} changes agent.command" in check["found"]) == (
        "warn",
        True,
    )
    code, said = horae("config", "trust")
    assert (code, "use --yes" in said) == (2, True)
    assert f'agent.command: ["mine"] -> ["theirs"]  # commit {commit[:12]}' in said
    assert world.command() == ("mine",)
    code, said = horae("config", "trust", "--yes")
    assert (code, said.splitlines()[-1]) == (0, "1 setting is trusted now")
    assert world.command() == ("theirs",)
    assert horae("config", "trust")[1] == "no setting is waiting for trust\n"
