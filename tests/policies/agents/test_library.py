import io
import json
import pickle
from dataclasses import asdict, fields, replace
from itertools import pairwise

import numpy as np
import pytest
import torch
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
    graph_fields,
)
from soulsgraph_policies.agents.projects import PAPER_GRAPH, SkillGraph

_OBSERVATION = ("DISTANCE", "STAMINA", "LOCKED")
_SIZES = (3, 8, 4)
_FIRST = "q_network.0.weight"
_DIGESTS = {"fight": "a" * 64, "learning": "b" * 64}
_TRAINING = Training("iudex-phase1", "mid", "fast", 80_000, 80_000, 7, "2026-01-01", {"ray": "2.60.0"}, **_DIGESTS)


def _artifact(skill="camera", seed=0, **changes):
    random = np.random.default_rng(seed)
    parameters = {"head.value.bias": random.normal(size=1).astype(np.float32)}
    for index, (inputs, outputs) in enumerate(pairwise(_SIZES)):
        parameters[f"q_network.{2 * index}.weight"] = random.normal(size=(outputs, inputs)).astype(np.float32)
        parameters[f"q_network.{2 * index}.bias"] = random.normal(size=outputs).astype(np.float32)
    card = SkillCard(
        skill=skill,
        version=0,
        **graph_fields(PAPER_GRAPH),
        observation=_OBSERVATION,
        normalizer=NormalizerStatistics((0.1, 1e-300, -3.0), (1.0, 1 / 3, 0.0), 1e6 + 1e-4),
        layer_sizes=_SIZES,
        observation_clip=10.0,
        training=_TRAINING,
        results={"win_rate": 0.25},
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
    assert loaded.parameters.keys() == saved.parameters.keys()
    for name, values in saved.parameters.items():
        np.testing.assert_array_equal(loaded.parameters[name], values)
    assert loaded.weights.keys() - loaded.playing.keys() == {"head.value.bias"}


def test_versions_stand_beside_each_other(library):
    library.save(_artifact(seed=0))
    first = _content(library)
    library.save(_artifact(seed=1, parent=1))
    assert library.versions("camera") == [1, 2]
    assert library.latest("camera") == 2
    assert first.items() <= _content(library).items()
    assert not np.array_equal(library.load("camera", 1).parameters[_FIRST], library.load("camera").parameters[_FIRST])
    assert [card.version for card in library.lineage("camera", 2)] == [2, 1]


def test_versions_are_in_order_of_number(library):
    for seed in range(11):
        library.save(_artifact(seed=seed))
    assert library.versions("camera") == list(range(1, 12))


def test_a_skill_never_trained_is_an_error(library):
    with pytest.raises(LibraryError, match=r"dodge: expected a trained dodge, found none; train it first"):
        library.load("dodge")


def test_upstream_skills_are_recognised_by_their_content(library, tmp_path):
    camera = library.save(_artifact())
    lock_on = library.save(_artifact("lock_on", upstream=(UpstreamArtifact("camera", 1, camera.digest),)))
    library.check_upstream(lock_on)
    other = SkillLibrary(tmp_path / "other", PAPER_GRAPH)
    other.save(_artifact(seed=5))
    with pytest.raises(LibraryError, match="lock_on v1 was trained on"):
        other.check_upstream(lock_on)


def test_the_digest_tells_weights_apart_but_not_results(library):
    first, second = library.save(_artifact(seed=0)), library.save(_artifact(seed=1))
    assert replace(first, version=2).digest != second.digest
    assert replace(first, results={"win_rate": 1.0}).digest == first.digest


def test_a_library_of_another_graph_is_refused(library):
    library.save(_artifact())
    before = _content(library)
    other = SkillLibrary(library.folder, SkillGraph("other", PAPER_GRAPH.skills, ()))
    with pytest.raises(
        LibraryError, match=r"card.json: expected a skill of the graph 'other'.*use a run of this graph"
    ):
        other.load("camera")
    with pytest.raises(LibraryError, match="expected a skill of the graph 'other'"):
        other.save(_artifact())
    assert _content(library) == before


def test_a_card_in_the_place_of_another_skill_is_refused(library):
    library.save(_artifact())
    (library.folder / "camera").rename(library.folder / "dodge")
    with pytest.raises(LibraryError, match="expected dodge v1, found camera v1"):
        library.load("dodge")


def test_weights_of_another_version_are_refused(library):
    library.save(_artifact(seed=0))
    library.save(_artifact(seed=1))
    one, two = (library.folder / "camera" / f"v{n}" / "weights.safetensors" for n in (1, 2))
    one.write_bytes(two.read_bytes())
    with pytest.raises(LibraryError, match=r"v1/weights.safetensors: expected sha256 .*restore the file"):
        library.load("camera", 1)


@pytest.mark.parametrize("name", ["weights.safetensors", "card.json"])
@settings(max_examples=60)
@given(data=st.data())
def test_no_damage_to_a_file_goes_unnoticed(tmp_path_factory, name, data):
    library = SkillLibrary(tmp_path_factory.mktemp("library"), PAPER_GRAPH)
    library.save(_artifact())
    path = library.folder / "camera" / "v1" / name
    good = path.read_bytes()
    if data.draw(st.booleans(), label="truncate"):
        bad = good[: data.draw(st.integers(0, len(good) - 2), label="length")]
    else:
        position = data.draw(st.integers(0, len(good) - 2), label="position")
        flipped = good[position] ^ data.draw(st.integers(1, 255), label="mask")
        bad = good[:position] + bytes([flipped]) + good[position + 1 :]
    path.write_bytes(bad)
    message = _refusal(library)
    assert path.read_bytes() == bad
    if message is None:
        # Nothing counts but what the JSON says: a space may as well be a tab.
        assert name == "card.json"
        assert json.loads(bad) == json.loads(good)
    else:
        assert name in message
        assert "\n" not in message


def _refusal(library):
    try:
        library.load("camera")
    except SoulsGraphError as error:
        return str(error)
    return None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format_version": 2}, "format_version: expected 1, found 2"),
        ({"layer_sizes": [3, 9, 4]}, "digest: expected"),
        ({"layer_sizes": [2, 8, 4]}, "layer_sizes: expected 3 inputs"),
        ({"normalizer": {"mean": [0.0], "variance": [1.0], "count": 1.0}}, "normalizer.mean: expected 3 values"),
        ({"seed": 3}, "seed: expected .*found an unknown key"),
        ({"version": "1"}, r"card\.json: version: expected a whole number, found '1'"),
        ({"results": {"win_rate": 0.5}}, "checksum: expected that of its content"),
        ({"results": {"win_rate": [[0.25]]}}, r"results\.win_rate: expected a number, found \[\[0\.25\]\]"),
        ({"training": asdict(replace(_TRAINING, steps=80_001))}, "checksum: expected that of its content"),
        ({"training": {**asdict(_TRAINING), "note": ""}}, r"training\.note: expected .*found an unknown key"),
        ({"training": {**asdict(_TRAINING), "packages": {"ray": 2}}}, r"training\.packages\.ray: expected a text"),
        ({"graph_edges": [["camera"]]}, r"graph_edges\[0\]: expected a list of 2 texts"),
        ({"graph_edges": [["camera", 2]]}, r"graph_edges\[0\]\[1\]: expected a text, found 2"),
        ({"layer_sizes": [3, 0, 4]}, r"layer_sizes\[1\]: expected a whole number from 1"),
        ({"normalizer": {"mean": [0.0] * 3, "variance": [1.0, -1.0, 1.0], "count": 1.0}}, r"variance\[1\]: .* from 0"),
        (
            {"upstream": [{"skill": "camera", "version": 1}]},
            r"upstream\[0\]\.digest: expected a text, found no such key",
        ),
        ({"observation_clip": 0}, "observation_clip: expected a number from 1e-12"),
        ({"checksum": "0" * 64}, "checksum: expected that of its content"),
        ({"checksum": None}, "checksum: expected a text, found None"),
        ({"observation_clip": 10**400}, "observation_clip: expected a whole number of at most 64 bits"),
    ],
)
def test_a_card_at_odds_with_itself_names_the_key(library, change, message):
    library.save(_artifact())
    path = library.folder / "camera" / "v1" / "card.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(SoulsGraphError, match=message):
        library.load("camera")


def test_a_card_nested_beyond_measure_is_an_error(library):
    library.save(_artifact())
    path = library.folder / "camera" / "v1" / "card.json"
    for depth in (400, 100_000):
        nested = f'"results": {"[" * depth}{"]" * depth}'
        path.write_text(path.read_text().replace('"results": {\n    "win_rate": 0.25\n  }', nested))
        with pytest.raises(DataError, match=r"card\.json: .*expected at most 32 tables or lists"):
            library.load("camera")


def test_results_come_back_as_they_were_written(library):
    card = library.save(_artifact(results={"episodes": 5, "win_rate": 5.0}))
    assert list(map(repr, library.card("camera", 1).results.values())) == ["5", "5.0"]
    assert library.card("camera", 1).checksum == card.checksum


@pytest.mark.parametrize("key", [spec.name for spec in fields(SkillCard)])
def test_a_card_without_one_of_its_keys_is_refused(library, key):
    library.save(_artifact())
    path = library.folder / "camera" / "v1" / "card.json"
    path.write_text(json.dumps({name: value for name, value in json.loads(path.read_text()).items() if name != key}))
    with pytest.raises(DataError, match=rf"card\.json: {key}: expected .*, found (no such key|None); restore the file"):
        library.load("camera")


def test_who_changes_a_card_changes_no_other_readers(library):
    library.save(replace(_artifact(), card=replace(_artifact().card, results={"win_rate": 0.5})))
    library.card("camera", 1).results["win_rate"] = 99.0
    library.card("camera", 1).training.packages["ray"] = "0"
    again = library.card("camera", 1)
    assert (again.results["win_rate"], again.training.packages["ray"]) == (0.5, "2.60.0")


def test_a_digest_is_of_what_makes_a_skill_play_and_a_checksum_of_the_whole_card(library):
    card = library.save(_artifact())
    for training in (replace(_TRAINING, created="2030-01-01"), replace(_TRAINING, packages={"ray": "3.0"})):
        later = replace(card, training=training)
        assert later.digest == card.digest
        assert later.checksum != card.checksum


def test_a_card_whose_checksum_was_taken_out_is_refused(library):
    library.save(_artifact())
    path = library.folder / "camera" / "v1" / "card.json"
    values = json.loads(path.read_text())
    del values["checksum"]
    path.write_text(json.dumps(values))
    with pytest.raises(DataError, match="checksum: expected a text, found None"):
        library.load("camera")


@pytest.mark.parametrize("kind", ["file", "link to itself", "link to none"])
def test_an_unreadable_folder_of_a_skill_is_an_error_and_no_omission(library, tmp_path, kind):
    library.save(_artifact())
    folder = library.folder / "camera"
    folder.rename(tmp_path / "aside")
    if kind == "file":
        folder.touch()
    else:
        folder.symlink_to(folder if kind == "link to itself" else tmp_path / "none")
    for ask in (library.versions, library.latest, library.load):
        with pytest.raises((ReadError, LibraryError), match="library/camera: expected") as caught:
            ask("camera")
        assert "write" not in str(caught.value)


def test_a_library_that_is_a_link_to_none_is_an_error_and_no_omission(library):
    library.save(_artifact())
    library.folder.rename(library.folder.with_name("aside"))
    library.folder.symlink_to("aside")
    assert library.versions("camera") == [1]
    assert library.versions("dodge") == []
    library.folder.with_name("aside").rename(library.folder.with_name("gone"))
    with pytest.raises(LibraryError, match="expected a folder, found a broken link"):
        library.versions("camera")


def test_tensors_that_contradict_the_card_are_never_saved(library):
    parameters = {name: values for name, values in _artifact().parameters.items() if name != "q_network.2.weight"}
    wrong = replace(_artifact(), parameters=parameters)
    with pytest.raises(SoulsGraphError, match=r"q_network.2.weight: expected a float32 tensor \(4, 8\), found none"):
        library.save(wrong)
    assert not library.folder.exists()


def test_a_place_below_a_file_is_refused_in_one_line(tmp_path):
    blocker = tmp_path / "file"
    blocker.touch()
    with pytest.raises(ReadError, match=r"file.*choose a path that leads through folders") as caught:
        SkillLibrary(blocker / "library", PAPER_GRAPH).save(_artifact())
    assert "\n" not in str(caught.value)


class _Refusing:
    """Replaces every unpickler, and fails where one is made."""

    def __init__(self, *_, **__):
        raise AssertionError("unpickled")


@pytest.fixture
def unpickling_refused(monkeypatch):
    for place in ("pickle", "torch._weights_only_unpickler"):
        monkeypatch.setattr(f"{place}.Unpickler", _Refusing)
    for name in ("load", "loads"):  # which make theirs in C
        monkeypatch.setattr(f"pickle.{name}", _Refusing)


def test_nothing_in_the_library_needs_pickle(library, tmp_path, request):
    library.save(_artifact())
    pickled, saved, array = tmp_path / "pickled", tmp_path / "saved", tmp_path / "array.npy"
    pickled.write_bytes(pickle.dumps({"weight": 1.0}))
    torch.save({"weight": torch.zeros(3)}, saved)
    np.save(array, np.array([{"weight": 1.0}]), allow_pickle=True)
    request.getfixturevalue("unpickling_refused")
    for load in (
        lambda: pickle.loads(pickled.read_bytes()),
        lambda: pickle.Unpickler(io.BytesIO(pickled.read_bytes())).load(),
        lambda: torch.load(saved, weights_only=True),
        lambda: torch.load(saved, weights_only=False),
        lambda: np.load(array, allow_pickle=True),
    ):
        with pytest.raises((AssertionError, TypeError, pickle.UnpicklingError)) as caught:
            load()
        assert "unpickled" in str(caught.value), "the guard notices every way"
    library.load("camera")
