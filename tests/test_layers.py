"""The three rooms of every package: cores know no app, no adapter, no clock and no network.

import-linter (pyproject.toml) holds the walls between packages; this holds those inside them.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TypeGuard

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = (
    "actuator",
    "capacity",
    "console",
    "controller",
    "forecasting",
    "gpu",
    "scheduler_plugin",
    "simulation",
    "telemetry",
)
OUTER_ROOMS = {
    "actuator": {"app", "unix_socket"},
    "capacity": {
        "app",
        "fitting",
        "numpy_backend",
        "ranking_process",
        "simulated_backend",
        "torch_backend",
    },
    "console": {"app"},
    "controller": {"app"},
    "forecasting": {"app", "prometheus", "side_training", "sqlite"},
    "scheduler_plugin": {"app"},
    "gpu": {"nvml", "replay", "simulated", "workers"},
    "simulation": {"app", "kube", "lockstep"},
    "telemetry": {"app", "attribution", "gpunode", "stream"},
}
# Pure modules that live in an outer room because they belong to its process or technology.
PURE = {
    "capacity.fitting.curves",  # the model takes its points of a sweep, which are values
    "gpu.simulated.board_arrays",
    "gpu.simulated.board_regulation",
    "gpu.simulated.board_spec",
    "gpu.simulated.recent_draws",
    "telemetry.attribution.attribute",
}
TECHNOLOGY = {
    "asyncio",
    "fastapi",
    "grpc",
    "http",
    "httpx",
    "kubernetes",
    "pynvml",
    "requests",
    "socket",
    "sqlite3",
    "subprocess",
    "threading",
    "time",
    "torch",
    "triton",
    "urllib",
    "uvicorn",
}


def core_modules() -> Iterator[Path]:
    """Every module of a package but those of its outer rooms."""
    for package in PACKAGES:
        top = ROOT / package
        for file in sorted(top.rglob("*.py")):
            room = file.relative_to(top).parts[0]
            if room not in {*OUTER_ROOMS[package], "web"} and not file.stem.startswith("__"):
                yield file


def imports_of(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def ids(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts)


@pytest.mark.parametrize("file", list(core_modules()), ids=ids)
def test_a_core_module_imports_only_cores(file: Path) -> None:
    for name in imports_of(file):
        parts = name.split(".")
        assert parts[0] not in TECHNOLOGY, f"{ids(file)} imports {name}"
        assert parts[0] not in {"tests", "benchmarks"}, f"{ids(file)} imports {name}"
        if len(parts) > 1 and name not in PURE:
            outer = OUTER_ROOMS.get(parts[0], set())
            assert parts[1] not in outer, f"{ids(file)} imports {name}, an adapter or app"


@pytest.mark.parametrize("package", [*PACKAGES, "wattpack"])
def test_the_product_never_imports_tests_or_benchmarks(package: str) -> None:
    for file in (ROOT / package).rglob("*.py"):
        for name in imports_of(file):
            assert name.split(".")[0] not in {"tests", "benchmarks"}, f"{file}: {name}"


def test_only_the_clock_reads_the_machine_s_clocks() -> None:
    for package in (*PACKAGES, "wattpack"):
        for file in (ROOT / package).rglob("*.py"):
            if file.relative_to(ROOT).as_posix() != "wattpack/clock.py":
                assert "time" not in {n.split(".")[0] for n in imports_of(file)}, file


@pytest.mark.parametrize("package", [*PACKAGES, "wattpack"])
def test_only_one_module_sets_loggers_up(package: str) -> None:
    for file in (ROOT / package).rglob("*.py"):
        if file.relative_to(ROOT).as_posix() != "wattpack/logs.py":
            assert "basicConfig" not in file.read_text(encoding="utf-8"), file


@pytest.mark.parametrize("package", [*PACKAGES, "wattpack"])
def test_a_module_that_logs_has_one_logger_named_log_after_itself(package: str) -> None:
    for file in (ROOT / package).rglob("*.py"):
        module = ast.parse(file.read_text(encoding="utf-8"))
        calls = [node for node in ast.walk(module) if is_call_of(node, "getLogger")]
        made = [node for node in calls if not names_a_librarys_logger(node)]
        named = [
            statement.value
            for statement in module.body
            if isinstance(statement, ast.Assign)
            and ast.unparse(statement) == "log = logging.getLogger(__name__)"
        ]
        assert made == named[:1], f"{file}: not one log = logging.getLogger(__name__)"
        used = (node for node in ast.walk(module) if is_call_of(node, "info", "warning", "error"))
        for node in used:
            assert ast.unparse(node.func).split(".")[0] != "logging", f"{file}:{node.lineno}"


def names_a_librarys_logger(call: ast.AST) -> bool:
    """Whether it gets the logger of somebody else, to hear less of it."""
    (name,) = call.args if isinstance(call, ast.Call) and len(call.args) == 1 else (None,)
    if not isinstance(name, ast.Constant) or not isinstance(name.value, str):
        return False
    return bool(name.value) and name.value.split(".")[0] not in PACKAGES


def is_call_of(node: ast.AST, *names: str) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in names


def test_nothing_is_imported_by_a_path_that_a_program_adds() -> None:
    """A module has one name; by a second path it would be there twice."""
    own = Path(__file__)
    files = [
        f
        for name in (*PACKAGES, "wattpack", "benchmarks", "tests", "tools")
        for f in (ROOT / name).rglob("*.py")
    ]
    assert [str(f) for f in files if f != own and "sys.path" in f.read_text()] == []


def test_a_name_leads_to_one_module() -> None:
    seen = Counter(
        path.stem
        for package in (*PACKAGES, "benchmarks", "wattpack")
        for path in (ROOT / package).rglob("*.py")
        if not path.stem.startswith("__") and "node_modules" not in path.parts
    )
    assert [stem for stem, count in seen.items() if count > 1] == []
