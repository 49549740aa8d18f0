"""Kinds of numbers in a scenario: what each may be."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

Seconds = Annotated[float, Field(gt=0, le=1e8)]
SecondsFromZero = Annotated[float, Field(ge=0, le=1e8)]
Watts = Annotated[float, Field(gt=0, le=1e9)]
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0, le=100_000)]
Name = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=40)]
PodGpus = Annotated[int, Field(ge=1, le=16)]
