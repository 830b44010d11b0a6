"""Train in the games of a file: those of this machine, or of a Ray cluster's game PCs.

On this machine each plays in a process of its own, and hands over what it played as arrays. Nothing of it is kept on
disk. What was played since the latest checkpoint is lost with a run that is killed, and counted when the run goes on.
In a cluster they are a fleet of the run's own: an actor on each game PC plays one.
"""

from __future__ import annotations

import logging
import secrets
import subprocess
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from typing import IO, Any

import numpy as np
import ray
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from soulsgraph_clusters.fleet.actor import local_game
from soulsgraph_clusters.fleet.actor.host import END_WITHIN_S, HostOptions, KeptProcess, playing
from soulsgraph_clusters.fleet.actor.spool import AT_ONCE, pause_file, read_pause
from soulsgraph_clusters.fleet.gateway.status import TICKS_PER_S, WRITE_EVERY_S, FleetStatus, GameStatus, Rates
from soulsgraph_clusters.fleet.learner.algorithm import RealTimeDQN
from soulsgraph_clusters.fleet.protocol.security import PRIVATE, Tokens, make_certificates, write_file, write_token_file
from soulsgraph_clusters.fleet.protocol.settings import PC, SILENT_AFTER_S, Fleet, FleetSettings, State
from soulsgraph_clusters.fleet.protocol.task import StageTask
from soulsgraph_clusters.fleet.store import UNFINISHED
from soulsgraph_clusters.sessions.local_ray import free_port
from soulsgraph_clusters.sessions.session import RestartingActor, Session, find_places
from soulsgraph_envs.core.access import is_loopback, join_address
from soulsgraph_envs.core.errors import SoulsGraphError
from soulsgraph_envs.core.files import WriteError, make_folder, temporary_folder, writing
from soulsgraph_envs.core.seeds import derive_seeds
from soulsgraph_envs.games.link import GameSettings, load_games, save_game
from soulsgraph_envs.skills import SkillOptions
from soulsgraph_policies.agents.inference import Weights
from soulsgraph_policies.agents.projects import LoadedProject, loaded_projects
from soulsgraph_policies.learning.env_runners import ChunkRunner
from soulsgraph_policies.learning.sampler import Chunk
from soulsgraph_policies.learning.stage_config import SkillDQNConfig

#: The environment configuration's key of a `LocalStage`.
GAMES = "games"
#: The name of this machine, before that of a game.
HERE = "here"
#: Whether a person paused a game is looked at so often, and so long the learner waits for what is played.
_LOOK_EVERY_S = 0.25
#: Chunks that wait for the learner; of more the oldest are lost.
_MOST_WAITING = 4096
_WAITED = "waited too long"
#: What is lost with a game's process that was killed.
_ENDED = "process ended"
#: The counts of steps in a status: played in all, learned from, and played by runs that were killed since a checkpoint.
PLAYED, LEARNED, LOST_STEPS = f"{HERE}/played", f"{HERE}/learned", f"{HERE}/lost"

#: An actor that cannot play is asked again after so long.
_TRY_EVERY_S = 30.0
#: A game's process has its own time to end, and a moment more.
_ACTOR_ENDS_WITHIN_S = END_WITHIN_S + 10.0
#: Not by -m: what is handed over would be of a module __main__.
_PROGRAM = "import sys; from soulsgraph_clusters.fleet.actor.local_game import main; sys.exit(main())"

_logger = logging.getLogger("soulsgraph")


@dataclass(frozen=True)
class LocalStage:
    """A stage and the games of this machine that play it; `folder` keeps how they do, and the one above it a pause."""

    games: Sequence[GameSettings]
    folder: Path
    name: str
    scenario: str
    options: SkillOptions
    #: Whose skills take part.
    projects: tuple[LoadedProject, ...] = ()

    def task(self, config: SkillDQNConfig) -> StageTask:
        """Return what the games play; raises as `StageTask.of`."""
        return StageTask.of(config, self.scenario, self.options, self.projects)


class LocalGame(KeptProcess):
    """Keep the process of one game playing; `hand_over` gets what it played, `say` each line about it.

    `order_of` returns the order of a further process. Neither the game nor the learner waits for the other: a thread
    reads what the game hands over, another writes newer weights.
    """

    def __init__(
        self,
        settings: GameSettings,
        order_of: Callable[[], local_game.GameOrder],
        paused: Path,
        hand_over: Callable[[LocalGame, local_game.PlayReport], None],
        say: Callable[[str], None],
    ) -> None:
        self._settings, self._order_of, self._pause = settings, order_of, paused
        self._hand_over = hand_over
        self._changed = threading.Condition()
        self._newest = local_game.NewWeights(0, {}, {})
        self._unsent: set[str] = set()
        self._published_s = self._heard_s = time.monotonic()
        self._state, self._note, self._silent = State.OPENING, "", False
        self._report, self._rates = local_game.PlayReport(), Rates()
        #: Of the processes before this one: steps, and those of them that were lost; of this one the steps handed over.
        self._steps, self._lost, self._handed = 0, Counter[str](), 0
        super().__init__("game", say)

    def publish(self, newer: local_game.NewWeights) -> None:
        """Play by newer weights; the first are those of every module."""
        with self._changed:
            self._newest = replace(newer, weights={**self._newest.weights, **newer.weights})
            self._unsent |= newer.weights.keys()
            self._published_s = time.monotonic()
            self._changed.notify_all()

    @property
    def played(self) -> int:
        """Steps that were played and not lost, whether they were handed over or not."""
        with self._changed:
            return self._steps + self._report.steps - self._lost.total() - sum(self._report.lost.values())

    def lose(self, reason: str, steps: int) -> None:
        """Count steps that were handed over and are not learned from."""
        with self._changed:
            self._lost[reason] += steps

    def status(self, name: str, over: bool = False) -> GameStatus:
        """Return how the game does; `over` if its stage is."""
        now_s, alive = time.monotonic(), self.pid != 0 and not self._note_silence()
        with self._changed:
            report = self._report
            behind_s = now_s - self._published_s if report.version < self._newest.version else 0.0
            state = State.ENDED if over else self._state if alive or self._state == State.PAUSED else State.LOST
            plays = alive and not over
            return GameStatus(
                name=name,
                driver=self._settings.driver,
                lanes=self._settings.lanes,
                state=state,
                note=self._note,
                ticks_per_s=self._rates.ticks_per_s if plays else 0.0,
                ideal_ticks_per_s=TICKS_PER_S * self._settings.speed,
                stale_ticks=behind_s * TICKS_PER_S,
                silent_s=now_s - self._heard_s,
                waiting_chunks=0,
                finished=self._steps + report.steps,
                lost=dict(self._lost + Counter(report.lost)),
                ticks=report.ticks,
                lateness_p99_ms=report.lateness_p99_ms,
                reset_s=report.reset_s,
                reset_share=self._rates.reset_share if plays else {},
                lost_episodes=report.lost_episodes,
                cpu_s=report.cpu_s,
                connected=not over and (alive or state == State.PAUSED),
            )

    def _note_silence(self) -> bool:
        """Return whether the process says nothing any more, and say so once."""
        silent_s = time.monotonic() - self._heard_s
        silent = silent_s > SILENT_AFTER_S and self._state not in (State.OPENING, State.PAUSED)
        if silent and not self._silent:
            self._say(f"silent for {silent_s:.0f} s")
        self._silent = silent
        return silent

    def stop(self) -> None:
        """Ask the process to end; `join` waits for it."""
        with self._changed:
            self._stopping.set()
            self._changed.notify_all()

    def _play(self) -> tuple[int, str]:
        """Run a process to its end, and another one after a pause; return its code, and why it refused to play."""
        while True:
            while read_pause(self._pause):
                self._be(State.PAUSED, "a person paused it")
                if self._stopping.wait(_LOOK_EVERY_S):
                    return 0, ""
            code, refusal = self._run_process()
            if code or refusal or not read_pause(self._pause):
                return code, refusal

    def _run_process(self) -> tuple[int, str]:
        self._state, self._note = State.OPENING, ""
        process = self._start("-c", _PROGRAM)
        assert process.stdin is not None
        assert process.stdout is not None
        feeding = threading.Thread(target=self._feed, args=(process, process.stdin), daemon=True)
        feeding.start()
        refusal = ""
        with process.stdout as reports, suppress(EOFError):
            while not refusal:
                refusal = self._receive(local_game.read_message(reports))
        code = process.wait()
        feeding.join()
        self._count_up(UNFINISHED if code == 0 else _ENDED)
        return code, refusal

    def _feed(self, process: subprocess.Popen[bytes], pipe: IO[bytes]) -> None:
        """Write the order, then newer weights as they come; closing the pipe ends the game."""
        unsent, last_fight = set(self._newest.weights), False
        # Whoever died reads nothing any more.
        with suppress(OSError), pipe:
            local_game.write_message(pipe, self._order_of())
            while process.poll() is None and not self._stopping.is_set():
                if wanted := read_pause(self._pause):
                    if wanted == AT_ONCE:
                        return
                    if not last_fight:
                        local_game.write_message(pipe, local_game.FinishFight())
                        last_fight = True
                with self._changed:
                    if not unsent and not self._stopping.is_set():
                        self._changed.wait(_LOOK_EVERY_S)
                    unsent |= self._unsent
                    self._unsent.clear()
                    newest = self._newest
                if unsent:
                    newer = {name: newest.weights[name] for name in unsent}
                    local_game.write_message(pipe, replace(newest, weights=newer))
                    unsent.clear()

    def _receive(self, message: local_game.PlayReport | str) -> str:
        """Take a report; return why the game refuses to play, or nothing."""
        if isinstance(message, str):
            return message
        with self._changed:
            self._report, self._heard_s = message, time.monotonic()
            self._rates.add(self._heard_s, message.ticks, message.reset_s)
            self._handed += 0 if message.chunk is None else message.chunk.env_steps()
        for note in message.notes:
            self._be(message.state, note)
        if message.state != self._state:
            begins = self._state == State.OPENING and message.state == State.PLAYING
            self._be(message.state, line=f"{message.state} by {self._settings.driver}" if begins else "")
        if message.chunk is not None:
            self._hand_over(self, message)
        return ""

    def _count_up(self, reason: str) -> None:
        """Add the counts of the process that ended to those of all before it; what it did not hand over is lost."""
        with self._changed:
            own = self._report
            self._steps += own.steps
            self._lost += Counter(own.lost)
            if (missing := own.steps - sum(own.lost.values()) - self._handed) > 0:
                self._lost[reason] += missing
            self._report, self._rates, self._handed = local_game.PlayReport(), Rates(), 0

    def _be(self, state: str, note: str = "", line: str = "") -> None:
        if (state, note) != (self._state, self._note):
            self._state, self._note = state, note
            self._say(line or (f"{state}: {note}" if note else state))


class LocalGamesRunner(ChunkRunner):
    """Play the games of `env_config["games"]`, and return what they handed over."""

    def make_env(self) -> None:
        """Start the games' processes; they wait for weights."""
        stage = self._stage
        self._task = stage.task(self.config)
        self._arrived, self._chunks = threading.Condition(), deque[tuple[LocalGame, Chunk]]()
        self._failure = ""
        self.games: list[LocalGame] = []
        self._printing = threading.Lock()
        folder = stage.folder.parent
        with writing(folder):
            make_folder(folder)
        for number, settings in enumerate(stage.games):
            self.games.append(self._game(number, settings, pause_file(folder)))

    def _game(self, number: int, settings: GameSettings, paused: Path) -> LocalGame:
        first_lane = sum(one.lanes for one in self._stage.games[:number])
        # Installed ones are found there as they were here.
        projects = tuple(one.named.absolute() for one in loaded_projects().values() if one.named is not None)

        def order() -> local_game.GameOrder:
            # No process fights again the fights of another, of this run or of one that was killed.
            boot = secrets.randbits(28)
            seed = int(derive_seeds(np.uint64(self.config.stage_seed or 0), number, boot)[0]) >> 1
            return local_game.GameOrder(self._task.to_json(), settings, seed, first_lane, boot << 32, projects)

        def say(line: str) -> None:
            with self._printing:
                _logger.warning("game %d: %s", number + 1, line)

        return LocalGame(settings, order, paused, self._take, say)

    @property
    def _stage(self) -> LocalStage:
        stage: LocalStage = self.config.env_config[GAMES]
        return stage

    @cached_property
    def _frozen(self) -> bytes:
        """The digest of what frozen skills are to be played by."""
        return self._task.frozen_digest(self.weights)

    def _take(self, game: LocalGame, report: local_game.PlayReport) -> None:
        """Keep a chunk for the learner; called by the games' threads."""
        assert report.chunk is not None
        with self._arrived:
            if report.frozen != self._frozen:
                self._failure = (
                    f"{self._stage.name}: expected games that play frozen skills by the library's weights, found one "
                    "that plays by others; this is a defect: report it with the run's plan.json."
                )
            elif len(self._chunks) == _MOST_WAITING:
                oldest, chunk = self._chunks.popleft()
                oldest.lose(_WAITED, chunk.env_steps())
            self._chunks.append((game, report.chunk))
            self._arrived.notify()

    def weights_changed(self, modules: Collection[str]) -> None:
        """Send the games the modules' weights; their version counts the steps learned from."""
        weights: dict[str, Weights] = {
            module: {name: values.copy() for name, values in self.weights(module).items()} for module in modules
        }
        newer = local_game.NewWeights(1 + sum(self.decisions.values()), weights, dict(self.decisions))
        for game in self.games:
            game.publish(newer)

    def sample(self, **_: Any) -> list[Chunk]:
        """Return what the games handed over, after a moment if there is nothing.

        Raises:
            SoulsGraphError: if a game plays a frozen skill by other weights than the library's.
        """
        with self._arrived:
            self._arrived.wait_for(lambda: self._chunks or self._failure, _LOOK_EVERY_S)
            if self._failure:
                raise SoulsGraphError(self._failure)
            chunks = [chunk for _, chunk in self._chunks]
            self._chunks.clear()
        return chunks

    def statuses(self, over: bool = False) -> tuple[GameStatus, ...]:
        """Return how every game does; `over` if the stage is."""
        return tuple(game.status(f"{HERE}/{number}", over) for number, game in enumerate(self.games, 1))

    def get_training_state(self) -> dict[str, Any]:
        """Return nothing: a game's process begins anew."""
        return {}

    def set_training_state(self, state: dict[str, Any]) -> None:
        """Do nothing."""

    def stop(self) -> None:
        """End the games, every key released."""
        for game in getattr(self, "games", ()):
            game.stop()
        for game in getattr(self, "games", ()):
            game.join()


class LocalGamesDQN(RealTimeDQN):
    """Train from games of this machine as they hand over what they play.

    A checkpoint says how many steps came; a file that is written once a second says how many were played. What is
    between the two is lost where the process is killed.
    """

    players, remedy = "games", "start them, or let them play again"

    def setup(self, config: Any) -> None:
        """Build the learner and start the games."""
        #: Steps that rounds have taken in the whole stage, and those that were lost with runs that were killed.
        self.taken = self.lost = 0
        self._begun, self._written_s = False, 0.0
        super().setup(config)

    @property
    def _games(self) -> LocalGamesRunner:
        runner = self._runner
        assert isinstance(runner, LocalGamesRunner)
        return runner

    @property
    def _stage(self) -> LocalStage:
        stage: LocalStage = self.config.env_config[GAMES]
        return stage

    def training_step(self) -> None:
        """Run every round that is complete, and say how the games do; the first one counts what a kill has cost."""
        if not self._begun:
            self._count_lost()
        super().training_step()
        self._write()

    def _count_lost(self) -> None:
        """Count what was played after the checkpoint that the stage goes on from, as far as it was written down."""
        self._begun, self._before = True, self.taken
        last = FleetStatus.last(self._stage.folder)
        if last is None:
            return
        lost = max(last.decisions.get(PLAYED, 0) - self.taken, 0)
        self.lost = max(self.lost, last.decisions.get(LOST_STEPS, 0)) + lost
        if lost:
            _logger.warning(
                "%s: %s steps that were played since its last checkpoint went with the process that ended; it goes on "
                "at %s",
                *(self._title, f"{lost:,}", f"{self.decisions:,}"),
            )

    def _write(self, over: bool = False) -> None:
        """Write how the games do once a second, and at the stage's end."""
        now_s = time.monotonic()
        if not over and now_s - self._written_s < WRITE_EVERY_S:
            return
        self._written_s = now_s
        games = self._games.statuses(over)
        self.live_runners = sum(game.connected for game in games)
        counts = {
            PLAYED: self._before + sum(game.played for game in self._games.games),
            LEARNED: self.decisions,
            LOST_STEPS: self.lost,
        }
        at = time.time(), 1 + self.decisions, 0
        counts = {name: count for name, count in counts.items() if count}
        self.status = FleetStatus(self._stage.name, "", *at, counts, games)
        # A full disk stops no game.
        with suppress(WriteError):
            self.status.write(self._stage.folder)

    def _fetch(self) -> int:
        chunks = self._runner.collect()
        self._fetched += [(chunk, 0) for chunk in chunks]
        return len(chunks)

    def _took(self, taken: Sequence[tuple[Chunk | None, int]]) -> None:
        self.taken += sum(chunk.env_steps() for chunk, _ in taken if chunk is not None)

    def cleanup(self) -> None:
        """End the games and the learner."""
        super().cleanup()
        if self._begun:
            self._write(over=True)
        if self._begun and self.finished:
            lost = f", {self.lost:,} lost with a process that ended" if self.lost else ""
            played = self._before + sum(game.played for game in self._games.games)
            _logger.warning(
                "%s: of the steps played %s learned, %s over budget%s",
                *(self._title, f"{self.decisions:,}", f"{played - self.decisions:,}", lost),
            )

    def get_state(self, *_: Any, **__: Any) -> dict[str, Any]:
        """Return everything that the rest of the stage depends on, with the counts of steps."""
        return super().get_state() | {"games": {"taken": self.taken, "lost": self.lost}}

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from `get_state`.

        Raises:
            SoulsGraphError: for the checkpoint of a stage that the simulator, or a fleet, played.
        """
        state = dict(state)
        counts: Mapping[str, int] | None = state.pop("games", None)
        if counts is None and "journal" not in state:
            raise SoulsGraphError(
                f"{self._title}: expected a checkpoint of a stage that games play, found one of the simulator; resume "
                "it without games, or remove the stage's checkpoints to begin it anew."
            )
        # It refuses a journal.
        super().set_state(state)
        assert counts is not None
        self.taken, self.lost = int(counts["taken"]), int(counts["lost"])


@contextmanager
def games_of_cluster(file: Path, session: Session, game_pcs: int) -> Iterator[Fleet]:
    """Play the games of a file in a cluster for one run, and yield the fleet that they are.

    Every game is played by a Ray actor on a game PC, a single one by `game_pcs` of them; actors beyond the present game
    PCs wait for further ones. They know the projects that are installed there.

    Raises:
        SoulsGraphError: if the games' file cannot be used.
        ClusterError: if the cluster has no place for a game.
    """
    games = load_games(file)
    if len(games) == 1:
        games *= max(game_pcs, 1)
    places = find_places(len(games), session)
    resources = {name: amount for name, amount in places[0].bundle_specs[0].items() if name != "CPU"}
    host = ray.util.get_node_ip_address()
    with temporary_folder("soulsgraph-fleet-") as temporary, ExitStack() as stack:
        # A folder of tokens is locked while they are written; the temporary one is locked by its process already.
        (folder := temporary / "fleet").mkdir(0o700)
        certificate, key, ca = "", "", b""
        if not is_loopback(host):
            made = make_certificates(folder, [host])
            certificate, key, ca = made.certificate.name, made.key.name, made.ca.read_bytes()
        names = [f"game-pc-{number}" for number in range(1, len(games) + 1)]
        pcs = dict.fromkeys(names, PC())
        settings = FleetSettings(join_address(host, free_port(host)), certificate=certificate, key=key, pcs=pcs)
        tokens = Tokens(folder / settings.tokens)
        # A game PC that comes back, or another, takes the place of one that was lost.
        actor = ray.remote(max_restarts=-1, max_concurrency=2, num_cpus=1, resources=resources)(GameHost)
        for name, game, place in zip_longest(names, games, places):
            strategy = None if place is None else PlacementGroupSchedulingStrategy(place)
            own = actor.options(scheduling_strategy=strategy).remote(settings.listen, tokens.issue(name), ca, game)
            stack.callback(RestartingActor(name, own, _TRY_EVERY_S, _ACTOR_ENDS_WITHIN_S).end)
        yield Fleet(settings, folder)


class GameHost:
    """Play one game of a Ray cluster's game PC for the head, in a process of the game's own.

    The game's process ends with the actor, however it ends.
    """

    def __init__(self, head: str, token: str, ca: bytes, game: GameSettings) -> None:
        self._head, self._token, self._ca, self._game = head, token, ca, game
        self._stopped = threading.Event()

    def is_placed(self) -> bool:
        """Return that the actor runs."""
        return True

    def play(self) -> None:
        """Play until `stop`.

        Raises:
            SoulsGraphError: if this machine cannot play the game.
        """
        with temporary_folder("soulsgraph-game-") as folder:
            authority = folder / "ca.pem" if self._ca else None
            if authority is not None:
                write_file(authority, self._ca, PRIVATE)
            write_token_file(folder / "token", self._token)
            save_game(folder / "games.toml", self._game)
            options = HostOptions(self._head, folder / "token", folder / "games.toml", authority, folder / "spool")
            # Ray keeps what is printed in the node's logs.
            with playing(options, lambda game, line: print(f"game {game}: {line}")):
                self._stopped.wait()

    def stop(self) -> None:
        """End `play`."""
        self._stopped.set()
