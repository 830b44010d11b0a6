import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from soulsgraph_envs.core.errors import DataError, ReadError, SoulsGraphError
from soulsgraph_policies.agents.library import (
    Artifact,
    LibraryError,
    NormalizerStatistics,
    SkillCard,
    SkillLibrary,
    Training,
    UpstreamArtifact,
)
from soulsgraph_policies.agents.projects import PAPER_GRAPH, SkillGraph

_SIZES = (3, 8, 4)
_FIRST = "q_network.0.weight"
_DIGESTS = {"fight": "a" * 64, "learning": "b" * 64}
_TRAINING = Training("iudex-phase1", "mid", "fast", 80_000, 80_000, 7, "2026-01-01", {"ray": "2.60.0"}, **_DIGESTS)


def _artifact(skill="camera", seed=0, **changes):
    random = np.random.default_rng(seed)
    parameters = {}
    for index, (inputs, outputs) in enumerate(pairwise(_SIZES)):
        parameters[f"q_network.{2 * index}.weight"] = random.normal(size=(outputs, inputs)).astype(np.float32)
        parameters[f"q_network.{2 * index}.bias"] = random.normal(size=outputs).astype(np.float32)
    card = SkillCard(
        skill=skill,
        version=0,
        graph=PAPER_GRAPH.name,
        graph_skills=PAPER_GRAPH.skills,
        graph_edges=PAPER_GRAPH.edges,
        graph_digest=PAPER_GRAPH.digest,
        observation=("DISTANCE", "STAMINA", "LOCKED"),
        normalizer=NormalizerStatistics((0.1, 1e-300, -3.0), (1.0, 1 / 3, 0.0), 1e6 + 1e-4),
        layer_sizes=_SIZES,
        observation_clip=10.0,
        training=_TRAINING,
        results={"episodes": 5, "win_rate": 5.0},
    )
    return Artifact(replace(card, **changes), parameters)


@pytest.fixture
def library(tmp_path):
    return SkillLibrary(tmp_path / "library", PAPER_GRAPH)


def _content(library):
    return {path: path.read_bytes() for path in library.folder.rglob("*") if path.is_file()}


def test_a_saved_skill_comes_back_bit_for_bit(library):
    saved = _artifact()
    card = library.save(saved)
    loaded = library.load("camera")
    assert loaded.card == card == replace(saved.card, version=1, sha256=card.sha256)
    assert list(map(repr, loaded.card.results.values())) == ["5", "5.0"]
    assert loaded.parameters.keys() == saved.parameters.keys()
    for name, values in saved.parameters.items():
        np.testing.assert_array_equal(loaded.parameters[name], values)
    # A line a value, for people and what compares files.
    assert '\n  "version": 1,\n' in (library.folder / "camera" / "v1" / "card.json").read_text()
    # Whoever changes a card changes no other reader's.
    loaded.card.results["win_rate"] = 99.0
    loaded.card.training.packages["ray"] = "0"
    assert library.card("camera", 1) == card


def test_versions_stand_beside_each_other_in_order_of_number(library):
    library.save(_artifact(seed=0))
    first = _content(library)
    library.save(_artifact(seed=1, parent=1))
    assert library.versions("camera") == [1, 2]
    assert first.items() <= _content(library).items()
    assert not np.array_equal(library.load("camera", 1).parameters[_FIRST], library.load("camera").parameters[_FIRST])
    assert [card.version for card in library.lineage("camera", 2)] == [2, 1]
    for seed in range(2, 11):
        library.save(_artifact(seed=seed))
    assert library.versions("camera") == list(range(1, 12))
    assert library.latest("camera") == 11


def test_upstream_skills_are_recognised_by_their_content(library, tmp_path):
    camera = library.save(_artifact())
    lock_on = _artifact("lock_on", upstream=(UpstreamArtifact("camera", 1, camera.digest),))
    library.save(lock_on)
    assert library.load("lock_on").card.upstream == lock_on.card.upstream
    other = SkillLibrary(tmp_path / "other", PAPER_GRAPH)
    other.save(_artifact(seed=5))
    other.save(lock_on)
    with pytest.raises(LibraryError, match="that lock_on v1 was trained on"):
        other.load("lock_on")


def test_a_digest_is_of_what_makes_a_skill_play_and_a_checksum_of_the_whole_card(library):
    card, second = library.save(_artifact(seed=0)), library.save(_artifact(seed=1))
    assert replace(card, version=2).digest != second.digest
    for later in (
        replace(card, results={"win_rate": 1.0}),
        replace(card, training=replace(_TRAINING, created="2030-01-01")),
        replace(card, training=replace(_TRAINING, packages={"ray": "3.0"})),
    ):
        assert later.digest == card.digest
        assert later.checksum != card.checksum


def test_another_graphs_library_another_skills_card_and_a_skill_never_trained_are_refused(library):
    library.save(_artifact())
    before = _content(library)
    other = SkillLibrary(library.folder, SkillGraph("other", PAPER_GRAPH.skills, ()))
    for ask in (lambda: other.load("camera"), lambda: other.save(_artifact())):
        with pytest.raises(LibraryError, match="other"):
            ask()
    assert _content(library) == before
    with pytest.raises(LibraryError, match="dodge"):
        library.load("dodge")
    (library.folder / "camera").rename(library.folder / "dodge")
    with pytest.raises(LibraryError, match="dodge"):
        library.load("dodge")


@pytest.mark.parametrize("name", ["weights.safetensors", "card.json"])
@settings(max_examples=40)
@given(data=st.data())
def test_no_damage_to_a_file_goes_unnoticed(tmp_path_factory, name, data):
    library = SkillLibrary(tmp_path_factory.mktemp("library"), PAPER_GRAPH)
    library.save(_artifact())
    path = library.folder / "camera" / "v1" / name
    good = path.read_bytes()
    place = data.draw(st.integers(0, len(good) - 2))
    mask = data.draw(st.integers(0, 255), label="what is flipped there; 0 cuts the file off")
    bad = good[:place] + bytes([good[place] ^ mask]) + good[place + 1 :] if mask else good[:place]
    path.write_bytes(bad)
    message = ""
    try:
        library.load("camera")
    except SoulsGraphError as error:
        message = str(error)
    # Nothing counts but what the JSON says: a space may as well be a tab.
    assert name in message or (name == "card.json" and json.loads(bad) == json.loads(good))
    assert "\n" not in message
    assert path.read_bytes() == bad


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"format_version": 2}, "format_version"),
        ({"layer_sizes": [3, 9, 4]}, "digest"),
        ({"layer_sizes": [3, 0, 4]}, "layer_sizes"),
        ({"normalizer": {"mean": [0.0] * 3, "variance": [1.0, -1.0, 1.0], "count": 1.0}}, "variance"),
        ({"seed": 3}, "seed"),
        ({"results": {"win_rate": 0.5}}, "checksum"),
        ({"upstream": [{"skill": "camera", "version": 1}]}, "upstream"),
        ({"observation_clip": 0}, "observation_clip"),
        ({"checksum": None}, "checksum"),
    ],
)
def test_a_card_at_odds_with_itself_names_the_key(library, change, name):
    library.save(_artifact())
    path = library.folder / "camera" / "v1" / "card.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(DataError, match=rf"card\.json: .*{name}"):
        library.load("camera")


@pytest.mark.parametrize("linked", [False, True])
def test_an_unreadable_folder_of_a_skill_is_an_error_and_no_omission(library, linked):
    library.folder.mkdir()
    folder = library.folder / "camera"
    folder.symlink_to("none") if linked else folder.touch()
    with pytest.raises((ReadError, LibraryError), match="library/camera"):
        library.versions("camera")


def test_tensors_that_contradict_the_card_and_a_place_below_a_file_are_never_saved_to(library, tmp_path):
    parameters = {name: values for name, values in _artifact().parameters.items() if name != _FIRST}
    with pytest.raises(SoulsGraphError, match=_FIRST):
        library.save(replace(_artifact(), parameters=parameters))
    assert not library.folder.exists()
    (tmp_path / "file").touch()
    with pytest.raises(ReadError, match="file"):
        SkillLibrary(tmp_path / "file" / "library", PAPER_GRAPH).save(_artifact())
