"""Workflows of GitHub Actions, taken over with equal moments."""

import subprocess
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings, strategies as st

import horae
from extras.foreign import of_crontab, prove
from horae.extras.importers.github import read_workflow
from horae.extras.importers.job import import_job
from scale import scaled

NOW = datetime(2026, 11, 14, 12, 0, tzinfo=UTC)
STEPS = "jobs:\n  go:\n    runs-on: ubuntu-latest\n    steps:\n      - uses: actions/checkout@v4\n"
RUN = STEPS + "      - run: make test\n"

WORKFLOWS = {
    "nightly.yml": "name: Nightly\non:\n  schedule:\n    - cron: '0 3 * * *'\n" + RUN,
    "weekly.yml": "on:\n  schedule:\n    - cron: '30 5 * * 1'\n  push:\n" + RUN,
    "two.yml": "on:\n  schedule:\n    - cron: '0 6 * * MON-FRI'\n    - cron: '0 9 * * 6,0'\n" + RUN,
    "stale.yml": "name: Close stale\non:\n  schedule:\n    - cron: '15 1 * * *'\n" + STEPS
    + "      - uses: actions/stale@v9\n",
    "codeql.yml": "on:\n  push:\n    branches: [main]\n  schedule:\n    - cron: '21 7 * * 3'\n"
     "jobs:\n  a:\n    strategy:\n      matrix:\n        lang: [js]\n    steps:\n      - run: x\n",
    "needs.yml": "on: {schedule: [{cron: '0 8 * * *'}]}\njobs:\n  b: {needs: a, steps: [{run: x}]}\n"
    "  a: {steps: [{run: y}]}\n",
    "shell.yml": "on: {schedule: [{cron: '0 8 * * *'}]}\n" + STEPS
    + "      - {run: 'print(1)', shell: python}\n",
    "often.yml": "on:\n  schedule:\n    - cron: '*/5 * * * *'\n" + RUN,
    "step.yml": "on:\n  schedule:\n    - cron: '20/15 * * * *'\n  workflow_dispatch:\n" + RUN,
    "months.yml": "on:\n  schedule:\n    - cron: '0 0 1 JAN,JUL *'\n" + RUN,
    "either.yml": "on:\n  schedule:\n    - cron: '0 12 13 * FRI'\n" + RUN,
    "odd.yml": "on:\n  schedule:\n    - cron: '0 4 1/2 * *'\n    - cron: '0 5 */1 * 1'\n" + RUN,
    "flow.yml": "on: {schedule: [{cron: '17 4 * * *'}]}\n" + RUN,
    "secret.yml": "on:\n  schedule:\n    - cron: '0 8 * * *'\n" + STEPS
    + "      - run: curl ${{ secrets.URL }}\n",
    "env.yml": "on:\n  schedule:\n    - cron: '0 8 * * *'\nenv:\n  MODE: fast run\n" + RUN
    + "      - run: |\n          cd sub\n          * star\n          #+end_src\n"
    + "        env:\n          A: b\n",
}  # fmt: skip


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_real_workflow_fires_as_it_did(name: str) -> None:
    reading = read_workflow(WORKFLOWS[name], name=name)
    assert all(each.is_taken for each in reading.remarks)
    adopted = import_job(reading.jobs[0], now=NOW)
    assert adopted.is_taken, adopted.reason
    assert adopted.entry is not None
    proof = prove(adopted.entry, [of_crontab(rule) for rule in adopted.job.rules], now=NOW)
    assert proof.asked == proof.equal == 50
    assert adopted.job.zone == "UTC"
    assert adopted.job.name == name.removesuffix(".yml")
    assert [each for each in horae.check(adopted.text) if each.severity != "info"] == []


def test_the_steps_of_a_shell_become_a_component() -> None:
    adopted = import_job(read_workflow(WORKFLOWS["env.yml"], name="env.yml").jobs[0], now=NOW)
    world = horae.tangle(adopted.text)["worlds"][0]
    assert [each["lang"] for each in world["components"]] == ["bash"]
    assert world["components"][0]["src"] == (
        "set -e\nexport MODE='fast run'\n# job go\n(\nmake test\n)\n"
        "(\nexport A=b\ncd sub\n* star\n#+end_src\n)\n"
    )


@pytest.mark.parametrize(
    "name", ["stale.yml", "codeql.yml", "secret.yml", "needs.yml", "shell.yml"]
)
def test_what_only_github_can_run_is_asked_of_github(name: str) -> None:
    reading = read_workflow(WORKFLOWS[name], name=name)
    assert reading.jobs[0].command == f"gh workflow run {name}"
    assert "only GitHub" in reading.remarks[0].what
    assert "workflow_dispatch" in reading.remarks[0].remedy


def test_a_step_does_to_the_next_what_it_does_there() -> None:
    text = """on: {schedule: [{cron: '0 1 * * *'}]}
jobs:
  a:
    env: {WORD: one}
    steps:
      - run: cd / && WORD=two && exit 0
      - run: test "$WORD" = one && test "$PWD" != /
  b: {steps: [{run: 'test -z "$WORD"'}, {run: echo yes; false | true}, {run: echo no; exit 1}]}
"""
    script = read_workflow(text, name="x.yml").jobs[0].script
    ended = subprocess.run(
        ["bash", "-c", script], check=False, capture_output=True, cwd="/tmp", timeout=60
    )
    assert (ended.returncode, ended.stdout) == (1, b"yes\nno\n")


@pytest.mark.parametrize("extra", ["defaults: {run: {shell: sh}}\n", "concurrency: one\n"])
def test_what_the_file_says_besides_is_not_lost(extra: str) -> None:
    text = extra + "on: {schedule: [{cron: '0 1 * * *'}]}\n" + RUN
    key = extra.partition(":")[0]
    assert f"`{key}`" in read_workflow(text, name="x.yml").remarks[0].what


@pytest.mark.parametrize(
    ("text", "place", "what"),
    [
        ("on: push\n", "1:1", "has no `on: schedule:`"),
        ("- a\n", "1:1", "this is not a workflow of GitHub Actions"),
        ("on:\n  schedule:\n    - cron: '0 0 * *'\n", "3:7", "the cron has 4 fields"),
        ("on:\n  schedule:\n    - cron: '@daily'\n", "3:7", "the cron has 1 fields"),
        ("on:\n  schedule:\n    - cron: '0 0 * * 7'\n", "3:7", "weekday 7 is outside 0-6"),
        ("on:\n  schedule:\n    - cron: '0 0 */2 * 1'\n", "3:7", "must both match"),
        ("on:\n  schedule:\n    - every: day\n", "2:1", "has no cron"),
        (
            "on:\n  schedule:\n    - cron: '0 0 * * *'\n      zone: x\n",
            "4:7",
            "`zone` next to cron",
        ),
        ("on: &a\n  schedule: *a\n", "1:5", "anchor"),
        ("a: b: c\n", "1:5", "where a key is not allowed"),
        ("on:\0", "1:4", ""),
    ],
)
def test_what_is_not_taken_is_said_with_its_place(text: str, place: str, what: str) -> None:
    reading = read_workflow(text, name="x.yml")
    assert reading.jobs == []
    assert str(reading.remarks[0]).startswith(place), reading.remarks
    assert what in reading.remarks[0].what


def test_a_schedule_that_github_runs_less_often_is_named() -> None:
    text = "on:\n  schedule:\n    - cron: '* * * * *'\n" + RUN
    assert "at most every five minutes" in read_workflow(text, name="x.yml").remarks[0].what


@given(st.text(max_size=300))
@settings(max_examples=scaled(1_000), deadline=None)
def test_no_text_breaks_the_reader(text: str) -> None:
    schedule = f"on:\n  schedule:\n    - cron: {text!r}\n{RUN}"
    for each in (text, schedule):
        reading = read_workflow(each, name="x.yml")
        assert reading.jobs or reading.remarks, "it is taken, or named"
