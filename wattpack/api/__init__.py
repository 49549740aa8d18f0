"""The API objects of wattpack.io/v1alpha1 as pydantic models; CRDs are generated from them."""

from wattpack.api.capacity_plan import CapacityPlan
from wattpack.api.demand_forecast import DemandForecast
from wattpack.api.inventory import GpuNode, GPUProfile, WorkloadProfile
from wattpack.api.object_meta import GROUP, VERSION, ApiObject, Condition, KindMeta
from wattpack.api.planning import PlacementPlan
from wattpack.api.policy import PowerOverride, PowerPolicy
from wattpack.api.power_domain import PowerDomain

KINDS: tuple[type[ApiObject], ...] = (
    PowerDomain,
    PowerPolicy,
    PowerOverride,
    GpuNode,
    GPUProfile,
    WorkloadProfile,
    DemandForecast,
    CapacityPlan,
    PlacementPlan,
)

__all__ = [
    "GROUP",
    "KINDS",
    "VERSION",
    "ApiObject",
    "CapacityPlan",
    "Condition",
    "DemandForecast",
    "GPUProfile",
    "GpuNode",
    "KindMeta",
    "PlacementPlan",
    "PowerDomain",
    "PowerOverride",
    "PowerPolicy",
    "WorkloadProfile",
]
