"""The environments of other projects, for agents written for them: SoulsGym and EldenGym.

Agents import them as `soulsgraph_envs.soulsgym` and `soulsgraph_envs.eldengym`, and each of their modules by the name
that it has there; several of them may be one module here.
"""
