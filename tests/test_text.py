"""Specs as text: what is written reads back, and whatever does not read is a SpecError that says why."""

import dataclasses
import math
import warnings
from typing import ClassVar

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stau_rl.heads import (
    HEADS,
    ClampPower,
    Entmax,
    Escort,
    Head,
    LearnedSink,
    Lssar,
    PowerNorm,
    Registry,
    ReluNorm,
    Reweight,
    Sigmoid,
    Softmax,
    SoftmaxOffByOne,
    Softpick,
    SpecError,
    SSMax,
    STau,
    parse_head,
)
from stau_rl.heads.power_norm import CENTRES, GATES
from stau_rl.spec.grammar import MAX_TEXT, Call, format_number, parse_pipe

many = settings(max_examples=300, deadline=None)
any_number = st.floats(allow_nan=False, allow_infinity=False)
positive = st.floats(min_value=1e-300, allow_infinity=False)
PARAMETERS = {
    "softmax": st.builds(Softmax, st.floats(0, allow_infinity=False)),
    "s_tau": st.builds(STau, st.floats(1, allow_infinity=False), st.floats(0, allow_infinity=False)),
    "clamp_power": st.builds(ClampPower, positive, positive),
    "escort": st.builds(Escort, positive),
    "entmax": st.builds(Entmax, st.floats(1, allow_infinity=False, exclude_min=True)),
    "ssmax": st.builds(SSMax, st.floats(0, allow_infinity=False)),
    "softmax_off_by_one": st.builds(SoftmaxOffByOne, st.floats(0, allow_infinity=False)),
    "learned_sink": st.builds(LearnedSink, any_number),
    "softpick": st.builds(Softpick, st.floats(0, allow_infinity=False)),
    "sigmoid": st.builds(Sigmoid, any_number),
    "power_norm": st.builds(PowerNorm, positive, any_number, st.sampled_from(GATES), centre=st.sampled_from(CENTRES))
    | st.builds(PowerNorm, positive, any_number, st.just("sink"), positive),
    "lssar": st.builds(Lssar, positive),
    "reweight": st.builds(Reweight, st.builds(Escort, positive) | st.builds(ReluNorm), positive),
    **{
        name: st.just(HEADS[name]())
        for name in ("softplus_norm", "sigmoid_norm", "relu_norm", "argmax", "sparsemax", "entmax15", "rela")
    },
}

PLUGIN = " (a head of your own is loaded with --plugin FILE)"


@dataclasses.dataclass(frozen=True)
class Toy:
    """A spec with a field of every kind that text can fill."""

    name: ClassVar[str] = "toy"

    count: int
    rate: float = 0.5
    limit: float | None = None
    mode: str = "plain"
    sizes: tuple[float, ...] = ()
    head: Head = dataclasses.field(default=Softmax(), metadata={"registry": HEADS})

    def __str__(self) -> str:
        from stau_rl.spec.grammar import format_spec

        return format_spec(self)


TOYS: Registry[Toy] = Registry("toy", Toy)
toys = st.builds(
    Toy,
    count=st.integers(),
    rate=st.floats(allow_nan=False),
    limit=st.none() | st.floats(allow_nan=False),
    mode=st.text() | st.sampled_from(["None", "True", "if", "nan", "inf", "lambda", "ſ", "µ", "a b", "'", '"', "\\"]),
    sizes=st.lists(st.floats(allow_nan=False), max_size=3).map(tuple),
    head=st.one_of(*PARAMETERS.values()),
)


def test_every_registered_head_has_a_strategy():
    assert set(PARAMETERS) == set(HEADS)


@pytest.mark.parametrize("name", list(HEADS))
def test_every_registered_head_reads_back(name):
    head = HEADS[name]()
    assert parse_head(name) == head
    assert parse_head(str(head)) == head
    assert parse_head(f"  {head}\n") == head


@many
@given(st.one_of(*PARAMETERS.values()))
def test_any_parameters_read_back(head):
    assert parse_head(str(head)) == head


@many
@given(toys)
@example(Toy(10**400))
@example(Toy(0, head=STau(5.0, 0.0), mode="inf", limit=-math.inf))
def test_any_kind_of_field_reads_back(toy):
    assert TOYS.parse(str(toy)) == toy


@many
@given(st.floats(allow_nan=False))
def test_a_number_is_written_shortest_and_reads_back(value):
    text = format_number(value)
    assert float(text) == value
    assert len(text) <= len(repr(value))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("softmax", "softmax(beta=1)"),
        ("softmax()", "softmax(beta=1)"),
        ("softmax(4)", "softmax(beta=4)"),
        ("s_tau(5, 0)", "s_tau(tau=5, eps=0)"),
        ("s_tau(tau=5, eps=1e-8)", "s_tau(tau=5)"),
        ("s_tau(eps=0.25,tau=+2.5)", "s_tau(tau=2.5, eps=0.25)"),
        ("argmax()", "argmax"),
    ],
)
def test_text_is_normalised(text, expected):
    assert str(parse_head(text)) == expected


def test_a_pipe_splits_left_to_right():
    assert parse_pipe("a(1, x=-2) | b | c(d([1, none], 'w'))", "policy") == [
        Call("a", (1,), (("x", -2),)),
        Call("b"),
        Call("c", (Call("d", ((1, "none"), "w")),)),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("stau", "unknown head 'stau'; did you mean 's_tau'?"),
        ("sotfmax(2)", "unknown head 'sotfmax'; did you mean 'softmax'?"),
        (
            "qqq",
            f"unknown head 'qqq'; known: {', '.join(HEADS)}",
        ),
        ("s_tau(tua=5)", "s_tau has no argument 'tua'; did you mean 'tau'?"),
        ("softmax(tau=5)", "softmax has no argument 'tau'; known: beta"),
        ("argmax(x=5)", "argmax has no argument 'x'; it takes none"),
        ("argmax(1)", "argmax takes at most 0 arguments, got 1"),
        ("s_tau(5, tau=4)", "s_tau: argument 'tau' is given twice"),
        ("s_tau(tau=5, tau=4)", "s_tau: argument 'tau' is given twice"),
        ("s_tau(tau=0.5)", "s_tau: tau must be finite and >= 1, got 0.5"),
        ("s_tau(tau=nan)", "s_tau: tau must be finite and >= 1, got nan"),
        ("softmax(beta=1e999)", "softmax: beta must be finite and >= 0, got inf"),
        ("softmax(beta=-inf)", "softmax: beta must be finite and >= 0, got -inf"),
        ("softmax(beta=high)", "softmax: beta must be a number or an expression of t, got 'high'"),
        ("softmax(beta=True)", "softmax: beta must be a number or an expression of t, got True"),
        ("softmax(beta=None)", "softmax: beta must be a number or an expression of t, got None"),
        ("softmax(beta=[1])", "softmax: beta must be a number or an expression of t, got (1,)"),
        ("softmax(argmax())", "softmax: beta must be a number or an expression of t, got argmax(...)"),
        ("softmax | argmax", "head 'softmax | argmax': expected one head, got a pipe of 2"),
        ("", "head must be a non-empty text, got ''"),
        (" \n", "head must be a non-empty text, got ' \\n'"),
        (None, "head must be a non-empty text, got None"),
        (5, "head must be a non-empty text, got 5"),
        ("s_tau(tau=5", "cannot read head 's_tau(tau=5': '(' was never closed"),
        ("softmax(**x)", "cannot read head 'softmax(**x)': ** is not accepted"),
        ("softmax(*x)", "cannot read head 'softmax(*x)': '*x' is not a number, list, word or call"),
        ("softmax(1j)", "cannot read head 'softmax(1j)': '1j' is not a number, list, word or call"),
        ("5", "cannot read head '5': expected name or name(argument=value), got '5'"),
        ("a.b(1)", "cannot read head 'a.b(1)': expected name or name(argument=value), got 'a.b(1)'"),
        ("softmax\0", "cannot read head 'softmax\\x00': source code string cannot contain null bytes"),
    ],
)
def test_an_error_says_what_is_wrong(text, message):
    with pytest.raises(SpecError) as caught:
        parse_head(text)
    assert str(caught.value) == message + (PLUGIN if message.startswith("unknown head") else "")
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("toy", "toy needs the argument 'count'"),
        ("toy(1.5)", "toy: count must be a whole number, got 1.5"),
        ("toy(inf)", "toy: count must be a whole number, got inf"),
        ("toy(1, limit=x)", "toy: limit must be a number, got 'x'"),
        ("toy(1, mode=1)", "toy: mode must be a word, got 1"),
        ("toy(1, sizes=1)", "toy: sizes must be a list of numbers, got 1"),
        ("toy(1, sizes=[a])", "toy: sizes must be a list of numbers, got ('a',)"),
        ("toy(1, head=1)", "toy: head must be a head, got 1"),
        ("toy(1, head=stau)", "unknown head 'stau'; did you mean 's_tau'?"),
        ("toy(1, head=s_tau(0))", "s_tau: tau must be finite and >= 1, got 0.0"),
    ],
)
def test_an_error_in_any_kind_of_field(text, message):
    with pytest.raises(SpecError) as caught:
        TOYS.parse(text)
    assert str(caught.value) == message + (PLUGIN if message.startswith("unknown head") else "")


def test_a_registry_refuses_what_is_not_a_spec():
    registry: Registry[Head] = Registry("head", Softmax)
    with pytest.raises(ValueError, match="head 'softmax' is already registered"):
        registry.register(Softmax)
    with pytest.raises(ValueError, match="a head is a dataclass with an identifier as `name`"):
        registry.register(Head)


def only_spec_errors(text: str) -> None:
    """Read the text in every way; anything but a result or a short SpecError, a warning included, fails the test."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for read in (HEADS.parse, TOYS.parse, lambda words: parse_pipe(words, "policy")):
            try:
                read(text)
            except SpecError as error:
                assert len(str(error)) < 1500  # noqa: PT017 - success is as good as an error here


PIECES = """
s_tau softmax toy tau beta count head sizes mode ( ) [ ] , = | - + ~ * ** . : := # ' " 0 1 9e9 0x 1_0 1j
nan inf None True if else is lambda await yield for in é µ f' b' '\\q' { } ... @ ; $ ? ! \\
"""
pieces = st.sampled_from([*PIECES.split(), " ", "\n", "\t", "\0", "\ud800", "(" * 99, "[" * 120, ")" * 99, "9" * 4400])


@many
@given(st.text())
def test_any_text_gives_a_spec_or_a_spec_error(text):
    only_spec_errors(text)


@settings(max_examples=600, deadline=None)
@given(st.lists(pieces, max_size=25).map("".join))
def test_any_text_of_the_grammar_gives_a_spec_or_a_spec_error(text):
    only_spec_errors(text)


@many
@given(
    st.lists(pieces, max_size=6).map("".join), st.sampled_from(["toy({})", "softmax(beta={})", "toy(1, sizes=[{}])"])
)
def test_any_argument_gives_a_spec_or_a_spec_error(text, frame):
    only_spec_errors(frame.format(text))


HUGE = "0x" + "f" * 5000


@pytest.mark.parametrize(
    "text",
    [
        "(" * 5000,
        "softmax(beta=" + "(" * 150 + "1" + ")" * 150 + ")",
        "softmax(beta=" + "(" * 5000 + "1" + ")" * 5000 + ")",
        "softmax(" * 90 + ")" * 90,
        "softmax(" * 2000 + ")" * 2000,
        "toy(sizes=" + "[" * 150 + "]" * 150 + ")",
        "toy(" + "[a(" * 60 + ")]" * 60 + ")",
        "toy(head=" * 80 + "1" + ")" * 80,
        "softmax(beta=" + "-" * 5000 + "1)",
        "softmax(beta=" + "not " * 4000 + "1)",
        "softmax(beta=" + "1+" * 4000 + "1)",
        "x|" * 9000 + "x",
        "a." * 9000 + "a",
        "a" + "()" * 4000,
        "a if b else " * 1500 + "c",
        "a**" * 4000 + "a",
        "softmax(beta=" + "9" * 5000 + ")",
        f"softmax(beta={HUGE})",
        f"softmax(beta=[{HUGE}])",
        f"toy({HUGE})",
        f"toy(-{HUGE})",
        f"toy(1, mode={HUGE})",
        f"toy(1, head={HUGE})",
        f"toy(1, rate={HUGE})",
        "a" * MAX_TEXT,
        "a" * (MAX_TEXT + 1),
        "softmax(" + "b" * 9000 + "=1)",
        "softmax('" + "b" * 9000 + "')",
        " " * (MAX_TEXT + 1),
        "softmax(" + "1," * 9000 + ")",
        "\ud800",
        "softmax(beta='\ud800')",
        "softmax(beta='\\ud800')",
        "softmax(beta='\\N{no such name}')",
        "softmax(beta='\\q')",
        "softmax(beta=1if 1else 2)",
        "softmax(beta=1 is 1)",
        "softmax(beta=1())",
        "𝓈oftmax",
        "softmax\u202e(1)",
        "\ufeffsoftmax",
    ],
    ids=lambda text: ascii(text[:18]).strip("'"),
)
def test_hostile_text_gives_a_spec_or_a_spec_error(text):
    only_spec_errors(text)
