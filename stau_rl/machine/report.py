"""How a run says how far it is: one signature for all of them."""

from collections.abc import Callable

Report = Callable[[str, int, int], None]
"""Called as the work goes on with what is under way, how much of it is done, and how much there is of it.

The unit is the run's own: instance-steps, training steps, updates. It may raise, which stops the run.
"""
