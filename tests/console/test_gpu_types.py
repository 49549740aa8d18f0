"""GPU types as the page draws them: objects over shipped profiles, measured points, roofs."""

from __future__ import annotations

import pytest

from capacity.profile_library import gpu_profile_object, shipped_library
from console.app.gpu_types_source import GpuTypesSource, measured_rows
from console.gpu_types import DRAWN_CLASSES, gpu_type_view, gpu_type_views
from simulation.kube.embedded_api import EmbeddedKube
from wattpack.api import GPUProfile
from wattpack.clock import ManualClock


def test_measured_types_come_first_with_their_points_below_the_roofs() -> None:
    views = gpu_type_views(shipped_library().profiles.values(), measured_rows())
    assert [view["model"] for view in views[:2]] == ["H100-SXM", "H200-SXM"]
    assert {view["model"] for view in views} == set(shipped_library().profiles)
    roofs, points = views[1]["roofs"], views[1]["points"]
    assert set(points) == set(DRAWN_CLASSES)
    for columns in points.values():
        lengths = {len(column) for column in columns.values()}
        assert len(lengths) == 1
        for intensity, rate in zip(columns["intensity"], columns["flopsPerSecond"], strict=True):
            roof = max(roofs["flopsPerSecond"].values())
            # What a cache holds is not bound by the memory: only the operations' roof is absolute.
            assert 0 < rate < roof
            assert intensity > 0


def test_cap_curves_are_in_watts_and_end_at_full_speed() -> None:
    profile = shipped_library().find("H200-SXM")
    view = gpu_type_view(profile, ())
    assert view["points"] == {}
    assert "idle" not in view["curves"]
    for curve in view["curves"].values():
        assert curve["capWatts"][-1] == pytest.approx(profile.default_limit_watts)
        assert curve["throughput"][-1] == pytest.approx(1.0)


def test_rows_that_something_speaks_against_are_not_drawn() -> None:
    profile = shipped_library().find("H200-SXM")
    rows = [row for row in measured_rows() if "shared_gpu" in row.flags]
    assert rows
    (view,) = gpu_type_views([profile], rows)
    assert view["points"] == {}


def test_an_object_counts_over_the_shipped_profile() -> None:
    clock = ManualClock()
    api = EmbeddedKube(clock)
    source = GpuTypesSource(api, clock)
    source.pump()
    before = {view["model"]: view["idleWatts"] for view in source.views()}
    body = gpu_profile_object(shipped_library().find("H200-SXM"), "0" * 64)
    body["spec"]["idleWatts"] = before["H200-SXM"] + 5
    api.create(GPUProfile.meta.resource, body)
    source.pump()
    after = {view["model"]: view["idleWatts"] for view in source.views()}
    assert after["H200-SXM"] == before["H200-SXM"] + 5
    assert source.views() is source.views()
