"""Minimal CustomResourceDefinitions that stand in for kinds of others."""

from __future__ import annotations

from tests.cluster.cluster_builders import Body
from wattpack.kube.port import Resource

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

_WITH_STATUS = ("kueue.x-k8s.io", "autoscaling.x-k8s.io")


def definition(versions: tuple[Resource, ...]) -> Body:
    """A CRD that keeps whatever it is given, with a status of its own."""
    kind = versions[0]
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served = [
        {
            "name": each.version,
            "served": True,
            "storage": each is kind,
            "schema": {"openAPIV3Schema": schema},
            "subresources": {"status": {}} if kind.group in _WITH_STATUS else {},
        }
        for each in versions
    ]
    names = {"plural": kind.plural, "singular": kind.kind.lower(), "kind": kind.kind}
    scope = "Namespaced" if kind.namespaced else "Cluster"
    annotations = {"api-approved.kubernetes.io": "unapproved, a stand-in"}
    return {
        "metadata": {"name": f"{kind.plural}.{kind.group}", "annotations": annotations},
        "spec": {
            "group": kind.group,
            "names": names | {"listKind": f"{kind.kind}List"},
            "scope": scope,
            "versions": served,
            "conversion": {"strategy": "None"},
        },
    }
