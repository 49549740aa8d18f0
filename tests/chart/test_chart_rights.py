"""Roles, bindings and admission policies of the rendered chart: least privilege, by name."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import pytest
import yaml

import scheduler_plugin.app
from tests.chart.helm_render import (
    PROCESSES,
    args_of,
    of_kind,
    pod_specs,
    render,
    rendered,
)
from wattpack.kube.port import Resource

pytestmark = pytest.mark.helm

REVIEWS = {"tokenreviews", "subjectaccessreviews"}


def rules_of(component: str) -> list[dict[str, Any]]:
    return [
        rule
        for item in of_kind(rendered("everything"), "ClusterRole", "Role")
        if item["metadata"]["name"] == f"wp-wattpack-{component}"
        for rule in item["rules"]
    ]


def test_no_role_has_a_wildcard_or_reads_secrets_at_large() -> None:
    for item in of_kind(rendered("everything"), "ClusterRole", "Role"):
        for rule in item["rules"]:
            named = ("apiGroups", "resources", "nonResourceURLs", "verbs")
            assert "*" not in "".join(name for key in named for name in rule.get(key, ()))
            if "secrets" in rule.get("resources", ()):
                assert item["kind"] == "Role"
                assert rule["resourceNames"]
                assert not {"list", "watch", "create"} & set(rule["verbs"])


def test_only_the_placement_processes_may_change_pods_and_the_console_changes_nothing() -> None:
    writers = set()
    for component in PROCESSES:
        for rule in rules_of(component):
            writes = set(rule["verbs"]) - {"get", "list", "watch"}
            if any(r.split("/")[0] == "pods" for r in rule.get("resources", ())) and writes:
                writers.add(component)
            # Reviews are questions in the shape of a create.
            asks = set(rule.get("resources", ())) <= REVIEWS
            assert component != "console" or not writes or asks
    assert writers == {"scheduler", "watchdog", "uninstall"}


def test_agents_reach_nothing_but_gpu_nodes() -> None:
    resources = {resource for rule in rules_of("agent") for resource in rule.get("resources", ())}
    assert resources == {"gpunodes", "gpunodes/status"} | REVIEWS


@pytest.mark.parametrize("component", sorted(PROCESSES))
def test_who_serves_http_may_ask_who_reads_and_nobody_else(component: str) -> None:
    asks = {r for rule in rules_of(component) for r in rule.get("resources", ())} & REVIEWS
    (container,) = pod_specs(rendered("everything"))[component]["containers"]
    serves = any(port["name"] in {"http", "metrics"} for port in container.get("ports", ()))
    assert asks == (REVIEWS if serves else set())


def test_the_controller_may_taint_nodes_only_where_it_enforces() -> None:
    def writes(name: str) -> list[dict[str, Any]]:
        return [
            rule
            for item in of_kind(rendered(name), "ClusterRole")
            if item["metadata"]["name"] == "wp-wattpack-controller"
            for rule in item["rules"]
            if "nodes" in rule.get("resources", ()) and set(rule["verbs"]) - {"list", "watch"}
        ]

    assert writes("default") == []
    assert writes("enforcing") == [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["patch"]}]


def test_the_controller_may_write_workload_profiles_unless_it_is_told_not_to() -> None:
    def verbs(objects: tuple[dict[str, Any], ...]) -> set[str]:
        return {
            verb
            for item in of_kind(objects, "ClusterRole")
            if item["metadata"]["name"] == "wp-wattpack-controller"
            for rule in item["rules"]
            if "workloadprofiles" in rule.get("resources", ())
            for verb in rule["verbs"]
        }

    assert verbs(rendered("default")) == {"list", "watch", "create", "patch"}
    off = {"controller": {"settings": {"write_workload_profiles": False}}}
    assert verbs(tuple(render(off))) == {"list", "watch"}


def test_the_scheduler_may_ask_for_nodes_only_where_it_manages_and_is_told_to() -> None:
    def writes(placement: dict[str, Any]) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {"podtemplates": set(), "provisioningrequests": set()}
        for item in of_kind(tuple(render({"placement": placement})), "ClusterRole"):
            if item["metadata"]["name"] == "wp-wattpack-scheduler":
                for rule in item["rules"]:
                    for resource in found.keys() & set(rule.get("resources", ())):
                        found[resource] |= set(rule["verbs"]) - {"list"}
        return found

    asks = {"provisioning": {"enabled": True}}
    wanted = {"podtemplates": {"create"}, "provisioningrequests": {"create", "delete"}}
    assert writes({"mode": "Manage"} | asks) == wanted
    for placement in ({"mode": "Manage"}, {"mode": "Shadow"} | asks):
        assert not any(writes(placement).values())


def read_where_served() -> dict[tuple[str, str], str]:
    """Group and plural of kinds that the scheduler does without where it may not list them."""
    found: dict[tuple[str, str], str] = {}
    for module in iter_modules(scheduler_plugin.app.__path__, "scheduler_plugin.app."):
        for name, value in vars(import_module(module.name)).items():
            if isinstance(value, tuple) and value and all(isinstance(v, Resource) for v in value):
                found |= {(kind.group, kind.plural): name for kind in value}
    return found


def test_the_scheduler_may_list_every_kind_that_it_would_do_without_unseen() -> None:
    checks = {"scheduler": {"settings": {"kueue_admission_checks": True}}}
    granted = {
        (group, resource)
        for item in of_kind(tuple(render(checks)), "ClusterRole")
        if item["metadata"]["name"] == "wp-wattpack-scheduler"
        for rule in item["rules"]
        if "list" in rule["verbs"]
        for group in rule.get("apiGroups", ())
        for resource in rule.get("resources", ())
    }
    kinds = read_where_served()
    assert {"QUOTAS", "ELASTIC_QUOTAS", "NODE_CLAIMS", "PROVISIONING_REQUESTS"} <= {*kinds.values()}
    assert set(kinds) <= granted


def test_agents_keep_their_gpu_node_with_the_token_of_their_pod() -> None:
    assert "--gpunode" in args_of("agent", "default")
    assert pod_specs(rendered("default"))["agent"]["automountServiceAccountToken"] is True
    verbs = {r: set(rule["verbs"]) for rule in rules_of("agent") for r in rule.get("resources", ())}
    verbs = {resource: verb for resource, verb in verbs.items() if resource not in REVIEWS}
    assert verbs == {"gpunodes": {"create", "patch"}, "gpunodes/status": {"patch"}}


def test_every_policy_is_bound_and_denies() -> None:
    objects = rendered("default")
    policies = {i["metadata"]["name"] for i in of_kind(objects, "ValidatingAdmissionPolicy")}
    bindings = of_kind(objects, "ValidatingAdmissionPolicyBinding")
    assert {binding["spec"]["policyName"] for binding in bindings} == policies
    assert all(binding["spec"]["validationActions"] == ["Deny"] for binding in bindings)


def test_policies_name_the_service_accounts_that_exist() -> None:
    objects = rendered("default")
    accounts = {
        f"system:serviceaccount:{i['metadata']['namespace']}:{i['metadata']['name']}"
        for i in of_kind(objects, "ServiceAccount")
    }
    text = yaml.safe_dump(of_kind(objects, "ValidatingAdmissionPolicy"), width=10_000)
    named = {word.strip("'\"],[") for word in text.split() if "system:serviceaccount" in word}
    assert named
    assert named <= accounts
