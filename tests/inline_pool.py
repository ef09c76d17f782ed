"""Stands for the pool of training runs: plays in this process, so that tests start none."""

from concurrent.futures import Future
from typing import ClassVar

from stau_rl.agents.policy_gradient.finite import NonFiniteError
from stau_rl.training.run import play_run


class InlinePool:
    """Runs are played when they are handed in; `runs` lists those of all pools."""

    runs: ClassVar[list] = []

    def __init__(self, processes, slots=0, plugins=(), work=""):
        self.steps = 0

    def play(self, run, slot=None, checkpoint=None, **kept):
        self.runs.append(run)
        future = Future()
        try:
            future.set_result(play_run(run, checkpoint, self._count, **kept))
        except NonFiniteError as error:
            future.set_exception(error)
        return future

    def result(self, future):
        return future.result()

    def _count(self, what, step, steps):
        self.steps = max(self.steps, step)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass
