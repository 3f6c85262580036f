"""A world in a few seconds: the real engine, rules and ledger under a clock that only jumps.

`simulate` runs a setting and says whether every promise was kept. The same setting gives the
same trace, byte for byte. `shrink` makes a setting that fails as small as it can.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from simulate.cluster import Cluster, SharedShelf
from simulate.faults import Fault, Level
from simulate.world import Outage, Setting, Shelf, Verdict, World

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "Cluster",
    "Fault",
    "Level",
    "Outage",
    "Setting",
    "SharedShelf",
    "Shelf",
    "Verdict",
    "World",
    "shrink",
    "simulate",
]


def simulate(setting: Setting, shelf: Shelf) -> Verdict:
    """Return what becomes of a world."""
    return World(setting, shelf).run()


def shrink(setting: Setting, run: Callable[[Setting], Verdict]) -> Verdict:
    """Return the verdict of the smallest setting found that still fails as this one does.

    Kinds of faults and workflows are left out, one after the other.
    """
    least = run(setting)
    if least.broken is None:
        return least
    promise = least.broken.promise
    smaller = [
        *(replace(least.setting, most=most) for most in range(3, setting.most)),
    ]
    for candidate in smaller:
        found = run(candidate)
        if found.broken is not None and found.broken.promise == promise:
            least = found
            break
    for fault in Fault:
        if fault in least.setting.without:
            continue
        candidate = replace(least.setting, without=(*least.setting.without, fault))
        found = run(candidate)
        if found.broken is not None and found.broken.promise == promise:
            least = found
    return least
