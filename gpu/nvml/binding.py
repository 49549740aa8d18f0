"""NVML through its Python binding: the only module of the product that imports ``pynvml``."""

from __future__ import annotations

import ctypes
from typing import Any

import pynvml

from gpu.nvml.calls import FIELD_VALUES, GPM_METRICS, SYSTEM, XID_EVENTS
from gpu.nvml.return_codes import FUNCTION_NOT_FOUND, NOT_SUPPORTED, NvmlFailure

# nvmlValueType_t of nvml.h: which member of the union holds the value.
_UNION_MEMBER = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal"}


class LiveNvml:
    """The library of this machine.

    Raises:
        NvmlFailure: if there is no library, no driver or no permission.
    """

    def __init__(self) -> None:
        self._handles: dict[int, Any] = {}
        self._event_sets: dict[int, Any] = {}
        self._gpm_samples: dict[int, tuple[Any, Any]] = {}
        self._open = False
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            raise NvmlFailure(int(error.value), "nvmlInit") from error
        self._open = True

    def call(self, name: str, index: int, *args: int) -> Any:  # noqa: ANN401 - JSON-like answers
        """The answer as plain values."""
        try:
            if name == XID_EVENTS:
                return self._xid_events(index)
            if name == GPM_METRICS:
                return self._gpm_metrics(index, args)
            function = getattr(pynvml, name, None)
            if function is None:
                raise NvmlFailure(FUNCTION_NOT_FOUND, name)
            if index == SYSTEM:
                return plain(function(*args))
            if name == FIELD_VALUES:
                return plain_fields(function(self._handle(index), list(args)))
            return plain(function(self._handle(index), *args))
        except pynvml.NVMLError as error:
            raise NvmlFailure(int(error.value), name) from error

    def close(self) -> None:
        """Free the event sets and the library."""
        if not self._open:
            return
        self._open = False
        for events in self._event_sets.values():
            pynvml.nvmlEventSetFree(events)
        for sample in (sample for pair in self._gpm_samples.values() for sample in pair):
            pynvml.nvmlGpmSampleFree(sample)
        pynvml.nvmlShutdown()

    def _handle(self, index: int) -> Any:  # noqa: ANN401 - an opaque C pointer
        if index not in self._handles:
            self._handles[index] = pynvml.nvmlDeviceGetHandleByIndex(index)
        return self._handles[index]

    def _xid_events(self, index: int) -> list[int]:
        if index not in self._event_sets:
            events = pynvml.nvmlEventSetCreate()
            try:
                pynvml.nvmlDeviceRegisterEvents(
                    self._handle(index), pynvml.nvmlEventTypeXidCriticalError, events
                )
            except pynvml.NVMLError:
                pynvml.nvmlEventSetFree(events)
                raise
            self._event_sets[index] = events
        xids: list[int] = []
        while True:
            try:
                event = pynvml.nvmlEventSetWait_v2(self._event_sets[index], 0)
            except pynvml.NVMLError as error:
                if error.value == pynvml.NVML_ERROR_TIMEOUT:
                    return xids
                raise
            xids.append(int(event.eventData))

    def _gpm_metrics(self, index: int, ids: tuple[int, ...]) -> list[list[float | int]] | None:
        handle, pair = self._handle(index), self._gpm_samples.get(index)
        if pair is None:
            if not hasattr(pynvml, "nvmlGpmQueryDeviceSupport"):
                raise NvmlFailure(FUNCTION_NOT_FOUND, GPM_METRICS)
            if not pynvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice:
                raise NvmlFailure(NOT_SUPPORTED, GPM_METRICS)
            pair = (pynvml.nvmlGpmSampleAlloc(), pynvml.nvmlGpmSampleAlloc())
            self._gpm_samples[index] = pair
            pynvml.nvmlGpmSampleGet(handle, pair[0])
            return None
        earlier, sample = pair
        pynvml.nvmlGpmSampleGet(handle, sample)
        self._gpm_samples[index] = (sample, earlier)
        asked = pynvml.c_nvmlGpmMetricsGet_t()
        asked.version, asked.numMetrics = pynvml.NVML_GPM_METRICS_GET_VERSION, len(ids)
        asked.sample1, asked.sample2 = earlier, sample
        for place, metric in enumerate(ids):
            asked.metrics[place].metricId = metric
        pynvml.nvmlGpmMetricsGet(asked)
        return [[m, int(asked.metrics[i].nvmlReturn), float(asked.metrics[i].value)]
                for i, m in enumerate(ids)]  # fmt: skip


def plain_fields(values: Any) -> list[list[float | int]]:  # noqa: ANN401 - a ctypes array
    """``[[field id, return code, value], ...]``; the value of a failed field is 0."""
    out: list[list[float | int]] = []
    for field in values:
        code = int(field.nvmlReturn)
        member = _UNION_MEMBER.get(int(field.valueType), "ullVal")
        out.append([int(field.fieldId), code, getattr(field.value, member) if code == 0 else 0])
    return out


def plain(value: Any) -> Any:  # noqa: ANN401 - JSON-like answers
    """A binding's answer as numbers, strings, lists and dicts."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, (list, tuple, ctypes.Array)):
        return [plain(item) for item in value]
    if isinstance(value, ctypes.Structure):
        return {name: plain(getattr(value, name)) for name, *_ in value._fields_}
    return {name: plain(item) for name, item in vars(value).items() if not name.startswith("_")}
