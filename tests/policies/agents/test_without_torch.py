"""Whoever plays needs no learner: the modules of agents load where torch, Ray and scipy are not installed."""

import pkgutil
import subprocess
import sys

import soulsgraph_policies.agents

_HEAVY = ("torch", "ray", "scipy", "pandas", "pyarrow", "matplotlib")


def test_all_of_agents_loads_without_what_training_needs():
    package = soulsgraph_policies.agents
    names = [f"{package.__name__}.{module.name}" for module in pkgutil.iter_modules(package.__path__)]
    assert len(names) >= 5
    # An import of what is None in the table of modules fails as one of what is not installed.
    code = f"import sys; sys.modules.update(dict.fromkeys({_HEAVY})); import {', '.join(names)}; print('loaded')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "loaded"), done.stderr
