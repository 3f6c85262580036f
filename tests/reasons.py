"""Reasons for tests that do not look at their codes."""

from __future__ import annotations

from horae.core.receipt import Reason, ReasonCode


def because(words: str) -> Reason:
    """Return words as a reason of no particular code."""
    return Reason(ReasonCode.OTHER, words)
