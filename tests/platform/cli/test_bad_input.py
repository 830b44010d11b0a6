"""Bad input: one clear line, exit code 2, nothing half-written."""

import json
import os
import shutil
import signal
import socket
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from fakes.runs import pretend_run
from soulsgraph.cli import main, options
from soulsgraph.results.tables import GrowingTable, write_rows
from soulsgraph.runs.evaluate import CurveEvaluator
from soulsgraph.runs.plan import Plan
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph_envs.core import scenario as catalogue
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.skills import make_skill
from soulsgraph_policies.agents.agent import Agent


@pytest.fixture
def run(tmp_path) -> Path:
    RunFolder.create(tmp_path / "run", Plan(scale=0.01))
    return tmp_path / "run"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("train", "doge"), "Did you mean 'dodge'"),
        (("curriculum", "--scenario", "iudex-phase3"), "unknown scenario"),
        (("curriculum", "--preset", "quick"), "unknown preset"),
        (("curriculum", "--scale", "0"), "scale: expected"),
        (("curriculum", "--lanes", "1000"), "lanes: expected a value from 1 to 128"),
        (("curriculum", "--seed", "-1"), "seed: expected"),
        (("curriculum", "--episodes", "0"), "episodes: expected"),
    ],
)
def test_a_name_or_number_out_of_range(refuse, tmp_path, arguments, message):
    assert message in refuse(*arguments, "--run", tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("command", ["table", "evaluate", "skills", "adapt"])
def test_a_folder_that_is_no_run(refuse, tmp_path, command):
    assert "expected the folder of a run" in refuse(command, tmp_path / "nowhere")


def test_a_folder_with_other_things_in_it_is_not_taken_for_a_new_run(refuse, tmp_path):
    (tmp_path / "diary.txt").write_text("dear")
    assert "empty folder" in refuse("curriculum", "--run", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["diary.txt"]


def test_a_run_that_exists_is_not_begun_again(refuse, run):
    assert "--resume" in refuse("curriculum", "--run", run)


def test_an_option_that_contradicts_the_runs_plan(refuse, run):
    assert "its plan has scale = 0.01" in refuse("curriculum", "--resume", "--run", run, "--scale", 0.5)


def test_a_run_of_another_graph_version(refuse, run):
    plan = run / "plan.json"
    digest = RunFolder.open(run).plan.skill_graph.digest
    plan.write_text(plan.read_text().replace(digest, "0" * 64))
    assert "graph" in refuse("table", run)


def test_a_plan_that_is_damaged(refuse, run):
    (run / "plan.json").write_text("{")
    assert "plan.json" in refuse("table", run)


def test_a_table_without_trained_skills_names_the_first_to_train(refuse, run):
    assert "soulsgraph train camera" in refuse("table", run)


@pytest.mark.parametrize("edit", [("flasks = 1", "flasks = -1"), ("flasks = 1", ""), ("flasks = 1", "flask = 1")])
def test_a_scenario_file_with_a_bad_value(refuse, tmp_path, edit):
    source = Path(catalogue.__file__).parents[1] / "data" / "scenarios" / "iudex-phase1.toml"
    bad = tmp_path / "bad.toml"
    bad.write_text(source.read_text().replace(*edit))
    message = refuse("curriculum", "--scenario", bad, "--run", tmp_path / "new")
    assert "bad.toml" in message
    assert "flask" in message


def test_an_address_where_nobody_answers(refuse, run):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    assert "expected a Ray cluster to answer" in refuse(
        "train", "camera", "--run", run, "--address", f"127.0.0.1:{port}"
    )


def test_nothing_is_begun_where_nobody_answers_or_upstream_skills_are_missing(refuse, tmp_path):
    new = tmp_path / "new"
    assert "expected a Ray cluster to answer" in refuse("curriculum", "--run", new, "--address", "127.0.0.1:9")
    assert "soulsgraph train camera" in refuse("train", "dodge", "--run", new)
    assert not new.exists()


@pytest.mark.parametrize("command", ["curriculum", "train", "baseline", "reproduce"])
def test_nothing_is_begun_by_an_environment_that_ray_cannot_use(refuse, tmp_path, monkeypatch, command):
    new = [
        *(["camera"] if command == "train" else []),
        "--out" if command == "reproduce" else "--run",
        tmp_path / "new",
    ]
    monkeypatch.setenv("RAY_ADDRESS", "head:port")
    assert "found 'head:port'; correct RAY_ADDRESS" in refuse(command, *new)
    monkeypatch.setenv("RAY_ADDRESS", "local")
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))
    assert "expected the file of a token" in refuse(command, *new)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ('token_file = "no-such-token"', "expected a readable token file"),
        ('certificate = "no-such.pem"', "expected the Siphon server's certificate"),
        ('host = "game-pc:port"', "expected an address as HOST:PORT"),
        ('map = "dark-souls-9"', "dark-souls-9"),
    ],
)
def test_nothing_is_begun_for_a_game_that_cannot_be_reached_by_its_settings(
    refuse, tmp_path, monkeypatch, setting, message
):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    games = tmp_path / "games.toml"
    games.write_text(f'[[games]]\ndriver = "siphon"\n{setting}\n')
    assert message in refuse("train", "camera", "--run", tmp_path / "new", "--games", games)
    assert not (tmp_path / "new").exists()


def test_a_stage_whose_upstream_skills_are_missing(refuse, run):
    assert "soulsgraph train camera" in refuse("train", "dodge", "--run", run)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--skills", "dodge,parry"), "unknown skill"),
        (("--skills", ""), "found none"),
        (("--scenario", "iudex-phase1"), "another scenario"),
        (("--scenario", "nameless-king"), "unknown scenario"),
    ],
)
def test_an_adaptation_of_nothing(refuse, run, arguments, message):
    assert message in refuse("adapt", run, *arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("evaluate", "--episodes", "0"), "episodes: expected"),
        (("evaluate", "--seed", "-1"), "seed: expected"),
        (("evaluate", "--seed", str(2**64)), "seed: expected"),
        (("table", "--episodes", "-5"), "episodes: expected"),
        (("adapt", "--budget", "0"), "budget: expected"),
        (("adapt", "--budget", str(10**15)), "budget: expected"),
    ],
)
def test_a_number_out_of_range_for_a_run(refuse, run, arguments, message):
    assert message in refuse(arguments[0], run, *arguments[1:])


def test_a_benchmark_of_no_rounds(refuse):
    assert "rounds: expected" in refuse("bench", "sim", "--rounds", "0")


def test_a_plan_whose_options_are_no_table(refuse, run):
    plan = json.loads((run / "plan.json").read_text())
    plan["plan"]["options"] = []
    (run / "plan.json").write_text(json.dumps(plan))
    assert "plan.options: expected a table" in refuse("table", run)


def test_a_damaged_skill_is_named_and_left_as_it_is(refuse, run, tmp_path):
    (run / "library" / "camera" / "v1").mkdir(parents=True)
    card = run / "library" / "camera" / "v1" / "card.json"
    card.write_text("not json")
    assert "card.json" in refuse("skills", run)
    assert card.read_text() == "not json"


@pytest.fixture
def skilled(tmp_path) -> Path:
    return pretend_run(tmp_path / "run", Plan(scale=0.01)).path


def test_results_that_cannot_be_written_are_refused_before_anything_is_played(refuse, skilled, tmp_path, monkeypatch):
    monkeypatch.setattr("soulsgraph.runs.evaluate.evaluate", lambda *_: pytest.fail("played"))
    (tmp_path / "file").touch()
    assert "expected a place to write to" in refuse("evaluate", skilled, "--out", tmp_path / "file" / "results")


def test_skills_refuses_what_evaluate_refuses(refuse, skilled):
    weights = skilled / "library" / "lock_on" / "v1" / "weights.safetensors"
    good = weights.read_bytes()
    weights.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    rest = ("--randomize", "movement,dodge,heal_attack", "--episodes", 1)
    assert refuse("skills", skilled) == refuse("evaluate", skilled, *rest)
    assert f"{weights}: expected sha256" in refuse("skills", skilled)


def test_skills_refuses_another_upstream_than_a_skill_was_trained_on(refuse, skilled):
    card = skilled / "library" / "camera" / "v1" / "card.json"
    values = json.loads(card.read_text())
    library = RunFolder.open(skilled).library
    other = replace(library.card("camera", 1), observation_clip=9.0)
    card.write_text(json.dumps(values | other.to_dict()))
    assert "that lock_on v1 was trained on" in refuse("skills", skilled)


def test_skills_refuses_a_folder_that_cannot_be_read(refuse, skilled):
    folder = skilled / "library" / "lock_on"
    shutil.rmtree(folder)
    folder.symlink_to(folder)
    assert f"{folder}: expected to read it, found: Too many levels of symbolic links" in refuse("skills", skilled)


def test_a_folder_below_a_file_cannot_be_written(refuse, tmp_path):
    (tmp_path / "file").write_text("")
    message = refuse("curriculum", "--run", tmp_path / "file" / "run")
    assert "expected a place to write to" in message


@pytest.mark.skipif(shutil.which("mount") is None or os.geteuid() != 0, reason="needs root to mount a read-only folder")
def test_a_read_only_folder(refuse, tmp_path):
    place = tmp_path / "read-only"
    place.mkdir()
    if os.system(f"mount -t tmpfs -o ro tmpfs {place} 2>/dev/null"):
        pytest.skip("this machine lets nobody mount")
    try:
        assert "writable disk" in refuse("curriculum", "--run", place / "run")
    finally:
        os.system(f"umount {place}")


def test_a_baseline_is_not_resumed_as_a_curriculum_nor_the_other_way_round(refuse, run, tmp_path):
    RunFolder.create(tmp_path / "baseline", Plan(graph="end-to-end", scale=0.01))
    assert "soulsgraph baseline --resume" in refuse("curriculum", "--resume", "--run", tmp_path / "baseline")
    assert "soulsgraph curriculum --resume" in refuse("baseline", "--resume", "--run", run)


def test_a_resumed_baseline_refuses_an_option_that_contradicts_its_plan(refuse, tmp_path):
    RunFolder.create(tmp_path / "baseline", Plan(graph="end-to-end", scale=0.01))
    assert "its plan has seed = 0" in refuse("baseline", "--resume", "--run", tmp_path / "baseline", "--seed", 3)


def test_a_scenario_file_edited_under_a_run_is_noticed(refuse, tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('based_on = "iudex-phase1"\nname = "mine"\nflasks = 3\n')
    run = RunFolder.create(tmp_path / "run", Plan(scenario=str(file), scale=0.01))
    assert RunFolder.open(run.path).plan.stage("dodge", parent=1).name == "dodge@mine"
    file.write_text(file.read_text().replace("flasks = 3", "flasks = 4"))
    assert "it changed" in refuse("table", run.path)


def test_a_scenario_file_is_found_from_another_working_folder(tmp_path, monkeypatch):
    (tmp_path / "mine.toml").write_text('based_on = "iudex-phase1"\nname = "mine"\nflasks = 3\n')
    monkeypatch.chdir(tmp_path)
    RunFolder.create(tmp_path / "run", Plan(scenario="mine.toml", scale=0.01))
    monkeypatch.chdir("/")
    assert RunFolder.open(tmp_path / "run").plan.scenario == str(tmp_path / "mine.toml")


def test_a_foreign_table_in_a_run_is_named(tmp_path):
    write_rows(tmp_path / "training.parquet", [{"name": "somebody else's"}])
    with pytest.raises(SoulsGraphError, match="no column 'stage'"):
        GrowingTable(tmp_path / "training.parquet")


def test_a_damaged_checkpoint_of_a_curve_is_named(tmp_path):
    agent = Agent(load_scenario("iudex-phase1"), (make_skill("camera"),), replaced={"camera": "random"})
    (tmp_path / "step-000001000.safetensors").write_bytes(b"nothing of the kind")
    evaluator = CurveEvaluator(tmp_path, agent, clip=10.0)
    with pytest.raises(SoulsGraphError, match="step-000001000"):
        evaluator.take_up(set(), 2_000)


@pytest.mark.parametrize("answered_by", ["us", "ray"])
def test_termination_outside_a_stage_ends_with_a_message(monkeypatch, capsys, run, answered_by):
    def terminated(*_: object) -> None:
        if answered_by == "ray":
            signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(number))
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr("soulsgraph.cli.output.OutputOptions.show", terminated)
    monkeypatch.setattr("sys.argv", ["soulsgraph", "skills", str(run), "--json"])
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 130
    assert "terminated" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--preset", "quick"), "unknown preset"),
        (("--seeds", "0"), "seeds: expected"),
        (("--set", "doubel=true"), "unknown option"),
        (("--set", "double"), "OPTION=VALUE"),
        (("--resume",), "found no reproduction.json"),
    ],
)
def test_a_reproduction_that_cannot_be_begun_leaves_nothing(refuse, tmp_path, arguments, message):
    assert message in refuse("reproduce", *arguments, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_report_of_a_folder_without_records(refuse, tmp_path):
    assert "expected the folder of a reproduction" in refuse("report", tmp_path / "nowhere")


@pytest.mark.parametrize("seed", [-1, -(10**30)])
def test_a_stand_in_takes_no_seed_below_0(refuse, seed):
    assert "seed: expected an integer of at least 0" in refuse("standin", "--seed", seed)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--fleet", "--env-runners", 2), 'start `soulsgraph host` with driver = "simulator"'),
        (("--fleet", "--synchronous"), "expected --synchronous or --fleet, found both"),
        (("--games", "--synchronous"), "expected --synchronous or --games, found both"),
    ],
)
@pytest.mark.parametrize("command", [("train", "camera"), ("curriculum",)])
def test_what_has_no_effect_on_games_in_real_time_is_refused_before_anything_starts(
    refuse, tmp_path, monkeypatch, command, words, message
):
    monkeypatch.setattr(options, "ray_session", lambda *_: pytest.fail("a session was started"))
    games = words[0] == "--games"
    file, run = tmp_path / "file.toml", tmp_path / "run"
    file.write_text('[[games]]\ndriver = "simulator"\n' if games else 'listen = "127.0.0.1:0"\n')
    assert message in refuse(*command, "--run", run, words[0], file, *words[1:])
    assert not run.exists()


_BOSSES = ("continual", "bosses")
_OWN = 'based_on = "iudex-phase1"\nname = "own"\n'


@pytest.mark.parametrize(
    ("words", "text", "message"),
    [
        (_BOSSES, 'name = "x"\n[[tasks]]\nscenario = "vordt"\n[[tasks]]\nscenario = "vord"',
         "mine.toml: tasks[1].scenario: unknown scenario: expected one of"),
        (_BOSSES, 'name = "x"\n[[tasks]]\nscenario = "generated/tming/1"',
         "mine.toml: tasks[0].scenario: unknown family of generated bosses: expected one of"),
        (_BOSSES, 'name = "x"\n[[tasks]]\nscenario = "gone.toml"', "mine.toml: tasks[0].scenario: expected a name or"),
        (_BOSSES, 'name = "x"\n[[tasks]]\nscenario = "other.toml"',
         "other.toml: boss: unknown boss: expected one of iudex-phase1"),
        (_BOSSES, f'{_OWN}boss = "gone.toml"', "mine.toml: boss: expected a name or the path of a TOML file"),
        (_BOSSES, f'{_OWN}player = "knigth"', "mine.toml: player: unknown player: expected one of"),
        (_BOSSES, 'based_on = "iudex"\nname = "own"', "mine.toml: based_on: unknown scenario: expected one of"),
        (_BOSSES, 'based_on = "iudex-full"\nname = "x"\n[transition]\nboss = "x"',
         "mine.toml: transition.boss: unknown boss: expected one of"),
        (("train", "camera", "--run", "new", "--games"), '[[games]]\ndriver = "memory"\nmap = "ds"',
         "mine.toml: games[0].map: unknown address map: expected one of"),
        (("train", "camera", "--run", "new", "--games"), '[[games]]\ndriver = "siphon"\nbindings = "x"',
         "mine.toml: games[0].bindings: unknown bindings: expected one of"),
        (("sweep", "--run", "new"), "gama = [0.9]", "mine.toml: gama: unknown option: expected one of"),
        (("sweep", "--run", "new"), "[dodge]\ngama = [0.9]", "mine.toml: dodge.gama: unknown option of a skill"),
    ],
)  # fmt: skip
def test_a_name_in_a_file_that_is_unknown_is_refused_with_the_file_and_the_key(
    refuse, tmp_path, monkeypatch, words, text, message
):
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text(text)
    Path("other.toml").write_text(f'{_OWN}boss = "nobody"')
    assert message in refuse(*words, "mine.toml")
    assert not Path("new").exists()
