"""Servers and breakers as files and flags tell them, for ``wattpack explain domains``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from capacity.gpu_profile import GpuProfile
from capacity.profile_errors import UnknownGpuModel
from capacity.profile_library import normal_name, shipped_library
from controller.enforce_outlook import PlannedBoard, PlannedServer
from wattpack.api import PowerDomain
from wattpack.api.inventory import GpuNode
from wattpack.documents import parse_json, parse_yaml, read_text
from wattpack.errors import InputError, read_from
from wattpack.gpu_resources import MAX_BOARDS, board_count
from wattpack.kube.port import JsonObject
from wattpack.near_names import did_you_mean
from wattpack.object_names import GPU_MODEL_LABELS
from wattpack.power.power_grid import Feeding, PowerGrid
from wattpack.units import require_number

__all__ = ["Site", "added_servers", "guaranteed_caps", "read_site", "with_caps"]

#: More than any site has; bounds the work that a typing error can cause.
MAX_ADDED = 100_000


@dataclass(frozen=True, slots=True)
class Site:
    """What was read.

    Attributes:
        domains: As they are written, whether accepted or not, parents anywhere.
        servers: Below a domain, with at least one board.
        unclaimed: Servers with GPUs that no domain claims, sorted.
        guessed: Servers whose boards' type nobody knows, counted as the largest known, sorted.
    """

    domains: tuple[PowerDomain, ...]
    grid: PowerGrid
    servers: tuple[PlannedServer, ...]
    unclaimed: tuple[str, ...] = ()
    guessed: tuple[str, ...] = field(default=())


def read_site(cluster: Path | None, manifests: Sequence[Path]) -> Site:
    """Breakers and servers of a cluster, breakers of files in place of those of the same name.

    Args:
        cluster: Output of ``kubectl get powerdomains,gpunodes,nodes -o json``.
        manifests: YAML or JSON with PowerDomains; other kinds are passed over.

    Raises:
        InputError: naming file, object and field, for a parent that is not there, a circle, a
            server in two branches, and no breaker at all.
    """
    bodies = [] if cluster is None else _items(cluster)
    found = {d.name: d for d in map(PowerDomain.read, _of_kind(bodies, "PowerDomain"))}
    for file in manifests:
        with read_from(str(file)):
            written = map(PowerDomain.from_json, _of_kind(_documents(file), "PowerDomain"))
            found.update({domain.name: domain for domain in written})
    domains = list(found.values())
    if not domains:
        raise InputError("--domains", "at least one PowerDomain", [str(f) for f in manifests])
    grid = PowerGrid.of({domain.name: domain.spec for domain in domains})
    return _with_servers(Site(tuple(domains), grid, ()), bodies)


def _with_servers(site: Site, bodies: Sequence[JsonObject]) -> Site:
    agents = {body["metadata"]["name"]: body for body in _of_kind(bodies, "GpuNode")}
    nodes = {body["metadata"]["name"]: body for body in _of_kind(bodies, "Node")}
    servers, unclaimed, guessed = [], [], []
    for name in sorted(agents.keys() | nodes.keys()):
        node = nodes.get(name, {})
        labels = (node.get("metadata") or {}).get("labels") or {}
        boards, listed = _told(agents[name]) if name in agents else ([], 0)
        missing = min(max(board_count(node), listed), MAX_BOARDS) - len(boards)
        if missing > 0:
            board, known = _by_label(labels)
            # Beside boards that tell theirs one that does not is as the largest of them.
            known = known or bool(boards)
            board = max(boards, key=lambda told: told.default_limit_watts, default=board)
            boards += [replace(board, guaranteed_watts=None)] * missing
            guessed += [] if known else [name]
        feeding = site.grid.feeding(name, labels)
        if boards and feeding.require_one_branch(name):
            servers.append(PlannedServer(feeding, tuple(boards)))
        elif boards:
            unclaimed.append(name)
    return replace(site, servers=tuple(servers), unclaimed=tuple(unclaimed), guessed=tuple(guessed))


def _told(body: JsonObject) -> tuple[list[PlannedBoard], int]:
    """The boards that an agent told, its own limits before those of their type; how many it lists.

    It lists those, too, that answer nobody.
    """
    found, status = [], GpuNode.read(body).status
    for device in status.devices:
        typical, _ = _by_label({GPU_MODEL_LABELS[0]: device.model})
        default = device.default_limit_watts or typical.default_limit_watts
        lowest = min(typical.min_limit_watts, default)
        found.append(PlannedBoard(device.model, default, lowest, device.guaranteed_watts or None))
    return found, status.gpu_count or 0


def _by_label(labels: Mapping[str, str]) -> tuple[PlannedBoard, bool]:
    """A board of the type that labels tell, and whether it is known; else of the largest known."""
    name = next((labels[key] for key in GPU_MODEL_LABELS if labels.get(key)), "")
    try:
        return _board(shipped_library().find(name)), True
    except UnknownGpuModel:
        profiles = shipped_library().profiles.values()
        return _board(max(profiles, key=lambda p: p.default_limit_watts)), False


def _board(profile: GpuProfile) -> PlannedBoard:
    return PlannedBoard(profile.model, profile.default_limit_watts, profile.min_limit_watts)


def added_servers(site: Site, words: Iterable[str], boards: int) -> Site:
    """The site with more servers.

    Args:
        site: What there is.
        words: N:TYPE:DOMAIN each.
        boards: Of one server.

    Raises:
        InputError: naming the word.
    """
    names = site.grid.tree.names
    added: list[PlannedServer] = []
    for word in words:
        count, _, rest = word.partition(":")
        model, _, domain = rest.rpartition(":")
        if not (re.fullmatch(r"[0-9]{1,6}", count) and 1 <= int(count) <= MAX_ADDED and model):
            expected = f"N:TYPE:DOMAIN with 1 to {MAX_ADDED:,} servers, for example 52:H200-SXM:row"
            raise InputError("--add", expected, word)
        if domain not in names:
            near = did_you_mean(domain, names)
            raise InputError("--add", f"N:TYPE:DOMAIN with the name of a PowerDomain{near}", word)
        try:
            board = _board(shipped_library().find(model))
        except UnknownGpuModel as error:
            raise InputError("--add", error.expected, model) from error
        added += [PlannedServer(Feeding(domain), (board,) * boards)] * int(count)
    return replace(site, servers=(*site.servers, *added))


def guaranteed_caps(words: Iterable[str]) -> dict[str, float]:
    """Watts by type (or ``*``) of ``TYPE=WATTS`` and ``WATTS``.

    Raises:
        InputError: naming the word.
    """
    caps: dict[str, float] = {}
    for word in words:
        name, equals, watts = word.rpartition("=")
        key = normal_name(name) if equals else "*"
        try:
            caps[key] = require_number("--guaranteed-cap", float(watts), exclusive_minimum=0.0)
        except (ValueError, InputError) as error:
            expected = 'TYPE=WATTS or WATTS of one GPU, for example "NVIDIA H200=450"'
            raise InputError("--guaranteed-cap", expected, word) from error
    return caps


def with_caps(site: Site, caps: Mapping[str, float]) -> Site:
    """The site with guaranteed caps as planned; without any, those that agents told.

    Raises:
        InputError: for a type without a cap, or a cap that its boards cannot be set to.
    """
    if not caps:
        return site
    servers = []
    for server in site.servers:
        boards = tuple(replace(b, guaranteed_watts=_cap(b, caps)) for b in server.boards)
        servers.append(replace(server, boards=boards))
    return replace(site, servers=tuple(servers))


def _cap(board: PlannedBoard, caps: Mapping[str, float]) -> float:
    names = {normal_name(board.model)}
    try:
        profile = shipped_library().find(board.model)
        names |= {normal_name(name) for name in (profile.model, *profile.product_names)}
    except UnknownGpuModel:
        pass
    watts = next((caps[name] for name in sorted(names) if name in caps), caps.get("*"))
    if watts is None:
        raise InputError("--guaranteed-cap", f"one for {board.model}, or WATTS for all", list(caps))
    lowest, default = board.min_limit_watts, board.default_limit_watts
    if not lowest <= watts <= default:
        expected = f"{lowest:g} to {default:g} W for a {board.model}, as its limits allow"
        raise InputError("--guaranteed-cap", expected, watts)
    return watts


def _items(file: Path) -> list[JsonObject]:
    document = parse_json(read_text(file), str(file))
    items = document.get("items") if isinstance(document, dict) else None
    if not isinstance(items, list):
        raise InputError("items", "a list of objects, as kubectl prints", document, str(file))
    return _checked(items, file)


def _documents(file: Path) -> list[JsonObject]:
    """Each document of a YAML file."""
    texts = re.split(r"(?m)^---(?:\s.*)?$", read_text(file))
    read = [parse_yaml(text, str(file)) for text in texts]
    return _checked([document for document in read if document is not None], file)


def _checked(bodies: Sequence[object], file: Path) -> list[JsonObject]:
    found: list[JsonObject] = []
    for body in bodies:
        meta = body.get("metadata") if isinstance(body, dict) else None
        if not isinstance(body, dict) or not isinstance(meta, dict):
            raise InputError("document", "Kubernetes objects with metadata", body, str(file))
        if not isinstance(meta.get("name"), str):
            raise InputError("metadata.name", "a name", meta.get("name"), str(file))
        found.append(body)
    return found


def _of_kind(bodies: Iterable[JsonObject], kind: str) -> list[JsonObject]:
    return [body for body in bodies if body.get("kind") == kind]
