import numpy as np

from speed import MemorySweep, UpdateProducts, bench_simulation


def test_a_limit_is_measured_in_the_rounds_of_the_simulator():
    ours, limit = bench_simulation(lanes=2, ticks=5, rounds=3)
    assert (ours["rounds"], limit["rounds"]) == (3, 3)
    assert ours["unit"] == limit["unit"] == "lane ticks"


def test_a_sweep_reads_and_writes_every_lane_in_every_frame():
    sweep = MemorySweep(lanes=3)
    sweep.run(ticks=4)
    assert sweep.lane_ticks == 12
    # Six frames of 1/60 s in a tick of 0.1 s.
    np.testing.assert_array_equal(sweep._values, 24.0)


def test_products_are_those_of_an_update():
    products = UpdateProducts((7, 64, 32, 2), batch_size=16)
    products.run(2)
    assert products.done == 2
    for rows, weight, result in products._layers:
        np.testing.assert_allclose(result, rows @ weight, rtol=1e-5)
    assert [weight.shape for _, weight, _ in products._layers] == [(7, 64), (64, 32), (32, 2)]
