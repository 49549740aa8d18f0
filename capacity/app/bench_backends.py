"""What ``wattpack bench run`` measures: a GPU, this machine's processor, or a simulated board."""

from __future__ import annotations

from argparse import Namespace
from typing import Final

from actuator import ActuatorClient
from capacity.app.actuator_settings import ActuatorSettings
from capacity.bench.point_bench import BenchRig
from capacity.bench.timing import BoardWatch, PowerRule, watch_idle
from capacity.numpy_backend import HostMeter, NumpyBackend
from capacity.simulated_backend import SimulatedBackend
from gpu.board_meter import BoardMeter
from gpu.nvml.nvml_meter import open_meter
from wattpack.clock import Clock, ManualClock, SystemClock
from wattpack.errors import PermanentError

BACKENDS: Final = ("torch", "numpy", "simulated")
TUNING_BUDGET_SECONDS: Final = 60.0
IDLE_SECONDS: Final = 5.0
QUICK_IDLE_SECONDS: Final = 1.5


def open_rig(args: Namespace) -> BenchRig:
    """The backend that the command line names, with its meter and clock.

    Raises:
        PermanentError: if the backend's software is not installed.
        GpuError: if the board cannot be opened.
    """
    if args.backend == "numpy":
        host = HostMeter()
        return BenchRig(NumpyBackend(SystemClock()), host, SystemClock(), host.state())
    if args.backend == "simulated":
        virtual = ManualClock()
        board = SimulatedBackend(virtual, seed=args.seed)
        before = _idle_before(args, board.meter(), virtual)
        state = board.meter().state()
        return BenchRig(
            board, board.meter(), virtual, state, idle_before=before, settings=board.settings()
        )
    return _open_torch(args)


def _open_torch(args: Namespace) -> BenchRig:
    clock = SystemClock()
    meter = open_meter(args.gpu)
    state = meter.state()  # before this process is itself one of those that hold the GPU
    before = _idle_before(args, meter, clock)
    try:
        from capacity.torch_backend import open_torch_backend, tuning_key
        from capacity.torch_backend.tuning import TunedConfigs
    except ImportError as error:
        raise PermanentError(
            f"backend torch needs PyTorch with Triton ({error.name} is not installed); "
            "the benchmark's image has both"
        ) from error
    key = tuning_key(state.product, state.driver)
    tuned = TunedConfigs(clock, TUNING_BUDGET_SECONDS, args.tuning_cache, key)
    backend = open_torch_backend(args.gpu, tuned, clock)
    return BenchRig(
        backend, meter, clock, state, tuned.remarks, before, _settings(args, state.uuid, clock)
    )


def _settings(args: Namespace, uuid: str, clock: Clock) -> ActuatorSettings | None:
    """Whoever may set caps; nobody unless the command line names the actuator."""
    if args.actuator is None:
        return None
    return ActuatorSettings(ActuatorClient(args.actuator, clock), uuid)


def _idle_before(args: Namespace, meter: BoardMeter, clock: Clock) -> BoardWatch | None:
    """The board at rest before this process has a context on it: the gate's ten seconds."""
    if "idle" not in args.sections.split(","):
        return None
    window = QUICK_IDLE_SECONDS if args.quick else IDLE_SECONDS
    return watch_idle(meter, clock, window, window, PowerRule())
