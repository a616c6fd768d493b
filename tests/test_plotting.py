"""Figures: fixed colours, sensible axes, whole files, and sentences for what cannot be drawn."""

import itertools
import os
import subprocess
import sys

import matplotlib.colors
import numpy as np
import pytest
from matplotlib.figure import Figure

import cofed
from cofed.engine.history import History
from cofed.plotting import colour, plot_history, save, style
from cofed.plotting.styles import COLOURS


def history(objective, **columns) -> History:
    """A history with such columns, and one megabyte each way per round."""
    rounds = np.arange(len(objective), dtype=float)
    table = {"round": rounds, "objective": np.asarray(objective, float)}
    table |= {"bytes_down": 1e6 * rounds, "bytes_up": 1e6 * rounds, "seconds": 0.1 * rounds}
    table |= {name: np.asarray(values, float) for name, values in columns.items()}
    rows = [dict(zip(table, values, strict=True)) for values in zip(*table.values(), strict=True)]
    return History(rows, [], [])


def colours(figure: Figure) -> dict[str, str]:
    """The colour of each labelled line, as hex."""
    lines = [line for axes in figure.axes for line in axes.get_lines()]
    return {
        str(line.get_label()): matplotlib.colors.to_hex(line.get_color()).upper()
        for line in lines
        if not str(line.get_label()).startswith("_")
    }


def test_every_algorithm_has_a_colour_and_those_with_a_server_differ():
    personal = {"FedProx", "PureLocal", "Alternative"}
    missing = set(cofed.algorithms.__all__) - set(COLOURS)
    assert not missing, f"give {missing} a colour in COLOURS of src/cofed/plotting/styles.py"
    names = set(cofed.algorithms.__all__) - personal
    for a, b in itertools.combinations(sorted(names), 2):
        assert COLOURS[a] != COLOURS[b], f"{a} and {b} have one colour in COLOURS of src/cofed/plotting/styles.py"
    for a, b in itertools.combinations(COLOURS, 2):
        differ = (COLOURS[a], style(a)) != (COLOURS[b], style(b)) or {a, b} & personal
        assert differ, f"{a} and {b} look the same; a method without a server is DASHED in src/cofed/plotting/styles.py"


def test_colours_are_the_same_in_every_figure_and_order():
    a, b, own = history([3, 2, 1]), history([5, 4, 3]), history([9, 8, 7])
    first = colours(plot_history({"FedMiD": a, "FedDualAvg": b, "ours": own}))
    second = colours(plot_history({"ours": own, "FedDualAvg": a}, x="bytes"))
    assert first["FedDualAvg"] == second["FedDualAvg"] == COLOURS["FedDualAvg"]
    assert first["FedMiD"] == COLOURS["FedMiD"]
    assert first["ours"] == second["ours"] == colour("ours")
    assert colour("FedMiD-OSP") == colour("FedMiD (OSP)") == COLOURS["FedMiD"]
    assert style("FedMiD-OSP") != style("FedMiD")


@pytest.mark.parametrize(("x", "end"), [("round", 4.0), ("bytes", 8.0), ("seconds", 0.4)])
def test_horizontal_axes(x, end):
    line = plot_history({"FedAvg": history([5, 4, 3, 2, 1])}, x=x).axes[0].get_lines()[0]
    np.testing.assert_allclose(line.get_xdata()[-1], end)
    np.testing.assert_allclose(line.get_ydata(), [5, 4, 3, 2, 1])


def test_axes_are_logarithmic_only_where_values_span_powers_of_ten():
    def scale(values, column="objective"):
        return plot_history({"FedAvg": history(values, f1=values)}, column).axes[0].get_yscale()

    assert scale([1000.0, 10.0, 1e-3]) == "log"
    assert scale([1000.0, 200.0, 50.0]) == "log"
    assert scale([3.0, 2.0, 1.0]) == "linear"
    assert scale([1000.0, 1.0, -1.0]) == "linear"
    assert scale([1000.0, np.inf, 1.0]) == "log"
    assert scale([np.nan, np.nan]) == "linear"
    assert scale([0.001, 0.5, 1.0], "f1") == "linear"


def test_a_logarithmic_axis_leaves_out_a_line_at_zero():
    runs = {"FedAvg": history([300, 20, 1])}
    axes = plot_history(runs, references={"objective": {"optimum": 0.0, "pooled data": 0.5}}).axes[0]
    assert axes.get_yscale() == "log"
    assert [text.get_text() for text in axes.texts] == ["pooled data"]


def test_references_are_lines_with_their_name_beside_them():
    axes = plot_history({"FedAvg": history([3, 2, 1])}, references={"objective": {"pooled data": 0.5}}).axes[0]
    assert [text.get_text() for text in axes.texts] == ["pooled data"]
    assert list(axes.get_lines()[1].get_ydata()) == [0.5, 0.5]


def test_nothing_overlaps_in_a_wide_figure():
    runs = {name: history(np.geomspace(1000, 50, 9), f1=np.linspace(0, 1, 9)) for name in COLOURS}
    lines = {"objective": {"pooled data": 50.0}}
    figure = plot_history(runs, ("f1", "objective"), title="A title", references=lines)
    figure.draw_without_rendering()
    legend = figure.legends[0].get_window_extent()
    assert not any(legend.overlaps(axes.get_window_extent()) for axes in figure.axes)
    left, right = (axes.get_tightbbox() for axes in figure.axes)
    assert not left.overlaps(right)
    assert {text.get_text() for text in figure.legends[0].get_texts()} == set(COLOURS)


def test_given_axes_are_drawn_into():
    figure = Figure()
    axes = figure.subplots(1, 2)
    runs = {"FedAvg": history([3, 2, 1], f1=[0, 0.5, 1])}
    assert plot_history(runs, ("objective", "f1"), ax=axes) is figure
    assert [len(panel.get_lines()) for panel in axes] == [1, 1]
    assert plot_history(runs, "f1", ax=axes[0]) is figure
    with pytest.raises(ValueError, match="one axes per column: 2 columns, 1 axes"):
        plot_history(runs, ("objective", "f1"), ax=axes[0])


@pytest.mark.parametrize(("name", "head"), [("a.png", b"\x89PNG\r\n\x1a\n"), ("a.SVG", b"<?xml"), ("a.pdf", b"%PDF")])
def test_files_are_whole_and_reproducible(tmp_path, name, head):
    runs = {"FedAvg": history([3, 2, 1])}
    plot_history(runs, path=tmp_path / "one" / name)
    plot_history(runs, path=tmp_path / "two" / name)
    one, two = (tmp_path / folder / name for folder in ("one", "two"))
    assert one.read_bytes().startswith(head)
    assert one.read_bytes() == two.read_bytes()
    assert os.listdir(one.parent) == [name]  # nothing half-written stays behind


def test_what_cannot_be_drawn_is_refused_in_a_sentence(tmp_path):
    runs = {"FedAvg": history([3, 2, 1])}
    with pytest.raises(ValueError, match="at least one result"):
        plot_history({})
    with pytest.raises(ValueError, match=r"'FedAvg' has no column 'rank'; it has \['round', 'objective'"):
        plot_history(runs, "rank")
    with pytest.raises(ValueError, match="'round', 'bytes', 'seconds' or 'simulated_seconds', got 'time'"):
        plot_history(runs, x="time")
    with pytest.raises(ValueError, match=r"\.png, \.svg or \.pdf, got 'a\.gif'"):
        save(Figure(), tmp_path / "a.gif")
    assert os.listdir(tmp_path) == []


def test_pyplot_is_never_imported(tmp_path):
    program = (
        "import sys\n"
        "from cofed.engine.history import History\n"
        "from cofed.plotting import plot_history\n"
        "history = History([{'round': 0, 'objective': 2.0}, {'round': 1, 'objective': 1.0}], [], [])\n"
        "plot_history({'FedAvg': history}, path=sys.argv[1])\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    command = [sys.executable, "-W", "error", "-c", program, str(tmp_path / "a.png")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
