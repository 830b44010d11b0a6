"""What a sweep shows while it goes: a line for each trial that ends."""

from __future__ import annotations

from typing import Any

from ray import tune

from soulsgraph.results.tables import OutputConsole
from soulsgraph.tune.trial import OPTIONS, SEED, WIN_RATE


class TrialLines(tune.Callback):
    """Print a line for each trial that ends; Ray Tune keeps it beside its own state, so that it holds plain values."""

    def __init__(self, trials: int, quiet: bool) -> None:
        self._trials, self._quiet, self._ended = trials, quiet, 0

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Print its setting, seed and last win rate."""
        rate = (trial.last_result or {}).get(WIN_RATE)
        self._print(trial, "no win rate" if rate is None else f"win rate {100.0 * rate:.1f} %")

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Print that it failed; why is in the error at the end."""
        self._print(trial, "failed")

    def _print(self, trial: Any, ended: str) -> None:
        self._ended += 1
        setting = ", ".join(f"{name}={value}" for name, value in trial.config[OPTIONS].items())
        line = f"{self._ended}/{self._trials}: {setting}, seed {trial.config[SEED]}: {ended}"
        OutputConsole(quiet=self._quiet).print(line, highlight=False, soft_wrap=True)
