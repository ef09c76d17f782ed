"""Log-weights of s^tau on rows of scores as one fused kernel each way, beside the plain reference.

    out = l - logsumexp(l), l = tau log(softplus(s) + eps)
    G = g - w sum(g), ds = tau G sigmoid(s) / (softplus(s) + eps), dtau = sum G log phi = sum(G out) / tau

per row, w = exp(out), g the gradient of out; the last step holds because sum G = 0. Bytes of device memory per float32
score: 8 forward, 16 backward (24 together), one more each way with a mask.

Accuracy against float64 (the tests' bounds): log-weights within 3e-6 tau + 4e-7 (|out| + tau |log phi|), gradients of
the scores within 3e-5 of the row's largest, that of tau within 3e-6 of sum |g|. A run repeats to the bit, as no sum is
left to the order in which programs finish.
"""

import math
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from stau_rl.heads import Head, STau
from stau_rl.heads.normalise import prepare
from stau_rl.heads.s_tau import EPS, unchecked_log_s_tau

MAX_ENTRIES = 16_384
"""Longest row of the kernel."""
LARGE = 1 << 16
"""Number of scores from which a head uses the kernel."""
SMALLEST_EPS = 1e-30
# Padded scores of one program, and its warps: the fastest of `fused_head_speed --sweep` on an H200, 1 048 576 rows of
# 18 scores forward and backward. 1024 with 4 warps 138.2 us, 256 with 1 138.7, 512 with 2 138.9, 2048 with 8 139.4.
TILE = 1024
WARPS = 4


def reference_log_weights(scores: Tensor, tau: Tensor, eps: float = EPS, mask: Tensor | None = None) -> Tensor:
    """Log-weights of s^tau along the last axis, from plain tensor operations; see `fused_log_weights`."""
    working, mask = prepare(scores, mask)
    return unchecked_log_s_tau(working, tau.unsqueeze(-1) if tau.ndim else tau, eps, -1, mask)


def fused_log_weights(scores: Tensor, tau: Tensor, eps: float = EPS, mask: Tensor | None = None) -> Tensor:
    """Log-weights of s^tau along the last axis, forward and backward in one kernel each.

    Differentiable once, in the scores and in tau. Values are not checked.

    Args:
        scores: float32, float16 or bfloat16, [..., K], 1 <= K <= 16 384; computed in float32.
        tau: exponent >= 1, float32: one number [], or one per row, which broadcasts against [...].
        eps: floor of the map, 0 or at least 1e-30.
        mask: boolean tensor that broadcasts against `scores`, True where an entry counts; or None.

    Returns:
        float32 log-weights in the shape of `scores`, -inf under the mask.

    Raises:
        ValueError: the kernel has no such dtype, length or eps.
    """
    if problem := _problem(scores, eps):
        raise ValueError(problem)
    entries = scores.shape[-1]
    flat = scores.reshape(-1, entries).contiguous()
    exponent = tau.float()
    exponent = exponent.expand(scores.shape[:-1]).reshape(-1).contiguous() if tau.ndim else exponent.reshape(1)
    counted = None if mask is None else mask.expand(scores.shape).reshape(flat.shape).contiguous()
    run = _forward if torch.compiler.is_compiling() else _Fused.apply
    out: Tensor = run(flat, exponent, counted, float(eps))
    return out.view(scores.shape)


def head_log_weights(head: Head, scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """Log-weights of any head along the last axis: by the kernel where it fits, else as the head computes them.

    It fits s^tau on a CUDA device with at least 65 536 scores. Values are not checked; arguments as in
    `Head.unchecked_log_weights`.
    """
    if isinstance(head, STau) and scores.is_cuda and scores.numel() >= LARGE and _problem(scores, head.eps) is None:
        tau: Any = head.tau
        if not isinstance(tau, Tensor):
            tau = torch.full((), float(tau), device=scores.device)
        # A bound tensor has size 1 along the entries.
        tau = tau.squeeze(-1) if tau.ndim else tau
        rows = scores.shape[:-1]
        same = mask is None or torch.broadcast_shapes(mask.shape, scores.shape) == scores.shape
        if same and torch.broadcast_shapes(tau.shape, rows) == rows:
            return fused_log_weights(scores, tau, head.eps, mask)  # type: ignore[arg-type]
    return head.unchecked_log_weights(scores, -1, mask)


def _problem(scores: Tensor, eps: object) -> str | None:
    """Why the kernel cannot run this, or None."""
    if scores.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        return f"scores must be float32, float16 or bfloat16, got {scores.dtype}; the reference has float64"
    if scores.ndim == 0 or not 1 <= scores.shape[-1] <= MAX_ENTRIES:
        return f"scores must be [..., K] with 1 <= K <= {MAX_ENTRIES}, got {tuple(scores.shape)}"
    if not isinstance(eps, (int, float)) or not (eps == 0 or SMALLEST_EPS <= eps < math.inf):
        return f"eps must be a number, 0 or at least {SMALLEST_EPS:g}, got {eps!r}"
    return None


def _grid(rows: int, entries: int) -> tuple[int, dict[str, int]]:
    """Number of programs and the sizes of one."""
    padded = 1 << (entries - 1).bit_length()
    main, tail = padded, 0
    if entries < padded:
        half = padded // 2
        rest = 1 << (entries - half - 1).bit_length()
        # Two pieces pass sums between their layouts, which costs about a fifth.
        if half + rest <= 0.8 * padded:
            main, tail = half, rest
    height = max(1, TILE // main)
    sizes = {"K": entries, "ROWS": height, "MAIN": main, "TAIL": tail, "num_warps": 8 if main > 4096 else WARPS}
    return -(-rows // height), sizes


def _run_forward(scores: Tensor, tau: Tensor, mask: Tensor | None, eps: float) -> Tensor:
    from stau_rl.kernels.triton_fused_head import log_s_tau_fwd_kernel

    out = torch.empty_like(scores, dtype=torch.float32)
    programs, sizes = _grid(*scores.shape)
    if programs:
        with _on(scores):
            log_s_tau_fwd_kernel[(programs,)](
                scores, tau, scores if mask is None else mask.view(torch.uint8), out, len(scores), eps / math.log(2),
                HAS_MASK=mask is not None, TAU_PER_ROW=tau.numel() != 1, EXACT_TAIL=eps == 0, **sizes,
            )  # fmt: skip
    return out


def _run_backward(
    grad: Tensor, scores: Tensor, tau: Tensor, mask: Tensor | None, out: Tensor, eps: float, needs_tau: bool
) -> tuple[Tensor, Tensor]:
    from stau_rl.kernels.triton_fused_head import log_s_tau_bwd_kernel

    programs, sizes = _grid(*scores.shape)
    per_row = tau.numel() != 1
    grad_scores = torch.empty_like(scores)
    parts = torch.empty(len(scores) if per_row else programs, dtype=torch.float32, device=scores.device)
    if programs:
        with _on(scores):
            log_s_tau_bwd_kernel[(programs,)](
                grad.contiguous(), scores, tau, scores if mask is None else mask.view(torch.uint8), out, grad_scores,
                parts, len(scores), eps / math.log(2),
                HAS_MASK=mask is not None, TAU_PER_ROW=per_row, EXACT_TAIL=eps == 0, NEEDS_TAU=needs_tau, **sizes,
            )  # fmt: skip
    if not needs_tau:
        return grad_scores, torch.zeros_like(tau)
    return grad_scores, parts if per_row else parts.sum().reshape(1)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    scores, tau, mask, ctx.eps = inputs
    ctx.save_for_backward(scores, tau, mask, output)


class _Fused(torch.autograd.Function):
    """The two kernels for eager code, as calling a custom op from Python takes longer than they do."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        out = _run_forward(*inputs)
        _setup_context(ctx, inputs, out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        scores, tau, mask, out = ctx.saved_tensors
        needs_tau = ctx.needs_input_grad[1]
        grad_scores, grad_tau = _run_backward(grad, scores, tau, mask, out, ctx.eps, needs_tau)
        return grad_scores, grad_tau if needs_tau else None, None, None


# The same as custom ops, which torch.compile keeps whole.
_forward = torch.library.custom_op("stau_rl::log_s_tau", _run_forward, mutates_args=())
_backward = torch.library.custom_op("stau_rl::log_s_tau_backward", _run_backward, mutates_args=())


@_forward.register_fake
def _(scores: Tensor, tau: Tensor, mask: Tensor | None, eps: float) -> Tensor:
    return torch.empty_like(scores, dtype=torch.float32)


@_backward.register_fake
def _(
    grad: Tensor, scores: Tensor, tau: Tensor, mask: Tensor | None, out: Tensor, eps: float, needs_tau: bool
) -> tuple[Tensor, Tensor]:
    return torch.empty_like(scores), torch.empty_like(tau)


def _gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    scores, tau, mask, out = ctx.saved_tensors
    needs_tau = ctx.needs_input_grad[1]
    grad_scores, grad_tau = _backward(grad, scores, tau, mask, out, ctx.eps, needs_tau)
    return grad_scores, grad_tau if needs_tau else None, None, None


_forward.register_autograd(_gradients, setup_context=_setup_context)


def _on(scores: Tensor) -> AbstractContextManager[Any]:
    """Triton launches on the current device."""
    return torch.cuda.device(scores.device) if scores.is_cuda else nullcontext()
