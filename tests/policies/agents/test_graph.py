"""The directed skill graph."""

import pytest

from soulsgraph_envs.core.errors import SoulsGraphError, UnknownNameError
from soulsgraph_policies.agents.projects import PAPER_GRAPH, SkillGraph


def test_the_papers_chain_is_equation_2():
    assert PAPER_GRAPH.order == ("camera", "lock_on", "movement", "dodge", "heal_attack")
    assert PAPER_GRAPH.upstream("camera") == ()
    assert PAPER_GRAPH.upstream("dodge") == ("camera", "lock_on", "movement")


def test_upstream_follows_every_path_of_a_branching_graph():
    graph = SkillGraph("y", ("a", "b", "c", "d"), (("a", "c"), ("b", "c"), ("c", "d")))
    assert set(graph.upstream("d")) == {"a", "b", "c"}
    assert graph.upstream("b") == ()
    assert graph.leaves == ("d",)
    assert graph.order.index("c") > max(graph.order.index("a"), graph.order.index("b"))


def test_a_cycle_an_unknown_edge_and_a_question_about_an_unknown_skill_are_refused():
    with pytest.raises(SoulsGraphError, match="loop"):
        SkillGraph("loop", ("a", "b"), (("a", "b"), ("b", "a")))
    with pytest.raises(UnknownNameError, match="b"):
        SkillGraph("typo", ("a",), (("a", "b"),))
    with pytest.raises(UnknownNameError, match="parry"):
        PAPER_GRAPH.upstream("parry")


def test_a_digest_and_an_order_are_of_skills_and_edges_not_of_a_name_or_their_order():
    skills, edges = ("join", "left", "right"), (("left", "join"), ("right", "join"))
    one, other = SkillGraph("x", skills, edges), SkillGraph("y", skills, edges[::-1])
    assert (one.digest, one.order) == (other.digest, other.order)
    assert SkillGraph("x", skills, ()).digest != one.digest
