"""Rounds of ``wattpack forecaster --once`` one after the other, each from the files of the last.

    python -m tests.forecasting.once_process FOLDER

The folder has ``history.db`` and gets, by round, what was published, and the state with its files.
Only the clock and the API server are others than in a cluster.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from unittest import mock

from forecasting.app import forecaster_command
from simulation.kube import EmbeddedKube
from wattpack.api.demand_forecast import DemandForecast
from wattpack.clock import ManualClock
from wattpack.units import NS_PER_SECOND

RESOURCE = DemandForecast.meta.resource
BINS = 5 * 144
ROUNDS_AT = (BINS * 600, BINS * 600 + 2 * 3600)
"""Within the window of the first round's promises, which the second has to judge in part."""

TARGETS = {
    "row": {"powerDomain": "row", "series": "domain_draw_watts/row"},
    "chat": {"workload": "chat", "series": "requests_per_second/chat"},
    "code": {"workload": "code", "series": "requests_per_second/code"},
    "plain": {"series": "requests_per_second/plain"},
}


def main(folder: Path) -> None:
    """Both rounds; statuses are kept as the API server has them."""
    clock = ManualClock(wall_offset_ns=ROUNDS_AT[0] * NS_PER_SECOND)
    kube = EmbeddedKube(clock)
    for name, target in TARGETS.items():
        body = {
            "apiVersion": RESOURCE.api_version, "kind": RESOURCE.kind,
            "metadata": {"name": name, "namespace": "power"}, "spec": {"target": target},
        }  # fmt: skip
        kube.create(RESOURCE, body, "power")
    state = folder / "state"
    state.mkdir()
    flags = [
        "--once", "--models=all", f"--history-file={folder / 'history.db'}",
        f"--state-file={state / 'state.npz'}",
    ]  # fmt: skip
    with (
        mock.patch.object(forecaster_command, "SystemClock", return_value=clock),
        mock.patch("wattpack.kube.client.connect", return_value=kube),
    ):
        for at_seconds in ROUNDS_AT:
            clock.advance_seconds(at_seconds - clock.wall_time_ns() / NS_PER_SECOND)
            if (code := forecaster_command.main(flags)) != 0:
                sys.exit(code)
            left = folder / str(at_seconds)
            shutil.copytree(state, left)
            told = {one["metadata"]["name"]: one["status"] for one in kube.list(RESOURCE).items}
            (left / "published.json").write_text(json.dumps(told, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
