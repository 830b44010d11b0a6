"""Metrics of continual learning: pure functions of win rates, each by the formula of its source.

`matrix` (tasks, tasks) has the win rate in task j (columns) after training on task i (rows), `untrained` (tasks,) that
before any training. Everything is a share of episodes. A missing value is nan, and so is whatever needs one and
whatever a formula leaves undefined; nothing undefined is 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]

#: How much less MEAL counts what is forgotten late: exp(-2) at the end of all training.
MEAL_DECAY = 2.0


def mean_of(values: Values) -> float:
    """Return the mean of the values that are defined, in an array of any shape; nan if none is."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else float("nan")


def final_performance(matrix: Values) -> Values:
    """Return the win rate in each task after training on all, (tasks,).

    Its mean is the average performance, ACC of Lopez-Paz & Ranzato (2017), "Gradient episodic memory for continual
    learning", Eq. 2, and P at the end of Wolczyk et al. (2021), "Continual World".
    """
    return np.array(matrix[-1], np.float64)


def own_performance(matrix: Values) -> Values:
    """Return the win rate in each task at the end of its own training, (tasks,).

    Its mean is the learning accuracy of Riemer et al. (2019), "Learning to learn without forgetting by maximizing
    transfer and minimizing interference". Over the position it shows the loss of plasticity.
    """
    return np.array(np.diagonal(matrix), np.float64)


def plasticity_slope(matrix: Values) -> float:
    """Return by how much the end of a task's own training changes from one position to the next, by least squares.

    Below 0 later tasks are learned worse. nan of a single task. The tasks differ in difficulty: compare methods on the
    same sequence.
    """
    own = own_performance(matrix)
    position = np.arange(own.size) - (own.size - 1) / 2.0
    return float(position @ own / (position @ position)) if own.size > 1 else float("nan")


def forgetting(matrix: Values) -> Values:
    """Return what each task lost from the end of its own training to the end of all, (tasks,).

    F_i = p_i(i * D) - p_i(T * D), D being the budget of a task: Wolczyk et al. (2021), "Continual World: a robotic
    benchmark for continual reinforcement learning", who average over all tasks. The last one's is 0.
    """
    return np.asarray(np.diagonal(matrix) - matrix[-1])


def forgetting_from_peak(matrix: Values) -> Values:
    """Return what each task but the last lost from the best it ever had to the end of all, (earlier,).

    f_j = max over l = 1..T-1 of R[l, j] - R[T, j]: Chaudhry et al. (2018), "Riemannian walk for incremental learning",
    Eq. 3. Below 0 it is best at the end.
    """
    return np.asarray(matrix[:-1, :-1].max(axis=0, initial=-np.inf) - matrix[-1, :-1])


def backward_transfer(matrix: Values) -> Values:
    """Return what later training did to each task but the last, (earlier,); below 0 it did harm.

    BWT = 1 / (T - 1) * sum over i = 1..T-1 of R[T, i] - R[i, i]: Lopez-Paz & Ranzato (2017), Eq. 3.
    """
    return np.asarray(matrix[-1, :-1] - np.diagonal(matrix)[:-1])


def zero_shot_transfer(matrix: Values, untrained: Values) -> Values:
    """Return how much training on the tasks before helps in one not trained on yet, of each but the first, (later,).

    FWT = 1 / (T - 1) * sum over i = 2..T of R[i-1, i] - b[i], with b the performance of the untrained agent:
    Lopez-Paz & Ranzato (2017), Eq. 4.
    """
    return np.asarray(np.diagonal(matrix, 1) - untrained[1:])


def returns_of(fights: Sequence[str]) -> list[tuple[int, int]]:
    """Return each task whose fight was a task before, as the positions of that fight's first visit and of this one."""
    return [(first, place) for place, fight in enumerate(fights) if (first := fights.index(fight)) < place]


def returning_rates(matrix: Values, returns: Sequence[tuple[int, int]]) -> Values:
    """Return the win rates of fights that come again, (returns, 4), for the positions of two visits to each.

    They are those at the end of the first visit, in the newest evaluation before the second one begins, and at its end;
    then the third minus the first. The fight is evaluated as either task; in one row, that of the first visit counts.
    """
    rates = []
    for first, again in returns:
        # What was played as the first visit ended counts for what was kept only where the second one follows at once.
        rows = range(again - 1, min(first + 1, again - 1) - 1, -1)
        between = [rate for row in rows for rate in matrix[row, [first, again]] if not np.isnan(rate)]
        own, end = matrix[first, first], matrix[again, again]
        rates.append((own, between[0] if between else np.nan, end, end - own))
    return np.array(rates, np.float64).reshape(-1, 4)


def curve_area(steps: Values, rates: Values, budget: float | None = None) -> float:
    """Return the mean win rate over the steps from 0 to a budget, by trapezoids: Continual World's AUC, in [0, 1].

    `steps` (points,) ascend, `rates` (points,) are the win rates there; the budget is the last step unless given.
    Before the first point stands the first rate; a curve that ends before the budget keeps its last one, and one that
    goes on beyond it is cut there.
    """
    end = float(steps[-1]) if budget is None else budget
    if end <= 0.0:
        return float(rates.mean())
    inside = steps <= end
    x = np.concatenate([[0.0], steps[inside], [end]])
    y = np.concatenate([rates[:1], rates[inside], [np.interp(end, steps, rates)]])
    return float(np.trapezoid(y, x)) / end


def forward_transfer(area: Values, area_alone: Values) -> Values:
    """Return FT_i = (AUC_i - AUC_i^b) / (1 - AUC_i^b): what came before helped while task i was trained, (tasks,).

    `area` (tasks,) is the mean win rate over the steps in the task, `area_alone` (tasks,) that of training it from
    scratch for the same steps: Wolczyk et al. (2021), "Continual World", who average over all tasks. 0 is no help, 1
    success from the first step on; nan where training from scratch succeeded throughout.
    """
    return _ratio(area - area_alone, 1.0 - area_alone)


def isolated_forgetting(matrix: Values, untrained: Values | None = None) -> Values:
    """Return what training on task j took from an earlier task i, (task i, task j); nan elsewhere.

    F[i, j] = (r[i, j-1, end] - r[i, j, end]) / |r[i, all, max]| for i < j: Powers et al. (2022), "CORA: benchmarks,
    baselines, and metrics as a platform for continual reinforcement learning agents". nan where a task was never won.
    """
    return np.where(np.triu(np.ones_like(matrix), 1), _lost(matrix, untrained), np.nan)


def zero_shot_forward_transfer(matrix: Values, untrained: Values | None = None) -> Values:
    """Return what training on task j brought to a later task i, (task i, task j); nan elsewhere.

    Z[i, j] = (r[i, j, end] - r[i, j-1, end]) / |r[i, all, max]| for i > j: Powers et al. (2022), "CORA". What the
    first task brought is nan without the `untrained` agent.
    """
    return np.where(np.tril(np.ones_like(matrix), -1), -_lost(matrix, untrained), np.nan)


def meal_forgetting(matrix: Values) -> Values:
    """Return MEAL's weighted forgetting of each task but the last, (earlier,), in [0, 1].

    The mean over the evaluations after its own training of max(0, e - p) / e, with e the win rate at the end of its
    own training, weighted by exp(-2 t) with t from 0 at the first to 1 at the last: `results_table.py` of Tomilin et
    al. (2025), "MEAL: a benchmark for continual multi-agent reinforcement learning". nan where e is 0.
    """
    lost = []
    for task, own in enumerate(np.diagonal(matrix)[:-1]):
        later = matrix[task + 1 :, task]
        weights = np.exp(-MEAL_DECAY * np.linspace(0.0, 1.0, later.size))
        lost.append(float(weights @ np.maximum(own - later, 0.0) / weights.sum()))
    return _ratio(np.array(lost), np.diagonal(matrix)[:-1])


def meal_peak_forgetting(matrix: Values) -> Values:
    """Return MEAL's other forgetting of each task but the last, (earlier,): max(0, best ever - final).

    The formula `peak_final` of its scripts for figures, Tomilin et al. (2025), which average the last ten points of a
    dense curve for the final value; of one evaluation after each task the final value is the last.
    """
    return np.asarray(np.maximum(matrix[:, :-1].max(axis=0, initial=-np.inf) - matrix[-1, :-1], 0.0))


def meal_forward_transfer(area: Values, area_alone: Values) -> Values:
    """Return MEAL's forward transfer (AUC_i - AUC_i^b) / AUC_i^b, (tasks,): a ratio to training from scratch.

    `area` (tasks,) and `area_alone` (tasks,) as in `forward_transfer`: Tomilin et al. (2025). It has no upper bound;
    nan where training from scratch never won.
    """
    return _ratio(area - area_alone, area_alone)


def _lost(matrix: Values, untrained: Values | None) -> Values:
    """Return what training on task j took from task i, as a share of the best there, (task i, task j)."""
    before = np.full(len(matrix), np.nan) if untrained is None else untrained
    rows = np.vstack([before, matrix])
    best = np.abs(matrix if untrained is None else rows).max(axis=0)
    return _ratio((rows[:-1] - rows[1:]).T, best[:, None])


def _ratio(part: Values, whole: Values) -> Values:
    """Return part / whole, nan where the whole is not above 0."""
    result = np.full(np.broadcast_shapes(part.shape, whole.shape), np.nan)
    np.divide(part, whole, out=result, where=np.broadcast_to(whole > 0.0, result.shape))
    return result
