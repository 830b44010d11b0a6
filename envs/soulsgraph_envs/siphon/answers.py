"""Convert the values of Siphon's calls to bytes and pictures, and back."""

from __future__ import annotations

import io
import struct
from dataclasses import asdict
from typing import Any

import numpy as np

from soulsgraph_envs.live.link import LinkError
from soulsgraph_envs.pictures import Picture
from soulsgraph_envs.siphon.attributes import Attribute
from soulsgraph_envs.siphon.protocol import messages

_FORMATS = {"int": "<i", "float": "<f"}


def answer_bytes(answer: Any) -> bytes:
    """Return the bytes of an attribute's value; a true "bool" has all bits set, so that any single bit reads true."""
    kind = answer.WhichOneof("value")
    if kind is None:
        raise LinkError("Siphon: expected a value with GetAttribute's success, found none; is the server damaged?")
    value = getattr(answer, kind)
    if kind == "array_value":
        return bytes(value)
    if kind == "bool_value":
        return b"\xff" if value else b"\0"
    return struct.pack(_FORMATS[kind.removesuffix("_value")], value)


def request_value(attribute: Attribute, data: bytes) -> dict[str, Any]:
    """Return the value of a SetAttribute call by its name there, from the bytes of the attribute's fields."""
    if attribute.type == "array":
        return {"array_value": data}
    if attribute.type == "bool":
        return {"bool_value": any(data)}
    return {f"{attribute.type}_value": struct.unpack(_FORMATS[attribute.type], data)[0]}


def attribute_message(name: str, attribute: Attribute) -> Any:
    """Return an attribute as SetProcessConfig sends it."""
    return messages.ProcessAttributeProto(name=name, **asdict(attribute))


def picture_of(frame: Any) -> Picture:
    """Return a captured frame, BGRA, as (height, width, 3) RGB."""
    pixels = np.frombuffer(frame.frame, np.uint8).reshape(frame.height, frame.width, 4)
    return np.ascontiguousarray(pixels[:, :, 2::-1])


def streamed_picture(frame: Any) -> Picture:
    """Return a streamed frame, JPEG or BGRA, as (height, width, 3) RGB."""
    if frame.format == "jpeg":
        from PIL import Image

        return np.asarray(Image.open(io.BytesIO(frame.data)).convert("RGB"))
    pixels = np.frombuffer(frame.data, np.uint8).reshape(frame.height, frame.width, 4)
    return np.ascontiguousarray(pixels[:, :, 2::-1])
