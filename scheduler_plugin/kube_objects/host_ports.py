"""Ports of a node that pods take for themselves (``hostPort``), as amounts that run out.

Two pods take one another's port where protocol and number are the same and so is the address, or
one of them takes all addresses (``HostPortInfo.CheckConflict`` of kube-scheduler). So each port is
a resource of which every node has one for each address that somebody names; who takes all
addresses asks for one of each.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from scheduler_plugin.kube_objects import pods as pod_facts
from wattpack.kube.port import JsonObject

__all__ = ["MOST_ADDRESSES", "MOST_PORTS", "HostPorts"]

#: Ports that are told apart; further ones count as one and the same, so that a snapshot stays small
#: whatever pods ask for.
MOST_PORTS = 64
#: Addresses of one port that are told apart; with more, all count as one.
MOST_ADDRESSES = 4
_PREFIX = "wattpack.io/host-port:"
_OTHERS = f"{_PREFIX}others"
_ALL_ADDRESSES = ("", "0.0.0.0")


class _Port(NamedTuple):
    """Number and protocol."""

    number: int
    protocol: str


class HostPorts:
    """Ports that pods without a node ask for, and who takes them.

    Args:
        pods: All pods, as the API server shows them.
    """

    def __init__(self, pods: Iterable[JsonObject]) -> None:
        alive = [(pod, asked) for pod in pods if (asked := _asked(pod))]
        alive = [(pod, asked) for pod, asked in alive if not pod_facts.is_finished(pod)]
        wanted = {port for pod, asked in alive if not pod_facts.node_name(pod) for port, _ in asked}
        own = sorted(wanted)[:MOST_PORTS]
        addresses: dict[_Port, set[str]] = defaultdict(set)
        for _, asked in alive:
            for port, address in asked:
                addresses[port].add(address)
        self._units = {port: _units(port, addresses[port] - {""}) for port in own}
        self._units |= {port: {"": _OTHERS} for port in wanted - set(own)}

    def offered(self) -> dict[str, int]:
        """What every node has, one of each, by the name of a resource."""
        return {name: 1 for units in self._units.values() for name in units.values()}

    def of(self, pod: JsonObject) -> dict[str, int]:
        """What the pod takes of that, waiting or running."""
        names: set[str] = set()
        for port, address in _asked(pod) if self._units else ():
            if units := self._units.get(port):
                every = not address or "" in units
                names |= {*units.values()} if every else {units[address]}
        return dict.fromkeys(sorted(names), 1)


def _units(port: _Port, addresses: set[str]) -> dict[str, str]:
    """Resource name by address; one for all of them where they need not or cannot be told apart."""
    words = f"{port.number}/{port.protocol}"
    if not 1 < len(addresses) <= MOST_ADDRESSES:
        return {"": f"{_PREFIX}{words}"}
    return {address: f"{_PREFIX}{address}:{words}" for address in sorted(addresses)}


def _asked(pod: JsonObject) -> list[tuple[_Port, str]]:
    """Ports with their address, empty for all addresses."""
    spec = pod["spec"]
    shared = bool(spec.get("hostNetwork"))
    sidecars = (c for c in spec.get("initContainers") or () if c.get("restartPolicy") == "Always")
    found = []
    for container in (*(spec.get("containers") or ()), *sidecars):
        for entry in container.get("ports") or ():
            if number := _number(entry, shared):
                address = str(entry.get("hostIP") or "")
                known = "" if address in _ALL_ADDRESSES else address
                found.append((_Port(number, str(entry.get("protocol") or "TCP")), known))
    return found


def _number(entry: Mapping[str, Any], shared: bool) -> int:
    """On the network of the host each port of a container is one of the host's."""
    number = entry.get("hostPort") or (entry.get("containerPort") if shared else 0)
    return number if isinstance(number, int) and 1 <= number <= 65_535 else 0
