"""Plans that nobody wrote: of each seed others, of every kind of rule and policy."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from simulate.sources import Card, Member, Plans, Trigger, Written

if TYPE_CHECKING:
    from random import Random

# Weeks before a clock change somewhere, so that a short run meets one, too.
STARTS: Final = tuple(
    datetime.fromisoformat(f"{day}T00:00:00+00:00").astimezone(UTC)
    for day in ("2026-02-20", "2026-03-12", "2026-09-14", "2026-10-08", "2027-12-28", "2028-02-12")
)
ZONES: Final = (
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "UTC",
    "Africa/Cairo",
)
CRONS: Final = (
    "0 9 * * *",
    "30 2 * * *",
    "30 1 * * *",
    "0 */6 * * *",
    "15 */8 * * *",
    "0 12 * * MON-FRI",
    "0 6 1 * *",
    "45 23 L * *",
    "0 0 29 2 *",
    "15 2 * * *; 0 14 * * SUN",
    "*/30 1-3 * * *",
    "0 0 13 * FRI",
)
REPEATERS: Final = ("+1d", "++1d", ".+1d", ".+5h", "++6h", "+1w", "+1m", "++1m", "+12h", ".+1w", "")
_BASES: Final = (25, *(480, 720, 1440) * 10)  # minutes; a quick one costs much to simulate
_POLICIES: Final = (
    "CATCHUP: all",
    "CATCHUP: latest",
    "CATCHUP: none",
    "OVERLAP: queue",
    "OVERLAP: allow",
    "OVERLAP: skip",
    "RETRY: 2 30s",
    "RETRY: 1 10m",
    "TIMEOUT: 15m",
    "JITTER: 5m",
    "PAUSE-AFTER: 3",
)


def invent(roll: Random, *, start: datetime, most: int = 8) -> Written:
    """Return what is written in a world when it begins."""
    files: dict[str, str] = {}
    for number in range(roll.randint(3, most)):
        file = roll.choice(("garden.org", "house.org", "work.org"))
        files[file] = files.get(file, "") + workflow(roll, f"Task {number}", start=start)
    if roll.random() < 0.5:
        files["work.org"] = files.get("work.org", "") + alarm(roll)
    crew = [
        Member(name, timedelta(minutes=max(least, roll.choice(_BASES))))
        for name, least in (("wren", 480), ("moss", 25))
        if roll.random() < 0.6
    ]
    board = [Card("tidy", roll.choice(CRONS[:8]))] if roll.random() < 0.6 else []
    triggers = {"poll": Trigger("poll", roll.choice(CRONS[:6]), "wren")}
    plans = Plans(roll.choice(ZONES), files)
    return Written(plans, crew, board, triggers if roll.random() < 0.6 else {})


def workflow(roll: Random, title: str, *, start: datetime) -> str:
    """Return a workflow with some rule and some policy."""
    props = [f":{each}" for each in roll.sample(_POLICIES, roll.choice((0, 0, 1, 1, 2)))]
    kinds = {each.partition(":")[0]: each for each in (one[1:] for one in props)}
    props = [f":{each}" for each in kinds.values()]
    if roll.random() < 0.15:
        until = start + timedelta(days=roll.randint(5, 90))
        props.append(f":UNTIL: {until:%Y-%m-%d}")
    if roll.random() < 0.4:
        props.append(f":ID: {title.replace(' ', '-').lower()}")
    return compose(title, rule(roll, start=start), props, body=f"Do it: {title}.")


def alarm(roll: Random) -> str:
    """Return a workflow that follows others."""
    after = roll.choice(("failed of all", "failed, missed", "late of all", "missed of all"))
    return compose("Alarm", "", [f":AFTER: {after}", ":ID: alarm"], body="Notify the team.")


def rule(roll: Random, *, start: datetime) -> str:
    """Return a when: a cron expression, or a stamp in its brackets."""
    if roll.random() < 0.5:
        return roll.choice(CRONS)
    day = start + timedelta(days=roll.randint(-20, 20))
    if roll.random() < 0.15:
        day = datetime(2026, 1, 31, tzinfo=UTC)
    clock = roll.choice(("09:00", "02:30", "01:45", "23:55", "00:00"))
    repeater = roll.choice(REPEATERS)
    return f"<{day:%Y-%m-%d} {clock}{' ' * bool(repeater)}{repeater}>"


def compose(title: str, when: str, props: list[str], *, body: str) -> str:
    """Return the text of a workflow."""
    is_stamp = when.startswith("<")
    lines = props if is_stamp or not when else [f":SCHEDULE: {when}", *props]
    planning = f"SCHEDULED: {when}\n" if is_stamp else ""
    drawer = "".join(f"{line}\n" for line in (":PROPERTIES:", *lines, ":END:")) if lines else ""
    return f"* {title} :workflow:\n{planning}{drawer}{body}\n"
