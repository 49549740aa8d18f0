"""Helm installs, upgrades and removes a release on the test control plane."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.cluster.cluster_tools import ToolMissingError, tool
from tests.cluster.control_plane import ControlPlane

pytestmark = pytest.mark.cluster

TEMPLATE = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}}
data: {watts: {{ .Values.watts | quote }}}
"""


def helm(plane: ControlPlane, namespace: str, *args: str) -> str:
    """Run helm as the administrator."""
    try:
        program = str(tool("helm"))
    except ToolMissingError as error:
        if os.environ.get("CI") == "true":
            pytest.fail(str(error))
        pytest.skip(f"CLUSTER TEST SKIPPED: {error}")
    command = [program, f"--kubeconfig={plane.kubeconfig}", f"--namespace={namespace}", *args]
    home = {**os.environ, "HOME": str(plane.directory)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=home)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def chart(tmp_path: Path) -> str:
    """A chart of one object that asks for a current Kubernetes."""
    folder = tmp_path / "chart"
    (folder / "templates").mkdir(parents=True)
    meta = {"apiVersion": "v2", "name": "tiny", "version": "1.0.0", "kubeVersion": ">=1.30.0-0"}
    (folder / "Chart.yaml").write_text(json.dumps(meta))
    (folder / "values.yaml").write_text("watts: 400\n")
    (folder / "templates" / "map.yaml").write_text(TEMPLATE)
    return str(folder)


def test_a_release_comes_changes_and_goes(
    control_plane: ControlPlane, namespace: str, chart: str
) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps/row"
    helm(control_plane, namespace, "install", "row", chart)
    assert control_plane.request("GET", path).body["data"] == {"watts": "400"}
    helm(control_plane, namespace, "upgrade", "row", chart, "--set", "watts=350")
    assert control_plane.request("GET", path).body["data"] == {"watts": "350"}
    helm(control_plane, namespace, "uninstall", "row", "--wait")
    assert control_plane.request("GET", path).status == 404


def test_helm_renders_for_the_kubernetes_that_the_tests_play(
    control_plane: ControlPlane, namespace: str, chart: str
) -> None:
    rendered = helm(control_plane, namespace, "template", "row", chart)
    assert 'watts: "400"' in rendered
