"""Attribution beside the sampling loop: the kubelet may take its time, sampling may not."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from queue import SimpleQueue
from types import MappingProxyType

from gpu.device import GpuProcess
from telemetry.attribution.attribute import Attribution, attribute
from telemetry.attribution.claimed_devices import on_boards
from telemetry.attribution.device_grants import DeviceGrant
from telemetry.attribution.procfs import process_homes
from wattpack.errors import WattpackError
from wattpack.units import GpuUuid

log = logging.getLogger(__name__)

Processes = Mapping[GpuUuid, tuple[GpuProcess, ...]]
ListGrants = Callable[[], tuple[DeviceGrant, ...]]


class Attributor:
    """Joins processes with pods in a thread of its own; ``latest`` is always there.

    Args:
        list_grants: Asks the kubelet; None where there is none.
        proc: The host's /proc.
        minors: The node's boards by minor number, by which ResourceClaims name them.
    """

    def __init__(
        self,
        list_grants: ListGrants | None,
        proc: Path = Path("/proc"),
        minors: Mapping[int, GpuUuid] = MappingProxyType({}),
    ) -> None:
        self.latest = Attribution()
        self._list_grants = list_grants
        self._proc = proc
        self._minors = minors
        self._failing = False
        self._jobs: SimpleQueue[Processes | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="attribution", daemon=True)
        self._thread.start()

    def submit(self, processes: Processes) -> None:
        """Attribute this list next, unless the previous one is still under way."""
        if self._jobs.empty():
            self._jobs.put(processes)

    def close(self) -> None:
        """Let the thread end."""
        self._jobs.put(None)

    def attribute_now(self, processes: Processes) -> Attribution:
        """The attribution of one list, in the caller's thread."""
        pids = {process.pid for listed in processes.values() for process in listed}
        self.latest = attribute(self._grants(), processes, process_homes(pids, self._proc))
        return self.latest

    def _run(self) -> None:
        while (processes := self._jobs.get()) is not None:
            try:
                self.attribute_now(processes)
            except Exception:
                # The next list is attributed anew; a dead thread would name old pods for ever.
                log.exception("attribution failed and goes on")

    def _grants(self) -> tuple[DeviceGrant, ...] | None:
        if self._list_grants is None:
            return None
        try:
            found = self._list_grants()
        except WattpackError as error:
            if not self._failing:
                log.warning("pods are attributed by cgroup only: %s", error)
            self._failing = True
            return None
        self._failing = False
        return on_boards(found, self._minors)
