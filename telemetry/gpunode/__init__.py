"""The node's own object in the API: devices, caps, health and trust, seldom written."""

from telemetry.gpunode.gpunode_publisher import GpuNodePublisher, GpuNodeThread
from telemetry.gpunode.gpunode_status import GPU_NODES, gpunode_status
from telemetry.gpunode.trust_memory import TrustMemory

__all__ = ["GPU_NODES", "GpuNodePublisher", "GpuNodeThread", "TrustMemory", "gpunode_status"]
