"""What the text of a host says about where it is."""

from __future__ import annotations

import ipaddress

__all__ = ["is_address", "is_loopback"]


def is_address(host: str) -> bool:
    """Whether a host is written as an IP address; IPv6 may stand in brackets."""
    return _address(host) is not None


def is_loopback(host: str) -> bool:
    """Whether a host is certainly this machine."""
    address = _address(host)
    return host == "localhost" if address is None else address.is_loopback


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None
