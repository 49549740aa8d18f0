"""The text of a kernel, and what it gives away before anything runs.

Reading source is the weakest of the defences (a determined author hides what he does); everything
here is also looked for while the kernel runs. It costs no device time, so it comes first.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from capacity.ranking.kernel_verdict import KernelRefused

PRODUCTS: Final = frozenset({
    "matmul", "dot", "inner", "tensordot", "einsum", "mm", "addmm", "bmm", "linear",
    "multi_dot", "vecdot", "baddbmm", "_scaled_mm",
})  # fmt: skip
ATTENTIONS: Final = frozenset({"scaled_dot_product_attention", "multi_head_attention_forward"})
CONVERSIONS: Final = frozenset({
    "asarray", "array", "ascontiguousarray", "asfortranarray", "asanyarray", "copy", "contiguous",
    "clone", "view", "astype", "to", "t", "transpose", "swapaxes", "reshape", "float", "detach",
})  # fmt: skip

FRAMES: Final = frozenset({
    "_getframe", "_current_frames", "f_locals", "f_back", "currentframe", "get_objects",
    "get_referrers",
})  # fmt: skip
PRIED: Final = frozenset({
    "__main__", "gc", "capacity.ranking_process.kernel_child",
    "capacity.ranking_process.numpy_device", "capacity.torch_backend.ranked_device",
})  # fmt: skip

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class KernelSource:
    """One candidate.

    Attributes:
        name: As the user wrote it.
        module: Dotted name, or the path of a file.
        function: In that module.
        text: The file, as it was when the trial began.
        trusted: Part of the benchmark itself: a baseline may call the library it stands for.
    """

    name: str
    module: str
    function: str
    text: str
    trusted: bool = False

    @property
    def sha256(self) -> str:
        """Of the text."""
        return hashlib.sha256(self.text.encode()).hexdigest()


def require_fair_source(source: KernelSource, task_name: str) -> None:
    """Nothing happens if the text shows no trick.

    Raises:
        KernelRefused: for a text that is no Python or lacks the function, for a fallback, and for a
            call that hands the whole task to a library.
    """
    try:
        tree = ast.parse(source.text)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise KernelRefused("not_loadable", f"no Python: {error}") from error
    for line, what in _prying(tree):
        raise KernelRefused("looks_around", f"line {line}: {what}")
    for function in _reachable(tree, source.function):
        for line in _fallbacks(function):
            raise KernelRefused(
                "falls_back", f"line {line}: {function.name} goes on after an exception"
            )
        for line, callee in _whole_calls(function, task_name):
            raise KernelRefused("wraps_library", f"line {line}: {callee} is given the whole task")


def _prying(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Looks at frames, other objects or the code of the process that runs the kernel."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in FRAMES:
            yield node.lineno, node.attr
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in PRIED:
            yield node.lineno, node.value
        if isinstance(node, ast.Import):
            yield from ((node.lineno, a.name) for a in node.names if a.name in PRIED)
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            yield from ((node.lineno, name) for name in names if name in PRIED)


def _reachable(tree: ast.Module, entry: str) -> list[Function]:
    """The kernel's function and those of its file that it names, directly or not."""
    functions = {node.name: node for node in ast.walk(tree) if isinstance(node, Function)}
    wanted, found = [entry], {}
    while wanted:
        function = functions.get(name := wanted.pop())
        if function is None or name in found:
            continue
        found[name] = function
        wanted += [node.id for node in ast.walk(function) if isinstance(node, ast.Name)]
    return list(found.values())


def _fallbacks(function: Function) -> Iterator[int]:
    """Lines of handlers that do not raise."""
    for node in ast.walk(function):
        if isinstance(node, ast.Try):
            for handler in node.handlers:
                if not isinstance(handler.body[-1], ast.Raise):
                    yield handler.lineno
        if isinstance(node, ast.withitem) and "suppress" in ast.unparse(node.context_expr):
            yield node.context_expr.lineno


def _whole_calls(function: Function, task_name: str) -> Iterator[tuple[int, str]]:
    """Library calls on operands that were not cut up."""
    whole = {argument.arg for argument in function.args.args}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and _is_whole(node.value, whole):
            whole |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    for node in ast.walk(function):
        if isinstance(node, ast.Call):
            callee = ast.unparse(node.func).split(".")[-1]
            own = [argument for argument in node.args if _is_whole(argument, whole)]
            if callee in ATTENTIONS and task_name.startswith("attention") and own:
                yield node.lineno, callee
            if callee in PRODUCTS and task_name == "gemm" and _both(node, own, whole):
                yield node.lineno, callee
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            both = _is_whole(node.left, whole) and _is_whole(node.right, whole)
            if both and task_name == "gemm":
                yield node.lineno, "@"


def _both(call: ast.Call, own: list[ast.expr], whole: set[str]) -> bool:
    method_of_whole = isinstance(call.func, ast.Attribute) and _is_whole(call.func.value, whole)
    return len(own) + method_of_whole >= 2


def _is_whole(node: ast.expr, whole: set[str]) -> bool:
    if isinstance(node, ast.Name):
        return node.id in whole
    if isinstance(node, ast.Attribute):
        return node.attr in {"T", "mT", "data"} and _is_whole(node.value, whole)
    if isinstance(node, ast.Call):
        callee = ast.unparse(node.func).split(".")[-1]
        if callee not in CONVERSIONS:
            return False
        parts = [
            *node.args[:1],
            *([node.func.value] if isinstance(node.func, ast.Attribute) else []),
        ]
        return any(_is_whole(part, whole) for part in parts)
    return False
