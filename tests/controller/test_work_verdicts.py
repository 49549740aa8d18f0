"""When verdicts are worth an object, and when they are worth another."""

from __future__ import annotations

import random

import pytest

from capacity.catalogue.pod_works import SURE
from controller.work_seen import PodWork
from controller.work_verdicts import Classified, OwnerVerdicts
from wattpack.units import seconds_to_ns

LOOK_SECONDS = 5


def work(bound: str = "bandwidth", workload: str = "decoder-decode", sure: float = 0.93) -> PodWork:
    return PodWork("" if bound == "unknown" else workload, bound, sure, "telemetry")


class Owner:
    """Looked at every five seconds; its object says what was last due."""

    def __init__(self) -> None:
        self.verdicts = OwnerVerdicts()
        self.written: Classified | None = None
        self.writes: list[tuple[int, Classified]] = []
        self.seconds = 0

    def see(self, seconds: int, *works: PodWork) -> None:
        for _ in range(seconds // LOOK_SECONDS):
            self.seconds += LOOK_SECONDS
            now_ns = seconds_to_ns(self.seconds)
            self.verdicts.look(works, now_ns)
            said = self.verdicts.due(self.written, now_ns)
            if said is not None:
                self.written = said
                self.verdicts.told_ns = now_ns
                self.writes.append((self.seconds, said))


def test_the_first_is_written_after_five_minutes_of_one_class() -> None:
    owner = Owner()
    owner.see(1200, work())
    ((seconds, said),) = owner.writes
    assert 290 <= seconds <= 320
    assert said == Classified("bandwidth", "decoder-decode", 0.9)


@pytest.mark.parametrize("other", [work("compute"), work("unknown", sure=0.0)])
def test_pods_that_differ_get_none(other: PodWork) -> None:
    owner = Owner()
    owner.see(3600, work(), other)
    assert owner.writes == []


def test_two_thirds_of_the_pods_are_enough() -> None:
    owner = Owner()
    owner.see(3600, *[work()] * 3, work("unknown", sure=0.0))
    assert [said.bound for _, said in owner.writes] == ["bandwidth"]


def test_verdicts_that_jitter_write_no_more_than_one_object_an_hour() -> None:
    owner, draw = Owner(), random.Random(1)
    for _ in range(4 * 720):
        jitter = draw.random()
        if jitter < 0.15:
            seen = work("compute", "decoder-prefill", 0.6 + 0.3 * draw.random())
        else:
            entry = "decoder-decode" if jitter < 0.6 else "decode-4bit"
            seen = work(workload=entry, sure=0.6 + 0.39 * draw.random())
        owner.see(LOOK_SECONDS, seen)
    assert 1 <= len(owner.writes) <= 4
    assert {said.bound for _, said in owner.writes} == {"bandwidth"}
    gaps = [b - a for (a, _), (b, _) in zip(owner.writes, owner.writes[1:], strict=False)]
    assert all(gap >= 3600 for gap in gaps)


def test_another_class_withdraws_it_at_once_and_replaces_it_once_it_has_stayed() -> None:
    owner = Owner()
    owner.see(600, work())
    owner.see(1000, work("compute", "decoder-prefill"))
    assert [(said.bound, said.confidence) for _, said in owner.writes[1:]] == [("bandwidth", 0.0)]
    owner.see(400, work("compute", "decoder-prefill"))
    assert [said.bound for _, said in owner.writes] == ["bandwidth", "bandwidth", "compute"]


def test_a_passing_phase_and_doubt_withdraw_trust_and_change_no_class() -> None:
    owner = Owner()
    owner.see(600, work())
    owner.see(700, work("compute", "decoder-prefill"))
    owner.see(7200, work())
    owner.see(7200, work("unknown", sure=0.0))
    assert {said.bound for _, said in owner.writes} == {"bandwidth"}
    # The hour is over by then: confidence is told as it falls, and last that there is none.
    assert [said.confidence for _, said in owner.writes] == [0.9, 0.0, 0.9, 0.85, 0.0]


@pytest.mark.parametrize(
    "other", [work("compute", "decoder-prefill", 0.99), work("unknown", sure=0.0), work(sure=0.3)]
)
@pytest.mark.parametrize("new_leader", [False, True])
def test_what_planners_count_on_is_withdrawn_within_seconds(
    other: PodWork, new_leader: bool
) -> None:
    owner = Owner()
    owner.see(600, work(sure=0.99))
    assert owner.written is not None
    assert owner.written.confidence >= SURE
    if new_leader:
        owner.verdicts = OwnerVerdicts()
    owner.see(30, other)
    assert owner.written.confidence < SURE
    # Raising it again waits, however sure the verdicts are by now.
    (_, _), (fell, _) = owner.writes
    owner.see(3600, work(sure=0.99))
    assert [seconds - fell >= 3600 for seconds, _ in owner.writes[2:]] in ([], [True])
    owner.see(60, work(sure=0.99))
    assert owner.written.confidence >= SURE


def test_one_pod_in_ten_that_does_other_work_is_no_work_to_count_on() -> None:
    owner = Owner()
    owner.see(600, *[work(sure=0.99)] * 9, work("compute", "decoder-prefill", 0.99))
    assert owner.written == Classified("bandwidth", "decoder-decode", 0.85)


def test_another_entry_withdraws_a_sure_one_and_is_trusted_an_hour_later() -> None:
    owner = Owner()
    owner.see(600, work(sure=0.99))
    owner.see(300, work(workload="decode-4bit", sure=0.99))
    assert owner.written == Classified("bandwidth", "decode-4bit", 0.0)
    owner.see(3600, work(workload="decode-4bit", sure=0.99))
    assert owner.written == Classified("bandwidth", "decode-4bit", 0.95)
    assert len(owner.writes) == 3


@pytest.mark.parametrize("seed", range(3))
def test_no_jitter_writes_more_than_three_objects_an_hour(seed: int) -> None:
    owner, draw = Owner(), random.Random(seed)
    shown = [work(sure=0.99), work(workload="decode-4bit", sure=0.96), work("unknown", sure=0.0)]
    for _ in range(3 * 720):
        owner.see(LOOK_SECONDS, draw.choices(shown, (8, 8, draw.choice((0, 1, 8))))[0])
    assert len(owner.writes) <= 9


def test_another_entry_of_the_class_waits_for_an_hour_since_the_last_write() -> None:
    owner = Owner()
    owner.see(600, work())
    owner.see(2900, work(workload="decode-4bit"))
    assert len(owner.writes) == 1
    owner.see(600, work(workload="decode-4bit"))
    assert [said.workload for _, said in owner.writes] == ["decoder-decode", "decode-4bit"]


def test_a_new_leader_leaves_what_stands_for_an_hour() -> None:
    owner = Owner()
    owner.written = Classified("bandwidth", "decode-4bit", 0.7)
    owner.see(3600, work())
    assert owner.writes == []
    owner.see(600, work())
    assert owner.writes[0][1].workload == "decoder-decode"
