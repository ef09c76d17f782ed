"""The step loop and the policy head on a GPU: Triton, one fused kernel each."""
