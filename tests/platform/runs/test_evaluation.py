"""An evaluation reports what it evaluated, on the screen and in files."""

import json

import numpy as np
import pytest

from fakes.fleet_here import played_for
from fakes.realtime import FakeTable
from fakes.runs import pretend_training
from soulsgraph.results.origin import describe_origin, source_commit
from soulsgraph.results.tables import read_rows
from soulsgraph.runs.evaluate import Setting, evaluate, evaluation_seeds
from soulsgraph.runs.plan import Plan
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph_clusters.fleet.protocol.settings import load_fleet
from soulsgraph_clusters.sessions.local_ray import free_port
from soulsgraph_envs.games.link import GameSettings

_WHAT = {
    "scenario": "iudex-phase1",
    "start": "long",
    "trained_on": "iudex-phase1",
    "ablated": ["dodge"],
    "versions": dict.fromkeys(("camera", "lock_on", "movement", "heal_attack"), 1),
    "preset": "paper",
    "training_seed": 3,
    "seed": 9,
    "played_in": "the simulator",
    "commit": source_commit(),
    "packages": describe_origin()["versions"],
    "machine": describe_origin()["machine"],
}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> RunFolder:
    plan = Plan(preset="paper", seed=3, scale=0.01)
    begun = RunFolder.create(tmp_path_factory.mktemp("runs") / "run", plan)
    pretend_training(begun, plan.stages())
    return begun


def test_evaluate_saves_what_it_evaluated_and_every_episode_with_its_seed(run, tmp_path, command):
    words = ("--start", "long", "--random", "dodge", "--episodes", "6", "--seed", "9", "--out", tmp_path / "out")
    printed = json.loads(command("evaluate", run.path, *words, "--json")[1])
    assert {**_WHAT, "run": str(run.path)}.items() <= printed.items()
    assert printed["episodes"] == 6
    assert json.loads((tmp_path / "out" / "evaluation.json").read_text()) == printed
    (row,) = read_rows(tmp_path / "out" / "evaluation.parquet")
    tables = ("ablated", "versions", "packages", "machine")
    assert row | {name: json.loads(row[name]) for name in tables} == printed
    episodes = read_rows(tmp_path / "out" / "episodes.parquet")
    assert [row["seed"] for row in episodes] == evaluation_seeds(9, 6).tolist()
    assert sum(row["won"] for row in episodes) == printed["wins"]
    assert np.isclose(np.mean([row["seconds"] for row in episodes]), printed["mean_seconds"])
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "episodes.parquet", "evaluation.json", "evaluation.parquet",
    ]  # fmt: skip


def test_an_evaluation_in_a_game_says_so(run, tmp_path, monkeypatch):
    monkeypatch.setattr("soulsgraph.runs.evaluate.check_games", lambda games: None)
    monkeypatch.setattr("soulsgraph.runs.evaluate.open_live_game", lambda settings, clock: FakeTable().game)
    randomize = ("camera", "lock_on", "movement", "dodge", "heal_attack")
    setting = Setting("iudex-phase1", "iudex-phase1", None, randomize)
    evaluate(run, setting, 1, 4, (GameSettings(),)).save(tmp_path)
    saved = json.loads((tmp_path / "evaluation.json").read_text())
    assert (saved["played_in"], saved["start"], saved["versions"]) == ("1 real-time game", "mid", {})
    (row,) = read_rows(tmp_path / "evaluation.parquet")
    assert json.loads(row["games"]) == saved["games"]
    assert len(saved["games"]) == 1


def _fleet_file(folder):
    file = folder / "fleet.toml"
    file.write_text(f'listen = "127.0.0.1:{free_port()}"\npcs = ["attic"]\n')
    return file


def test_an_evaluation_on_a_fleet_says_which_game_fought_and_invents_no_seed(run, tmp_path, command):
    file, out = _fleet_file(tmp_path), tmp_path / "out"
    words = ("--fleet", file, "--episodes", "5", "--start", "long", "--random", "dodge", "--out", out)
    with played_for(load_fleet(file), lanes=(4,)):
        printed = json.loads(command("evaluate", run.path, *words, "--json")[1])
    told = {**_WHAT, "run": str(run.path), "seed": None, "played_in": "attic/1 (simulator x 4)", "asked": 5, "lost": 0}
    assert told.items() <= printed.items()
    assert 5 <= printed["episodes"] <= 5 + 3
    (game,) = printed["games"]
    assert game == {
        "name": "attic/1", "driver": "simulator", "lanes": 4, "fights": printed["episodes"], "won": printed["wins"],
    }  # fmt: skip
    assert json.loads((out / "evaluation.json").read_text()) == printed
    (row,) = read_rows(out / "evaluation.parquet")
    assert (row["seed"], row["played_in"]) == (None, "attic/1 (simulator x 4)")
    episodes = read_rows(out / "episodes.parquet")
    assert len(episodes) == printed["episodes"]
    assert {(one["game"], one["lane"]) for one in episodes} == {("attic/1", lane) for lane in range(4)}
    assert not [one for one in episodes if "seed" in one]
    assert sum(one["won"] for one in episodes) == printed["wins"]
