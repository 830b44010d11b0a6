"""How far apart two samples lie, column by column and as a whole."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]

#: Rows that the energy distance compares: its work grows with their square.
_MOST_ROWS = 1_000


def column_distances(first: npt.ArrayLike, second: npt.ArrayLike) -> Doubles:
    """Return the two-sample Kolmogorov-Smirnov statistic of each column: (n, size), (m, size) -> (size,) in [0, 1]."""
    a, b = np.asarray(first, np.float64), np.asarray(second, np.float64)
    return np.array([_largest_gap(a[:, i], b[:, i]) for i in range(a.shape[1])])


def _largest_gap(a: Doubles, b: Doubles) -> float:
    both = np.concatenate([a, b])
    shares = [np.searchsorted(np.sort(values), both, side="right") / len(values) for values in (a, b)]
    return float(np.abs(shares[0] - shares[1]).max())


def energy_coefficient(first: npt.ArrayLike, second: npt.ArrayLike) -> float:
    """Return the energy coefficient of inhomogeneity of (n, size) and (m, size), in [0, 1]; 0 if they are alike.

    H = (2 E|X - Y| - E|X - X'| - E|Y - Y'|) / (2 E|X - Y|), Szekely & Rizzo (2013), "Energy
    statistics: a class of statistics based on distances". Of long samples every nth row is compared.
    """
    a, b = _thinned(first), _thinned(second)
    between = 2.0 * _mean_distance(a, b)
    if between == 0.0:
        return 0.0
    return max(0.0, (between - _mean_distance(a, a) - _mean_distance(b, b)) / between)


def _thinned(values: npt.ArrayLike) -> Doubles:
    rows = np.asarray(values, np.float64)
    return rows[:: -(-len(rows) // _MOST_ROWS)]


def _mean_distance(a: Doubles, b: Doubles) -> float:
    return float(np.mean([np.linalg.norm(b - row, axis=1).mean() for row in a]))
