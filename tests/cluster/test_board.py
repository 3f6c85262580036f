"""The board of a cluster: it is edited where the leader is, and the origin soon has it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from cluster.stage import git

if TYPE_CHECKING:
    from cluster.stage import Stage

TASK = """\
---
id: 1
title: Water the fern
status: done
cron_schedule: "* * * * * *"
---
A litre.
"""


def test_an_edit_of_the_board_is_pushed_at_once_and_again_when_that_failed(stage: Stage) -> None:
    stage.write({"board/tasks/001-water.md": TASK})
    hook = stage.origin / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho closed for repairs >&2\nexit 1\n")
    hook.chmod(0o755)
    east = stage.member("east", settings={"HORAE_WATCH_POLL": "10m"}).joined()
    stage.until(lambda: stage.count("work = 'recycle' AND status = 'done'"))

    def told() -> str:
        return " ".join(json.loads(east.ask("/api/v1/status")[1])["problems"])

    stage.until(lambda: "local commits are not pushed" in told())
    assert "status: done" in _shared(stage)
    hook.unlink()
    stage.until(lambda: "status: todo" in _shared(stage))
    stage.until(lambda: "are not pushed" not in told())
    assert "Move task #1 back to todo" in git(stage.origin, "log", "--format=%s", "main")


def _shared(stage: Stage) -> str:
    return git(stage.origin, "show", "main:board/tasks/001-water.md")


def test_a_command_gets_the_tasks_of_a_cluster_as_many_at_a_time_as_it_may(stage: Stage) -> None:
    tasks = {
        f"board/tasks/{number:03}.md": TASK.replace("id: 1", f"id: {number}")
        .replace("status: done", "status: todo")
        .replace('cron_schedule: "* * * * * *"\n', "")
        for number in (1, 2, 3, 4)
    }
    command = [
        "sh",
        "-c",
        "cat >/dev/null; touch $HORAE_TASK; git add .; git commit -qm Water",
    ]
    stage.write(tasks, more=f"[board]\ncommand = {json.dumps(command)}\nmax = 2\n")
    for name in ("east", "west"):
        stage.member(name).joined()
    stage.until(lambda: stage.count("work = 'dispatch' AND status = 'done'") == 4)

    def shared(path: str) -> str:
        return git(stage.origin, "show", f"main:{path}")

    stage.until(lambda: all("status: done" in shared(path) for path in tasks))
    log = git(stage.origin, "log", "--format=%s", "main").splitlines()
    assert [each for each in log if each.startswith("Assign task")]
