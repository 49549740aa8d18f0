"""What the end-to-end story is told about: the release, its servers, what operators created."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from typing import Any

from capacity.profile_library import gpu_profile_object, shipped_library
from tests.cluster.cluster_builders import Body, create, node, pod
from tests.cluster.control_plane import ControlPlane
from tests.cluster.e2e_release import NO_FLOW_SCHEMA, SYSTEM, LiveRelease
from tests.cluster.e2e_rights import RBAC, Grant
from tests.cluster.e2e_servers import (
    GPUS,
    GUARANTEED_WATTS,
    HOST_WATTS,
    MODEL,
    Servers,
    running_pods,
)

TEAM = "team"
PODS = f"/api/v1/namespaces/{TEAM}/pods"
OURS = "/apis/wattpack.io/v1alpha1"
SERVERS = tuple(f"gpu-{i}" for i in range(4))
SPARE, ASIDE = "spare-0", "aside-0"
UNCONTROLLED = {"key": "wattpack.io/uncontrolled", "effect": "NoSchedule"}
#: Below what the servers draw at full load (about 28 kW), above what I1 asks for (about 21 kW).
RATING_WATTS = 25_000
VALUES: dict[str, Any] = {
    "enforcement": "Enforce",
    "actuator": {"guaranteedCapWatts": {MODEL: GUARANTEED_WATTS}},
    "placement": {"mode": "Manage"},
    **NO_FLOW_SCHEMA,
    # A quick election, so that the test need not wait for the ordinary 15 s.
    "controller": {
        "settings": {
            "lease_seconds": 4,
            "renew_deadline_seconds": 3.0,
            "retry_seconds": 0.5,
            # Verdicts take five minutes, this story less than two: see test_classified_profiles.
            "write_workload_profiles": False,
        },
        # The test server does not count volume claim templates among a pod's volumes.
        "persistence": {"enabled": False},
    },
    # One plan is kept, so that the second removes the first.
    "scheduler": {"settings": {"deadline_seconds": 0.2, "kept_plans": 1}},
    "watchdog": {"extraArgs": ["--silence-seconds=6"]},
}


class World:
    """The release, its servers and what people would look at."""

    def __init__(self, release: LiveRelease) -> None:
        self.release = release
        self.plane: ControlPlane = release.plane
        self.servers: Servers | None = None
        #: Rights that were used where no audit log tells: a process of ours asked for them.
        self.seen_used: set[Grant] = set()

    def set_up(self) -> None:
        product = MODEL.replace(" ", "-")
        # As servers register where wattpack is installed: nobody comes before their caps are held.
        self.release.add_servers(SERVERS, GPUS, product, [UNCONTROLLED])
        # Neither is a member of the row: the planner's spare GPU, and an agent that only reports.
        self.release.add_servers([SPARE], 1, product)
        create(self.plane, "/api/v1/nodes", node(ASIDE, gpus=0))
        self.release.install()
        for index in range(2):
            self.release.start_controller(index)
        self.release.start_scheduler()
        watchdog = self.release.start(
            "watchdog", "watchdog", f"--beat-file={self.release.directory / 'watchdog.beat'}"
        )
        watchdog.wait_ready(lambda: bool(self.release.requests_by("watchdog")), 40)
        create(
            self.plane,
            "/api/v1/namespaces",
            {"metadata": {"name": TEAM, "labels": {"wattpack.io/placement": "enabled"}}},
        )
        profile = gpu_profile_object(shipped_library().find(MODEL), "")
        create(self.plane, f"{OURS}/gpuprofiles", profile)
        create(self.plane, f"{OURS}/powerdomains", row())
        for path, body in others():
            create(self.plane, path, body)
        ports = self.release.ports
        self.servers = Servers(
            SERVERS,
            [f"127.0.0.1:{ports[f'wattpack-controller-{i}']}" for i in range(2)],
            self.release.server_name(),
            self.release.mount_authority(),
            {name: self.release.agent_token(name) for name in SERVERS},
            lambda: running_pods(self.plane.request("GET", PODS).body.get("items", [])),
        )
        self.servers.start()

    def token_of_a_reader(self) -> str:
        """Of an account that may see the live view and metrics, and nothing else."""
        accounts = f"/api/v1/namespaces/{TEAM}/serviceaccounts"
        if self.plane.request("GET", f"{accounts}/reader").status == 404:
            create(self.plane, accounts, {"metadata": {"name": "reader"}})
            for role in ("wattpack-live-viewer", "wattpack-metrics-reader"):
                bind_to(self.plane, role, "reader")
        return self.release.token("reader", TEAM)

    def boards(self) -> Servers:
        assert self.servers is not None
        return self.servers

    def pod(self, name: str) -> Body:
        return self.plane.request("GET", f"{PODS}/{name}").body

    def row_status(self) -> dict[str, Any]:
        body = self.plane.request("GET", f"{OURS}/powerdomains/row").body
        status: dict[str, Any] = body.get("status", {})
        return status

    def set_row(self, **spec: object) -> None:
        """What an operator patches."""
        answer = self.plane.request(
            "PATCH", f"{OURS}/powerdomains/row", {"spec": spec}, patch="merge"
        )
        assert answer.status == 200, answer.message

    def accepted(self) -> str:
        """The status of the row's Accepted condition, once it is about the newest spec."""
        body = self.plane.request("GET", f"{OURS}/powerdomains/row").body
        found = [
            condition["status"]
            for condition in body.get("status", {}).get("conditions", [])
            if condition["type"] == "Accepted"
            and condition.get("observedGeneration") == body["metadata"]["generation"]
        ]
        return found[0] if found else ""

    def printed(self) -> dict[str, str]:
        """What ``kubectl get pdom row`` shows, by column."""
        head, line = self.plane.kubectl("get", "pdom", "row", "-o", "wide").stdout.splitlines()
        starts = [match.start() for match in re.finditer(r"\S+", head)]
        ends = [*starts[1:], None]
        return {head[a:b].strip(): line[a:b].strip() for a, b in zip(starts, ends, strict=True)}

    def webhook_gates(self) -> bool:
        made = self.plane.request("POST", f"{PODS}?dryRun=All", pod("probe", gpus=1))
        return made.status == 201 and bool(made.body["spec"].get("schedulingGates"))

    def leader(self) -> str:
        """The replica that holds the Lease."""
        holder = str(self.release.lease("wattpack-controller").get("holderIdentity", ""))
        return next((n for n in self.release.ports if holder.startswith(n)), "")

    def tear_down(self) -> None:
        if self.servers is not None:
            self.servers.stop()
        self.release.stop()


def row() -> Body:
    """The breaker above the four servers."""
    return {
        "apiVersion": "wattpack.io/v1alpha1",
        "kind": "PowerDomain",
        "metadata": {"name": "row"},
        "spec": {
            "ratingWatts": RATING_WATTS,
            "members": {"nodeNames": list(SERVERS)},
            "nonGpuPerNode": {"worstWatts": HOST_WATTS, "idleWatts": HOST_WATTS},
            # The ordinary 2 % a second would take half a minute to raise idle boards.
            "maxRaiseFractionPerSecond": 0.2,
        },
    }


def others() -> list[tuple[str, Body]]:
    """One object of every other kind whose status a process writes."""
    forecast = {
        "metadata": {"name": "row-power", "namespace": SYSTEM},
        "spec": {"target": {"powerDomain": "row", "series": "row_watts"}},
    }
    override = {
        "target": {"node": SPARE},
        "capWatts": 400,
        "reason": "a supply is changed",
        "expiresAt": "2099-01-01T00:00:00Z",
    }
    policy = {"selector": {"namespaces": ["research"]}, "priority": 100}
    workload = {"kind": "Serving", "kernelMix": {"decode": 0.7}}
    rates = {"chat": {"whole": {"requestsPerSecond": 4, "busyWatts": 780}}}
    shape = {"name": "H200@700", "gpuModel": "H200-SXM", "capWatts": 700, "idleWatts": 150}
    plan = {
        "buckets": [{"name": "chat", "requestsPerSecond": 12}],
        "shapes": [{**shape, "p99Watts": 900, "rates": rates}],
        "offers": [{"name": "h", "gpuModel": "H200-SXM", "gpus": 8, "dollarsPerGpuHour": 3.5}],
        "powerBudgetWatts": 200000,
    }
    team = f"{OURS}/namespaces/{TEAM}"
    return [
        (
            f"{team}/workloadprofiles",
            {"metadata": {"name": "chat"}, "spec": workload} | kind("WorkloadProfile"),
        ),
        (
            f"{team}/capacityplans",
            {"metadata": {"name": "next"}, "spec": plan} | kind("CapacityPlan"),
        ),
        (f"{OURS}/namespaces/{SYSTEM}/demandforecasts", forecast | kind("DemandForecast")),
        (
            f"{OURS}/poweroverrides",
            {"metadata": {"name": "supply"}, "spec": override} | kind("PowerOverride"),
        ),
        (
            f"{OURS}/powerpolicies",
            {"metadata": {"name": "batch"}, "spec": policy} | kind("PowerPolicy"),
        ),
    ]


def kind(name: str) -> Body:
    return {"apiVersion": "wattpack.io/v1alpha1", "kind": name}


def bind_to(plane: ControlPlane, role: str, account: str) -> None:
    """Give an account of the team a cluster role."""
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
    subjects = [{"kind": "ServiceAccount", "name": account, "namespace": TEAM}]
    body = {"metadata": {"name": f"{role}-{account}"}, "roleRef": reference, "subjects": subjects}
    create(plane, f"{RBAC}/clusterrolebindings", body)


def fetched(url: str, token: str) -> tuple[int, bytes]:
    """Status and body of a GET with a bearer token; 0 while nobody listens."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return int(answer.status), bytes(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, b""
    except OSError:
        return 0, b""
