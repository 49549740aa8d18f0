"""The shipped step tables: reading, checking, finding."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from importlib import resources
from typing import Any, Final, get_args

import numpy as np

from capacity.gpu_profile import Provenance
from capacity.profile_errors import UnknownServingModel
from capacity.step_table import (
    GRIDS,
    PART_SHAPES,
    SWEPT_CAPS,
    Floats,
    HeldBoard,
    StepErrors,
    StepPart,
    StepTable,
)
from wattpack.documents import parse_json
from wattpack.errors import InputError, read_from
from wattpack.units import require_number

SCHEMA: Final = "wattpack.io/step-tables/v1"
FILE: Final = "step_tables.json"

_KEYS: Final = {"schema", "rows_sha256", "checks", "grids", "tables"}
_TEXTS: Final = ("gpu", "language_model", "precision", "source")
_NUMBERS: Final = ("host_seconds", "host_watts", "default_limit_watts")


@dataclass(frozen=True, slots=True)
class StepLibrary:
    """All tables of one file.

    Attributes:
        tables: By GPU type, language model and parallelism, in the file's order.
        rows_sha256: Hash over the kernel rows that the tables come from.
        checks: Held-out errors against end-to-end runs, by name.
        content_sha256: Hash of the file; empty for a library that comes from none.
    """

    tables: Mapping[tuple[str, str, int], StepTable]
    rows_sha256: str
    checks: Mapping[str, float]
    content_sha256: str = ""

    def find(self, gpu: str, language_model: str, tensor_parallel: int) -> StepTable:
        """The table for a GPU type, language model and parallelism.

        Raises:
            UnknownServingModel: if there is none; nothing is guessed.
        """
        found = self.tables.get((gpu, language_model, tensor_parallel))
        if found is None:
            known = [f"{g}/{m}/tp{n}" for g, m, n in self.tables]
            raise UnknownServingModel(f"{gpu}/{language_model}/tp{tensor_parallel}", known)
        return found


@lru_cache(maxsize=1)
def shipped_step_tables() -> StepLibrary:
    """The tables that come with wattpack (read once).

    Raises:
        InputError: if the file is damaged.
    """
    text = (resources.files("capacity") / "data" / FILE).read_text(encoding="utf-8")
    library = step_library_from_dict(parse_json(text, FILE), FILE)
    return replace(library, content_sha256=hashlib.sha256(text.encode()).hexdigest())


def step_library_from_dict(document: object, source: str = "") -> StepLibrary:
    """A checked library; nothing of it is used if any part is refused.

    Raises:
        InputError: naming the field.
    """
    with read_from(source):
        fields = _exact(document, _KEYS, "document")
        if fields["schema"] != SCHEMA:
            raise InputError("schema", SCHEMA, fields["schema"])
        grids = {name: [list(axis) for axis in axes] for name, axes in GRIDS.items()}
        if fields["grids"] != grids:
            raise InputError("grids", f"{grids}", fields["grids"])
        if not isinstance(fields["tables"], list) or not fields["tables"]:
            raise InputError("tables", "a list with an entry", fields["tables"])
        tables = [table_from_dict(item) for item in fields["tables"]]
        for table in tables:
            if sum(other.key == table.key for other in tables) > 1:
                raise InputError("tables", "each GPU, model and parallelism once", table.key)
        checks = {
            str(name): require_number(f"checks.{name}", value, minimum=0, maximum=10)
            for name, value in _mapping(fields["checks"], "checks").items()
        }
        return StepLibrary(
            {table.key: table for table in tables}, str(fields["rows_sha256"]), checks
        )


def table_as_dict(table: StepTable) -> dict[str, Any]:
    """Plain JSON values, the input of ``table_from_dict``."""
    document = {name: getattr(table, name) for name in StepTable.__dataclass_fields__}
    document["parts"] = {
        name: {key: _rounded(getattr(part, key)) for key in StepPart.__dataclass_fields__}
        for name, part in table.parts.items()
    }
    document["held"] = asdict(table.held) | {"swept_depth": list(table.held.swept_depth)}
    document["errors"] = asdict(table.errors)
    return document


def table_from_dict(document: object) -> StepTable:
    """A checked table.

    Raises:
        InputError: naming the field.
    """
    fields = dict(_exact(document, set(StepTable.__dataclass_fields__), "table"))
    for name in _TEXTS:
        if not isinstance(fields[name], str) or not fields[name]:
            raise InputError(f"table.{name}", "a non-empty text", fields[name])
    if fields["provenance"] not in get_args(Provenance):
        raise InputError("table.provenance", f"one of {get_args(Provenance)}", fields["provenance"])
    for name in _NUMBERS:
        fields[name] = require_number(f"table.{name}", fields[name], minimum=0, maximum=1e5)
    parallel = require_number(
        "table.tensor_parallel", fields["tensor_parallel"], minimum=1, maximum=1024
    )
    fields["tensor_parallel"] = int(parallel)
    parts = _exact(fields["parts"], set(PART_SHAPES), "table.parts")
    fields["parts"] = {name: _part(parts[name], name) for name in PART_SHAPES}
    fields["held"] = _held(fields["held"])
    fields["errors"] = _errors(fields["errors"])
    return StepTable(**fields)


def _held(document: object) -> HeldBoard:
    fields = dict(_exact(document, set(HeldBoard.__dataclass_fields__), "table.held"))
    path = "table.held.swept_depth"
    swept = _array(fields.pop("swept_depth"), (len(SWEPT_CAPS),), path).tolist()
    if swept != sorted(swept, reverse=True) or swept[-1] != 0.0:
        raise InputError(path, "depths that fall to 0", swept)
    numbers = {
        name: require_number(f"table.held.{name}", value, minimum=0, maximum=10)
        for name, value in fields.items()
    }
    return HeldBoard(**numbers, swept_depth=tuple(swept))


def _errors(document: object) -> StepErrors:
    fields = dict(_exact(document, set(StepErrors.__dataclass_fields__), "table.errors"))
    if not isinstance(fields["kind"], str) or not fields["kind"]:
        raise InputError("table.errors.kind", "a non-empty text", fields["kind"])
    for name in ("time", "draw", "cap_response"):
        path = f"table.errors.{name}"
        fields[name] = require_number(path, fields[name], minimum=0, maximum=10)
    return StepErrors(**fields)


def _part(document: object, name: str) -> StepPart:
    fields = _exact(document, set(StepPart.__dataclass_fields__), f"table.parts.{name}")
    return StepPart(**{
        key: _array(value, PART_SHAPES[name], f"table.parts.{name}.{key}")
        for key, value in fields.items()
    })  # fmt: skip


def _array(value: object, shape: tuple[int, ...], path: str) -> Floats:
    """Finite numbers from 0 on."""
    try:
        array = np.array(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(path, f"numbers of shape {shape}", value) from error
    if array.shape != shape or not np.isfinite(array).all() or (array < 0).any():
        raise InputError(path, f"finite numbers >= 0 of shape {shape}", value)
    return array


def _rounded(values: Floats) -> list[Any]:
    """Five significant digits: the last bits differ between linear algebra libraries."""
    if values.ndim > 1:
        return [_rounded(row) for row in values]
    return [float(f"{value:.5g}") for value in values.tolist()]


def _exact(document: object, wanted: set[str] | Sequence[str], path: str) -> Mapping[str, Any]:
    """The mapping, when its keys are exactly these."""
    fields = _mapping(document, path)
    for key in sorted(set(fields) ^ set(wanted), key=str):
        expected = "a known key" if key in fields else "a value"
        raise InputError(f"{path}.{key}", expected, fields.get(key))
    return fields


def _mapping(document: object, path: str) -> Mapping[str, Any]:
    if not isinstance(document, Mapping):
        raise InputError(path, "a mapping", document)
    return document
