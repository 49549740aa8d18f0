"""A synthetic fleet as a live view, for the console's tests."""

from __future__ import annotations

import math

from controller.cap_reason import CapReason
from wattpack.live_view import (
    LiveAccount,
    LiveCalibration,
    LiveDecision,
    LiveDomain,
    LiveForecast,
    LiveGpus,
    LiveLead,
    LiveRoom,
    LiveTier,
    LiveView,
)

WALL_NS = 1_700_000_000_000_000_000


def window(rating: float) -> LiveForecast:
    """Six hours in steps of ten minutes: a rise towards the evening."""
    shares = [0.86 + 0.09 * math.sin(i / 36 * math.pi) for i in range(36)]
    return LiveForecast(
        start_seconds=WALL_NS / 1e9,
        step_seconds=600,
        p50_watts=[rating * (share - 0.04 - 0.0004 * i) for i, share in enumerate(shares)],
        p99_watts=[rating * (share + 0.03) for share in shares],
    )


def account(flags: tuple[str, ...] = ("gaps",)) -> LiveAccount:
    """Of a forecast with forty windows behind it, made by three models."""
    now = WALL_NS / 1e9
    return LiveAccount(
        issued_seconds=now - 300,
        data_until_seconds=now - 600,
        windows=40,
        violations=1,
        violation_bound=0.114,
        live_windows=16,
        live_violations=1,
        live_violation_bound=0.264,
        reserve_ratio=1.31,
        tiers=[
            LiveTier(name="lightgbm/1", weight=0.5),
            LiveTier(name="ridge/2", weight=0.3),
            LiveTier(name="ets/1", weight=0.2),
        ],
        model_version="wattpack/3",
        fitted_until_seconds=now - 7200,
        calibration=LiveCalibration(
            live_windows=16, rehearsed_windows=144, offset_p99_watts=3100.0,
            updated_seconds=now - 3600,
        ),
        flags=list(flags),
    )  # fmt: skip


def make_view(
    *,
    gpus: int = 416,
    racks: int = 4,
    tick: int = 1,
    capped: int = 40,
    draw: float = 0.93,
    state: str = "Forecast",
    flags: tuple[str, ...] = ("gaps",),
    dry_run: bool = False,
) -> LiveView:
    rating = gpus * 850.0
    per_rack = -(-gpus // racks)
    rack = [f"rack-{i // per_rack + 1}" for i in range(gpus)]
    names = ["row", *dict.fromkeys(rack)]
    domains = [
        LiveDomain(
            name=name,
            parent=None if name == "row" else "row",
            rating_watts=rating if name == "row" else rating / racks,
            budget_watts=rating if name == "row" else rating / racks,
            cap_band_watts=0.95 * (rating if name == "row" else rating / racks),
            draw_watts=draw * (rating if name == "row" else rating / racks),
            worst_watts=1.2 * (rating if name == "row" else rating / racks),
            heat=0.01,
            band="CAPPING" if capped and name == "row" else "NORMAL",
            enforcement="DryRun" if dry_run else "Enforce",
            release_watts=0.88 * (rating if name == "row" else rating / racks),
            survivable_watts=1.25 * (rating if name == "row" else rating / racks),
            base_watts=rating if name == "row" else rating / racks,
            calm_watts=0.93 * (rating if name == "row" else rating / racks),
            uncapped_watts=1.01 * (rating if name == "row" else rating / racks),
            raise_watts_per_second=0.02 * (rating if name == "row" else rating / racks),
            gpus=gpus if name == "row" else per_rack,
            capped_gpus=capped if name == "row" and not dry_run else 0,
            would_be_capped_gpus=capped if name == "row" and dry_run else 0,
            forecast_p50_watts=0.9 * (rating if name == "row" else rating / racks),
            forecast_p95_watts=0.95 * (rating if name == "row" else rating / racks),
            forecast_p99_watts=0.98 * (rating if name == "row" else rating / racks),
            forecast_method="ridge",
            forecast_state=state,
            forecast_reason="wattpack-system/row: ridge"
            if state == "Forecast"
            else "wattpack-system/row: measured draw above its p99 in 7 of 10 minutes",
            forecast_window=window(rating if name == "row" else rating / racks)
            if state == "Forecast"
            else None,
            forecast_account=account(flags) if state == "Forecast" else None,
            forecast_lead=LiveLead(workload="chat", seconds=243.6, p99_watts=340_000.0)
            if name == "row"
            else None,
            promisable=[
                LiveRoom(least_priority=1000, risk=0.01, watts=12_000.0),
                LiveRoom(least_priority=None, risk=0.05, watts=30_000.0),
            ]
            if name == "row"
            else [],
        )
        for name in names
    ]
    why = CapReason.DRY_RUN if dry_run else CapReason.DOMAIN_BAND
    reason = [int(why) if i < capped else 0 for i in range(gpus)]
    return LiveView(
        wall_time_ns=WALL_NS + tick * 1_000_000_000,
        tick=tick,
        epoch=3,
        leading=True,
        tick_seconds=0.002,
        domains=domains,
        gpus=LiveGpus(
            uuid=[f"GPU-{i:05d}" for i in range(gpus)],
            node=[f"node-{i // 8:03d}" for i in range(gpus)],
            rack=rack,
            model=["H200-SXM"] * gpus,
            draw_watts=[
                None if i % 97 == 96 else 100.0 + (i * 37 + tick * 13) % 600 for i in range(gpus)
            ],
            limit_watts=[450.0 if i < capped else 700.0 for i in range(gpus)],
            request_watts=[700.0] * gpus,
            priority=[0 if i < capped else 1000 for i in range(gpus)],
            reason=reason,
            binding_domain=[0 if r else -1 for r in reason],
            trusted=[True] * gpus,
            pod=[f"default/pod-{i // 4}" for i in range(gpus)],
            floor_watts=[400.0] * gpus,
            decided_watts=[450.0 if i < capped else 700.0 for i in range(gpus)],
            temperature_celsius=[None if i % 97 == 96 else 45.0 + i % 30 for i in range(gpus)],
            workload=["decoder-decode"] * gpus,
            bound=["bandwidth"] * gpus,
            workload_confidence=[0.9] * gpus,
            speed_fraction=[0.9 if i < capped else 1.0 for i in range(gpus)],
            seen=[""] * gpus,
            lock_max_mhz=[0] * gpus,
        ),
        decisions=[
            LiveDecision(
                id=f"c-3-{tick}-0",
                wall_time_ns=WALL_NS,
                epoch=3,
                domain="row",
                kind="Capping",
                message="draw 352 kW reached the cap band of 336 kW",
            )
        ],
        simulated=True,
        label="simulated row, test",
    )
