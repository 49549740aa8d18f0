"""Builders: a folder with one entry, and an entry made of a dictionary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from capacity.catalogue.catalogue_files import read_catalogue
from capacity.catalogue.workload_schema import Workload

PRODUCT = {"kernel": "gemm", "m": 16, "n": 28672, "k": 8192}


def entry(**changes: Any) -> dict[str, Any]:
    """One phase with one product."""
    phase = {"name": "step", "bound": "bandwidth", "kernels": [PRODUCT]}
    body = {"title": "An entry", "kind": "Batch", "phases": [phase], "source": "a test"}
    return body | changes


def write(folder: Path, file: str = "own.yaml", **entries: Any) -> Path:
    """A catalogue folder with these entries."""
    folder.mkdir(exist_ok=True)
    (folder / file).write_text(yaml.safe_dump({"workloads": entries}))
    return folder


def workload(folder: Path, **changes: Any) -> Workload:
    """The one entry, read from a file as users write it."""
    return read_catalogue(write(folder / "one", only=entry(**changes)))["only"]
