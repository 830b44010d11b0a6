"""Tables 2 and 3, Eq. 10-14 and Appendix C, against the skills."""

import numpy as np
import pytest

from soulsgraph_envs.core.config import Where, validate
from soulsgraph_envs.core.errors import DataError, SoulsGraphError, UnknownNameError
from soulsgraph_envs.core.scenario import load_boss, load_player, load_scenario, scenario_names
from soulsgraph_envs.core.state import STATE_SIZE, Column
from soulsgraph_envs.skills import END_TO_END, Decisions, SkillOptions, load_skill_options, make_skill
from soulsgraph_envs.skills.paper_skills import CameraReward

PHASE_1 = load_scenario("iudex-phase1")


def decisions(before=None, after=None, action=0, died=False, won=False) -> Decisions:
    rows = np.zeros((2, 1, STATE_SIZE), np.float32)
    for row, values in zip(rows, (before or {}, after or {}), strict=True):
        for column, value in values.items():
            row[0, column] = value
    return Decisions(rows[0], rows[1], np.array([action]), np.array([died]), np.array([won]))


def reward(name: str, options: SkillOptions | None = None, **kwargs) -> float:
    return float(make_skill(name, options).reward.evaluate(decisions(**kwargs)).sum())


def options(**values) -> SkillOptions:
    return validate(SkillOptions, values, Where("test"))


@pytest.mark.parametrize(
    ("name", "observations", "actions", "horizon"),
    [
        ("camera", 7, 5, 128),
        ("lock_on", 2, 2, 64),
        ("movement", 6, 9, 128),
        ("dodge", 7, 2, 512),
        ("heal_attack", 11, 3, 1024),
        ("end_to_end", 25, 16, 2048),
    ],
)
def test_dimensions_and_horizons_of_tables_2_and_3_and_appendix_c(name, observations, actions, horizon):
    skill = make_skill(name)
    assert (skill.observation.size, len(skill.actions), skill.horizon) == (observations, actions, horizon)


def test_camera_reward_is_equation_10_with_the_bonus_inside_the_tolerance():
    assert reward("camera", after={Column.CAMERA_TARGET_ANGLE: 1.5}) == pytest.approx(-1.5)
    assert reward("camera", after={Column.CAMERA_TARGET_ANGLE: 0.5}) == pytest.approx(1 - 0.5)
    assert reward("camera", options(camera={"bonus": 0}), after={Column.CAMERA_TARGET_ANGLE: 0.5}) == -0.5


def test_lock_on_reward_is_equation_11():
    assert reward("lock_on", after={Column.LOCKED: 1}) == 1.0
    assert reward("lock_on", before={Column.LOCKED: 1}, after={Column.LOCKED: 0}) == -1.0


def test_movement_reward_is_equation_12_and_circling_is_an_option():
    near = {Column.DISTANCE: 3.0}
    circling = options(movement={"circling": 1.0})
    left, forward = 2, 0
    assert reward("movement", after=near, action=left) == pytest.approx(-0.3)
    assert reward("movement", circling, after=near, action=left) == pytest.approx(0.7)
    assert reward("movement", circling, after=near, action=forward) == pytest.approx(-0.3)
    assert reward("movement", circling, after={Column.DISTANCE: 9.0}, action=left) == pytest.approx(-0.9)


def test_one_dodge_decision_worked_by_hand():
    # A dodge of five ticks: HP falls from 1.0 to 0.8 and stamina from 1.0 to 0.9. Once, over the whole
    # decision: 0.02 + 5 x (-0.2) + (-0.1) = -1.08; and 5 less if it ended in death.
    start = {Column.PLAYER_HP: 1.0, Column.STAMINA: 1.0}
    end = {Column.PLAYER_HP: 0.8, Column.STAMINA: 0.9}
    assert reward("dodge", before=start, after=end) == pytest.approx(-1.08, abs=1e-6)
    assert reward("dodge", before=start, after=end, died=True) == pytest.approx(-6.08, abs=1e-6)


def test_dodge_stamina_indicator_of_equation_13_is_an_option():
    low = {Column.STAMINA: 0.04}
    indicator = options(dodge={"stamina": "indicator"})
    assert reward("dodge", indicator, before=low, after=low) == pytest.approx(0.02 - 1)
    assert reward("dodge", options(dodge={"stamina": "none"}), before=low, after=low) == pytest.approx(0.02)


def test_heal_attack_reward_is_equation_14_with_boss_hp_over_1037():
    # A whole won Phase 1 fight without a scratch: 15 x (1037 - 622) / 1037 + 5 = 11.0.
    start, end = {Column.BOSS_HP: 1.0}, {Column.BOSS_HP: 622 / 1037}
    assert reward("heal_attack", before=start, after=end, won=True) == pytest.approx(11.003, abs=1e-3)
    hurt = {Column.PLAYER_HP: 0.5}
    assert reward("heal_attack", before=hurt, after={Column.PLAYER_HP: 1.0}) == pytest.approx(2.5)
    assert reward("heal_attack", before=hurt, died=True) == pytest.approx(-2.5 - 5)
    assert reward("end_to_end", before=hurt, died=True) == reward("heal_attack", before=hurt, died=True)


def test_boss_hp_is_observed_in_the_scenario_window_by_default_and_literally_on_request():
    skill, literal = make_skill("heal_attack"), make_skill("heal_attack", options(hp_window=False))
    column = skill.observation.columns.index(Column.BOSS_HP)
    for points, expected in ((1037, 1.0), (829.5, 0.5), (622, 0.0)):
        rows = np.zeros((1, STATE_SIZE), np.float32)
        rows[0, Column.BOSS_HP] = points / 1037
        assert skill.observation(rows, PHASE_1)[0, column] == pytest.approx(expected, abs=1e-6)
        assert literal.observation(rows, PHASE_1)[0, column] == pytest.approx(points / 1037)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[dodge]\nalife = 1.0", "dodge.alife"),
        *((f"[dodge]\nalive = {value}", "dodge.alive") for value in ("'much'", "-1.0", "inf", 10**400)),
        ("[dodge]\nstamina = 'dense'", "dodge.stamina"),
        ("hp_window = 1", "hp_window"),
        ("observations = 'all'", "observations"),
        ("no TOML", "options.toml"),
    ],
)
def test_bad_options_are_refused_by_key_and_file(tmp_path, text, named):
    path = tmp_path / "options.toml"
    path.write_text(text)
    with pytest.raises(DataError, match=r"options\.toml") as caught:
        load_skill_options(path)
    assert named in str(caught.value)


def test_unknown_skills_missing_files_and_options_made_in_python_are_refused_too(tmp_path):
    with pytest.raises(UnknownNameError, match="doge"):
        make_skill("doge")
    with pytest.raises(SoulsGraphError, match=r"none\.toml"):
        load_skill_options(tmp_path / "none.toml")
    for wrong in (float("inf"), -1.0, "much", 10**400, True):
        with pytest.raises(DataError, match=r"camera\.bonus"):
            SkillOptions(camera=CameraReward(bonus=wrong))


def test_animations_become_indicators_and_an_unknown_id_sets_none() -> None:
    skill = make_skill("heal_attack", options(animations="one_hot"))
    plain = make_skill("heal_attack")
    rows = np.random.default_rng(0).random((3, STATE_SIZE)).astype(np.float32)
    rows[:, Column.BOSS_ANIMATION], rows[:, Column.PLAYER_ANIMATION] = (0, 14, 400), (2, 11, 12)
    observed = dict(zip(skill.observation.names, skill.observation(rows, PHASE_1).T, strict=True))
    assert observed["BOSS_ANIMATION=0"].tolist() == [1, 0, 0]
    assert observed["BOSS_ANIMATION=14"].tolist() == [0, 1, 0]
    assert observed["PLAYER_ANIMATION=2"].tolist() == [1, 0, 0]
    indicators = skill.observation(rows, PHASE_1)[:, skill.observation.indicators]
    assert indicators.sum(axis=1).tolist() == [2, 2, 0]
    others = [name for name in plain.observation.names if not name.endswith("ANIMATION")]
    expected = dict(zip(plain.observation.names, plain.observation(rows, PHASE_1).T, strict=True))
    for name in others:
        np.testing.assert_array_equal(observed[name], expected[name])


def test_the_vocabulary_of_animations_never_grows() -> None:
    # Every trained one-hot policy has these ids: data added since may not change them.
    one_hot = make_skill("heal_attack", options(animations="one_hot")).observation.one_hot
    counts = {column: len(ids) for column, ids in one_hot.items() if list(ids) == list(range(len(ids)))}
    assert counts == {Column.BOSS_ANIMATION: 18, Column.PLAYER_ANIMATION: 12}


def test_there_is_an_indicator_for_all_that_a_boss_does_of_its_own_and_all_the_knight_does() -> None:
    names = set(make_skill("heal_attack", options(animations="one_hot")).observation.names)
    for boss in (load_boss(load_scenario(name).boss) for name in scenario_names()):
        stances = boss.animations
        ids = [one.id for one in (*boss.moves, stances.idle, stances.approach, stances.back_off, stances.turn)]
        assert {f"BOSS_ANIMATION={i}" for i in ids} <= names
    assert {f"PLAYER_ANIMATION={one.id}" for one in load_player("knight").animations.known().values()} <= names


def test_decisions_occupy_their_actions_ticks_and_an_empty_flask_more() -> None:
    skill = make_skill("heal_attack")
    ticks = [
        int(skill.ticks(decisions(before={Column.FLASKS: flasks}, action=action))[0])
        for flasks in (2, 0)
        for action in range(3)
    ]
    assert ticks == [2, 3, 1, 2, 5, 1]


def test_the_baseline_observes_the_state_itself_whatever_the_options() -> None:
    skill = make_skill(END_TO_END, options(animations="one_hot", observations="extended"))
    assert skill.observation.names == tuple(column.name for column in Column)
