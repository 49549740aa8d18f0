"""Which models a command's forecasts are made by."""

from __future__ import annotations

import argparse
from typing import Final, Literal

from forecasting.round.round_state import ForecasterState
from forecasting.tiers.tier_sets import RIDGE_ALONE, all_tiers

Models = Literal["all", "ridge"]
MODELS: Final[tuple[Models, ...]] = ("all", "ridge")


def add_models_flag(parser: argparse.ArgumentParser, default: Models) -> None:
    """``--models``; forests take minutes to be fitted on ten days, the ridge a second."""
    parser.add_argument(
        "--models", choices=MODELS, default=default,
        help="all that the forecaster has, minutes of CPU, or the ridge alone (%(default)s)",
    )  # fmt: skip


def fresh_state(models: Models) -> ForecasterState:
    """A forecaster that has learned nothing; its forests are fitted within the round."""
    return ForecasterState(RIDGE_ALONE if models == "ridge" else all_tiers())
