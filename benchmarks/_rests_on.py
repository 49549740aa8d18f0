"""What a simulated figure rests on: the code that a module imports, and the data beside it.

A finished shard of a long benchmark is good as long as that has not changed. Folders as a whole
are too much: a new benchmark, a comment or a package of another part would throw weeks of simulated
time away. So the digest is of the module and of every module of ours that it imports, directly or
not, also inside functions and by ``import_module`` of a literal name, each without comments,
docstrings and layout; and of every file that is no code in those modules' packages, but for those
of benchmarks and tests.

Code that a benchmark starts as a process of its own is not seen: use ``runner.sources_digest``.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

__all__ = ["modules_behind", "rests_on_digest"]

ROOT: Final = Path(__file__).parent.parent
_NOT_DATA: Final = frozenset({"__pycache__", "results"})
_LEFT_OUT: Final = frozenset({".py", ".pyc", ".pyi", ".md", ".nbi", ".nbc"})
_DATA_OF_ITS_OWN: Final = frozenset({"benchmarks", "tests"})
"""Packages whose data is of many benchmarks and tests."""
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@cache
def rests_on_digest(module: str, root: Path = ROOT, without: frozenset[str] = frozenset()) -> str:
    """Of a module's code and data, 12 hex digits.

    Args:
        module: Its dotted name, for example ``benchmarks.polca_weeks``.
        root: Folder of the packages.
        without: Packages and modules that are imported but decide nothing of the figure, dotted;
            what lies below one is left out with it.

    Raises:
        ModuleNotFoundError: for a module that is none of ours.
    """
    files = modules_behind(module, root)
    if module not in files:
        raise ModuleNotFoundError(module)
    files = {name: file for name, file in files.items() if not _below(name, without)}
    made = hashlib.sha256()
    for name in sorted(files):
        made.update(f"{name}\0{_meaning(files[name])}\0".encode())
    for file in _data_of({name.partition(".")[0] for name in files} - _DATA_OF_ITS_OWN, root):
        made.update(str(file.relative_to(root)).encode() + b"\0" + file.read_bytes())
    return made.hexdigest()[:12]


def _below(name: str, places: frozenset[str]) -> bool:
    parts = name.split(".")
    return any(".".join(parts[:count]) in places for count in range(1, len(parts) + 1))


def modules_behind(module: str, root: Path = ROOT) -> dict[str, Path]:
    """The module and all of ours that it imports, by dotted name; with the packages around them."""
    found: dict[str, Path] = {}
    ahead = [module]
    while ahead:
        name = ahead.pop()
        file = _file_of(name, root)
        if name in found or file is None:
            continue
        found[name] = file
        ahead.extend(_imports(ast.parse(file.read_bytes()), name, file))
        if "." in name:
            ahead.append(name.rpartition(".")[0])
    return found


def _file_of(name: str, root: Path) -> Path | None:
    place = root.joinpath(*name.split("."))
    for file in (place.with_suffix(".py"), place / "__init__.py"):
        if file.is_file():
            return file
    return None


def _imports(tree: ast.Module, name: str, file: Path) -> Iterator[str]:
    """Names that may be modules: ``from a import b`` names ``a`` and ``a.b``."""
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1]
            parts = [*(above if node.level else []), *([node.module] if node.module else [])]
            source = ".".join(parts)
            yield source
            yield from (f"{source}.{one.name}" for one in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            constants = (one.value for one in node.args if isinstance(one, ast.Constant))
            yield from (value for value in constants if isinstance(value, str))


def _meaning(file: Path) -> str:
    """What a file does: its syntax tree without docstrings and without places."""
    tree = ast.parse(file.read_bytes())
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return ast.dump(tree)


def _data_of(packages: set[str], root: Path) -> list[Path]:
    found = (file for package in packages for file in (root / package).rglob("*"))
    return sorted(
        file
        for file in found
        if file.is_file()
        and file.suffix not in _LEFT_OUT
        and not _NOT_DATA.intersection(file.relative_to(root).parts)
    )
