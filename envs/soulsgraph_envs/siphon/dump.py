"""Write an attribute file as TOML."""

from __future__ import annotations

from typing import Any

from soulsgraph_envs.siphon.attributes import AttributeFile

_HEXADECIMAL = ("offsets", "items", "mask")


def dump(file: AttributeFile) -> str:
    """Write an attribute file as TOML, defaults left out, offsets in hexadecimal as in Siphon's own files."""
    lines = [f'source = "{file.source}"', f'bindings = "{file.bindings}"']
    tables: dict[str, Any] = {"process_info": file.process_info}
    tables |= {f"attributes.{name}": attribute for name, attribute in file.attributes.items()}
    tables |= {f"counts.{name}": count for name, count in file.counts.items()}
    for name, table in tables.items():
        lines += ["", f"[{name}]", *_lines(table)]
    for key, layouts in (("reads", file.reads), ("writes", file.writes)):
        for name, layout in layouts.items():
            lines += ["", f"[{key}.{name}]", *(f"{field} = {_value(key, place)}" for field, place in layout.items())]
    return "\n".join(lines) + "\n"


def _lines(item: Any) -> list[str]:
    """Give what differs from the defaults, a line each."""
    specs = item.__dataclass_fields__.items()
    changed = {key: getattr(item, key) for key, spec in specs if getattr(item, key) != spec.default}
    return [f"{key} = {_value(key, value)}" for key, value in changed.items()]


def _value(key: str, value: Any) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, tuple):
        return "[" + ", ".join(_value(key, each) for each in value) + "]"
    if isinstance(value, int | float):
        return f"0x{value:X}" if key in _HEXADECIMAL else str(value)
    return "{ " + ", ".join(_lines(value)) + " }"
