import re

import pytest

from fakes.runs import pretend_run
from soulsgraph.project.checking import SMOKE_DECISIONS, smoke, validate
from soulsgraph.runs.plan import Plan
from soulsgraph.runs.train import StageSetup
from soulsgraph_clusters.sessions.session import Session
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_policies.agents.projects import load_project


@pytest.fixture
def changed(begun):
    """Change a file of the project before it is loaded."""

    def change(file, old, new):
        path = begun / "fencing" / file
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))
        return load_project(begun).project.name

    return change


@pytest.mark.slow
def test_a_new_project_holds(fencing):
    checks = list(validate(fencing.project.name))
    assert all(check.holds for check in checks), checks
    assert {check.name.rpartition(": ")[2] for check in checks} >= {"observations", "controls", "one update"}


@pytest.mark.parametrize(
    ("file", "old", "new", "name", "found"),
    [
        ("parry.py", "lambda d: d.actions != WAIT", "lambda d: d.speed", "parry's rewards", "AttributeError"),
        ("parry.py", "WAIT))", "WAIT)) + 7", "references", "Discrete(3)"),
        ("parry.py", "lambda d: d.actions != WAIT", "lambda d: 0.0 * d.actions", "parry's rewards", "tried"),
        # HP is refilled: no fight of its training is won.
        ("parry.py", "lambda d: d.actions != WAIT", "lambda d: d.won", "parry's rewards", "tried"),
        (
            "parry.py",
            "np.where(is_open, RIPOSTE, np.where",
            "np.where(~is_open, RIPOSTE, np.where",
            "reference",
            "parry",
        ),
        # As good as random play, and by chance a little better.
        (
            "parry.py",
            "np.where(is_open, RIPOSTE, np.where(due, PARRY_ACTION, WAIT))",
            "np.random.default_rng((4, int(1000 * rows.sum()))).integers(0, 3, len(rows))",
            "reference",
            "clearly",
        ),
        ("data/scenarios/duel.toml", '"knight-full"', '"knight"', "controls", "PARRY"),
        ("data/scenarios/duel.toml", "flasks = 1", "flasks = -1", "scenario duel", "flasks"),
    ],
)
@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value")
def test_what_does_not_hold_is_named(changed, file, old, new, name, found):
    failed = next(check for check in validate(changed(file, old, new)) if not check.holds)
    assert failed.name.endswith(name)
    assert found in failed.found


@pytest.mark.parametrize(
    ("old", "new"), [("lambda d: d.actions != WAIT", "lambda d: d.won"), ("tried: float = 0.3", "tried: float = 0.0")]
)
def test_a_term_that_waits_for_an_end_or_has_no_weight_is_not_dead(changed, old, new):
    changed("parry.py", "refill=True", "refill=False")
    checks = {check.name: check for check in validate(changed("parry.py", old, new))}
    (rewards,) = (check for name, check in checks.items() if name.endswith("parry's rewards"))
    assert rewards.holds, rewards.found


@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value")
def test_a_reward_that_is_no_number_names_its_skill_term_and_place_wherever_it_is_found(changed, duel, tmp_path):
    project = changed("parry.py", "lambda d: d.actions != WAIT", "lambda d: d.actions / 0")
    file = tmp_path / "fencing" / "fencing" / "parry.py"
    line = 1 + file.read_text(encoding="utf-8").partition("lambda d: d.actions / 0")[0].count("\n")
    named = rf"^parry: .*'tried' \({file.resolve()}:{line}\)"
    failed = next(check for check in validate(project) if not check.holds)
    assert re.match(named, failed.found)
    with pytest.raises(SoulsGraphError, match=named):
        list(smoke(project))
    run = pretend_run(tmp_path / "run", Plan(scenario=duel, graph="fencing/forked", scale=0.01))
    stage = StageSetup(run, run.plan.stage("parry")).build(Session(local=False))
    try:
        with pytest.raises(SoulsGraphError, match=named):
            stage.train()
    finally:
        stage.stop()


@pytest.mark.slow
def test_a_smoke_test_plays_and_learns_a_thousand_decisions(fencing):
    (smoked,) = smoke(fencing.project.name)
    assert smoked.decisions == SMOKE_DECISIONS
    assert smoked.updates > 0
    assert smoked.reference_return > smoked.random_return


def test_an_import_that_fails_shows_the_authors_frames(begun):
    (begun / "fencing" / "parry.py").write_text(
        "x = 1\nfrom numpy import nothing_of_the_kind as 'x'\n", encoding="utf-8"
    )
    with pytest.raises(SoulsGraphError, match=r'parry\.py", line 2[^§]*SyntaxError: '):
        load_project(begun)
    (begun / "fencing" / "parry.py").write_text("x = 1\nx = {}['a thing']\n", encoding="utf-8")
    with pytest.raises(SoulsGraphError, match=r"parry\.py\", line 2[^§]*KeyError: 'a thing'"):
        load_project(begun)
