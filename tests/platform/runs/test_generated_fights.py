"""A generated fight is planned, identified and sent to other machines as a shipped one is."""

import subprocess
import sys

from soulsgraph.runs.plan import Plan, lasting_name, scenario_digest
from soulsgraph.runs.train import check_elsewhere
from soulsgraph_envs.continual.sequences import fight_digest, load_sequence
from soulsgraph_envs.core.scenario import load_scenario

NAME = "generated/timing/10002"


def test_its_digest_is_the_one_that_sequences_record_here_and_in_another_process(tmp_path):
    code = f"from soulsgraph.runs.plan import scenario_digest; print(scenario_digest({NAME!r}))"
    command = [sys.executable, "-P", "-c", code]
    elsewhere = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.strip()
    assert scenario_digest(NAME) == fight_digest(NAME) == elsewhere == load_sequence("S20").tasks[0].digest
    # Once more: the second time it is remembered.
    assert scenario_digest(NAME) == elsewhere


def test_a_plan_keeps_its_name_and_stages_are_named_by_it():
    assert Plan(scenario=NAME).scenario == lasting_name(NAME) == NAME
    assert Plan(scenario=NAME).stage("dodge", "generated/own/7", parent=1).name == "dodge@generated-own-7"


def test_other_machines_of_a_cluster_have_it():
    for name in (NAME, "generated/labelled-lock-view/7", "generated/labelled-moves/7"):
        check_elsewhere(load_scenario(name))
