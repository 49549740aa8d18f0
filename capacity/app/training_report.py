"""Training plans as people read them: the front, and what the best plan does."""

from __future__ import annotations

from rich.table import Table

from capacity.training.plan_values import ParallelPlan, ParallelPlans, TrainingProblem
from capacity.training.training_document import host_ranges

__all__ = ["front_table", "summary_lines"]


def front_table(plans: ParallelPlans) -> Table:
    """One row a plan that no other one beats in time, energy and cost; the best one is marked."""
    table = Table(title="Training plans")
    for name in ("", "layout"):
        table.add_column(name)
    for name in ("GPUs", "cap W", "step s", "MJ", "$ a step", "memory GB", "mean W"):
        table.add_column(name, justify="right")
    for plan in plans.front:
        table.add_row(
            "*" if plan is plans.best else "",
            str(plan.layout),
            str(plan.layout.gpus),
            f"{plan.limit_watts:g}",
            f"{plan.step_seconds:.3g}",
            f"{plan.joules / 1e6:.3g}",
            f"{plan.dollars:.3g}",
            f"{max(plan.memory_bytes) / 1e9:.1f}",
            f"{plan.power.mean_watts:.0f}",
        )
    return table


def summary_lines(plans: ParallelPlans, problem: TrainingProblem) -> list[str]:
    """Where the best plan's time goes, its power wave, what binds, and warnings."""
    best, power = plans.best, plans.best.power
    shares = ", ".join(f"{name} {share:.1%}" for name, share in best.shares.items() if share > 5e-4)
    waves = ", ".join(f"{p.name} {p.seconds:.2g} s at {p.draw_watts:.0f} W" for p in power.phases)
    lines = [
        f"{plans.considered:,} layouts priced, {plans.too_large:,} of them too large",
        f"best (*): {best.tokens_per_second:,.0f} tokens/s; {shares}",
        f"power of a GPU: mean {power.mean_watts:.0f} W, from {power.dip_watts:.0f} to "
        f"{power.peak_watts:.0f} W every {power.period_seconds:.3g} s ({waves})",
        *_stage_lines(best, problem),
    ]
    if plans.binding:
        lines.append("What binds (the step would be that much shorter without it):")
        lines += [f"  {name}: {share:.1%}" for name, share in plans.binding]
    return lines + [f"warning: {text}" for text in plans.warnings]


def _stage_lines(best: ParallelPlan, problem: TrainingProblem) -> list[str]:
    if best.layout.pipeline == 1:
        return []
    hosts = host_ranges(best, problem.cluster)
    return ["stages: " + "; ".join(
        f"{layers} layers on host {host}" for layers, host in zip(best.layers, hosts, strict=True)
    )]  # fmt: skip
