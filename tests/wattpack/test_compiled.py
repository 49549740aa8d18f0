"""Kernels run without numba: where it is absent, and where it is there but cannot be loaded."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("error", ["ImportError('llvmlite')", "OSError('libllvmlite.so')"])
def test_a_numba_that_cannot_be_loaded_is_an_absent_one(error: str, tmp_path: Path) -> None:
    """A broken native library raised from every module that has a kernel."""
    (tmp_path / "numba.py").write_text(f"raise {error}\n", encoding="utf-8")
    told = subprocess.run(
        [
            sys.executable,
            "-c",
            "from wattpack.compiled import AVAILABLE, compiled\n"
            "print(AVAILABLE, compiled(lambda watts: watts + 1)(41))",
        ],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.stdout == "False 42\n", told.stderr
