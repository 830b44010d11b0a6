"""The environments of installed projects' skills: imported, `soulsgraph/Parry-v0` is registered.

Gymnasium imports what stands before the colon of an id, in each process that makes the environment:
`soulsgraph_policies.agents.installed:soulsgraph/Parry-v0`.
"""

from __future__ import annotations

from soulsgraph_policies.agents.projects import load_installed

for _problem in load_installed():
    raise _problem
