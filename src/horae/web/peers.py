"""Who is at the other end: an address, whom a proxy that is trusted speaks for, or a user."""

from __future__ import annotations

import os
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable
    from ipaddress import IPv4Address

Network: TypeAlias = IPv4Network | IPv6Network

# Level, option, size and layout of what a system tells of the other end, the user second.
_LINUX: Final = (socket.SOL_SOCKET, getattr(socket, "SO_PEERCRED", None), 12, "iII")
_BSD: Final = (0, getattr(socket, "LOCAL_PEERCRED", None), 76, "II")


@dataclass(frozen=True, slots=True)
class Proxies:
    """The proxies whose word counts."""

    networks: tuple[Network, ...] = ()

    @classmethod
    def of(cls, texts: Iterable[str]) -> Proxies:
        """Return the proxies at some addresses, each of one machine or of a network."""
        return cls(tuple(ip_network(each, strict=False) for each in texts))

    def is_one(self, address: str) -> bool:
        """Tell whether an address is that of a proxy."""
        found = _parsed(address) if self.networks else None
        return found is not None and any(found in each for each in self.networks)

    def asking(self, address: str, forwarded: Iterable[str]) -> str:
        """Return who asks: behind proxies, the last address that is none of theirs.

        >>> proxies = Proxies.of(["127.0.0.1", "10.0.0.0/8"])
        >>> proxies.asking("127.0.0.1", ["192.0.2.66, 192.0.2.7", "10.1.2.3"])
        '192.0.2.7'
        >>> proxies.asking("192.0.2.9", ["192.0.2.66"])
        '192.0.2.9'
        """
        hops = [hop.strip() for line in forwarded for hop in line.split(",")]
        while hops and self.is_one(address):
            before = _parsed(hops.pop())
            if before is None:
                break
            address = str(before)
        return peer_of(address)


def peer_of(address: str) -> str:
    """Return who is counted for an address: of IPv6 the network of 64 bits that one is given.

    >>> peer_of("192.0.2.7"), peer_of("2001:db8::1:2"), peer_of("::ffff:192.0.2.7")
    ('192.0.2.7', '2001:db8::/64', '192.0.2.7')
    """
    found = _parsed(address)
    if found is None:
        return address
    if isinstance(found, IPv6Address):
        return str(ip_network((found, 64), strict=False))
    return str(found)


def user_of(connection: socket.socket) -> int:
    """Return the user at the other end of a unix socket; if no system call tells, our own.

    The socket is of mode 0600, so besides our own it can only be the administrator.
    """
    for level, option, size, layout in (_LINUX, _BSD):
        if option is not None:
            with suppress(OSError, struct.error):  # the other option is tried
                told = connection.getsockopt(level, option, size)
                return int(struct.unpack_from(layout, told)[1])
    return os.geteuid()


def _parsed(address: str) -> IPv4Address | IPv6Address | None:
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found
