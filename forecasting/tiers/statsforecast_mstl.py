"""MSTL with AutoETS of statsforecast, as an example of a plug-in.

Source: Bandara, Hyndman and Bergmeir, International Journal of Operational Research 52 (2025).
Library: Nixtla statsforecast, Apache-2.0. It takes a fifth to half a second a series and is
therefore for a few series; every answer fits anew.
"""

from __future__ import annotations

import numpy as np

from forecasting.series_source import Floats
from forecasting.tiers.past_errors import row_groups
from forecasting.tiers.tier import Tier


class MstlAutoEts(Tier):
    """Normal quantiles of MSTL with a daily season and a trend by AutoETS."""

    model = "mstl-autoets/1"

    def _step_quantiles(self, horizon: int, levels: Floats) -> Floats:
        from statsforecast.models import MSTL, AutoETS

        records = self.records
        result = np.full((len(records.series), horizon, len(levels)), np.nan)
        # The library is asked for central intervals: 80 gives the quantiles 0.1 and 0.9.
        exact = [round(100 * abs(2 * level - 1), 6) for level in levels.tolist()]
        # Its keys are spelled like the number: 80 and 99.8.
        central = [int(width) if width == int(width) else width for width in exact]
        for rows, bins in row_groups(records, 3 * records.day_steps):
            for row in rows.tolist():
                y = records.filled[row, -bins:]
                if np.ptp(y) == 0:
                    result[row] = y[-1]
                    continue
                model = MSTL(records.day_steps, trend_forecaster=AutoETS(model="ZZN"))
                made = model.forecast(y=y, h=horizon, level=sorted(set(central)))
                for i, (level, width) in enumerate(zip(levels.tolist(), central, strict=True)):
                    side = "lo" if level < 0.5 else "hi"
                    result[row, :, i] = made[f"{side}-{width}"]
        return result


def make() -> MstlAutoEts:
    """The plug-in.

    Raises:
        ModuleNotFoundError: statsforecast is not installed.
        Exception: whatever else keeps it from being loaded.
    """
    try:
        import statsforecast.models  # noqa: F401  known here, not at every answer
    except ModuleNotFoundError as error:
        why = f"{error} (extra wattpack[statsforecast])"
        raise ModuleNotFoundError(why, name=error.name) from error
    return MstlAutoEts()
