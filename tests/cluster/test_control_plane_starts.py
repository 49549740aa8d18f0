"""The launcher: starting, restarting, credentials, and the real kube-apiserver's command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from control_plane import ControlPlane
from cryptography import x509
from kubebuilder_server import kube_apiserver_command

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
