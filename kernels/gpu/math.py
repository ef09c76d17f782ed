"""Device functions of the Triton engine: approximate float32 functions, Philox, uniforms, the normal quantile.

The special-function unit of an NVIDIA GPU gives base-2 logarithm, base-2 exponential, reciprocal and reciprocal
square root in one instruction each (16 lanes per clock and multiprocessor). `tl.log2` and friends add
range handling for denormal numbers around it, which doubles the instruction count; the inline forms below flush
denormals to zero instead. Stated accuracies are NVIDIA's for the instruction (PTX ISA) and are swept by the
tests on a GPU:

| function | instruction | error |
|---|---|---|
| `exp2` | ex2.approx.ftz.f32 | 2 ulp, 2^-22 relative; exactly 0 below -126; exp2(-inf) = 0 |
| `log2` | lg2.approx.ftz.f32 | 2^-22 absolute on [1/2, 2], 2^-22 relative elsewhere; log2(0) = -inf |
| `reciprocal` | rcp.approx.ftz.f32 | 1 ulp |
| `inverse_root` | rsqrt.approx.ftz.f32 | 2^-22.9 relative |

Triton's interpreter has no inline assembly: with TRITON_INTERPRET=1 the same names are numpy-backed twins.
"""

import os

import triton
import triton.language as tl

from stau_rl.kernels.philox import MULTIPLIER_0, MULTIPLIER_1, ROUNDS, WEYL_0, WEYL_1

INTERPRETED = os.environ.get("TRITON_INTERPRET", "0") == "1"

_M0, _M1 = tl.constexpr(MULTIPLIER_0), tl.constexpr(MULTIPLIER_1)
_W0, _W1 = tl.constexpr(WEYL_0), tl.constexpr(WEYL_1)
_ROUNDS = tl.constexpr(ROUNDS)

if INTERPRETED:

    @triton.jit
    def exp2(x):
        """2^x."""
        return tl.exp2(x)

    @triton.jit
    def log2(x):
        """Base-2 logarithm of x >= 0."""
        return tl.where(x > 0.0, tl.log2(tl.where(x > 0.0, x, 1.0)), float("-inf"))

    @triton.jit
    def reciprocal(x):
        """1 / x."""
        return 1.0 / x

    @triton.jit
    def inverse_root(x):
        """1 / sqrt(x)."""
        return tl.rsqrt(x)

    @triton.jit
    def fma(a, b, c):
        """a b + c, rounded once (but for a tie of float64), float32."""
        b, c = tl.zeros_like(a) + b, tl.zeros_like(a) + c
        return (a.to(tl.float64) * b.to(tl.float64) + c.to(tl.float64)).to(tl.float32)

    @triton.jit
    def wide_product(a, M: tl.constexpr):
        """High and low half of the 64-bit product of uint32 `a` and the constant M."""
        product = a.to(tl.uint64) * M
        return (product >> 32).to(tl.uint32), (product & 0xFFFFFFFF).to(tl.uint32)

    @triton.jit
    def load_strided(p, arm, stride):
        """The int32 at p + arm stride, p a tensor of pointers to read-only memory."""
        return tl.load(p + arm.to(tl.int64) * stride)

    @triton.jit
    def replace_where_equal(index, j, new_i, new_a, new_b, i, a, b):
        """(new_i, new_a, new_b) where index == j, else (i, a, b)."""
        here = index == j
        return tl.where(here, new_i, i), tl.where(here, new_a, a), tl.where(here, new_b, b)

else:

    @triton.jit
    def exp2(x):
        """2^x."""
        return tl.inline_asm_elementwise("ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, True, 1)

    @triton.jit
    def log2(x):
        """Base-2 logarithm of x >= 0."""
        return tl.inline_asm_elementwise("lg2.approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, True, 1)

    @triton.jit
    def reciprocal(x):
        """1 / x."""
        return tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, True, 1)

    @triton.jit
    def inverse_root(x):
        """1 / sqrt(x)."""
        return tl.inline_asm_elementwise("rsqrt.approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, True, 1)

    @triton.jit
    def fma(a, b, c):
        """a b + c, rounded once, float32."""
        return tl.fma(a, tl.zeros_like(a) + b, tl.zeros_like(a) + c)

    @triton.jit
    def wide_product(a, M: tl.constexpr):
        """High and low half of the 64-bit product of uint32 `a` and the constant M, in one instruction."""
        return tl.inline_asm_elementwise(
            "{ .reg .b64 product; mul.wide.u32 product, $2, $3; mov.b64 {$1, $0}, product; }",
            "=r,=r,r,r",
            [a, tl.full([], M, tl.uint32)],
            (tl.uint32, tl.uint32),
            True,
            1,
        )

    @triton.jit
    def load_strided(p, arm, stride):
        """The int32 at p + arm stride, p a tensor of pointers; read-only memory, one multiply-add and one load."""
        return tl.inline_asm_elementwise(
            "{ .reg .b64 at; mad.wide.u32 at, $2, $3, $1; ld.global.nc.b32 $0, [at]; }",
            "=r,l,r,r",
            [p.to(tl.int64), arm, stride * 4],
            tl.int32,
            True,
            1,
        )

    @triton.jit
    def replace_where_equal(index, j, new_i, new_a, new_b, i, a, b):
        """(new_i, new_a, new_b) where index == j, else (i, a, b), all finite.

        Selects run at half rate, on the pipe that also compares, and that pipe is the busiest; a predicated
        multiply-add, old 0 + new, does the same move on the other one.
        """
        return tl.inline_asm_elementwise(
            """{
            .reg .pred here;
            setp.eq.s32 here, $3, $4;
            selp.b32 $0, $5, $8, here;
            @here fma.rn.f32 $1, $9, 0f00000000, $6;
            @here fma.rn.f32 $2, $10, 0f00000000, $7;
            }""",
            "=r,=f,=f,r,r,r,f,f,r,1,2",
            [index, j, new_i, new_a, new_b, i, a, b],
            (tl.uint32, tl.float32, tl.float32),
            True,
            1,
        )


@triton.jit
def philox(c0, c1, c2, c3, k0, k1):
    """Philox4x32-10 of uint32 counter words (tensors or scalars) and scalar uint32 key words.

    40 instructions: two 32 x 32 -> 64 multiplications and two three-input XORs a round; the key schedule is scalar
    and leaves the loop.
    """
    for i in tl.static_range(_ROUNDS):
        if i > 0:
            k0 += _W0
            k1 += _W1
        high_0, low_0 = wide_product(c0, _M0)
        high_1, low_1 = wide_product(c2, _M1)
        c0 = high_1 ^ c1 ^ k0
        c2 = high_0 ^ c3 ^ k1
        c1 = low_1
        c3 = low_0
    return c0, c1, c2, c3


@triton.jit
def closed_uniform(word):
    """(word >> 8) 2^-24 in float32, exact."""
    return (word >> 8).to(tl.int32).to(tl.float32) * 5.9604644775390625e-08


@triton.jit
def open_uniform64(word):
    """((word >> 8) + 1/2) 2^-24 in float64, exact."""
    return ((word >> 8).to(tl.int32).to(tl.float64) + 0.5) * 5.9604644775390625e-08


@triton.jit
def below(word, count):
    """floor(u count) for u = (word >> 8) 2^-24 and 0 <= count <= 2^8, exact: the high half of a product."""
    return tl.umulhi(word & 0xFFFFFF00, count.to(tl.uint32)).to(tl.int32)


@triton.jit
def whole_power(x, N: tl.constexpr):
    """x^N by squaring, N >= 1; N - 1 multiplications at most, 3 for N = 5; relative error N 2^-24."""
    power = x
    value = x
    started = False
    for bit in tl.static_range(5):
        if (N >> bit) & 1 == 1:
            if started:
                value = value * power
            else:
                value = power
            started = True
        if (N >> (bit + 1)) > 0:
            power = power * power
    return value


@triton.jit
def log2_1p_ratio(z):
    """log2(1 + z) / z on [0, 1]; relative error 1.2e-7."""
    p = z * 0.00754917280479671 - 0.042567024555376434
    p = p * z + 0.11285613241561195
    p = p * z - 0.19711891824778827
    p = p * z + 0.2756413879488372
    p = p * z - 0.35840846624760975
    p = p * z + 0.4806929565378382
    p = p * z - 0.7213402079702096
    return p * z + 1.4426949974340642


@triton.jit
def softplus2(y):
    """Base-2 softplus log2(1 + 2^y) = max(y, 0) + log2(1 + 2^-|y|); relative error 6e-7 for y > -126, 0 below.

    log2(1 + z) / z on [0, 1] is a polynomial, which keeps the tail of very negative y relatively accurate;
    `log2(1 + z)` would lose it to the rounding of 1 + z.
    """
    z = exp2(-tl.abs(y))
    return log2_1p_ratio(z) * z + tl.maximum(y, 0.0)


@triton.jit
def normal_quantile(word):
    """Phi^-1(((word >> 8) + 1/2) 2^-24) in float32; relative error 1e-6.

    With p the smaller tail, the quantile over 1 - 2 p is a smooth function of w = -log2(4 p (1 - p)), and of
    sqrt(w) for large w (after Giles, "Approximating the erfinv function", GPU Computing Gems, 2011; own fits).
    """
    whole = (word >> 8).to(tl.int32)
    upper = whole > 0x7FFFFF
    h = tl.where(upper, 0xFFFFFF - whole, whole).to(tl.float32)
    p = (h + 0.5) * 5.9604644775390625e-08
    distance = (8388607.5 - h) * 1.1920928955078125e-07
    w = tl.maximum(-log2(4.0 * p * (1.0 - p)), 0.0)
    x = w - 3.5
    near = x * 2.5471685931149857e-09 + 3.641314233531512e-08
    near = near * x - 5.891070302876548e-07
    near = near * x - 6.486251428336921e-07
    near = near * x + 7.185022566353111e-05
    near = near * x - 0.0006209334364654084
    near = near * x - 0.0026447348953991126
    near = near * x + 0.24235690645899055
    near = near * x + 2.0974758586844633
    y = tl.sqrt(w) - 3.75
    far = y * -7.506444349589544e-05 - 3.722923021091472e-05
    far = far * y + 0.0006570287596331725
    far = far * y - 0.001512318604953036
    far = far * y + 0.0025703985104781916
    far = far * y - 0.00433999220077349
    far = far * y + 0.006960684773268327
    far = far * y + 1.1817379736641136
    far = far * y + 4.179551218839717
    q = tl.where(w < 7.0, near, far) * distance
    return tl.where(upper, q, -q)


@triton.jit
def normal_quantile64(word):
    """Phi^-1(((word >> 8) + 1/2) 2^-24) in float64; relative error 1e-14.

    Source: Wichura, "Algorithm AS 241: the percentage points of the normal distribution", Applied Statistics 37, 1988,
    without its third range, which 24-bit words do not reach.
    """
    q = open_uniform64(word) - 0.5
    r = 0.180625 - q * q
    top = r * 2509.0809287301226727 + 33430.575583588128105
    top = top * r + 67265.770927008700853
    top = top * r + 45921.953931549871457
    top = top * r + 13731.693765509461125
    top = top * r + 1971.5909503065514427
    top = top * r + 133.14166789178437745
    top = top * r + 3.387132872796366608
    bottom = r * 5226.495278852854561 + 28729.085735721942674
    bottom = bottom * r + 39307.89580009271061
    bottom = bottom * r + 21213.794301586595867
    bottom = bottom * r + 5394.1960214247511077
    bottom = bottom * r + 687.1870074920579083
    bottom = bottom * r + 42.313330701600911252
    bottom = bottom * r + 1.0
    near = q * top / bottom
    y = tl.sqrt(-tl.log(0.5 - tl.abs(q))) - 1.6
    top = y * 7.7454501427834140764e-4 + 0.0227238449892691845833
    top = top * y + 0.24178072517745061177
    top = top * y + 1.27045825245236838258
    top = top * y + 3.64784832476320460504
    top = top * y + 5.7694972214606914055
    top = top * y + 4.6303378461565452959
    top = top * y + 1.42343711074968357734
    bottom = y * 1.05075007164441684324e-9 + 5.475938084995344946e-4
    bottom = bottom * y + 0.0151986665636164571966
    bottom = bottom * y + 0.14810397642748007459
    bottom = bottom * y + 0.68976733498510000455
    bottom = bottom * y + 1.6763848301838038494
    bottom = bottom * y + 2.05319162663775882187
    bottom = bottom * y + 1.0
    far = top / bottom
    return tl.where(r < 0.0, tl.where(q < 0.0, -far, far), near)


@triton.jit
def row_sum(x, LANES: tl.constexpr):
    """Sum over the lanes of each instance, [BLOCK, LANES], the same in every lane."""
    if LANES > 1:
        x = tl.sum(x, axis=1, keep_dims=True) + tl.zeros_like(x)
    return x


@triton.jit
def row_max(x, LANES: tl.constexpr):
    """Largest over the lanes of each instance, [BLOCK, LANES], the same in every lane."""
    if LANES > 1:
        x = tl.max(x, axis=1, keep_dims=True) + tl.zeros_like(x)
    return x


@triton.jit
def row_min(x, LANES: tl.constexpr):
    """Smallest over the lanes of each instance, [BLOCK, LANES], the same in every lane."""
    if LANES > 1:
        x = tl.min(x, axis=1, keep_dims=True) + tl.zeros_like(x)
    return x
