"""What is measured of a site: laws on Gaussian rows, whose shift is known."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest

from fedakd.gaussians import kl, moments
from fedakd.shift.measure import chance, measured, random_parts, whitened
from fedakd.shift.sentences import overall, sentence
from fedakd.shift.sites import Sites, of_groups
from fedakd.shift.tables import plain, table
from fedakd.shift.telling import Told, tell_apart
from fedakd.theory.gaussian import sampling

DIMS = 4
EVEN = (1 / 3, 1 / 3, 1 / 3)


@dataclass(frozen=True, eq=False)
class Points:
    x: np.ndarray
    y: np.ndarray
    name: str = "points"
    classes: int = 3

    def examples(self, rows):
        raise NotImplementedError


def sites_of(shifts, sizes, labels=None, seed=0) -> Sites:
    """Sites of Gaussian rows whose means are shifted along the first axis, and whose labels may lean."""
    rng = np.random.default_rng(seed)
    parts = [rng.normal(size=(n, DIMS)) + np.eye(DIMS)[0] * s for n, s in zip(sizes, shifts, strict=True)]
    lean = labels or [EVEN] * len(sizes)
    y = np.concatenate([rng.choice(3, size=n, p=p) for n, p in zip(sizes, lean, strict=True)])
    groups = np.repeat([f"site {k}" for k in range(len(sizes))], sizes)
    return of_groups(Points(np.concatenate(parts), y), groups.tolist(), rng)


def all_measured(sites: Sites, repeats: int = 40, seed: int = 1):
    told, rng = [0.5] * len(sites.parts), np.random.default_rng(seed)
    return measured(sites, lambda rows: sites.dataset.x[rows], told, rng, repeats=repeats)


def with_x(sites: Sites, x: np.ndarray) -> Sites:
    return replace(sites, dataset=replace(sites.dataset, x=x))


def test_a_shifted_site_is_found():
    sites = sites_of([0.0, 0.0, 1.5], [4000, 3000, 400])
    found = all_measured(sites)
    pool = moments(sites.dataset.x)
    for site, part in zip(found, sites.parts, strict=True):
        assert site.kl == pytest.approx(kl(moments(sites.dataset.x[part]), pool))
        assert site.rows == site.distinct == len(part)
    assert found[2].shifted
    assert found[2].of_mean / found[2].kl > 0.7
    assert found[2].kl > 0.5 > 0.05 > found[0].kl


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(2000, 100, 1000), (300, 300), (900, 40)])
def test_without_shift_one_site_in_forty_seems_shifted(sizes):
    """However few its rows, and however large its share of the pool."""
    found = [s for seed in range(60) for s in all_measured(sites_of([0] * len(sizes), sizes, seed=seed))]
    for name in ("shifted", "labels_shifted"):
        share = np.mean([getattr(site, name) for site in found])
        assert 0.0 < share < 0.09, name
    for size in sizes:
        own = [site for site in found if site.rows == size]
        assert np.mean([site.kl for site in own]) == pytest.approx(
            np.mean([s.chance.mean for s in own]), rel=0.15
        )


def test_copies_that_have_nothing_to_do_with_the_rows_are_no_shift():
    """Some rows of a site drawn often and others once, as with replacement by weight: 20 sites."""
    flagged = []
    for seed in range(20):
        sites, rng = sites_of([0, 0], [1500, 200], seed=seed), np.random.default_rng(seed)
        often = np.repeat(sites.parts[1], rng.pareto(1.2, size=200).astype(int) + 1)
        flagged.append(all_measured(replace(sites, parts=(sites.parts[0], often)), seed=seed)[1].shifted)
    assert sum(flagged) <= 3


def test_random_parts_repeat_as_often_as_the_site_does():
    at = np.array([5, 5, 5, 2, 9, 9])
    for draw in random_parts(at, 50, 10, np.random.default_rng(0)):
        assert sorted(np.unique(draw, return_counts=True)[1]) == [1, 2, 3]


def test_chance_agrees_with_the_formula_for_gaussian_rows():
    site = all_measured(sites_of([0, 0], [20_000, 500]), repeats=200)[1]
    assert site.chance.mean == pytest.approx(sampling(DIMS, 500), rel=0.1)
    assert site.sampling == sampling(DIMS, 500)
    assert site.chance.low < site.chance.mean < site.chance.high


@pytest.mark.parametrize("scales", [(1.0, 1.0, 1.0, 1.0), (1e3, 1.0, 1.0, 1e-2), (1e-9, 1e-9, 1e-9, 1e-9)])
def test_units_do_not_matter_for_any_of_the_divergences(scales):
    sites = sites_of([0, 1.0], [1000, 6])
    rng = np.random.default_rng(0)
    turn = np.linalg.qr(rng.normal(size=(DIMS, DIMS)))[0]
    plainly, scaled = (
        all_measured(sites),
        all_measured(with_x(sites, sites.dataset.x @ turn * np.array(scales))),
    )
    for a, b in zip(plainly, scaled, strict=True):
        assert a.kl == pytest.approx(b.kl, rel=1e-4)
        assert a.shrunk == pytest.approx(b.shrunk, rel=1e-3)
        assert a.shifted == b.shifted


def test_columns_that_say_nothing_new_are_left_out():
    sites = sites_of([0, 1.0], [1000, 300])
    x = sites.dataset.x
    more = with_x(sites, np.c_[x, x.sum(1), np.full(len(x), 7.0), 1 - x[:, 0]])
    for a, b in zip(all_measured(sites), all_measured(more), strict=True):
        assert b.dims == DIMS
        assert a.kl == pytest.approx(b.kl, rel=1e-6)


def test_a_site_that_does_not_vary_where_the_pool_does_is_shifted():
    sites = sites_of([0, 0], [1000, 300])
    x = sites.dataset.x.copy()
    x[sites.parts[1], 2] = 0.0
    site = all_measured(with_x(sites, x))[1]
    assert site.kl == math.inf
    assert site.usable
    assert site.shifted
    assert "do not vary in a direction in which the pool does" in sentence(site)


def test_too_few_rows_are_judged_by_the_shrunk_fit():
    near, far = (all_measured(sites_of([0, shift], [3000, 4]))[1] for shift in (0.0, 6.0))
    assert near.kl == far.kl == math.inf
    assert not near.usable
    assert math.isfinite(far.shrunk)
    assert far.shifted
    assert not near.shifted
    assert "only a shrunk estimate" in sentence(far)


@pytest.mark.parametrize("rows", [1, 2])
def test_of_one_or_two_rows_nothing_is_said(rows):
    sites = sites_of([0, 9.0], [500, rows])
    found = all_measured(sites)
    assert not found[1].shifted
    assert sentence(found[1]) == f"site 1: too few rows ({rows}) to tell whether it is shifted."
    assert "1 have too few rows to tell" in overall(found, Told(0.9, 0.9, (1.0, 0.0)))


def test_shifted_labels_are_found_and_none_are_not_spoken_of():
    lean = sites_of([0, 0], [3000, 500], labels=[EVEN, (0.6, 0.3, 0.1)])
    first, second = all_measured(lean)
    assert second.labels_shifted
    assert "its labels are shifted" in sentence(second)
    assert first.label_kl < second.label_kl
    blank = replace(lean, dataset=replace(lean.dataset, classes=1, y=np.zeros_like(lean.dataset.y)))
    site = all_measured(blank)[1]
    assert math.isnan(site.label_kl)
    assert "labels" not in sentence(site)
    assert table([site])[1][0][7] == "-"


def test_whitened_rows_have_unit_covariance():
    x = np.random.default_rng(0).normal(size=(200, 3)) @ np.array([[3.0, 1, 0], [0, 1e-3, 0], [0, 0, 50]]) + 5
    z = whitened(x)
    assert np.allclose(z.mean(0), 0, atol=1e-9)
    assert np.allclose(z.T @ z / 200, np.eye(3), atol=1e-6)


def test_chance_is_the_middle_of_draws():
    values = np.random.default_rng(0).normal(size=1001)
    found = chance(values)
    assert (found.low, found.high) == pytest.approx((np.quantile(values, 0.025), np.quantile(values, 0.975)))
    assert chance([1.0, math.inf]).high == math.inf


@pytest.mark.parametrize("shift", [0.0, 3.0])
def test_sites_are_told_apart_where_they_differ(shift):
    sites = sites_of([0, shift, shift], [1600, 300, 200])
    told = tell_apart(sites, lambda rows: sites.dataset.x[rows], np.random.default_rng(0))
    assert told.majority == pytest.approx(1600 / 2100, abs=0.01)
    if shift:
        assert told.accuracy > 0.85
        assert told.of_each[0] > 0.9
    else:  # neither by the numbers of rows nor by weights
        assert told.accuracy == pytest.approx(told.majority, abs=0.02)
        assert told.of_each == pytest.approx((1 / 3, 1 / 3, 1 / 3), abs=0.2)


def test_rows_learned_by_heart_do_not_count():
    """Every base row stands in one site, ten times: by heart all would be told, by their values none."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 100))
    data = Points(x, np.zeros(300, dtype=np.int64))
    base = of_groups(data, rng.permutation(np.repeat(["a", "b"], 150)).tolist(), rng)
    often = replace(base, parts=tuple(np.repeat(part, 10) for part in base.parts))
    told = tell_apart(often, lambda rows: x[rows], np.random.default_rng(0))
    assert told.accuracy == pytest.approx(0.5, abs=0.12)


def test_sentences_and_tables_say_what_was_measured():
    found = all_measured(sites_of([0, 2.0], [2000, 300]))
    headers, rows = table(found)
    assert len(headers) == len(rows[0]) == len(rows[1])
    assert rows[1][:3] == ["site 1", "300", f"{found[1].kl:.2f}"]
    assert sentence(found[1]).startswith("site 1: its inputs are shifted, mostly of the mean: KL ")
    assert "labels are not" in sentence(found[1])
    told = Told(0.9, 0.87, (0.95, 0.5))
    assert f"{sum(s.shifted for s in found)} of 2 sites have inputs shifted" in overall(found, told)
    assert plain(found)[1]["chance_high"] == found[1].chance.high
    assert plain(found)[1]["judged_by"] == "kl"
