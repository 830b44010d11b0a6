"""What a sweep's space may hold, and what is refused before anything is trained."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ray import tune
from ray.tune.search.repeater import TRIAL_INDEX

from soulsgraph.runs.plan import Plan
from soulsgraph.tune.folder import Sweep, SweepFolder, SweptRun
from soulsgraph.tune.space import SearchRange, SearchSpace, load_space, read_space
from soulsgraph.tune.tuners import RepeatedSearch, _search
from soulsgraph_envs.core.config import Where
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.skills import SKILL_NAMES

WHERE = Where(None, "space")


def space_of(text: str, folder: Path) -> SearchSpace:
    (file := folder / "space.toml").write_text(text, encoding="utf-8")
    return load_space(file, SKILL_NAMES)


def test_lists_ranges_and_tables_of_skills_are_read(tmp_path: Path) -> None:
    text = "fcnet_hiddens = [[64, 64], [32, 32]]\n[dodge]\ngamma = [0.97]\nn_step = {low = 1, high = 4}\n"
    space = space_of(text, tmp_path)
    assert space.lists == {"fcnet_hiddens": ([64, 64], [32, 32]), "dodge.gamma": (0.97,)}
    assert space.ranges == {"dodge.n_step": SearchRange(1, 4)}


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("gamma = 0.98", "gamma"),
        ("gamma = []", "gamma"),
        ("gamma = [0.9, 0.9]", "gamma"),
        ("", "option"),
        ("gamma = {low = 0.9}", r"gamma\.high"),
        ("gamma = {low = 0.9, high = 0.8}", "low"),
        ("gamma = {low = 0.0, high = 0.8, log = true}", "low"),
        ("gamma = {low = 0.1, high = 0.8, logg = true}", "logg"),
        ("[dodge.gamma.deeper]\nx = [1]", r"dodge\.gamma"),
        ("[doge]\ngamma = [0.9]", r"doge\.gamma"),
        ("gamma = [", "TOML"),
    ],
)
def test_a_space_that_cannot_be_searched_is_refused_by_its_place(text: str, name: str, tmp_path: Path) -> None:
    with pytest.raises(SoulsGraphError, match=rf"space\.toml.*{name}"):
        space_of(text, tmp_path)


@pytest.mark.parametrize(
    ("table", "search", "name"),
    [
        ({"gamma": [0.9, 2.0]}, "grid", "gamma"),
        ({"dodge": {"gamma": [0.9, 2.0]}}, "grid", "gamma"),
        ({"gamma": {"low": 0.9, "high": 2.0}}, "random", "gamma"),
        ({"gamma": {"low": 0.9, "high": 0.99}}, "grid", "search"),
        ({"gamma": [index / 1e5 for index in range(10_001)]}, "grid", "search"),
    ],
)
def test_an_option_that_no_trial_could_have_is_refused(table: object, search: str, name: str) -> None:
    with pytest.raises(SoulsGraphError, match=name):
        Sweep(Plan(), read_space(table, WHERE, SKILL_NAMES), search=search)  # type: ignore[arg-type]


def test_a_sweep_counts_the_decisions_of_all_skills_that_its_last_stage_trains() -> None:
    space = read_space({"gamma": [0.9]}, WHERE, SKILL_NAMES)
    joint = Plan(preset="whole").stages()[-1]
    assert Sweep(Plan(preset="whole"), space).budget == sum(part.budget for part in joint.parts) > joint.budget
    dodge = SweptRun("iudex-phase1-best-0", "iudex-phase1", ("dodge",))
    assert Sweep(Plan(), space, stage="dodge", source=dodge).budget == Plan().budget("dodge")


def test_a_grid_has_every_combination_on_every_seed() -> None:
    sweep = Sweep(
        Plan(), read_space({"gamma": [0.9, 0.8], "dodge": {"n_step": [1, 2, 3]}}, WHERE, SKILL_NAMES), seeds=(7, 9)
    )
    assert sweep.trials == 12
    settings = [*sweep.space.grid()]
    assert len({tuple(setting.items()) for setting in settings}) == 6
    plan = sweep.plan_of(settings[-1], 9)
    assert plan.seed == 9
    assert plan.hyperparameters(plan.stage("dodge")).n_step == 3
    assert plan.hyperparameters(plan.stage("camera")).n_step == 1
    assert {plan.hyperparameters(stage).gamma for stage in plan.stages()} == {0.8}


@given(low=st.integers(1, 50), width=st.integers(1, 50), log=st.booleans())
def test_a_range_of_whole_numbers_is_drawn_with_both_ends(low: int, width: int, log: bool) -> None:
    space = read_space({"n_step": {"low": low, "high": low + width, "log": log}}, WHERE, SKILL_NAMES)
    domain = space.domains("random")["n_step"]
    assert isinstance(domain, tune.search.sample.Integer)
    drawn = domain.sample(size=50)
    assert all(low <= number <= low + width for number in drawn)
    assert domain.upper == low + width + 1


def test_what_a_population_changes_stays_within_the_space() -> None:
    table = {"n_step": {"low": 1, "high": 4}, "lr": {"low": 1e-4, "high": 1e-2}, "gamma": [0.9, 0.99]}
    space = read_space(table, WHERE, SKILL_NAMES)
    assert space.clipped({"n_step": 5, "lr": 1e-5, "gamma": 0.9}) == {"n_step": 4, "lr": 1e-4, "gamma": 0.9}
    assert space.clipped({"n_step": 2, "lr": 2e-4, "gamma": 0.99}) == {"n_step": 2, "lr": 2e-4, "gamma": 0.99}


def test_a_folder_goes_on_with_its_own_plan(tmp_path: Path) -> None:
    sweep = Sweep(
        Plan(scale=0.1), read_space({"gamma": [0.9], "dodge": {"n_step": [2]}}, WHERE, SKILL_NAMES), seeds=(3,)
    )
    SweepFolder.create(tmp_path / "sweep", sweep)
    folder = SweepFolder.open(tmp_path / "sweep")
    assert folder.plan == sweep
    (setting,) = folder.plan.space.grid()
    path = folder.run_path(setting, 3, "a-trial")
    assert folder.run(path, setting, 3).plan == folder.run(path, setting, 3).plan == sweep.plan_of(setting, 3)
    with pytest.raises(SoulsGraphError, match=r"sweep\.json"):
        SweepFolder.open(tmp_path)


def test_a_repeated_search_goes_on_with_its_repetitions_where_it_was_saved(tmp_path: Path) -> None:
    asked = Sweep(Plan(), SearchSpace({}, {"gamma": SearchRange(0.9, 0.99)}), (1, 2), search="optuna", samples=2)
    one, other = _search(asked), _search(asked)
    assert isinstance(one, RepeatedSearch)
    assert isinstance(other, RepeatedSearch)
    for search in (one, other):
        search.set_search_properties("win_rate", "max", {"setting": asked.space.domains("optuna")})
    first = one.suggest("a")
    assert first is not None
    one.save(str(tmp_path / "search"))
    other.restore(str(tmp_path / "search"))
    second = other.suggest("b")
    assert second is not None
    assert second["setting"] == first["setting"]
    assert [config[TRIAL_INDEX] for config in (first, second)] == [0, 1]
    for trial in ("a", "b"):
        other.on_trial_complete(trial, {"win_rate": 0.5})
    third = other.suggest("c")
    assert third is not None
    assert third["setting"] != first["setting"]
