"""Values of secrets: where they may come from, and what is never a source."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from horae.core.ports import SecretError, UnaskedSecretError
from horae.core.secret import parse_source
from horae.errors import HoraeError
from horae.process import run_settings
from horae.process.run_settings import NamedSecrets
from store.ledger_suite import story

if TYPE_CHECKING:
    from collections.abc import Callable

VALUE = "s3cret-c4nary"


class Home:
    """A plan root, a data directory, and a place outside of both."""

    def __init__(self, path: Path) -> None:
        self.root, self.data, self.outside = path / "plan", path / "plan/.horae", path / "keys"
        for each in (self.root, self.data, self.outside):
            each.mkdir()
        self.environ = {"PATH": os.environ["PATH"], "HORAE_TOKEN": VALUE, "LANG": "C"}

    def file(self, path: Path, text: str = f"{VALUE}\n", mode: int = 0o600) -> Path:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
        return path

    def named(self, **options: object) -> NamedSecrets:
        sources = {name: parse_source(str(text)) for name, text in options.items()}
        return NamedSecrets(sources, self.environ, root=self.root, data=self.data)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def refused(known: NamedSecrets, text: str = "${KEY}") -> str:
    with pytest.raises(SecretError) as error:
        asyncio.run(known.filled(text))
    assert VALUE not in str(error.value)
    return str(error.value)


@story
async def test_a_value_comes_from_a_file_a_command_or_a_variable(home: Home) -> None:
    path = home.file(home.outside / "key")
    home.environ["OTHER"] = "from-outside"
    known = home.named(A=f"file:{path}", B="cmd:printf 'two words'", C="env:OTHER")
    assert await known.filled("${A}|${B}|${C}|${OTHER}|${NONE:-else}|$A|${secrets/x}") == (
        f"{VALUE}|two words|from-outside|from-outside|else|$A|${{secrets/x}}"
    )


@story
async def test_a_run_is_given_only_what_it_names(home: Home) -> None:
    home.environ |= {"PLAIN": "one", "UNNAMED": "two"}
    known = home.named(KEY="cmd:printf s3cret-c4nary", OTHER="cmd:printf never")
    given = await known.given(["PLAIN", "KEY", "MINE=${KEY}", "ABSENT", "HORAE_TOKEN"])
    assert given.variables == {"PLAIN": "one", "KEY": VALUE, "MINE": VALUE}
    assert given.hidden == {VALUE}
    assert (await known.given([])).hidden == {VALUE}, "what is known is masked everywhere"


def test_the_engine_itself_is_never_a_source(home: Home) -> None:
    token = home.file(home.data / "token")
    assert "reserved for the engine" in refused(home.named(), "${HORAE_TOKEN}")
    assert "reserved for the engine" in refused(home.named(), "${HORAE_NONE}")
    assert "in the plan root" in refused(home.named(KEY=f"file:{token}"))
    known = NamedSecrets(
        {"KEY": parse_source(f"file:{token}")}, {}, root=home.outside, data=home.data
    )
    assert "in the data directory" in refused(known)
    home.environ |= {"PGPASSWORD": VALUE, "URL": f"postgresql://u:{VALUE}@db/x"}
    shared = NamedSecrets({"KEY": parse_source("env:URL")}, home.environ, store=home.environ["URL"])
    assert "reserved for the engine" in refused(shared)
    assert "reserved for the engine" in refused(shared, "${PGPASSWORD}")


def _link(home: Home) -> Path:
    (home.outside / "link").symlink_to(home.file(home.outside / "key"))
    return home.outside / "link"


def _through_a_folder(home: Home) -> Path:
    home.file(home.root / "inside")
    (home.outside / "way").symlink_to(home.root)
    return home.outside / "way/inside"


def _fifo(home: Home) -> Path:
    os.mkfifo(home.outside / "fifo", 0o600)
    return home.outside / "fifo"


def _socket(home: Home) -> Path:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(home.outside / "s"))
    (home.outside / "s").chmod(0o600)
    return home.outside / "s"


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda home: home.outside / "none", "does not exist"),
        (lambda home: home.outside / "no/such", "does not exist"),
        (lambda home: home.file(home.root / "key"), "is in the plan root"),
        (lambda home: home.file(home.data / "key"), "is in the plan root"),
        (_through_a_folder, "is in the plan root"),
        (lambda home: home.file(home.outside / "key", mode=0o644), "run `chmod 600"),
        (lambda home: home.file(home.outside / "key", mode=0o640), "run `chmod 600"),
        (_link, "is a link"),
        (_fifo, "is not a regular file"),
        (_socket, "no such device"),
        (lambda home: home.outside, "is not a regular file"),
        (lambda _: Path("/dev/zero"), "is not a regular file"),
        (lambda home: home.file(home.outside / "key", "\n\n"), "the value is empty"),
        (lambda home: home.file(home.outside / "key", "a\0b"), "NUL"),
        (lambda home: home.file(home.outside / "key", "x" * 65537), "larger than 64 KiB"),
    ],
)
def test_a_file_that_is_no_secret_file_is_not_read(
    home: Home, make: Callable[[Home], Path], why: str
) -> None:
    path = make(home)
    said = refused(home.named(KEY=f"file:{path}"))
    assert said.startswith("secret KEY cannot be read (")
    assert why in said


def test_a_file_of_somebody_else_is_not_read(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    path = home.file(home.outside / "key")
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert "belongs to another user" in refused(home.named(KEY=f"file:{path}"))


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("false", "false ended with exit code 1"),
        ("sh -c 'kill -9 $$'", "sh ended with signal 9"),
        ("no-such-program", "no-such-program cannot be called: no such file"),
        ("sh -c 'echo s3cret-c4nary >&2; exit 3'", "sh ended with exit code 3"),
        ("true", "the value is empty"),
        ("head -c 1000000 /dev/zero", "head printed more than 64 KiB"),
        ("printf '\\377\\376'", "the value is not UTF-8 text"),
        ("printf a;b", "printf a;b"),
    ],
)
def test_what_a_command_prints_is_bounded_and_its_errors_are_not_told(
    home: Home, command: str, why: str
) -> None:
    known = home.named(KEY=f"cmd:{command}")
    if command == "printf a;b":  # no shell: it is one word
        assert asyncio.run(known.filled("${KEY}")) == "a;b"
    else:
        assert why in refused(known)


def test_a_command_that_hangs_is_ended_with_all_it_started(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_settings, "LONGEST", 0.4)
    pid = home.outside / "pid"
    command = f"cmd:sh -c 'sleep 300 & echo $! > {pid}; wait'"
    assert "did not end within" in refused(home.named(KEY=command))
    with pytest.raises(ProcessLookupError):
        until_gone(int(pid.read_text()))


def test_what_a_command_leaves_running_is_not_waited_for_and_ended(home: Home) -> None:
    pid = home.outside / "pid"
    known = home.named(KEY=f"cmd:sh -c 'sleep 300 & echo $! > {pid}; echo s3cret-c4nary'")
    assert asyncio.run(known.filled("${KEY}")) == VALUE
    with pytest.raises(ProcessLookupError):
        until_gone(int(pid.read_text()))


def until_gone(pid: int) -> None:
    """Return while a process is still being ended; raises ProcessLookupError once it is gone."""
    for _ in range(10_000):
        state = Path(f"/proc/{pid}/stat")
        if not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z":
            raise ProcessLookupError
        os.sched_yield()


def test_a_command_gets_no_variable_of_the_engine_and_starts_nowhere_in_the_plan(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home.root)
    known = home.named(KEY="cmd:sh -c 'pwd; env'")
    said = asyncio.run(known.filled("${KEY}"))
    assert said.startswith("/\n")
    assert "HORAE_" not in said


@story
async def test_a_command_is_called_once_a_minute_however_many_ask(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, now = home.outside / "count", 1000.0
    monkeypatch.setattr(run_settings, "monotonic", lambda: now)
    known = home.named(KEY=f"cmd:sh -c 'echo x >> {count}; wc -l < {count}'")
    assert set(await asyncio.gather(*(known.filled("${KEY}") for _ in range(20)))) == {"1"}
    now += 59
    assert await known.filled("${KEY}") == "1"
    now += 2
    assert await known.filled("${KEY}") == "2"
    assert known.hidden == {"1", "2"}, "what was one is masked as long as the engine runs"


@story
async def test_a_command_that_failed_is_called_again_soon_but_not_at_once(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, now = home.outside / "count", 1000.0
    monkeypatch.setattr(run_settings, "monotonic", lambda: now)
    known = home.named(KEY=f"cmd:sh -c 'echo x >> {count}; exit 1'")
    for wait, calls in ((0, 1), (9, 1), (2, 2)):
        now += wait
        with pytest.raises(SecretError):
            await known.filled("${KEY}")
        assert len(count.read_text().split()) == calls
    assert list(known.unread) == ["KEY"]


@story
async def test_whoever_only_looks_calls_no_command(home: Home) -> None:
    sources = {"KEY": parse_source(f"cmd:touch {home.outside}/called")}
    known = NamedSecrets(sources, home.environ, may_call=False)
    assert known.why_not(["${KEY}"]) is None
    with pytest.raises(UnaskedSecretError):
        await known.filled("${KEY}")
    assert not (home.outside / "called").exists()


@story
async def test_what_can_be_read_again_is_known_to_be(home: Home) -> None:
    known = home.named(KEY=f"file:{home.outside}/key")
    with pytest.raises(SecretError):
        await known.filled("${KEY}")
    assert not await known.look_again()
    home.file(home.outside / "key")
    assert await known.look_again()
    assert not known.unread


@story
async def test_a_missing_secret_that_nothing_uses_any_more_is_no_problem(home: Home) -> None:
    known = home.named()
    with pytest.raises(SecretError, match="set it again"):
        await known.filled("${secrets/webhook-deploy-1f0c}")
    assert list(known.unread) == ["secrets/webhook-deploy-1f0c"]
    await known.forget(["${secrets/webhook-deploy-1f0c}"])
    assert not known.unread


@story
async def test_beside_a_shared_ledger_no_secret_is_kept(home: Home) -> None:
    known = NamedSecrets({}, home.environ, store="postgresql://db/x")
    assert await known.keep("MODE", "fast") == "fast"
    for name in ("API_KEY", "webhook-deploy"):
        with pytest.raises(HoraeError, match="in \\[secrets\\]") as error:
            await known.keep(name, VALUE)
        assert VALUE not in str(error.value)


def test_the_keys_of_the_engine_are_no_source_by_whatever_way(home: Home) -> None:
    for own in ("token", "host", "post.key"):
        path = home.file(home.data / own, "f00d" * 16)
        link = home.outside / own
        link.hardlink_to(path)
        for source in (f"file:{link}", f"cmd:cat {path}", f"cmd:sh -c 'echo a $(cat {path}) b'"):
            assert "a key of the engine" in refused(home.named(KEY=source))
        home.environ["COPY"] = path.read_text()
        assert "a key of the engine" in refused(home.named(KEY="env:COPY"))
