"""``wattpack.io/snapshot/v1``: everything that one planning cycle may know, as a value.

Quantities are integers: milliGPU, milliCPU, bytes, watts (AC, at the breaker). Unknown keys are
refused, ids are sorted, and the digest names the content.
"""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from scheduler_plugin.documents.cap_option import CapOption
from scheduler_plugin.documents.hold import Hold
from scheduler_plugin.documents.link_groups import LinkGroup, LinkPair, links_hold
from scheduler_plugin.documents.objective_order import DEFAULT_ORDER, ObjectiveOrder
from scheduler_plugin.documents.slow_down import SlowDown
from scheduler_plugin.documents.snapshot_amounts import MAX_QUANTITY, MILLI_PER_GPU
from scheduler_plugin.documents.snapshot_checks import boards_there
from scheduler_plugin.documents.snapshot_domain import PowerDomain
from scheduler_plugin.documents.snapshot_limits import (
    MAX_HOLDS,
    MAX_LINK_GROUPS,
    MAX_LINK_PAIRS,
    MAX_NODES,
    MAX_PAIRS,
    MAX_PODS,
    MAX_QUOTAS,
    refuse_huge,
)
from scheduler_plugin.documents.snapshot_node import Node
from scheduler_plugin.documents.snapshot_pod import Gang, Pod, PodState
from scheduler_plugin.documents.snapshot_quota import Quota
from scheduler_plugin.documents.snapshot_references import known, shallow_tree, unique
from scheduler_plugin.documents.snapshot_texts import SnapshotTexts, texts_of
from scheduler_plugin.documents.value import Label, Value
from scheduler_plugin.documents.value_json import parse_value

__all__ = [
    "MAX_QUANTITY",
    "MILLI_PER_GPU",
    "Gang",
    "Hold",
    "Node",
    "Pod",
    "PodState",
    "PowerDomain",
    "Quota",
    "SlowDown",
    "Snapshot",
    "parse_snapshot",
    "snapshot_schema",
]


class Snapshot(Value):
    """One consistent view. Lists are sorted by id whatever order they came in.

    Attributes:
        holds: Room that is kept for work which waited too long.
        link_label: Of nodes; those with the same value share an uplink. Empty without links.
        link_groups: Those of which something is known, and groups of them; others limit nothing.
        link_pairs: Of groups, with what was measured between their nodes.
        objective: What plans that place as much are compared by, what counts first first.
    """

    api_version: Literal["wattpack.io/snapshot/v1"] = "wattpack.io/snapshot/v1"
    nodes: Annotated[tuple[Node, ...], Field(max_length=MAX_NODES)] = ()
    pods: Annotated[tuple[Pod, ...], Field(max_length=MAX_PODS)] = ()
    gangs: Annotated[tuple[Gang, ...], Field(max_length=MAX_PODS)] = ()
    domains: Annotated[tuple[PowerDomain, ...], Field(max_length=MAX_NODES)] = ()
    slow_downs: Annotated[tuple[SlowDown, ...], Field(max_length=MAX_PAIRS)] = ()
    cap_options: Annotated[tuple[CapOption, ...], Field(max_length=MAX_PAIRS)] = ()
    quotas: Annotated[tuple[Quota, ...], Field(max_length=MAX_QUOTAS)] = ()
    holds: Annotated[tuple[Hold, ...], Field(max_length=MAX_HOLDS)] = ()
    link_label: Label = ""
    link_groups: Annotated[tuple[LinkGroup, ...], Field(max_length=MAX_LINK_GROUPS)] = ()
    link_pairs: Annotated[tuple[LinkPair, ...], Field(max_length=MAX_LINK_PAIRS)] = ()
    objective: ObjectiveOrder = DEFAULT_ORDER

    @field_validator("nodes")
    @classmethod
    def _sort_nodes(cls, value: tuple[Node, ...]) -> tuple[Node, ...]:
        return tuple(sorted(value, key=lambda node: node.name))

    @field_validator("pods")
    @classmethod
    def _sort_pods(cls, value: tuple[Pod, ...]) -> tuple[Pod, ...]:
        return tuple(sorted(value, key=lambda pod: pod.uid))

    @field_validator("gangs")
    @classmethod
    def _sort_gangs(cls, value: tuple[Gang, ...]) -> tuple[Gang, ...]:
        return tuple(sorted(value, key=lambda gang: gang.id))

    @field_validator("domains")
    @classmethod
    def _sort_domains(cls, value: tuple[PowerDomain, ...]) -> tuple[PowerDomain, ...]:
        return tuple(sorted(value, key=lambda domain: domain.name))

    @field_validator("slow_downs")
    @classmethod
    def _sort_slow_downs(cls, value: tuple[SlowDown, ...]) -> tuple[SlowDown, ...]:
        return tuple(sorted(value, key=lambda s: (s.gpu_model, s.work, s.beside)))

    @field_validator("cap_options")
    @classmethod
    def _sort_cap_options(cls, value: tuple[CapOption, ...]) -> tuple[CapOption, ...]:
        return tuple(sorted(value, key=lambda o: (o.gpu_model, o.kernel_class, o.cap_watts)))

    @field_validator("quotas")
    @classmethod
    def _sort_quotas(cls, value: tuple[Quota, ...]) -> tuple[Quota, ...]:
        return tuple(sorted(value, key=lambda quota: quota.name))

    @field_validator("holds")
    @classmethod
    def _sort_holds(cls, value: tuple[Hold, ...]) -> tuple[Hold, ...]:
        return tuple(sorted(value, key=lambda hold: hold.work))

    @field_validator("link_groups")
    @classmethod
    def _sort_link_groups(cls, value: tuple[LinkGroup, ...]) -> tuple[LinkGroup, ...]:
        return tuple(sorted(value, key=lambda group: group.name))

    @field_validator("link_pairs")
    @classmethod
    def _sort_link_pairs(cls, value: tuple[LinkPair, ...]) -> tuple[LinkPair, ...]:
        return tuple(sorted(value, key=lambda pair: (pair.one, pair.other)))

    @model_validator(mode="after")
    def _ids_and_references_hold(self) -> Self:
        unique("nodes.name", [node.name for node in self.nodes])
        unique("pods.uid", [pod.uid for pod in self.pods])
        unique("gangs.id", [gang.id for gang in self.gangs])
        unique("domains.name", [domain.name for domain in self.domains])
        unique("slow_downs", [f"{s.gpu_model}/{s.work}/{s.beside}" for s in self.slow_downs])
        caps = [f"{o.gpu_model}/{o.kernel_class}/{o.cap_watts}" for o in self.cap_options]
        unique("cap_options", caps)
        unique("quotas.name", [quota.name for quota in self.quotas])
        unique("holds.work", [hold.work for hold in self.holds])
        domains = {domain.name for domain in self.domains}
        known("nodes.domain", {node.domain for node in self.nodes} - {""}, domains)
        known("domains.parent", {domain.parent for domain in self.domains} - {""}, domains)
        known("pods.gang", {pod.gang for pod in self.pods} - {""}, {g.id for g in self.gangs})
        named = {name for pod in self.pods for name in pod.quotas}
        known("pods.quotas", named, {quota.name for quota in self.quotas})
        beyond = {pod.beyond for pod in self.pods} - {""}
        known("pods.beyond", beyond, {gang.id for gang in self.gangs})
        shallow_tree("domains.parent", {domain.name: domain.parent for domain in self.domains})
        boards_there(self.nodes, self.pods)
        links_hold(self.link_label, self.link_groups, self.link_pairs)
        return self

    def __copy__(self) -> Self:
        """Without what was computed of the original, which ``model_copy`` may change."""
        copied = super().__copy__()
        for name in ("content_digest", "texts"):
            copied.__dict__.pop(name, None)
        return copied

    def digest(self) -> str:
        """``sha256:`` and a hash that does not depend on the order of lists and keys."""
        return self.content_digest

    @cached_property
    def content_digest(self) -> str:
        """Computed once."""
        return self.texts.digest()

    @cached_property
    def texts(self) -> SnapshotTexts:
        """What is digested and sent, written once: it costs about 20 microseconds a node."""
        rest = self.model_dump_json(exclude={"nodes", "pods"}, exclude_defaults=True)
        return SnapshotTexts(texts_of(self.nodes), texts_of(self.pods), rest.encode())


def parse_snapshot(text: str | bytes, source: str = "") -> Snapshot:
    """A snapshot from JSON.

    Raises:
        InputError: naming the first wrong field, for anything that is not one.
    """
    refuse_huge(text, source)
    return parse_value(Snapshot, text, source)


def snapshot_schema() -> dict[str, Any]:
    """The JSON Schema of ``wattpack.io/snapshot/v1``."""
    return Snapshot.model_json_schema()
