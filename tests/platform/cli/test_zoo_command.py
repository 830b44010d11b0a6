"""`soulsgraph zoo`, and agents of the zoo where a command takes a run folder."""

import json
import shutil

import pytest

from soulsgraph import zoo
from soulsgraph.cli.remedies import folder_of
from soulsgraph.runs.evaluate import Setting, evaluate
from soulsgraph.runs.lineage import cards_of
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph.transfer.report import Recommendation
from soulsgraph.zoo.card import read_card
from soulsgraph.zoo.maintenance import SCENARIOS
from soulsgraph_envs.core.config import to_table

_ONE = "iudex-phase1-best-0"


def test_the_list_has_every_agent_with_its_cards_rate(printed):
    listed = json.loads(printed("zoo", "list", "--json"))
    assert [row["name"] for row in listed] == list(zoo.agent_names())
    for row in listed:
        reached = read_card(zoo.AGENTS / row["name"]).reached
        assert (row["wins"], row["episodes"], row["rate"]) == (reached.wins, reached.episodes, reached.rate)
    shown = printed("zoo", "list", "--markdown")
    assert [line.split("`")[1] for line in shown.splitlines()[2:]] == list(zoo.agent_names())


def test_show_prints_the_card(printed):
    assert json.loads(printed("zoo", "show", _ONE, "--json")) == to_table(read_card(zoo.AGENTS / _ONE))
    shown = printed("zoo", "show", _ONE)
    assert "Lineage" in shown
    assert "model-index" not in shown


def test_show_knows_an_agent_of_ones_own_folder(printed, tmp_path):
    printed("zoo", "copy", _ONE, "--run", tmp_path / "own")
    shown = json.loads(printed("zoo", "show", tmp_path / "own", "--json"))
    assert (shown["run"], shown["graph"]) == (str(tmp_path / "own"), "paper")
    agent = zoo.open_agent(_ONE)
    digests = {card.skill: card.digest for card in cards_of(agent)}
    assert {row["skill"]: row["digest"] for row in shown["skills"]} == digests
    page = printed("zoo", "show", tmp_path / "own")
    assert all(skill in page for skill in digests)


def test_verify_plays_an_agent_again_and_writes_the_page(printed, tmp_path):
    (found,) = json.loads(printed("zoo", "verify", _ONE, "--episodes", 32, "--out", tmp_path / "out", "--json"))
    assert (found["agent"], found["holds"], found["found"]["episodes"]) == (_ONE, True, 32)
    saved = json.loads((tmp_path / "out" / "verify.json").read_text())
    assert saved["agents"] == [found]
    assert "1 of 1 agents hold what their cards say" in (tmp_path / "out" / "verify.md").read_text()


def test_verify_fails_where_an_agent_plays_otherwise(printed, tmp_path, monkeypatch):
    shutil.copytree(zoo.AGENTS / _ONE, tmp_path / "agents" / _ONE)
    card = tmp_path / "agents" / _ONE / "card.json"
    values = json.loads(card.read_text())
    values["reached"]["won"] = "0" * len(values["reached"]["won"])
    values["digests"]["preset"] = "0" * 64
    card.write_text(json.dumps(values))
    for module in ("soulsgraph.zoo", "soulsgraph.cli.zoo", "soulsgraph.zoo.maintenance"):
        monkeypatch.setattr(f"{module}.AGENTS", tmp_path / "agents")
    with pytest.raises(SystemExit) as stop:
        printed("zoo", "verify", "--episodes", 16, "--out", tmp_path / "out")
    assert stop.value.code == 1
    (row,) = json.loads((tmp_path / "out" / "verify.json").read_text())["agents"]
    assert not row["holds"]
    assert row["changed"] == ["preset"]


@pytest.mark.slow
def test_compare_plays_agents_where_they_were_not_trained_and_writes_a_page_with_a_picture(printed, tmp_path):
    out = tmp_path / "out"
    zoo.copy_agent("vordt-best-0", tmp_path / "mine")
    found = json.loads(printed("zoo", "compare", _ONE, "mine", "--episodes", 64, "--out", out, "--json"))
    assert [(one["agent"], one["trained_on"]) for one in found] == [(_ONE, "iudex-phase1"), ("mine", "vordt")]
    first, second = (one["rates"] for one in found)
    assert set(first) == set(second) == set(SCENARIOS)
    # By the figures of 400 fights these are more than 65 points apart.
    assert first["iudex-phase1"]["wins"] > first["vordt"]["wins"] < second["vordt"]["wins"]
    again = evaluate(zoo.open_agent(_ONE), Setting("vordt", "iudex-phase1"), 64).win_rate
    assert first["vordt"] == again.to_dict()
    saved = json.loads((out / "comparison.json").read_text())
    assert (saved["episodes"], saved["agents"]) == (64, found)
    page = (out / "comparison.md").read_text()
    assert f"| {_ONE} | {100 * first['iudex-phase1']['rate']:.1f}* |" in page
    assert (out / "comparison.png").read_bytes().startswith(b"\x89PNG")


def test_reading_commands_take_an_agent(printed, tmp_path):
    found = json.loads(printed("evaluate", _ONE, "--episodes", 8, "--json"))
    assert (found["preset"], found["training_seed"], found["episodes"]) == ("best", 0, 8)
    assert len(json.loads(printed("skills", _ONE, "--json"))) == 5
    assert list(tmp_path.iterdir()) == []


def test_skills_are_selected_for_an_agent_by_few_decisions_and_nothing_is_written(printed, refuse, tmp_path):
    found = json.loads(printed("transfer", _ONE, "--scenario", "vordt", "--quick", "--json"))["0"]
    assert {"dodge", "heal_attack"} <= set(found["skills"]) == set(found["reasons"])
    assert 0 < found["decisions"] <= 8_000
    assert list(tmp_path.iterdir()) == []
    for words in (("--controls",), ("--out", "together"), ("--run", "mine")):
        assert f"expected no {words[0]}" in refuse("transfer", _ONE, "--quick", *words)


def test_auto_adapts_what_few_decisions_select_and_measured_what_transfer_recommends(printed, refuse, monkeypatch):
    words = (_ONE, "--scenario", "vordt", "--budget", 400, "--run", "mine")
    shown = printed("adapt", *words, "--skills", "auto")
    assert "adapt: dodge, heal_attack\n" in shown
    assert 0 < int(shown.split("played: ")[1].split(" decisions")[0].replace(",", "")) <= 8_000
    assert "dodge v2: 400 steps" in shown
    monkeypatch.setattr(
        "soulsgraph.transfer.report.saved_recommendation", lambda *_: Recommendation(("dodge",), 12_345)
    )
    shown = printed("adapt", *words, "--skills", "measured")
    assert "recommended: dodge\nplayed: 12,345 decisions in the new fight\n" in shown
    cards = json.loads(printed("adapt", *words, "--skills", "measured", "--json"))
    assert [card["selection_decisions"] for card in cards] == [12_345] * len(cards)
    assert "expected auto by itself" in refuse("adapt", *words, "--skills", "auto,dodge")


@pytest.mark.parametrize("command", ["table", "adapt", "transfer", "recovery", "retention"])
def test_a_command_that_writes_names_the_copy_to_make(refuse, command, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    message = refuse(command, _ONE)
    assert f"copy it first: soulsgraph zoo copy {_ONE} --run DIR" in message
    assert list(tmp_path.iterdir()) == []


def test_a_run_of_an_agents_name_cannot_be_resumed(refuse, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert f"soulsgraph zoo copy {_ONE} --run DIR" in refuse("curriculum", "--resume", "--run", _ONE)


def test_a_command_that_writes_copies_the_agent_first_and_goes_on_with_the_copy(printed, refuse, tmp_path):
    shown = printed("table", _ONE, "--run", "mine", "--episodes", 4)
    assert f"{_ONE} of the zoo copied to mine" in shown
    assert (tmp_path / "mine" / "results" / "table.json").is_file()
    assert f"going on with mine, a copy of {_ONE}" in printed("table", _ONE, "--run", "mine", "--episodes", 4)
    assert not (zoo.AGENTS / _ONE / "results").exists()
    assert "expected a copy of iudex-phase1-best-1, found another run" in refuse(
        "table", "iudex-phase1-best-1", "--run", "mine"
    )
    assert "expected none, for mine is no agent of the zoo" in refuse("table", "mine", "--run", "yours")
    assert "expected none, for no agent of the zoo is named" in refuse("transfer", "mine", "--run", "yours")


def test_copies_of_several_agents_lie_beside_each_other(refuse, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    names = [f"iudex-phase1-best-{seed}" for seed in (0, 1)]
    # The copies are made before the chain of scenarios is asked for.
    refuse("transfer", *names, "--run", "mine", "--scenario", "no-such-scenario")
    assert [RunFolder.open(tmp_path / "mine" / name).plan.seed for name in names] == [0, 1]


@pytest.mark.parametrize("words", [("adapt", _ONE, "--run", "/mine"), ("recovery", "--run=/mine", _ONE)])
def test_a_supervised_command_writes_into_the_copy(words):
    assert folder_of(words) == "/mine"


@pytest.mark.parametrize(
    "words",
    [
        ("adapt", "--scenario", "vordt", "/data/r"),
        ("adapt", "--json", "/data/r"),
        ("adapt", "--games=/g.toml", "/data/r"),
    ],
)
def test_a_supervised_commands_folder_is_no_value_of_an_option(words):
    assert folder_of(words) == "/data/r"


def test_copy_makes_a_run_and_refuses_a_folder_that_is_taken(printed, refuse, tmp_path):
    assert "continue with: soulsgraph adapt mine --scenario NAME" in printed("zoo", "copy", _ONE, "--run", "mine")
    assert RunFolder.open(tmp_path / "mine").plan == zoo.plan_of(_ONE)
    assert "expected an empty folder for a new run" in refuse("zoo", "copy", _ONE, "--run", "mine")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("show", "iudex"), "unknown agent of the zoo"),
        (("copy", "iudex-phase1-bset-0", "--run", "mine"), f"Did you mean '{_ONE}'"),
        (("verify", "nobody"), "unknown agent of the zoo"),
        (("build", "nobody"), "unknown agent of the zoo"),
        (("compare", "nobody"), "expected the folder of a run"),
        (("compare", "vordt-bst-0"), "unknown agent of the zoo"),
        (("compare", "--episodes", "0"), "episodes"),
        (("verify", _ONE, "--episodes", "0"), "episodes: expected a value from 1 to 1000"),
        (("verify", _ONE, "--episodes", "1001"), "episodes: expected a value from 1 to 1000"),
    ],
)
def test_bad_input_is_refused(refuse, arguments, message, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert message in refuse("zoo", *arguments)
    assert list(tmp_path.iterdir()) == []
