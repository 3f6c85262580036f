"""Trust in one's own lease ends before the lease does."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given, strategies as st

from horae.core.lease import trusted_until

lengths = st.timedeltas(timedelta(0), timedelta(days=1))


@given(began=lengths, asked=lengths, lease=lengths, margin=lengths)
def test_trust_ends_before_the_lease_whenever_the_database_has_counted(
    began: timedelta, asked: timedelta, lease: timedelta, margin: timedelta
) -> None:
    # The database granted it somewhere between the call's begin and its answer.
    granted = began + asked
    trusted = trusted_until(began, lease, margin=margin)
    assert trusted + min(margin, lease) <= granted + lease


@given(began=lengths, lease=lengths, margin=lengths)
def test_a_margin_longer_than_the_lease_leaves_no_trust_at_all(
    began: timedelta, lease: timedelta, margin: timedelta
) -> None:
    assert trusted_until(began, lease, margin=lease + margin) <= began
