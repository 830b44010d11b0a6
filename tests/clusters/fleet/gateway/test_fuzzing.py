"""Damaged messages and chunks: refused in one line or by a verdict, and nothing else. SOULSGRAPH_FUZZ sets how many."""

import os

import pytest

from fakes.fuzzing import fuzz

MESSAGES = int(os.environ.get("SOULSGRAPH_FUZZ", "3000"))


@pytest.mark.parametrize("messages", [MESSAGES, pytest.param(1_000_000, marks=[pytest.mark.chaos, pytest.mark.slow])])
def test_no_message_leads_to_anything_but_a_refusal_or_a_verdict(messages):
    found = fuzz(messages, seed=1)
    sent = sum(count for outcome, count in found.items() if outcome.endswith(("taken", "refused")))
    assert sent == messages
    # Both sides of every check were reached.
    for kind in ("hello", "chunk", "weights"):
        assert found[f"{kind} taken"] > messages / 1000, kind
        assert found[f"{kind} refused"] > messages / 1000, kind
    assert found["message refused"] > messages / 100
    for verdict in ("learned", "malformed", "other stage"):
        assert found[f"chunk {verdict}"] > messages / 200, verdict
