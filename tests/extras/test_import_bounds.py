"""However a text is made, an importer takes about a second for a megabyte, or refuses it."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from horae.extras.importers.apscheduler import read_program
from horae.extras.importers.crontab import read_crontab
from horae.extras.importers.github import read_workflow
from horae.extras.importers.job import MOST, MOST_REFUSALS, Reading, import_job
from horae.extras.importers.systemd import read_timer

if TYPE_CHECKING:
    from collections.abc import Callable

NOW = datetime(2026, 11, 14, tzinfo=UTC)
DIGITS = "9" * 4_000
DASHES = "-" * 4_000
CRON = "on:\n  schedule:\n"
WORK = "jobs: {a: {steps: [{run: make}]}}\n"
BOUND = 5.0  # seconds of the processor: far more than it takes, and far less than it did


def crontab(text: str) -> Reading:
    return read_crontab(text, zone_name="Europe/Berlin")


def timer(text: str) -> Reading:
    return read_timer(
        f"[Timer]\n{text}\n[Service]\nExecStart=/bin/true\n",
        name="a.timer",
        service=None,
        zone_name="Europe/Berlin",
    )


def workflow(text: str) -> Reading:
    return read_workflow(text, name="a.yml")


def program(text: str) -> Reading:
    return read_program(text, name="a.py", zone_name="Europe/Berlin", now=NOW)


def imported(read: Callable[[str], Reading], text: str) -> tuple[Reading, int]:
    """Read a text and compare its jobs, as a command does; return how many were taken, too."""
    before, reading = time.process_time(), read(text)
    taken = sum(import_job(job, now=NOW).is_taken for job in reading.jobs)
    assert time.process_time() - before < BOUND
    assert all(len(str(each)) < 1_000 for each in reading.remarks)
    return reading, taken


MANY: dict[str, tuple[Callable[[str], Reading], str]] = {
    "one rule": (crontab, "*/5 * * * * true\n" * 50_000),
    "rules that differ": (
        crontab,
        "".join(f"{n % 60} {n // 60 % 24} {n % 28 + 1} * * x{n}\n" for n in range(40_000)),
    ),
    "rules that come rarely": (
        crontab,
        "".join(f"{n % 60} {n // 60 % 24} 29 2 * x{n}\n" for n in range(40_000)),
    ),
    "lines that are none": (crontab, "x y z\n" * 160_000),
    "variables": (crontab, "".join(f"V{n}=1\n" for n in range(60_000)) + "0 0 * * * x\n" * 9_000),
    "zones that are none": (crontab, "".join(f"CRON_TZ=Europe/X{n}\n" for n in range(50_000))),
    "a line without end": (crontab, f"0 0 * * * a {'b ' * 490_000}\n"),
    "events": (timer, "OnCalendar=*-*-* 00:00:00\n" * 20_000),
    "units": (timer, f"OnCalendar=daily\n[Unit]\nOnFailure={'a.service ' * 900}\n"),
    "crons": (workflow, CRON + "    - cron: '0 0 29 2 *'\n" * 16_000 + WORK),
    "events in many zones": (
        timer,
        "".join(f"OnCalendar=*-02-29 1:{n % 60}:00 Etc/GMT-{n % 14}\n" for n in range(400)),
    ),
    "lines that are no setting": (timer, "[[]]\n" * 200_000),
    "per cent signs": (crontab, f"0 0 * * * {'a%b' * 3_000}\n" * 110),
    "calls for 29 February": (
        program,
        "".join(
            f"s.add_job(f, 'cron', month=2, day=29, hour={n % 24}, minute={n // 24 % 60})\n"
            for n in range(3_000)
        ),
    ),
    "calls": (program, "s.add_job(f, 'cron', hour=1)\n" * 6_000),
    "calls by the second": (
        program,
        "".join(
            f"s.add_job(f, 'cron', hour='1-3', second='*/{n % 29 + 2}')\n" for n in range(3_000)
        ),
    ),
}


@pytest.mark.parametrize("what", MANY)
def test_a_large_text_is_taken_up_to_a_bound_and_the_rest_is_named(what: str) -> None:
    reading, taken = imported(*MANY[what])
    refused = [each for each in reading.remarks if not each.is_taken]
    assert len(reading.jobs) <= MOST
    assert taken <= MOST
    assert taken == MOST or what != "rules that differ"
    assert len(refused) <= MOST_REFUSALS + 1
    assert refused or what in {"crons", "units", "events in many zones", "per cent signs"}, (
        "no line is dropped without a word"
    )


@pytest.mark.parametrize(
    ("read", "text", "said"),
    [
        (crontab, f"{DIGITS} * * * * x\n", "minute '999999"),
        (crontab, f"*/{DIGITS} * * * * x\n", "has no step after /"),
        (crontab, f"{DASHES} * * * * x\n", "minute '------"),
        (crontab, f"1{'-1' * 4_000} * * * * x\n", "cannot be read"),
        (timer, f"OnCalendar=*-*-{DIGITS} 00:00:00", "is not a calendar event"),
        (timer, f"OnCalendar=*-*~1/{'9' * 900} 00:00:00", "goes past the end of the month"),
        (timer, f"OnCalendar={DASHES}", "is not a calendar event"),
        (workflow, "- " * 450_000 + "x\n", "more than 64 levels"),
        (workflow, f"on:\n  schedule:\n    {'- ' * 400}cron: x\n{WORK}", "64"),
        (workflow, f"{CRON}    - cron: '{DIGITS} * * * *'\n{WORK}", "minute '999999"),
        (workflow, f"{CRON}    - cron: '{DASHES} * * * *'\n{WORK}", "minute '------"),
        (program, f"s.add_job(f, 'interval', hours={'-' * 100_000}1)\n", "nested too deeply"),
        (program, f"s.add_job(f, {'-' * 900}x)\n", "is not a literal"),
        (program, f"s.add_job(f, 'cron', hour=1, args=[{'-' * 900}1])\n", "are not literals"),
        (program, f"s.add_job(f, 'interval', hours={DIGITS})\n", "larger than 1,000,000,000"),
        (program, f"s.add_job(f, 'interval', hours={DIGITS}{DIGITS})\n", "not valid Python"),
        (program, f"s.add_job(f, 'cron', hour={DIGITS})\n", "larger than 1,000,000,000"),
        (program, f"s.add_job(f, 'cron', hour=0x{'f' * 190_000})\n", "larger than"),
        (program, f"s.add_job(f, 'cron', hour='{DIGITS}')\n", "hour '999999"),
        (program, f"s.add_job(f, 'cron', hour=1, jitter={DIGITS})\n", "larger than"),
        (program, "s.add_job(f, 'cron', hour=1, jitter=1e999)\n", "larger than"),
        (program, f"s.add_job(f, 'cron', hour=1, args=[0x{'f' * 9_000}])\n", "out of range"),
        (program, f"s.add_job(f, 'date', run_date=datetime({DIGITS}, 1, 1))\n", "is not a literal"),
        (program, f"s.add_job(f, 'date', run_date='{DIGITS}')\n", "is not a date"),
        (program, "s.add_job(f, 'date', run_date='9999-12-31')\n", "the year 9999"),
        (program, "s.add_job(f, 'interval', weeks=999999999)\n", "longer than 30 years"),
    ],
)
def test_digits_and_dashes_without_end_are_refused_in_a_short_line(
    read: Callable[[str], Reading], text: str, said: str
) -> None:
    reading, taken = imported(read, text)
    assert taken == 0
    (remark,) = reading.remarks
    assert said in remark.what
    assert len(str(remark)) < 300
