"""The command line starts at once: what a job does not need is not loaded."""

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {
    "asyncio", "http", "sqlite3", "socket", "ssl", "yaml", "rich", "tomllib", "zoneinfo", "subprocess",
    "horae.timing.cron", "horae.timing.zone", "horae.core.entry", "horae.sources", "horae.org.check", "horae.org.world",
}  # fmt: skip


def loaded(code: str) -> set[str]:
    program = f"import sys\n{code}\nsys.stderr.write(' '.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return set(done.stderr.split())


def test_the_version_is_printed_before_anything_is_loaded() -> None:
    modules = loaded("sys.argv[1:] = ['--version']\nfrom horae.cli.main import main\nmain()")
    assert not modules & (HEAVY | {"click", "json", "typing", "horae.org"})


def test_a_query_loads_no_more_than_it_needs(tmp_path: Path) -> None:
    plan = tmp_path / "plan.org"
    plan.write_text("* Digest :workflow:\nSCHEDULED: <2026-06-06 Sat 06:00 +1d>\n")
    modules = loaded(
        f"from horae.cli.group import horae\nfrom horae.cli.run import run\n"
        f"assert run(horae, name='horae', args=['query', '--json', {str(plan)!r}]) == 0"
    )
    assert "horae.org.document" in modules
    assert not modules & HEAVY


def test_importing_the_package_loads_no_room() -> None:
    assert not {name for name in loaded("import horae") if name.startswith("horae.")}


def test_agent_tells_its_version_and_its_words_without_the_service() -> None:
    for words in (("--version",), ("orchestrator", "logs", "--help")):
        modules = loaded(
            "from horae.sources.triggers.agent_cli import agent\nfrom horae.cli.run import run\n"
            f"assert run(agent, name='agent', args={words!r}) == 0"
        )
        assert not modules & {"asyncio", "sqlite3", "horae.sources.triggers.commands"}


@pytest.mark.parametrize(
    "line", [["cluster", "migrate"], ["cluster", "worker"], ["cluster", "nodes"]]
)
def test_a_package_that_is_not_installed_is_named_with_its_extra(
    tmp_path: Path, line: list[str]
) -> None:
    program = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from horae.cli.group import horae; from horae.cli.run import run\n"
        f"sys.exit(run(horae, name='horae', args={line}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={"HORAE_STORE": "postgresql://127.0.0.1:1/none"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.endswith(
        "psycopg is not installed; install Horae with its extra: `pip install '.[postgres]'` in its clone\n"
    )
