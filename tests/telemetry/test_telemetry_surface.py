"""The packages' public names."""

from __future__ import annotations

import importlib

import pytest


@pytest.mark.parametrize(
    "name", ["telemetry.attribution", "gpu.nvml", "gpu.simulated", "telemetry.stream"]
)
def test_public_names_are_sorted_and_exist(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__all__ == sorted(module.__all__)
    assert all(hasattr(module, public) for public in module.__all__)
