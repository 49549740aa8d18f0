"""What runs where, read once a round: a list of each kind, if possible of labelled pods alone."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from capacity.catalogue.pod_works import PodWorks
from forecasting.start_leads import RunningWork
from forecasting.targets import Target
from wattpack.api import PowerDomain, WorkloadProfile
from wattpack.kube.port import NODES, PODS, KubeApi, KubeError
from wattpack.object_names import WORKLOAD_LABEL

log = logging.getLogger(__name__)


class RunningWorkReader:
    """Reads a cluster; what cannot be read costs lead times, never a forecast.

    Args:
        kube: The cluster.
    """

    def __init__(self, kube: KubeApi) -> None:
        self._kube = kube
        self._failed = ""
        self._above: Mapping[str, tuple[str, ...]] = {}

    def read(self, targets: Iterable[Target]) -> RunningWork:
        """What the targets need; the last failure is told once, not every round."""
        kinds = {target.kind for target in targets}
        try:
            found = self._read(kinds)
        except KubeError as error:
            if str(error) != self._failed:
                log.warning("no lead times: %s", error)
            self._failed = str(error)
            # The tree that was read last is still the best guess of how domains add up.
            return RunningWork(above=self._above)
        self._failed, self._above = "", found.above
        return found

    def _read(self, kinds: set[str]) -> RunningWork:
        if not kinds & {"domain", "workload"}:
            return RunningWork()
        works = PodWorks.of(self._kube.list(WorkloadProfile.meta.resource).items)
        if "domain" not in kinds:
            return RunningWork(works)
        # A classified profile speaks for pods that carry no label: then every pod has to be read.
        selector = "" if works.of_owner else WORKLOAD_LABEL
        pods = self._kube.list(PODS, label_selector=selector).items
        domains = self._kube.list(PowerDomain.meta.resource).items
        return RunningWork.of(works, pods, self._kube.list(NODES).items, domains)
