"""What one user request makes of calls, look-ups and tools: stages of a catalogue entry or a file.

The phases of an entry say what a GPU does in one cycle, for many users at once; its stages what one
user waits for. ``docs/workloads.md`` explains the keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from wattpack.api.capacity_question import MOST_TOKENS
from wattpack.settings import Settings

Tokens = Annotated[int, Field(ge=1, le=MOST_TOKENS)]
StageName = Annotated[
    str, Field(min_length=1, max_length=64, pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")
]


class RequestStage(Settings):
    """Calls of a language model, or a time in which something else works."""

    name: StageName
    prompt_tokens: Tokens | None = None
    output_tokens: Tokens | None = None
    cached_tokens: Annotated[
        int, Field(ge=0, le=MOST_TOKENS, description="Of the prompt, left by an earlier call")
    ] = 0
    calls: Annotated[int, Field(ge=1, le=64, description="Equal ones, made at once")] = 1
    seconds: Annotated[
        float | None,
        Field(gt=0, le=86400, description="Of a tool or a database, instead of calls"),
    ] = None
    after: Annotated[
        tuple[StageName, ...] | None,
        Field(max_length=64, description="All that it waits for; the stage before it if unset"),
    ] = None

    @model_validator(mode="after")
    def _calls_or_seconds(self) -> Self:
        sizes = (self.prompt_tokens, self.output_tokens)
        if (self.seconds is None) == (sizes == (None, None)) or (None in sizes) != bool(
            self.seconds
        ):
            raise ValueError("prompt_tokens and output_tokens, or seconds")
        if self.seconds is not None and (self.cached_tokens or self.calls > 1):
            raise ValueError("cached_tokens and calls of a stage with prompt_tokens")
        if self.prompt_tokens is not None and self.cached_tokens >= self.prompt_tokens:
            raise ValueError("cached_tokens below prompt_tokens")
        return self


Stages = Annotated[tuple[RequestStage, ...], Field(max_length=64)]


class RequestGraphFile(Settings):
    """``wattpack.io/request-graph/v1``: the stages of one kind of request."""

    apiVersion: Literal["wattpack.io/request-graph/v1"]  # noqa: N815 - as Kubernetes spells it
    deadline_seconds: Annotated[
        float | None, Field(gt=0, le=86400, description="From the first call to the last token")
    ] = None
    stages: Annotated[tuple[RequestStage, ...], Field(min_length=1, max_length=64)]


def waits_for(stages: Sequence[RequestStage]) -> list[tuple[str, ...]]:
    """What each stage waits for, its default filled in."""
    before: list[tuple[str, ...]] = [(), *((stage.name,) for stage in stages[:-1])]
    return [
        default if stage.after is None else stage.after
        for stage, default in zip(stages, before, strict=True)
    ]
