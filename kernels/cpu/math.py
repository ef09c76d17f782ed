"""Elementary functions on lanes, without a branch and without the C library.

Polynomials are weighted minimax fits; the stated errors are maxima over the stated range, rounding
included, and `tests/test_numba_math.py` sweeps them.
"""

from numba import njit

from stau_rl.kernels.cpu.lanes import bits_f32, bits_f64, bits_i32, bits_i64, fused, select, square_root, to_f32, to_f64

LOG2_E = 1.4426950408889634
LN_2 = 0.6931471805599453
# log2 log2 e: softplus(s) / ln 2 tends to log2(e) 2^y as y = s log2 e tends to minus infinity.
LOG2_LOG2_E = 0.5287663729448977
# 1.5 * 2^23: adding it leaves the nearest integer in the low bits of a float32.
MAGIC_32 = 12582912.0
# 1.5 * 2^52: the same for a float64.
MAGIC_64 = 6755399441055744.0

device = njit(forceinline=True, error_model="numpy", cache=False)


@device
def exp2_nonpositive(x):
    """2^x for float32 x <= 0; relative error 2.5e-7; exactly 0 for x < -126.5."""
    x = select(x < -127.0, -127.0, x)
    shifted = x + MAGIC_32
    f = x - (shifted - MAGIC_32)
    p = fused(f, 0.0013276471509886464, 0.009675541330588781)
    p = fused(f, p, 0.05550713274992419)
    p = fused(f, p, 0.24022119723935778)
    p = fused(f, p, 0.6931469670638438)
    p = fused(f, p, 1.0000000716546538)
    return bits_f32((bits_i32(shifted) + 127) << 23) * p


@device
def log2_positive(x):
    """log2(x) for normal float32 x > 0; error 1.5e-7 + 1e-7 |log2 x|; log2(0) = -127."""
    bits = bits_i32(x)
    # Split at sqrt(1/2), so that the reduced argument is around 1 and log2(1) is exactly 0.
    exponent = (bits - 0x3F3504F3) >> 23
    f = bits_f32(bits - (exponent << 23)) - 1.0
    p = fused(f, -0.14574436411013544, 0.23689033627254857)
    p = fused(f, p, -0.25006906046694904)
    p = fused(f, p, 0.286707461772714)
    p = fused(f, p, -0.3600872147598861)
    p = fused(f, p, 0.48093944457025256)
    p = fused(f, p, -0.7213571489451988)
    p = fused(f, p, 1.4426947724294688)
    return fused(f, p, to_f32(exponent))


@device
def softplus2(y):
    """log2(1 + 2^y) = max(y, 0) + log2(1 + 2^-|y|) of float32 y; relative error 4e-7 for y > -126."""
    z = exp2_nonpositive(select(y > 0.0, -y, y))
    p = fused(z, 0.00754917280479671, -0.042567024555376434)
    p = fused(z, p, 0.11285613241561195)
    p = fused(z, p, -0.19711891824778827)
    p = fused(z, p, 0.2756413879488372)
    p = fused(z, p, -0.35840846624760975)
    p = fused(z, p, 0.4806929565378382)
    p = fused(z, p, -0.7213402079702096)
    p = fused(z, p, 1.4426949974340642)
    return fused(z, p, select(y > 0.0, y, 0.0))


@device
def log2_softplus2(y):
    """log2 of `softplus2(y)`, at any y: below -24 it is y + log2 log2 e within 5e-8."""
    inside = log2_positive(softplus2(select(y < -24.0, -24.0, y)))
    return select(y < -24.0, y + LOG2_LOG2_E, inside)


@device
def logistic2(y):
    """Base-2 logistic 1 / (1 + 2^-y) of float32 y; relative error 4e-7, y > -126."""
    z = exp2_nonpositive(select(y > 0.0, -y, y))
    return select(y > 0.0, 1.0, z) / (z + 1.0)


@device
def power_switches(exponent):
    """The bits of a whole exponent in [1, 15] as factors and terms, for `whole_power`."""
    n = int(exponent)
    on_0, on_1, on_2, on_3 = float(n & 1), float(n >> 1 & 1), float(n >> 2 & 1), float(n >> 3 & 1)
    return on_0, 1.0 - on_0, on_1, 1.0 - on_1, on_2, 1.0 - on_2, on_3, 1.0 - on_3


@device
def whole_power(x, switches):
    """x^n for float32 x in [0, 1] by squaring; switches turn factors into 1; relative error 1e-6."""
    on_0, off_0, on_1, off_1, on_2, off_2, on_3, off_3 = switches
    square = x * x
    fourth = square * square
    low = fused(x, on_0, off_0) * fused(square, on_1, off_1)
    return low * (fused(fourth, on_2, off_2) * fused(fourth * fourth, on_3, off_3))


@device
def normal_quantile(word):
    """Phi^-1((word + 1/2) 2^-24) in float32 for int32 words in [0, 2^24); relative error 6e-7.

    With p the smaller tail, q / (1 - 2 p) is a smooth function of w = -log2(4 p (1 - p)), and of sqrt(w) for
    large w (after Giles, "Approximating the erfinv function", GPU Computing Gems, 2011; own fits).
    """
    upper = word > 0x7FFFFF
    h = to_f32(select(upper, 0xFFFFFF - word, word))
    p = (h + 0.5) * 2.0**-24
    distance = (8388607.5 - h) * 2.0**-23
    w = -log2_positive(4.0 * p * (1.0 - p))
    x = w - 3.5
    near = fused(x, 2.5471685931149857e-09, 3.641314233531512e-08)
    near = fused(x, near, -5.891070302876548e-07)
    near = fused(x, near, -6.486251428336921e-07)
    near = fused(x, near, 7.185022566353111e-05)
    near = fused(x, near, -0.0006209334364654084)
    near = fused(x, near, -0.0026447348953991126)
    near = fused(x, near, 0.24235690645899055)
    near = fused(x, near, 2.0974758586844633)
    y = square_root(select(w > 0.0, w, 0.0)) - 3.75
    far = fused(y, -7.506444349589544e-05, -3.722923021091472e-05)
    far = fused(y, far, 0.0006570287596331725)
    far = fused(y, far, -0.001512318604953036)
    far = fused(y, far, 0.0025703985104781916)
    far = fused(y, far, -0.00433999220077349)
    far = fused(y, far, 0.006960684773268327)
    far = fused(y, far, 1.1817379736641136)
    far = fused(y, far, 4.179551218839717)
    q = select(w < 7.0, near, far) * distance
    return select(upper, q, -q)


@device
def normal_quantile64(word):
    """Phi^-1((word + 1/2) 2^-24) in float64 for int32 words in [0, 2^24); relative error 1e-14.

    Source: Wichura, "Algorithm AS 241: the percentage points of the normal distribution", Applied Statistics 37, 1988,
    without its third range, which 24-bit words do not reach.
    """
    q = (to_f64(word) + 0.5) * 2.0**-24 - 0.5
    r = 0.180625 - q * q
    top = fused(r, 2509.0809287301226727, 33430.575583588128105)
    top = fused(r, top, 67265.770927008700853)
    top = fused(r, top, 45921.953931549871457)
    top = fused(r, top, 13731.693765509461125)
    top = fused(r, top, 1971.5909503065514427)
    top = fused(r, top, 133.14166789178437745)
    top = fused(r, top, 3.387132872796366608)
    bottom = fused(r, 5226.495278852854561, 28729.085735721942674)
    bottom = fused(r, bottom, 39307.89580009271061)
    bottom = fused(r, bottom, 21213.794301586595867)
    bottom = fused(r, bottom, 5394.1960214247511077)
    bottom = fused(r, bottom, 687.1870074920579083)
    bottom = fused(r, bottom, 42.313330701600911252)
    bottom = fused(r, bottom, 1.0)
    near = q * top / bottom
    tail = 0.5 - select(q < 0.0, -q, q)
    y = square_root(-log64(tail)) - 1.6
    top = fused(y, 7.7454501427834140764e-4, 0.0227238449892691845833)
    top = fused(y, top, 0.24178072517745061177)
    top = fused(y, top, 1.27045825245236838258)
    top = fused(y, top, 3.64784832476320460504)
    top = fused(y, top, 5.7694972214606914055)
    top = fused(y, top, 4.6303378461565452959)
    top = fused(y, top, 1.42343711074968357734)
    bottom = fused(y, 1.05075007164441684324e-9, 5.475938084995344946e-4)
    bottom = fused(y, bottom, 0.0151986665636164571966)
    bottom = fused(y, bottom, 0.14810397642748007459)
    bottom = fused(y, bottom, 0.68976733498510000455)
    bottom = fused(y, bottom, 1.6763848301838038494)
    bottom = fused(y, bottom, 2.05319162663775882187)
    bottom = fused(y, bottom, 1.0)
    far = top / bottom
    return select(r < 0.0, select(q < 0.0, -far, far), near)


@device
def log64(x):
    """Natural logarithm of normal float64 x > 0; error 4e-16 + 3e-16 |log x|."""
    bits = bits_i64(x)
    exponent = (bits - 0x3FE6A09E667F3BCD) >> 52
    m = bits_f64(bits - (exponent << 52))
    s = (m - 1.0) / (m + 1.0)
    u = s * s
    p = fused(u, 0.07932577736749778, 0.07598514388442945)
    p = fused(u, p, 0.0909426578964611)
    p = fused(u, p, 0.11111048278064055)
    p = fused(u, p, 0.1428571488135658)
    p = fused(u, p, 0.19999999997583398)
    p = fused(u, p, 0.3333333333333571)
    return fused(to_f64(exponent), LN_2, 2.0 * fused(s * u, p, s))


@device
def gumbel(word):
    """-ln(-ln u) of u = (word + 1/2) 2^-24 in float64 for int32 words in [0, 2^24); error 3e-8 + 1e-15 |value|."""
    return -log64(-log64((to_f64(word) + 0.5) * 2.0**-24))


@device
def exp64(x):
    """e^x of float64 x; relative error 4e-15 + 2e-16 |x|; x is clamped to [-700, 700]."""
    x = select(x < -700.0, -700.0, select(x > 700.0, 700.0, x))
    y = x * LOG2_E
    shifted = y + MAGIC_64
    f = fused(x, LOG2_E, MAGIC_64 - shifted)
    p = fused(f, 7.130438461899757e-09, 1.0210533218923956e-07)
    p = fused(f, p, 1.3214971659181174e-06)
    p = fused(f, p, 1.5252647926899954e-05)
    p = fused(f, p, 0.00015403531787683278)
    p = fused(f, p, 0.0013333558244070787)
    p = fused(f, p, 0.009618129105950501)
    p = fused(f, p, 0.0555041086643957)
    p = fused(f, p, 0.24022650695918257)
    p = fused(f, p, 0.6931471805599496)
    p = fused(f, p, 0.9999999999999993)
    return bits_f64((bits_i64(shifted) + 1023) << 52) * p
