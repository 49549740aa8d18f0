"""``wattpack explain domains``: what enforcing would find at each breaker, before it is asked for.

With every server held at guaranteed caps, do they fit (I1)? Which would? Must boards be held so
that the breaker survives a jump while nobody commands (I2)? Reads files; no cluster is needed.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from controller.app.planned_servers import (
    Site,
    added_servers,
    guaranteed_caps,
    read_site,
    with_caps,
)
from controller.enforce_outlook import DomainOutlook, enforce_outlooks
from controller.tick_values import PowerSettings
from wattpack.errors import InputError
from wattpack.gpu_resources import MAX_BOARDS

__all__ = ["main", "outlook_text"]

EXAMPLES = """examples:
  kubectl get powerdomains,gpunodes,nodes -o json > cluster.json
  wattpack explain domains --cluster cluster.json --guaranteed-cap "NVIDIA H200=450"
  wattpack explain domains --domains my-domains.yaml --add 52:H200-SXM:row-a     without a cluster
"""


def build_parser() -> argparse.ArgumentParser:
    """The arguments."""
    parser = argparse.ArgumentParser(
        prog="wattpack explain domains",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add(
        "--cluster",
        type=Path,
        metavar="FILE",
        help="output of `kubectl get powerdomains,gpunodes,nodes -o json`",
    )
    add(
        "--domains", type=Path, action="append", default=[], metavar="FILE",
        help="PowerDomains in YAML, in place of the cluster's of the same names",
    )  # fmt: skip
    add(
        "--add", action="append", default=[], metavar="N:TYPE:DOMAIN",
        help="N more servers with boards of a GPU type below a domain",
    )  # fmt: skip
    add("--boards", type=int, default=8, metavar="N", help="of each added server (%(default)s)")
    add(
        "--guaranteed-cap", action="append", default=[], metavar="[TYPE=]WATTS",
        help="of one GPU, as in the actuator's configuration (those that agents tell)",
    )  # fmt: skip
    add("--json", action="store_true", help="print all figures as JSON")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Print the figures; 0 if I1 would hold everywhere, 1 if not.

    Raises:
        InputError: naming the flag, or file and field.
    """
    options = build_parser().parse_args(argv)
    if options.cluster is None and not options.domains:
        raise InputError("--domains", "PowerDomains, or --cluster FILE", None)
    if not 1 <= options.boards <= MAX_BOARDS:
        raise InputError("--boards", f"1 to {MAX_BOARDS}", options.boards)
    site = added_servers(read_site(options.cluster, options.domains), options.add, options.boards)
    site = with_caps(site, guaranteed_caps(options.guaranteed_cap))
    if not site.servers:
        raise InputError("--add", "a server below a domain, here or in --cluster", options.add)
    settings = PowerSettings()
    found = enforce_outlooks(site.grid, site.domains, site.servers, settings)
    if options.json:
        told = [{**asdict(outlook), "fits": outlook.fits} for outlook in found]
        print(json.dumps({"domains": told, "unclaimed": site.unclaimed}, indent=2))
    else:
        print(
            "\n".join([outlook_text(one, settings) for one in found if one.servers] + _rest(site))
        )
    return 0 if all(one.fits for one in found if one.servers) else 1


def _rest(site: Site) -> list[str]:
    """What no breaker's figures say."""
    lines = []
    for names, what in (
        (site.unclaimed, "no domain claims these servers, so they are in no sum"),
        (site.guessed, "no known GPU type, counted as the largest known"),
    ):
        if names:
            some = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if names[5:] else "")
            lines.append(f"{what}: {some}")
    return lines


def outlook_text(one: DomainOutlook, settings: PowerSettings) -> str:
    """The figures of a breaker for people."""
    over = one.default_watts - one.rating_watts
    side = f"{_kw(abs(over))} {'above' if over > 0 else 'below'} the rating"
    borne = (
        f"bears {_kw(one.survivable_watts)} for {settings.fault_seconds:g} s without a controller"
    )
    lines = [
        f"{one.domain}: {one.servers} servers, {one.gpus} GPUs, rating {_kw(one.rating_watts)}",
        _line("uncapped", f"{_kw(one.default_watts)} with all at default limits, {side}"),
        _line("guaranteed", _guaranteed(one)),
        _line("would fit", _fitting(one)),
        _line("I2", f"{borne}: boards hold {_share(one)}"),
        _line("capping", f"from {_kw(one.cap_band_watts)} on, or the same share of a lower budget"),
    ]
    if one.objection:
        lines.append(_line("missing", one.objection))
    return "\n".join(lines)


def _guaranteed(one: DomainOutlook) -> str:
    if one.guaranteed_watts is None:
        return "nobody told guaranteed caps: --guaranteed-cap"
    verdict = "fits (I1)"
    if one.guaranteed_watts > one.rating_watts:
        verdict = f"{_kw(one.guaranteed_watts - one.rating_watts)} TOO MUCH (I1)"
    return f"{_kw(one.guaranteed_watts)} at guaranteed caps, {_allowance(one)}: {verdict}"


def _fitting(one: DomainOutlook) -> str:
    if not one.fitting_watts:
        lowest = _kw(one.lowest_watts)
        return f"no guaranteed cap: {lowest} at the lowest limits, {_allowance(one)} (I1)"
    caps = ", ".join(
        (f"{low:.0f} W" if low == high else f"{low:.0f} to {high:.0f} W") + f" ({model})"
        for model, (low, high) in one.fitting_watts.items()
    )
    return f"guaranteed caps up to {caps}"


def _allowance(one: DomainOutlook) -> str:
    servers = f"{one.servers_at_default} server{'s' if one.servers_at_default > 1 else ''}"
    return f"{servers} at default limits"


def _share(one: DomainOutlook) -> str:
    if one.survivable_share >= 1.0:
        return "their default limits"
    return f"at most {one.survivable_share:.2f} of their default limits in sum, also in calm times"


def _kw(watts: float) -> str:
    return f"{watts / 1000:,.1f} kW"


def _line(name: str, text: str) -> str:
    return f"  {name:11} {text}"
