"""Which series a command takes for the draw of PowerDomains, and what it says of them."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Final, get_args

from forecasting.app.unknown_series import unknown_series
from forecasting.domain_series import NAME_OF_DOMAIN, DomainDraw, Kinds, domain_draws
from forecasting.series_source import SeriesId, SeriesSource
from wattpack.errors import InputError
from wattpack.printable import printable

_MOST_NAMED: Final = 3


def add_domain_flags(parser: argparse.ArgumentParser) -> None:
    """``--kind`` and ``--held-series``."""
    parser.add_argument(
        "--kind", choices=get_args(Kinds), default="auto",
        help="what the series are: draws of PowerDomains, which have rules of their own, or any "
        "other; auto tells by name: domain_draw_watts/NAME, or "
        'wattpack_domain_measured_watts{domain="NAME"} (%(default)s)',
    )  # fmt: skip
    parser.add_argument(
        "--held-series", metavar="SERIES",
        help="share of each bin in which caps held a domain's work back; {domain} stands for its "
        "name: domain_held_share/{domain}",
    )  # fmt: skip


def chosen_domains(
    args: argparse.Namespace, source: SeriesSource, series: Sequence[SeriesId]
) -> dict[SeriesId, DomainDraw]:
    """The series that are draws of domains, as the flags say.

    Raises:
        InputError: held bins of no domain, of several by one name, or that the history lacks.
    """
    draws = domain_draws(series, args.kind, args.held_series)
    if args.held_series is None:
        return draws
    if not draws:
        raise InputError("held-series", "a series that is a domain's draw: --kind", 0)
    if len(draws) > 1 and NAME_OF_DOMAIN not in args.held_series:
        raise InputError("held-series", f"{NAME_OF_DOMAIN} in it", args.held_series)
    held = [str(draw.held_series) for draw in draws.values()]
    for error in unknown_series(source, held, "held-series").values():
        raise error
    return draws


def unknown_here(draws: Mapping[SeriesId, DomainDraw]) -> str:
    """What only a cluster knows of the domains; empty without any."""
    if not draws:
        return ""
    names = [draw.domain for draw in draws.values()]
    told = ", ".join(names[:_MOST_NAMED]) + (", …" if len(names) > _MOST_NAMED else "")
    return printable(
        f"by the rules of PowerDomains: {told}; boards, pods, load, rating (--ceiling) and power "
        "tree are not known here"
    )
