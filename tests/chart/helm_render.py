"""Renders the chart with the real helm."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "wattpack"
KUBE_VERSION = "1.34.0"

ENFORCING: dict[str, Any] = {
    "enforcement": "Enforce",
    "actuator": {"guaranteedCapWatts": {"NVIDIA H200": 450}},
}
EVERYTHING: dict[str, Any] = {
    **ENFORCING,
    "placement": {"mode": "Manage", "moves": {"enabled": True}, "provisioning": {"enabled": True}},
    "metrics": {
        name: {"enabled": True, "labels": {"release": "kube-prometheus-stack"}}
        for name in ("serviceMonitor", "podMonitor", "prometheusRule")
    },
    "prometheus": {"url": "http://prometheus.monitoring:9090"},
    "forecaster": {"persistence": {"enabled": True}},
    "commonLabels": {"team": "power"},
    "commonAnnotations": {"owner": "power@example.com"},
}
MINIMAL: dict[str, Any] = {
    "crds": {"install": False},
    "rbac": {"aggregateClusterRoles": False},
    "console": {"enabled": False},
    "networkPolicy": {"enabled": False},
    "admissionPolicies": {"enabled": False},
    "nodeNamespace": {"create": False, "name": "gpu-node"},
    "controller": {"persistence": {"enabled": False}},
}

PROCESSES = {"controller", "scheduler", "watchdog", "forecaster", "console", "agent", "uninstall"}


def shipped(name: str) -> dict[str, Any]:
    """A values file that lies beside the chart."""
    values: dict[str, Any] = yaml.safe_load((CHART / name).read_text(encoding="utf-8"))
    return values


VALUE_SETS = {
    "gke": shipped("values-gke.yaml"),
    "openshift": {**ENFORCING, **shipped("values-openshift.yaml")},
    "bare": shipped("values-bare.yaml"),
    "default": {},
    "enforcing": ENFORCING,
    "everything": EVERYTHING,
    "minimal": MINIMAL,
}


@cache
def helm() -> str:
    """The path of helm; skips (fails with CI=true) without one."""
    built = ROOT / ".cache" / "tools" / "bin" / "helm"
    found = str(built) if built.exists() else shutil.which("helm")
    if found is None:
        if os.environ.get("CI") == "true":
            pytest.fail("helm is missing: run `make tools`")
        pytest.skip("helm is missing: run `make tools`")
    return found


def run_helm(
    *arguments: str, values: dict[str, Any] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run helm with values on standard input."""
    return subprocess.run(
        [helm(), *arguments, "--values", "-"],
        input=json.dumps(values or {}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def render(values: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """Every object of a release named ``wp`` in ``wattpack-system``."""
    done = run_helm(
        "template",
        "wp",
        str(CHART),
        "--namespace=wattpack-system",
        f"--kube-version={KUBE_VERSION}",
        values=values,
    )
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


@cache
def rendered(name: str) -> tuple[dict[str, Any], ...]:
    """A value set, rendered once a session."""
    return tuple(render(VALUE_SETS[name]))


def of_kind(objects: tuple[dict[str, Any], ...], *kinds: str) -> list[dict[str, Any]]:
    """The objects of some kinds."""
    return [item for item in objects if item["kind"] in kinds]


def pod_specs(objects: tuple[dict[str, Any], ...]) -> dict[str, dict[str, Any]]:
    """Pod specs by the component that they belong to."""
    workloads = of_kind(objects, "Deployment", "StatefulSet", "DaemonSet", "Job")
    return {
        item["metadata"]["labels"]["app.kubernetes.io/component"]: item["spec"]["template"]["spec"]
        for item in workloads
    }


def args_of(component: str, name: str) -> list[str]:
    """The command line of a component's container."""
    args: list[str] = pod_specs(rendered(name))[component]["containers"][0]["args"]
    return args
