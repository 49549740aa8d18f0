"""Exhaustive search over layouts, placements and layer splits of small clusters, as plain loops.

Every plan is played by the step simulator and weighed by the memory ledger. Two exact shortcuts:
GPUs of one host are alike, so that only the hosts of ranks are permuted; and a plan whose compute
alone is longer than the best step so far is not played.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise, permutations

from benchmarks._memory_ledger import stage_peaks
from benchmarks._step_simulator import Device, Simulation
from capacity.training.layer_costs import ComputeCosts
from capacity.training.link_matrix import LinkMatrix
from capacity.training.training_job import ParallelLayout, Recompute, TrainingJob

Plan = tuple[ParallelLayout, list[list[list[list[int]]]], list[int]]
"""Layout, GPU of each rank by stage, data, context and tensor, and layers of each stage."""


@dataclass(frozen=True, slots=True)
class SmallCase:
    """A cluster small enough to try everything."""

    job: TrainingJob
    links: LinkMatrix
    costs: ComputeCosts
    device: Device
    memory_bytes: float
    speed: list[float]
    micro_batches: tuple[int, ...]
    recompute: tuple[Recompute, ...]
    zero_stages: tuple[int, ...]

    def played(
        self, layout: ParallelLayout, ranks: list[list[list[list[int]]]], layers: list[int]
    ) -> float:
        """Seconds of a step."""
        costs = self.costs.layer(self.job, layout.micro_batch, layout.tensor, layout.context)
        return Simulation(
            self.job, layout, costs, self.links, ranks, layers, self.device, self.speed
        ).seconds()

    def holds(self, layout: ParallelLayout, layers: list[int]) -> bool:
        """Whether it fits, with the upper quantile that plans are made for."""
        return all(
            1.02 * peak.state + 1.10 * (peak.activations + peak.output) + 2e9 <= self.memory_bytes
            for peak in stage_peaks(self.job, layout, layers)
        )


def best_of_all(case: SmallCase) -> tuple[float, int]:
    """The shortest step, and how many plans were played; infinite if nothing fits."""
    seconds, _, played = _tried(case)
    return seconds, played


def best_plan_of_all(case: SmallCase) -> Plan:
    """The plan with the shortest step."""
    _, plan, _ = _tried(case)
    assert plan is not None
    return plan


def _tried(case: SmallCase) -> tuple[float, Plan | None, int]:
    best, plan, played = float("inf"), None, 0
    placements = list(_host_orders(case.links))
    for layout in _layouts(case):
        costs = case.costs.layer(case.job, layout.micro_batch, layout.tensor, layout.context)
        turn = costs.forward_seconds + costs.backward_seconds
        whole = case.job.model.layers * turn * layout.micro_batches(case.job)
        if whole / layout.pipeline / max(case.speed) > best:
            continue
        splits = [
            s for s in _splits(case.job.model.layers, layout.pipeline) if case.holds(layout, s)
        ]
        for order in placements if splits else ():
            ranks = _folded(order, layout)
            if not keeps_classes(case.links, ranks):
                continue
            for layers in splits:
                if _compute_alone(case, ranks, layers, turn, layout.micro_batches(case.job)) > best:
                    continue
                played += 1
                seconds = case.played(layout, ranks, layers)
                if seconds < best:
                    best, plan = seconds, (layout, ranks, layers)
    return best, plan, played


def _compute_alone(
    case: SmallCase, ranks: list[list[list[list[int]]]], layers: list[int], turn: float, count: int
) -> float:
    """No step is shorter: the first micro-batch passes all stages, the others the slowest one."""
    stages = [
        held * turn / min(case.speed[gpu] for replica in stage for row in replica for gpu in row)
        for held, stage in zip(layers, ranks, strict=True)
    ]
    return (count - 1) * max(stages) + sum(stages)


def keeps_classes(links: LinkMatrix, ranks: list[list[list[list[int]]]]) -> bool:
    """Whether no group that sums anything spans two kinds of network."""
    for stage in ranks:
        gpus = [gpu for replica in stage for row in replica for gpu in row]
        tensor_groups = [row for replica in stage for row in replica]
        rings = [list(ring) for ring in zip(*tensor_groups, strict=True)]
        for group in (*tensor_groups, *(rings if len(gpus) > len(tensor_groups[0]) else [])):
            if len({links.nic_class[int(links.host[gpu])] for gpu in group}) > 1:
                return False
    return True


def _layouts(case: SmallCase) -> Iterator[ParallelLayout]:
    gpus = case.links.gpus
    for tensor in range(1, gpus + 1):
        for pipeline in range(1, gpus + 1):
            for context in range(1, gpus + 1):
                if gpus % (tensor * pipeline * context):
                    continue
                data = gpus // (tensor * pipeline * context)
                for size in case.micro_batches:
                    for recompute in case.recompute:
                        for zero in case.zero_stages:
                            if zero and data * context == 1:
                                continue
                            layout = ParallelLayout(
                                data, tensor, pipeline, context, size, recompute, zero
                            )
                            if layout.fits_shape(case.job):
                                yield layout


def _host_orders(links: LinkMatrix) -> Iterator[list[int]]:
    """Every way to give ranks to hosts."""
    hosts = links.host.tolist()
    seen: set[tuple[int, ...]] = set()
    for order in permutations(hosts):
        if order in seen:
            continue
        seen.add(order)
        free = {host: [g for g, h in enumerate(hosts) if h == host] for host in set(hosts)}
        yield [free[host].pop(0) for host in order]


def _folded(order: Sequence[int], layout: ParallelLayout) -> list[list[list[list[int]]]]:
    one = iter(order)
    return [
        [[[next(one) for _ in range(layout.tensor)] for _ in range(layout.context)]
         for _ in range(layout.data)]
        for _ in range(layout.pipeline)
    ]  # fmt: skip


def _splits(layers: int, stages: int) -> list[list[int]]:
    """Every way to cut the layers into that many stages."""
    made = []
    for cuts in combinations(range(1, layers), stages - 1):
        edges = [0, *cuts, layers]
        made.append([b - a for a, b in pairwise(edges)])
    return made
