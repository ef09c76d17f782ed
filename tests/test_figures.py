"""The one style of all figures: settings stay the user's, lines are told apart, names do not overlap, bytes repeat."""

import re
import subprocess
import sys
from itertools import combinations
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Annotation
from numpy.testing import assert_allclose

from stau_rl.figures.coincide import DASH, in_turn, show_coinciding, stretches
from stau_rl.figures.grid import COLUMNS, legend_below, one_panel, panels
from stau_rl.figures.labels import broken, label_ends, spread
from stau_rl.figures.palette import FAMILIES, GROUNDS, HUES, INK, PAPER, contrast_of, family_of, looks, luminance, on
from stau_rl.figures.save import both, save
from stau_rl.figures.style import SMALL, TEXT, WIDTH, ground, ground_of, plain, plain_log, styled, theme

ROOT = Path(__file__).resolve().parents[1]
COLUMN = 3.3
# Machado, Oliveira and Fernandes, "A physiologically-based model for simulation of color vision deficiency", 2009:
# deuteranopia, on linear light.
DEUTERANOPIA = np.array(
    [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]]
)


def _line_figure() -> Figure:
    figure, axes = one_panel()
    axes.plot([1, 10, 100], [1, 5, 20], label="softmax")
    return figure


def test_settings_backend_and_pyplot_are_the_users_after_a_figure(tmp_path):
    code = (
        "import sys, matplotlib as mpl\n"
        "mpl.rcParams['lines.linewidth'] = 7.0\n"
        "raw = lambda: {name: dict.__getitem__(mpl.rcParams, name) for name in dict.keys(mpl.rcParams)}\n"
        "before = raw()\n"
        "from pathlib import Path\n"
        "from stau_rl.figures.grid import one_panel\n"
        "from stau_rl.figures.labels import label_ends\n"
        "from stau_rl.figures.save import save\n"
        "def draw():\n"
        "    figure, axes = one_panel()\n"
        "    label_ends(axes, axes.plot([1, 2], [1, 2], label='a'))\n"
        "    return figure\n"
        "save(draw, Path(sys.argv[1]), ground='dark')\n"
        "import matplotlib.pyplot as plt\n"
        "assert raw() == before\n"
        "assert plt._backend_mod is None and plt._pylab_helpers.Gcf.figs == {}\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "a.png")], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert run.returncode == 0, run.stderr


def test_a_theme_ends_also_where_drawing_fails():
    before = dict(mpl.rcParams)

    def fail() -> None:
        with theme("dark"):
            raise RuntimeError(mpl.rcParams["axes.facecolor"])

    with pytest.raises(RuntimeError, match=PAPER["dark"]):
        fail()
    assert dict(mpl.rcParams) == before
    assert ground() == "light"
    with pytest.raises(ValueError, match="'light' or 'dark', got 'grey'"), theme("grey"):  # type: ignore[arg-type]
        pass


def test_a_styled_function_draws_in_the_theme_around_it_or_in_the_light_one():
    draw = styled(lambda: (ground(), mpl.rcParams["figure.facecolor"]))
    with mpl.rc_context({"figure.facecolor": "red"}):
        assert draw() == ("light", PAPER["light"])
    with theme("dark"):
        assert draw() == ("dark", PAPER["dark"])
        figure, axes = one_panel()
        assert (ground_of(axes), figure.get_facecolor()) == ("dark", (*to_rgb(PAPER["dark"]), 1.0))


def test_letters_are_read_in_a_column():
    """Journals ask for five points at least."""
    assert min(TEXT, SMALL) * COLUMN / WIDTH >= 5.0


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("centred_ucb(c=1) | softmax(beta=3.607)", "softmax"),
        ("sm_fir", "softmax"),
        ("escort(p={x}) + 1", "escort"),
        ("s_tau_fir(fir_taps=7)", "s_tau"),
        ("pn_fir_tau_calibrated", "power_norm"),
        ("ucb1", "argmax"),
        ("learned(s_tau(tau=2), rate=0.01)", "learned"),
        ("", ""),
    ],
)
def test_a_name_says_which_head_decides(name, family):
    assert family_of(name) == family


def test_a_head_has_its_colour_in_every_figure():
    alone, _, later = (looks(names)[-1] for names in (["softmax"], ["random"], ["thompson", "x", "ucb | softmax"]))
    assert alone.colour == later.colour == HUES["blue"]
    # A stranger that comes first leaves the colours of the heads free.
    assert looks(["stranger", "s_tau", "softmax"])[1:] == looks(["s_tau", "softmax"])
    assert set(FAMILIES.values()) <= set(HUES)


@pytest.mark.parametrize("ground", GROUNDS)
def test_every_line_of_a_figure_has_a_colour_of_its_own(ground):
    for names in (
        [f"s_tau(tau={k})" for k in range(9)],
        [f"stranger {k}" for k in range(16)],
        ["softmax(beta=1)", "s_tau", "softmax(beta=2)", "escort", "argmax", "random", "thompson", "ucb1", "x", "y"],
    ):
        colours = [look.colour for look in looks(names, ground)]
        assert len(set(colours)) == len(names)
        assert min(contrast_of(colour, PAPER[ground]) for colour in colours) >= 2.0
        assert min(contrast_of(on(colour, ground, 4.5), PAPER[ground]) for colour in colours) >= 4.5
    assert contrast_of(INK[ground], PAPER[ground]) > 10


def test_hues_of_one_dash_differ_in_grey_and_to_the_colour_blind():
    each = looks([f"stranger {k}" for k in range(len(HUES))])
    for a, b in combinations(each, 2):
        seen = []
        for look in (a, b):
            values = np.array(to_rgb(look.colour))
            linear = np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)
            seen.append((DEUTERANOPIA @ linear).clip(0, 1))
        assert a.dash != b.dash or abs(luminance(a.colour) ** 0.5 - luminance(b.colour) ** 0.5) > 0.1, (a, b)
        assert a.dash != b.dash or np.abs(seen[0] - seen[1]).max() > 0.1, (a, b)
    assert contrast_of("#000000", "#ffffff") == pytest.approx(21.0)
    assert luminance("#808080") == pytest.approx(0.2158605, abs=1e-6)


def test_names_move_as_little_as_they_must():
    # Two that collide share the way; the third has room.
    assert_allclose(spread(np.array([0.5, 0.5, 0.9]), np.full(3, 0.1), 0, 1), [0.45, 0.55, 0.9])
    # Order is kept, whatever the order they come in; sizes differ.
    assert_allclose(spread(np.array([0.4, 0.35]), np.array([0.2, 0.1]), 0, 1), [0.45, 0.3])
    # The ends hold.
    assert_allclose(spread(np.array([-1.0, 0.0, 2.0]), np.full(3, 0.2), 0, 1), [0.1, 0.3, 0.9])
    assert spread(np.array([]), np.array([]), 0, 1).size == 0


def test_names_at_line_ends_do_not_overlap_and_stand_beside_the_axes():
    with theme():
        figure, axes = one_panel()
        ends = [1.0, 1.01, 1.02, 5.0, 5.0, 9.0]
        lines = [axes.plot([0, 1], [0, end], label=f"centred_ucb | softmax(beta={end})")[0] for end in ends]
        lines += axes.plot([0, 1], [np.nan, np.nan], label="nowhere")
        assert label_ends(axes, lines)
        figure.draw_without_rendering()
        names = [text for text in axes.texts if isinstance(text, Annotation)]
        boxes = [name.get_bbox_patch() or super(Annotation, name).get_window_extent() for name in names]
        assert [name.get_text() for name in names] == [broken(str(line.get_label())) for line in lines[:-1]]
        frame = axes.get_window_extent()
        for box in boxes:
            assert frame.x1 < box.x0
            assert box.x1 <= figure.bbox.x1
        assert not any(a.overlaps(b) for a, b in combinations(boxes, 2))
        heights = [box.y0 for box in boxes]
        assert sorted(heights) == heights


def test_too_many_names_are_left_to_a_legend():
    with theme():
        figure, axes = one_panel(2.0)
        lines = [axes.plot([0, 1], [0, end], label=f"line {end}")[0] for end in range(20)]
        assert not label_ends(axes, lines)
        assert len(axes.texts) == 0
    assert isinstance(figure, Figure)


def test_long_names_are_broken_at_the_bar_or_between_words():
    assert broken("centred_ucb | softmax(beta=3.607)") == "centred_ucb |\nsoftmax(beta=3.607)"
    assert broken("random") == "random"
    assert broken("asymptotic, not a bound at finite t", 20) == "asymptotic, not a\nbound at finite t"


def test_stretches_where_curves_coincide():
    nan = np.nan
    curves = np.array(
        [
            [0.0, 0.1, 0.2, 0.3, 0.4, nan],
            [0.0, 0.1, 0.2, 0.5, 0.6, 0.7],
            [0.9, 0.8, 0.21, 0.31, 0.4, 0.4],
        ]
    )
    assert stretches(curves, 0.02) == [(0, 1, (0, 1)), (2, 2, (0, 1, 2)), (3, 4, (0, 2))]
    # Three in a row, each near the next: the first and the last are not together.
    assert stretches(np.array([[0.0], [0.015], [0.03]]), 0.02) == [(0, 0, (0, 1))]


def test_lines_that_coincide_become_one_line_of_all_their_colours():
    with theme():
        _, axes = one_panel()
        x = np.linspace(0, 1, 50)
        same = [axes.plot(x, x, label=name)[0] for name in "ab"]
        crossing = axes.plot(x, 1 - x, label="c")[0]
        half = axes.plot(x, np.maximum(x, 0.5), label="d")[0]
        found = show_coinciding(axes, [*same, crossing, half])
        assert found == [same, [*same, half]]
        drawn = [line for line in axes.get_lines() if line.get_label() == "_nolegend_" and line.get_zorder() > 2]
        assert [line.get_color() for line in drawn] == [line.get_color() for line in (*same, *same, half)]
        # The stretches meet in the middle, and are where the lines are.
        assert_allclose(drawn[0].get_ydata(), drawn[0].get_xdata(), atol=1e-9)
        assert_allclose(np.asarray(drawn[2].get_xdata())[[0, -1]], [0.5, 1.0], atol=0.01)
        # The lines themselves stay.
        assert_allclose(np.asarray(same[0].get_ydata(), dtype=float), x)
        assert show_coinciding(axes, same[:1]) == []


@pytest.mark.parametrize("members", [2, 3, 9])
def test_dashes_in_turn_fill_a_line_and_never_overlap(members):
    places = np.arange(0.5, 4 * members * DASH)
    covered = np.zeros(len(places), dtype=int)
    for turn in range(members):
        offset, (dash, gap) = in_turn(turn, members)
        covered += (places + offset) % (dash + gap) < dash
    assert (covered == 1).all()


def test_equal_figures_are_equal_bytes_whatever_the_users_style(tmp_path):
    first, second = both(tmp_path / "a.png"), both(tmp_path / "b")
    save(_line_figure, *first)
    with mpl.rc_context({"lines.linewidth": 9, "font.size": 3, "savefig.dpi": 30, "svg.fonttype": "none"}):
        save(_line_figure, *second)
    for a, b in zip(first, second, strict=True):
        assert a.read_bytes() == b.read_bytes()
    text = first[1].read_text(encoding="utf-8")
    assert "<svg" in text
    assert not re.search(r"dc:date|matplotlib\.org|Matplotlib v", text)
    save(_line_figure, *second, ground="dark")
    assert PAPER["dark"] in second[1].read_text(encoding="utf-8")
    assert PAPER["dark"] not in text


def test_a_figure_is_written_whole_or_not_at_all(tmp_path):
    (tmp_path / "a.png").write_bytes(b"old")

    def fail() -> Figure:
        figure = _line_figure()
        figure.savefig = None  # type: ignore[assignment, method-assign]
        return figure

    with pytest.raises(TypeError):
        save(fail, tmp_path / "a.png")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"old"]
    with pytest.raises(ValueError, match=r"\.png, \.svg or \.pdf, got 'a\.gif'"):
        save(_line_figure, tmp_path / "b.png", tmp_path / "a.gif")
    assert not (tmp_path / "b.png").exists()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1, "1"),
        (0.01, "0.01"),
        (10_000, "10\N{THIN SPACE}000"),
        (1e5, "10⁵"),
        (1e-6, "10⁻⁶"),
        (2e-4, "2×10⁻⁴"),
        (0, "0"),
        (-40, "−40"),
        (2.5, "2.5"),
    ],
)
def test_ticks_are_plain_numbers(value, text):
    assert plain(value) == text


def test_a_log_axis_has_labels_also_where_no_power_of_ten_is_in_sight():
    with theme():
        figure, axes = one_panel()
        axes.plot([1, 2], [220.0, 860.0])
        axes.set_yscale("log")
        plain_log(axes, "y")
        figure.draw_without_rendering()
        low, high = axes.get_ylim()
        seen = [
            label.get_text()
            for label, place in zip(axes.get_yticklabels(), axes.get_yticks(), strict=True)
            if low <= place <= high
        ]
        assert {"300", "400", "600", "800"} <= set(seen)


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_panels_stand_two_across_over_one_legend(count):
    with theme():
        figure, each = panels(count)
        assert (len(each), len(figure.axes)) == (count, count)
        if count:
            assert each[0].get_subplotspec().get_gridspec().ncols == min(count, COLUMNS)  # type: ignore[union-attr]
        legend_below(figure, {}, note="nothing")
        assert figure.legends == []
        look = looks(["softmax"])[0]
        legend_below(figure, {"softmax": look.key()}, note="all")
        assert [text.get_text() for text in figure.legends[0].get_texts()] == ["softmax"]
        assert figure.legends[0].get_title().get_text() == "all"


def test_no_other_room_sets_colours_or_settings_or_writes_a_figure():
    drawing = re.compile(r"rc_context|rcParams|rcdefaults|savefig|pyplot(?!:)|[\"']#[0-9a-fA-F]{6}[\"']")
    for folder in ("stau_rl", "envs", "agents", "kernels"):
        for path in (ROOT / folder).rglob("*.py"):
            if path.parent.name == "figures":
                continue
            found = [line for line in path.read_text(encoding="utf-8").splitlines() if drawing.search(line)]
            # Words about pyplot and examples of use are no drawing.
            said = ("Nothing here goes through pyplot", ">>> ")
            assert [line for line in found if not any(words in line for words in said)] == [], path
