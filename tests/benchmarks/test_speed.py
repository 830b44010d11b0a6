from speed import bench_simulation


def test_a_limit_is_measured_in_the_rounds_of_the_simulator():
    ours, limit = bench_simulation(lanes=2, ticks=5, rounds=3)
    assert (ours["rounds"], limit["rounds"]) == (3, 3)
    assert ours["unit"] == limit["unit"] == "lane ticks"
