"""``wattpack.io/links/v1`` as people write it, and the answer ``wattpack.io/training-plan/v1``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from capacity.training.link_matrix import Link, LinkMatrix
from capacity.training.plan_values import ParallelPlan, ParallelPlans
from capacity.training.step_work import HostResources
from wattpack.api.object_meta import ApiModel
from wattpack.errors import InputError
from wattpack.settings import validate

__all__ = ["LinksDocument", "answer_json", "links_of", "parse_links"]

MOST_GPUS = 4096

Rate = Annotated[float, Field(ge=1e6, le=1e14)]
Delay = Annotated[float, Field(ge=0, le=1)]
Label = Annotated[str, Field(min_length=1, max_length=128)]
Two = Annotated[list[Label], Field(min_length=2, max_length=2)]
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
    """Hosts that are alike; with a count above 1 they are called name-0, name-1 and so on."""

    name: Label
    gpus: Annotated[int, Field(ge=1, le=64)]
    nic: Label
    count: Annotated[int, Field(ge=1, le=MOST_GPUS)] = 1


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


def answer_json(plans: ParallelPlans) -> dict[str, Any]:
    """The answer: every figure with its unit in the key."""
    return {
        "apiVersion": "wattpack.io/training-plan/v1",
        "best": _plan_json(plans.best) | {"gpuOfRank": plans.best.ranks.tolist()},
        "front": [_plan_json(plan) for plan in plans.front],
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


def host_ranges(plan: ParallelPlan, links: LinkMatrix) -> list[str]:
    """Hosts of each stage, in words."""
    said = []
    for stage in plan.ranks:
        hosts = np.unique(links.host[stage.ravel()]).tolist()
        said.append(", ".join(str(host) for host in hosts))
    return said
