"""The step loop on CPU cores: Numba, many instances side by side in vector lanes."""
