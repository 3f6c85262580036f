"""The names by which the server is asked, and which cookie counts under each.

Cookies know no ports: a browser sends one to every server of its host. So the page has a host name
of its own that nobody can guess, and under the names that every server of this machine shares no
cookie counts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import timedelta

LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
BITS: Final = 96  # of chance in the name of the page

_HOST: Final = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Names:
    """The names by which one server is asked."""

    page: str  # below localhost, so that every name service and browser keeps it on this machine
    proxied: frozenset[str] = frozenset()  # those of proxies in front, which speak TLS
    others: frozenset[str] = frozenset(LOOPBACK)

    @classmethod
    def of(cls, seed: str, *, proxied: Iterable[str] = (), others: Iterable[str] = ()) -> Names:
        """Return the names of a server; that of its page follows from a secret in hexadecimal."""
        return cls(
            f"horae-{seed[: BITS // 4]}.localhost",
            frozenset(each.lower() for each in proxied),
            frozenset(
                {*LOOPBACK, *(f"[{each}]" if ":" in each else each.lower() for each in others)}
            ),
        )

    def has(self, host: str) -> bool:
        """Tell whether a host is this server."""
        return host == self.page or host in self.proxied or host in self.others

    def cookie(self, host: str) -> str | None:
        """Return what the cookie of a session is called under a name; None: none counts there."""
        if host == self.page:
            return "horae-session"
        if host in self.proxied:
            # Two engines may stand behind one name. A browser takes this one from TLS alone,
            # and from no other host.
            return f"__Host-horae-{sha256(self.page.encode()).hexdigest()[:8]}"
        return None


def host_of(text: str) -> str | None:
    """Return the name in a Host header, without its port.

    >>> host_of("Plans.example.org:8443"), host_of("[::1]:7117"), host_of("a@b")
    ('plans.example.org', '[::1]', None)
    """
    match = _HOST.fullmatch(text)
    return None if match is None else match[1].lower()


def set_cookie(name: str, value: str, *, age: timedelta) -> str:
    """Return the header that gives a browser a cookie for its host alone, out of scripts' reach.

    >>> from datetime import timedelta
    >>> set_cookie("__Host-x", "1", age=timedelta(minutes=1))
    '__Host-x=1; Max-Age=60; Path=/; HttpOnly; SameSite=Strict; Secure'
    """
    secure = "; Secure" if name.startswith("__Host-") else ""  # which browsers demand
    seconds = int(age.total_seconds())
    return f"{name}={value}; Max-Age={seconds}; Path=/; HttpOnly; SameSite=Strict{secure}"
