"""What the command line refuses: exit code 2 and one line with the name of what is wrong; nothing begins or changes."""

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from fakes.continual import InventedRun
from fakes.runs import pretend_run
from soulsgraph.continual.methods.method import MethodOptions
from soulsgraph.continual.study import ContinualFolder, ContinualStudy
from soulsgraph.paper.study import ReproductionFolder, Study
from soulsgraph.project.comparing import GraphFolder, GraphStudy
from soulsgraph.recordings.recording import Fighter, record
from soulsgraph.runs import workplace
from soulsgraph.runs.evaluate import evaluation_seeds
from soulsgraph.runs.plan import Plan
from soulsgraph.runs.run_folder import RunFolder
from soulsgraph_clusters.fleet.protocol.certificates import make_certificate
from soulsgraph_clusters.sessions import session

_SEQUENCE = 'name = "mine"\n[[tasks]]\nscenario = "iudex-phase1"\n[[tasks]]\nscenario = "{}"\n'
_OWN = 'based_on = "iudex-phase1"\nname = "own"\n'
#: What commands are asked to read, and must not read further.
_FILES = {
    "file": "",
    "diary/diary.txt": "dear",
    "damaged/plan.json": "{",
    "broken/one.parquet": "no fight",
    "sequence.toml": _SEQUENCE.format("vordt"),
    "family.toml": 'family = "mine"\n' + _SEQUENCE.format("vordt"),
    "easy.toml": _SEQUENCE.format("generated/timing/1"),
    "plain.toml": "[dodge]\nalive = 0.5",
    "simulated.toml": '[[games]]\ndriver = "simulator"\n',
    "fleet.toml": 'tokens = "hashes.json"\nlisten = "127.0.0.1:0"\n',
    "open.toml": 'listen = "0.0.0.0:7443"\n',
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working folder with runs, studies, fights and files."""
    place = tmp_path_factory.mktemp("refusals")
    for name, text in _FILES.items():
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_text(text)
    make_certificate(place, ["10.0.0.1"])
    RunFolder.create(place / "run", Plan(scale=0.01))
    unusual = Plan(scale=0.01, preset="paper", scenario="vordt", seed=7, lanes=2, env_runners=1, episodes=11)
    RunFolder.create(place / "unusual", replace(unusual, synchronous=True))
    RunFolder.create(place / "set", Plan(scale=0.01, overrides={"dodge.gamma": 0.9, "n_step": 3}))
    RunFolder.create(place / "baseline", Plan(graph="end-to-end", scale=0.01))
    GraphFolder.create(place / "compared", GraphStudy(Plan(scale=0.01), ("paper", "end-to-end"), (0,)))
    pretend_run(place / "trained", Plan(scale=0.01))
    study = Study("paper", (101, 102), 11, 0.01, False, True, True, overrides={"double_q": True})
    ReproductionFolder.create(place / "reproduction", study)
    learned = ContinualStudy(str(place / "sequence.toml"), ("newest", "mas"), seeds=(4, 5), preset="fast", scale=0.5)
    learned = replace(learned, skills=("dodge",), episodes=11, rows_every=2)
    ContinualFolder.create(place / "study", replace(learned, options=MethodOptions(mas=3.0, ewc=5.0)))
    InventedRun.draw(("kept", "scratch"), seeds=1, tasks=2).write(place / "invented")
    record(Fighter.oracle("iudex-phase1", random=0.2), evaluation_seeds(5, 1), place / "fights")
    return place


@pytest.fixture(autouse=True)
def _nothing_begins(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in the folder, without a display; fail where Ray is joined or started, or a game is."""
    monkeypatch.chdir(place)
    for name in ("RAY_ADDRESS", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SDL_VIDEODRIVER", "x11")
    for door in (session, workplace):
        monkeypatch.setattr(door, "connect", lambda *_, **__: pytest.fail("a session was begun"))


def _files(folder: Path) -> dict[Path, int]:
    """Return every file but locks, and when it was changed."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file() and path.name[0] != "."}


#: A line, and the name of what is wrong in it.
_LINES = """
# Commands and options.
--json zoo => --json
evaluat run => 'evaluate'
--completion => bash
--completion tcsh => tcsh
evaluate --episods 3 runs/curriculum => --episodes
evaluate runs/curriculum --episods=3 => --episodes
list scenarois => "scenarios"
train --run run --lanes None => --lanes
# Training.
train doge --run new => 'dodge'
train dodge --run new => camera
curriculum --run diary => diary
curriculum --run file/run => file
curriculum --run set --set dodge.gamma=0.8 => dodge.gamma
curriculum --run run --skill-options plain.toml => skill_options
curriculum --run new --set gamma => --set
train --graph end-to-end --run run => graph
train camera --run run --synchronous => synchronous
train camera --run new --places-within -1 => places_within
train camera --run new --fleet fleet.toml --env-runners 2 => simulator
train camera --run new --fleet fleet.toml --no-ray --env-runners 1 => env runners
train camera --run new --fleet fleet.toml --no-ray --address 127.0.0.1:1 => no_ray
train camera --run new --fleet fleet.toml --synchronous => `fleet`
curriculum --run new --games simulated.toml --synchronous => `games`
data clone nowhere --run new => nowhere
data import no.zip --skill camera --run new => no.zip
data import no.zip --skill camra --run run => 'camera'
data import no.zip --skill camera --run unusual --preset best => preset
data import no.zip --skill camera --run iudex-phase1-paper-0 => `run`
# A default that was given is told apart from one that was left out.
train camera --run unusual --preset best => preset
train camera --run unusual --scenario iudex-phase1 => scenario
train camera --run unusual --seed 0 => seed
study reproduce --run reproduction --preset fast => preset
study reproduce --run reproduction --seeds 10 => seeds
study reproduce --run reproduction --set double_q=false => overrides
study continual --run study S8 => S8
study continual --run study --methods kept => methods
study continual --run study --seeds 10 => seeds
study continual --run study --skills auto => skills
study continual --run study --set mas=3 ewc=7 => ewc
# Evaluating and adapting.
evaluate --what table nowhere => nowhere
evaluate nowhere => nowhere
check nowhere => nowhere
adapt nowhere => nowhere
evaluate damaged --what table => plan.json
evaluate run --what table => camera
evaluate trained --run copy --what table => --run
evaluate iudex-phase1-best-0 --scenario vrdt => 'vordt'
evaluate iudex-phase1-best-0 --random dogde => 'dodge'
evaluate iudex-phase1-best-0 --games simulated.toml --fleet fleet.toml => games
evaluate iudex-phase1-best-0 --fleet fleet.toml --seed 3 => seed
evaluate iudex-phase1-best-0 --out file/results => file
adapt run --skills dodge,parry => parry
adapt run --skills auto,dodge => auto
adapt run --scenario iudex-phase1 => scenario
adapt run --scenario nameless-king => scenario
adapt iudex-phase1-best-0 --scenario vordt --run new --set dodge.gama=1 => 'gamma'
study compare nowhere => nowhere
study compare paper end-to-end --run compared --seeds 1 --scale 0.02 => scale = 0.01
check nowhere --learn => nowhere
study sweep nothing.toml --run new => nothing.toml
# Studies and reports.
study reproduce --run new --preset quick => preset
study continual --run new --preset quick => preset
study reproduce --run new --seeds 0 => seeds
study continual --run new --seeds 0 => seeds
study reproduce --run new --first-seed 499 => seeds
study reproduce --run run => `run`
study reproduce --run new --set doubel=true => doubel
study reproduce --run new --set double => --set
report nowhere => nowhere
report trained --against kept => against
report trained trained --out page.html => found 2
study continual S9 => S9
study continual nowhere.toml => nowhere.toml
study continual easy.toml --run new => generated/timing/1
study continual sequence.toml --run new --held-out 2 => held_out
study continual family.toml --run new --held-out 2 => mine
study continual --run diary => diary
study continual --run new --methods kept,newst => newst
study continual --run new --methods kept,kept => methods
study continual --run new --skills dodg => dodg
study continual --run new --skills auto,dodge => auto
study continual --run new --scale nan => scale
study continual --run new --scale 0.001 => 108
study continual --run new --held-out 13 => held_out
study continual --run new --set ewd=1 => ewd
study continual --run new --set ewc => --set
study continual --run new --set ewc=-1 => ewc
study continual --run new --set ewc=1 ewc=2 => --set
study continual --run new --methods kept,newest --set mas=1 => mas
study continual --run new --games games.toml => --games
report nowhere.parquet => nowhere.parquet
report invented/results/costs.parquet => costs.parquet
report invented/results/evaluations.parquet --against kep => 'kept'
check S9 => S9
check generated/tming/1 => 'timing'
check nowhere.toml => nowhere.toml
# Fights.
watch iudex-phase1-bst-0 => 'iudex-phase1-best-0'
watch nowhere --file a.gif => nowhere
watch trained --file a.mp4 --file a.gif => --file
watch trained --file out.mov => mov
watch trained --random doge --file a.gif => doge
watch trained --seconds 0 --file a.gif => seconds
watch trained@dodge => @
watch trained@dodge=1 => @
watch trained@dodge=v1,dodge=v1 => @
watch trained@dodge=v0 => @
watch trained@ => @
watch trained@dodge=v2 => dodge
watch trained@dodge=v1 --random dodge --file a.gif => dodge: expected v1 or random
watch trained --side-by-side trained@doge=v1 => 'dodge'
watch trained => display
watch trained --run run => run
watch broken/one.parquet --file page.html --random dodge => random
play => display
play --scenario vordt --boss vordt => boss
play --boss vord => 'vordt'
play --keys none.toml => none.toml
watch broken/one.parquet --file page.html => one.parquet
report nowhere --every => nowhere
check nowhere --project gone => gone
data export nowhere --out o => rllib
data export nowhere --rllib dodge --out o => nowhere
data export fights --rllib dodge --name x --out o => name
data export fights --rllib dodge --check 3 --out o => check
data record nobody --out o => nobody
data record oracle --random 1.5 --out o => random
data record oracle --delay 21 --out o => delay
data record oracle --randomize dodge --out o => randomize
data record oracle --after fights --out o => after
data record oracle --games g.toml --out o => games
data record iudex-phase1-best-0 --journal --out o => journal
data record run --journal --episodes 2 --out o => episodes
report nowhere --scenario iudex-phase1 => nowhere
report fights --scenario margit => margit
data calibrate fights --boss iudex-phase1 --out mine.toml => fights
data calibrate nowhere --boss gundyr --out mine.toml => boss
data calibrate broken --boss iudex-phase1 --out mine.toml => one.parquet
data calibrate fights --boss iudex-phase1 --out plain.toml --simulated => plain.toml
# The zoo.
zoo iudex => iudex
zoo iudex-phase1-bset-0 --run mine => 'iudex-phase1-best-0'
zoo iudex-phase1-best-0 --run diary => diary
report iudex-phase1-best-0 => `out`
check nobody => nobody
check iudex-phase1-best-0 trained => trained
check iudex-phase1-best-0 --episodes 1001 => episodes
data export iudex-phase1-best-0 --out new => onnx
data export iudex-phase1-best-0 --onnx --check 0 --out new => check
data export diary --onnx --out new => diary
# Games and fleets.
game standin --speed 9 => speed
game standin --seed -1000000000000000000000000000000 => seed
game standin => display
doctor --games none.toml => none.toml
doctor --setup new.toml --games simulated.toml => simulator
fleet host --head 127.0.0.1:1 --token-file none --games none.toml => none
fleet host --head 127.0.0.1:1 --token-file file --games simulated.toml --project nowhere => nowhere
fleet token 'pc 1' --fleet fleet.toml => 'pc 1'
fleet token pc --fleet none.toml => none.toml
fleet token pc --fleet open.toml => certificate
fleet token pc --fleet fleet.toml --out file => file
fleet token pc --revoke --fleet fleet.toml => 'pc'
fleet token pc --revoke --out t --fleet fleet.toml => revoke
fleet certificates --fleet fleet.toml head.lan:7443 => head.lan:7443
fleet certificates --fleet fleet.toml => HOSTS
fleet status nowhere => nowhere
check run --journal camera => camera
"""
_TABLE = [tuple(line.split(" => ")) for line in _LINES.splitlines() if line and line[0] != "#"]
_TABLE += [("study reproduce --run new --set fcnet_hiddens=" + "[" * 50_000, "fcnet_hiddens")]


@pytest.mark.parametrize(("line", "name"), _TABLE, ids=[line[:60] for line, _ in _TABLE])
def test_a_line_is_refused_by_name_and_changes_nothing(refuse, place, line, name):
    before = _files(place)
    refused = refuse(*shlex.split(line))
    assert name in refused
    assert len(refused) < 1_000
    assert _files(place) == before
    assert not (place / "new").exists()


@pytest.mark.parametrize(
    ("words", "text", "name"),
    [
        ("check", _SEQUENCE.format("vord"), "mine.toml: tasks[1].scenario"),
        ("check", _SEQUENCE.format("own.toml"), "own.toml: boss"),
        ("check", f'{_OWN}boss = "gone.toml"', "mine.toml: boss"),
        ("check", 'based_on = "iudex-full"\nname = "x"\n[transition]\nboss = "x"', "transition.boss"),
        ("curriculum --run new --scenario", f"{_OWN}flasks = -1", "mine.toml: flasks"),
        ("train camera --run new --games", '[[games]]\ndriver = "memory"\nmap = "ds"', "mine.toml: games[0].map"),
        (
            "train camera --run new --games",
            '[[games]]\ndriver = "siphon"\nmap = "elden-ring-1.16.1"\nhost = "game-pc:port"',
            "game-pc:port",
        ),
        ("doctor --setup new.toml --games", "[[games]]\n[[games]]\n", "2 games"),
        ("study sweep --run new", "[dodge]\ngama = [0.9]", "mine.toml: dodge.gama"),
    ],
)
def test_a_value_in_a_file_is_refused_with_the_file_and_the_key(refuse, place, words, text, name):
    (place / "mine.toml").write_text(text)
    (place / "own.toml").write_text(f'{_OWN}boss = "nobody"')
    refused = refuse(*words.split(), "mine.toml")
    assert name in refused
    assert not (place / "new").exists()
    assert not (place / "new.toml").exists()


@pytest.mark.parametrize(
    "line",
    [
        "curriculum --run unusual",
        "curriculum --run unusual --preset paper --scenario vordt --seed 7 --scale 1e-2 --lanes 2 --synchronous",
        "curriculum --run set --set n_step=3 dodge.gamma=0.9",
        "train camera --run run",
        "curriculum --run new",
        "study reproduce --run reproduction",
        "study reproduce --run reproduction --preset paper --seeds 2 --first-seed 101 --no-baseline --skills "
        "--set double_q=true",
        "study continual --run study",
        "study continual sequence.toml --methods newest,mas --seeds 2 --preset fast --scale 0.5 --run study "
        "--skills dodge --episodes 11 --rows-every 2 --set mas=3",
    ],
)
def test_what_says_the_same_goes_on_as_far_as_a_cluster_that_does_not_answer(refuse, place, monkeypatch, line):
    monkeypatch.undo()
    monkeypatch.chdir(place)
    assert "127.0.0.1:9" in refuse(*shlex.split(line), "--address", "127.0.0.1:9", code=69)
    assert not (place / "new").exists()


@pytest.mark.parametrize(
    "line", ["curriculum --run", "train camera --run", "train --graph end-to-end --run", "study reproduce --run"]
)
def test_nothing_is_begun_by_an_environment_that_ray_cannot_use(refuse, place, monkeypatch, line):
    monkeypatch.undo()
    monkeypatch.chdir(place)
    monkeypatch.setenv("RAY_ADDRESS", "head:port")
    assert "head:port" in refuse(*line.split(), "new")
    assert not (place / "new").exists()
