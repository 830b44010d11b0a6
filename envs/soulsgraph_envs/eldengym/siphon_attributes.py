"""The attributes of Elden Ring behind a Siphon server, by EldenGym's names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from soulsgraph_envs.data_files import find
from soulsgraph_envs.errors import UnknownNameError
from soulsgraph_envs.live.link import LinkError
from soulsgraph_envs.siphon.answers import attribute_message
from soulsgraph_envs.siphon.attributes import AttributeFile
from soulsgraph_envs.siphon.calls import SiphonCalls

#: A server may search all of a large module when it is first asked for an attribute.
_SEARCH_TIMEOUT_S = 30.0
_VALUES = {"int": ("int_value", int), "float": ("float_value", float), "bool": ("bool_value", bool)}

#: EldenGym's own name of its attribute file, and ours of the same attributes.
_THEIR_FILE, _OUR_FILE = "ER_1_16_1.toml", "elden-ring-1.16.1"


def attribute_file(config: str | Path | None) -> Path:
    """Find a file of attributes: the shipped one for None or EldenGym's name of it, whatever its folder there.

    Raises:
        UnknownNameError: for a name that nothing shipped has.
    """
    shipped = config is None or (Path(config).name == _THEIR_FILE and not Path(config).exists())
    return find("attribute file", _OUR_FILE if shipped else str(config))


class SiphonAttributes:
    """Read and write the attributes of a file; `writes` names them all, the caller decides which of them to write.

    Raises:
        LinkError: if the server does not answer or does not find the game.
    """

    def __init__(self, calls: SiphonCalls, file: AttributeFile) -> None:
        self._calls, self._file = calls, file
        self.writes = frozenset(file.attributes)
        attributes = [attribute_message(name, attribute) for name, attribute in file.attributes.items()]
        calls.call(
            "SetProcessConfig",
            process_name=file.process_info.name,
            process_window_name=file.process_info.window_name,
            attributes=attributes,
        )
        for part in ("InitializeMemory", "InitializeInput", "InitializeCapture"):
            calls.call(part, _SEARCH_TIMEOUT_S)

    def check(self, names: Iterable[str]) -> None:
        """Raise `UnknownNameError` for a name that is not in the file."""
        for name in names:
            if name not in self.writes:
                raise UnknownNameError("attribute of the Siphon file", name, sorted(self.writes))

    def read(self, names: Sequence[str]) -> dict[str, float]:
        """Read attributes, all calls under way at once."""
        self.check(names)
        calls = [self._calls.start("GetAttribute", attributeName=name) for name in names]
        return {name: _number(self._calls.finish(call)) for name, call in zip(names, calls, strict=True)}

    def write(self, values: Mapping[str, float]) -> None:
        """Write attributes, one call each."""
        self.check(values)
        for name, value in values.items():
            field, kind = _VALUES[self._file.attributes[name].type]
            self._calls.call("SetAttribute", attributeName=name, **{field: kind(value)})


def _number(answer: Any) -> float:
    kind = answer.WhichOneof("value")
    if kind not in ("int_value", "float_value", "bool_value"):
        raise LinkError(f"Siphon: expected a number, found {kind or 'no value'}: choose another attribute.")
    return float(getattr(answer, kind))
