"""Which policy speaks for a GPU: its priority, floor, request and actuator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from capacity.gpu_profile import GpuProfile
from controller.actuator_choice import choose_actuators
from controller.lock_law import LockLaw
from controller.membership import GpuSpec, PodSpec
from controller.watt_values import value_steps
from controller.work_curves import Curves, works_of_gpus
from wattpack.api import PowerPolicy
from wattpack.api.policy import Actuator
from wattpack.errors import InputError
from wattpack.power.domain_tree import BoolArray, FloatArray, IntArray

_CLOCK_BOUND = ("prefill", "training", "batch")

__all__ = ["Owed", "matches", "owed", "require_sound"]


@dataclass(frozen=True, slots=True)
class Owed:
    """What the policies owe each GPU, each (n_gpus,)."""

    priority: IntArray
    floor_watts: FloatArray
    request_watts: FloatArray
    gang: IntArray
    value_per_watt: FloatArray
    clock_lock: BoolArray
    lock_law: LockLaw
    value_steps_watts: FloatArray
    shed_clock_share: FloatArray


def matches(policy: PowerPolicy, pod: PodSpec) -> bool:
    """Whether the policy speaks of the pod; empty parts of its selector match everything."""
    selector = policy.spec.selector
    if selector.priority_classes and pod.priority_class not in selector.priority_classes:
        return False
    if selector.namespaces and pod.namespace not in selector.namespaces:
        return False
    return all(pod.labels.get(key) == value for key, value in selector.labels.items())


def require_sound(policy: PowerPolicy) -> None:
    """Pass a policy that can rule.

    Raises:
        InputError: naming the field; a floor of nothing is no floor.
    """
    floor = policy.spec.floor_fraction
    if floor is not None and floor <= 0.0:
        raise InputError("spec.floorFraction", "> 0", floor, f"PowerPolicy {policy.name}")


def _binding(found: Sequence[PowerPolicy], lowest: int) -> list[PowerPolicy]:
    """The policies that may speak for a pod: tenants write labels, so labels alone raise nobody.

    A policy that selects by labels only can make work less important than the policies that select
    by namespace, by PriorityClass or everything, never more.
    """
    given = [p for p in found if not _by_labels_only(p)]
    highest = max((p.spec.priority for p in given), default=lowest)
    return given + [p for p in found if _by_labels_only(p) and p.spec.priority <= highest]


def _by_labels_only(policy: PowerPolicy) -> bool:
    selector = policy.spec.selector
    return bool(selector.labels) and not (selector.namespaces or selector.priority_classes)


def owed(
    gpus: Sequence[GpuSpec],
    profiles: Sequence[GpuProfile],
    pods: Sequence[PodSpec],
    policies: Sequence[PowerPolicy],
) -> Owed:
    """The strongest policy of each GPU's pods (a shared GPU takes its highest tenant's class).

    GPUs without work or policy have the lowest priority that any policy names, never the highest:
    nobody becomes important by leaving a field out.

    Raises:
        InputError: for a floor that is missing and unknown to the GPU type.
    """
    lowest = min([0, *(p.spec.priority for p in policies)])
    position = {gpu.uuid: i for i, gpu in enumerate(gpus)}
    ruling: dict[int, PowerPolicy] = {}
    for pod in pods:
        found = _binding([p for p in policies if matches(p, pod)], lowest)
        if not found:
            continue
        strongest = max(found, key=lambda p: (p.spec.priority, p.spec.interactive))
        for uuid in pod.gpu_uuids:
            i = position.get(uuid, -1)
            if i >= 0 and (i not in ruling or ruling[i].spec.priority < strongest.spec.priority):
                ruling[i] = strongest
    rows = [_row(gpu, profiles[i], ruling.get(i), lowest) for i, gpu in enumerate(gpus)]
    gang = _gangs(len(gpus), position, pods)
    priority = np.array([r[0] for r in rows], dtype=np.int64)
    for number in np.unique(gang[gang >= 0]):
        # One cap for a gang means one class: its highest member's.
        priority[gang == number] = priority[gang == number].max()
    seen = {i: gpu.seen for i, gpu in enumerate(gpus) if gpu.seen is not None}
    works, curves = works_of_gpus(profiles, position, pods, seen)
    default = np.array([gpu.default_limit_watts for gpu in gpus])
    allowed = [ruling[i].spec.allowed_actuators if i in ruling else () for i in range(len(gpus))]
    limits = np.array([Actuator.POWER_LIMIT in a or not a for a in allowed], dtype=np.bool_)
    locks = np.array([Actuator.CLOCK_LOCK in a for a in allowed], dtype=np.bool_)
    locked, law = choose_actuators(works, limits, locks, default)
    return Owed(
        priority=priority,
        floor_watts=np.array([r[1] for r in rows]),
        request_watts=np.array([r[2] for r in rows]),
        gang=gang,
        value_per_watt=_values_per_watt(profiles, curves),
        clock_lock=locked,
        lock_law=law,
        value_steps_watts=value_steps(profiles, works, locked),
        shed_clock_share=np.where(
            limits & locks & ~locked,
            [_kept_at(profiles[i], rows[i][1]) for i in range(len(gpus))],
            1.0,
        ),
    )


def _row(
    gpu: GpuSpec, profile: GpuProfile, policy: PowerPolicy | None, lowest: int
) -> tuple[int, float, float]:
    """Priority, floor and request of one GPU."""
    knee = profile.knee_watts
    if policy is None:
        return lowest, _floor(gpu, knee), gpu.default_limit_watts
    spec = policy.spec
    require_sound(policy)
    floor = knee if spec.floor_fraction is None else spec.floor_fraction * gpu.default_limit_watts
    request = max(spec.request_fraction * gpu.default_limit_watts, gpu.min_limit_watts)
    return spec.priority, _floor(gpu, floor), request


def _floor(gpu: GpuSpec, watts: float) -> float:
    if not np.isfinite(watts) or watts <= 0.0:
        raise InputError(f"gpu[{gpu.uuid}].floor", "a floor or knee in W > 0", watts)
    return float(np.clip(watts, gpu.min_limit_watts, gpu.default_limit_watts))


def _kept_at(profile: GpuProfile, floor_watts: float) -> float:
    """Speed that work which waits for its clock keeps at its floor, by the kindest measured class.

    1 where no such class was measured: then nothing is given up beside the limit.
    """
    share = floor_watts / profile.default_limit_watts
    kept = [
        float(np.interp(share, kernel.cap_fractions, kernel.throughput))
        for name, kernel in profile.kernel_classes.items()
        if name in _CLOCK_BOUND
    ]
    return min(1.0, max(kept, default=1.0))


def _gangs(n_gpus: int, position: Mapping[str, int], pods: Sequence[PodSpec]) -> IntArray:
    gang = np.full(n_gpus, -1, dtype=np.int64)
    numbers: dict[tuple[str, str], int] = {}
    for pod in sorted(pods, key=lambda p: (p.namespace, p.name)):
        mine = [position[uuid] for uuid in pod.gpu_uuids if uuid in position]
        if not mine or (not pod.gang and len(mine) < 2):
            continue
        # A gang's name is a tenant's word: it ties pods of one class and raises none to another.
        name = f"gang {pod.gang} class {pod.priority_class}" if pod.gang else f"pod {pod.name}"
        number = numbers.setdefault((pod.namespace, name), len(numbers))
        others = {int(n) for n in gang[mine] if n >= 0 and n != number}
        gang[mine] = number
        if others:
            # A board has one cap: gangs that share one have it all in common.
            gang[np.isin(gang, list(others))] = number
            numbers.update({key: number for key, n in numbers.items() if n in others})
    return gang


def _values_per_watt(profiles: Sequence[GpuProfile], curves: Curves) -> FloatArray:
    """By the work on each GPU where it is known, the most of its tenants'; else by the type."""
    values = np.array([_value_of_any_work(profile) for profile in profiles])
    for i, mine in curves.items():
        values[i] = max(curve.value_per_watt(profiles[i].knee_watts) for curve in mine)
    return values


def _value_of_any_work(profile: GpuProfile) -> float:
    """Share of a GPU's work that one watt between knee and default limit buys, over all kernels."""
    span = profile.default_limit_watts - profile.knee_watts
    if span <= 0.0 or not profile.kernel_classes:
        return 0.0
    knee = profile.knee_watts / profile.default_limit_watts
    losses = [
        1.0 - float(np.interp(knee, kernel.cap_fractions, kernel.throughput))
        for kernel in profile.kernel_classes.values()
    ]
    return max(0.0, sum(losses) / len(losses)) / span
