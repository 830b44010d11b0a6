"""How wrong scenarios are about recorded fights: errors beside their floor, refusals, and the report."""

import json
import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from fakes.drawn_fights import drawn_fight
from fakes.recordings import read_all
from soulsgraph.calibrate.comparison import BETWEEN, MEASURES, WITHIN, BossBehaviour, FightComparison, compare
from soulsgraph.calibrate.fidelity import STEPS, fidelity_tables, measure_fidelity
from soulsgraph.calibrate.fidelity_page import write_fidelity
from soulsgraph.calibrate.floor import fighter_of
from soulsgraph.calibrate.rows import ReadFight, read_alike
from soulsgraph.pages.report import DATA, PAGE
from soulsgraph.recordings.recording import Fighter, record
from soulsgraph.runs.evaluate import Setting, evaluation_seeds
from soulsgraph.zoo import open_agent
from soulsgraph_envs.core.config import find
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.scenario import load_scenario

SHIPPED = "iudex-phase1"


def _beside_shipped(boss, text):
    """Return the comparison of fights against a boss with the shipped data, and with its own."""
    boss.write_text(text)
    scenario = boss.with_name("altered.toml")
    scenario.write_text(f'based_on = "{SHIPPED}"\nname = "altered"\nboss = "{boss}"\n')
    fights = _drawn(str(scenario))
    return [compare(fights, load_scenario(name)) for name in (SHIPPED, scenario)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Four fights of an oracle that often errs."""
    folder = tmp_path_factory.mktemp("fidelity") / "fights"
    record(Fighter.oracle(SHIPPED, random=0.3), evaluation_seeds(5, 4), folder)
    return folder


@pytest.fixture(scope="module")
def own(folder):
    """The fights beside the data by which they were fought."""
    return compare(read_alike(folder), load_scenario(SHIPPED))


@pytest.fixture(scope="module")
def found(folder):
    return measure_fidelity(read_alike(folder), [SHIPPED], episodes=20)


def _top(comparison, name, horizon_s=0.5, situation=WITHIN):
    return comparison.spans[situation, horizon_s].summary(name)["p90"]


def test_after_one_tick_of_the_true_data_place_and_stamina_are_those_that_were_recorded(own):
    for situation in (WITHIN, BETWEEN):
        assert len(own.spans[situation, 0.1]) > 200
        for name in MEASURES:
            assert _top(own, name, 0.1, situation) < 0.02, name
    span = own.spans[WITHIN, 0.1]
    assert span.errors["player_animation"].mean() < 0.01
    assert span.struck.sum() > 10
    assert span.struck_in_both == pytest.approx(1.0, abs=0.1)


def _drawn(scenario):
    return [drawn_fight(seed, 500, scenario)[0] for seed in range(3)]


def test_a_boss_that_turns_faster_shows_in_its_heading(tmp_path):
    quick = f'based_on = "{SHIPPED}"\nname = "Altered"\n[motion]\nturn_rad_s = 2.86\n'
    shipped, true = _beside_shipped(tmp_path / "boss.toml", quick)
    errors, floor = (one.spans[BETWEEN, 0.5].errors["boss_heading"] for one in (shipped, true))
    # It turns by its rate alone in few rows.
    assert errors.mean() > 0.001 > 5 * floor.mean()
    assert (errors > 0.01).sum() > 5 > (floor > 0.01).sum()


def test_blows_of_another_reach_agree_less_often(tmp_path):
    data = find("boss", SHIPPED).read_text(encoding="utf-8")
    short = re.sub(r"reach_m = ([0-9.]+)", lambda text: f"reach_m = {float(text[1]) * 0.6:.3f}", data)
    shipped, true = _beside_shipped(tmp_path / "short.toml", short)
    agreed, floor = shipped.spans[WITHIN, 0.5].struck_in_both, true.spans[WITHIN, 0.5].struck_in_both
    assert agreed + 0.1 < floor > 0.9
    assert shipped.simulated.struck.sum() > shipped.recorded.struck.sum()


def test_the_same_seed_measures_the_same(folder, own):
    again = compare(read_alike(folder), load_scenario(SHIPPED))
    assert again.behaviour() == own.behaviour()
    other = compare(read_alike(folder), load_scenario(SHIPPED), seed=3)
    assert other.behaviour() != own.behaviour()


def _starts(distances, titles, waits):
    none = np.zeros(0)
    return BossBehaviour(np.array(distances), np.array(titles, str), np.array(waits), none.astype(np.bool_), none)


def test_distributions_lie_apart_by_known_amounts():
    recorded = _starts([1.0] * 8, ["a"] * 4 + ["b"] * 4, [1.0] * 8)
    simulated = _starts([1.0] * 4, ["a"] * 3 + ["b"], [1.0, 1.0, 3.0, 3.0])
    apart = FightComparison({}, recorded, simulated, np.array([], str)).behaviour()
    assert apart == {"moves_by_distance": pytest.approx(0.25), "waits_s": pytest.approx(1.0), "damage_hp": None}
    same = FightComparison({}, recorded, recorded, np.array([], str)).behaviour()
    assert (same["moves_by_distance"], same["waits_s"]) == (0.0, 0.0)
    nothing = _starts([], [], [])
    assert set(FightComparison({}, nothing, nothing, np.array([], str)).behaviour().values()) == {None}


def test_waits_of_the_true_data_are_near_the_recorded_ones():
    own = compare(_drawn(SHIPPED), load_scenario(SHIPPED))
    waits, simulated = own.recorded.waits_s, own.simulated.waits_s
    assert len(simulated) > 2 * len(waits) > 50
    # 3.3 standard errors.
    assert abs(waits.mean() - simulated.mean()) < 3.3 * waits.std() / np.sqrt(len(waits))
    assert 0.0 <= simulated.min() <= simulated.max() < 5.0


def test_every_error_has_its_floor_and_the_oracle_its_predicted_wins(found):
    (scenario,) = found.scenarios
    assert scenario.floor_fights == 4
    assert scenario.floor_players == "oracle"
    rows = scenario.errors
    assert {"floor_p90" if row["quantity"] in MEASURES else "floor_share" for row in rows} <= {
        key for row in rows for key in row
    }
    (wins,) = scenario.wins
    assert (wins.recorded.episodes, wins.predicted.episodes) == (4, 20)
    assert json.loads(json.dumps(found.to_dict()))["scenarios"][0]["win_rates"][0]["predicted"]["episodes"] == 20


def test_who_cannot_be_loaded_is_named_and_the_oracle_plays_the_floor(folder):
    (fight, *_) = read_alike(folder)
    unknown = replace(fight, header=replace(fight.header, player="somebody", source="person"))
    calls: list[int] = []
    found = measure_fidelity([unknown], [SHIPPED], episodes=2, on_step=lambda: calls.append(1))
    (scenario,) = found.scenarios
    assert scenario.wins[0].predicted is None
    assert scenario.wins[0].note == fighter_of(unknown.header, SHIPPED)
    assert scenario.floor_players == "oracle"
    assert len(calls) == STEPS


def test_the_same_versions_of_an_agent_or_the_probe_play_the_floor(folder):
    agent = Fighter.of_run(open_agent("iudex-phase1-paper-0"), Setting(SHIPPED, SHIPPED))
    for own in (agent, Fighter.probe(SHIPPED)):
        fighter = fighter_of(own.header("simulator"), SHIPPED)
        assert isinstance(fighter, Fighter)
        assert (fighter.name, fighter.played) == (own.name, own.played)
    header = read_alike(folder)[0].header
    assert isinstance(fighter_of(replace(header, player=agent.name), SHIPPED), str), "other versions"


def test_fights_that_cannot_be_compared_are_refused_by_name(folder, tmp_path):
    mixed = tmp_path / "mixed"
    record(Fighter.oracle(SHIPPED), evaluation_seeds(5, 1), mixed)
    record(Fighter.oracle("iudex-phase2"), evaluation_seeds(5, 1), mixed)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "fight.parquet").write_bytes(b"PAR1 and something else PAR1")
    recording, fights = read_all(folder)[0], read_alike(folder)
    fleet = replace(recording, header=replace(recording.header, source="fleet"))
    blank = [replace(fight, raw=np.full_like(fight.raw, np.nan)) for fight in fights]
    refused: list[tuple[Callable[[], object], str]] = [
        (lambda: read_alike(mixed), "iudex-phase1, iudex-phase2"),
        (lambda: ReadFight.of(fleet), "fleet"),
        (lambda: read_alike(tmp_path / "broken"), r"fight\.parquet"),
        (lambda: read_alike(tmp_path / "nowhere"), "nowhere"),
        (lambda: measure_fidelity(fights, ["vordt"]), "vordt.*arena"),
        (lambda: measure_fidelity(fights, ["iudex-phase1-whole"]), "iudex-phase1-whole.*boss hp"),
        (lambda: compare(blank, load_scenario(SHIPPED)), "4 fights"),
    ]
    for ask, named in refused:
        with pytest.raises(SoulsGraphError, match=named):
            ask()


def test_the_report_is_written_as_text_a_page_and_data(found, tmp_path):
    report = write_fidelity(tmp_path / "report", found)
    assert all(len(row) == len(table.headings) for table in fidelity_tables(found) for row in table.rows)
    pictures = re.findall(r"\(figures/([\w-]+)\.png\)", report.read_text(encoding="utf-8"))
    assert {*pictures} == {path.stem for path in (report.parent / "figures").iterdir()}
    page = report.with_name(PAGE).read_text(encoding="utf-8")
    assert page.count("data:image/png;base64,") == len(pictures) == 3
    data = json.loads(report.with_name(DATA).read_text(encoding="utf-8"))
    assert {row["quantity"] for row in data["scenarios"][0]["errors"]} > set(MEASURES)
