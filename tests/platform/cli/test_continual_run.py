"""`continual run` and `bosses`: what is wrong is refused before anything begins, and a whole small study goes on."""

import json
from dataclasses import replace

import pandas as pd
import pytest

from soulsgraph.cli import main, remedies
from soulsgraph.continual.methods.method import MethodOptions
from soulsgraph.continual.study import ContinualFolder, ContinualStudy
from soulsgraph_clusters.sessions import session

SEQUENCE = 'name = "mine"\n[[tasks]]\nscenario = "iudex-phase1"\n[[tasks]]\nscenario = "{}"\n'
#: A boss that is beaten without dodging, so that the filter refuses it.
TOO_EASY = "generated/timing/1"


@pytest.fixture
def no_ray(monkeypatch):
    """Fail where Ray is joined or started."""

    def connect(*given, **settings):
        raise AssertionError("nothing should be begun")

    monkeypatch.setattr(session, "connect", connect)


@pytest.fixture
def sequence(tmp_path):
    """Write a sequence of a file's own, and return its path."""

    def write(second="vordt", more=""):
        path = tmp_path / "mine.toml"
        path.write_text(more + SEQUENCE.format(second))
        return path

    return write


@pytest.fixture
def study(tmp_path, sequence):
    """A study that differs from every default; nothing of it is done."""
    plan = ContinualStudy(sequence=str(sequence()), methods=("newest", "mas"), seeds=(4, 5), preset="fast", scale=0.5)
    plan = replace(plan, identity="one-hot", skills=("dodge",), episodes=11, rows_every=2)
    return ContinualFolder.create(tmp_path / "study", replace(plan, options=MethodOptions(mas=3.0, ewc=5.0))).path


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("S9",), "unknown sequence: expected one of"),
        (("nowhere.toml",), "nowhere.toml: expected a readable TOML file, found none"),
        (("--methods", "kept,newst"), "unknown continual method: expected one of"),
        (("--methods", ""), "methods: expected a list of at least one entry, found none"),
        (("--methods", "kept,kept"), "methods: expected one or more, each once, found kept, kept"),
        (("--skills", "dodg"), "unknown skill: expected one of camera, lock_on"),
        (("--skills", "auto,dodge"), "skills: expected auto alone or names of skills, found auto, dodge"),
        (("--preset", "bst"), "unknown preset: expected one of paper, fast, best"),
        (("--preset", "pqn"), "preset: expected one with a replay, found pqn"),
        (("--seeds", "0"), "seeds: expected a value from 1 to 1000, found 0"),
        (("--first-seed", "-1"), "first-seed: expected a value from 0 to"),
        (("--scale", "nan"), "scale: expected a number from 0.001 to 100, found nan"),
        (("--scale", "0.001"), "expected 108 decisions or more, from which on preset best learns"),
        (("--episodes", "0"), "episodes: expected a whole number from 1 to 100000, found 0"),
        (("--rows-every", "0"), "rows_every: expected a whole number from 1 to 10000, found 0"),
        (("--held-out", "13"), "held_out: expected a whole number from 0 to 12, found 13"),
        (("--set", "ewd=1"), "unknown coefficient: expected one of ewc"),
        (("--set", "ewc"), "--set: expected OPTION=VALUE, found 'ewc'; write for example ewc=100."),
        (("--set", "ewc=strong"), "--set ewc: expected a number from 0 to 1000000000, found 'strong'"),
        (("--set", "ewc=-1"), "--set ewc: expected a number from 0 to 1000000000, found -1"),
        (("--set", "reserve=1.5"), "--set reserve: expected a whole number from 1 to 1000000, found 1.5"),
        (("--set", "ewc=1", "ewc=2"), "--set: expected each option once, found ewc=1 ewc=2"),
        (
            ("--methods", "kept,newest", "--set", "mas=1"),
            "--set mas: expected a coefficient of kept, newest (they have none), found one of mas; leave it out or",
        ),
        (
            ("--methods", "kept,ewc", "--set", "reserve=10"),
            "of kept, ewc (ewc, importance_rows), found one of replay, clonex, distil, base; leave it out or correct",
        ),
        (("--games", "games.toml"), "continual run: expected the simulator alone"),
        (("--resume",), "soulsgraph continual run --out runs/continual"),
    ],
)
def test_what_no_study_can_have_is_refused_before_it_begins(refuse, no_ray, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    assert message in refuse("continual", "run", *words)
    assert not [*tmp_path.iterdir()]


def test_a_scale_that_teaches_nothing_is_answered_by_an_option_that_there_is(refuse, no_ray, tmp_path):
    message = refuse("continual", "run", "--scale", "0.001", "--out", tmp_path / "new")
    assert message.endswith("train for 108 decisions or more (a larger --scale).\n")


def test_a_boss_that_fails_the_filter_is_refused_by_its_name(refuse, no_ray, sequence, tmp_path):
    message = refuse("continual", "run", sequence(TOO_EASY), "--out", tmp_path / "new")
    assert f"error: {TOO_EASY}: expected a fight that passes the filter, found an oracle that wins" in message
    assert not (tmp_path / "new").exists()


def test_a_sequence_without_held_out_bosses_measures_none(refuse, no_ray, sequence, tmp_path):
    words = ("--held-out", 2, "--out", tmp_path / "new")
    assert "--held-out: expected a sequence of one family" in refuse("continual", "run", sequence(), *words)
    other = sequence(more='family = "mine"\n')
    assert "unknown family with held-out bosses" in refuse("continual", "run", other, *words)


def test_a_folder_that_holds_something_else_is_refused(refuse, no_ray, study, tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes").touch()
    assert "found other files; remove them or name another folder with --out." in refuse(
        "continual", "run", "--out", tmp_path / "other"
    )
    assert f"begin one with: soulsgraph continual run --out {tmp_path / 'other'}." in refuse(
        "continual", "run", "--resume", "--out", tmp_path / "other"
    )
    assert "continue with --resume or name another folder with --out." in refuse("continual", "run", "--out", study)
    (study / "continual.json").write_text("{}")
    assert "begin a new folder with --out." in refuse("continual", "run", "--resume", "--out", study)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("S8",), "mine.toml, found S8"),
        (("--methods", "kept"), "methods = ('newest', 'mas'), found ('kept',)"),
        (("--seeds", 10), "seeds = (4, 5), found (4, 5, 6,"),
        (("--first-seed", 0), "seeds = (4, 5), found (0, 1)"),
        (("--preset", "best"), "preset = fast, found best"),
        (("--scale", 1.0), "scale = 0.5, found 1.0"),
        (("--identity", "none"), "identity = one-hot, found none"),
        (("--skills", "auto"), "skills = ('dodge',), found ('auto',)"),
        (("--episodes", 200), "episodes = 11, found 200"),
        (("--rows-every", 1), "rows_every = 2, found 1"),
        (("--held-out", 1), "held_out = 0, found 1"),
        (("--set", "mas=1"), "mas = 3.0, found 1"),
        (("--set", "mas=3", "ewc=7"), "ewc = 5.0, found 7"),
    ],
)
def test_a_study_refuses_an_option_that_contradicts_it(refuse, no_ray, study, words, message):
    refused = refuse("continual", "run", *words, "--resume", "--out", study)
    assert message in refused
    assert refused.endswith("leave it out of the options or begin another folder with --out.\n")


def test_a_study_goes_on_with_what_it_has_or_what_says_the_same(refuse, study, sequence):
    """It goes on as far as the cluster, which does not answer."""
    same = (*(sequence(), "--methods", "newest,mas", "--seeds", 2, "--preset", "fast", "--scale", "0.5"), "--resume")
    same = (*same, "--identity", "one-hot", "--skills", "dodge", "--episodes", 11, "--rows-every", 2, "--set", "mas=3")
    for given in (("--resume",), same):
        assert "expected a Ray cluster to answer" in refuse(
            "continual", "run", *given, "--out", study, "--address", "127.0.0.1:9"
        )


def test_a_supervised_study_that_is_begun_is_resumed(study):
    words = ["continual", "run", "S8", "--out", str(study)]
    assert remedies.command_of(words) == "continual run"
    assert remedies.folder_of(words) == str(study)
    assert remedies.folder_of(words[:3]) == "runs/continual"
    assert remedies.going_on(words) == [*words, "--resume"]
    assert remedies.going_on([*words, "--resume"]) == [*words, "--resume"]
    assert remedies.going_on([*words[:-1], str(study / "new")]) == [*words[:-1], str(study / "new")]
    assert remedies.stopped("interrupted", remedies.command_of(words)).endswith("with --resume")


def test_other_actions_are_not_supervised(refuse):
    assert "Did you mean 'continual run'?" in refuse("supervise", "--", "continual", "score", "mine.parquet")
    assert remedies.going_on(["continual", "score", "mine.parquet"]) == ["continual", "score", "mine.parquet"]


def test_the_filter_is_shown_of_each_boss_once_and_one_that_fails_is_exit_code_1(
    printed, sequence, monkeypatch, capsys
):
    shown = printed("continual", "bosses", sequence(), "vordt")
    assert shown.count("vordt") == 1
    assert "no:" not in shown
    found = json.loads(printed("continual", "bosses", "iudex-phase1", "--json"))
    assert [(row["scenario"], row["passed"]) for row in found] == [("iudex-phase1", True)]
    monkeypatch.setattr("sys.argv", ["soulsgraph", "continual", "bosses", TOO_EASY, "vordt", "--json"])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 1
    assert [row["passed"] for row in json.loads(capsys.readouterr().out)] == [False, True]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "expected one or more sequences or scenarios, found none"),
        (("S9",), "unknown sequence or scenario: expected one of"),
        (("generated/tming/1",), "Did you mean 'timing'?"),
        (("nowhere.toml",), "nowhere.toml: expected a readable TOML file, found none"),
    ],
)
def test_bosses_that_there_are_not_are_refused(refuse, words, message):
    assert message in refuse("continual", "bosses", *words)


@pytest.mark.slow
def test_a_whole_study_runs_reports_and_is_done_when_it_is_resumed(printed, sequence, tmp_path):
    words = ("--methods", "kept,newest", "--skills", "dodge,heal_attack", "--seeds", 1, "--episodes", 10)
    shown = printed("continual", "run", sequence(), *words, "--scale", 0.02, "--out", "study")
    assert "newest 0: done" in shown
    assert "2 methods, 2 tasks, 1 seed" in shown
    evaluations = pd.read_parquet(tmp_path / "study" / "results" / "evaluations.parquet")
    matrix = evaluations[evaluations["decisions"] == 0]
    assert {*zip(matrix["method"], matrix["after"], matrix["task"], strict=True)} == {
        (method, after, task) for method in ("kept", "newest") for after in (0, 1, 2) for task in (1, 2)
    }
    costs = pd.read_parquet(tmp_path / "study" / "results" / "costs.parquet")
    assert costs.groupby("method")["decisions"].sum().to_dict() == {"kept": 6200, "newest": 6200}
    report = (tmp_path / "study" / "report" / "report.md").read_text()
    assert "| kept | 1 |" in report
    files = sorted((tmp_path / "study" / "units").rglob("*.parquet"))
    before = [file.stat().st_mtime_ns for file in files]
    found = json.loads(printed("continual", "run", "--resume", "--out", "study", "--json"))
    assert found["scores"]["methods"] == ["kept", "newest"]
    assert found["page"] == "study/report/page.html"
    assert [file.stat().st_mtime_ns for file in files] == before
    assert json.loads(printed("continual", "report", "study", "--json")).keys() == found.keys()
