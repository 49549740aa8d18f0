"""What stands below a PowerDomain, in watts, from the objects of a cluster."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from capacity.catalogue.pod_works import PodWorks
from capacity.profile_book import ProfileBook
from capacity.profile_library import shipped_library
from forecasting.power_forecast.domain_boards import DomainBoards
from forecasting.power_forecast.work_watts import AC_OVER_BOARD
from tests.scheduler_plugin.placement_cluster import domain_object, node_object, pod_object
from wattpack.kube.port import JsonObject

H200, A100 = (shipped_library().profiles[name] for name in ("H200-SXM", "A100-SXM"))
BOOK = ProfileBook.shipped(shipped_library())
WORKS = PodWorks.of(())


def domain(name: str, nodes: list[str], **spec: Any) -> JsonObject:
    body = domain_object(name, 1e6, nodes, **spec)
    return body | {"status": {"acceptedSpec": body["spec"]}}


def node(name: str, model: str = "H200-SXM") -> JsonObject:
    made = node_object(name)
    made["metadata"]["labels"] = {"wattpack.io/gpu-model": model}
    return made


def pod(name: str, on: str, gpus: int, phase: str = "Running", workload: str = "") -> JsonObject:
    labels = {"wattpack.io/workload": workload} if workload else {}
    made = pod_object(name, gpus, nodeName=on, labels=labels)
    made["status"] = {"phase": phase}
    return made


def boards(pods: list[JsonObject], nodes: list[JsonObject] | None = None) -> DomainBoards:
    nodes = nodes or [node("a"), node("b", "A100-SXM"), node("far")]
    domains = [domain("row", ["a"]), domain("rack", ["b"], parent="row")]
    return DomainBoards.of(WORKS, BOOK, pods, nodes, domains)


def test_free_boards_count_at_their_limit_in_their_domain_and_all_above() -> None:
    found = boards([pod("x", "a", 6), pod("over", "b", 8, phase="Succeeded"), pod("y", "far", 8)])
    free = {
        "row": 2 * (H200.default_limit_watts - H200.context_watts)
        + 8 * (A100.default_limit_watts - A100.context_watts),
        "rack": 8 * (A100.default_limit_watts - A100.context_watts),
    }
    assert found.startable_watts == pytest.approx({k: AC_OVER_BOARD * v for k, v in free.items()})
    all_busy = 8 * (H200.default_limit_watts + A100.default_limit_watts)
    assert found.busy_watts["row"] == pytest.approx(AC_OVER_BOARD * all_busy)


def test_known_work_draws_what_the_capacity_model_says() -> None:
    unknown = boards([pod("x", "a", 8)]).busy_watts["row"]
    known = boards([pod("x", "a", 8, workload="decoder-decode")]).busy_watts["row"]
    assert 0.2 * unknown < known < unknown


def test_an_annotated_kernel_class_speaks_before_any_profile_as_it_does_in_plans() -> None:
    def busy(kernel_class: str, workload: str = "") -> float:
        made = pod("x", "a", 8, workload=workload)
        made["metadata"]["annotations"] = {"wattpack.io/kernel-class": kernel_class}
        return boards([made]).busy_watts["row"]

    unknown = boards([pod("x", "a", 8)]).busy_watts["row"]
    assert busy("decode") < busy("prefill") < unknown
    assert busy("prefill", workload="decoder-decode") == busy("prefill")
    assert busy("no-such-class") == unknown


def test_a_node_never_holds_more_than_its_boards() -> None:
    found = boards([pod("x", "a", 6), pod("y", "a", 6)])
    full = boards([pod("x", "a", 8)])
    assert found.busy_watts["row"] == pytest.approx(full.busy_watts["row"])
    assert found.startable_watts["row"] == pytest.approx(full.startable_watts["row"])


def test_a_gpu_type_that_nobody_knows_leaves_its_domains_unknown() -> None:
    found = boards([], [node("a"), node("b", "no-such-gpu")])
    assert not found.busy_watts
    for domain in ("row", "rack", "elsewhere"):
        assert np.isnan(found.board_watts(domain)).all()
    partly = boards([], [node("a", "no-such-gpu"), node("b")])
    assert list(partly.busy_watts) == ["rack"]


def test_a_service_that_no_profile_and_no_entry_describes_still_has_its_boards() -> None:
    found = boards([pod("x", "a", 6, workload="chat"), pod("y", "a", 2)])
    line = found.line("row", "chat", 100.0)
    assert line is not None
    assert line.full_load == pytest.approx(600.0)
    assert found.line("row", "another", 100.0) is None
