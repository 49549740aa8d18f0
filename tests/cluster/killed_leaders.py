"""A row of simulated boards below replicas of the controller that are killed while they lead.

    wattpack controller ×2 (own processes, own accounts) <── Lease ──> test control plane
        └── gRPC streams over TLS ──> agents ──> Unix sockets ──> actuators ──> boards

The stopwatch reads the boards themselves, so that nothing which the product reports decides.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from capacity.profile_library import gpu_profile_object, shipped_library
from tests.cluster.cluster_builders import Body, create
from tests.cluster.cluster_processes import eventually
from tests.cluster.control_plane import ControlPlane
from tests.cluster.e2e_release import NO_FLOW_SCHEMA, LiveRelease
from tests.cluster.e2e_servers import GPUS, MODEL, Pace, Running, Servers
from tests.cluster.e2e_world import OURS, bind_to, fetched
from wattpack.clock import SystemClock
from wattpack.units import NS_PER_SECOND

NODES = tuple(f"gpu-{i}" for i in range(4))
GUARANTEED_WATTS, BUSY_WATTS = 400.0, 500.0
#: All boards at 700 W and 1.5 kW a server are 30.2 kW: 4 % more than the breaker is rated for.
RATING_WATTS = 29_000
ROUND_NS = NS_PER_SECOND
#: A standby must have heard everybody for ten ticks; one more may be under way.
STANDBY_TICKS = 12
LIMIT_SECONDS = 60.0
#: Every duration of election and leases is the product's default.
VALUES: dict[str, Any] = {
    "enforcement": "Enforce",
    "actuator": {"guaranteedCapWatts": {MODEL: GUARANTEED_WATTS}},
    **NO_FLOW_SCHEMA,
    # The test server does not count volume claim templates among a pod's volumes.
    "controller": {"persistence": {"enabled": False}},
}


@dataclass(frozen=True, slots=True)
class TakeOver:
    """What one kill cost, in seconds of wall time from the signal.

    Attributes:
        fell: Boards that fell below their limit of before.
        lowest_watts: The lowest limit on any board.
        peak_ratio: The highest draw at the breaker, of its rating.
        leads_seconds: Until the Lease names the other replica.
        first_seconds: Until the first board that fell was back at its limit of before.
        last_seconds: Until the last one was.
    """

    fell: int
    lowest_watts: float
    peak_ratio: float
    leads_seconds: float
    first_seconds: float
    last_seconds: float


class Stopwatch:
    """Looks at the boards again and again after a kill.

    Args:
        before: Their limits when the leader was killed, in watts.
        killed_ns: When that was.
    """

    def __init__(self, before: list[float], killed_ns: int) -> None:
        self._before, self._killed_ns = before, killed_ns
        self._fell: set[int] = set()
        self._back_seconds: dict[int, float] = {}
        self._leads_seconds: float | None = None
        self._lowest_watts = min(before)
        self._peak_watts = 0.0

    def look(self, boards: Servers, now_ns: int, another_leads: bool) -> None:
        """Note what is new."""
        after = (now_ns - self._killed_ns) / NS_PER_SECOND
        if another_leads and self._leads_seconds is None:
            self._leads_seconds = after
        self._peak_watts = max(self._peak_watts, boards.breaker_watts())
        for board, watts in enumerate(boards.limits_watts()):
            self._lowest_watts = min(self._lowest_watts, watts)
            if watts < self._before[board] - 1.0:
                self._fell.add(board)
                self._back_seconds.pop(board, None)
            elif board in self._fell:
                self._back_seconds.setdefault(board, after)

    def over(self) -> bool:
        """Whether another leads and every board that fell is back."""
        return bool(self._fell) and self._fell == set(self._back_seconds)

    def result(self) -> TakeOver:
        """What was seen; only once it is over."""
        assert self._leads_seconds is not None
        back = self._back_seconds.values()
        return TakeOver(
            fell=len(self._fell),
            lowest_watts=self._lowest_watts,
            peak_ratio=self._peak_watts / RATING_WATTS,
            leads_seconds=self._leads_seconds,
            first_seconds=min(back),
            last_seconds=max(back),
        )


class KilledLeaders:
    """The row; ``start`` it, ``kill_leader`` as often as needed, ``stop`` it.

    Args:
        plane: A control plane without anything on it.
        directory: For settings, tokens and logs.
    """

    def __init__(self, plane: ControlPlane, directory: Path) -> None:
        self._clock = SystemClock()
        self._plane = plane
        self._release = LiveRelease(plane, directory, VALUES)
        self._servers: Servers | None = None
        self._reader = ""

    def start(self) -> None:
        """Two replicas, boards under load at their highest limit, and a standby that knows them."""
        plane, release = self._plane, self._release
        plane.start_kwok()
        plane.start_binder()
        release.add_servers(NODES, GPUS, MODEL.replace(" ", "-"))
        release.install()
        for index in range(2):
            release.start_controller(index)
        create(plane, f"{OURS}/gpuprofiles", gpu_profile_object(shipped_library().find(MODEL), ""))
        create(plane, f"{OURS}/powerdomains", row())
        self._reader = self._token_of_a_reader()
        self._servers = Servers(
            NODES,
            [f"127.0.0.1:{port}" for port in release.ports.values()],
            release.server_name(),
            release.mount_authority(),
            {name: release.agent_token(name) for name in NODES},
            busy,
            Pace(ROUND_NS, BUSY_WATTS),
        )
        self._servers.start()
        self.until_a_standby_knows_the_row()
        # Raised quickly to save time; what is measured is at the ordinary 2 % a second.
        body = {"spec": {"maxRaiseFractionPerSecond": 0.02}}
        answer = plane.request("PATCH", f"{OURS}/powerdomains/row", body, patch="merge")
        assert answer.status == 200, answer.message

    def stop(self) -> None:
        """End every process and thread."""
        if self._servers is not None:
            self._servers.stop()
        self._release.stop()

    @property
    def boards(self) -> Servers:
        """The boards with their actuators and agents."""
        assert self._servers is not None
        return self._servers

    def leader(self) -> str:
        """The replica that holds the Lease; empty for none."""
        holder = self._lease("holderIdentity")
        return next((n for n in self._release.ports if holder.startswith(n)), "")

    def kill_leader(self, *, after_renewal: bool) -> TakeOver:
        """SIGKILL for the leader; what the boards do until all are back.

        Args:
            after_renewal: Kill it when it has just renewed, which costs the most time.
        """
        first, before = self.leader(), self.boards.limits_watts()
        if after_renewal:
            renewed = self._lease("renewTime")
            changed = lambda: self._lease("renewTime") != renewed  # noqa: E731
            eventually("the leader renews", changed, LIMIT_SECONDS)
        watch = Stopwatch(before, self._clock.monotonic_ns())
        self._release.processes[first].kill()

        def all_back() -> bool:
            watch.look(self.boards, self._clock.monotonic_ns(), self.leader() not in ("", first))
            return watch.over()

        eventually("every board is back", all_back, LIMIT_SECONDS)
        return watch.result()

    def restart_killed(self) -> None:
        """The replica that was killed comes back, as its pod would."""
        for index, name in enumerate(tuple(self._release.ports)):
            if not self._release.processes[name].running():
                self._release.start_controller(index)
        self.until_a_standby_knows_the_row()

    def until_a_standby_knows_the_row(self) -> None:
        """Every board at its highest limit, and the standby has heard everybody for long enough."""
        standby = eventually("a leader and a standby", self._standby, LIMIT_SECONDS)
        heard = lambda name: self._sample(standby, name)  # noqa: E731
        hears_all = lambda: heard("wattpack_agent_streams") == len(NODES)  # noqa: E731
        eventually(f"{standby} hears all agents", hears_all, LIMIT_SECONDS)
        ticks = heard("wattpack_tick_seconds_count") + STANDBY_TICKS
        known = lambda: heard("wattpack_tick_seconds_count") >= ticks  # noqa: E731
        eventually(f"{standby} has ticked {STANDBY_TICKS} times", known, LIMIT_SECONDS)
        full = lambda: min(self.boards.limits_watts()) > 690.0  # noqa: E731
        eventually("every board is at its highest limit", full, LIMIT_SECONDS)

    def _lease(self, field: str) -> str:
        return str(self._release.lease("wattpack-controller").get(field, ""))

    def _standby(self) -> str | None:
        """The replica beside a leader; None while nobody leads."""
        leader = self.leader()
        return next(n for n in self._release.ports if n != leader) if leader else None

    def _sample(self, replica: str, name: str) -> float:
        """One figure of a replica's metrics; 0 while nobody answers."""
        url = f"http://127.0.0.1:{self._release.http_ports[replica]}/metrics"
        found = re.search(rf"^{name} (\S+)$", fetched(url, self._reader)[1].decode(), re.MULTILINE)
        return float(found[1]) if found else 0.0

    def _token_of_a_reader(self) -> str:
        create(self._plane, "/api/v1/namespaces", {"metadata": {"name": "team"}})
        accounts = "/api/v1/namespaces/team/serviceaccounts"
        create(self._plane, accounts, {"metadata": {"name": "reader"}})
        bind_to(self._plane, "wattpack-metrics-reader", "reader")
        return self._release.token("reader", "team")


def row() -> Body:
    """The breaker above the servers."""
    return {
        "apiVersion": "wattpack.io/v1alpha1",
        "kind": "PowerDomain",
        "metadata": {"name": "row"},
        "spec": {
            "ratingWatts": RATING_WATTS,
            "members": {"nodeNames": list(NODES)},
            "nonGpuPerNode": {"worstWatts": 1500, "idleWatts": 1000},
            "maxRaiseFractionPerSecond": 0.2,
            "loadDeclaredComplete": True,
            "enforcement": "Enforce",
        },
    }


def busy() -> list[Running]:
    """One pod a server, with all of its boards."""
    return [Running("team", f"work-{name}", name, name, GPUS) for name in NODES]


def measured(
    plane: ControlPlane, directory: Path, kills: int, told: Callable[[TakeOver], None]
) -> list[TakeOver]:
    """That many kills, each with a standby that knows the row; every other one at the worst moment.

    The others fall when they fall: the pause before them is not in step with the renewals.
    """
    row_of_boards = KilledLeaders(plane, directory)
    found = []
    try:
        row_of_boards.start()
        for kill in range(kills):
            if kill:
                row_of_boards.restart_killed()
            found.append(row_of_boards.kill_leader(after_renewal=kill % 2 == 0))
            told(found[-1])
    finally:
        row_of_boards.stop()
    return found
