"""The sum tree of prioritised replay, against a plain table of priorities."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from soulsgraph_policies.learning.draws import Priorities, _find_rows


@given(
    capacity=st.integers(1, 70),
    updates=st.lists(st.tuples(st.integers(0, 69), st.floats(0, 100, width=32)), max_size=50),
)
def test_tree_gives_every_row_the_stretch_of_its_priority(capacity: int, updates: list[tuple[int, float]]) -> None:
    priorities, table = Priorities(capacity, 0.6), np.ones(capacity)
    priorities.add(np.arange(capacity))
    for row, error in updates:
        priorities.update(np.array([row % capacity]), np.array([error], np.float32))
        table[row % capacity] = (error + 1e-6) ** 0.6
    ends = np.cumsum(table)
    middles = (ends - table / 2) / ends[-1]
    rows = np.empty(capacity, np.int64)
    _find_rows(priorities._tree, middles, rows)
    np.testing.assert_array_equal(rows, np.arange(capacity))


def test_new_rows_get_the_greatest_priority_so_far() -> None:
    priorities = Priorities(4, 1.0)
    priorities.add(np.array([0, 1]))
    priorities.update(np.array([0, 1]), np.array([7.0, 1.0], np.float32))
    priorities.add(np.array([2]))
    rows = priorities.draw(30_000, np.random.default_rng(0))
    np.testing.assert_allclose(np.bincount(rows) / 30_000, [7 / 15, 1 / 15, 7 / 15], atol=0.01)
