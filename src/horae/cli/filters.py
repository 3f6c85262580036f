"""Which headlines `horae query` shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import click

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from zoneinfo import ZoneInfo

    from horae.org.plan import Headline, States


class Filters(NamedTuple):
    """What a headline must have to be shown; nothing asked, everything shown."""

    tags: frozenset[str]
    states: frozenset[str]
    scheduled: bool
    props: tuple[tuple[str, str], ...]
    overdue: tuple[datetime, ZoneInfo] | None

    @classmethod
    def of(
        cls,
        *,
        tags: Sequence[str],
        states: Sequence[str],
        scheduled: bool,
        props: Sequence[str],
        overdue: bool,
        now: str | None,
        root: str = ".",
    ) -> Filters:
        """Return the filters that the options ask for."""
        moment = None
        if overdue:
            from horae.cli.moments import moment_and_zone  # loads zones

            moment = moment_and_zone(now, root=root)
        elif now is not None:
            raise click.UsageError("--at goes with --overdue.")
        return cls(frozenset(tags), frozenset(states), scheduled, tuple(map(_pair, props)), moment)

    def accepts(self, headline: Headline, states: States) -> bool:
        if not self.tags <= set(headline.tags):
            return False
        if self.states and headline.state not in self.states:
            return False
        if self.scheduled and headline.scheduled is None and "SCHEDULE" not in headline.props:
            return False
        if any(headline.props.get(key) != value for key, value in self.props):
            return False
        return self.overdue is None or self._is_overdue(headline, states)

    def _is_overdue(self, headline: Headline, states: States) -> bool:
        """Tell whether the headline is still open after its deadline."""
        from horae.org.deadline import is_overdue

        assert self.overdue is not None
        now, zone = self.overdue
        if headline.deadline is None or headline.state in states.done:
            return False
        return is_overdue(headline.deadline, now=now, zone=zone)


def _pair(text: str) -> tuple[str, str]:
    """Return KEY and VALUE of a --prop option; keys are in capitals, as the reader has them."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise click.UsageError(f"--prop takes KEY=VALUE, not {text!r}.")
    return key.upper(), value.strip()
