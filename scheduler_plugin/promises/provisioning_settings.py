"""Whether nodes are asked for by ProvisioningRequest, and how often."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from wattpack.settings import Settings

__all__ = ["ProvisioningSettings"]


class ProvisioningSettings(Settings):
    """Limits of ProvisioningRequests; all figures but the switch are assumed.

    Attributes:
        enabled: Whether what no present node can serve is asked for, in place of being let go.
        class_name: ``provisioningClassName`` of the requests.
        per_hour: Most requests that are made within any hour of wall-clock time.
        timeout_seconds: A request that stays in one stage for so long is given up; longer than
            autoscalers book capacity (10 minutes) and than nodes take to come.
    """

    enabled: bool = False
    class_name: Annotated[
        str, Field(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")
    ] = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
    per_hour: Annotated[int, Field(ge=1, le=1000)] = 20
    timeout_seconds: Annotated[float, Field(ge=60, le=86_400)] = 900.0
