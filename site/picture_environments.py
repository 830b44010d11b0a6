"""Record each registered environment under random actions: python site/picture_environments.py FOLDER."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import gymnasium

import soulsgraph_envs  # noqa: F401 - registers the environments
from soulsgraph.watch.showing import write_gif
from soulsgraph_envs.core.pictures import scaled

SHOWN = {
    "soulsgraph/Skill-v0": {"skill": "dodge"},
    "soulsgraph/EndToEnd-v0": {},
    **{f"soulsgraph/SoulsGym{name}-v0": {} for name in ("Iudex", "IudexImg", "IudexDemo", "Vordt")},
    "soulsgraph/EldenGym-v0": {"scenario_name": "margit", "driver": "simulator", "frame_size": (180, 320)},
}
_SIZE, _STEPS, _STEP_S = (180, 320), 20, 0.1


def main() -> None:
    """Write `FOLDER/<id>.gif` for each environment."""
    warnings.simplefilter("ignore")
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for id, options in SHOWN.items():
        env = gymnasium.make(id, render_mode="rgb_array", **options)
        env.reset(seed=0)
        env.action_space.seed(0)
        pictures = []
        for _ in range(_STEPS):
            if any(env.step(env.action_space.sample())[2:4]):
                env.reset()
            pictures.append(scaled(env.render(), _SIZE))
        env.close()
        file = folder / f"{id.partition('/')[2].partition('-')[0].lower()}.gif"
        write_gif(file, iter(pictures), _STEP_S)
        print(f"{file}: {file.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
