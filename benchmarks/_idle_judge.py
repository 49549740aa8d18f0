"""Judges a running row second by second: was a GPU idle although a waiting pod fitted on it?

It shares no arithmetic with the planner that it judges: occupancy, draw and limits come from the
twin's truth and from what the objects say, "fits" is defined here. A job (a pod, or a whole gang)
fits on servers whose free GPUs hold it and below whose breakers it fits by watts:

    true draw + what pods of the last 30 s have yet to draw + what plans leave before work of the
    job's priority (``Limits``) + the job's own watts <= published cap band

A pod's watts are the 95th percentile of its kernel class on that GPU type, above idle.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulation.world import World

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Integers = NDArray[np.int64]
#: Time that the judge gives a pod to start; later its draw speaks for it.
START_SECONDS = 30
GPU = "nvidia.com/gpu"


@dataclass(frozen=True, slots=True)
class Limits:
    """What the objects of the row's domains say now; absent until somebody wrote it.

    Attributes:
        band_watts: Published cap band, (n_domains,), NaN where there is none.
        rise_watts: By how much what runs is expected to rise beyond the present, as plans leave it
            free before a job, (n_domains,).
        low_rise_watts: The same before jobs of a priority below ``low_below``, (n_domains,).
        low_below: Lowest priority that ``rise_watts`` is left free before.
    """

    band_watts: Floats
    rise_watts: Floats
    low_rise_watts: Floats
    low_below: int = 0

    def rise_before(self, priority: int) -> Floats:
        """What is left free before a job of a priority, (n_domains,)."""
        return self.low_rise_watts if priority < self.low_below else self.rise_watts


@dataclass(frozen=True, slots=True)
class Waiting:
    """A pod without a node."""

    job: str
    gpus: int
    kernel_class: str
    priority: int


def waiting_jobs(pods: Sequence[Mapping[str, Any]]) -> list[list[Waiting]]:
    """Pending pods by job: gang members together, others alone; gangs only when all are there."""
    jobs: dict[str, list[Waiting]] = {}
    sizes: dict[str, int] = {}
    for pod in pods:
        if pod["spec"].get("nodeName"):
            continue
        labels = pod["metadata"].get("labels") or {}
        notes = pod["metadata"].get("annotations") or {}
        limits = pod["spec"]["containers"][0]["resources"]["limits"]
        job = labels.get("wattpack.io/gang") or pod["metadata"]["name"]
        sizes[job] = int(notes.get("wattpack.io/gang-size", "1"))
        kernel_class = notes.get("wattpack.io/kernel-class", "")
        waiting = Waiting(job, int(limits[GPU]), kernel_class, pod["spec"].get("priority", 0))
        jobs.setdefault(job, []).append(waiting)
    return [members for job, members in jobs.items() if len(members) >= sizes[job]]


class IdleJudge:
    """Counts, for each GPU, the seconds in a row in which it was free and a job fitted on it.

    Args:
        world: The row's truth.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._seconds = np.zeros(len(world.node_of_gpu), dtype=np.int64)
        self._since: dict[str, int] = {}
        self.longest_seconds = 0
        self.gpu_seconds = 0
        self.free_gpu_seconds = 0
        self.worst = ""

    def second(self, number: int, pods: Sequence[Mapping[str, Any]], limits: Limits) -> None:
        """Judge one second.

        Args:
            number: Of the second since the start.
            pods: Every pod as the API shows it.
            limits: What the objects say.
        """
        free = self._world.assignment.kind == 0
        fits = np.zeros(len(self._world.node_names), dtype=np.bool_)
        room = limits.band_watts - self._drawn(number)
        jobs = waiting_jobs(pods)
        for members in jobs:
            # One job is judged at a time: which of two would be served is the planner's choice.
            left_free = limits.rise_before(min(member.priority for member in members))
            fits |= self._fits(members, free, room - left_free)
        here = free & fits[self._world.node_of_gpu]
        self._seconds = np.where(here, self._seconds + 1, 0)
        self.gpu_seconds += int(here.sum())
        self.free_gpu_seconds += int(free.sum())
        longest = int(self._seconds.max(initial=0))
        if longest > self.longest_seconds:
            self.longest_seconds = longest
            self.worst = (
                f"second {number}: {int(here.sum())} GPUs free for up to {longest} s, "
                f"{len(jobs)} jobs wait, row room {room[0]:.0f} W"
            )

    def _drawn(self, number: int) -> Floats:
        """True draw of each domain with what starting pods have yet to draw, AC watts."""
        world = self._world
        placed = world.assignment.pods
        self._since = {name: self._since.get(name, number) for name in placed}
        added = np.zeros_like(world.servers.domain_watts)
        for name, pod in placed.items():
            if number - self._since[name] >= START_SECONDS:
                continue
            wanted = self._watts(pod.node, pod.work.gpus, str(pod.work.kernel_class))
            gpus = list(pod.gpus)
            above = world.bank.drawn_watts[gpus] - world.bank.idle_watts[gpus]
            still = max(0.0, wanted - float(above.sum()) / self._efficiency())
            added[[0, 1 + int(world.rack_of_node[pod.node])]] += still
        return np.asarray(world.servers.domain_watts + added)

    def _fits(self, members: Sequence[Waiting], free: Bools, room: Floats) -> Bools:
        """Servers that a job may use: each of a single pod's, those that a gang is packed onto."""
        world = self._world
        count = np.bincount(world.node_of_gpu[free], minlength=len(world.node_names))
        good = np.zeros(len(world.node_names), dtype=np.bool_)
        left = room.copy()
        for member in sorted(members, key=lambda m: -m.gpus):
            found = [n for n in range(len(count)) if self._one_fits(member, n, count, left)]
            if not found:
                return np.zeros_like(good)
            good[found if len(members) == 1 else found[:1]] = True
            watts = self._watts(found[0], member.gpus, member.kernel_class)
            left[[0, 1 + int(world.rack_of_node[found[0]])]] -= watts
            count[found[0]] -= member.gpus
        return good

    def _one_fits(self, pod: Waiting, node: int, count: Integers, left: Floats) -> bool:
        if count[node] < pod.gpus:
            return False
        watts = self._watts(node, pod.gpus, pod.kernel_class)
        above = left[[0, 1 + int(self._world.rack_of_node[node])]]
        return bool(np.all(above >= watts))

    def _watts(self, node: int, gpus: int, kernel_class: str) -> float:
        profile = self._world.profiles[int(self._world.profile_of_node[node])]
        kernel = profile.kernel_classes.get(kernel_class)
        most = profile.max_limit_watts if kernel is None else kernel.power_p95_watts
        return gpus * max(0.0, most - profile.idle_watts) / self._efficiency()

    def _efficiency(self) -> float:
        return float(self._world.scenario.plant.supply_efficiency)


class RepeatJudge:
    """The most lines of one domain and kind that any minute of a feed holds."""

    def __init__(self) -> None:
        self._times: dict[tuple[str, str], deque[float]] = {}
        self.most_in_a_minute = 0
        self.worst = ""
        self.lines: Counter[str] = Counter()

    def line(self, seconds: float, domain: str, kind: str) -> None:
        """Take one line of the feed."""
        times = self._times.setdefault((domain, kind), deque())
        times.append(seconds)
        while times[0] <= seconds - 60.0:
            times.popleft()
        self.lines[kind] += 1
        if len(times) > self.most_in_a_minute:
            self.most_in_a_minute, self.worst = len(times), f"{kind} of {domain}"
