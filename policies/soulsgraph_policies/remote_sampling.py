"""Remote runners that sample: each has one call under way, and a round takes whichever is ready first."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayError
from ray.rllib.env.env_runner_group import EnvRunnerGroup

from soulsgraph_envs.core.errors import UnavailableError
from soulsgraph_policies.sampler import Chunk
from soulsgraph_policies.stage_config import ChunkRunner

#: Chunks of one call: Ray takes as much of the driver's time for a call of one as for a call of these.
CHUNKS_PER_CALL = 4
#: A runner that has not answered for this time is not counted among those that play, until it does.
SILENT_AFTER_S = 5.0
#: A runner whose call failed is asked again after this time: until Ray has restarted it every call fails.
RETRY_AFTER_S = 5.0
#: The stage fails after this time without any live runner.
ABANDONED_AFTER_S = 300.0
#: Nobody waits longer than this for an answer before other things are looked after.
_WAIT_S = 0.5

_logger = logging.getLogger("soulsgraph")


@dataclass(frozen=True)
class Answer:
    """What a runner answers: chunks, how long they took, and where it runs."""

    chunks: list[Chunk]
    seconds: float
    host: str


def sample_with(runner: ChunkRunner, state: dict[str, Any]) -> Answer:
    """Set a runner's newer weights and sample; called in the runner's process.

    One call for both takes Ray half the time of two. A function of a module goes there by its name.
    """
    runner.set_state(state)
    began = time.perf_counter()
    chunks = [chunk for _ in range(CHUNKS_PER_CALL) for chunk in runner.sample()]
    return Answer(chunks, time.perf_counter() - began, socket.gethostname())


@dataclass
class _Remote:
    """A remote runner as the driver knows it."""

    index: int
    #: Modules whose newest weights the runner has not been given.
    unsent: set[str]
    host: str = ""
    call: ray.ObjectRef[Answer] | None = None
    asked_s: float = 0.0
    #: Whether its last call succeeded, and whether it answered in time.
    lost: bool = False
    silent: bool = False
    retry_s: float = 0.0

    @property
    def playing(self) -> bool:
        return not self.lost and not self.silent

    def __str__(self) -> str:
        return f"env runner {self.index}" + (self.host and f" on {self.host}")


class RemoteSampling:
    """Keep one call to sample under way in every remote runner of a group.

    `state_of` returns the newest weights of some modules, and the counts of decisions: they go with the next call. A
    runner that fails or does not answer is reported by name, and plays again from its next answer on. With
    `synchronous` chunks are returned when every runner has answered that is not lost, in the order of the runners.
    """

    def __init__(
        self,
        group: EnvRunnerGroup,
        modules: Collection[str],
        state_of: Callable[[Collection[str]], dict[str, Any]],
        synchronous: bool,
        title: str,
    ) -> None:
        self._modules, self._state_of = set(modules), state_of
        self._synchronous, self._title = synchronous, title
        self._manager = group._worker_manager
        self._runners = [_Remote(index, set(modules)) for index in self._manager.actor_ids()]
        #: Seconds that sampling what was returned so far took, summed over the runners.
        self.sampling_s = 0.0
        self._last_chunk_s = time.monotonic()

    @property
    def playing(self) -> int:
        """How many runners play."""
        return sum(runner.playing for runner in self._runners)

    def changed(self, modules: Collection[str]) -> None:
        """Send every runner the newest weights of these modules with its next call."""
        for runner in self._runners:
            runner.unsent.update(modules)

    def sample(self) -> list[Chunk]:
        """Return the chunks that are ready, at least one runner's; none if nobody answered in a while.

        The runners that answered sample on before this returns: they do so while the driver learns.

        Raises:
            UnavailableError: if nobody has sampled anything for `ABANDONED_AFTER_S`.
        """
        self._ask()
        taken = self._take()
        self._ask()
        chunks = [chunk for answer in taken for chunk in answer.chunks]
        now = time.monotonic()
        if any(chunk.env_steps() for chunk in chunks):
            self._last_chunk_s = now
        elif now - self._last_chunk_s > ABANDONED_AFTER_S:
            expected = "all" if self._synchronous else "one"
            missing = ", ".join(str(runner) for runner in self._runners if not runner.playing) or "decisions"
            raise UnavailableError(
                f"env runners: expected {expected} to answer, found {ABANDONED_AFTER_S:g} s without {missing}; bring "
                "them back and resume the run."
            )
        return chunks

    def kill_silent(self) -> None:
        """End the runners that do not answer: whoever asks them to stop would wait for them."""
        for runner in self._runners:
            if runner.silent:
                ray.kill(self._manager.actors()[runner.index])

    def _ask(self) -> None:
        now = time.monotonic()
        for runner in self._runners:
            if runner.call is None and now >= runner.retry_s:
                state, runner.unsent = self._state_of(sorted(runner.unsent)), set()
                runner.call = self._manager.actors()[runner.index].apply.remote(sample_with, state)
                runner.asked_s = now

    def _take(self) -> list[Answer]:
        calls = {runner.call: runner for runner in self._runners if runner.call is not None}
        if not calls:
            time.sleep(_WAIT_S)
            return []
        awaited = [call for call, runner in calls.items() if not runner.lost] if self._synchronous else []
        ready, _ = ray.wait(awaited or list(calls), num_returns=len(awaited) or 1, timeout=_WAIT_S)
        complete = len(ready) >= len(awaited)
        if len(ready) < len(calls):
            ready, _ = ray.wait(list(calls), num_returns=len(calls), timeout=0)
        self._report_silence(runner for call, runner in calls.items() if call not in ready)
        if not complete:
            return []
        taken = sorted((calls[call] for call in ready), key=lambda runner: runner.index)
        return [answer for runner in taken if (answer := self._answer(runner)) is not None]

    def _answer(self, runner: _Remote) -> Answer | None:
        call, runner.call = runner.call, None
        try:
            answer: Answer = ray.get(call)
        except RayError:
            # A runner that Ray restarts has no weights at all.
            runner.unsent, runner.retry_s = set(self._modules), time.monotonic() + RETRY_AFTER_S
            self._note(runner, "was lost", lost=True)
            return None
        runner.host = answer.host
        self._note(runner, "is back")
        self.sampling_s += answer.seconds
        return answer

    def _report_silence(self, unanswered: Iterable[_Remote]) -> None:
        now = time.monotonic()
        for runner in unanswered:
            if runner.playing and now - runner.asked_s > SILENT_AFTER_S:
                self._note(runner, "does not answer", silent=True)

    def _note(self, runner: _Remote, what: str, lost: bool = False, silent: bool = False) -> None:
        """Note how a runner does; if that is new, log it, and let RLlib ask only those that play."""
        changed = (lost, silent) != (runner.lost, runner.silent)
        runner.lost, runner.silent = lost, silent
        if changed:
            self._manager.set_actor_state(runner.index, healthy=runner.playing)
            _logger.warning("%s: %s %s, %d of %d play", self._title, runner, what, self.playing, len(self._runners))


#: Decisions before it is measured whether runners save time, and decisions that it is measured by.
_WARM_UP, _MEASURED = 2_000, 8_000
#: What may be chance: runners that cost no more than this are not worth a line.
_CHANCE = 1.1


class Saving:
    """Measure once whether remote runners save time, and log it where they do not."""

    def __init__(self, title: str, runners: int) -> None:
        self._title, self._runners = title, runners
        self._from: tuple[int, float, float] | None = None
        self._done = False

    def add(self, decisions: int, wall_s: float, alone_s: float) -> None:
        """Compare the wall time taken with that of sampling and learning in turn; all three count from the start."""
        if self._done or decisions < _WARM_UP:
            return
        before, wall_before, alone_before = self._from = self._from or (decisions, wall_s, alone_s)
        if (count := decisions - before) < _MEASURED:
            return
        self._done = True
        taken, alone = 1e3 * (wall_s - wall_before) / count, 1e3 * (alone_s - alone_before) / count
        if taken > _CHANCE * alone:
            line = "%s: sampling in %d env runner%s saves no time: a decision takes %.3f ms, without them %.3f ms"
            _logger.warning(line, self._title, self._runners, "s" * (self._runners > 1), taken, alone)
