"""A run that prints gibibytes: bounded memory, beginning and end to the byte, a follower in time."""

from __future__ import annotations

import os
import re
import sys
import time
from typing import TYPE_CHECKING

from commands import is_healthy
from horae.client import Client
from horae.process.logs import RunLog
from process.stage import proc
from scale import scaled
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterable

    from crash.stage import Home

MIB = 1 << 20
BLOCKS = max(100, scaled(2048))  # of a mebibyte, more than is kept
PRINTS = """\
import os, sys
for number in range(int(sys.argv[1])):
    block = memoryview((b"block %09d\\n" % number) * 65536)
    while block:
        block = block[os.write(1, block):]
os.open("printed", os.O_CREAT)
os.open(sys.argv[2], os.O_RDONLY)
"""
_LEFT_OUT = re.compile(rb"\n\[(\d+) bytes of output left out\]\n")


def printed(start: int, size: int) -> bytes:
    """Return what the run prints at an offset."""
    first, last = start // MIB, (start + size) // MIB
    whole = b"".join((b"block %09d\n" % number) * 65536 for number in range(first, last + 1))
    return whole[start - first * MIB :][:size]


def peak(pid: int) -> int:
    """Return the most memory that a process has had, in mebibytes."""
    found = re.search(rb"VmHWM:\s+(\d+) kB", proc(pid, "status"))
    return int(found[1]) // 1024 if found else 0


def is_right(shown: bytes, start: int = 0) -> int:
    """Compare an output that may have gaps with what was printed; return the offset of its end."""
    for number, part in enumerate(_LEFT_OUT.split(shown)):
        if number % 2:
            start += int(part)
        else:
            for at in range(0, len(part), 8 * MIB):
                piece = part[at : at + 8 * MIB]
                assert piece == printed(start + at, len(piece)), f"from byte {start + at} on"
            start += len(part)
    return start


def followed(parts: Iterable[bytes]) -> tuple[bytes, float]:
    """Return what a follower got, and the longest time in which it got nothing."""
    got, stall, before = [], 0.0, time.monotonic()
    for part in parts:
        got.append(part)
        now = time.monotonic()
        stall, before = max(stall, now - before), now
    return b"".join(got), stall


def test_gibibytes_at_full_speed_leave_memory_flat_and_a_follower_in_time(home: Home) -> None:
    (home.plans / "prints.py").write_text(PRINTS)
    os.mkfifo(home.plans / "go")
    command = f"{sys.executable} prints.py {BLOCKS} go"
    home.write(f"* prints\n:PROPERTIES:\n:COMMAND: {command}\n:END:\n")
    life = home.up()
    life.until(lambda: is_healthy(home.data))
    client, before = Client(home.data), peak(life.pid)
    receipt, began = client.run_now("prints").receipt, time.monotonic()
    run = wait_until(lambda: [each.run for each in client.receipt(receipt).runs])[0]

    def following() -> Iterable[bytes]:
        for part in client.log(run, follow=True):
            yield part
            if (home.plans / "printed").exists():
                return

    shown, stall = followed(following())
    took = time.monotonic() - began
    supervisors = [each for each in life.remains() if each.engine and each.parent != life.pid]
    grown, most = peak(life.pid) - before, max(peak(each.pid) for each in supervisors)
    with (home.plans / "go").open("w"):  # the run ends
        wait_until(lambda: client.run(run).ended_at)
    facts = client.run(run).facts
    [directory] = home.data.glob(f"runs/*/{run}")
    log = RunLog(directory / "output.log")
    [(head, tail)] = log.gaps()
    rate = BLOCKS / took
    sys.stdout.write(
        f"{BLOCKS} MiB in {took:.1f} s ({rate:.0f} MiB/s), followed {len(shown) / MIB:.0f} MiB; "
        f"stall {stall:.2f} s; engine +{grown} MiB, supervisor {most} MiB\n"
    )
    assert (facts["output"], facts["left_out"]) == (BLOCKS * MIB, tail - head)
    assert head == 32 * MIB
    assert 32 * MIB <= BLOCKS * MIB - tail <= 36 * MIB
    assert is_right(b"".join(client.log(run))) == BLOCKS * MIB
    assert 0 < is_right(shown) <= BLOCKS * MIB
    assert grown < 32
    assert most < 48
    assert stall < max(1, os.getloadavg()[0] / (os.cpu_count() or 1))
    assert life.stop() == 0
