"""The headless demo as a benchmark: 52 servers behind a breaker for 40, everything over loopback.

It runs the product's own command in a process of its own, exactly as a person would. What each
figure counts is said where it is counted: ``simulation.results``, ``simulation.slo`` and
``simulation.cap_effects`` (``cap_to_effect_urgent_*``: caps that a present load asks for).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.runner import Options, Result, Target
from wattpack.ending import last_step
from wattpack.errors import PermanentError
from wattpack.scratch_folder import ScratchFolder

NAME = "demo_row"
# Whatever is not the runner's goes to the demo, which checks it.
TAKES_ARGUMENTS = True
USAGE = "flags of wattpack demo"
SUMMARY = "headless demo: trips, invariants, slowdown by class, wall time"
DURATION_SECONDS = {False: 900, True: 30}
SPEED = {False: 30, True: 60}
TARGETS = {
    "trips": Target(at_most=0),
    "invariant_violations": Target(at_most=0),
    "urgent_caps_late": Target(at_most=0),
    "wall_seconds": Target(at_most=120.0),
}
LIMIT_SECONDS = 600


def run(options: Options) -> Result:
    """Run the demo and hand its summary on; nested summaries become ``key_class`` figures.

    Raises:
        PermanentError: when the demo gives no summary; carries the end of what it printed.
    """
    with ScratchFolder() as folder:
        file = folder / "out.json"
        command = [
            sys.executable,
            "-m",
            "wattpack.cli",
            "demo",
            "--headless",
            "--duration",
            str(DURATION_SECONDS[options.quick]),
            "--speed",
            str(SPEED[options.quick]),
            "--seed",
            str(options.seed),
            "--json",
            str(file),
            *options.arguments,
        ]
        options.progress("running " + " ".join(command[1:]))
        said = _run_demo(command, folder)
        if not file.is_file():
            raise PermanentError(f"the demo gave no summary: {said[-2000:]}")
        summary = json.loads(file.read_text(encoding="utf-8"))
    return Result(figures=flatten(summary), targets=TARGETS)


def _run_demo(command: list[str], folder: Path) -> str:
    """What it says on standard error; however this process ends, the demo and its files go too."""
    # Its own temporary folder lies in ours, which goes after it was killed.
    environment = {**os.environ, "TMPDIR": str(folder)}
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment
    ) as demo:
        take_back = last_step(demo.kill)
        try:
            return demo.communicate(timeout=LIMIT_SECONDS)[1]
        finally:
            demo.kill()
            take_back()


def flatten(summary: dict[str, object], prefix: str = "") -> dict[str, float | int | str]:
    """Numbers and strings of a nested summary, keys joined by underscores."""
    figures: dict[str, float | int | str] = {}
    for key, value in summary.items():
        name = f"{prefix}{key}".replace("-", "_")
        if isinstance(value, dict):
            figures |= flatten(value, f"{name}_")
        elif isinstance(value, int | float | str):
            figures[name] = value
    return figures
