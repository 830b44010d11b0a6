"""Wrappers of the picture: stacked, scaled or grey, alone or as one key of a dictionary observation."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict

from soulsgraph_envs.core.pictures import scaled
from soulsgraph_envs.eldengym.errors import OptionError, check_at_least
from soulsgraph_envs.eldengym.world import Frame

AnyEnv = gymnasium.Env[Any, Any]
Shape = tuple[int, ...]

#: Shares of red, green and blue in brightness (ITU-R BT.601).
_BRIGHTNESS = np.array([0.299, 0.587, 0.114], np.float32)


class _FrameWrapper(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Replace the picture of every observation: the value under `key`, or all of it if that is None.

    Raises:
        OptionError: if there is no picture (height, width, channels) of uint8.
    """

    def __init__(self, env: AnyEnv, key: str | None, shape: Callable[[Shape], Shape]) -> None:
        super().__init__(env)
        self._key, whole = key, env.observation_space
        space = whole if key is None else whole.spaces.get(key) if isinstance(whole, Dict) else None
        if not isinstance(space, Box) or space.dtype != np.uint8 or len(space.shape) != 3:
            raise OptionError(
                f"{type(self).__name__}: expected a picture (height, width, channels) of uint8"
                f"{(key and f' under {key!r}') or ''}, found {whole}."
            )
        shown = Box(0, 255, shape(space.shape), np.uint8)
        self.observation_space = Dict({**whole.spaces, str(key): shown}) if isinstance(whole, Dict) else shown

    def observation(self, observation: Any) -> Any:
        """Return the observation with its picture replaced."""
        if self._key is None:
            return self.picture(observation)
        return {**observation, self._key: self.picture(observation[self._key])}

    def picture(self, frame: Frame) -> Frame:
        """Return the replacement of a picture."""
        raise NotImplementedError


class DictResizeFrame(_FrameWrapper):
    """Scale the picture under `frame_key`."""

    def __init__(self, env: AnyEnv, width: int = 84, height: int = 84, frame_key: str | None = "frame") -> None:
        check_at_least("width", width, 1)
        check_at_least("height", height, 1)
        self._size = (height, width)
        super().__init__(env, frame_key, lambda shape: (height, width, shape[2]))

    def picture(self, frame: Frame) -> Frame:
        """Return the picture scaled, (height, width, channels)."""
        return scaled(frame, self._size)


class DictGrayscaleFrame(_FrameWrapper):
    """Make the picture under `frame_key` grey, (height, width, 1)."""

    def __init__(self, env: AnyEnv, frame_key: str | None = "frame") -> None:
        super().__init__(env, frame_key, lambda shape: (*shape[:2], 1))

    def picture(self, frame: Frame) -> Frame:
        """Return the brightness."""
        return (frame @ _BRIGHTNESS).astype(np.uint8)[..., None]


class DictFrameStack(_FrameWrapper):
    """Stack the last `num_stack` pictures under `frame_key` along their channels, the first repeated at a reset."""

    def __init__(self, env: AnyEnv, num_stack: int = 4, frame_key: str | None = "frame") -> None:
        check_at_least("num_stack", num_stack, 1)
        self._frames: deque[Frame] = deque(maxlen=num_stack)
        super().__init__(env, frame_key, lambda shape: (*shape[:2], shape[2] * num_stack))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode with nothing but its first picture."""
        self._frames.clear()
        return super().reset(seed=seed, options=options)

    def picture(self, frame: Frame) -> Frame:
        """Return the stack, the latest picture last."""
        self._frames.append(frame)
        while len(self._frames) < (self._frames.maxlen or 0):
            self._frames.append(frame)
        return np.concatenate(self._frames, axis=-1)


class ResizeFrame(DictResizeFrame):
    """Scale an observation that is a picture."""

    def __init__(self, env: AnyEnv, width: int = 84, height: int = 84) -> None:
        super().__init__(env, width, height, None)


class GrayscaleFrame(DictGrayscaleFrame):
    """Make an observation that is a picture grey, (height, width, 1)."""

    def __init__(self, env: AnyEnv) -> None:
        super().__init__(env, None)


class FrameStack(DictFrameStack):
    """Stack observations that are pictures along their channels."""

    def __init__(self, env: AnyEnv, num_stack: int = 4) -> None:
        super().__init__(env, num_stack, None)
