"""Attribution of GPU use to pods: the kubelet's pod-resources API, with cgroups as fall-back."""

from telemetry.attribution.attribute import Attribution, PodOnGpu, ProcessOnGpu, attribute
from telemetry.attribution.cgroup import ContainerOf, parse_cgroup

__all__ = [
    "Attribution",
    "ContainerOf",
    "PodOnGpu",
    "ProcessOnGpu",
    "attribute",
    "parse_cgroup",
]
