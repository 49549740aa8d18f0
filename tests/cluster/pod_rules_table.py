"""What Kubernetes accepts and refuses of pods: one row a rule.

Source: the functions ValidatePodCreate and ValidatePodUpdate of Kubernetes 1.35 (validation of the
core API) and its documentation of mutable scheduling directives of gated pods.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.cluster.cluster_builders import GATE, Body, pod, required, term

OTHER = "example.com/other"
ZONE, RACK = {"zone": ["a", "b"]}, {"rack": ["r1"]}
PLAIN: Body = {}
SELECTED: Body = {"nodeSelector": {"pool": "gpu"}}
ONE_TERM: Body = {"affinity": required(term(ZONE))}
TWO_TERMS: Body = {"affinity": required(term(ZONE), term(RACK))}
EMPTY_TERM: Body = {"affinity": required({})}
PREFERRED: Body = {
    "affinity": {
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 10, "preference": term(ZONE)}
            ]
        }
    }
}
POD_AFFINITY: Body = {
    "affinity": {
        "podAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "rack", "labelSelector": {"matchLabels": {"app": "x"}}}
            ]
        }
    }
}
TOLERATING: Body = {"tolerations": [{"key": "a", "operator": "Exists", "effect": "NoSchedule"}]}
DEADLINE: Body = {"activeDeadlineSeconds": 100}

Change = Callable[[Body], None]


def put(*path: Any, value: Any) -> Change:
    """Set the value at a path below spec."""

    def change(spec: Body) -> None:
        at: Any = spec
        for key in path[:-1]:
            at = at.setdefault(key, {}) if isinstance(at, dict) else at[key]
        at[path[-1]] = value

    return change


def drop(*path: Any) -> Change:
    """Remove what lies at a path below spec."""

    def change(spec: Body) -> None:
        at: Any = spec
        for key in path[:-1]:
            at = at[key]
        del at[path[-1]]

    return change


def gates(*names: str) -> Change:
    """Set the scheduling gates."""
    return put("schedulingGates", value=[{"name": name} for name in names])


def terms(*new: Body) -> Change:
    """Set the whole affinity to these required node terms."""
    return put("affinity", value=required(*new))


def together(*changes: Change) -> Change:
    """Several changes in one update."""

    def change(spec: Body) -> None:
        for one in changes:
            one(spec)

    return change


def more_tolerations(*new: Body) -> Change:
    """Add tolerations at the end."""

    def change(spec: Body) -> None:
        spec["tolerations"] = [*spec["tolerations"], *new]

    return change


GATED, UNGATED = (GATE, OTHER), ()
ACCEPTED, REFUSED = 200, 422

# (what is tried, gates of the old pod, its placement, the change, what Kubernetes answers)
UPDATES: list[tuple[str, tuple[str, ...], Body, Change, int]] = [
    ("remove one gate", GATED, PLAIN, gates(OTHER), ACCEPTED),
    ("remove all gates", GATED, PLAIN, gates(), ACCEPTED),
    ("add a gate to a gated pod", GATED, PLAIN, gates(GATE, OTHER, "example.com/new"), REFUSED),
    ("swap a gate for another", GATED, PLAIN, gates(GATE, "example.com/new"), REFUSED),
    ("add a gate to an ungated pod", UNGATED, PLAIN, gates(GATE), REFUSED),
    ("reorder gates", GATED, PLAIN, gates(OTHER, GATE), ACCEPTED),
    (
        "add a node selector while gated",
        GATED,
        PLAIN,
        put("nodeSelector", "a", value="b"),
        ACCEPTED,
    ),
    (
        "add to the selector while gated",
        GATED,
        SELECTED,
        put("nodeSelector", "a", value="b"),
        ACCEPTED,
    ),
    ("change a selector value", GATED, SELECTED, put("nodeSelector", "pool", value="x"), REFUSED),
    ("drop a selector key", GATED, SELECTED, put("nodeSelector", value={}), REFUSED),
    (
        "add a node selector when ungated",
        UNGATED,
        PLAIN,
        put("nodeSelector", "a", value="b"),
        REFUSED,
    ),
    ("set affinity where none was", GATED, PLAIN, terms(term(ZONE)), ACCEPTED),
    ("set affinity when ungated", UNGATED, PLAIN, terms(term(ZONE)), REFUSED),
    ("pin by matchFields where none was", GATED, PLAIN, terms(term(names=["n1"])), ACCEPTED),
    ("add an expression to the term", GATED, ONE_TERM, terms(term({**ZONE, **RACK})), ACCEPTED),
    ("add a field to the term", GATED, ONE_TERM, terms(term(ZONE, ["n1"])), ACCEPTED),
    (
        "add a field to every term",
        GATED,
        TWO_TERMS,
        terms(term(ZONE, ["n"]), term(RACK, ["n"])),
        ACCEPTED,
    ),
    (
        "add a field to one of two terms",
        GATED,
        TWO_TERMS,
        terms(term(ZONE, ["n"]), term(RACK)),
        ACCEPTED,
    ),
    ("add a term", GATED, ONE_TERM, terms(term(ZONE), term(RACK)), REFUSED),
    ("drop a term", GATED, TWO_TERMS, terms(term(ZONE)), REFUSED),
    ("swap terms", GATED, TWO_TERMS, terms(term(RACK), term(ZONE)), REFUSED),
    ("change an expression", GATED, ONE_TERM, terms(term({"zone": ["a"]})), REFUSED),
    ("put an expression in front", GATED, ONE_TERM, terms(term({**RACK, **ZONE})), REFUSED),
    ("drop an expression", GATED, ONE_TERM, terms(term(names=["n1"])), REFUSED),
    ("drop the affinity", GATED, ONE_TERM, drop("affinity"), REFUSED),
    ("drop the node affinity", GATED, ONE_TERM, drop("affinity", "nodeAffinity"), REFUSED),
    ("fill an empty term", GATED, EMPTY_TERM, terms(term(ZONE)), REFUSED),
    ("narrow terms when ungated", UNGATED, ONE_TERM, terms(term(ZONE, ["n1"])), REFUSED),
    ("change preferred terms while gated", GATED, PREFERRED, drop("affinity"), ACCEPTED),
    ("change preferred terms when ungated", UNGATED, PREFERRED, drop("affinity"), REFUSED),
    (
        "add pod affinity while gated",
        GATED,
        PLAIN,
        put("affinity", value=POD_AFFINITY["affinity"]),
        REFUSED,
    ),
    ("drop pod affinity while gated", GATED, POD_AFFINITY, drop("affinity"), REFUSED),
    (
        "pin beside pod affinity",
        GATED,
        POD_AFFINITY,
        put("affinity", "nodeAffinity", value=required(term(names=["n1"]))["nodeAffinity"]),
        ACCEPTED,
    ),
    (
        "ungate and pin in one update",
        GATED,
        ONE_TERM,
        together(gates(), terms(term(ZONE, ["n1"]))),
        ACCEPTED,
    ),
    (
        "ungate and loosen in one update",
        GATED,
        ONE_TERM,
        together(gates(), terms(term(RACK))),
        REFUSED,
    ),
    (
        "two values in a field",
        GATED,
        PLAIN,
        terms({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a", "b"]}]}),
        REFUSED,
    ),
    (
        "a field that is not the name",
        GATED,
        PLAIN,
        terms({"matchFields": [{"key": "metadata.uid", "operator": "In", "values": ["a"]}]}),
        REFUSED,
    ),
    ("set nodeName while gated", GATED, PLAIN, put("nodeName", value="n1"), REFUSED),
    ("set nodeName when ungated", UNGATED, PLAIN, put("nodeName", value="n1"), REFUSED),
    (
        "ungate and set nodeName",
        GATED,
        PLAIN,
        together(gates(), put("nodeName", value="n1")),
        REFUSED,
    ),
    ("change the image", GATED, PLAIN, put("containers", 0, "image", value="b"), ACCEPTED),
    ("empty the image", GATED, PLAIN, put("containers", 0, "image", value=""), REFUSED),
    (
        "change requests",
        GATED,
        PLAIN,
        put("containers", 0, "resources", value={"requests": {"cpu": "1"}}),
        REFUSED,
    ),
    ("change the command", GATED, PLAIN, put("containers", 0, "command", value=["x"]), REFUSED),
    (
        "add a container",
        GATED,
        PLAIN,
        lambda s: s["containers"].append({"name": "b", "image": "b"}),
        REFUSED,
    ),
    (
        "add an init container",
        GATED,
        PLAIN,
        put("initContainers", value=[{"name": "b", "image": "b"}]),
        REFUSED,
    ),
    ("change the scheduler", GATED, PLAIN, put("schedulerName", value="other"), REFUSED),
    ("change the priority", GATED, PLAIN, put("priority", value=7), REFUSED),
    (
        "change the priority class",
        GATED,
        PLAIN,
        put("priorityClassName", value="system-node-critical"),
        REFUSED,
    ),
    ("change the account", GATED, PLAIN, put("serviceAccountName", value="other"), REFUSED),
    ("change the restart policy", GATED, PLAIN, put("restartPolicy", value="Never"), REFUSED),
    ("use the host's network", GATED, PLAIN, put("hostNetwork", value=True), REFUSED),
    ("set the grace period", GATED, PLAIN, put("terminationGracePeriodSeconds", value=1), REFUSED),
    (
        "add spread constraints",
        GATED,
        PLAIN,
        put(
            "topologySpreadConstraints",
            value=[{"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"}],
        ),
        REFUSED,
    ),
    (
        "add a toleration",
        UNGATED,
        TOLERATING,
        more_tolerations({"key": "b", "operator": "Exists"}),
        ACCEPTED,
    ),
    ("drop a toleration", GATED, TOLERATING, put("tolerations", value=[]), REFUSED),
    (
        "change a toleration's effect",
        GATED,
        TOLERATING,
        put("tolerations", 0, "effect", value="NoExecute"),
        REFUSED,
    ),
    ("set an active deadline", GATED, PLAIN, put("activeDeadlineSeconds", value=9), ACCEPTED),
    ("shorten the deadline", GATED, DEADLINE, put("activeDeadlineSeconds", value=9), ACCEPTED),
    ("lengthen the deadline", GATED, DEADLINE, put("activeDeadlineSeconds", value=900), REFUSED),
    ("drop the deadline", GATED, DEADLINE, drop("activeDeadlineSeconds"), REFUSED),
    ("a negative deadline", GATED, PLAIN, put("activeDeadlineSeconds", value=-1), REFUSED),
]


CREATIONS: list[tuple[str, Body, int]] = [
    ("gated without a node", pod("c1", gates=[GATE]), 201),
    ("gated with a node", pod("c2", gates=[GATE], nodeName="n1"), 422),
    ("the same gate twice", pod("c3", gates=[GATE, GATE]), 422),
    ("a gate without a domain", pod("c4", gates=["gate"]), 201),
    ("a gate that is no name", pod("c5", gates=["not a name"]), 422),
    ("no containers", {"metadata": {"name": "c6"}, "spec": {"containers": []}}, 422),
    (
        "more requested than allowed",
        pod(
            "c7",
            containers=[
                {
                    "name": "c",
                    "image": "i",
                    "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "2"}},
                }
            ],
        ),
        422,
    ),
    (
        "half a GPU",
        pod(
            "c8",
            containers=[
                {"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "500m"}}}
            ],
        ),
        422,
    ),
    (
        "a GPU request without limit",
        pod(
            "c9",
            containers=[
                {"name": "c", "image": "i", "resources": {"requests": {"nvidia.com/gpu": "1"}}}
            ],
        ),
        422,
    ),
    ("an unknown account", pod("c10", serviceAccountName="nobody"), 403),
    ("an unknown priority class", pod("c11", priorityClassName="nothing"), 403),
    ("a priority by number", pod("c12", priority=5), 403),
    ("an empty required term list", pod("c13", affinity=required()), 422),
    (
        "a mount without volume",
        pod(
            "c14",
            containers=[
                {"name": "c", "image": "i", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}
            ],
        ),
        422,
    ),
]
