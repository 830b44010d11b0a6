"""The part of EldenGym's client that wrappers and scripts reach for as `env.unwrapped.client`."""

from __future__ import annotations

from math import dist

from soulsgraph_envs.eldengym.world import World

_AXES = "XYZ"


class GameClient:
    """Read and write the game behind an environment by EldenGym's own names."""

    def __init__(self, world: World) -> None:
        self._world = world

    @property
    def player_hp(self) -> int:
        """The player's HP, in points."""
        return int(self.get("HeroHp"))

    @property
    def player_max_hp(self) -> int:
        """The player's full HP, in points."""
        return int(self.get("HeroMaxHp"))

    @property
    def player_animation_id(self) -> int:
        """What the player is doing."""
        return int(self.get("HeroAnimId"))

    @property
    def target_hp(self) -> int:
        """The boss's HP, in points."""
        return int(self.get("NpcHp"))

    @property
    def target_max_hp(self) -> int:
        """The boss's full HP, in points."""
        return int(self.get("NpcMaxHp"))

    @property
    def target_animation_id(self) -> int:
        """What the boss is doing."""
        return int(self.get("NpcAnimId"))

    @property
    def target_player_distance(self) -> float:
        """How far the boss is from the player, in metres."""
        names = [f"{who}GlobalPos{axis}" for who in ("Hero", "Npc") for axis in _AXES]
        values = list(self._world.read(names).values())
        return dist(values[:3], values[3:])

    def get(self, name: str) -> float:
        """Read one attribute by its Siphon name."""
        return self._world.read([name])[name]

    def set_attribute(self, name: str, value: float, value_type: str = "int") -> None:
        """Write one attribute by its Siphon name; the world knows its type."""
        self._world.write({name: value})

    def set_player_hp(self, hp: float) -> None:
        """Set the player's HP, in points."""
        self._world.write({"HeroHp": hp})

    def set_target_hp(self, hp: float) -> None:
        """Set the boss's HP, in points."""
        self._world.write({"NpcHp": hp})

    def set_game_speed(self, speed: float) -> None:
        """Set the speed of the game's clock."""
        self._world.set_speed(speed)

    def teleport(self, x: float, y: float, z: float) -> None:
        """Move the player to a place in global coordinates; the game takes local ones."""
        here = self._world.read([f"Hero{frame}Pos{axis}" for frame in ("Local", "Global") for axis in _AXES])
        moved = {
            f"HeroLocalPos{axis}": here[f"HeroLocalPos{axis}"] + place - here[f"HeroGlobalPos{axis}"]
            for axis, place in zip(_AXES, (x, y, z), strict=True)
        }
        self._world.write(moved)

    teleport_to = teleport
