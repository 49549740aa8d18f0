"""What an inference row's requests are; each number is one that an operator of such a row knows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from simulation.inference_row.request_classes import POLCA_CLASSES
from simulation.inference_row.request_lengths import LengthsName
from simulation.inference_row.row_power import GPUS_PER_SERVER
from wattpack.settings import Settings

ClassName = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=40)]


class InferenceRowSettings(Settings):
    """What the published inference row is asked (docs/simulation.md); every server answers."""

    lengths: Annotated[
        LengthsName,
        Field(description="Of prompts and answers: POLCA's ranges, or Azure's of 2023 (A100 only)"),
    ] = "published"
    begin_hours: Annotated[
        float,
        Field(ge=0, le=960, description="Where the run starts, hours since Monday, midnight"),
    ] = 13.0
    hotter: Annotated[
        float, Field(ge=-0.9, le=1, description="Share by which the fitted load is raised")
    ] = 0.0
    high_priority_class: Annotated[
        ClassName, Field(description="Of search and half of chat, one of priority_classes")
    ] = "high"
    low_priority_class: Annotated[
        ClassName, Field(description="Of summaries and the rest of chat, one of priority_classes")
    ] = "low"

    def require_servers(self, gpus_per_server: int, counts: Sequence[int]) -> None:
        """Pass servers that such requests are known of.

        Args:
            gpus_per_server: Of every server.
            counts: Servers of each type.

        Raises:
            ValueError: naming what the row must have.
        """
        if gpus_per_server != GPUS_PER_SERVER:
            raise ValueError(f"inference_row needs row.gpus_per_server {GPUS_PER_SERVER}")
        if len(counts) != 1:
            raise ValueError("inference_row needs servers of one type: one entry of row.groups")
        if sum(counts) < len(POLCA_CLASSES):
            raise ValueError(f"inference_row needs at least {len(POLCA_CLASSES)} servers")
