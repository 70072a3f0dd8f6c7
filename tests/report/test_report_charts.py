"""Charts can be told apart and read: colours, names, numbers, and why one is not there."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib.resources import files
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from parsed import made
from test_report_evidence import TWICE, with_round
from test_report_page import CLEAR

from fedakd.compare.results import Setting
from fedakd.fairness import ROUNDING
from fedakd.report import audit
from fedakd.report.bars import Bar, gains, intervals, lengths
from fedakd.report.charts import HUES, LEFT, Chart, Look, Scale, beside, looks
from fedakd.report.clients import Panel, panels
from fedakd.report.curves import chart, charts
from fedakd.report.dumbbell import Pair, dumbbell
from fedakd.report.page import colours
from fedakd.report.scatter import UNCHANGED, Point, scatter

LOOK = Look("hue0", "", "circle")
DEUTERANOPIA = np.array(
    [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
)  # Machado, Oliveira and Fernandes 2009, on linear RGB
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
WHITE = np.array([0.9505, 1.0, 1.089])


def palette(scheme: str) -> tuple[list[str], str]:
    """The colours of lines and points as the style sheet leaves them, and what they are drawn on."""
    css = colours() + (files("fedakd.report") / "page.css").read_text()
    dark = css[css.index("prefers-color-scheme: dark") :].split("\n}\n")[0]
    everywhere = css[: css.index("@media")]
    found = dict(re.findall(r"--(\w+): ?(#\w{6})", everywhere + (dark if scheme == "dark" else "")))
    return [found[f"hue{at}"] for at in range(HUES)], found["back"]


def linear(colour: str) -> np.ndarray:
    parts = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def contrast(a: str, b: str) -> float:
    low, high = sorted(float(TO_XYZ[1] @ linear(one)) for one in (a, b))
    return (high + 0.05) / (low + 0.05)


def lab(rgb: np.ndarray) -> np.ndarray:
    parts = TO_XYZ @ rgb / WHITE
    x, y, z = np.where(parts > 0.008856, np.cbrt(parts), (903.3 * parts + 16) / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def apart(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.linalg.norm(lab(a) - lab(b)))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_are_seen_against_the_page_and_told_apart(scheme):
    hues, back = palette(scheme)
    assert min(contrast(hue, back) for hue in hues) >= 3
    pairs = [(linear(a), linear(b)) for a, b in combinations(hues, 2)]
    assert min(apart(a, b) for a, b in pairs) >= 35
    weak = [tuple(np.clip(DEUTERANOPIA @ one, 0, 1) for one in pair) for pair in pairs]
    assert min(apart(a, b) for a, b in weak) >= 15


def test_schemes_differ_and_the_figures_colours_are_the_first():
    """Without this, a palette read from the wrong part of the style sheet would pass for two."""
    light, dark = palette("light")[0], palette("dark")[0]
    assert light[0] == "#0072b2"
    assert not set(light) & set(dark)
    assert contrast(palette("light")[1], palette("dark")[1]) > 10


def words(chart: Chart, kind: str = "") -> list[str]:
    return re.findall(rf'<text class="[^"]*{kind}[^"]*"[^>]*>([^<]*)</text>', chart.svg)


@given(st.lists(st.text("ab-(), =.", min_size=1, max_size=90).filter(str.strip), min_size=2, unique=True))
def test_names_beside_bars_are_never_cut(labels):
    bars = [Bar(label, LOOK, 1.0, 0.5, 2.0) for label in labels]
    svg = str(intervals("x", "t", "points", bars).svg)
    drawn = re.findall(r'<g class="hue0">(.*?)</g>', svg)
    shown = ["".join(re.findall(r"<text[^>]*>([^<]*)</text>", one)) for one in drawn]
    assert [re.sub(r"\s", "", one) for one in shown] == [re.sub(r"\s", "", one) for one in labels]


def test_lines_of_neighbouring_names_keep_apart():
    names = [f"FedAKD-single-dist (alpha=0.{at}, local_epochs=5) (personal)" for at in range(4)]
    svg = intervals("x", "t", "points", [Bar(name, LOOK, 1.0) for name in names]).svg
    heights = sorted(float(y) for y in re.findall(r'<text class="tick end"[^>]* y="([\d.]+)"', svg))
    assert len(heights) == 16
    assert min(b - a for a, b in pairwise(heights)) >= 12


def test_a_cost_that_was_lost_has_no_bar():
    found = lengths("x", "t", "seconds", [Bar("a", LOOK, 2.0), Bar("b", LOOK, float("nan"))])
    assert found.svg.count("<rect") == 1
    assert {"2", "unknown"} <= set(words(found))
    assert "nan" not in found.svg
    assert "b: unknown seconds" in found.svg


def test_an_axis_makes_room_for_its_numbers():
    short, halves, fine = (beside(Scale(*ends, 0, 1)) for ends in ((60, 90), (80, 95), (0, 0.0012)))
    assert LEFT == short < halves < fine


@given(st.floats(0, 1), st.floats(-0.3, 0.3))
def test_a_change_is_never_shown_as_none_nor_with_the_wrong_sign(alone, gain):
    pair = Pair(0, alone, alone + gain)
    drawn = dumbbell("x", "t", [pair])
    (text,) = [one for one in words(drawn, "end") if one not in ("client", "gain", "0")] or ["0"]
    way = re.search(r'class="way (\w+)"', drawn.svg)[1]
    if abs(pair.gain) <= ROUNDING:
        assert (text, way) == ("0.0", "up")
    else:
        assert float(text) * pair.gain > 0
        assert way == ("down" if pair.gain < 0 else "up")


def panel_of(setting: Setting, method: str) -> Panel:
    rows = [row for row in setting.rows if row.judged and row.method != "standalone"]
    at = [row.method for row in rows].index(method)
    return next(one for one in panels(setting, "s1") if one.name == f"s1-m{at}")


def names(panel: Panel) -> list[str]:
    return [chart.name.split("-")[-1] for chart in panel.charts]


def test_equal_contributions_are_told_of_not_drawn():
    shares = with_round(made(TWICE), "fedavg", contributions=lambda seed: [0.1 + 0.01 * k for k in range(6)])
    equal = with_round(made(TWICE), "fedavg", contributions=lambda seed: [0.1 + seed] * 6)
    drawn, left_out = panel_of(shares, "fedavg"), panel_of(equal, "fedavg")
    assert "contribution" in names(drawn)
    assert "contribution" not in names(left_out)
    assert "Contribution against accuracy is not drawn: the method holds all contributions to be equal." in (
        left_out.absent
    )
    nothing = panel_of(made(TWICE), "fedavg").absent
    assert nothing[-1].endswith("not drawn: the method keeps no account of contributions.")


def audited(setting: Setting, shifts: list[dict | None]) -> Setting:
    clients = [
        {"train": {"rows": 100 + k, "distinct": 100}, "shift": shift, "labels": [1]}
        for k, shift in enumerate(shifts)
    ]
    return replace(setting, audits={seed: {"clients": clients} for seed in setting.plan.seeds})


def kl(*values: float | None) -> list[dict | None]:
    return [{"gaussian_kl": value} for value in values]


def test_why_no_shift_is_drawn():
    setting = made(TWICE)
    unmeasured = panel_of(audited(setting, [None] * 6), "fedavg")
    infinite = panel_of(audited(setting, kl(*[None] * 6)), "fedavg")
    assert names(unmeasured) == names(infinite) == ["dumbbell", "fairness", "rows"]
    assert unmeasured.absent[0] == "Shift against gain is not drawn: no shift of inputs was measured."
    assert "the shift of every client is infinite" in infinite.absent[0]
    (column,) = {row[7].text for row in infinite.numbers.rows}
    assert column == "infinite"
    assert {row[7].text for row in unmeasured.numbers.rows} == {""}


def test_clients_with_an_infinite_shift_are_left_out_and_counted():
    panel = panel_of(audited(made(TWICE), kl(1.0, 2.0, None, 4.0, 5.0, 3.0)), "fedavg")
    drawn = next(one for one in panel.charts if one.name.endswith("shift"))
    assert "2 left out: shift is infinite" in words(drawn, "remark")  # one client, two seeds
    assert drawn.svg.count("<title>client") == 10


def test_the_audit_says_infinite_where_nothing_was_stored(results):
    stored = results.settings[0].audits[0]
    first, *others = stored["clients"]
    broken = {**stored, "clients": [{**first, "shift": {**first["shift"], "gaussian_kl": None}}, *others]}
    at = audit.clients(broken, "x").headers.index("KL(x)")
    column = [row[at].text for row in audit.clients(broken, "x").rows]
    assert column[0] == "infinite"
    assert column[1:] == [row[at].text for row in audit.clients(stored, "x").rows][1:]
    assert all(re.fullmatch(r"\d+\.\d\d", one) for one in column[1:])


def test_equally_many_rows_explain_nothing():
    setting = made(TWICE)
    clients = [{"train": {"rows": 100, "distinct": 100}, "shift": None, "labels": [1]}] * 6
    panel = panel_of(replace(setting, audits={seed: {"clients": clients} for seed in (0, 1)}), "fedavg")
    assert "Training rows against gain is not drawn: all clients have equally many." in panel.absent


def test_fedakds_panel_comes_first_and_names_stay():
    assert [(one.label, one.name) for one in panels(made(CLEAR), "s1")] == [
        ("FedAKD (personal)", "s1-m1"),
        ("FedAvg (personal)", "s1-m0"),
    ]
    variants = {**TWICE, "fedakd-all-data": [0.5, 0.8], "fedakd(alpha=0.2)": [0.5, 0.8]}
    assert panels(made(variants), "s1")[0].label == "FedAKD(alpha=0.2) (personal)"
    assert panels(made(TWICE), "s1")[0].label == "FedAvg (personal)"


def test_what_an_interval_of_cf_is_of():
    once = {name: own[:1] for name, own in CLEAR.items()}
    titles = [gains(made(levels), looks(levels), "s1")[1].title for levels in (CLEAR, once)]
    assert "mean over seeds" in titles[0]
    assert "interval of a single seed" in titles[0]
    assert titles[1] == "CF, with its 95 % interval"


def test_what_an_interval_of_gains_is_of():
    once = {name: own[:1] for name, own in CLEAR.items()}
    titles = [gains(made(levels), looks(levels), "s1")[0].title for levels in (CLEAR, once)]
    assert titles[0] == "Mean gain over these clients, with its 95 % interval over seeds"
    assert titles[1] == "Mean gain over these clients, with its 95 % interval of this one draw of test rows"


@pytest.mark.parametrize(("rounds", "marked"), [(1, 1), (30, 30), (31, 1)])
def test_judged_rounds_are_marked_while_they_can_be_told_apart(rounds, marked):
    curve = {at: 50.0 + at for at in range(1, rounds + 1)}
    assert chart("x", "t", "points", {"m": curve}, {"m": LOOK}).svg.count("<circle") == marked


def point(x: float, y: float) -> Point:
    return Point(x, y, 0, False, "told")


def test_the_dashed_line_is_named_where_it_is_drawn():
    near, far = [point(1, 2), point(2, 1)], [point(1, 20), point(2, 21)]
    for points, rest, drawn in ((near, "diagonal", True), (far, "diagonal", False), (near, None, False)):
        made_ = scatter("x", "t", points, "a", "b", "r", rest)
        assert (UNCHANGED in words(made_)) is (made_.svg.count('class="zero"') == 2) is drawn
    level = scatter("x", "t", [point(1, -1), point(2, 1)], "a", "b", "r", "level")
    assert UNCHANGED in words(level)
    assert UNCHANGED in re.search("<desc.*?</desc>", level.svg)[0]


def test_no_coordinate_is_finer_than_a_tenth(results):
    setting = results.settings[0]
    drawn = looks(cell.method for cell in setting.cells)
    found = [*charts(setting, drawn, "s1"), *gains(setting, drawn, "s1")]
    found += [one for panel in panels(setting, "s1") for one in panel.charts]
    places = [
        place for one in found for place in re.findall(r' (?:d|x|y|cx|cy|r|width)="([^"]*)"', str(one.svg))
    ]
    assert len(places) > 500
    assert not [place for place in places if re.search(r"\.\d\d", place)]
    assert not [place for place in places if "nan" in place]
