"""Live progress, as text and on a terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from fedakd.audit import audit
from fedakd.cli.watch import Watch
from fedakd.data import load
from fedakd.experiment import Cell
from fedakd.federation import federate
from fedakd.rounds import Round


def record(number: int) -> Round:
    scores = {"personal/accuracy": {0: 0.5, 1: 0.75}, "personal/loss": {0: 1.0, 1: 1.0}}
    return Round(number, [0, 1], scores, None, 10, 0, 0, {}, 1.0)


def watched(terminal: bool, quiet: bool = False, width: int = 80, partition: str = "ics(2)") -> str:
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=width)
    with Watch(console, 2, quiet) as watch:
        watch.fetching("images.gz", 10, 20)
        watch.federated(audit(federate(load("digits"), partition, 5, seed=0)))
        watch.began("fedavg", 0, 3, 1, 2)
        for stage in ("train", "evaluate"):
            for client in (1, 0):
                watch.progressed(stage, client)
        watch.judged(record(2))
        watch.noticed("worker 1 died [9]")
        watch.bar.refresh()
        watch.ended(Cell("fedavg", 0, [record(2)], 5, (5, 5)))
        watch.ended(Cell("fedakd", 0, [record(2)], 5, (5, 5)))
    return out.getvalue()


def test_elsewhere_than_on_a_terminal_there_is_a_line_a_round():
    text = watched(terminal=False)
    assert "[1/2] fedavg, seed 0: continuing after round 1" in text
    assert "[1/2] fedavg, seed 0: round 2/3, personal 62.5, about 0 s left" in text
    assert "[2/2] fedakd, seed 0: already done" in text
    assert "downloading images.gz" in text
    assert "worker 1 died [9]" in text


@pytest.mark.parametrize("partition", ["ics(2)", "ics(kl=1.5)", "bcs(1, c_cov=2, cov=rotate)"])
def test_the_audit_fits_on_a_narrow_terminal(partition):
    text = watched(terminal=False, partition=partition)
    assert "0 rows shared between pools" in text
    assert "realised" in text
    assert "…" not in text
    assert all(len(line) <= 80 for line in text.splitlines())


def test_on_a_terminal_a_bar_tells_round_clients_and_scores():
    for width in (80, 160):
        text = watched(terminal=True, width=width)
        assert "[1/2] fedavg, seed 0" in text
        assert "round 2/3 evaluate 2/2" in text
        assert "personal 62.5" in text
        assert "left" in text


def test_quiet_is_quiet_but_for_notices():
    assert watched(terminal=False, quiet=True).strip() == "worker 1 died [9]"
