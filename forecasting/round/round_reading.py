"""Reads the histories of a round, series by series, with patience for a source that fails."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from forecasting.round.patience import Patience
from forecasting.round.target_forecast import TargetForecast
from forecasting.series_source import DAY_SECONDS, Floats, History, SeriesSource
from forecasting.targets import Target
from forecasting.tiers.records import HISTORY_DAYS
from wattpack.errors import InputError, WattpackError


def read_histories(
    source: SeriesSource, now_seconds: float, members: Sequence[Target], patience: Patience
) -> tuple[list[Target], History, list[TargetForecast]]:
    """Ten days of every member, each asked alone; the others come back with the reason."""
    step_seconds = members[0].step_seconds
    until = int(now_seconds // step_seconds) * step_seconds
    start = until - HISTORY_DAYS * DAY_SECONDS // step_seconds * step_seconds
    rows: list[Floats] = []
    usable, failed = [], []
    for member in members:
        if (why := patience.spent()) is not None:
            failed.append(TargetForecast.refused(member, why))
            continue
        try:
            row = source.fetch([member.series], start, until, step_seconds)
        except InputError as error:
            failed.append(TargetForecast.refused(member, error))
        except WattpackError as error:
            patience.failed(error)
            failed.append(TargetForecast.refused(member, error))
        else:
            patience.answered()
            rows.append(row)
            usable.append(member)
    values = np.concatenate(rows) if rows else np.empty((0, (until - start) // step_seconds))
    return usable, History([m.identity for m in usable], values, until, step_seconds), failed
