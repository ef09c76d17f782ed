"""Step loops of the bandit benchmark (one module per engine) and the counter-based random numbers they share.

Modules load on use: `stau_rl.kernels.torch_loop` needs torch alone, `stau_rl.kernels.numba_loop` needs Numba.
"""
