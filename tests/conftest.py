"""Settings of all tests."""

from __future__ import annotations

from contextlib import suppress

with suppress(ImportError):  # the oldest Python runs only the tests that do not need it
    from hypothesis import HealthCheck, settings

    # How long an example takes says more about the load of the machine than about the code.
    settings.register_profile("horae", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("horae")
