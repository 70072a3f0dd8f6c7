"""Progress of a comparison: every cell is told of once, with the time that is left."""

from __future__ import annotations

import io

from rich.console import Console
from small_plans import small

from fedakd.audit import audit
from fedakd.cli.board import Board
from fedakd.compare import jobs_of
from fedakd.data import load
from fedakd.federation import federate


def board(terminal: bool, quiet: bool = False) -> tuple[Board, io.StringIO]:
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=120)
    return Board(console, jobs_of(small()), quiet), out


def test_there_is_a_line_for_each_cell_that_was_computed():
    shown, out = board(terminal=False)
    first, second, third = list(shown.left.values())[:3]
    with shown:
        shown.found(first)
        shown.took(second)
        shown.advanced(second, 1, 2)
        shown.finished(second, 3.0)
        shown.failed(third, "no rows [at all]")
    told = out.getvalue().splitlines()
    assert told[0].startswith(f"[2/12] {second.label}: 3 s, about ")
    assert told[1].startswith(f"[3/12] {third.label}: failed, about ")
    assert told[2] == f"{third.label} failed: no rows [at all]"
    assert shown.failures == [(third, "no rows [at all]")]


SECONDS = {"standalone": 10.0, "fedavg": 20.0, "fedakd": 30.0}


def test_the_time_left_is_that_of_cells_alike():
    shown, _ = board(terminal=False)
    jobs = list(shown.left.values())
    assert shown.time_left() == ""
    for job in jobs[:3]:  # one of each method, one after another
        shown.took(job)
        shown.finished(job, SECONDS[job.method])
    assert shown.time_left() == ", about 3 min left", "three more of each: 180 s"
    for job in jobs[3:5]:
        shown.took(job)
    assert shown.time_left() == ", about 90 s left", "two at once"


def test_a_cell_that_a_machine_slept_through_does_not_set_the_pace():
    shown, _ = board(terminal=False)
    jobs = list(shown.left.values())
    for job in jobs[:9]:  # three of each method
        shown.took(job)
        shown.finished(job, SECONDS[job.method] + 9000 * (job is jobs[4]))
    assert shown.time_left() == ", about 60 s left", "one more of each"


def test_who_is_alone_with_the_last_cell_is_told_its_whole_time():
    shown, _ = board(terminal=False)
    jobs = list(shown.left.values())
    for first, second in zip(jobs[:10:2], jobs[1:11:2], strict=True):
        shown.took(first)
        shown.took(second)
        shown.finished(first, 50.0)
        shown.finished(second, 50.0)
    shown.took(jobs[10])
    shown.finished(jobs[10], 50.0)
    assert shown.time_left() == ", about 50 s left"


def test_bars_show_the_round_and_who_waits():
    shown, out = board(terminal=True)
    job = next(iter(shown.left.values()))
    with shown:
        shown.took(job)
        shown.advanced(job, 1, 2)
        shown.waiting(3)
        shown.bars.refresh()
    assert "round 1/2" in out.getvalue()
    assert "waiting for 3 that other processes compute" in out.getvalue()


def test_a_warning_is_told_once_and_quiet_is_quiet():
    found = audit(federate(load("digits"), "ics(2)", 5, seed=0))
    warned = type(found)(**{**vars(found), "warnings": ("few rows",)})
    for quiet in (False, True):
        shown, out = board(terminal=False, quiet=quiet)
        for _ in range(2):
            shown.federated(warned)
        for done in (4, 9):  # the first that is told of a download is its first block
            shown.fetching("a.gz", done, 9)
        shown.finished(next(iter(shown.left.values())), 1.0)
        assert out.getvalue().count("few rows") == (0 if quiet else 1)
        assert out.getvalue().count("downloading a.gz") == (0 if quiet else 1)
        assert (out.getvalue() == "") == quiet
