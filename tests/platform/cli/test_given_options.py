"""Given options are distinguished from omitted ones, and a run keeps its own plan."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from soulsgraph.cli import main
from soulsgraph.paper.study import ReproductionFolder, Study
from soulsgraph.runs.plan import Plan
from soulsgraph.runs.run_folder import RunFolder


@pytest.fixture
def run(tmp_path) -> Path:
    RunFolder.create(tmp_path / "run", Plan(scale=0.01))
    return tmp_path / "run"


@pytest.fixture
def unusual(tmp_path) -> Path:
    """A run that differs from every default."""
    plan = Plan(scale=0.01, preset="paper", scenario="vordt", seed=7, lanes=2, env_runners=1, episodes=11)
    RunFolder.create(tmp_path / "unusual", replace(plan, synchronous=True))
    return tmp_path / "unusual"


@pytest.mark.parametrize("command", [("curriculum", "--resume"), ("train", "camera")])
@pytest.mark.parametrize(
    ("option", "default", "kept"),
    [
        ("--preset", "best", "preset = paper"),
        ("--scenario", "iudex-phase1", "scenario = vordt"),
        ("--seed", 0, "seed = 7"),
        ("--scale", 1.0, "scale = 0.01"),
        ("--env-runners", 0, "env_runners = 1"),
        ("--episodes", 400, "episodes = 11"),
    ],
)
def test_a_default_that_was_given_is_told_apart_from_none_given(refuse, unusual, command, option, default, kept):
    message = refuse(*command, "--run", unusual, option, default)
    assert f"its plan has {kept}, found {default}; leave it out of the options" in message


def test_a_flag_of_a_plan_can_be_given_either_way(refuse, run, unusual):
    for folder, option, kept, found in ((run, "synchronous", False, True), (unusual, "no-synchronous", True, False)):
        message = refuse("train", "camera", "--run", folder, f"--{option}")
        assert f"its plan has synchronous = {kept}, found {found}; leave it out of the options" in message


def test_a_run_goes_on_with_what_it_has_or_what_says_the_same(refuse, unusual):
    options = ("--preset", "paper", "--scenario", "vordt", "--seed", 7, "--scale", "1e-2", "--lanes", 2)
    for given in ((), (*options, "--synchronous")):
        assert "expected a Ray cluster to answer" in refuse(
            "curriculum", "--resume", "--run", unusual, "--address", "127.0.0.1:9", *given
        )


def test_given_skill_options_are_compared_by_what_they_say(refuse, run, tmp_path):
    plain, changed = tmp_path / "plain.toml", tmp_path / "changed.toml"
    plain.write_text("[dodge]\nalive = 0.02")
    changed.write_text("[dodge]\nalive = 0.5")
    arguments = ("curriculum", "--resume", "--run", run, "--address", "127.0.0.1:9", "--skill-options")
    assert "expected a Ray cluster to answer" in refuse(*arguments, plain)
    assert "its plan has skill_options = " in refuse(*arguments, changed)


def test_lanes_cannot_be_given_as_none(monkeypatch, capsys, run):
    monkeypatch.setattr("sys.argv", ["soulsgraph", "curriculum", "--resume", "--run", str(run), "--lanes", "None"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    assert "--lanes" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["curriculum", "train", "baseline", "reproduce"])
def test_help_shows_the_default_of_every_option_of_a_plan(monkeypatch, capsys, command):
    monkeypatch.setattr("sys.argv", ["soulsgraph", command, "--help"])
    with pytest.raises(SystemExit):
        main()
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    defaults = {"--preset": "paper" if command == "reproduce" else "best", "--scale": "1.0", "--episodes": "400"}
    defaults |= {"--seeds": "10", "--first-seed": "400"} if command == "reproduce" else {"--seed": "0"}
    for option, default in defaults.items():
        assert re.search(rf"{option} [A-Z]+ [^(]*(\([^d][^)]*\)[^(]*)*\(default: {re.escape(default)}\)", shown), option
    assert "unset" not in shown


@pytest.fixture(scope="module")
def reproduction(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("reproduction") / "out"
    study = Study("paper", (101, 102), 11, 0.01, False, True, True, overrides={"double": True})
    return ReproductionFolder.create(path, study).path


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--preset", "fast"), "preset = paper, found fast"),
        (("--seeds", 10), "seeds = (101, 102), found (101, 102, 103,"),
        (("--first-seed", 400), "seeds = (101, 102), found (400, 401)"),
        (("--episodes", 400), "episodes = 11, found 400"),
        (("--scale", 1.0), "scale = 0.01, found 1.0"),
        (("--baseline",), "baseline = False, found True"),
        (("--no-long-baseline",), "long_baseline = True, found False"),
        (("--set", "double=false"), "overrides = {'double': True}, found {'double': False}"),
        (("--set",), "overrides = {'double': True}, found {}"),
    ],
)
def test_a_reproduction_refuses_a_default_that_was_given_and_is_not_its_own(refuse, reproduction, options, message):
    assert f"its plan has {message}" in refuse("reproduce", "--resume", "--out", reproduction, *options)


def test_a_reproduction_goes_on_with_what_it_has_or_what_says_the_same(refuse, reproduction):
    same = ("--preset", "paper", "--seeds", 2, "--first-seed", 101, "--no-baseline", "--skills", "--set", "double=true")
    for given in ((), same):
        assert "expected a Ray cluster to answer" in refuse(
            "reproduce", "--resume", "--out", reproduction, "--address", "127.0.0.1:9", *given
        )


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("batch_size=70000", "batch_size: expected a whole number from 1 to 65536, found 70000"),
        ("hidden_sizes=[64,5000]", "hidden_sizes[1]: expected a whole number from 1 to 4096, found 5000"),
        ("learning_rate=1e400", "--set learning_rate: expected a finite number, found inf"),
        ("learning_rate=NaN", "--set learning_rate: expected a finite number, found nan"),
        (f"learning_rate={10**400}", "--set learning_rate: expected a whole number of at most 64 bits"),
        (f"n_step={'9' * 5000}", "n_step: expected a whole number from 1 to 1000, found '999"),
        ("hidden_sizes=" + "[" * 50_000, "hidden_sizes: expected at most 32 tables or lists within each other"),
        ("hidden_sizes=" + "[" * 40 + "]" * 40, "expected at most 32 tables or lists within each other"),
        ("n_step=true", "n_step: expected a whole number from 1 to 1000, found True"),
        ("animations=[1]", "animations: expected one of scalar, one_hot, found [1]"),
    ],
)
def test_a_value_set_for_a_reproduction_that_cannot_be(refuse, tmp_path, value, message):
    found = refuse("reproduce", "--set", value, "--out", tmp_path / "out")
    assert message in found
    assert len(found) < 400
    assert not (tmp_path / "out").exists()


def test_options_of_the_learner_are_set_and_a_run_that_goes_on_has_the_same(refuse, tmp_path):
    run = tmp_path / "set"
    RunFolder.create(run, Plan(scale=0.01, overrides={"dodge.gamma": 0.9, "n_step": 3}))
    message = refuse("curriculum", "--resume", "--run", run, "--set", "dodge.gamma=0.8")
    assert "its plan has overrides = {'dodge.gamma': 0.9, 'n_step': 3}, found {'dodge.gamma': 0.8}" in message
    same = ("--set", "n_step=3", "dodge.gamma=0.9", "--address", "127.0.0.1:9")
    assert "expected a Ray cluster to answer" in refuse("curriculum", "--resume", "--run", run, *same)


@pytest.mark.parametrize("command", [("curriculum",), ("train", "camera"), ("baseline",)])
def test_what_cannot_be_set_is_refused_before_a_run_is_begun(refuse, tmp_path, command):
    for text, words in (("gama=1", "Did you mean 'gamma'?"), ("gamma=2", "from 0 to 1, found 2"), ("gamma", "--set:")):
        assert words in refuse(*command, "--run", tmp_path / "run", "--set", text)
    assert not (tmp_path / "run").exists()


def test_an_agent_is_not_copied_for_an_adaptation_that_cannot_be(refuse, tmp_path):
    words = ("iudex-phase1-best-0", "--scenario", "vordt", "--run", tmp_path / "copy", "--set", "dodge.gama=1")
    assert "Did you mean 'gamma'?" in refuse("adapt", *words)
    assert not (tmp_path / "copy").exists()
