"""Which training seeds are for what, so that nothing is reported that was calibrated or chosen on.

The seeds of evaluation episodes come from a stream of their own (`judging.evaluation_seeds`), and each
of the three purposes has other episodes.
"""

from __future__ import annotations

from soulsgraph.evaluation import EVALUATION_SEED

#: Boss data was calibrated on these.
CALIBRATION = tuple(range(100, 200))
#: Presets were chosen on these.
CHOOSING = tuple(range(200, 300))
#: Results are reported on these, in this order.
REPORTING = tuple(range(400, 500))


def evaluation_seed(training_seed: int) -> int:
    """Give the seed of the evaluation episodes for agents of a training seed: one for each purpose."""
    purposes = (REPORTING, CALIBRATION, CHOOSING)
    return EVALUATION_SEED + next((i for i, seeds in enumerate(purposes) if training_seed in seeds), 0)
