"""Continual methods behind one protocol: `METHODS` names them.

A method decides from which versions a task's skills learn on, what is added to their learning, which versions play a
task later, and what it has to keep for that. The base class is the method that keeps nothing but the newest versions.
"""

from __future__ import annotations

from collections.abc import Mapping

from soulsgraph.continual.methods.distil import ResetAndDistil
from soulsgraph.continual.methods.ewc import EWC, MAS, OnlineEWC
from soulsgraph.continual.methods.kept import BaseAndSpecialists, KeptVersions, Scratch
from soulsgraph.continual.methods.method import AllSkills, Method, Newest
from soulsgraph.continual.methods.packnet import PackNet
from soulsgraph.continual.methods.replay import ClonEx, Joint, Replay

#: The methods by name, in the order of tables.
METHODS: Mapping[str, type[Method]] = {
    method.name: method
    for method in (
        *(KeptVersions, Newest, AllSkills, Scratch, Joint),
        *(EWC, OnlineEWC, MAS, PackNet),
        *(Replay, ClonEx, ResetAndDistil, BaseAndSpecialists),
    )
}
