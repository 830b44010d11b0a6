"""Recorded fights: what was played is what is read, in numbers, pictures and decisions."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from fakes.recordings import read_all
from soulsgraph.recordings.check import check_file
from soulsgraph.recordings.files import RecordingError, read_header, read_recording, recording_files
from soulsgraph.recordings.format import run_name
from soulsgraph.recordings.recording import Fighter, record
from soulsgraph.runs.evaluate import Setting, evaluation_seeds
from soulsgraph.zoo import open_agent
from soulsgraph_envs.combat.scripted import ConstantScript
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.core.state import Raw, state_rows
from soulsgraph_envs.games.opening import make_game
from soulsgraph_envs.simulator.render import render
from soulsgraph_envs.simulator.scene import AnimationWords
from soulsgraph_envs.skills import SKILL_NAMES
from soulsgraph_policies.agents.inference import FusedNetworks

SCENARIO = "iudex-phase1"
SEEDS = evaluation_seeds(3, 2)


@pytest.fixture(scope="module")
def oracles(tmp_path_factory):
    """Two fights of the oracle, a fifth of its decisions drawn."""
    folder = tmp_path_factory.mktemp("oracle")
    record(Fighter.oracle(SCENARIO, random=0.2), SEEDS, folder)
    return folder


@pytest.fixture(scope="module")
def fighter():
    return Fighter.of_run(open_agent("iudex-phase1-best-0"), Setting(SCENARIO, SCENARIO))


@pytest.fixture(scope="module")
def recording(tmp_path_factory, fighter):
    """A fight of an agent of the zoo."""
    folder = tmp_path_factory.mktemp("agent")
    record(fighter, SEEDS[:1], folder)
    (path,) = recording_files(folder)
    return read_recording(path)


def test_a_fight_is_recorded_as_it_is_played_without_a_recorder(recording, fighter):
    rollout = fighter.agent.rollout(make_game())
    raws, latest, completed = [], [], []

    def keep():
        raws.append(rollout.combat.raw[0].copy())
        latest.append(rollout.combat.latest[0].copy())
        completed.append(rollout.combat.completed[0].copy())

    rollout.after_tick = keep
    played = rollout.play(SEEDS[:1])
    assert_array_equal(recording.raw[1:], raws)
    assert recording.header.result.outcome == ("won" if played.won[0] else "died")
    assert recording.header.result.ticks == len(raws) == len(recording)
    for index, skill in enumerate(fighter.agent.skills):
        assert_array_equal(recording.column(f"{skill.name}/action")[:-1], np.array(latest)[:, index])
        _, ends = recording.decisions(skill.name)
        assert_array_equal(ends, 1 + np.flatnonzero(np.array(completed)[:, index]))


def test_rewards_and_values_are_those_of_the_agent(recording, fighter):
    played = fighter.agent.rollout(make_game()).play(SEEDS[:1], keep_decisions=True)
    last = fighter.agent.skills[-1]
    begins, _ = recording.decisions(last.name)
    assert_array_equal(recording.column(f"{last.name}/reward")[begins], played.taken.rewards.astype(np.float32))
    rows = state_rows(recording.raw)
    for skill in fighter.agent.skills:
        network = fighter.agent.networks[skill.name]
        values = FusedNetworks([network]).q_values(0, rows)  # type: ignore[list-item]
        assert_array_equal(recording.column(f"{skill.name}/values"), values)
        begun = np.flatnonzero(recording.column(f"{skill.name}/decides"))
        assert_array_equal(recording.column(f"{skill.name}/action")[begun], values[begun].argmax(axis=1))


def test_a_recorded_fight_is_drawn_as_the_simulator_drew_it(recording):
    game, scenario = make_game(), load_scenario(SCENARIO)
    game.reset(np.zeros(1, np.int64), scenario, SEEDS[:1])
    for row in range(len(recording) + 1):
        if row % 10 == 0 or row > len(recording) - 5:
            drawn, again = render(game.scene(0), (360, 640)), render(recording.scene(row), (360, 640))
            assert_array_equal(drawn, again, err_msg=f"row {row}")
        if row < len(recording):
            game.step(recording.controls[row : row + 1])


def test_animations_have_the_same_words_by_their_ids_as_in_the_simulator(recording):
    words = AnimationWords.of(load_scenario(SCENARIO))
    for who, known in (("player", words.player), ("boss", words.boss)):
        ids = recording.column(f"{who}_animation")
        assert [known[one] for one in ids] == list(recording.column(f"{who}_doing"))


def test_drawn_actions_are_marked_and_about_as_many_as_asked_for(oracles):
    drawn = decided = 0
    for path in recording_files(oracles):
        one = read_recording(path)
        for skill in one.header.skills:
            decides = one.column(f"{skill.name}/decides").astype(bool)
            drawn += int(one.column(f"{skill.name}/random")[decides].sum())
            decided += int(decides.sum())
    assert 0.15 < drawn / decided < 0.25


def test_fights_played_again_are_the_same_bit_for_bit(oracles):
    assert [check_file(path).verdict for path in recording_files(oracles)] == ["same", "same"]


def test_a_fight_that_is_there_is_never_overwritten(oracles):
    before = {path: path.read_bytes() for path in recording_files(oracles)}
    oracle = Fighter.oracle(SCENARIO, random=0.2)
    other = replace(oracle, played=tuple(replace(one, player="random") for one in oracle.played))
    with pytest.raises(RecordingError):
        record(other, SEEDS, oracles)
    assert before == {path: path.read_bytes() for path in recording_files(oracles)}


def test_an_interrupted_recording_goes_on_with_the_fights_that_are_missing(oracles, tmp_path):
    first, *_ = recording_files(oracles)
    (tmp_path / first.name).write_bytes(first.read_bytes())
    written: list[Path] = []
    assert record(Fighter.oracle(SCENARIO, random=0.2), SEEDS, tmp_path, written.append) == 1
    assert [path.name for path in written] == [path.name for path in recording_files(oracles)[1:]]
    assert (tmp_path / first.name).read_bytes() == first.read_bytes()
    assert record(Fighter.oracle(SCENARIO, random=0.2), SEEDS, tmp_path) == 2
    assert record(Fighter.oracle(SCENARIO, random=0.3), SEEDS[:1], tmp_path) == 0


def test_every_way_to_fight_has_names_of_its_own(fighter):
    run, ways = open_agent("iudex-phase1-best-0"), list[Fighter]()
    for start in (None, "long"):
        for randomize in ((), ("dodge",), ("movement", "dodge"), SKILL_NAMES):
            setting = Setting(SCENARIO, SCENARIO, start, randomize)
            ways += [Fighter.of_run(run, setting, random) for random in (0.0, 0.25, 0.2500001)]
        ways += [Fighter.oracle(SCENARIO, start, 0.123, delay) for delay in (0, 20)]
    names = {way.fight(2**64 - 1, source) for way in ways for source in ("simulator", "game")}
    assert len(names) == 2 * len(ways)
    longest = max(ways, key=lambda way: len(way.fight(1)))
    assert max(len(name) for name in (*names, replace(longest, name="n" * 200).fight(2**64 - 1))) <= 150
    assert fighter.fight(1) == "iudex-phase1-best-0-iudex-phase1-0000000000000001"
    # A name that begins with a dash is an option to every other program, and one with a dot is hidden.
    others = [replace(fighter, name=name).fight(1) for name in ("ägent", "агент", ".hidden", "--run")]
    assert not [name for name in others if name.startswith(("-", "."))]


def test_fights_of_any_columns_lie_in_one_folder_and_are_not_played_again(tmp_path):
    run = open_agent("iudex-phase1-best-0")
    # What draws its actions values none.
    for randomize in ((), ("dodge",)):
        fighter = Fighter.of_run(run, Setting(SCENARIO, SCENARIO, "long", randomize))
        assert [record(fighter, SEEDS[:1], tmp_path) for _ in range(2)] == [0, 1]
    valued = [read_recording(path).table.column_names for path in recording_files(tmp_path)]
    assert sorted("dodge/values" in names for names in valued) == [False, True]
    assert {path.parent for path in recording_files(tmp_path)} == {tmp_path}


def test_a_run_is_named_by_its_folder(tmp_path, monkeypatch):
    for name in ("run", ".hidden", "graph/seed-3"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "run")
    places = {".": "run", "..": tmp_path.name, "../.hidden": "hidden", "../graph/seed-3": "graph-seed-3", "/": "run"}
    assert {place: run_name(Path(place)) for place in places} == places


def test_a_header_says_what_the_columns_say(recording):
    header = read_header(recording.path)
    raw, result = recording.raw, header.result
    assert (header.player, header.source, header.scenario) == ("iudex-phase1-best-0", "simulator", SCENARIO)
    assert [(one.name, one.version) for one in header.skills] == [(name, 1) for name in SKILL_NAMES]
    assert result.player_hp == raw[-1, Raw.PLAYER_HP]
    assert result.damage_dealt == raw[0, Raw.BOSS_HP] - raw[-1, Raw.BOSS_HP]
    assert set(recording.column("player")) == {"iudex-phase1-best-0"}


def test_a_refilled_fight_keeps_what_every_blow_took(tmp_path):
    oracle = Fighter.oracle(SCENARIO)
    refilled = replace(oracle.agent.scenario, refill=True)
    standing = dict.fromkeys(SKILL_NAMES, ConstantScript(0)) | {"dodge": ConstantScript(1)}
    record(replace(oracle, agent=replace(oracle.agent, scenario=refilled, replaced=standing)), SEEDS[:1], tmp_path)
    recording = read_all(tmp_path)[0]
    full, before = recording.raw[:, Raw.PLAYER_HP], recording.column("player_hp_unfilled")
    assert (full == full[0]).all()
    struck = recording.column("player_change_age_s") == 0.0
    assert (before < full)[struck].any()
    assert_array_equal((before - full)[struck], recording.column("player_change")[struck])
    assert_array_equal(before[~struck], full[~struck])
