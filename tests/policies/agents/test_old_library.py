"""Skill folders of format 1, with and without a checksum in their cards, are read by their own rules."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.scenario import load_scenario
from soulsgraph_envs.skills import make_skill
from soulsgraph_policies.agents.inference import FusedNetworks
from soulsgraph_policies.agents.library import LibraryError, SkillLibrary, artifact_from
from soulsgraph_policies.agents.projects import PAPER_GRAPH

#: Trained for 200 steps a skill before cards had a checksum, and the digests they had then.
_OLD_LIBRARY = Path(__file__).parent / "data" / "library_without_checksums"
_OLD_CARDS = {
    "camera": "7e95a48bd0eabbf9a7703fce00ea83747e60f9a3272a206b5c499a88522d328e",
    "lock_on": "186929f51c73f1a11f3f060029331a2c0ce41bd8f0a434311c802905b3006ee7",
}
#: Every kind of folder before today's, by what its sample is called: those, and all skills of the paper as the last
#: code that wrote format 1 (commit 90ac6a7) trained them for a hundredth of their budgets.
_KEPT = {"without_checksums": tuple(_OLD_CARDS), "of_format_1": PAPER_GRAPH.order}


@pytest.fixture
def library(tmp_path):
    return SkillLibrary(tmp_path / "library", PAPER_GRAPH)


def test_a_library_from_before_checksums_loads_and_its_digests_hold(library):
    old = SkillLibrary(_OLD_LIBRARY, PAPER_GRAPH)
    for skill, card in _OLD_CARDS.items():
        written = json.loads((_OLD_LIBRARY / skill / "v1" / "card.json").read_text())
        assert "checksum" not in written
        assert old.load(skill).card.digest == written["digest"] == card
        old.check_upstream(old.card(skill, 1))
    renewed = library.save(old.load("camera"))
    assert (renewed.format_version, renewed.training) == (2, old.card("camera", 1).training)
    assert json.loads((library.folder / "camera" / "v1" / "card.json").read_text())["checksum"] == renewed.checksum


@pytest.mark.parametrize("version", [1, 2])
def test_a_layer_too_many_is_refused_in_either_format(library, version):
    old = SkillLibrary(_OLD_LIBRARY, PAPER_GRAPH)
    if version == 2:
        library.save(old.load("camera"))
    folder = (library if version == 2 else old).folder / "camera" / "v1"
    card = (library if version == 2 else old).card("camera", 1)
    surplus = {"layer.9.weight": np.zeros((2, 2), np.float32)}
    with pytest.raises(LibraryError, match=r"layer\.9\.weight"):
        artifact_from(card, load_file(folder / "weights.safetensors") | surplus, folder)


@pytest.mark.parametrize(("kept_as", "skills"), _KEPT.items())
def test_skills_written_in_the_old_format_play_as_they_did(library, kept_as, skills):
    """The file holds the Q-values of 64 drawn State rows, computed by the code that wrote the format."""
    folder = _OLD_LIBRARY.parent / f"library_{kept_as}"
    old, kept = SkillLibrary(folder, PAPER_GRAPH), np.load(folder.parent / f"q_values_{kept_as}.npz")
    scenario, rows = load_scenario("iudex-phase1"), kept["rows"]
    assert kept.keys() - {"rows"} == {*skills} == {path.name for path in folder.iterdir()}
    for skill in skills:
        artifact = old.load(skill)
        raw = load_file(folder / skill / "v1" / "weights.safetensors")
        np.testing.assert_array_equal(artifact.parameters["q_network.2.weight"], raw["layer.1.weight"].T)
        # On another processor the last bits of values differ, which may decide between two that are as good as equal.
        values = np.sort(kept[skill], axis=1)
        decided = values[:, -1] - values[:, -2] > 1e-5 * np.abs(values).max(axis=1)
        assert decided.sum() >= 60
        library.save(artifact)
        for found in (artifact, library.load(skill)):
            networks, actions = FusedNetworks([found.network(make_skill(skill), scenario)]), np.zeros((64, 1), np.int64)
            networks.act(rows, np.ones((64, 1), np.bool_), actions)
            np.testing.assert_array_equal(actions[decided, 0], kept[skill].argmax(axis=1)[decided])
            np.testing.assert_allclose(networks.q_values(0, rows), kept[skill], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("skill", _OLD_CARDS)
def test_a_damaged_folder_of_the_old_format_is_refused_by_its_own_rule(tmp_path, skill):
    shutil.copytree(_OLD_LIBRARY, tmp_path / "old")
    library, folder = SkillLibrary(tmp_path / "old", PAPER_GRAPH), tmp_path / "old" / skill / "v1"
    written = (folder / "weights.safetensors").read_bytes()
    for place in (0, len(written) // 2, len(written) - 1):
        damaged = bytearray(written)
        damaged[place] ^= 1
        (folder / "weights.safetensors").write_bytes(damaged)
        with pytest.raises(LibraryError, match=r"weights\.safetensors: expected sha256 .*restore the file"):
            library.load(skill)
    (folder / "weights.safetensors").write_bytes(written)
    library.load(skill)
    card = json.loads((folder / "card.json").read_text())
    (folder / "card.json").write_text(json.dumps(card | {"observation_clip": card["observation_clip"] + 1.0}))
    with pytest.raises(SoulsGraphError, match="digest"):
        library.load(skill)


def test_every_skill_of_format_1_has_the_upstream_and_the_digest_that_it_was_written_with():
    folder = _OLD_LIBRARY.parent / "library_of_format_1"
    old = SkillLibrary(folder, PAPER_GRAPH)
    for skill in PAPER_GRAPH.order:
        written = json.loads((folder / skill / "v1" / "card.json").read_text())
        card = old.load(skill).card
        assert (card.format_version, card.digest, card.sha256) == (1, written["digest"], written["sha256"])
        assert [one.skill for one in card.upstream] == [*PAPER_GRAPH.upstream(skill)]
        old.check_upstream(card)
