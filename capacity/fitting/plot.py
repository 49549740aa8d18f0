"""``python -m capacity.fitting.plot``: the pictures of docs/capacity.md (needs matplotlib)."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

from capacity.fitting.board_steps import LIMIT_WATTS, read_steps
from capacity.fitting.capping_loop_fit import demands, first_tick, played
from capacity.fitting.classes import SWEPT
from capacity.fitting.curves import MIN_DRAW_SHARE, SweepPoint, fit_curve, mmbt_points, zeus_points
from capacity.fitting.fit import REFERENCE
from capacity.gpu_profile import KERNEL_CLASSES, GpuProfile
from capacity.model.cap_map import fit_cap_map
from capacity.model.capping_loop import capping_loop
from capacity.profile_library import shipped_library

mpl.use("Agg")
from matplotlib import pyplot as plt

COLOURS = {"prefill": "#d1495b", "decode": "#00798c", "training": "#edae49", "batch": "#30638e"}


def plot_profiles(profiles: Sequence[GpuProfile], points: Sequence[SweepPoint], file: Path) -> None:
    """Cap against throughput for every type and class, with the jobs of the sweeps as dots."""
    figure, axes = plt.subplots(2, 4, figsize=(15, 7), sharey=True)
    for axis, profile in zip(axes.flat, profiles, strict=True):
        _plot_profile(axis, profile, [p for p in points if p.gpu == SWEPT.get(profile.model)])
    axes.flat[0].legend(loc="lower right", fontsize=8)
    for axis in axes[:, 0]:
        axis.set_ylabel("throughput, uncapped = 1")
    figure.suptitle(
        "Cap and throughput by kernel class. Solid: swept on this GPU; dashed: derived. "
        "Dots: Zeus training jobs (grey: too little draw for a cap to bind). Line: knee."
    )
    figure.tight_layout()
    figure.savefig(file, dpi=90)
    plt.close(figure)


def _plot_profile(axis: Any, profile: GpuProfile, own: Sequence[SweepPoint]) -> None:  # noqa: ANN401
    """One panel."""
    for busy, colour in ((False, "0.85"), (True, "0.6")):
        dots = [p for p in own if (p.share >= MIN_DRAW_SHARE) is busy]
        axis.plot([p.limit_watts for p in dots], [p.throughput for p in dots], ".", ms=3, c=colour)
    for name in KERNEL_CLASSES:
        if name == "idle":
            continue
        kernel = profile.kernel_classes[name]
        caps = np.array(kernel.cap_fractions) * profile.default_limit_watts
        keep = caps >= profile.min_limit_watts
        style = "-" if kernel.curve_provenance == "measured" else "--"
        axis.plot(caps[keep], np.array(kernel.throughput)[keep], style, c=COLOURS[name], label=name)
    axis.axvline(profile.knee_watts, c="k", lw=0.8)
    axis.set_title(f"{profile.model} (limit {profile.default_limit_watts:g} W)", fontsize=10)
    axis.set_xlabel("power limit, W")
    axis.set_ylim(0, 1.15)
    axis.grid(alpha=0.3)


def plot_shared_line(points: Sequence[SweepPoint], check: Sequence[SweepPoint], file: Path) -> None:
    """Throughput against cap / uncapped draw: the line that derived curves borrow."""
    figure, axis = plt.subplots(figsize=(7.5, 4.5))
    x = np.linspace(0.3, 1.3, 200)
    for gpu in sorted({p.gpu for p in points}):
        own = [p for p in points if p.gpu == gpu]
        dots = [p for p in own if p.share >= MIN_DRAW_SHARE]
        (line,) = axis.plot([p.x for p in dots], [p.throughput for p in dots], ".", ms=2, alpha=0.5)
        axis.plot(x, fit_curve(own).at(x)[0], c=line.get_color(), lw=1.2, label=gpu)
    axis.plot(x, fit_curve(points).at(x)[0], "k", lw=2.5, label="shared line")
    axis.plot([p.x for p in check], [p.throughput for p in check], "r^", ms=5,
              label="RTX PRO 6000 serving (check only)")  # fmt: skip
    axis.set(xlabel="cap / uncapped draw", ylabel="throughput, uncapped = 1")
    axis.set_xlim(0.3, 1.3)
    axis.set_ylim(0, 1.15)
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(file, dpi=90)
    plt.close(figure)


def plot_cap_map(points: Sequence[SweepPoint], file: Path) -> None:
    """The cap map as lines for three draws, over the jobs that draw about as much, as dots."""
    cap_map = fit_cap_map(points)
    figure, axes = plt.subplots(1, 3, figsize=(13, 4.2), sharey=True)
    for axis, gpu in zip(axes, ("V100", "RTX6000", "A40"), strict=True):
        mine = [point for point in points if point.gpu == gpu]
        limit = mine[0].max_limit_watts
        for share, colour in ((0.92, "#d1495b"), (0.78, "#edae49"), (0.64, "#00798c")):
            near = [p for p in mine if abs(p.share - share) < 0.07 and p.x < 1]
            axis.plot(
                [p.limit_watts for p in near], [p.throughput for p in near], ".", ms=4, c=colour
            )
            caps = np.linspace(0.36 * limit, limit, 120)
            speed = cap_map.throughput(gpu, caps, share * limit, limit)
            axis.plot(caps, speed, c=colour, label=f"draws {share * limit:.0f} W uncapped")
        axis.axvline(0.5 * limit, c="k", lw=0.8)
        axis.set_title(f"{gpu} (limit {limit:g} W)", fontsize=10)
        axis.set_xlabel("power limit, W")
        axis.grid(alpha=0.3)
        axis.legend(loc="lower right", fontsize=8)
    axes[0].set_ylabel("speed, uncapped = 1")
    figure.suptitle(
        "Cap map (fitted on all); dots: jobs within 7 % of that draw; bar: half of the limit"
    )
    figure.tight_layout()
    figure.savefig(file, dpi=90)
    plt.close(figure)


def plot_capping_loop(file: Path) -> None:
    """A plain step that was left out of the fit and a part of the training-like load, modelled."""
    steps, loop = read_steps(), capping_loop("H200-SXM")
    figure, axes = plt.subplots(1, 2, figsize=(13, 3.8), sharey=True, width_ratios=(3, 5))
    plain = first_tick(steps, "gemm2")
    train = int(np.flatnonzero(np.char.startswith(steps.phases, "train"))[0])
    for axis, first, ticks, title in (
        (axes[0], plain - 1, 30, "matrix products after idling (left out of the fit)"),
        (axes[1], train, 60, "0.9 s of work, 0.35 s of waiting (left out as a whole)"),
    ):
        made = played(loop, demands(steps, [first], ticks), ticks)[:, 0]
        at = 0.1 * np.arange(ticks)
        seen = steps.draws[first : first + ticks] / LIMIT_WATTS
        axis.step(at, seen, where="post", c="0.5", lw=2.5, label="recorded")
        axis.step(at, made / LIMIT_WATTS, where="post", c="#d1495b", lw=1.2, label="capping loop")
        axis.axhline(1, c="k", lw=0.8)
        axis.set(xlabel="seconds", title=title)
        axis.title.set_fontsize(10)
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("draw of 100 ms over limit")
    axes[0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(file, dpi=90)
    plt.close(figure)


def main(argv: Sequence[str] | None = None) -> int:
    """Write the pictures."""
    parser = argparse.ArgumentParser(prog="python -m capacity.fitting.plot", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/images"), help="folder")
    args = parser.parse_args(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    points = zeus_points(REFERENCE / "zeus_power_limit_sweep.csv.gz")
    profiles = list(shipped_library().profiles.values())
    plot_profiles(profiles, points, args.out / "capacity-cap-throughput.png")
    check = mmbt_points(REFERENCE / "mmbt_power_limit_sweep.csv.gz")
    plot_shared_line(points, check, args.out / "capacity-shared-line.png")
    plot_cap_map(points, args.out / "capacity-cap-map.png")
    plot_capping_loop(args.out / "capacity-capping-loop.png")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
