"""``wattpack.io/links/v1`` as people write it, and the answer ``wattpack.io/training-plan/v1``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field
from pydantic.alias_generators import to_camel

from capacity.model.kernel_samples import Indices
from capacity.training.capped_job import CappedJob
from capacity.training.link_matrix import Link, LinkMatrix
from capacity.training.plan_values import ParallelPlan, ParallelPlans, TrainingCluster
from capacity.training.step_work import HostResources
from capacity.training.training_job import Offload, ParallelLayout, Recompute
from wattpack.api.object_meta import ApiModel
from wattpack.errors import InputError
from wattpack.settings import validate

__all__ = [
    "LinksDocument",
    "RunningPlan",
    "answer_json",
    "host_names",
    "host_ranges",
    "links_of",
    "move_json",
    "parse_links",
    "parse_running",
    "types_of",
]

MOST_GPUS = 4096

Rate = Annotated[float, Field(ge=1e6, le=1e14)]
Delay = Annotated[float, Field(ge=0, le=1)]
Label = Annotated[str, Field(min_length=1, max_length=128)]
Two = Annotated[list[Label], Field(min_length=2, max_length=2)]
Count = Annotated[int, Field(ge=1, le=2**31)]
Amount = Annotated[float, Field(ge=0, le=1e18)]


class LinkText(ApiModel):
    """One direction; ``capacity.training.link_matrix.Link``."""

    bytes_per_second: Rate
    latency_seconds: Delay = 5e-6

    @property
    def link(self) -> Link:
        """As a value."""
        return Link(self.bytes_per_second, self.latency_seconds)


class HostsText(ApiModel):
    """Hosts that are alike; with a count above 1 they are called name-0, name-1 and so on.

    ``gpu`` is their type, needed where the job's GPUs are of several.
    """

    name: Label
    gpus: Annotated[int, Field(ge=1, le=64)]
    nic: Label
    count: Annotated[int, Field(ge=1, le=MOST_GPUS)] = 1
    gpu: Label | None = None


class ClassLinkText(LinkText):
    """Between two hosts of these NIC classes, each GPU with its own card."""

    classes: Two


class PairText(LinkText):
    """Between two hosts, measured: goes before their classes."""

    hosts: Two


class HostText(ApiModel):
    """What each GPU has of its host; ``capacity.training.step_work.HostResources``."""

    memory_bytes: Amount | None = None
    nvme_bytes: Amount | None = None
    link_bytes_per_second: Rate | None = None
    memory_bytes_per_second: Rate | None = None
    nvme_bytes_per_second: Rate | None = None


class LinksDocument(ApiModel):
    """The whole file."""

    api_version: Literal["wattpack.io/links/v1"]
    hosts: Annotated[list[HostsText], Field(min_length=1)]
    inside: LinkText | None = None
    between: Annotated[list[ClassLinkText], Field(default_factory=list)]
    pairs: Annotated[list[PairText], Field(default_factory=list)]
    host: HostText = HostText()

    @property
    def resources(self) -> HostResources:
        """As a value."""
        return HostResources(**self.host.model_dump(exclude_none=True))


def parse_links(document: object, source: str = "") -> LinksDocument:
    """The file's content.

    Raises:
        InputError: naming the field.
    """
    if not isinstance(document, dict):
        raise InputError("links", "a wattpack.io/links/v1", document, source)
    return validate(LinksDocument, document, source)


def links_of(document: LinksDocument, inside: Link | None = None) -> LinkMatrix:
    """The links as a matrix.

    Args:
        inside: Measured link inside hosts, which goes before the document's.

    Raises:
        InputError: a host named twice or not at all, a pair of classes without a link, too many
            GPUs, or no link inside hosts of several GPUs.
    """
    names, gpus, kinds = _hosts(document)
    at = document.inside.link if document.inside else None
    link = inside or at
    if link is None:
        if max(gpus) > 1:
            raise InputError("inside", "a link inside hosts, here or measured", None)
        link = Link(1e14)
    between = {(t.classes[0], t.classes[1]): t.link for t in document.between}
    matrix = LinkMatrix.from_levels(gpus, link, between, kinds)
    for index, pair in enumerate(document.pairs):
        for name in pair.hosts:
            if name not in names:
                raise InputError(f"pairs.{index}.hosts", f"one of {', '.join(names)[:200]}", name)
        one, two = (names.index(name) for name in pair.hosts)
        if one == two:
            raise InputError(f"pairs.{index}.hosts", "two different hosts", pair.hosts)
        matrix = matrix.with_pair(one, two, pair.link)
    return matrix


def types_of(document: LinksDocument, known: Sequence[str]) -> list[int]:
    """Position of each GPU's type among ``known``; 0 for all where that is one.

    Raises:
        InputError: a host without a type, or of another one.
    """
    types: list[int] = []
    for index, text in enumerate(document.hosts):
        named = known[0] if text.gpu is None and len(known) == 1 else text.gpu
        if named not in known:
            raise InputError(f"hosts.{index}.gpu", f"one of {', '.join(known)}", text.gpu)
        types += [known.index(named)] * text.gpus * text.count
    return types


def _hosts(document: LinksDocument) -> tuple[list[str], list[int], list[str]]:
    names, gpus, kinds = [], [], []
    for text in document.hosts:
        alone = text.count == 1
        names += [text.name] if alone else [f"{text.name}-{n}" for n in range(text.count)]
        gpus += [text.gpus] * text.count
        kinds += [text.nic] * text.count
        if sum(gpus) > MOST_GPUS:
            raise InputError("hosts", f"at most {MOST_GPUS} GPUs", sum(gpus))
    for name in names:
        if names.count(name) > 1:
            raise InputError("hosts", "each name once", name)
    return names, gpus, kinds


def host_names(document: LinksDocument) -> list[str]:
    """By number."""
    return _hosts(document)[0]


class RunningPlan(ApiModel):
    """What of ``best`` in a ``wattpack.io/training-plan/v1`` says how a job runs."""

    data: Count
    tensor: Count
    pipeline: Count
    context: Count
    micro_batch: Count
    recompute: Recompute
    zero_stage: Annotated[int, Field(ge=0, le=3)]
    offload: Offload
    chunks: Count
    expert: Count = 1
    layers_of_stage: Annotated[list[Count], Field(min_length=1)]
    limit_watts: Annotated[float, Field(gt=0, le=1e5)]
    gpu_of_rank: list[list[list[list[Annotated[int, Field(ge=0, lt=MOST_GPUS)]]]]]

    @property
    def layout(self) -> ParallelLayout:
        """As a value."""
        names = ParallelLayout.__slots__
        return ParallelLayout(**{name: getattr(self, name) for name in names})

    @property
    def ranks(self) -> Indices:
        """GPU numbers, shape (pipeline, data, context, tensor).

        Raises:
            InputError: rows of different lengths.
        """
        try:
            return np.array(self.gpu_of_rank, dtype=np.int64)
        except ValueError as error:
            raise InputError("gpuOfRank", "rows of one length", "others") from error


def parse_running(document: object, source: str = "") -> RunningPlan:
    """The plan of a job from the answer that it was started with.

    Raises:
        InputError: naming the field.
    """
    best = document.get("best") if isinstance(document, dict) else None
    if not isinstance(best, dict):
        raise InputError("best", "the plan of a wattpack.io/training-plan/v1", best, source)
    names = {to_camel(name) for name in RunningPlan.model_fields}
    kept = {name: value for name, value in best.items() if name in names}
    return validate(RunningPlan, kept, source)


def move_json(capped: CappedJob, cap_watts: Mapping[str, float]) -> dict[str, Any]:
    """The verdict: every figure with its unit in the key, null for never.

    Args:
        cap_watts: Of each capped host's GPUs.
    """
    move = capped.move
    return {
        "apiVersion": "wattpack.io/training-move/v1",
        "capWatts": dict(cap_watts),
        "moves": isfinite(capped.moves_after_seconds),
        "moveAfterSeconds": _or_null(capped.moves_after_seconds),
        "paysAfterSeconds": _or_null(move.pays_after_seconds),
        "moveSeconds": move.price_seconds,
        "lostShare": move.lost_share,
        "uncappedStepSeconds": capped.running.step_seconds,
        "cappedStepSeconds": capped.staying.step_seconds,
        "movedStepSeconds": move.step_seconds,
        "running": _plan_json(capped.staying) | {"gpuOfRank": capped.staying.ranks.tolist()},
        "best": _plan_json(move.plan) | {"gpuOfRank": move.plan.ranks.tolist()},
    }


def _or_null(seconds: float) -> float | None:
    return seconds if isfinite(seconds) else None


def answer_json(plans: ParallelPlans, gpu_types: Sequence[str]) -> dict[str, Any]:
    """The answer: every figure with its unit in the key.

    Args:
        gpu_types: Of each GPU, by number.
    """
    return {
        "apiVersion": "wattpack.io/training-plan/v1",
        "best": _plan_json(plans.best) | {"gpuOfRank": plans.best.ranks.tolist()},
        "front": [_plan_json(plan) for plan in plans.front],
        "gpuTypes": list(gpu_types),
        "layoutsConsidered": plans.considered,
        "layoutsTooLarge": plans.too_large,
        "binding": [{"limit": name, "share": share} for name, share in plans.binding],
        "warnings": list(plans.warnings),
    }


def _plan_json(plan: ParallelPlan) -> dict[str, Any]:
    layout, power = plan.layout, plan.power
    return {
        "gpus": layout.gpus,
        "data": layout.data,
        "tensor": layout.tensor,
        "pipeline": layout.pipeline,
        "context": layout.context,
        "microBatch": layout.micro_batch,
        "recompute": layout.recompute,
        "zeroStage": layout.zero_stage,
        "offload": layout.offload,
        "chunks": layout.chunks,
        "expert": layout.expert,
        "layersOfStage": list(plan.layers),
        "limitWatts": plan.limit_watts,
        "stepSeconds": plan.step_seconds,
        "joulesPerStep": plan.joules,
        "dollarsPerStep": plan.dollars,
        "tokensPerSecond": plan.tokens_per_second,
        "memoryBytesOfStage": list(plan.memory_bytes),
        "shares": plan.shares,
        "power": {
            "meanWattsPerGpu": power.mean_watts,
            "peakWattsPerGpu": power.peak_watts,
            "dipWattsPerGpu": power.dip_watts,
            "periodSeconds": power.period_seconds,
            "phases": [
                {"name": p.name, "seconds": p.seconds, "drawWattsPerGpu": p.draw_watts}
                for p in power.phases
            ],
        },
    }


def host_ranges(plan: ParallelPlan, cluster: TrainingCluster) -> list[str]:
    """Hosts of each stage in words, with their types where there are several."""
    boards, said = (cluster.gpus[0], *cluster.others), []
    for stage in plan.ranks:
        hosts = np.unique(cluster.links.host[stage.ravel()]).tolist()
        types = sorted({boards[t].model for t in cluster.types[stage.ravel()].tolist()})
        named = f" ({', '.join(types)})" if cluster.others else ""
        said.append(", ".join(str(host) for host in hosts) + named)
    return said
