"""Matrix products for small networks, compiled: tiles of the result are summed in the processor's registers.

Every element is summed in the order of the inner dimension, by fused multiply-add where the processor has it: neither
the tile's size nor the width of vectors changes a bit.
"""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any

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
    rows, vectors = (range(kind.literal_value) for kind in signature.args[:2])
    row, column = arguments[3:5]
    out, left, right = (_Elements(context, builder, signature.args[i], arguments[i]) for i in (2, 5, 6))
    bias, mask = (
        None if signature.args[i] == types.none else _Elements(context, builder, signature.args[i], arguments[i])
        for i in (7, 8)
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
        builder.store(zero if bias is None else load(bias.vector(place, column)), total)
    with cgutils.for_range(builder, right.shape[0]) as loop:
        factors = [load(right.vector(place, loop.index, column)) for place in vectors]
        for index in rows:
            number = everywhere(builder.load(left.at(of_tile[index], loop.index)))
            for place in vectors:
                total = sums[index, place]
                builder.store(builder.call(multiply_add, [number, factors[place], builder.load(total)]), total)
    for (index, place), total in sums.items():
        value = builder.load(total)
        kept = value if mask is None else load(mask.vector(place, of_tile[index], column))
        if bias is not None or mask is not None:
            # NaN is not hidden.
            value = builder.select(builder.fcmp_ordered("<=", kept, zero), zero, value)
        builder.store(value, out.vector(place, of_tile[index], column), align=4)
    return context.get_dummy_value()


def _compiled_tile(
    typing: Any, rows: Any, vectors: Any, out: Any, row: Any, column: Any, left: Any, right: Any, bias: Any, mask: Any
) -> Any:
    for kind in (out, left, right, bias, mask):
        if kind != types.none and (kind.dtype != types.float32 or (kind.layout != "C" and kind != left)):
            raise TypingError(f"product: expected float32 in C order (the left side in any), found {kind}.")
    return types.void(rows, vectors, out, row, column, left, right, bias, mask), _generate_tile


def _plain_tile(
    rows: int, vectors: int, out: Floats, row: int, column: int, left: Floats, right: Floats, bias: Any, mask: Any
) -> None:
    """Compute a tile of `product` without a compiler, as where `NUMBA_DISABLE_JIT` is set."""
    place = slice(row, min(row + rows, len(out))), slice(column, column + vectors * SPAN)
    values = left[place[0], : len(right)] @ right[:, place[1]]
    if bias is not None:
        values = np.maximum(bias[place[1]] + values, np.float32(0.0))
    out[place] = values if mask is None else np.where(mask[place] <= 0.0, np.float32(0.0), values)


_tile: Any = _plain_tile if config.DISABLE_JIT else intrinsic(prefer_literal=True)(_compiled_tile)


@njit
def product(out: Floats, left: Floats, right: Floats, bias: Any, mask: Any) -> None:
    """Multiply (n, k) by (k, m) into `out`; m is a multiple of 16, and columns of `left` beyond k are not read.

    With a `bias` (m,) it is a rectified layer's; elements where a `mask` (n, m) is at most 0 become 0.
    """
    rows, columns = out.shape
    wide = columns - columns % _WIDTH
    for row in range(0, rows, _ROWS):
        for column in range(0, wide, _WIDTH):
            _tile(_ROWS, _VECTORS, out, row, column, left, right, bias, mask)
    for row in range(0, rows, _TALL):
        for column in range(wide, columns, SPAN):
            _tile(_TALL, 1, out, row, column, left, right, bias, mask)


def zeros(*shape: int) -> Floats:
    """Return zeros whose rows begin where vectors do, their columns filled up to whole vectors."""
    *rows, columns = shape
    padded = (*rows, -(-columns // SPAN) * SPAN)
    memory = np.zeros(prod(padded) + SPAN, np.float32)
    start = -memory.ctypes.data // memory.itemsize % SPAN
    return memory[start : start + prod(padded)].reshape(padded)
