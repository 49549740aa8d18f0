"""What the chart grants an account, beside what the account's process asked in the audit log.

    bindings -> roles -> one Grant a verb, a resource and a name      audit log -> events
                              └────────── each must match one ─────────────┘

Shares no code with the product: roles are read from the server, requests from its audit log.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.cluster.control_plane import ControlPlane

RBAC = "/apis/rbac.authorization.k8s.io/v1"
REFUSED = frozenset({401, 403})
CREATED = 201


@dataclass(frozen=True, slots=True, order=True)
class Grant:
    """One thing that an account may do.

    Attributes:
        verb: As in a role.
        group: API group; empty for the core.
        resource: With its subresource, ``pods/eviction``; empty for a path.
        name: Of the only object; empty for all.
        namespace: Where; empty for everywhere.
        path: Of what is no resource, ``/v1/live``.
    """

    verb: str
    group: str = ""
    resource: str = ""
    name: str = ""
    namespace: str = ""
    path: str = ""

    def __str__(self) -> str:
        what = self.path or "/".join(part for part in (self.group, self.resource) if part)
        name = f" named {self.name}" if self.name else ""
        return f"{self.verb} {what}{name}{f' in {self.namespace}' if self.namespace else ''}"

    def covers(self, event: dict[str, Any]) -> bool:
        """Whether this is what allowed the request."""
        target = event.get("objectRef")
        if self.path or target is None:
            return False
        resource = "/".join(p for p in (target["resource"], target.get("subresource")) if p)
        return (
            self.verb in verbs_of(event)
            and (self.group, self.resource) == (target.get("apiGroup", ""), resource)
            and self.name in ("", target.get("name", ""))
            and self.namespace in ("", target.get("namespace", ""))
        )


def verbs_of(event: dict[str, Any]) -> set[str]:
    """The verbs that the authorizer was asked for: a patch that makes an object is both."""
    made = event["verb"] == "patch" and code_of(event) == CREATED
    return {event["verb"], *(["create"] if made else [])}


def code_of(event: dict[str, Any]) -> int:
    """The status that was answered; 0 for a watch that goes on."""
    return int(event.get("responseStatus", {}).get("code", 0))


def granted(plane: ControlPlane, namespace: str, account: str) -> set[Grant]:
    """Everything that bindings give to a service account, alone or not."""
    found: set[Grant] = set()
    subject = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
    for kind in ("clusterrolebindings", "rolebindings"):
        for binding in plane.request("GET", f"{RBAC}/{kind}").body["items"]:
            if any(subject.items() <= s.items() for s in binding.get("subjects", ())):
                found |= _grants_of(plane, binding)
    return found


def _grants_of(plane: ControlPlane, binding: dict[str, Any]) -> set[Grant]:
    reference, space = binding["roleRef"], binding["metadata"].get("namespace", "")
    at = f"namespaces/{space}/roles" if reference["kind"] == "Role" else "clusterroles"
    role = plane.request("GET", f"{RBAC}/{at}/{reference['name']}").body
    found: set[Grant] = set()
    for rule in role["rules"]:
        for verb in rule["verbs"]:
            found |= {Grant(verb, path=path) for path in rule.get("nonResourceURLs", ())}
            found |= {
                Grant(verb, group, resource, name, space)
                for group in rule.get("apiGroups", ())
                for resource in rule.get("resources", ())
                for name in rule.get("resourceNames") or ("",)
            }
    return found


def unused(grants: set[Grant], events: list[dict[str, Any]]) -> list[str]:
    """Grants that no answered request needed, as sentences."""
    answered = [event for event in events if code_of(event) not in REFUSED]
    return sorted(str(g) for g in grants if not any(g.covers(event) for event in answered))


def refused(events: list[dict[str, Any]]) -> list[str]:
    """Requests that were not allowed."""
    return [
        f"{event['verb']} {event['requestURI']}: {code_of(event)}"
        for event in events
        if code_of(event) in REFUSED
    ]
