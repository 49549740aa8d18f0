"""Catalogue entries under clock locks: the shipped table, and what it says of kinds of work."""

from __future__ import annotations

import numpy as np
import pytest

from capacity.catalogue.catalogue_files import shipped_catalogue
from capacity.catalogue.entry_clock import (
    ClockResponse,
    clocks_document,
    clocks_from_document,
    entry_clock,
)
from capacity.catalogue.entry_clock_fit import GPUS, differs
from wattpack.errors import InputError

SHARES = np.array([0.4, 0.55, 0.7, 0.85, 1.0])


def shipped(entry: str, gpu: str = "H200-SXM") -> ClockResponse:
    found = entry_clock(entry, gpu)
    assert found is not None
    return found


@pytest.mark.parametrize("entry", ["decoder-decode", "train-moe", "rnn-sequential"])
def test_the_shipped_table_is_what_the_price_model_gives(entry: str) -> None:
    assert not differs(entry, "H200-SXM")


def test_every_entry_has_its_figures_on_every_priced_type() -> None:
    missing = [
        (gpu, entry)
        for gpu in GPUS
        for entry in shipped_catalogue()
        if entry_clock(entry, gpu) is None
    ]
    assert missing == []


def test_what_waits_for_memory_or_launches_keeps_its_speed_and_chains_do_not() -> None:
    half = np.array([0.5])
    for entry in ("decoder-decode", "memory-stream", "vision-preprocess"):
        assert shipped(entry).speed("H200-SXM", half)[0] > 0.97
    for entry in ("decoder-prefill", "finetune", "rnn-sequential"):
        assert shipped(entry).speed("H200-SXM", half)[0] < 0.6


def test_speed_and_draw_rise_with_the_clock_to_what_they_are_without_a_lock() -> None:
    found = shipped("serve-mixed-batching")
    speed, draw = found.speed("H200-SXM", SHARES), found.draw_watts("H200-SXM", SHARES, 600.0)
    assert np.all(np.diff(speed) > 0)
    assert np.all(np.diff(draw) > 0)
    assert (speed[-1], draw[-1]) == (pytest.approx(1.0), pytest.approx(600.0))


def test_a_type_that_nobody_priced_has_no_response() -> None:
    assert entry_clock("decoder-decode", "V100-PCIE") is None
    assert entry_clock("no-such-entry", "H200-SXM") is None


def test_documents_survive_and_others_are_refused() -> None:
    clocks = {"H200-SXM": {"decoder-decode": ClockResponse(0.009, 0.2)}}
    document = clocks_document(clocks)
    assert clocks_from_document(document) == clocks
    with pytest.raises(InputError, match="schema"):
        clocks_from_document({**document, "schema": "another"})
    with pytest.raises(InputError, match="clock_bound"):
        ClockResponse(1.2, 0.2)
