"""What the agent can read of a real board as its own user, without capabilities. Reads only.

    PYTHONPATH=. python benchmarks/data/h200_served/read_as_user.py OUT

Products load the board; beside them the product's own reader runs as root, and as user 65532 with
no capability, no new privileges and no group, as the agent's container does. Tells for each which
fields of a reading are known, and what GPM says.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

AGENT_UID = 65532
PERIOD_SECONDS = 2.0
ROOT = Path(__file__).resolve().parents[3]
WITHOUT_RIGHTS = (
    "setpriv", f"--reuid={AGENT_UID}", f"--regid={AGENT_UID}", "--clear-groups",
    "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs",
)  # fmt: skip


def main() -> None:
    """As root with the load, or as the child that reads."""
    if sys.argv[1] == "read":
        print(json.dumps(read()))
        return
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    load = _Products()
    load.start()
    load.at_work.wait()
    found = {"root": ask(()), f"user {AGENT_UID}": ask(WITHOUT_RIGHTS)}
    load.over.set()
    load.join()
    (out / "as_user.json").write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


def ask(prefix: tuple[str, ...]) -> dict[str, Any]:
    """What the reader tells in a process of its own."""
    done = subprocess.run(
        [*prefix, sys.executable, str(Path(__file__).resolve()), "read"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
    )
    if done.returncode:
        return {"failed": done.stderr[-2000:]}
    return {**json.loads(done.stdout), "warnings": done.stderr[-2000:]}


def read() -> dict[str, Any]:
    """Two readings with a GPM period between them, by the reader that the agent runs."""
    from gpu.nvml import gpm
    from gpu.nvml.nvml_device import open_nvml

    logging.basicConfig(level=logging.WARNING)
    driver = open_nvml()
    (device, *_) = driver.devices()
    device.read(time.monotonic_ns())
    time.sleep(PERIOD_SECONDS)
    told = asdict(device.read(time.monotonic_ns() + gpm.PERIOD_NS))
    limits = asdict(device.limits())
    status = Path("/proc/self/status").read_text()
    rights = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    return {
        "uid": os.getuid(),
        "capabilities": rights["CapEff"],
        "driver": driver.driver_version(),
        "known": sorted(name for name, value in told.items() if value is not None),
        "unknown": sorted(name for name, value in told.items() if value is None),
        "activities": {name: told[name] for name in gpm.METRICS.values()},
        "draw_watts": told["draw_watts"],
        "limits": limits,
        "processes": len(device.processes()),
    }


class _Products(threading.Thread):
    """Large products until it is told that it is over."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.at_work, self.over = threading.Event(), threading.Event()

    def run(self) -> None:
        import torch

        a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
        while not self.over.is_set():
            for _ in range(200):
                b = a @ a
            torch.cuda.synchronize()
            self.at_work.set()
        del b


if __name__ == "__main__":
    main()
