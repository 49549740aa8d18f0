"""Planned events as known-future input: launches, reservations, holidays.

    CSV file, spec.events ──► PlannedEvent ──┬─► history without their effect ──► forecaster
                                             └─► effects on steps, paths and peaks ──► calibration

What is known to come is neither learned as a habit nor left to be found out.
"""

from forecasting.events.event_effects import (
    Applied,
    EventGrid,
    apply_to_paths,
    apply_to_peaks,
    apply_to_quantiles,
    history_without,
)
from forecasting.events.event_file import events_from_csv
from forecasting.events.learned_effects import with_learned_effects
from forecasting.events.planned_event import PlannedEvent, events_of_spec, planned_event

__all__ = [
    "Applied",
    "EventGrid",
    "PlannedEvent",
    "apply_to_paths",
    "apply_to_peaks",
    "apply_to_quantiles",
    "events_from_csv",
    "events_of_spec",
    "history_without",
    "planned_event",
    "with_learned_effects",
]
