"""The reference page of the settings, rendered from the schema."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Final, TypeAlias, cast

from msgspec import inspect

from outrider.settings.errors import Path, dotted_path
from outrider.settings.field_types import allowed_values, initial_value, struct_kind
from outrider.settings.schema import QueueFields, Settings

_Row: TypeAlias = tuple[str, str, str, str]

_PREFACE: Final = """\
# Settings

<!-- Written by outrider.settings.render_reference(); a test compares the two. -->

`settings=` takes a mapping of this shape, and a TOML file has it too: a heading here is a table
there. `profile = "NAME"` before all tables names the settings they start from: `polite`, `archive`,
`news`, `paced` or `fast`. An unknown name, a wrong type, an absurd value or two that contradict
each other are refused with their paths, and nothing changes. Sources of settings, and when changes
take effect: [configure a crawl](../how-to/configure.md). Durations are seconds; lower priority and
precedence are sooner; `null` means that nothing is given.
"""
_ENTRIES: Final = {
    "fetch.connect_to": "<host>",
    "scoring.bonuses": "<origin>",
}  # what users name in a table of their own
_TABLE: Final = "| setting | allowed | default | meaning |\n|---|---|---|---|"


def documented_settings() -> list[tuple[str, str, str, str]]:
    """Return every setting as (path, allowed values, default, description)."""
    return [*_rows(struct_kind(Settings), Settings(), ()), *_override_rows()]


def render_reference() -> str:
    """Return the text of docs/reference/settings.md."""
    rows = documented_settings()
    return "\n".join([_PREFACE, *(_chapter(field, rows) for field in struct_kind(Settings).fields)])


@cache
def homes() -> Mapping[str, str]:
    """Return the section of each name, for hints."""
    paths = [path for path, *_ in documented_settings() if "<" not in path]
    return {path.rpartition(".")[2]: path for path in reversed(paths)}


def _rows(kind: inspect.StructType, current: object, path: Path) -> Iterator[_Row]:
    for field in kind.fields:
        where = (*path, field.name)
        if where != ("keys",):
            yield from _field_rows(field.type, getattr(current, field.name), where, "")


def _field_rows(kind: inspect.Type, default: object, path: Path, about: str) -> Iterator[_Row]:
    match kind:
        case inspect.Metadata():
            yield from _field_rows(kind.type, default, path, description_of(kind))
        case inspect.StructType():
            yield from _rows(kind, default, path)
        case inspect.DictType():
            entry = kind.value_type
            name = _ENTRIES.get(dotted_path(path), "<type>")
            yield from _field_rows(entry, initial_value(entry), (*path, name), about)
        case inspect.VarTupleType() if isinstance(kind.item_type, inspect.StructType):
            yield dotted_path(path), allowed_values(kind), json.dumps(default), about
            yield from _rows(kind.item_type, kind.item_type.cls(), (*path, "<n>"))
        case _:
            yield dotted_path(path), allowed_values(kind), json.dumps(default), about


def _override_rows() -> Iterator[_Row]:
    about = "also in tables of their own: keys.<key>.politeness and keys.<key>.budget"
    yield "keys.<key>.<setting>", "any of politeness and budget", "as without it", about
    yield from _rows(struct_kind(QueueFields), QueueFields(), ("keys", "<key>"))


def description_of(kind: inspect.Type) -> str:
    """Return the description of a field or section."""
    return str((cast("inspect.Metadata", kind).extra_json_schema or {})["description"])


def _chapter(field: inspect.Field, rows: Sequence[_Row]) -> str:
    about = description_of(field.type)
    lines = [_line(row) for row in rows if row[0].startswith(field.name + ".")]
    return "\n".join([f"## {field.name}\n\n{about[0].upper()}{about[1:]}.\n", _TABLE, *lines, ""])


def _line(row: _Row) -> str:
    path, values, default, about = (cell.replace("|", r"\|") for cell in row)
    return f"| `{path}` | {values} | `{default}` | {about} |"
