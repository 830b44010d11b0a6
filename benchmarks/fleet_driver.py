"""A driver that fetches what its gateway's journal gets, and receives it without updates; both in processes by Ray."""

from __future__ import annotations

import logging
import os
import threading
from contextlib import ExitStack, closing
from pathlib import Path

import psutil

from fleet_streams import PCS, STAGE, Server, bench_task
from soulsgraph_clusters.fleet.gateway.runner import FLEET, FleetGateway, FleetStage, GatewayRunner
from soulsgraph_clusters.fleet.learner.algorithm import FleetDQN
from soulsgraph_clusters.fleet.protocol.settings import Fleet, FleetSettings
from soulsgraph_clusters.fleet.protocol.tokens import Tokens, token_metadata
from soulsgraph_clusters.sessions.local_ray import free_port
from soulsgraph_clusters.sessions.session import connect
from soulsgraph_envs.skills import SkillOptions
from soulsgraph_policies.learning.hyperparameters import PRESETS


class DriverServer(Server):
    """A gateway as a Ray actor and the driver that learns from it, in this process; no update is ever owed."""

    def __init__(self, folder: str) -> None:
        for name in ("ray", "soulsgraph"):  # Every stream that joins is a line.
            logging.getLogger(name).setLevel(logging.ERROR)
        self._opened, place, task = ExitStack(), Path(folder), bench_task()
        session = self._opened.enter_context(connect("local", num_cpus=1))
        fleet = Fleet(FleetSettings(f"127.0.0.1:{free_port()}"), place)
        self.address, tokens = fleet.settings.listen, Tokens(place / fleet.settings.tokens)
        self.metadata = [token_metadata(tokens.issue(pc)) for pc in PCS]
        process = self._opened.enter_context(closing(FleetGateway(fleet, session))).process()
        stage = FleetStage(fleet, place / "journal", STAGE, task.scenario, SkillOptions(), process=process)
        ((_, numbers),) = task.learns.items()
        config = FleetDQN.get_default_config().debugging(log_level="ERROR")
        config = config.stage(task.skills, numbers, PRESETS["best"].steps_per_round, seed=0)
        config.env_runners(env_runner_cls=GatewayRunner, num_env_runners=1)
        self._driver: FleetDQN = config.environment(env_config={FLEET: stage}).build_algo()
        (pid,) = self._driver.env_runner_group.foreach_env_runner(lambda _: os.getpid(), local_env_runner=False)
        self._gateway, self._over = psutil.Process(pid), threading.Event()
        self._driver.stop_requested = self._over.is_set
        self._thread = threading.Thread(target=self._learn, daemon=True)
        self._thread.start()

    def _learn(self) -> None:
        while not self._over.is_set():
            self._driver.train()

    def _spent_s(self) -> float:
        times = self._gateway.cpu_times()
        return float(times.user + times.system)

    def begin(self) -> None:
        """Begin to measure."""
        self._before = self._spent_s(), self._driver.decisions
        super().begin()

    def end(self) -> dict[str, float]:
        """Return what driver and gateway used since, and what was received; `cpu_s` is their sum."""
        spent, gateway_s = super().end(), self._spent_s() - self._before[0]
        received = self._driver.decisions - self._before[1]
        assert self._driver.updates == 0, "updates are not what is measured"
        driver_s = spent["cpu_s"]
        spent["cpu_s"] += gateway_s
        return {**spent, "driver_cpu_s": driver_s, "gateway_cpu_s": gateway_s, "received_decisions": received}

    def close(self) -> None:
        """Stop the driver, its gateway and their Ray."""
        self._over.set()
        self._thread.join()
        self._driver.stop()
        self._opened.close()
