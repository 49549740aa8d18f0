"""What every part of a snapshot, plan or answer is."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["PRINTABLE", "Id", "Label", "Value"]

PRINTABLE: Final = r"^[^\x00-\x1f\x7f]*$"
#: namespace/kind/name#member of the longest names that Kubernetes allows. Control characters would
#: reach people's terminals.
Id = Annotated[str, Field(min_length=1, max_length=640, pattern=PRINTABLE)]
Label = Annotated[str, Field(max_length=640)]


class Value(BaseModel):
    """Frozen; types are exact, unknown keys refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
