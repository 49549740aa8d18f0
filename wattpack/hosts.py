"""What the text of a host says about where it is."""

from __future__ import annotations

import ipaddress
import socket

__all__ = ["bare", "is_address", "is_loopback", "socket_family"]


def is_address(host: str) -> bool:
    """Whether a host is written as an IP address; IPv6 may stand in brackets."""
    return _address(host) is not None


def is_loopback(host: str) -> bool:
    """Whether a host is certainly this machine."""
    address = _address(host)
    return host == "localhost" if address is None else address.is_loopback


def bare(host: str) -> str:
    """The host as sockets take it: IPv6 without brackets."""
    return host.strip("[]")


def socket_family(host: str) -> socket.AddressFamily:
    """Which sockets listen on a host; those on ``::`` take IPv4, too, where the system does so."""
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(bare(host))
    except ValueError:
        return None
