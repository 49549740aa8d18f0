"""Settings of the scheduler process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from forecasting.decisions.priority_risks import risk_bands
from scheduler_plugin.app.link_settings import LinkSettings
from scheduler_plugin.documents.objective_order import (
    DEFAULT_ORDER,
    ObjectiveOrder,
    ObjectiveStage,
)
from scheduler_plugin.kube_objects.admission import Mode
from scheduler_plugin.kube_objects.policy_floors import PolicyFloors
from scheduler_plugin.packing.policy_values import ThroughputPolicy
from scheduler_plugin.packing.priced_nodes import ObjectiveChoice
from scheduler_plugin.promises.move_settings import MoveSettings
from scheduler_plugin.promises.provisioning_settings import ProvisioningSettings
from scheduler_plugin.snapshot_builder import ClusterObjects
from wattpack.errors import InputError
from wattpack.object_names import SYSTEM_NAMESPACE
from wattpack.settings import Settings

ENVIRONMENT: Final = "WATTPACK_PLACEMENT_"


class PlacementSettings(Settings):
    """File, then ``WATTPACK_PLACEMENT_*`` variables, then flags.

    Attributes:
        mode: Off, Shadow (plan and report only) or Manage.
        deadline_seconds: What a cycle may take from the snapshot to the plan.
        seed: Of the search.
        solver_workers: Threads of CP-SAT, at most as many as the container has CPUs.
        solver_memory_mib: What the solver's process may take before it ends and is replaced.
        batch_idle_seconds: Plan once no new pod came for this long ...
        batch_max_seconds: ... or the oldest waits for this long.
        resync_seconds: Plan at the latest after this, if pods wait.
        unservable_seconds: What no present node can serve is let go without a node after this, so
            that autoscalers see it.
        patience_seconds: Work with GPUs that waited for so long has room held for it, which pods of
            its priority and below then leave alone; 0 holds nothing.
        gang_timeout_seconds: How long places of missing gang members are kept.
        namespace: Where the Lease and the certificate's Secret live, and the forecasts that count.
        kept_plans: How many old PlacementPlan objects stay for people to read.
        patches_at_once: Releases that are under way at once; each takes one seat of the API
            server's priority and fairness, so this bounds what a burst takes there.
        events_per_cycle: Upper bound of Events about pending pods.
        kueue_admission_checks: Answer Kueue's AdmissionChecks of the controller
            ``wattpack.io/placement``: a Workload is admitted once all of its pods have places.
        policy: By what GPU models are given to waiting pods that name their speeds: ``none`` (each
            by its own), ``max-min`` or ``cost``.
        gpu_prices: Of an hour of one GPU by model, any currency, for the policy ``cost`` and the
            objective's stage of that name; a model without one counts as the dearest.
        objective: What plans that place as much are compared by, what counts first first.
        carbon_grams_per_kwh: Of energy by power domain, CO2e, for the stage ``carbon``: the nearest
            above a node counts; a node below none of them counts as the worst.
        cap_levels: Plans may count work at the cap that pays at the price of a watt, where the
            controller sets caps.
        risk_below_priority: Share of windows whose peak may break a domain's forecast, for pods of
            a priority below the key; without any, and for all others, 0.01.
        peaks: How bound pods of a domain count where nothing else is known: the ``sum`` of their
            95th percentiles, or the 99th percentile of their sum (``p99``).
        links: What uplinks of racks carry, and what was measured between racks.
        provisioning: Whether ProvisioningRequests ask for what no present node can serve, and how
            often (mode Manage).
        moves: Whether running pods that opted in make room, and how many of them (mode Manage).
    """

    mode: Mode = Mode.SHADOW
    # A cycle has to end well within the Lease's renew deadline of 10 s.
    deadline_seconds: Annotated[float, Field(ge=0, le=5)] = 1.0
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    solver_workers: Annotated[int, Field(ge=1, le=256)] = 1
    # Its imports alone take 90.
    solver_memory_mib: Annotated[int, Field(ge=256, le=1024 * 1024)] = 1024
    batch_idle_seconds: Annotated[float, Field(ge=0, le=60)] = 0.2
    batch_max_seconds: Annotated[float, Field(ge=0, le=60)] = 2.0
    resync_seconds: Annotated[float, Field(gt=0, le=600)] = 10.0
    unservable_seconds: Annotated[float, Field(ge=0, le=30 * 86_400)] = 60.0
    patience_seconds: Annotated[float, Field(ge=0, le=30 * 86_400)] = 600.0
    gang_timeout_seconds: Annotated[float, Field(ge=10, le=86_400)] = 300.0
    namespace: Annotated[str, Field(min_length=1, max_length=63)] = SYSTEM_NAMESPACE
    kept_plans: Annotated[int, Field(ge=1, le=1000)] = 20
    patches_at_once: Annotated[int, Field(ge=1, le=64)] = 8
    events_per_cycle: Annotated[int, Field(ge=0, le=1000)] = 50
    kueue_admission_checks: bool = False
    policy: ThroughputPolicy = ThroughputPolicy.NONE
    gpu_prices: Mapping[str, Annotated[float, Field(gt=0, le=1e6)]] = Field(default_factory=dict)
    objective: ObjectiveOrder = DEFAULT_ORDER
    carbon_grams_per_kwh: Mapping[str, Annotated[int, Field(ge=0, le=10_000)]] = Field(
        default_factory=dict
    )
    cap_levels: bool = False
    risk_below_priority: Mapping[int, float] = Field(default_factory=dict)
    peaks: Literal["sum", "p99"] = "sum"
    links: LinkSettings = LinkSettings()
    provisioning: ProvisioningSettings = ProvisioningSettings()
    moves: MoveSettings = MoveSettings()

    @model_validator(mode="after")
    def _stages_have_their_figures(self) -> Self:
        risk_bands(self.risk_below_priority)
        priced = "a price for at least one GPU model with"
        if self.policy is ThroughputPolicy.COST and not self.gpu_prices:
            raise InputError("gpu_prices", f"{priced} policy cost", {})
        if ObjectiveStage.COST in self.objective and not self.gpu_prices:
            raise InputError("gpu_prices", f"{priced} objective cost", {})
        if ObjectiveStage.CARBON in self.objective and not self.carbon_grams_per_kwh:
            expected = "grams of at least one power domain with objective carbon"
            raise InputError("carbon_grams_per_kwh", expected, {})
        return self

    def applied_to(
        self, objects: ClusterObjects, floors: Callable[[], PolicyFloors]
    ) -> ClusterObjects:
        """What a cluster holds, as plans by these settings see it.

        Args:
            objects: As they were read.
            floors: What policies keep for pods; asked where plans count on caps.
        """
        made = replace(
            objects,
            p99_of_sums=self.peaks == "p99",
            links=self.links.of_snapshot,
            risks=risk_bands(self.risk_below_priority),
        )
        return replace(made, at_caps=True, floors=floors()) if self.cap_levels else made

    @property
    def objective_choice(self) -> ObjectiveChoice:
        """The order of the objective with the figures that it needs."""
        return ObjectiveChoice(self.objective, self.gpu_prices, self.carbon_grams_per_kwh)
