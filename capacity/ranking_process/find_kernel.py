"""Find the file of a kernel without running any of it: the judge never imports what it judges."""

from __future__ import annotations

import ast
from importlib.machinery import PathFinder
from pathlib import Path
from sys import path as search_path
from typing import Final

from capacity.ranking.kernel_source import KernelSource
from wattpack.errors import InputError

LARGEST_TEXT: Final = 4 * 2**20
FOLDER_FUNCTION: Final = "kernel"


def find_kernels(spec: str) -> tuple[KernelSource, ...]:
    """What ``module:function``, ``path.py:function`` or a folder names.

    A folder stands for each of its modules that has a function ``kernel``.

    Raises:
        InputError: for a module, file or function that is not there.
    """
    folder = Path(spec)
    if folder.is_dir():
        files = [file for file in sorted(folder.glob("*.py")) if _has(file, FOLDER_FUNCTION)]
        if not files:
            raise InputError("--kernel", f"modules with a function {FOLDER_FUNCTION}", spec)
        return tuple(_source(f"{file.stem}", str(file.resolve()), FOLDER_FUNCTION, file)
                     for file in files)  # fmt: skip
    module, colon, function = spec.rpartition(":")
    if not colon or not module or not function.isidentifier():
        raise InputError("--kernel", "MODULE:FUNCTION, FILE.py:FUNCTION or a folder", spec)
    file = Path(module).resolve() if module.endswith(".py") else _file_of(module, spec)
    if not file.is_file():
        raise InputError("--kernel", "a file that is there", spec)
    if not _has(file, function):
        raise InputError("--kernel", f"a file that defines {function}", spec)
    found = str(file) if module.endswith(".py") else module
    return (_source(spec, found, function, file),)


def still_as_read(source: KernelSource) -> bool:
    """Whether the kernel's file says what was tried to be judged: an earlier kernel can write."""
    if source.module.endswith(".py"):
        return Path(source.module).is_file() and _text(Path(source.module)) == source.text
    return _text(_file_of(source.module, source.name)) == source.text


def _source(name: str, module: str, function: str, file: Path) -> KernelSource:
    return KernelSource(name, module, function, _text(file))


def _file_of(module: str, spec: str) -> Path:
    """The file of a dotted name, packages not imported."""
    places: list[str] | None = [str(Path.cwd()), *search_path]
    found = None
    for part in module.split("."):
        if places is None or not part.isidentifier():
            raise InputError("--kernel", "a module that can be found", spec)
        found = PathFinder.find_spec(part, places)
        if found is None:
            raise InputError("--kernel", "a module that can be found", spec)
        places = list(found.submodule_search_locations or []) or None
    if found is None or found.origin is None or not found.origin.endswith(".py"):
        raise InputError("--kernel", "a module of Python source", spec)
    return Path(found.origin)


def _text(file: Path) -> str:
    try:
        if file.stat().st_size > LARGEST_TEXT:
            raise InputError("--kernel", f"a file of at most {LARGEST_TEXT} bytes", str(file))
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("--kernel", "a file of Python text", str(file)) from error


def _has(file: Path, function: str) -> bool:
    """Whether the module's top level defines the name, however."""
    try:
        tree = ast.parse(_text(file))
    except (SyntaxError, ValueError, RecursionError) as error:
        raise InputError("--kernel", "a file of Python text", str(file)) from error
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return function in names
