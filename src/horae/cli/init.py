"""`init`: a small plan that works, written into a directory."""

from __future__ import annotations

import os
from typing import Final

import click

from horae.cli.options import root_argument
from horae.cli.output import echo

PLAN: Final = """\
#+TITLE: My plan

# A plan is plain text in Org syntax. A headline with a command is an entry, and its schedule says
# when the command runs; all other text is for you. Save this file while `horae up` runs, and the
# change applies at once. A line that begins with a hash and a space, like this one, is a comment.

* Heartbeat
:PROPERTIES:
:SCHEDULE: * * * * *
:COMMAND:  echo "ok"
:END:
Every minute. The fields are minute, hour, day, month, weekday, as in cron. `horae history` lists
the runs, `horae logs Heartbeat` shows the output, `horae why Heartbeat` the reason for each run.

* Nightly backup
SCHEDULED: <{today} 03:30 ++1d>
:PROPERTIES:
:COMMAND:  tar -czf backup.tar.gz plan.org horae.toml
:RETRY:    2 1m
:TIMEOUT:  1h
:END:
Every night at 03:30. If the computer is off at that time, the backup runs when Horae starts
again. If it fails, it is retried up to two times, the first time after a minute.

* Notify me about failures
:PROPERTIES:
:AFTER:    failed stuck
:COMMAND:  sh -c 'echo "$HORAE_AFTER_ENTRY: $HORAE_AFTER_REASON"'
:END:
Replace the command with one that notifies you: mail, a chat message, a push notification.

# A workflow is a headline with blocks of code. The output of one block is the input of the next.
# Remove the hash and the space at the start of each of these lines, and this workflow runs every
# morning at seven:
#
# * Daily digest :workflow:
# :PROPERTIES:
# :SCHEDULE: 0 7 * * *
# :END:
# ** Collect :component:
# #+begin_src sh :out files
# find "$HORAE_PLAN_DIR" -name '*.org' -mtime -1
# #+end_src
# ** Summarize :component:
# #+begin_src python :in files
# import sys
# print(len(sys.stdin.readlines()), "plan files changed since yesterday")
# #+end_src

# A crew is a list of agents that start at an interval. In horae.toml: crew.def = "crew.org", and
# in crew.org:
#
# * deps
# :PROPERTIES:
# :DEF:      deps.org
# :INTERVAL: 6h
# :END:
#
# and its definition, in deps.org; any program can be an agent:
#
# * deps :agent:
# :PROPERTIES:
# :COMMAND: claude -p
# :END:
# ** System prompt
# You update one dependency at a time. If all are up to date, answer NO-WORK.

# A board is a directory of tasks for the crew. A task can have a schedule:
#
#     horae task add "Prepare the release"
#     horae task schedule 1 --cron "0 9 * * MON"

# A trigger starts an agent at a time, by a webhook, or after an event elsewhere. In
# .agentd/workflows/deploy.yml, with an agent `deployer` in .agentd/agents/deployer.yml:
#
#     name: deploy
#     agent: deployer
#     source: {{type: cron, expression: "0 9 * * MON-FRI"}}
#     prompt_template: "It is {{{{fire_time}}}}. Deploy the newest release."
"""
SETTINGS: Final = """\
# Settings of Horae; `horae config --show-origin` lists all of them.
zone = "{zone}"  # the time zone of the plans

# listen = "127.0.0.1:7117"  # the address of the page
# [gate]
# slots = 4                  # how many runs are active at the same time
# [crew]
# def = "crew.org"           # the list of agents
# [agent]
# command = ["claude", "-p"] # the command of agents that have none of their own
"""


@click.command()
@root_argument
def init(*, root: str) -> None:
    """Write a small working plan into a directory.

    Existing files are not changed.
    """
    from horae.core.clock import SystemClock, machine_zone
    from horae.core.text import wall_text
    from horae.files.edit import create
    from horae.timing.zone import local

    try:
        os.makedirs(root, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise click.UsageError(f"{root}: is not a directory; name a directory.") from None
    except OSError as error:
        raise click.UsageError(f"{root}: cannot be created ({error.strerror}).") from None
    place = machine_zone()
    today = wall_text(local(SystemClock().now(), place)).rpartition(" ")[0]
    texts = {"plan.org": PLAN.format(today=today), "horae.toml": SETTINGS.format(zone=place.key)}
    for name, text in texts.items():
        path = os.path.join(root, name)
        if os.path.lexists(path):
            echo(f"{path} already exists and was not changed")
            continue
        create(path, text.encode())
        echo(f"wrote {path}")
    where = "" if root == "." else f" {root}"
    echo(f"\nRun it with: horae up{where}")
