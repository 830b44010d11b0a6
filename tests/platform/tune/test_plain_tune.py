"""What the page on tuning shows in plain lines of Ray Tune runs as it is written."""

import subprocess
import sys
from pathlib import Path

import pytest

from fakes.waiting import PATIENCE_S

_PAGE = Path(__file__).parents[3] / "docs" / "tuning.md"


@pytest.mark.slow
def test_the_pages_lines_of_tune_train_a_population(tmp_path: Path) -> None:
    (block,) = (part for part in _PAGE.read_text(encoding="utf-8").split("```python\n")[1:] if "tune.Tuner(" in part)
    program = block.partition("```")[0] + "print(algorithm.decisions)\n"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=3.0 * PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    *_, shown, decisions = done.stdout.splitlines()
    assert 1e-6 < float(shown.split()[0]) < 1.0
    assert int(decisions) == 4_000
