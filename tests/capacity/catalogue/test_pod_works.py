"""Which work a pod does: label, else the profile of its owner."""

from __future__ import annotations

from typing import Any

import pytest

from capacity.catalogue.catalogue_files import shipped_catalogue
from capacity.catalogue.pod_works import PodWorks
from capacity.gpu_profile import KERNEL_CLASSES
from capacity.profile_library import shipped_library
from wattpack.api import WorkloadProfile

H200 = shipped_library().profiles["H200-SXM"]


def profile(name: str, owner: str = "", **spec: Any) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name, "namespace": "team"}
    if owner:
        metadata["labels"] = {"wattpack.io/classified": "bandwidth"}
        metadata["ownerReferences"] = [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": owner}
        ]
    return {"metadata": metadata, "spec": {"kind": "Serving", "kernelMix": {}, **spec}}


def pod(label: str = "", owner: str = "rs-1", namespace: str = "team") -> dict[str, Any]:
    return {
        "metadata": {
            "name": "p",
            "namespace": namespace,
            "uid": "u",
            "labels": {"wattpack.io/workload": label} if label else {},
            "ownerReferences": [{"uid": owner, "controller": True}] if owner else [],
        }
    }


def book(*bodies: dict[str, Any]) -> PodWorks:
    return PodWorks.of(bodies, frozenset(KERNEL_CLASSES))


def test_a_label_names_a_profile_then_an_entry_then_nothing() -> None:
    made = book(profile("rl-rollout", kernelMix={"decode": 0.5}))
    by_profile, by_entry = made.of_pod(pod("rl-rollout")), made.of_pod(pod("decoder-decode"))
    assert by_profile is not None
    assert by_profile.profile is not None
    assert by_entry is not None
    assert by_entry.entry == shipped_catalogue()["decoder-decode"]
    assert made.of_pod(pod("no-such-work")) is None
    elsewhere = made.of_pod(pod("rl-rollout", namespace="other"))
    assert elsewhere is not None
    assert elsewhere.profile is None


def test_a_classified_profile_speaks_for_its_owners_pods_and_a_label_overrides_it() -> None:
    made = book(profile("seen", "rs-1", workload="decoder-decode", confidence=0.8))
    work = made.of_pod(pod())
    assert work is not None
    assert (work.entry and work.entry.name, work.confidence) == ("decoder-decode", 0.8)
    assert made.of_pod(pod(owner="rs-2")) is None
    assert made.of_pod(pod(namespace="other")) is None
    labelled = made.of_pod(pod("rl-rollout"))
    assert labelled is not None
    assert (labelled.entry and labelled.entry.name, labelled.confidence) == ("rl-rollout", 1.0)


def test_a_profile_that_people_took_over_speaks_where_it_is_profiles_only() -> None:
    body = profile("seen", "rs-1", workload="decoder-decode")
    body["metadata"]["labels"] = {}
    assert book(body).of_pod(pod()) is None
    assert book(body).of_pod(pod("seen")) is not None


def test_shares_are_priced_before_the_entry() -> None:
    both = book(profile("a", workload="train-data-parallel", kernelMix={"decode": 1.0}))
    alone = book(profile("a", kernelMix={"decode": 1.0}))
    curves = [b.of_pod(pod("a")).curve(H200) for b in (both, alone)]  # type: ignore[union-attr]
    assert curves[0] is not None
    assert curves[1] is not None
    assert curves[0].speed.tolist() == curves[1].speed.tolist()


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"kernelMix": {"magic": 0.5}}, "spec.kernelMix.magic"),
        ({"kernelMix": {"decode": 0.7, "idle": 0.7}}, "spec.kernelMix"),
        ({"workload": "no-such-entry"}, "spec.workload"),
        ({"kernelMix": {"decode": 7}}, "spec.kernelMix.decode"),
        ({"kind": "Magic"}, "spec.kind"),
    ],
)
def test_a_profile_that_cannot_be_used_is_told_and_left_out(
    spec: dict[str, Any], field: str
) -> None:
    made = book(profile("bad", **spec), profile("good"))
    assert made.refusals["team", "bad"].field == field
    assert ("team", "good") in made.profiles
    assert made.of_pod(pod("bad")) is None


def test_one_change_reads_one_profile_and_leaves_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A list of a thousand is told one by one: read anew each time it would take a minute."""
    made = book(*[profile(f"p{i}", f"rs-{i}", workload="decoder-decode") for i in range(20)])
    reads: list[str] = []
    read = WorkloadProfile.read

    def counted(body: dict[str, Any]) -> WorkloadProfile:
        reads.append(body["metadata"]["name"])
        return read(body)

    monkeypatch.setattr(WorkloadProfile, "read", counted)
    p3, p4, p5 = (("team", f"p{i}") for i in (3, 4, 5))
    changed = made.with_changes({p3: book(profile("p3", "rs-30", workload="rl-rollout"))})
    spoilt_p5 = book(profile("p5", "rs-5", workload="no-such"))
    spoilt = changed.with_changes({p4: PodWorks(), p5: spoilt_p5})
    assert reads == ["p3", "p5"]

    def entry(works: PodWorks, owner: str) -> str:
        work = works.of_pod(pod(owner=owner))
        return work.entry.name if work is not None and work.entry is not None else ""

    assert [entry(made, f"rs-{i}") for i in (3, 30, 4)] == ["decoder-decode", "", "decoder-decode"]
    assert [entry(changed, f"rs-{i}") for i in (3, 30)] == ["", "rl-rollout"]
    assert [entry(spoilt, f"rs-{i}") for i in (4, 6)] == ["", "decoder-decode"]
    assert entry(spoilt, "rs-5") == ""
    assert list(spoilt.refusals) == [("team", "p5")]
    assert not spoilt.with_changes({p5: book(profile("p5"))}).refusals
