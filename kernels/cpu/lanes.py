"""A Numba type for thirty-two values side by side: explicit SIMD that no loop vectoriser has to discover.

`Lanes(element)` is an LLVM vector of thirty-two numbers (or booleans). Operators work lane by lane and
broadcast scalars; LLVM splits the vector into the registers of the machine at hand (one on AVX-512, two on
AVX2, four on SSE or NEON). Compiled code holds Lanes as local values only: `load` and `store` move them to
and from arrays.

Arithmetic may contract a product and a sum into a fused multiply-add and assumes that no NaN or infinity
occurs; it is never re-associated, so adding and subtracting a magic number rounds as written.
"""

import operator

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.imputils import lower_builtin
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, models, register_model

# Two AVX-512 registers: their work interleaves, which gains a tenth over one (measured).
WIDTH = 32
FAST = ("contract", "nsz", "nnan", "ninf")


class Lanes(types.Type):
    """Thirty-two values of one scalar type."""

    def __init__(self, element):
        """Make the type of thirty-two values of the Numba scalar type `element`."""
        self.element = element
        super().__init__(name=f"Lanes({element})")


def _vector(element):
    bits = 1 if element == types.boolean else element.bitwidth
    if isinstance(element, types.Float):
        return ir.VectorType(ir.FloatType() if bits == 32 else ir.DoubleType(), WIDTH)
    return ir.VectorType(ir.IntType(bits), WIDTH)


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, data_model_manager, lanes):
        super().__init__(data_model_manager, lanes, _vector(lanes.element))


def _splat(builder, value):
    kind = ir.VectorType(value.type, WIDTH)
    single = builder.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
    first = ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), [0] * WIDTH)
    return builder.shuffle_vector(single, ir.Constant(kind, ir.Undefined), first)


def _widen(context, builder, value, kind, element):
    """The LLVM vector of an operand: itself, or a scalar cast to `element` and broadcast."""
    if isinstance(kind, Lanes):
        return value
    scalar = context.cast(builder, value, kind, element)
    if element == types.boolean:
        scalar = builder.trunc(scalar, ir.IntType(1)) if scalar.type.width != 1 else scalar
    return _splat(builder, scalar)


def _element(args):
    """The common element type of some operands of which at least one is Lanes, or None."""
    elements = {kind.element for kind in args if isinstance(kind, Lanes)}
    scalars = all(isinstance(kind, (Lanes, types.Number, types.Boolean)) for kind in args)
    return elements.pop() if len(elements) == 1 and scalars else None


def _emit_arithmetic(builder, name, element, a, b):
    if isinstance(element, types.Float):
        return getattr(builder, f"f{name}")(a, b, flags=FAST)
    return getattr(builder, name)(a, b)


def _emit_comparison(builder, symbol, element, a, b):
    if isinstance(element, types.Float):
        return builder.fcmp_ordered(symbol, a, b, flags=FAST)
    signed = getattr(element, "signed", False)
    return (builder.icmp_signed if signed else builder.icmp_unsigned)(symbol, a, b)


def _register(function, result, emit):
    """Type and lower one binary operator for Lanes with Lanes, and for Lanes with a scalar on either side."""

    @infer_global(function)
    class _Template(AbstractTemplate):
        def generic(self, args, kws):
            element = _element(args) if len(args) == 2 else None
            return None if element is None else signature(Lanes(result(element)), *args)

    def lower(context, builder, sig, args):
        element = _element(sig.args)
        a, b = (_widen(context, builder, *pair, element) for pair in zip(args, sig.args, strict=True))
        return emit(builder, element, a, b)

    for pair in ((Lanes, Lanes), (Lanes, types.Number), (types.Number, Lanes)):
        lower_builtin(function, *pair)(lower)


def _register_unary(function, emit):
    @infer_global(function)
    class _Template(AbstractTemplate):
        def generic(self, args, kws):
            return signature(args[0], args[0]) if len(args) == 1 and isinstance(args[0], Lanes) else None

    @lower_builtin(function, Lanes)
    def lower(context, builder, sig, args):
        return emit(builder, sig.args[0].element, args[0])


def _register_operators():
    def arithmetic(name):
        return lambda builder, element, a, b: _emit_arithmetic(builder, name, element, a, b)

    def comparison(symbol):
        return lambda builder, element, a, b: _emit_comparison(builder, symbol, element, a, b)

    def integer(name):
        return lambda builder, element, a, b: getattr(builder, name)(a, b)

    def shift_right(builder, element, a, b):
        return (builder.ashr if element.signed else builder.lshr)(a, b)

    def divide(builder, element, a, b):
        return builder.fdiv(a, b, flags=FAST)

    same, boolean = (lambda element: element), (lambda element: types.boolean)
    for name in ("add", "sub", "mul"):
        _register(getattr(operator, name), same, arithmetic(name))
    for name, symbol in (("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">="), ("eq", "=="), ("ne", "!=")):
        _register(getattr(operator, name), boolean, comparison(symbol))
    for name, llvm in (("and_", "and_"), ("or_", "or_"), ("xor", "xor"), ("lshift", "shl")):
        _register(getattr(operator, name), same, integer(llvm))
    _register(operator.rshift, same, shift_right)
    _register(operator.truediv, same, divide)

    def negate(builder, element, a):
        return builder.fneg(a, flags=FAST) if isinstance(element, types.Float) else builder.neg(a)

    _register_unary(operator.neg, negate)
    _register_unary(operator.invert, lambda builder, element, a: builder.not_(a))


_register_operators()


def _address(context, builder, sig, args):
    """Pointer to thirty-two consecutive elements of a one-dimensional contiguous array."""
    array = context.make_array(sig.args[0])(context, builder, args[0])
    start = builder.gep(array.data, [context.cast(builder, args[1], sig.args[1], types.intp)])
    return builder.bitcast(start, _vector(sig.args[0].dtype).as_pointer())


@intrinsic
def load(typing_context, array, start):
    """`array[start : start + WIDTH]` as Lanes; unchecked."""

    def emit(context, builder, sig, args):
        return builder.load(_address(context, builder, sig, args), align=array.dtype.bitwidth // 8)

    return Lanes(array.dtype)(array, start), emit


@intrinsic
def store(typing_context, array, start, value):
    """`array[start : start + WIDTH] = value`, Lanes of the array's type; unchecked."""
    if not isinstance(value, Lanes) or value.element != array.dtype:
        return None

    def emit(context, builder, sig, args):
        builder.store(args[2], _address(context, builder, sig, args), align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, start, value), emit


@intrinsic
def select(typing_context, mask, yes, no):
    """Lane by lane `yes` where the mask holds, else `no`; one of the two may be a scalar."""
    element = _element((yes, no))
    if element is None:
        return None

    def emit(context, builder, sig, args):
        a, b = (_widen(context, builder, *pair, element) for pair in zip(args[1:], sig.args[1:], strict=True))
        return builder.select(args[0], a, b)

    return Lanes(element)(mask, yes, no), emit


@intrinsic
def splat(typing_context, value, like):
    """The scalar `value` in every lane, in the scalar type of `like`, which is not used otherwise."""
    element = types.unliteral(like)

    def emit(context, builder, sig, args):
        return _widen(context, builder, args[0], sig.args[0], element)

    return Lanes(element)(value, like), emit


@intrinsic
def iota(typing_context):
    """0, 1, ..., 15 as unsigned 64-bit lanes."""

    def emit(context, builder, sig, args):
        return ir.Constant(_vector(types.uint64), list(range(WIDTH)))

    return Lanes(types.uint64)(), emit


@intrinsic
def any_lane(typing_context, mask):
    """Whether the mask holds in any lane."""

    def emit(context, builder, sig, args):
        packed = builder.bitcast(args[0], ir.IntType(WIDTH))
        return builder.icmp_unsigned("!=", packed, ir.Constant(ir.IntType(WIDTH), 0))

    return types.boolean(mask), emit


@intrinsic
def square_root(typing_context, x):
    """Square root of floating-point lanes."""

    def emit(context, builder, sig, args):
        kind = _vector(x.element)
        name = f"llvm.sqrt.v{WIDTH}f{x.element.bitwidth}"
        function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(kind, [kind]), name)
        return builder.call(function, args, fastmath=FAST)

    return x(x), emit


@intrinsic
def fused(typing_context, a, b, c):
    """`a * b + c` in lanes, rounded once where the machine can; scalars are broadcast."""
    element = _element((a, b, c))

    def emit(context, builder, sig, args):
        x, y, z = (_widen(context, builder, *pair, element) for pair in zip(args, sig.args, strict=True))
        return builder.fadd(builder.fmul(x, y, flags=FAST), z, flags=FAST)

    return Lanes(element)(a, b, c), emit


def _conversion(target, name):
    def typer(typing_context, x):
        def emit(context, builder, sig, args):
            source, kind = x.element, _vector(target)
            if source == target:
                return args[0]
            if isinstance(source, types.Float) and isinstance(target, types.Float):
                grow = source.bitwidth < target.bitwidth
                return (builder.fpext if grow else builder.fptrunc)(args[0], kind)
            if isinstance(source, types.Float):
                return builder.fptosi(args[0], kind)
            signed = getattr(source, "signed", False)
            if isinstance(target, types.Float):
                return (builder.sitofp if signed else builder.uitofp)(args[0], kind)
            if source != types.boolean and source.bitwidth > target.bitwidth:
                return builder.trunc(args[0], kind)
            if source != types.boolean and source.bitwidth == target.bitwidth:
                return args[0]
            return (builder.sext if signed else builder.zext)(args[0], kind)

        return Lanes(target)(x), emit

    typer.__name__ = typer.__qualname__ = name
    typer.__doc__ = f"Lanes converted to {target} by value; a float is cut towards zero."
    return intrinsic(typer)


to_f32 = _conversion(types.float32, "to_f32")
to_f64 = _conversion(types.float64, "to_f64")
to_i32 = _conversion(types.int32, "to_i32")
to_i64 = _conversion(types.int64, "to_i64")
to_u64 = _conversion(types.uint64, "to_u64")


def _reinterpretation(target, name):
    def typer(typing_context, x):
        def emit(context, builder, sig, args):
            return builder.bitcast(args[0], _vector(target))

        return Lanes(target)(x), emit

    typer.__name__ = typer.__qualname__ = name
    typer.__doc__ = f"The same bits read as {target}."
    return intrinsic(typer)


bits_i32 = _reinterpretation(types.int32, "bits_i32")
bits_f32 = _reinterpretation(types.float32, "bits_f32")
bits_i64 = _reinterpretation(types.int64, "bits_i64")
bits_f64 = _reinterpretation(types.float64, "bits_f64")
