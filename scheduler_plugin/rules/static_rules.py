"""Which nodes a pod may use whatever is free there: one table, for the plan and its reasons.

A new rule is one entry here, its fields in ``scheduler_plugin.documents.snapshot`` and its line
in the checker, which judges on its own. ``tests/scheduler_plugin/test_planner_rules.py`` compares
the two over every field of pods and nodes and fails if one of them does not know a rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from scheduler_plugin.documents.node_rules import Taint
from scheduler_plugin.documents.plan_document import PendingReason
from scheduler_plugin.documents.snapshot import Node, Pod, Snapshot
from scheduler_plugin.rules.matching import affinity_matches, taints_tolerated
from scheduler_plugin.rules.node_kinds import NodeKinds

BoolArray = npt.NDArray[np.bool_]

#: What a pod is called, where it stands, how much it takes: everything that is no rule.
NO_RULE = frozenset(
    [
        *("uid", "namespace", "name", "priority", "state", "node", "gang", "beyond"),
        *("gpu_milli", "gpu_boards", "mig_profiles", "mig_placements", "drawn_milli"),
        *("milli_cpu", "memory_bytes", "resources"),
        *("kernel_class", "expected_watts_per_gpu", "move_seconds", "expected_end_seconds"),
        *("preferences", "gpu_model_values", "cpu_class_values"),
        *("least_cap_milli", "cap_watts"),
        *("groups", "peer_rules", "wished_groups", "peer_wishes"),
        *("peak_flow_megabits", "quotas"),
    ]
)


@dataclass(frozen=True, slots=True)
class StaticRule:
    """A pod may use a node only if ``holds``.

    Attributes:
        reason: Told to pods for which no node is left after this rule.
        holds: The rule.
        says: The sentence to the reason, with the number of nodes that passed earlier rules.
        of_all: The same as ``holds`` of all kinds of nodes at once, where a pod may bring any
            number of what the rule is about.
    """

    reason: PendingReason
    holds: Callable[[Pod, Node], bool]
    says: Callable[[Snapshot, Pod, int], str]
    of_all: Callable[[Pod, NodeKinds], BoolArray] | None = None


def static_key(pod: Pod) -> str:
    """Equal for pods that every rule treats alike."""
    return pod.model_dump_json(exclude=set(NO_RULE))


def are_alike(pod: Pod, other: Pod) -> bool:
    """Whether every rule treats both alike on nodes that neither was sent away from."""
    rules = Pod.model_fields.keys() - NO_RULE - {"excluded_nodes"} | {"peer_rules"}
    return all(getattr(pod, rule) == getattr(other, rule) for rule in rules)


def static_mask(kinds: NodeKinds, pod: Pod) -> BoolArray:
    """Nodes that pass every rule, shape (n,).

    Rules of which a pod may bring any number are asked of all nodes at once.
    """
    one_by_one = [rule for rule in STATIC_RULES if rule.of_all is None]
    found = kinds.mask(lambda node: all(rule.holds(pod, node) for rule in one_by_one))
    for rule in STATIC_RULES:
        if rule.of_all is not None:
            found &= rule.of_all(pod, kinds)[kinds.of_node]
    return found


def borne_taints(taints: Iterable[Taint], pod: Pod) -> frozenset[Taint]:
    """Those that keep the pod from no node."""
    return frozenset(taint for taint in taints if taints_tolerated((taint,), pod.tolerations))


def _borne_everywhere(pod: Pod, kinds: NodeKinds) -> BoolArray:
    borne = borne_taints(kinds.taints, pod)
    answers = (borne.issuperset(node.taints) for node in kinds.examples)
    return np.fromiter(answers, dtype=np.bool_, count=len(kinds.examples))


def _model_text(snapshot: Snapshot, pod: Pod, left: int) -> str:
    have = sorted({n.gpu_model for n in snapshot.nodes if n.gpu_model})
    return f"wants {' or '.join(pod.gpu_models)}; the cluster has {', '.join(have) or 'no GPUs'}"


def _cpu_text(snapshot: Snapshot, pod: Pod, left: int) -> str:
    have = sorted({n.cpu_class for n in snapshot.nodes if n.cpu_class})
    return f"wants CPU class {' or '.join(pod.cpu_classes)}; {_listed(have)} ({left} looked at)"


def _nic_text(snapshot: Snapshot, pod: Pod, left: int) -> str:
    have = sorted({n.nic_class for n in snapshot.nodes if n.nic_class})
    return f"wants NIC class {' or '.join(pod.nic_classes)}; {_listed(have)} ({left} looked at)"


def _listed(classes: list[str]) -> str:
    more = f" and {len(classes) - 6} more" if len(classes) > 6 else ""
    return f"nodes have {', '.join(classes[:6]) or 'none that is known'}{more}"


def _affinity_text(snapshot: Snapshot, pod: Pod, left: int) -> str:
    return f"node selector or required affinity matches none of {left} nodes"


def _taint_text(snapshot: Snapshot, pod: Pod, left: int) -> str:
    keys = sorted({t.key for n in snapshot.nodes for t in n.taints})
    return f"none of {left} matching nodes is free of untolerated taints ({', '.join(keys[:4])})"


def _ready_text(snapshot: Snapshot, pod: Pod, left: int) -> str:
    return f"all {left} matching nodes are not ready, cordoned or about to be disrupted"


def _power_text(snapshot: Snapshot, pod: Pod, left: int) -> str:
    unknown = [n for n in snapshot.nodes if not n.feed_known]
    models = sorted({n.gpu_model or "unlabelled" for n in unknown if not n.rival_domains})
    told = [f"no GPUProfile says what {', '.join(models[:4])} draws"] if models else []
    for node in [n for n in unknown if n.rival_domains][:4]:
        claims = " and ".join((node.domain, *node.rival_domains))
        told.append(f"{node.name} is claimed by {claims}, of two branches of the power tree")
    return f"{'; '.join(told)} ({left} matching nodes)"


def _quarantine_text(snapshot: Snapshot, pod: Pod, left: int) -> str:
    return f"all {left} matching nodes refused this pod before"


STATIC_RULES: tuple[StaticRule, ...] = (
    StaticRule(
        PendingReason.NO_GPU_MODEL,
        lambda pod, node: not pod.gpu_models or node.gpu_model in pod.gpu_models,
        _model_text,
    ),
    StaticRule(
        PendingReason.NO_CPU_CLASS,
        lambda pod, node: not pod.cpu_classes or node.cpu_class in pod.cpu_classes,
        _cpu_text,
    ),
    StaticRule(
        PendingReason.NO_NIC_CLASS,
        lambda pod, node: not pod.nic_classes or node.nic_class in pod.nic_classes,
        _nic_text,
    ),
    StaticRule(
        PendingReason.NODE_AFFINITY,
        affinity_matches,
        _affinity_text,
        lambda pod, kinds: kinds.labels.suits(pod),
    ),
    StaticRule(
        PendingReason.TAINT_NOT_TOLERATED,
        lambda pod, node: taints_tolerated(node.taints, pod.tolerations),
        _taint_text,
        _borne_everywhere,
    ),
    StaticRule(
        PendingReason.NO_READY_NODE,
        lambda pod, node: node.is_open,
        _ready_text,
    ),
    StaticRule(PendingReason.GPU_POWER_UNKNOWN, lambda pod, node: node.feed_known, _power_text),
    StaticRule(
        PendingReason.QUARANTINED,
        lambda pod, node: node.name not in pod.excluded_nodes,
        _quarantine_text,
    ),
)
