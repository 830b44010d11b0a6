"""Every notebook runs to its end and draws its figures, and is kept without outputs."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from fakes.runs import write_synthetic_records
from fakes.waiting import PATIENCE_S
from soulsgraph import train

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_outputs(path):
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    assert cells
    assert not any(cell.outputs or cell.execution_count for cell in cells)


@pytest.fixture(scope="module")
def environments(tmp_path_factory):
    """Return the variables by which notebooks open something small, by notebook."""
    folder = tmp_path_factory.mktemp("notebooks")
    run = train(run=folder / "run", scale=0.02, quiet=True)
    run.table(episodes=8, quiet=True)
    return {
        "open_a_run": {"SOULSGRAPH_RUN": str(run.path)},
        "compare_runs": {"SOULSGRAPH_RUNS": "iudex-phase1-paper-0,iudex-phase1-best-0"},
        "paper_figures": {"SOULSGRAPH_REPRODUCTION": str(write_synthetic_records(folder / "made"))},
        "begin_in_colab": {"SOULSGRAPH_SCALE": "0.02"},
    }


#: How many pictures each shows.
_PICTURES = {
    "begin_in_colab": 2,
    "compare_runs": 1,
    "examine_a_fight": 2,
    "open_a_run": 1,
    "own_skill": 0,
    "paper_figures": 5,
}


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_its_figures(path, environments, monkeypatch):
    for name, value in environments.get(path.stem, {}).items():
        monkeypatch.setenv(name, value)
    notebook = nbformat.read(path, as_version=4)
    patience_s = int(PATIENCE_S)
    options = {"timeout": 3 * patience_s, "startup_timeout": patience_s, "iopub_timeout": patience_s}
    # An error in a cell is raised here.
    NotebookClient(notebook, resources={"metadata": {"path": str(path.parent)}}, **options).execute()
    shown = [output["data"] for cell in notebook.cells for output in cell.get("outputs", []) if "data" in output]
    assert sum("image/png" in data for data in shown) == _PICTURES[path.stem]
