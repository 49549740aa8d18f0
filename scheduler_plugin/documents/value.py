"""What every part of a snapshot, plan or answer is."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["Id", "Label", "Value"]

#: namespace/kind/name#member of the longest names that Kubernetes allows.
Id = Annotated[str, Field(min_length=1, max_length=640)]
Label = Annotated[str, Field(max_length=640)]


class Value(BaseModel):
    """Frozen; types are exact, unknown keys refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
