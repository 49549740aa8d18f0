"""``wattpack explain cap GPU``: exact text, which replica is asked, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from console.app.explain_command import cap_text, leading_view, uuid_of
from console.cap_reasons import explain_gpu
from controller.cap_reason import CapReason
from tests.console.views import make_view
from wattpack.cli import main
from wattpack.errors import InputError
from wattpack.live_client import LiveClient
from wattpack.live_view import LiveView


class Replicas(LiveClient):
    """Answers by address; the others refuse."""

    def __init__(self, views: Mapping[str, LiveView]) -> None:
        self._views = views

    def read(self, url: str) -> LiveView:
        if url not in self._views:
            raise OSError("connection refused")
        return self._views[url]


def explained(reason: CapReason, **columns: object) -> str:
    view = make_view(gpus=16, racks=2, capped=8)
    changed = {"reason": [int(reason)] * 16, "binding_domain": [0] * 16, **columns}
    view = view.model_copy(update={"gpus": view.gpus.model_copy(update=changed)})
    return cap_text(explain_gpu(view, "GPU-00000"))


def test_a_capped_gpu_in_words() -> None:
    text = cap_text(explain_gpu(make_view(gpus=16, racks=2, capped=8), "GPU-00000"))
    assert text == (
        "GPU-00000 (H200-SXM) on node-000, below rack-1: default/pod-0, priority 0\n"
        "  decided     cap 450 W, limit read back 450 W, asked for 700 W, floor 400 W, "
        "draws 113 W\n"
        "  because     DOMAIN_BAND: row reached its cap band, and work of priority 0 is reduced "
        "before anything more important.\n"
        "  bound by    cap band of row: 12.9 kW, a share of its rating of 13.6 kW\n"
        "  to lift it  row has to draw less than 12.0 kW, now 12.6 kW, and without caps less than "
        "12.6 kW, now 13.7 kW (the highest of the last minute), both for 30 s; a part comes back "
        "as soon as others below it draw less\n"
        "  work        bound by memory bandwidth with 90% confidence, like decoder-decode; "
        "at 450 W it keeps about 90% of its speed (modelled)\n"
        "  power is at default/pod-3: 2450 W on 4 GPUs, priority 1000\n"
        "              default/pod-2: 1858 W on 4 GPUs, priority 1000\n"
        "              default/pod-1: 1266 W on 4 GPUs, priority 0\n"
        "  you can     Give it a more important PriorityClass, or move it to a domain with "
        "headroom.\n"
        "              Declare more than its ratingWatts only if its breaker bears it.\n"
        "  as of       tick 1, epoch 3"
    )


def test_a_brake_and_what_is_not_known_in_words() -> None:
    text = explained(
        CapReason.BRAKE,
        pod=[""] * 16,
        decided_watts=[],
        limit_watts=[None] * 16,
        draw_watts=[None] * 16,
        speed_fraction=[None] * 16,
    )
    assert text == (
        "GPU-00000 (H200-SXM) on node-000, below rack-1: no pod\n"
        "  decided     cap not told by this controller, limit read back unknown, asked for 700 W, "
        "floor 400 W, draws unknown\n"
        "  because     BRAKE: row is in the brake. Every GPU below it goes to its lowest limit.\n"
        "  bound by    breaker of row: heat 0.01 of 1, draw 12.6 kW, rating 13.6 kW\n"
        "  to lift it  row has to stay at 12.6 kW or less for 5 s, now 12.6 kW; then it caps by "
        "its band, and caps are raised slowly\n"
        "  you can     Take load off: suspend low-priority work below row.\n"
        "  as of       tick 1, epoch 3"
    )


@pytest.mark.parametrize("reason", CapReason)
def test_every_reason_says_what_bound_and_what_lifts(reason: CapReason) -> None:
    lines = explained(reason).splitlines()
    for name in ("decided", "because", "bound by", "to lift it", "as of"):
        assert sum(line.startswith(f"  {name}") for line in lines) == 1


def test_of_several_replicas_the_leader_is_asked() -> None:
    follower = make_view(tick=9).model_copy(update={"leading": False})
    old = make_view(tick=5).model_copy(update={"epoch": 2})
    leader = make_view(tick=4)
    client = Replicas({"http://a": follower, "http://b": leader, "http://c": old})
    urls = ["http://down", "http://a", "http://c", "http://b"]
    assert leading_view(urls, client) is leader
    assert leading_view(["http://a"], client) is follower


def test_a_controller_that_does_not_answer_is_named() -> None:
    with pytest.raises(InputError, match=r"--controller.*http://down: connection refused"):
        leading_view(["http://down"], Replicas({}))


def test_a_gpu_is_found_by_a_part_that_only_it_has() -> None:
    view = make_view()
    assert uuid_of(view, "GPU-00012") == "GPU-00012"
    assert uuid_of(view, "00012") == "GPU-00012"
    with pytest.raises(InputError, match="GPU-00000, GPU-00001, GPU-00002 and others"):
        uuid_of(view, "GPU-000")
    with pytest.raises(InputError, match=r"416 GPUs.*GPU-9"):
        uuid_of(view, "GPU-9")


def test_the_subject_is_needed_and_its_help_names_the_controller(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["explain", "nothing"]) == 2
    assert "expected one of cap" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="0"):
        main(["explain", "cap", "--help"])
    assert "--controller URL" in capsys.readouterr().out
