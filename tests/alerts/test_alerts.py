"""The alerts: each fires, stays quiet, resolves, has a runbook, and reads metrics that exist."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
RULES_FILE = ROOT / "manifests" / "alerts" / "wattpack.rules.yaml"
TEST_FILES = sorted((RULES_FILE.parent / "tests").glob("*.yaml"))
METRICS_PAGE = ROOT / "docs" / "metrics.md"


def rules() -> list[dict[str, Any]]:
    """Every alerting rule."""
    document = yaml.safe_load(RULES_FILE.read_text())
    return [rule for group in document["groups"] for rule in group["rules"]]


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run promtool; skips (fails with CI=true) without it."""
    found = shutil.which("promtool")
    if found is None:
        if os.environ.get("CI") == "true":
            pytest.fail("promtool is missing: install Debian's prometheus")
        pytest.skip("promtool is missing: install Debian's prometheus")
    return subprocess.run(
        [found, *arguments], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.promtool
def test_promtool_accepts_the_rules() -> None:
    done = promtool("check", "rules", str(RULES_FILE))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.promtool
@pytest.mark.parametrize("file", TEST_FILES, ids=lambda file: file.stem)
def test_alerts_fire_stay_quiet_and_resolve(file: Path) -> None:
    done = promtool("test", "rules", str(file))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.promtool
def test_promtool_would_notice_an_alert_that_never_fires(tmp_path: Path) -> None:
    deaf = yaml.safe_load(RULES_FILE.read_text())
    deaf["groups"][0]["rules"][0]["expr"] = "vector(0) > 1"
    (tmp_path / "wattpack.rules.yaml").write_text(yaml.safe_dump(deaf))
    (tmp_path / "tests").mkdir()
    copy = tmp_path / "tests" / "power.yaml"
    copy.write_text(RULES_FILE.with_name("tests").joinpath("power.yaml").read_text())
    assert promtool("test", "rules", str(copy)).returncode != 0


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule["alert"]))
def test_each_alert_has_severity_texts_runbook_and_a_full_test(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
    assert rule["annotations"]["runbook_url"] == f"docs/runbooks/{rule['alert']}.md"
    runbook = (ROOT / rule["annotations"]["runbook_url"]).read_text()
    assert runbook.startswith(f"# {rule['alert']}\n")
    expected = [
        [bool(check["exp_alerts"]) for check in case["alert_rule_test"]]
        for file in TEST_FILES
        for case in yaml.safe_load(file.read_text())["tests"]
        if case["alert_rule_test"][0]["alertname"] == rule["alert"]
    ]
    assert [False, True, False] in expected


def test_each_runbook_belongs_to_an_alert() -> None:
    pages = {file.stem for file in (ROOT / "docs" / "runbooks").glob("*.md")}
    assert pages == {rule["alert"] for rule in rules()}


def documented() -> set[str]:
    """Metric names in docs/metrics.md."""
    return set(re.findall(r"^\| `(wattpack_[a-z0-9_]+)`", METRICS_PAGE.read_text(), re.MULTILINE))


def test_alerts_read_only_metrics_that_are_documented() -> None:
    for rule in rules():
        names = set(re.findall(r"\bwattpack_[a-z0-9_]+", rule["expr"]))
        assert names
        assert names <= documented(), rule["alert"]


#: Counters that no alert reads, and why nobody has to be woken or told.
NOT_ALERTED = {
    "wattpack_domain_risk_windows_total": "the alert reads what they allow",
    "wattpack_node_refused_batches_total": "ordinary where a leader changes",
    "wattpack_agent_handovers_total": "an ordinary step of every update",
    "wattpack_stream_certificate_renewals_total": "a renewal is ordinary",
    "wattpack_lease_batches_total": "work done",
    "wattpack_reports_answered_on_arrival_total": "work done",
    "wattpack_capacity_plan_solves_total": "work done; a plan without an answer has its own alert",
    "wattpack_placement_released_pods_total": "work done",
    "wattpack_placement_conflicts_total": "somebody wrote in between; the next cycle tries again",
    "wattpack_placement_released_unpinned_pods_total": "for autoscalers; the pod's Event says why",
    "wattpack_placement_timed_out_gangs_total": "the gang's own Event tells its owner",
    "wattpack_placement_evictions_total": "work done; the pod's Event says why",
    "wattpack_placement_refused_evictions_total": "a disruption budget did its duty",
    "wattpack_placement_provisioning_requests_total": "the pod's own cause tells it",
    "wattpack_classified_profile_writes_total": "work done; what failed is written again",
    "wattpack_gpu_energy_joules_total": "a meter",
    "wattpack_gpu_ecc_errors_total": "corrected ones are ordinary, others come as XID",
}


def test_each_counter_is_read_by_an_alert_or_says_why_not() -> None:
    read = {name for rule in rules() for name in re.findall(r"\bwattpack_[a-z0-9_]+", rule["expr"])}
    counters = {name for name in documented() if name.endswith("_total")}
    assert counters - read == set(NOT_ALERTED)


def test_the_metrics_page_is_what_the_processes_register() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "metrics_page.py"), "--check"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, f"{done.stderr}: run `python tools/metrics_page.py`"
