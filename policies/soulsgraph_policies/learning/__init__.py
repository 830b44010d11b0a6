"""How skills learn inside RLlib: configuration, module, learner, replay, sampler and env runners."""
