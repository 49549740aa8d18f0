"""The node's own object in the API: devices, caps, health and trust, seldom written."""

from telemetry.gpunode.board_trust import TrustMemory
from telemetry.gpunode.gpunode_publisher import GpuNodePublisher, GpuNodeThread
from telemetry.gpunode.gpunode_status import GPU_NODES, gpunode_status

__all__ = ["GPU_NODES", "GpuNodePublisher", "GpuNodeThread", "TrustMemory", "gpunode_status"]
