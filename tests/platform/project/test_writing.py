import re
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.waiting import PATIENCE_S
from soulsgraph.project import begin_project
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.files import WriteError
from soulsgraph_envs.core.scenario import load_scenario


def test_a_project_has_a_skill_a_graph_a_boss_a_reward_a_test_and_a_readme(begun, duel):
    names = {path.relative_to(begun).as_posix() for path in begun.rglob("*") if path.is_file()}
    assert names == {
        "pyproject.toml",
        "README.md",
        "fencing/__init__.py",
        "fencing/parry.py",
        "fencing/data/bosses/duellist.toml",
        "fencing/data/scenarios/duel.toml",
        "tests/test_fencing.py",
    }
    assert not any("@NAME@" in (begun / name).read_text() for name in names)
    assert load_scenario(duel).name == "fencing"


@pytest.mark.parametrize("name", ["Parry", "1st", "class", "x" * 41, "numpy", "ä"])
def test_a_name_that_cannot_be_imported_or_is_taken_is_refused(tmp_path, name):
    with pytest.raises(SoulsGraphError, match=re.escape(name)):
        begin_project(tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_what_is_there_is_never_overwritten(tmp_path):
    (tmp_path / "fencing").mkdir()
    (tmp_path / "fencing" / "thesis.tex").touch()
    with pytest.raises(SoulsGraphError, match="fencing"):
        begin_project(tmp_path / "fencing")
    assert [path.name for path in tmp_path.rglob("*")] == ["fencing", "thesis.tex"]
    (tmp_path / "file").touch()
    with pytest.raises((SoulsGraphError, WriteError)):
        begin_project(tmp_path / "file" / "fencing2")


@pytest.mark.slow
@pytest.mark.parametrize("inside", [True, False])
def test_its_test_runs_in_its_folder_and_in_a_checkout_around_it(tmp_path, inside):
    root = Path(__file__).parents[3]
    (tmp_path / "pyproject.toml").write_text((root / "pyproject.toml").read_text(encoding="utf-8"), encoding="utf-8")
    begin_project(tmp_path / "fencing")
    command = [str(Path(sys.executable).with_name("pytest")), "-q", "-p", "no:cacheprovider"]
    command, folder = (command, tmp_path / "fencing") if inside else ([*command, "fencing"], tmp_path)
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert "2 passed" in done.stdout, done.stdout + done.stderr
