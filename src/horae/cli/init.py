"""`init`: a small plan that works, written where there is none."""

from __future__ import annotations

import os
from typing import Final

import click

from horae.cli.options import root_argument
from horae.cli.output import echo
from horae.errors import Exit

PLAN: Final = """\
#+TITLE: Hours

# A plan is plain text in Org syntax. A headline with a when and a command is an entry; all other
# text is yours. Save this file while `horae up` runs, and what you changed counts at once.
# A line that begins with a hash, like this one, says nothing to the machine.

* Say hello
:PROPERTIES:
:SCHEDULE: * * * * *
:COMMAND:  echo "Good hour"
:END:
Every minute: minute, hour, day, month, weekday, as in cron. `horae history` shows each time it
ran, `horae logs "Say hello"` what it said, `horae why "Say hello"` why it did or did not run.

* Look at the disk
SCHEDULED: <{today} 08:00 ++1d>
:PROPERTIES:
:COMMAND:  df -h .
:RETRY:    2 1m
:END:
Every morning at eight; after a night without power the newest morning is made good. If it fails
it is tried twice more, a minute apart.

* Tell me when something fails
:PROPERTIES:
:AFTER:    failed stuck
:COMMAND:  sh -c 'echo "$HORAE_AFTER_ENTRY: $HORAE_AFTER_REASON"'
:END:
Put a command here that reaches you: mail, a message, a sound.

# A workflow is blocks that take from one another. Take the hashes away, and it runs every hour:
#
# * Look at the garden :workflow:
# :PROPERTIES:
# :SCHEDULE: 0 * * * *
# :END:
# ** Measure :component:
# #+begin_src python :out moisture
# print(42)
# #+end_src
# ** Say it :component:
# #+begin_src sh :in moisture
# read moisture; echo "moisture: $moisture"
# #+end_src

# A crew is agents that tick. In horae.toml: crew.def = "crew.org", and in crew.org:
#
# * wren
# :PROPERTIES:
# :DEF:      wren.org
# :INTERVAL: 30m
# :END:
#
# and who that is, in wren.org; any program can be an agent:
#
# * wren :agent:
# :PROPERTIES:
# :COMMAND: claude -p
# :END:
# ** System prompt
# You do one thing that is due. If there is nothing to do, answer NO-WORK.

# A board is tasks that go to the crew, and may come back:
#
#     horae task add "Water the beans"
#     horae task schedule 1 --cron "0 9 * * MON"

# A trigger starts an agent by a time, a message or a change elsewhere. In
# .agentd/workflows/report.yml, with an agent `reporter` in .agentd/agents/reporter.yml:
#
#     name: report
#     agent: reporter
#     source: {{type: cron, expression: "0 9 * * MON-FRI"}}
#     prompt_template: "It is {{{{fire_time}}}}. Write the report."
"""
SETTINGS: Final = """\
# Settings of Horae; `horae config --show-origin` lists all of them.
zone = "{zone}"  # of the times in org plans

# listen = "127.0.0.1:7117"  # where the page is
# [gate]
# slots = 4                  # how many runs go on at a time
# [crew]
# def = "crew.org"           # the agents that tick
# [agent]
# command = ["claude", "-p"] # what runs an agent that names no command
"""


@click.command()
@root_argument
def init(*, root: str) -> int:
    """Write a small working plan into a directory.

    Files that exist are kept.
    """
    from horae.app import SystemClock, machine_zone
    from horae.rules.words import wall_text
    from horae.timing.zone import local
    from horae.workspace.edit import create

    try:
        os.makedirs(root, exist_ok=True)  # noqa: PTH103 - as everywhere on the way in
    except (FileExistsError, NotADirectoryError):
        said = f"{root}: a file is in the way; name a directory."
        raise click.UsageError(said) from None
    place = machine_zone()
    today = wall_text(local(SystemClock().now(), place)).rpartition(" ")[0]
    texts = {"plan.org": PLAN.format(today=today), "horae.toml": SETTINGS.format(zone=place.key)}
    for name, text in texts.items():
        path = os.path.join(root, name)  # noqa: PTH118
        if os.path.lexists(path):
            echo(f"{path} exists, and is kept")
            continue
        create(path, text.encode())
        echo(f"wrote {path}")
    where = "" if root == "." else f" {root}"
    echo(f"\nStart it with: horae up{where}")
    return Exit.OK
