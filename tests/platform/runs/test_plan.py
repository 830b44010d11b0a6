"""Plans: budgets, stages, and their way through JSON."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from soulsgraph.runs.plan import Plan, scenario_digest
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.runs.train import StageSetup
from soulsgraph_envs.core.config import Where, read_file, read_table, to_table
from soulsgraph_envs.core.errors import SoulsGraphError, UnknownNameError
from soulsgraph_envs.skills import END_TO_END, SKILL_NAMES, SkillOptions, budget_of, make_skill
from soulsgraph_policies.learning.hyperparameters import OPTION_NAMES, PRESETS, baseline_hyperparameters, preset_with


def test_default_budgets_add_up_to_the_papers_230k():
    assert sum(map(budget_of, SKILL_NAMES)) == 230_000
    assert [stage.budget for stage in Plan().stages()] == [20_000, 20_000, 20_000, 80_000, 90_000]


def test_stages_follow_the_graph_with_seeds_of_their_own():
    stages = Plan(seed=3).stages()
    assert [stage.skill for stage in stages] == ["camera", "lock_on", "movement", "dodge", "heal_attack"]
    assert len({stage.seed for stage in stages} | {stage.seed for stage in Plan(seed=4).stages()}) == 10


def test_an_adapting_stage_continues_a_version_under_a_name_of_its_own():
    stage = Plan(scale=0.5).stage("dodge", "iudex-phase2", parent=1)
    assert (stage.name, stage.budget, stage.parent) == ("dodge@iudex-phase2", 20_000, 1)
    assert stage.seed != Plan(scale=0.5).stage("dodge").seed


def test_the_baseline_trains_for_250k_steps():
    assert [stage.budget for stage in Plan(graph="end-to-end").stages()] == [250_000]


def test_another_preset_observes_in_its_own_way():
    plan = Plan(preset="extended", skill_options=SkillOptions(hp_window=False))
    assert (plan.options.animations, plan.options.observations) == ("one_hot", "extended")
    assert replace(plan, preset="paper").options == SkillOptions(hp_window=False)


@pytest.mark.parametrize("preset", PRESETS)
def test_the_baseline_takes_nothing_of_a_preset_but_its_lanes(preset, tmp_path):
    plan = Plan(
        preset=preset, graph="end-to-end", overrides={"learning_rate": 1e-2, "animations": "one_hot", "lanes": 2}
    )
    run = RunFolder.create(tmp_path / "run", plan)
    setup = StageSetup(run, plan.stages()[0])
    assert setup.hyperparameters == baseline_hyperparameters(250_000)
    assert setup.skills[-1].observation == make_skill(END_TO_END).observation
    assert (plan.method.lanes, plan.method.steps_per_round) == (2, PRESETS[preset].steps_per_round)


def test_an_option_there_is_none_of_is_refused_for_the_baseline_too():
    with pytest.raises(UnknownNameError, match="double"):
        Plan(graph="end-to-end", overrides={"doubel": True})


PLAN = Where("plan.json", "plan", saved=True)


@given(
    st.integers(0, 2**31 - 1),
    st.floats(0.001, 1000),
    st.sampled_from(["paper", "fast", "best"]),
    st.sampled_from([{}, {"hp_window": False}, {"dodge": {"stamina": "indicator"}}, {"camera": {"bonus": 0.5}}]),
)
@settings(max_examples=25)
def test_a_plan_survives_json(seed, scale, preset, options):
    options = read_table(SkillOptions, options, Where("options.toml"))
    plan = Plan(seed=seed, scale=scale, preset=preset, skill_options=options)
    assert read_table(Plan, json.loads(json.dumps(to_table(plan))), PLAN) == plan


def _key(plan, dotted):
    *tables, last = dotted.split(".")
    for table in tables:
        plan = plan[table]
    return plan, last


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("seed", True, "a whole number from 0 to 2147483647, found True"),
        ("seed", 1.5, "a whole number from 0 to 2147483647, found 1.5"),
        ("seed", 10**400, "a whole number from 0 to 2147483647, found a whole number of 1329 bits"),
        ("seed", -1, "a whole number from 0"),
        ("scale", "1", "a number from 0.001 to 1000, found '1'"),
        ("scale", float("inf"), "a number from 0.001 to 1000, found inf"),
        ("lanes", "8", "a whole number from 1 to 65536, found '8'"),
        ("lanes", False, "a whole number from 1 to 65536, found False"),
        ("env_runners", None, "a whole number from 0 to 1000, found None"),
        ("scenario", 3, "a text, found 3"),
        ("preset", 3, "a text, found 3"),
        ("preset", ["fast"], "a text, found"),
        ("graph", {}, "a text, found"),
        ("overrides", [], "a table, found"),
        ("options", [], "a table, found"),
        ("options.dodge", 3, "a table, found 3"),
        ("options.dodge.alive", float("inf"), "a number from 0 to 1000000, found inf"),
        ("options.dodge.stamina", "dense", "one of change, indicator, none, found 'dense'"),
        ("options.hp_window", 1, "true or false, found 1"),
        ("options.animations", 1, "one of scalar, one_hot, found 1"),
        ("options.dodge.alife", 1.0, "'alive', found an unknown key"),
        ("sede", 2, "'seed', found an unknown key"),
    ],
)
def test_a_plan_with_a_wrong_value_is_refused_with_file_and_key(key, value, message):
    plan = to_table(Plan())
    table, last = _key(plan, key)
    table[last] = value
    with pytest.raises(SoulsGraphError) as caught:
        read_table(Plan, plan, PLAN)
    assert str(caught.value).startswith(f"plan.json: plan.{key}: expected {message}")


@pytest.mark.parametrize("key", [*to_table(Plan()), "options.camera", "options.dodge.alive"])
def test_a_saved_plan_without_one_of_its_keys_is_refused(key):
    plan = to_table(Plan())
    table, last = _key(plan, key)
    del table[last]
    with pytest.raises(SoulsGraphError, match=rf"plan\.json: plan\.{key}: expected .*, found no such key"):
        read_table(Plan, plan, PLAN)


FIGHTS = {
    "its boss": 'based_on = "iudex-phase2"\nname = "own"\nboss = "boss.toml"\n',
    "its second boss": 'based_on = "iudex-full"\nname = "own"\n[transition]\nboss = "boss.toml"\n',
}


def _own_fight(folder, text, damage_factor):
    folder.mkdir()
    boss = f'based_on = "iudex-phase2"\nname = "Harder"\n[scaled]\ndamage_factor = {damage_factor}\n'
    (folder / "boss.toml").write_text(boss)
    (folder / "fight.toml").write_text(text)
    return str(folder / "fight.toml")


@pytest.mark.parametrize("text", FIGHTS.values(), ids=FIGHTS)
def test_a_fights_digest_follows_what_its_files_say_wherever_they_lie(text, tmp_path):
    first, moved = (scenario_digest(_own_fight(tmp_path / name, text, 1.25)) for name in ("here", "there"))
    assert first == moved
    assert scenario_digest(_own_fight(tmp_path / "harder", text, 1.5)) != first


def test_the_scenario_of_vordt_is_the_one_that_skills_were_trained_in():
    # SoulsGym's poses and arena are in scenarios of its own: this one keeps its starts and its ground.
    assert scenario_digest("vordt") == "eca6271da4bdbebdd3cf1bca54e2e1f4a3fc5527bc1ff29704fdd7255bca2cc8"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"preset": "slow"}, "unknown preset: .*found 'slow'"),
        ({"scenario": "nowhere"}, "unknown scenario"),
        ({"scenario": "a\0.toml"}, "scenario: expected a name or the path of a TOML file"),
        ({"scenario": "nowhere.toml"}, r"nowhere\.toml: expected a readable TOML file"),
        ({"overrides": {"double": 2}}, "option double: expected true or false, found 2"),
        ({"lanes": 1_000}, "lanes: expected a value from 1 to 128"),
    ],
)
def test_what_only_the_whole_plan_can_tell_names_its_file_as_well(change, message):
    with pytest.raises(SoulsGraphError, match=rf"plan\.json: plan: .*{message}"):
        read_table(Plan, to_table(Plan()) | change, PLAN)


_NUMBERS = st.one_of(st.integers(), st.integers(-(10**400), 10**400), st.floats())
#: Words that plans have are among the texts.
_WORDS = st.one_of(st.text(max_size=20), st.sampled_from(["fast", "vordt", "paper", "one_hot", "x.toml", "\0.toml"]))
_VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), _NUMBERS, _WORDS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_WORDS, inner, max_size=3)),
    max_leaves=6,
)
_OPTIONS = [*(f"options.{name}" for name in to_table(Plan())["options"]), "options.dodge.alive", "options.camera.new"]
_KEYS = st.sampled_from([*_OPTIONS, *to_table(Plan()), "new"])


def _outcome(read):
    """Return what was read, or the message of a `SoulsGraphError`; other errors are raised."""
    try:
        return read(), None
    except SoulsGraphError as error:
        return None, str(error)


@given(st.dictionaries(_KEYS, _VALUES, max_size=3), st.none() | _KEYS)
@settings(max_examples=80)
def test_any_plan_is_valid_or_refused_in_one_line(tmp_path_factory, changes, removed):
    plan = to_table(Plan())
    # Inner keys come first.
    for key in sorted(changes, key=lambda key: -key.count(".")):
        table, last = _key(plan, key)
        table[last] = changes[key]
    if removed is not None and not any(f"{removed}.".startswith(f"{key}.") for key in changes):
        table, last = _key(plan, removed)
        table.pop(last, None)
    file = tmp_path_factory.mktemp("plan") / "plan.json"
    file.write_text(json.dumps(plan), encoding="utf-8")
    where = Where(file, "plan", "restore it", saved=True)
    read, refused = _outcome(lambda: read_table(Plan, read_file(where), where))
    if refused is None:
        assert read_table(Plan, json.loads(json.dumps(to_table(read))), PLAN) == read
    else:
        assert refused.startswith(str(file))
        assert len(refused.splitlines()) == 1
        assert len(refused) < 2_000


@given(st.dictionaries(st.sampled_from([*OPTION_NAMES, "", "doubel"]), _VALUES, max_size=3))
@settings(max_examples=80)
def test_any_overrides_are_valid_or_refused_in_one_line(overrides):
    preset, refused = _outcome(lambda: preset_with(PRESETS["best"], overrides))
    if refused is None:
        assert set(overrides) <= set(OPTION_NAMES)
        assert json.loads(json.dumps(dict(preset.learning), allow_nan=False)) is not None
    else:
        assert len(refused.splitlines()) == 1
        assert len(refused) < 1_000
