"""Whether what a plan says of a waiting pod is true: on plain JSON, with an arithmetic of its own.

Everything but one pod, or one gang, is frozen where the plan leaves it; changes are made by hand
here; then planner and checker are asked. Nothing of what explains is used.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from scheduler_plugin.documents.snapshot import Snapshot
from scheduler_plugin.judge.checker import complaints
from scheduler_plugin.solve import plan

__all__ = ["altered", "fits_if_all_is_free", "frozen", "is_placed", "less_of"]

Document = dict[str, Any]
HOLDS: Final = ("bound", "promised")
FAR_ABOVE: Final = 10**9


def frozen(snapshot: Document, plan_made: Document, entry: Document) -> Document:
    """The snapshot as the plan leaves it, in which only the pod or gang of one entry waits."""
    made = copy.deepcopy(snapshot)
    placed = {line["uid"]: line for line in plan_made["placements"]}
    kept = []
    for pod in made["pods"]:
        if pod["uid"] in placed:
            line = placed[pod["uid"]]
            pod |= {"state": "promised", "node": line["node"], "gpu_boards": line["boards"]}
        mine = pod["uid"] == entry["uid"] or (entry["gang"] and pod["gang"] == entry["gang"])
        if pod["state"] in HOLDS or mine:
            kept.append(pod)
    return made | {"pods": kept}


def altered(snapshot: Document, changes: Sequence[Document]) -> Document:
    """With the changes made."""
    made = copy.deepcopy(snapshot)
    for change in changes:
        _ALTER[change["kind"]](made, change)
    return made


def is_placed(snapshot: Document) -> bool:
    """Whether the planner places all who wait and the checker accepts that."""
    question = Snapshot.model_validate_json(json.dumps(snapshot))
    answer = plan(question, deadline_seconds=1.0)
    if complaints(question, answer):
        return False
    waiting = {pod["uid"] for pod in snapshot["pods"] if pod["state"] not in HOLDS}
    return waiting == {placement.uid for placement in answer.placements}


def less_of(change: Document) -> Iterator[Document]:
    """The same change by the least bit less, for each of its amounts."""
    if change["kind"] in ("raise_limit", "lower_guarantees"):
        yield change | {"watts": change["watts"] - 1}
    elif change["kind"] == "widen_uplink":
        yield change | {"megabits": change["megabits"] - 1}
    elif change["kind"] == "raise_quota":
        yield change | {"amount": change["amount"] - 1}
    elif change["kind"] == "allow_slow_down":
        yield change | {"slow_down_milli": change["slow_down_milli"] - 1}
    elif change["kind"] == "add_nodes":
        yield change | {"count": change["count"] - 1}
    elif change["kind"] == "free_on_node":
        for amount in ("gpus", "milli_cpu", "memory_bytes", "pods"):
            if change[amount]:
                yield change | {amount: change[amount] - 1}


def fits_if_all_is_free(snapshot: Document, entry: Document) -> bool:
    """Whether the pod has a place if nothing runs, nothing is limited and no rule holds it."""
    made = copy.deepcopy(snapshot)
    mine = [
        pod
        for pod in made["pods"]
        if pod["state"] not in HOLDS
        and (pod["uid"] == entry["uid"] or (entry["gang"] and pod["gang"] == entry["gang"]))
    ]
    free: Document = {
        "gpu_models": [],
        "cpu_classes": [],
        "nic_classes": [],
        "node_selector": {},
        "required_terms": [],
        "excluded_nodes": [],
    }
    free |= {"peer_rules": [], "quotas": [], "beyond": ""}
    for pod in mine:
        pod |= {**free, "tolerations": [{"key": "", "operator": "Exists"}]}
    for node in made["nodes"]:
        node |= {"ready": True, "schedulable": True, "disrupted": False, "power_known": True}
    made |= {"link_groups": [], "link_pairs": []}
    for domain in made["domains"]:
        domain |= {"limit_watts": FAR_ABOVE, "used_watts": 0, "guaranteed_margin_watts": 0}
    anywhere = {"size": len(mine), "topology_required": False}
    gangs = [gang | anywhere for gang in made["gangs"] if gang["id"] == entry["gang"]]
    return is_placed(made | {"pods": mine, "gangs": gangs})


def _of(items: list[Document], key: str, value: str) -> Document:
    (found,) = [item for item in items if item[key] == value]
    return found


def _waiting(made: Document, change: Document) -> list[Document]:
    who = change["waiting"]
    return [p for p in made["pods"] if p["state"] not in HOLDS and who in (p["uid"], p["gang"])]


def _accept(made: Document, change: Document) -> None:
    for pod in _waiting(made, change):
        pod["gpu_models"].append(change["gpu_model"])


def _drop_selector(made: Document, change: Document) -> None:
    for pod in _waiting(made, change):
        del pod["node_selector"][change["key"]]


def _drop_affinity(made: Document, change: Document) -> None:
    for pod in _waiting(made, change):
        pod["required_terms"] = []


def _drop_peers(made: Document, change: Document) -> None:
    for pod in _waiting(made, change):
        pod["peer_rules"] = [r for r in pod["peer_rules"] if r["kind"] != change["rules"]]


def _scatter(made: Document, change: Document) -> None:
    _of(made["gangs"], "id", change["waiting"])["topology_required"] = False


def _tolerate(made: Document, change: Document) -> None:
    taint = {name: change[name] for name in ("key", "value", "effect")}
    for pod in _waiting(made, change):
        pod["tolerations"].append(taint | {"operator": "Equal"})


def _lift(made: Document, change: Document) -> None:
    for pod in _waiting(made, change):
        if change["node"] in pod["excluded_nodes"]:
            pod["excluded_nodes"].remove(change["node"])


def _return(made: Document, change: Document) -> None:
    up = {"ready": True, "schedulable": True, "disrupted": False}
    _of(made["nodes"], "name", change["node"]).update(up)


def _state_power(made: Document, change: Document) -> None:
    known = {"power_known": True, "rival_domains": []}
    _of(made["nodes"], "name", change["node"]).update(known)


def _allow(made: Document, change: Document) -> None:
    node = _of(made["nodes"], "name", change["node"])
    node["slow_down_limit_milli"] = change["slow_down_milli"]


def _raise(made: Document, change: Document) -> None:
    _of(made["domains"], "name", change["domain"])["limit_watts"] += change["watts"]


def _lower(made: Document, change: Document) -> None:
    _of(made["domains"], "name", change["domain"])["guaranteed_margin_watts"] += change["watts"]


def _widen(made: Document, change: Document) -> None:
    for group in made["link_groups"]:
        if group["name"] == change["group"]:
            group["uplink_megabits"] += change["megabits"]


def _accept_class(made: Document, change: Document) -> None:
    for pod in _waiting(made, change):
        pod[f"{change['part'].lower()}_classes"].append(change["name"])


def _raise_quota(made: Document, change: Document) -> None:
    quota = _of(made["quotas"], "name", change["quota"])
    quota["limits"][change["resource"]] += change["amount"]


def _move(made: Document, change: Document) -> None:
    pod = _of(made["pods"], "uid", change["uid"])
    if (pod["state"], pod["node"], pod["gang"]) != ("bound", change["source"], ""):
        raise ValueError(f"{pod['uid']} does not run alone on {change['source']}")
    if pod["move_seconds"] is None:
        raise ValueError(f"{pod['uid']} may not be moved")
    pod |= {"state": "promised", "node": change["target"], "gpu_boards": []}


def _evict(made: Document, change: Document) -> None:
    pod = _of(made["pods"], "uid", change["uid"])
    if (pod["state"], pod["node"]) != ("bound", change["node"]) or pod["move_seconds"] is None:
        raise ValueError(f"{pod['uid']} may not be evicted from {change['node']}")
    made["pods"].remove(pod)


def _free(made: Document, change: Document) -> None:
    """As if the node had so much more: what runs there stays."""
    node = _of(made["nodes"], "name", change["node"])
    there = [pod for pod in made["pods"] if pod["node"] == node["name"]]
    held = {
        "gpu_milli": sum(pod["gpu_milli"] for pod in there),
        "milli_cpu": sum(pod["milli_cpu"] for pod in there),
        "memory_bytes": sum(pod["memory_bytes"] for pod in there),
        "pods": len(there),
    }
    more = {
        "gpu_milli": 1000 * change["gpus"],
        **{name: change[name] for name in ("milli_cpu", "memory_bytes", "pods")},
    }
    for name, amount in more.items():
        if amount:
            node[name] = max(node[name], held[name]) + amount
    for name, amount in change["resources"].items():
        used = sum(pod["resources"].get(name, 0) for pod in there)
        node["resources"][name] = max(node["resources"].get(name, 0), used) + amount


def _add(made: Document, change: Document) -> None:
    like = _of(made["nodes"], "name", change["like"])
    for number in range(change["count"]):
        node = copy.deepcopy(like)
        node |= {"ready": True, "schedulable": True, "disrupted": False}
        made["nodes"].append(node | {"name": f"new-{number}"})
    name = like["domain"]
    while name:
        domain = _of(made["domains"], "name", name)
        domain["used_watts"] += change["count"] * like["idle_watts"]
        name = domain["parent"]


_ALTER: Final = {
    "accept_gpu_model": _accept,
    "drop_selector": _drop_selector,
    "drop_affinity": _drop_affinity,
    "drop_peer_rules": _drop_peers,
    "drop_gang_topology": _scatter,
    "tolerate_taint": _tolerate,
    "lift_quarantine": _lift,
    "return_node": _return,
    "state_power": _state_power,
    "allow_slow_down": _allow,
    "raise_limit": _raise,
    "lower_guarantees": _lower,
    "raise_quota": _raise_quota,
    "widen_uplink": _widen,
    "accept_host_class": _accept_class,
    "move_pod": _move,
    "evict_pod": _evict,
    "free_on_node": _free,
    "add_nodes": _add,
}
