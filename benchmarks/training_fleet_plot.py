"""The training fleet in docs/simulation.md: ``python -m benchmarks.training_fleet_plot``.

Writes docs/images/training-fleet.png; takes a minute; needs matplotlib.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib as mpl
import numpy as np
from numpy.typing import NDArray

from benchmarks.training_fleet import (
    DAYS,
    JUDGING_SEEDS,
    MOMENTS,
    SERVERS,
    acme_watts,
    distance,
    moments,
    read_servers,
)
from simulation.training_fleet.fleet_row import FleetSample, fleet_samples, fleet_scenario

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

Floats = NDArray[np.float64]

BLUE, RED, GREY = "#00798c", "#d1495b", "#8d96a3"
WEEK_SERVERS, WEEK_HOURS, STEP_HOURS = 286, 168, 0.5


def plot_fleet(file: Path, samples: list[FleetSample], week: list[FleetSample]) -> None:
    """Servers and boards against Acme's, and a week of the fleet.

    Args:
        file: To write.
        samples: Of a judging seed, as the benchmark takes them.
        week: Half hours of a week.
    """
    acme = acme_watts()
    figure, axes = plt.subplots(3, 1, figsize=(11, 11))
    servers = read_servers(samples)
    boards = np.concatenate([one.board_watts for one in samples])
    _shares(axes[0], servers, BLUE, "simulated servers")
    _shares(axes[0], acme["seren_gpu_server_w"], RED, "Acme, Seren")
    far = distance(servers, acme["seren_gpu_server_w"])
    axes[0].set(xlabel=f"W of a server, AC (distance {far:.3f})", ylabel="share at most")
    _shares(axes[1], boards, BLUE, "simulated boards")
    _shares(axes[1], acme["seren_gpu_w"], RED, "Acme, Seren")
    _shares(axes[1], acme["kalos_gpu_w"], GREY, "Acme, Kalos")
    axes[1].set(xlabel="W of a board, not fitted", ylabel="share at most", xlim=(0, 600))
    hours = np.array([one.seconds for one in week]) / 3600.0
    draws = np.array([one.server_watts for one in week]) / 1000.0
    for quantile, colour in ((10, GREY), (50, BLUE), (90, RED)):
        axes[2].plot(hours, np.percentile(draws, quantile, axis=1), c=colour, lw=1,
                     label=f"{quantile} % of servers draw at most")  # fmt: skip
    axes[2].plot(hours, draws.mean(axis=1), c="black", lw=1.2, label="mean server")
    axes[2].set(xlabel="hours of a week", ylabel="kW of a server", ylim=(0, None))
    for axis in axes:
        axis.legend(fontsize=8, loc="lower right")
        axis.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(file, dpi=80)
    plt.close(figure)


def _shares(axis: Axes, watts: Floats, colour: str, label: str) -> None:
    ordered = np.sort(watts)
    axis.plot(ordered, np.arange(1, len(ordered) + 1) / len(ordered), c=colour, label=label)


def main() -> None:
    """Draw it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/images/training-fleet.png"))
    seed = JUDGING_SEEDS[0]
    scenario = fleet_scenario(SERVERS, seed)
    samples = list(fleet_samples(scenario, moments(DAYS, MOMENTS, seed)))
    hours = np.arange(STEP_HOURS, WEEK_HOURS + STEP_HOURS, STEP_HOURS)
    week = list(fleet_samples(fleet_scenario(WEEK_SERVERS, seed), hours * 3600.0))
    plot_fleet(parser.parse_args().out, samples, week)


if __name__ == "__main__":
    main()
