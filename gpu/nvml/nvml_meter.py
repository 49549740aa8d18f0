"""NVML behind the benchmark's meter. Milliwatts and millijoules end here (I9)."""

from __future__ import annotations

from typing import Any

from gpu.board_meter import BoardSample, BoardState
from gpu.nvml import checked_fields as fields
from gpu.nvml.calls import FIELD_VALUES, SYSTEM, NvmlCalls
from gpu.nvml.nvml_device import CLOCK_SM, PROCESS_LISTS, TEMPERATURE_GPU
from gpu.nvml.return_codes import NvmlFailure, typed_error


class NvmlMeter:
    """One board by its NVML index; reads only."""

    def __init__(self, calls: NvmlCalls, index: int) -> None:
        self._calls = calls
        self._index = index

    def state(self) -> BoardState:
        """The board as the driver describes it now."""
        mig = self._optional("nvmlDeviceGetMigMode")
        busy = self._optional("nvmlDeviceGetUtilizationRates")
        pids = {int(entry["pid"]) for name in PROCESS_LISTS for entry in self._optional(name) or []}
        return BoardState(
            product=str(self._call("nvmlDeviceGetName")),
            uuid=str(self._call("nvmlDeviceGetUUID")),
            vbios=str(self._optional("nvmlDeviceGetVbiosVersion") or ""),
            driver=str(self._system("nvmlSystemGetDriverVersion")),
            power_limit_watts=self._call("nvmlDeviceGetEnforcedPowerLimit") / 1000.0,
            default_limit_watts=self._call("nvmlDeviceGetPowerManagementDefaultLimit") / 1000.0,
            max_clock_mhz=int(self._call("nvmlDeviceGetMaxClockInfo", CLOCK_SM)),
            mig_enabled=bool(mig and mig[0] == 1),
            processes=len(pids),
            utilisation=busy["gpu"] / 100.0 if busy else None,
        )

    def sample(self, now_ns: int) -> BoardSample:
        """Power, energy, clock and temperature now."""
        answers = self._optional(FIELD_VALUES, fields.POWER_INSTANT) or []
        instant_mw = next((value for _, code, value in answers if code == 0), None)
        if instant_mw is None:
            instant_mw = self._call("nvmlDeviceGetPowerUsage")
        energy_mj = self._optional("nvmlDeviceGetTotalEnergyConsumption")
        clock = self._optional("nvmlDeviceGetClockInfo", CLOCK_SM)
        celsius = self._optional("nvmlDeviceGetTemperature", TEMPERATURE_GPU)
        return BoardSample(
            monotonic_ns=now_ns,
            instant_draw_watts=instant_mw / 1000.0,
            energy_joules=None if energy_mj is None else energy_mj / 1000.0,
            sm_clock_mhz=None if clock is None else float(clock),
            temperature_celsius=None if celsius is None else float(celsius),
            throttle_reasons=int(self._optional("nvmlDeviceGetCurrentClocksEventReasons") or 0),
        )

    def _system(self, name: str) -> Any:  # noqa: ANN401 - JSON-like answers
        try:
            return self._calls.call(name, SYSTEM)
        except NvmlFailure as failure:
            raise typed_error(failure, "NVML") from failure

    def _call(self, name: str, *args: int) -> Any:  # noqa: ANN401 - JSON-like answers
        try:
            return self._calls.call(name, self._index, *args)
        except NvmlFailure as failure:
            raise typed_error(failure, f"GPU {self._index}") from failure

    def _optional(self, name: str, *args: int) -> Any:  # noqa: ANN401 - JSON-like answers
        try:
            return self._calls.call(name, self._index, *args)
        except NvmlFailure:
            return None


def open_meter(index: int) -> NvmlMeter:
    """The meter of one board of this machine.

    Raises:
        GpuUnavailable: if there is no driver.
    """
    from gpu.nvml.binding import LiveNvml  # the library is loaded only where it is used

    try:
        return NvmlMeter(LiveNvml(), index)
    except NvmlFailure as failure:
        raise typed_error(failure, "NVML") from failure
