"""The defaults of continual methods are those that the kept tries chose."""

from __future__ import annotations

import json
from pathlib import Path

from soulsgraph.continual.methods import METHODS
from soulsgraph.continual.methods.method import MethodOptions

TRIES = Path(__file__).parents[3] / "docs" / "results" / "continual-choosing"


def test_every_method_with_coefficients_had_three_tries_of_which_the_best_is_the_default() -> None:
    tries: dict[str, list[tuple[float, MethodOptions]]] = {}
    for file in sorted(TRIES.glob("*/plan.json")):
        plan = json.loads(file.read_text(encoding="utf-8"))["plan"]
        report = json.loads(file.with_name("report.json").read_text(encoding="utf-8"))
        means = {one["method"]: one["mean"] for one in report["scores"] if one["metric"] == "average_performance"}
        if plan["seeds"] == [100] and plan.get("graph", "paper") == "paper":
            assert (plan["sequence"], plan["skills"]) == ("S20-choose", ["dodge", "heal_attack"])
            for method in plan["methods"]:
                if METHODS[method].coefficients:
                    tries.setdefault(method, []).append((means[method], MethodOptions(**plan["options"])))
    assert {name: len(those) for name, those in tries.items()} == {
        name: 3 for name, method in METHODS.items() if method.coefficients
    }
    for name, those in tries.items():
        _, best = max(those, key=lambda one: one[0])
        # Three methods share the reserve's share, which replay and base chose.
        own = set(METHODS[name].coefficients) - ({"reserve_share"} if name == "clonex" else set())
        assert {key: getattr(best, key) for key in own} == {key: getattr(MethodOptions(), key) for key in own}, name
