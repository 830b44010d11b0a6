"""Held-out seeds: the table has a row for each kind with the median of its seeds."""

from held_out import table


def _row(name: str, seed: int, wins: int) -> dict[str, object]:
    return {"scenario": name, "seed": seed, "wins": wins, "episodes": 400, "wall_s": 1.0}


def test_a_row_has_the_median_and_how_many_seeds_learned_at_all() -> None:
    rows = [_row("margit", seed, wins) for seed, wins in enumerate([400, 0, 300])]
    (_, _, margit, other) = table({"margit": 99.5}, [*rows, _row("end-to-end", 0, 2)]).splitlines()
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in (margit, other)]
    assert cells[0] == ["margit", "99.5", "75.0", "2 of 3", "100.0, 0.0, 75.0"]
    assert cells[1] == ["end-to-end", "", "0.5", "1 of 1", "0.5"]
