"""Fixtures of the cluster tests: one control plane a session, one namespace a test."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from tests.cluster.cluster_tools import ToolMissingError, missing_control_plane_tool, tool
from tests.cluster.control_plane import ControlPlane, start_control_plane

_numbers = itertools.count(1)


def _require_tools() -> None:
    if why := missing_control_plane_tool():
        _cannot_run(why)


def needs_tool(name: str) -> None:
    """Fail under CI, or skip loudly elsewhere, if a program of some tests only is not built."""
    try:
        tool(name)
    except ToolMissingError as error:
        _cannot_run(str(error))


def _cannot_run(why: str) -> NoReturn:
    if os.environ.get("CI") == "true":
        pytest.fail(f"cluster tests cannot run: {why}", pytrace=False)
    pytest.skip(f"CLUSTER TESTS SKIPPED: {why}")


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """An API server with its controllers; no nodes, no kwok, no binder."""
    _require_tools()
    directory: Path = tmp_path_factory.mktemp("control-plane")
    plane = start_control_plane(directory)
    yield plane
    plane.stop()


@pytest.fixture(scope="module")
def fresh_control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A server of the module's own, for tests that install cluster-wide things (1.5 s)."""
    _require_tools()
    plane = start_control_plane(tmp_path_factory.mktemp("fresh-control-plane"))
    yield plane
    plane.stop()


@pytest.fixture
def with_controllers(control_plane: ControlPlane) -> ControlPlane:
    """A control plane with workload controllers; a bare kube-apiserver has none."""
    if control_plane.kind == "kubebuilder":
        pytest.skip("a bare kube-apiserver runs no controllers")
    return control_plane


@pytest.fixture(scope="session")
def live_control_plane(control_plane: ControlPlane) -> ControlPlane:
    """The same server with kwok and the binder running: bound pods run, ungated pods get bound."""
    control_plane.start_kwok()
    control_plane.start_binder()
    return control_plane


@pytest.fixture(scope="module")
def shared_namespace(control_plane: ControlPlane) -> Iterator[str]:
    """One namespace for the many cases of a table; the cases choose distinct names."""
    yield from _namespace(control_plane)


@pytest.fixture
def namespace(control_plane: ControlPlane) -> Iterator[str]:
    """A fresh namespace, emptied and removed after the test."""
    yield from _namespace(control_plane)


def _namespace(plane: ControlPlane) -> Iterator[str]:
    name = f"test-{next(_numbers)}"
    answer = plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    assert answer.status == 201, answer.message
    yield name
    plane.request("DELETE", f"/api/v1/namespaces/{name}")
