"""What is packed: the same bytes each time, all that is needed, and nothing else asked for."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions
from importlib.resources import files
from pathlib import Path

import pytest

import horae
from scale import SCALE

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCK = (ROOT / "requirements-dev.lock").read_text()
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

# Lets none of these modules be imported, as if they were not installed.
BARE = """
import json, sys
forbidden = {*json.loads(sys.argv.pop(1))}

class Guard:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in forbidden:
            refused.add(name.partition(".")[0])
            raise ModuleNotFoundError(f"{name} is not installed", name=name)

refused = set()
sys.meta_path.insert(0, Guard)
from horae.cli.main import main
try:
    main()
finally:
    sys.stderr.write("\\nrefused: " + " ".join(sorted(refused)))
"""


def plain(name: str) -> str:
    """Return a package's name in the one spelling that counts."""
    return re.sub(r"[-_.]+", "-", name).lower()


def required(name: str) -> set[str]:
    """Return a package and all that it asks for without an extra."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        each = plain(waiting.pop())
        if each in found:
            continue
        try:
            asked = distribution(each).requires or []
        except PackageNotFoundError:  # it is for another system than this one
            continue
        found.add(each)
        waiting += [NAME.match(line)[0] for line in asked if "extra ==" not in line]  # type: ignore[index]
    return found


def other_modules() -> list[str]:
    """Return the modules that are not there when horae is installed without an extra."""
    base = required("horae")
    owned = packages_distributions().items()
    return [module for module, owners in owned if not base & {plain(each) for each in owners}]


@pytest.mark.parametrize(
    "args",
    [["--help"], ["demo", "--seconds", "2"], ["doctor"], ["up", ".", "--seconds", "1"]],
    ids=lambda args: args[0],
)
def test_nothing_beyond_the_base_dependencies_is_needed(tmp_path: Path, args: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BARE, json.dumps(other_modules()), *args],
        cwd=tmp_path,
        env={**os.environ, "HORAE_LISTEN": "127.0.0.1:0"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    refused = {*done.stderr.rpartition("refused:")[2].split()}
    # A library may look for another and do without it; we do not even look.
    extras = PROJECT["optional-dependencies"].values()
    named = {plain(NAME.match(each)[0]) for some in extras for each in some}  # type: ignore[index]
    owners = packages_distributions()
    assert not {each for each in refused if named & {plain(name) for name in owners[each]}}


def test_the_files_of_the_demo_are_part_of_the_package() -> None:
    folder = files("horae") / "demo"
    assert (folder / "plan.org").is_file()
    assert (folder / "agentd" / "workflows" / "deploy.yml").is_file()


def test_the_lock_holds_every_package_that_is_asked_for_with_its_hashes() -> None:
    extras = PROJECT["optional-dependencies"]
    asked = [*PROJECT["dependencies"], *(each for some in extras.values() for each in some)]
    pinned = {plain(name) for name in re.findall(r"(?m)^([A-Za-z0-9._-]+)(?:\[.*\])?==", LOCK)}
    wanted = {plain(NAME.match(each)[0]) for each in asked}  # type: ignore[index]
    assert wanted <= pinned, "make lock"
    for block in re.split(r"(?m)^(?=\S)", LOCK):
        if "==" in block:
            assert "--hash=sha256:" in block, block.partition("\n")[0]


_IMPORT = re.compile(r"^ *(?:from|import) (\w+)", re.MULTILINE)


def imported(folder: Path) -> set[str]:
    """Return the modules that the programs in a folder import, by their first names."""
    texts = (path.read_text() for path in folder.rglob("*.py"))
    return {name for text in texts for name in _IMPORT.findall(text)}


def test_every_package_that_a_test_imports_is_asked_for_by_its_own_name() -> None:
    extras = PROJECT["optional-dependencies"]
    there = (each for name in ("dev", "bench", "model") for each in extras[name])  # `make setup`
    asked = [*PROJECT["dependencies"], *there, "horae"]
    named = {plain(NAME.match(each)[0]) for each in asked}  # type: ignore[index]
    owners = packages_distributions()
    for module in sorted(imported(ROOT / "tests") & owners.keys()):
        assert named & {plain(each) for each in owners[module]}, f"{module} comes by chance"


def test_the_lock_names_packages_and_no_place_to_get_them_from() -> None:
    assert "://" not in LOCK
    assert not re.search(r"(?m)^\s*-(?!-hash=sha256:)", LOCK)


def test_the_changes_have_a_section_for_this_version() -> None:
    changes = (ROOT / "CHANGELOG.md").read_text()
    assert f"## {horae.__version__}" in changes
    section = changes.partition(f"## {horae.__version__}")[2].partition("\n## ")[0]
    assert re.findall(r"(?m)^### (.+)$", section) == ["Added", "Changed", "Fixed"]


# With everything in full: built, installed and run for real


torture = pytest.mark.skipif(SCALE < 1, reason="`make torture` builds and installs it for real")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with wheel and sdist."""
    return build(ROOT, tmp_path_factory.mktemp("dist"))


def build(source: Path, target: Path) -> Path:
    """Build both from a folder, with the tools that are installed."""
    for tool in ("build", "hatchling"):
        if importlib.util.find_spec(tool) is None:
            pytest.skip(f"{tool} is not installed: pip install -e '.[release]'")
    subprocess.run(
        [sys.executable, "-m", "build", "-q", "--no-isolation", "-o", target, source],
        env={**os.environ, "SOURCE_DATE_EPOCH": "1767225600"},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return target


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@torture
def test_two_builds_are_the_same_to_the_byte_and_so_is_one_of_the_sdist(
    built: Path, tmp_path: Path
) -> None:
    assert contents(build(ROOT, tmp_path / "again")) == contents(built)
    [sdist] = built.glob("*.tar.gz")
    with tarfile.open(sdist) as packed:
        packed.extractall(tmp_path / "unpacked", filter="data")
    [source] = (tmp_path / "unpacked").iterdir()
    for path in source.rglob("*"):
        os.utime(path)
    assert contents(build(source, tmp_path / "third")) == contents(built)


@torture
def test_the_sdist_holds_what_is_needed_to_work_on_it(built: Path) -> None:
    [sdist] = built.glob("*.tar.gz")
    with tarfile.open(sdist) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    for name in (
        "Makefile", "SECURITY.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "requirements-dev.lock",
        "pyproject.toml", "src/horae/demo/plan.org", "tests/test_packaging.py",
    ):  # fmt: skip
        assert name in names, name
    for folder in ("scripts", "schemas", "examples", "docs", "bench", ".ci"):
        assert any(name.startswith(f"{folder}/") for name in names), folder


@torture
def test_the_wheel_works_alone_in_a_clean_environment(built: Path, tmp_path: Path) -> None:
    [wheel] = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        assert not [name for name in packed.namelist() if not name.startswith("horae")]
    home = tmp_path / "env"
    venv.create(home, with_pip=True)
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    install = [str(home / "bin" / "pip"), "install", "-q", str(wheel)]
    subprocess.run(install, check=True, capture_output=True, env=clean)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    done = subprocess.run(
        [home / "bin" / "horae", "demo", "--seconds", "8"],
        cwd=elsewhere,
        env={"PATH": os.defpath, "TMPDIR": str(elsewhere), "HORAE_LISTEN": "127.0.0.1:0"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"Notify about failures  +\d+ done", done.stdout)
    assert [*elsewhere.iterdir()] == []


# make


def made(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Return what `make` would do, or does, in a directory with our Makefile and nothing else."""
    for name in ("Makefile", "pyproject.toml"):
        (folder / name).write_text((ROOT / name).read_text())
    return subprocess.run(
        ["make", *arguments], cwd=folder, capture_output=True, text=True, check=False
    )


def installed(folder: Path, target: str) -> list[str]:
    """Return what `make` would install for a target."""
    said = made(folder, "--dry-run", target).stdout
    return re.findall(r"--editable (\S+)", said)


@pytest.mark.parametrize("target", ["run", "show"])
def test_a_first_run_installs_horae_alone(tmp_path: Path, target: str) -> None:
    assert installed(tmp_path, target) == ["."]


@pytest.mark.parametrize("target", ["test", "check", "bench"])
def test_what_tests_needs_more(tmp_path: Path, target: str) -> None:
    assert installed(tmp_path, target) == ["'.[dev,bench,model]'"]


def test_either_may_come_first(tmp_path: Path) -> None:
    def has(*names: str) -> None:
        (tmp_path / ".venv" / "bin").mkdir(parents=True, exist_ok=True)
        for name in ("bin/pip", *names):
            (tmp_path / ".venv" / name).touch()
            os.utime(tmp_path / ".venv" / name, (2**31, 2**31))  # newer than pyproject.toml

    has(".plain")
    assert installed(tmp_path, "run") == []
    assert installed(tmp_path, "test") == ["'.[dev,bench,model]'"]
    (tmp_path / ".venv" / ".plain").unlink()
    has(".ready")
    assert installed(tmp_path, "run") == installed(tmp_path, "test") == []


def test_a_python_without_venv_names_the_package(tmp_path: Path) -> None:
    python = tmp_path / "python3"
    python.write_text('#!/bin/sh\ncase "$*" in *ensurepip*) exit 1;; esac\nexit 0\n')
    python.chmod(0o755)
    ending = made(tmp_path, "run", f"PYTHON={python}")
    assert ending.returncode != 0
    assert "sudo apt-get install python3-venv" in ending.stderr
    assert not (tmp_path / ".venv").exists()
