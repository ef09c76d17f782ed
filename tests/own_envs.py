"""Environments of tests that are registered by importing this module, as a user's own are: `own_envs:Corridor-v0`."""

import gymnasium as gym
import numpy as np


class Corridor(gym.Env):
    """Some steps to the right pay; 30 steps are the most. It draws itself as a row of pixels."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012

    def __init__(self, length=6, pay=1.0, first=0, render_mode=None):
        self.length, self.pay, self.first, self.render_mode = length, pay, first, render_mode
        self.observation_space = gym.spaces.Discrete(length + 1)
        self.action_space = gym.spaces.Discrete(2, start=first)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.left = 0, 30
        return self.place, {}

    def step(self, action):
        self.place, self.left = max(0, self.place + 2 * int(action - self.first) - 1), self.left - 1
        there = self.place == self.length
        return self.place, self.pay * there, there, self.left == 0, {}

    def render(self):
        picture = np.zeros((8, 8 * (self.length + 1), 3), dtype=np.uint8)
        picture[:, 8 * self.place : 8 * self.place + 8] = 255
        return picture


class Blind(Corridor):
    """A corridor that nobody sees."""

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(self):
        super().__init__()


class Picture(gym.Env):
    """Shows what no row of numbers is."""

    def __init__(self, shape=(8, 6, 3)):
        self.observation_space = gym.spaces.Box(0, 255, shape, np.uint8)
        self.action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, True, False, {}


gym.register("Corridor-v0", entry_point=Corridor, disable_env_checker=True)
gym.register("Blind-v0", entry_point=Blind, disable_env_checker=True)
gym.register("Picture-v0", entry_point=Picture, disable_env_checker=True)
