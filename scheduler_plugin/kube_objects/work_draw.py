"""What the known work of pods draws on each GPU type: further classes beside the kernel classes.

pod ── label, classified profile ──> kind of work ──> cap curve on the GPU type ──> 95th percentile

An annotation speaks before it. Work that nobody knows, or a classifier is not sure of, counts as
the board's highest limit, like a class that the type lacks. Pods with the same work are one kind,
whichever profile tells it: every node of a snapshot names all kinds.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import numpy as np

from capacity.catalogue.pod_works import KnownWork, PodWorks, annotated_kernel_class
from scheduler_plugin.kube_objects import pods as pod_facts
from scheduler_plugin.kube_objects.peak_coincidence import Z95
from scheduler_plugin.kube_objects.power_view import ModelWatts
from wattpack.errors import InputError
from wattpack.kube.port import JsonObject

MAX_KINDS: Final = 256
"""Kinds that a snapshot names, those of most GPU pods first: mixes are what people say, and 20,000
nodes name each. The others count as unknown work."""


class WorkDraws:
    """The kinds of work of one snapshot's pods.

    Args:
        works: What kind of work a pod does.
        pods: All of them.
    """

    def __init__(self, works: PodWorks, pods: Iterable[JsonObject]) -> None:
        self._works = works
        self._watts: dict[str, dict[str, float]] = {}
        met: Counter[str] = Counter()
        known: dict[str, KnownWork] = {}
        for body in pods:
            work = self._counted_work(body)
            if work is not None and _draws_on_gpus(body):
                name = _class_name(work)
                known[name] = work
                met[name] += 1
        common = sorted(known, key=lambda name: (-met[name], name))[:MAX_KINDS]
        self._known = {name: known[name] for name in common}

    def kernel_class(self, body: JsonObject) -> str:
        """What chooses the pod's watts on a node; empty for any work."""
        work = self._counted_work(body)
        if work is None:
            return annotated_kernel_class(body)
        name = _class_name(work)
        return name if name in self._known else ""

    def class_watts(self, model: ModelWatts) -> dict[str, float]:
        """Board watts of each class on the GPU type: its own, then the kinds of work met."""
        if model.model not in self._watts:
            found = dict(model.class_watts)
            for name, work in self._known.items():
                watts = work.p95_watts(model.profile)
                if watts is not None:
                    found[name] = min(watts, model.worst_watts)
            self._watts[model.model] = found
        return self._watts[model.model]

    def speed_at(self, model: ModelWatts, name: str) -> Callable[[float], float] | None:
        """Of a class on the GPU type, its speed at a cap in watts; None where nobody knows."""
        profile = model.profile
        work = self._known.get(name)
        if work is not None:
            curve = work.curve(profile)
            return None if curve is None else curve.speed_at
        kernel = profile.kernel_classes.get(name)
        if kernel is None:
            return None
        limit, speeds = profile.default_limit_watts, (kernel.cap_fractions, kernel.throughput)
        return lambda cap_watts: float(np.interp(cap_watts / limit, *speeds))

    def spreads(self, models: Mapping[str, ModelWatts]) -> Callable[[str, str], float]:
        """By GPU model and class, ``spread_share``; 0 for a type that nobody knows."""
        by_name = {watts.model: watts for watts in models.values()}
        known: dict[tuple[str, str], float] = {}

        def share(model: str, name: str) -> float:
            if (model, name) not in known:
                watts = by_name.get(model)
                known[model, name] = 0.0 if watts is None else self.spread_share(watts, name)
            return known[model, name]

        return share

    def spread_share(self, model: ModelWatts, name: str) -> float:
        """Standard deviation of a class's draw over its 95th percentile, both above idle.

        By median (or mean of a mix) and 95th percentile of a normal draw; 0 where nobody knows.
        """
        p95_watts = self.class_watts(model).get(name, 0.0)
        if p95_watts <= model.idle_watts:
            return 0.0
        work, kernel = self._known.get(name), model.profile.kernel_classes.get(name)
        curve = None if work is None else work.curve(model.profile)
        if curve is not None:
            middle_watts = float(curve.draw_watts[-1])
        elif work is None and kernel is not None:
            middle_watts = kernel.power_p50_watts
        else:
            return 0.0
        middle_watts = min(max(middle_watts, model.idle_watts), p95_watts)
        return (p95_watts - middle_watts) / (p95_watts - model.idle_watts) / Z95

    def _counted_work(self, body: JsonObject) -> KnownWork | None:
        """What the pod counts by; None where an annotation speaks or nobody is sure."""
        work = None if annotated_kernel_class(body) else self._works.of_pod(body)
        return work if work is not None and work.is_sure else None


def _draws_on_gpus(body: JsonObject) -> bool:
    """Whether its work may be priced: pods that cost nothing to make crowd no other work out."""
    if pod_facts.is_finished(body):
        return False
    try:
        asked = pod_facts.gpus(body)
    except InputError:
        return False
    return asked.whole > 0 or bool(asked.claims)


def _class_name(work: KnownWork) -> str:
    """By what decides the draw; unlike a kernel class."""
    mix = None if work.profile is None else work.profile.spec.kernel_mix
    if mix:
        text = json.dumps(mix, sort_keys=True)
        return f"work/mix/{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    return f"work/{'' if work.entry is None else work.entry.name}"
