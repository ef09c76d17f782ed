"""Step loops of the bandit benchmark, one room per kind of machine, and the counter-based random numbers they share.

Modules load on use: `stau_rl.kernels.torch_loop` needs torch alone, `stau_rl.kernels.cpu` Numba, `stau_rl.kernels.gpu`
Triton.
"""
