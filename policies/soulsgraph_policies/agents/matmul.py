"""Matrix products for small networks, compiled: tiles of the result are summed in the processor's registers.

Every element is summed in the order of the inner dimension: neither the tile's size nor the width of vectors changes
a bit. `product`, of training, adds by fused multiply-add where the processor has it; `linear`, of play, rounds every
product first, as plain loops do.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import config, njit, types
from numba.core import cgutils
from numba.core.codegen import get_host_cpu_features
from numba.core.errors import TypingError
from numba.extending import intrinsic

from soulsgraph_envs.core.compiling import checksum

Floats = npt.NDArray[np.float32]

#: Checksum of the code; compiled functions that call it enclose it.
PRODUCTS = checksum([Path(__file__)])
#: Floats in a vector of the code; a processor with narrower ones takes several for it.
SPAN = 16
#: Rows of a tile, and vectors in each: as many sums as fit into the processor's registers, 32 or 16.
_ROWS = 6
_VECTORS = 4 if "+avx512f" in (config.CPU_FEATURES or get_host_cpu_features()) else 1
_WIDTH = _VECTORS * SPAN
#: Rows of a tile that is one vector wide.
_TALL = 2 * _ROWS

_WORD, _VECTOR = ir.IntType(64), ir.VectorType(ir.FloatType(), SPAN)


class _Elements:
    """The addresses of an array's elements, in the code that is generated for a call."""

    def __init__(self, context: Any, builder: Any, kind: Any, value: Any) -> None:
        array = context.make_array(kind)(context, builder, value)
        self.shape = cgutils.unpack_tuple(builder, array.shape, kind.ndim)
        self._strides = cgutils.unpack_tuple(builder, array.strides, kind.ndim)
        self._builder, self._start = builder, builder.bitcast(array.data, ir.IntType(8).as_pointer())

    def at(self, *indices: Any) -> Any:
        offset = _WORD(0)
        for index, stride in zip(indices, self._strides, strict=True):
            offset = self._builder.add(offset, self._builder.mul(index, stride))
        return self._builder.bitcast(self._builder.gep(self._start, [offset]), ir.FloatType().as_pointer())

    def vector(self, place: int, *indices: Any) -> Any:
        """Return the address of the vector `place` vectors after an element."""
        start = self._builder.gep(self.at(*indices), [_WORD(place * SPAN)])
        return self._builder.bitcast(start, _VECTOR.as_pointer())


def _generate_tile(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Generate the code of `_tile`: `rows` times `vectors` sums in registers, over the inner dimension."""
    fused, *size = (kind.literal_value for kind in signature.args[:3])
    rows, vectors = map(range, size)
    row, column = cgutils.unpack_tuple(builder, arguments[3])
    operands = zip(signature.args[4], cgutils.unpack_tuple(builder, arguments[4]), strict=True)
    out, left, right, bias, mask = (
        kind != types.none and _Elements(context, builder, kind, operand) for kind, operand in operands
    )
    multiply_add = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(_VECTOR, [_VECTOR] * 3), f"llvm.fmuladd.v{SPAN}f32"
    )
    zero, undefined = _VECTOR(None), _VECTOR(ir.Undefined)
    same = ir.VectorType(ir.IntType(32), SPAN)(None)
    # A row beyond the last is the last one once more: a tile has no smaller sisters to compile.
    last = builder.sub(out.shape[0], _WORD(1))
    wanted = [builder.add(row, _WORD(index)) for index in rows]
    of_tile = [builder.select(builder.icmp_signed("<", index, last), index, last) for index in wanted]
    sums = {(index, place): cgutils.alloca_once(builder, _VECTOR) for index in rows for place in vectors}

    def load(address: Any) -> Any:
        return builder.load(address, align=4)

    def everywhere(number: Any) -> Any:
        return builder.shuffle_vector(builder.insert_element(undefined, number, ir.IntType(32)(0)), undefined, same)

    for (_, place), total in sums.items():
        builder.store(load(bias.vector(place, column)) if bias else zero, total)
    with cgutils.for_range(builder, right.shape[0]) as loop:
        factors = [load(right.vector(place, loop.index, column)) for place in vectors]
        for index in rows:
            number = everywhere(builder.load(left.at(of_tile[index], loop.index)))
            for place in vectors:
                total = builder.load(sums[index, place])
                if fused:
                    total = builder.call(multiply_add, [number, factors[place], total])
                else:
                    total = builder.fadd(total, builder.fmul(number, factors[place]))
                builder.store(total, sums[index, place])
    for (index, place), total in sums.items():
        value = builder.load(total)
        kept = load(mask.vector(place, of_tile[index], column)) if mask else value
        if fused and (bias or mask):
            # NaN is not hidden.
            value = builder.select(builder.fcmp_ordered("<=", kept, zero), zero, value)
        builder.store(value, out.vector(place, of_tile[index], column), align=4)
    return context.get_dummy_value()


def _compiled_tile(typing: Any, fused: Any, rows: Any, vectors: Any, place: Any, operands: Any) -> Any:
    out, left, *others = operands
    for kind in (out, left, *others):
        if kind != types.none and (kind.dtype != types.float32 or (kind.layout != "C" and kind != left)):
            raise TypingError(f"product: expected float32 in C order (the left side in any), found {kind}.")
    return types.void(fused, rows, vectors, place, operands), _generate_tile


def _plain_tile(fused: bool, rows: int, vectors: int, corner: tuple[int, int], operands: tuple[Any, ...]) -> None:
    """Compute a tile without a compiler, as where `NUMBA_DISABLE_JIT` is set."""
    (row, column), (out, left, right, bias, mask) = corner, operands
    place = slice(row, min(row + rows, len(out))), slice(column, column + vectors * SPAN)
    values = left[place[0], : len(right)] @ right[:, place[1]]
    if bias is not None:
        values = bias[place[1]] + values
    if fused and bias is not None:
        values = np.maximum(values, np.float32(0.0))
    out[place] = values if mask is None else np.where(mask[place] <= 0.0, np.float32(0.0), values)


_tile: Any = _plain_tile if config.DISABLE_JIT else intrinsic(prefer_literal=True)(_compiled_tile)


def _build(fused: bool) -> Callable[..., None]:
    @njit
    def multiply(out: Floats, left: Floats, right: Floats, bias: Any, mask: Any) -> None:
        operands = (out, left, right, bias, mask)
        rows, columns = out.shape
        wide = columns - columns % _WIDTH
        for row in range(0, rows, _ROWS):
            for column in range(0, wide, _WIDTH):
                _tile(fused, _ROWS, _VECTORS, (row, column), operands)
        for row in range(0, rows, _TALL):
            for column in range(wide, columns, SPAN):
                _tile(fused, _TALL, 1, (row, column), operands)

    return cast(Callable[..., None], multiply)


#: Multiply (n, k) by (k, m) into `out`; m is a multiple of 16, and columns of `left` beyond k are not read. With a
#: `bias` (m,) it is a rectified layer's; elements where a `mask` (n, m) is at most 0 become 0.
product = _build(fused=True)
#: Write a layer's values, with its `bias` and not rectified: every product is rounded before it is added.
linear = _build(fused=False)


def filled(columns: int) -> int:
    """Return a number of columns filled up to whole vectors."""
    return (columns + SPAN - 1) // SPAN * SPAN


def zeros(*shape: int) -> Floats:
    """Return zeros of a shape whose last size is `filled` up to whole vectors; each row begins where a vector does."""
    *rows, columns = shape
    padded = (*rows, filled(columns))
    memory = np.zeros(prod(padded) + SPAN, np.float32)
    start = -memory.ctypes.data // memory.itemsize % SPAN
    return memory[start : start + prod(padded)].reshape(padded)
