"""Which series a command takes for the draw of PowerDomains, and what it says of them."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Final, get_args

from forecasting.app.unknown_series import unknown_series
from forecasting.domain_series import NAME_OF_DOMAIN, DomainDraw, Kinds, domain_draws
from forecasting.series_source import SeriesId, SeriesSource
from wattpack.errors import InputError
from wattpack.near_names import did_you_mean
from wattpack.printable import printable

_MOST_NAMED: Final = 3
_NO_DRAW: Final = "a series that is a domain's draw (--kind domain says that it is)"


def add_domain_flags(parser: argparse.ArgumentParser) -> None:
    """``--kind``, ``--held-series`` and ``--parts``."""
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
    parser.add_argument(
        "--parts", action="append", default=[], metavar="DOMAIN=PART,…",
        help="what a domain feeds, by names of domains or patterns, row=rack-*: their forecasts "
        "then add up (may be given again)",
    )  # fmt: skip


def chosen_domains(
    args: argparse.Namespace, source: SeriesSource, series: Sequence[SeriesId]
) -> dict[SeriesId, DomainDraw]:
    """The series that are draws of domains, as the flags say.

    Raises:
        InputError: held bins of no domain, of several by one name, or that the history lacks; parts
            that make no power tree.
    """
    draws = with_parts(domain_draws(series, args.kind, args.held_series), args.parts)
    if args.held_series is None:
        return draws
    if not draws:
        raise InputError("held-series", _NO_DRAW, 0)
    if len(draws) > 1 and NAME_OF_DOMAIN not in args.held_series:
        raise InputError("held-series", f"{NAME_OF_DOMAIN} in it", args.held_series)
    held = [str(draw.held_series) for draw in draws.values()]
    for error in unknown_series(source, held, "held-series").values():
        raise error
    return draws


def with_parts(
    draws: Mapping[SeriesId, DomainDraw], told: Sequence[str]
) -> dict[SeriesId, DomainDraw]:
    """The draws with what feeds each.

    Args:
        draws: Of the domains that are asked for.
        told: ``DOMAIN=PART,…`` each; a part may be a pattern, which never means the domain itself.

    Raises:
        InputError: no such form, a domain that is not asked for, a part of two domains, a circle.
    """
    above: dict[str, str] = {}
    names = [draw.domain for draw in draws.values()]
    if told and not names:
        raise InputError("parts", _NO_DRAW, told[0])
    for text in told:
        whole, equals, parts = text.partition("=")
        if not (whole and equals and all(parts.split(","))):
            raise InputError("parts", "DOMAIN=PART,…", text)
        _require_domain(whole, names)
        for part in (found for pattern in parts.split(",") for found in _meant(pattern, names)):
            if part == whole and not set("*?[") & set(parts):
                raise InputError("parts", "parts other than the domain itself", text)
            if part != whole and above.setdefault(part, whole) != whole:
                raise InputError(
                    "parts", f"{part!r} in one domain, not also in {above[part]!r}", text
                )
    for name in above:
        _require_root(name, above)
    return {series: replace(one, above=above.get(one.domain, "")) for series, one in draws.items()}


def _meant(pattern: str, names: Sequence[str]) -> list[str]:
    found = [pattern] if pattern in names else [n for n in names if fnmatchcase(n, pattern)]
    if not found:
        _require_domain(pattern, names)
    return found


def _require_domain(name: str, names: Sequence[str]) -> None:
    if name not in names:
        raise InputError("parts", f"domains that are asked for{did_you_mean(name, names)}", name)


def _require_root(name: str, above: Mapping[str, str]) -> None:
    at = name
    for _ in range(len(above) + 1):
        if (at := above.get(at, "")) == "":
            return
    raise InputError("parts", "no domain that feeds itself", name)


def require_one_forecaster(draws: Mapping[SeriesId, DomainDraw], shards: int) -> None:
    """Refuse to deal a power tree to several forecasters, none of which would see it whole.

    Raises:
        InputError: for parts and more than one shard.
    """
    if shards > 1 and any(draw.above for draw in draws.values()):
        raise InputError(
            "parts", "one forecaster for a power tree, no --processes or --shards", shards
        )


def unknown_here(draws: Mapping[SeriesId, DomainDraw]) -> str:
    """What only a cluster knows of the domains; empty without any."""
    if not draws:
        return ""
    names = [draw.domain for draw in draws.values()]
    told = ", ".join(names[:_MOST_NAMED]) + (", …" if len(names) > _MOST_NAMED else "")
    is_tree = any(draw.above for draw in draws.values())
    tree = "rating (--ceiling)" if is_tree else "rating (--ceiling) and power tree (--parts)"
    lacking = f"boards, pods, load{' and' if is_tree else ','} {tree}"
    return printable(f"by the rules of PowerDomains: {told}; {lacking} are not known here")
