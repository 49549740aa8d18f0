"""Write one board's power as NVML tells it, until this process is ended. Reads only.

    python sample_board.py OUT.csv

It is the first board, or the one that ``CUDA_VISIBLE_DEVICES`` numbers for the load beside it.
About every 15 ms the fields POWER_INSTANT and POWER_AVERAGE; each half second the energy counter,
each second SM clock, clock event reasons and temperature. Times are of the monotonic clock, which
the process that makes the load shares. A cell that was not asked is empty.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pynvml

AVERAGE, INSTANT = 185, 186
TICK_SECONDS = 0.015
ENERGY_SECONDS = 0.5
SLOW_SECONDS = 1.0
SM_CLOCK, GPU_TEMPERATURE = 1, 0
COLUMNS = "seconds,instant_mw,average_mw,energy_mj,sm_mhz,event_reasons,celsius"


def main() -> None:
    """Sample for ever."""
    pynvml.nvmlInit()
    board = pynvml.nvmlDeviceGetHandleByIndex(int(os.environ.get("CUDA_VISIBLE_DEVICES") or 0))
    energy_at = slow_at = tick = time.monotonic()
    with Path(sys.argv[1]).open("w", encoding="utf-8", buffering=1 << 16) as file:
        file.write(COLUMNS + "\n")
        while True:
            fields = pynvml.nvmlDeviceGetFieldValues(board, [INSTANT, AVERAGE])
            now = time.monotonic()
            cells = [f"{now:.4f}", *(str(field.value.uiVal) for field in fields)]
            rest = ["", "", "", ""]
            if now >= energy_at:
                energy_at = now + ENERGY_SECONDS
                begin = time.monotonic()
                rest[0] = str(pynvml.nvmlDeviceGetTotalEnergyConsumption(board))
                cells[0] = f"{(begin + time.monotonic()) / 2:.4f}"
            elif now >= slow_at:
                slow_at = now + SLOW_SECONDS
                rest[1] = str(pynvml.nvmlDeviceGetClockInfo(board, SM_CLOCK))
                rest[2] = str(pynvml.nvmlDeviceGetCurrentClocksEventReasons(board))
                rest[3] = str(pynvml.nvmlDeviceGetTemperature(board, GPU_TEMPERATURE))
                file.flush()
            file.write(",".join(cells + rest) + "\n")
            tick += TICK_SECONDS
            time.sleep(max(0.0, tick - time.monotonic()))


if __name__ == "__main__":
    main()
