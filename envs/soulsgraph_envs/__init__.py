"""The world of the fight: state, controls, games, skills as tasks, and Gymnasium faces.

Importing the package registers its environments with Gymnasium and loads neither torch nor ray.
"""

from soulsgraph_envs.registration import register_environments

register_environments()
