"""CRD manifests and their reference page, from the models in ``wattpack.api``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from wattpack.api import GROUP, KINDS, VERSION
from wattpack.api.crdgen import Schema, custom_resource_definition, walk

PATTERNS = (f"manifests/crds/{GROUP}_*.yaml", "docs/reference/crds.md")
HEADER = "# Generated from wattpack/api by `make generate`: do not edit.\n"
INTRODUCTION = f"""<!-- Generated from wattpack/api by `make generate`: do not edit. -->
# API objects of `{GROUP}/{VERSION}`

`kubectl get {GROUP.split(".")[0]}` lists objects of every kind below;
`kubectl explain KIND.spec` shows this text.
`[]` marks the items of a list, `{{}}` the values of a map. Fields without a default are required
where the last column says so. The rules below a table are checked by the API server.
"""


class _Plain(yaml.SafeDumper):
    """Writes equal lists twice instead of an anchor and an alias."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ANN401
        return True


def produce(root: Path) -> dict[str, str]:
    """Path to content of every manifest and of the reference page."""
    definitions = [custom_resource_definition(kind) for kind in KINDS]
    manifests = {
        f"manifests/crds/{GROUP}_{definition['spec']['names']['plural']}.yaml": HEADER
        + yaml.dump(definition, Dumper=_Plain, sort_keys=False, width=100, allow_unicode=True)
        for definition in definitions
    }
    page = "\n".join([INTRODUCTION, *(_section(definition) for definition in definitions)])
    return {**manifests, "docs/reference/crds.md": page}


def _section(definition: Schema) -> str:
    """One kind as Markdown: names, columns, fields, rules."""
    names = definition["spec"]["names"]
    version = definition["spec"]["versions"][0]
    schema = version["schema"]["openAPIV3Schema"]
    columns = ", ".join(column["name"] for column in version["additionalPrinterColumns"])
    lines = [
        f"## {names['kind']}",
        "",
        schema["description"],
        "",
        f"`{names['plural']}` ({', '.join(names['shortNames'])}),"
        f" {definition['spec']['scope'].lower()}. Columns: {columns}.",
        "",
        "| field | type | default | meaning |",
        "|---|---|---|---|",
    ]
    rules: list[str] = []
    for part in ("spec", "status"):
        for path, node in walk(schema["properties"][part], part):
            if path.startswith("status.acceptedSpec."):
                continue
            rules += [f"- `{path}`: {rule['message']}" for rule in _rules(node)]
            if path != part and "description" in node:
                lines.append(_row(path, node, schema))
    rules += [f"- {rule['message']}" for rule in _rules(schema)]
    if rules:
        lines += ["", "Rules:", "", *rules]
    return "\n".join([*lines, ""])


def _rules(node: Schema) -> list[dict[str, str]]:
    return list(node.get("x-kubernetes-validations", []))


def _row(path: str, node: Schema, schema: Schema) -> str:
    default = f"`{_inline(node['default'])}`" if "default" in node else ""
    if not default and _is_required(path, schema):
        default = "required"
    text = node["description"].replace("|", "\\|").replace("\n", " ")
    return f"| `{path}` | {_type(node)} | {default} | {text} |"


def _is_required(path: str, schema: Schema) -> bool:
    parent_path, _, name = path.rpartition(".")
    parents = dict(walk(schema))
    return name in parents[parent_path].get("required", [])


def _inline(value: Any) -> str:  # noqa: ANN401
    return (
        yaml.safe_dump(value, default_flow_style=True, width=10_000).strip().removesuffix("\n...")
    )


def _type(node: Schema) -> str:
    """The type with its bounds, for people."""
    if "enum" in node:
        return " / ".join(f"`{value}`" for value in node["enum"])
    low = (
        f"{'>' if node.get('exclusiveMinimum') else '≥'} {node['minimum']:g}"
        if "minimum" in node
        else ""
    )
    high = f"≤ {node['maximum']:g}" if "maximum" in node else ""
    bounds = " and ".join(part for part in (low, high) if part)
    name = {"array": "list", "object": "map" if "additionalProperties" in node else "object"}
    return f"{name.get(node['type'], node['type'])} {bounds}".strip()
