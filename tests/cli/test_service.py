"""`horae service` and `horae completion`, used as a person would."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from calling import Call
from horae.errors import Exit

ANALYZE = shutil.which("systemd-analyze")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return tmp_path / "home"


def test_a_unit_says_when_it_is_ready_and_is_watched(call: Call, tmp_path: Path) -> None:
    text = call("service", "print", "--as", "keeper").out
    for line in ("Type=notify", "WatchdogSec=60", "User=keeper", "NoNewPrivileges=yes"):
        assert line in text.splitlines()
    assert f"up {tmp_path} --log plain" in text
    assert f"ReadWritePaths={tmp_path}" in text


@pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not on this machine")
@pytest.mark.parametrize("args", [(), ("--as", "keeper")])
def test_the_unit_leaves_little_open(call: Call, tmp_path: Path, args: tuple[str, ...]) -> None:
    assert ANALYZE is not None
    unit = tmp_path / "horae.service"
    unit.write_text(call("service", "print", "--root", "/srv", *args).out)
    ended = subprocess.run(
        [ANALYZE, "security", "--offline=true", str(unit)],
        check=False, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    score = re.search(r"Overall exposure level for \S+: ([0-9.]+)", ended.stdout)
    if score is None:
        pytest.skip("this systemd-analyze cannot look at a file")
    assert float(score[1]) <= 1.5


@pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not on this machine")
@pytest.mark.parametrize("args", [(), ("--user",)])
def test_systemd_accepts_the_unit(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...]
) -> None:
    assert ANALYZE is not None
    program = tmp_path / "horae"
    program.touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    unit = tmp_path / "horae.service"
    unit.write_text(call("service", "print", "--root", str(tmp_path), *args).out)
    ended = subprocess.run(
        [ANALYZE, "verify", "--man=no", str(unit)],
        check=False, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    told = [each for each in ended.stderr.splitlines() if "horae.service" in each]
    assert [each for each in told if "Unknown key" not in each] == []  # that a newer one knows
    assert ended.returncode == 0


def test_install_writes_once_and_says_what_is_next(call: Call, home: Path) -> None:
    first = call("service", "install", "--user")
    unit = home / ".config" / "systemd" / "user" / "horae.service"
    assert first.code == Exit.OK
    assert first.out.splitlines()[:3] == [
        f"wrote {unit}",
        "Next:",
        "  systemctl --user daemon-reload",
    ]
    assert "DynamicUser" not in unit.read_text()
    assert call("service", "install", "--user").out.startswith("unchanged:")


def test_what_we_wrote_is_replaced_and_what_a_person_wrote_is_not(call: Call, home: Path) -> None:
    unit = home / ".config" / "systemd" / "user" / "horae.service"
    call("service", "install", "--user")
    assert call("service", "install", "--user", "--root", "/srv").out.startswith("replaced")
    changed = unit.read_text() + "Nice=5\n"
    unit.write_text(changed)
    ending = call("service", "install", "--user")
    assert ending.code == Exit.CONFLICT
    assert "edited by hand" in ending.err
    assert unit.read_text() == changed
    assert call("service", "install", "--user", "--force").code == Exit.OK
    assert "Nice=5" not in unit.read_text()


def test_launchd_gets_a_plist(call: Call, home: Path) -> None:
    ending = call("service", "install", "--user", "--launchd", "--name", "garden")
    plist = home / "Library" / "LaunchAgents" / "org.horae.garden.plist"
    assert ending.code == Exit.OK
    assert "launchctl bootstrap gui/$(id -u)" in ending.out
    assert "<string>org.horae.garden</string>" in plist.read_text()


def test_a_unit_is_for_the_directory_that_is_named_as_for_up(call: Call, tmp_path: Path) -> None:
    (tmp_path / "plans").mkdir()
    (tmp_path / "plan.org").write_text("")
    named = call("service", "print", "plans").out
    assert f" up {tmp_path}/plans " in named
    assert named == call("service", "print", "--root", "plans").out
    missing, file = call("service", "print", "none"), call("service", "print", "plan.org")
    assert (missing.code, file.code) == (Exit.NOT_FOUND, Exit.USAGE)
    assert "none: there is no such directory; `horae init none` creates it" in missing.err


@pytest.mark.parametrize(
    "args", [("--name", "../x"), ("--user", "--as", "me"), ("--root", 'a"b'), ("--root", "a\nb")]
)
def test_what_makes_no_sense_is_refused(call: Call, args: tuple[str, ...]) -> None:
    for name in ('a"b', "a\nb"):
        Path(name).mkdir()
    assert call("service", "print", *args).code == Exit.USAGE


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_script(call: Call, shell: str) -> None:
    ending = call("completion", shell)
    assert ending.code == Exit.OK
    assert "_HORAE_COMPLETE" in ending.out


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash on this machine")
def test_the_script_completes_commands_in_bash(call: Call, tmp_path: Path) -> None:
    script = tmp_path / "horae.bash"
    script.write_text(call("completion", "bash").out)
    ended = subprocess.run(["bash", "-n", str(script)], check=False, timeout=60)
    assert ended.returncode == 0
    horae = shutil.which("horae", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert horae is not None
    answered = subprocess.run(
        [horae], check=False, capture_output=True, text=True, timeout=120,
        env={**os.environ, "_HORAE_COMPLETE": "bash_complete", "COMP_WORDS": "horae imp",
             "COMP_CWORD": "1"},
    )  # fmt: skip
    assert "plain,import" in answered.stdout.split()


def test_a_service_is_not_installed_for_a_user_that_does_not_exist(call: Call) -> None:
    ending = call("service", "install", "--as", "no-such-user")
    assert ending.code == Exit.USAGE
    assert "there is no user 'no-such-user' on this machine" in ending.err
