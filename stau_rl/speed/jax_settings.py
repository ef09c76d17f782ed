"""How the JAX scan is written and compiled."""

import os
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Settings:
    """How the loop is written and compiled; none of it changes the law of the result.

    Attributes:
        layout: axis order of the state. `arms_first` vectorises over instances; `arms_apart` has an array per arm, so
            that a step is elementwise (`jax_arms_apart`; inverse CDF, cached rsqrt, one draw a block), for
            GPUs: XLA for CPUs computes an operation again for every operation that uses it.
        sampling: how an arm is drawn from the weights.
        softplus: `poly` (base 2, two polynomials, 4e-7 relative on [-4, 4]), `log` for log(1 + e^s), `log1p`
            and `library` (`jax.nn.softplus`).
        power: `multiply` for integer tau (any other tau falls to `pow`), `pow`, or `exp_log`.
        cdf: running sums of the weights as `rows` added one by one, `cumsum`, or a triangular `matmul`.
        rng: JAX generator; `threefry` is the one that is not partitionable.
        cache_rsqrt: keep 1/sqrt(n) in the state instead of computing it for every arm.
        draw: one call of the generator per `step`, or one per scan iteration (`block`). Inverse CDF only.
        unroll: steps per iteration of the scan.
        chunk: instances per chunk; chunks on the same device run one after another. None: one chunk a device.
        devices: devices of the process to spread the chunks over.
        processes: worker processes, each with one thread, to spread the instances over; kept for later calls.
            None plays in the caller's process. For CPU; the caller's script needs the `__main__` guard of
            `multiprocessing`.
        vector_width: bits of a CPU vector that XLA may use; None leaves XLA's default. Ignored off the CPU.
    """

    layout: Literal["arms_first", "instances_first", "arms_apart"] = "arms_first"
    sampling: Literal["inverse_cdf", "categorical", "gumbel"] = "inverse_cdf"
    softplus: Literal["poly", "log", "log1p", "library"] = "poly"
    power: Literal["multiply", "pow", "exp_log"] = "multiply"
    cdf: Literal["rows", "cumsum", "matmul"] = "rows"
    rng: Literal["threefry", "threefry_partitionable", "rbg", "unsafe_rbg"] = "threefry"
    draw: Literal["block", "step"] = "block"
    cache_rsqrt: bool = False
    unroll: int = 8
    chunk: int | None = 2048
    devices: int = 1
    processes: int | None = None
    vector_width: int | None = 512


PLAIN = Settings()
FASTEST = Settings(processes=os.cpu_count())
"""The fastest settings found on a two-core AVX-512 CPU; `stau_rl.speed.jax_sweep` finds them again elsewhere."""
