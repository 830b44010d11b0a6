"""Which training seeds are for what, so that nothing is reported that was calibrated or chosen on.

The seeds of evaluation episodes come from a stream of their own (`evaluation.evaluation_seeds`), and each
purpose has other episodes.
"""

from __future__ import annotations

from collections.abc import Sequence

from soulsgraph.evaluation import EVALUATION_SEED
from soulsgraph_envs.errors import SoulsGraphError

#: Boss data was calibrated on these.
CALIBRATION = range(100, 200)
#: Presets were chosen on these.
CHOOSING = range(200, 300)
#: Results were first reported on these, in this order.
REPORTING = range(400, 500)
#: Results are confirmed on these, which nobody had used when the presets were committed.
CONFIRMING = range(500, 600)

_PURPOSES = {
    "reporting": REPORTING,
    "calibration": CALIBRATION,
    "choosing": CHOOSING,
    None: (),
    "confirming": CONFIRMING,
}


def evaluation_seed(training_seed: int) -> int:
    """Return the seed of the evaluation episodes for agents of a training seed: one for each purpose, or for none."""
    return EVALUATION_SEED + [*_PURPOSES].index(_purpose(training_seed))


def check_one_purpose(seeds: Sequence[int]) -> None:
    """Refuse seeds of several purposes together.

    Raises:
        SoulsGraphError: naming the purposes and their seeds.
    """
    if len({*map(_purpose, seeds)}) > 1:
        known = ", ".join(f"{name} {group[0]}-{group[-1]}" for name, group in _PURPOSES.items() if name)
        raise SoulsGraphError(
            f"seeds: expected all for one purpose ({known}) or all for none of them, found {min(seeds)} to "
            f"{max(seeds)}; lower --seeds or change --first-seed."
        )


def _purpose(training_seed: int) -> str | None:
    return next((name for name, group in _PURPOSES.items() if training_seed in group), None)
