"""Which training seeds are for what, so that nothing is reported that was calibrated or chosen on.

The seeds of evaluation episodes come from a stream of their own (`judging.evaluation_seeds`).
"""

from __future__ import annotations

#: Boss data was calibrated on these.
CALIBRATION = tuple(range(100, 200))
#: Presets were chosen on these.
CHOOSING = tuple(range(200, 300))
#: Results are reported on these, in this order.
REPORTING = tuple(range(400, 500))
