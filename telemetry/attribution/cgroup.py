"""Which container a process belongs to, from the text of ``/proc/<pid>/cgroup``.

Covers cgroup v1 and v2, the systemd and the cgroupfs driver, containerd, CRI-O and Docker, and
kind's nested kubelet. Pure: text in, value out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_UID = r"[0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}"
# A static pod's UID is a bare hash of its manifest. systemd writes the dashes as underscores.
_POD = re.compile(rf"pod({_UID}|[0-9a-f]{{32}})(?![0-9a-f])")
# <runtime>-<id>.scope, :<runtime>:<id>, or the id alone as the last part; newer CRI-O puts the
# process one level below, in "container".
_CONTAINER = re.compile(
    r"(?:(?P<runtime>cri-containerd|crio|docker|libpod|containerd)[-:]|/)(?P<id>[0-9a-f]{64})(?:\.scope)?(?:/container)?$"
)


@dataclass(frozen=True, slots=True)
class ContainerOf:
    """Where a process runs.

    Attributes:
        pod_uid: Empty for a container that is not a pod's.
        container_id: Empty for a process in a pod's slice but in no container.
    """

    pod_uid: str = ""
    container_id: str = ""


def parse_cgroup(text: str) -> ContainerOf | None:
    """The container of a process, None for a process of the host.

    Of several hierarchies (v1) the first that names a pod wins, then the first container.
    """
    found: ContainerOf | None = None
    for line in text.splitlines():
        parts = line.split(":", 2)
        if len(parts) != 3:
            continue
        path = parts[2]
        # With nested containers (kind, Docker in a pod) the innermost pod is the workload's.
        pods = _POD.findall(path)
        container = _CONTAINER.search(path)
        if pods:
            return ContainerOf(
                pods[-1].replace("_", "-"), container.group("id") if container else ""
            )
        if container and found is None:
            found = ContainerOf("", container.group("id"))
    return found
