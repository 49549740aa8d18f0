"""Where the programs of the test control plane lie, and what to do when one is missing."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from wattpack.errors import PermanentError

REPOSITORY = Path(__file__).resolve().parents[2]
TOOLS_DIRECTORY = REPOSITORY / ".cache" / "tools" / "bin"
CONTROL_PLANE_TOOLS = ("etcd", "apiserver", "kwok", "kubectl", "binder")


class ToolMissingError(PermanentError):
    """A program that the tests need is not built or not installed."""


def kubebuilder_assets() -> Path | None:
    """The folder of a real kube-apiserver and etcd, if the environment names one."""
    value = os.environ.get("KUBEBUILDER_ASSETS", "")
    return Path(value) if value else None


def tool(name: str) -> Path:
    """The program's path.

    Raises:
        ToolMissingError: It is not built; the message says which target builds it.
    """
    path = TOOLS_DIRECTORY / name
    if path.exists():
        return path
    target = "tools" if name == "helm" else "control-plane"
    raise ToolMissingError(f"{name} is not built: run `make {target}`")


def system_tool(name: str) -> Path:
    """The path of a program that a Debian package brings.

    Raises:
        ToolMissingError: It is not on PATH.
    """
    found = shutil.which(name)
    if found is None:
        raise ToolMissingError(f"{name} is not installed: run `make system-tools` as root")
    return Path(found)


def missing_control_plane_tool() -> str:
    """Why the control plane cannot start, or an empty string."""
    try:
        for name in CONTROL_PLANE_TOOLS:
            tool(name)
    except ToolMissingError as error:
        return str(error)
    return ""
