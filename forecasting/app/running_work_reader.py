"""What runs where and on how many boards, read once a round: a list of each kind."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from capacity.catalogue.pod_works import PodWorks
from capacity.profile_book import ProfileBook
from capacity.profile_library import shipped_library
from forecasting.power_forecast.domain_boards import DomainBoards
from forecasting.start_leads import RunningWork
from forecasting.targets import Target
from wattpack.api import GPUProfile, PowerDomain, WorkloadProfile
from wattpack.kube.port import NODES, PODS, KubeApi, KubeError

log = logging.getLogger(__name__)

FIRST_LOOKS: Final = 12
"""At domains that nobody has accepted yet when a forecaster starts: controllers come up beside it.
Ten seconds apart (``forecast_loop.LOOK_NS``); later a round is soon enough."""


class RunningWorkReader:
    """Reads a cluster; what cannot be read costs lead times, never a forecast.

    Args:
        kube: The cluster.
    """

    def __init__(self, kube: KubeApi) -> None:
        self._kube = kube
        self._failed = ""
        self._above: Mapping[str, tuple[str, ...]] = {}
        self._limits_watts: Mapping[str, float] = {}
        self._book = ProfileBook.shipped(shipped_library())
        self._boards = DomainBoards()
        self._unknown: set[str] = set()
        self._looks_left = FIRST_LOOKS

    def read(self, targets: Iterable[Target], now_seconds: float) -> RunningWork:
        """What the targets need; the last failure is told once, not every round.

        Args:
            targets: Of the round.
            now_seconds: Unix time.
        """
        subjects = {(target.kind, target.subject) for target in targets}
        domains = {subject for kind, subject in subjects if kind == "domain"}
        kinds = {kind for kind, _ in subjects}
        try:
            found = self._read(kinds, now_seconds)
        except KubeError as error:
            if str(error) != self._failed:
                log.warning("no lead times: %s", error)
            self._failed = str(error)
            # What was read last is still the best guess of how domains add up and what they have.
            boards = self._boards
            return RunningWork(
                above=self._above, boards=boards, changes=boards.changes(),
                limits_watts=self._limits_watts,
            )  # fmt: skip
        self._failed, self._above, self._limits_watts = "", found.above, found.limits_watts
        self._unknown = domains - found.boards.busy_watts.keys()
        return found

    @property
    def may_find_more(self) -> bool:
        """Whether domains that were asked about had no boards yet, and it is still early."""
        return bool(self._unknown) and self._looks_left > 0

    def finds_more(self, now_seconds: float) -> bool:
        """Look again: whether boards of such a domain are known now.

        Args:
            now_seconds: Unix time.
        """
        if not self.may_find_more:
            return False
        self._looks_left -= 1
        try:
            found = self._read({"domain"}, now_seconds)
        except KubeError:
            return False
        return bool(self._unknown & found.boards.busy_watts.keys())

    def _read(self, kinds: set[str], now_seconds: float) -> RunningWork:
        if not kinds & {"domain", "workload"}:
            return RunningWork()
        works = PodWorks.of(self._kube.list(WorkloadProfile.meta.resource).items)
        if "domain" not in kinds:
            return RunningWork(works)
        self._book = self._book.with_objects(self._kube.list(GPUProfile.meta.resource).items)
        # Pods without a word on their work hold boards, too.
        pods = self._kube.list(PODS).items
        domains = self._kube.list(PowerDomain.meta.resource).items
        nodes = self._kube.list(NODES).items
        boards = DomainBoards.of(works, self._book, pods, nodes, domains)
        self._boards = boards = boards.since(self._boards, now_seconds)
        found = RunningWork.of(works, pods, nodes, domains)
        return replace(found, boards=boards, changes=boards.changes())
