"""Python messages and stubs of the agent stream, from ``proto/``."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from wattpack.errors import PermanentError

PACKAGE = "wattpack/wire/v1"
PATTERNS = (f"{PACKAGE}/*_pb2.py", f"{PACKAGE}/*_pb2_grpc.py", f"{PACKAGE}/*.pyi")
INIT = '"""Generated from proto/wattpack/v1 by ``make generate``: do not edit."""\n'


def produce(root: Path) -> dict[str, str]:
    """Path to content of every generated module.

    Raises:
        PermanentError: if a ``.proto`` file does not compile.
    """
    with tempfile.TemporaryDirectory() as scratch:
        # protoc derives Python's import paths from the place of the file, so it is compiled from
        # where the modules will live and not from where the contract lives.
        staged = Path(scratch, "in", PACKAGE)
        staged.mkdir(parents=True)
        output = Path(scratch, "out")
        output.mkdir()
        for proto in sorted(Path(root, "proto/wattpack/v1").glob("*.proto")):
            shutil.copy(proto, staged / proto.name)
        _compile(Path(scratch, "in"), sorted(staged.glob("*.proto")), output)
        generated = {
            str(path.relative_to(output)): path.read_text(encoding="utf-8")
            for path in sorted(output.rglob("*"))
            if path.is_file()
        }
    return {f"{PACKAGE}/__init__.py": INIT, **generated}


def _compile(include: Path, protos: list[Path], output: Path) -> None:
    # In a process of its own: the compiler's protobuf does not bear another one in its process.
    # protoc looks for protoc-gen-mypy on PATH; a virtual environment need not be activated.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    arguments = [
        f"--proto_path={include}",
        *(f"--{kind}={output}" for kind in ("python_out", "grpc_python_out", "mypy_out")),
        f"--mypy_grpc_out={output}",
        *map(str, protos),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "grpc_tools.protoc", *arguments],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise PermanentError(f"protoc refused the files under proto/: {done.stderr.strip()}")
