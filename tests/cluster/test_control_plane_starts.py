"""The launcher: starting, restarting, credentials, and the real kube-apiserver's command line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from cryptography import x509

from tests.cluster import control_plane as launcher
from tests.cluster.cluster_processes import free_port
from tests.cluster.cluster_tools import tool
from tests.cluster.control_plane import ControlPlane
from tests.cluster.kubebuilder_server import kube_apiserver_command

pytestmark = pytest.mark.cluster


def test_the_server_says_which_kubernetes_it_plays(control_plane: ControlPlane) -> None:
    version = control_plane.request("GET", "/version").body
    assert (version["major"], version["minor"]) == ("1", "35")


def test_a_restart_keeps_objects_and_credentials(
    control_plane: ControlPlane, namespace: str
) -> None:
    body = {"metadata": {"name": "kept"}, "data": {"key": "value"}}
    control_plane.request("POST", f"/api/v1/namespaces/{namespace}/configmaps", body)
    control_plane.request(
        "POST",
        f"/api/v1/namespaces/{namespace}/serviceaccounts",
        {"metadata": {"name": "bot"}},
    )
    credentials = control_plane.service_account_kubeconfig(namespace, "bot")
    if control_plane.kind == "external":
        pytest.skip("a cluster of somebody else is not restarted")
    control_plane.restart_apiserver()
    path = f"/api/v1/namespaces/{namespace}/configmaps/kept"
    assert control_plane.request("GET", path).body["data"] == {"key": "value"}
    denied = control_plane.request("GET", path, kubeconfig=credentials)
    assert denied.status == 403, "the old token still authenticates, and RBAC still decides"


def test_a_port_that_somebody_took_is_replaced_and_data_survives(
    control_plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if control_plane.etcd_port is None:
        pytest.skip("nothing of a cluster of somebody else is started")
    taken, chosen = [control_plane.etcd_port], []

    def choose() -> int:
        chosen.append(taken.pop() if taken else free_port())
        return chosen[-1]

    monkeypatch.setattr(launcher, "free_port", choose)
    other = launcher.start_control_plane(tmp_path, prefix="/other")
    assert other.etcd_port != control_plane.etcd_port
    assert chosen[0] == control_plane.etcd_port, "the first choice was the taken port"
    path = "/api/v1/namespaces/default/configmaps"
    assert other.request("POST", path, {"metadata": {"name": "kept"}}).status == 201
    other.stop()
    monkeypatch.undo()
    again = launcher.start_control_plane(tmp_path, prefix="/other")
    assert again.request("GET", f"{path}/kept").status == 200, "a second start finds the data"
    again.stop()


def test_kube_apiserver_gets_credentials_signed_by_its_own_authority(tmp_path: Path) -> None:
    command = kube_apiserver_command(Path("/assets"), tmp_path, 2379, 6443, "/registry")
    assert command[0] == "/assets/kube-apiserver"
    authority = x509.load_pem_x509_certificate((tmp_path / "ca.crt").read_bytes())
    for name in ("server", "admin"):
        leaf = x509.load_pem_x509_certificate((tmp_path / f"{name}.crt").read_bytes())
        leaf.verify_directly_issued_by(authority)
    before = (tmp_path / "ca.crt").read_bytes()
    kube_apiserver_command(Path("/assets"), tmp_path, 2379, 6443, "/registry")
    assert (tmp_path / "ca.crt").read_bytes() == before, "a restart keeps every credential valid"


STAND_IN = """\
#!{python}
import os, sys
flags = dict(arg.removeprefix("--").split("=", 1) for arg in sys.argv[1:])
directory = os.path.dirname(flags["client-ca-file"])
os.execv("{apiserver}", ["{apiserver}", "--etcd=" + flags["etcd-servers"],
    "--prefix=" + flags["etcd-prefix"], "--port=" + flags["secure-port"], "--dir=" + directory])
"""


def test_the_assets_folder_is_honoured(
    control_plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in that takes kube-apiserver's flags; the real one could not be had here."""
    if control_plane.kind != "own":
        pytest.skip("needs the project's own server as the stand-in")
    assets = tmp_path / "assets"
    assets.mkdir()
    (assets / "etcd").symlink_to(tool("etcd"))
    program = STAND_IN.format(python=sys.executable, apiserver=tool("apiserver"))
    (assets / "kube-apiserver").write_text(program)
    (assets / "kube-apiserver").chmod(0o755)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(assets))
    plane = launcher.start_control_plane(tmp_path / "plane", prefix="/assets")
    assert plane.kind == "kubebuilder"
    admin = plane.kubectl("auth", "whoami", "-o", "jsonpath={.status.userInfo.groups}").stdout
    assert "system:masters" in admin
    plane.stop()
