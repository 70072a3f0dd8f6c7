"""The engine is a seam: what a run gives does not depend on where its clients live."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import faulty
import pytest
import torch

import toys
from fedakd import trees
from fedakd.engine.base import ClientError, read_kept
from fedakd.engine.processes import Processes, WorkerDied, Workers, balanced
from fedakd.engine.serial import Serial
from fedakd.examples import Examples
from fedakd.methods.fedakd import FedAKD
from fedakd.methods.fedavg import FedAvg
from fedakd.rounds import Messages, run
from fedakd.training import Recipe
from presets import METHODS


@pytest.fixture(scope="module")
def pools(two_workers: Workers) -> Iterator[list[Workers]]:
    one, three = Workers(1), Workers(3)
    yield [one, two_workers, three]
    one.close()
    three.close()


@pytest.mark.parametrize("name", METHODS)
def test_results_are_equal_for_any_number_of_workers(name, pools):
    spec = toys.spec(METHODS[name], sizes=(23, 11, 5, 8), net="cnn")
    state, rounds = toys.outcome(spec, Serial(spec))
    for workers in pools:
        other, others = toys.outcome(spec, Processes(spec, workers))
        assert trees.equal(state, other)
        assert rounds == others


def test_the_engine_leaves_torch_as_it_was():
    torch.set_num_threads(2)
    before = torch.get_rng_state()
    spec = toys.spec(FedAKD())
    toys.outcome(spec, Serial(spec))
    assert torch.get_num_threads() == 2
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("stage", ["client_update", "models"])
def test_a_worker_that_dies_is_restarted_and_changes_nothing(stage, tmp_path):
    method = faulty.Dying(marks=str(tmp_path), stage=stage)
    spec = toys.spec(method, sizes=(9, 7, 5))
    engine = Processes(spec, 2)
    state, rounds = toys.outcome(spec, engine, rounds=3)
    calm = toys.spec(FedAKD(), sizes=(9, 7, 5))
    expected, undisturbed = toys.outcome(calm, Serial(calm), rounds=3)
    assert list(tmp_path.iterdir())
    assert trees.equal(state, expected)
    assert rounds == undisturbed
    notice = engine.notices[0]
    assert "worker" in notice
    assert "signal 9" in notice
    assert "these are my last words" in notice
    assert "clients" in notice


def test_a_worker_that_dies_twice_ends_the_run_with_its_story(tmp_path):
    spec = toys.spec(faulty.Dying(marks=str(tmp_path), times=5), sizes=(9, 7, 5))
    with pytest.raises(WorkerDied, match=r"clients 1, 2 died: signal 9; its last lines: .*last words"):
        toys.outcome(spec, Processes(spec, 2), rounds=3)


@pytest.mark.parametrize("parallel", [False, True])
def test_errors_of_a_method_name_the_place(parallel, two_workers):
    spec = toys.spec(faulty.Buggy())
    engine = Processes(spec, two_workers) if parallel else Serial(spec)
    with pytest.raises(ClientError, match="client 1, round 2, client_update: ValueError: shapes do not fit"):
        toys.outcome(spec, engine, rounds=3)


def test_workers_serve_on_after_an_error(two_workers):
    spec = toys.spec(faulty.Buggy())
    with pytest.raises(ClientError):
        toys.outcome(spec, Processes(spec, two_workers), rounds=2)
    calm = toys.spec(FedAvg())
    assert toys.outcome(calm, Processes(calm, two_workers))[1] == toys.outcome(calm, Serial(calm))[1]


def poisoned(value: float) -> dict[int, Examples]:
    rows = toys.rows(11, 5)
    rows.x[3, 0, 0, 0] = value
    return {1: rows}


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("parallel", [False, True])
def test_a_client_whose_loss_is_not_finite_is_left_out_and_named(value, parallel, two_workers):
    spec = toys.spec(FedAvg(), data=poisoned(value))
    engine = Processes(spec, two_workers) if parallel else Serial(spec)
    state, rounds = toys.outcome(spec, engine)
    assert rounds[0].failures.keys() == {1}
    assert rounds[1].failures[1].startswith("round 2, client 1, step ")
    assert all(torch.isfinite(part).all() for part in state["model"].values())


def test_a_client_that_fails_keeps_what_it_had():
    spec = toys.spec(METHODS["standalone"], data=poisoned(math.nan))
    played = toys.play(spec, rounds=2)
    start = toys.client(spec).init(spec.seed)
    assert trees.equal(played.kept[-1][1]["model"], start)
    assert not trees.equal(played.kept[-1][0]["model"], start)


def test_a_run_in_which_every_client_fails_ends_and_says_why():
    rows = poisoned(math.nan)[1]
    spec = toys.spec(FedAvg(), data={k: rows for k in range(3)})
    played = toys.play(spec, rounds=5)
    assert len(played.result.rounds) == 1
    assert played.result.stopped.startswith("every client failed; the first: round 1, client 0, step ")
    assert trees.equal(played.states[0]["model"], toys.client(spec).init(spec.seed))


def test_a_failing_client_does_not_end_a_run_in_which_few_take_part():
    spec = toys.spec(FedAvg(), sizes=(9, 11, 7, 5), data=poisoned(math.nan))
    result = run(spec.method, Serial(spec), toys.server(spec), rounds=12, participation=0.25)
    alone = [record for record in result.rounds if record.participants == [1]]
    assert alone
    assert len(result.rounds) == 12
    assert result.stopped is None
    assert all(set(record.failures) == {1} for record in alone)


def test_a_last_step_that_leaves_the_finite_is_noticed():
    spec = toys.spec(FedAvg(), recipe=Recipe(batch_size=64, lr=1e300), sizes=(9, 7))
    result = toys.play(spec, rounds=1).result
    assert result.rounds[0].failures[0] == "round 1, client 0, step 1: a parameter is not finite after it"


def test_a_run_whose_clients_all_fail_later_keeps_the_rounds_before():
    spec = toys.spec(faulty.Exploding())
    result = run(spec.method, Serial(spec), toys.server(spec), rounds=5)
    assert len(result.rounds) == 3
    assert result.stopped.startswith("every client failed; the first: round 3, client 0, step 1")


@pytest.mark.parametrize("writer", ["serial", "processes"])
def test_what_clients_keep_can_be_saved_by_one_engine_and_loaded_by_another(writer, tmp_path, two_workers):
    spec = toys.spec(FedAKD(), net="cnn")
    make = {"serial": Serial, "processes": lambda s: Processes(s, two_workers)}
    first = make.pop(writer)(spec)
    run(spec.method, first, toys.server(spec), rounds=1, seed=0)
    first.save(tmp_path)
    expected = toys.play(spec, rounds=1).kept[0]
    assert all(trees.equal(read_kept(tmp_path)[k], expected[k]) for k in expected)
    second = next(iter(make.values()))(spec)
    second.load(tmp_path)
    (tmp_path / "again").mkdir()
    second.save(tmp_path / "again")
    assert all(trees.equal(read_kept(tmp_path / "again")[k], expected[k]) for k in expected)


def test_largest_clients_are_placed_first_on_the_least_loaded_worker():
    spec = toys.spec(FedAvg(), sizes=(34, 17, 11, 9, 7, 6))
    parts = balanced(spec.clients, 2)
    loads = [sum(len(rows.train) for rows in part) for part in parts]
    assert sorted(rows.id for part in parts for rows in part) == list(range(6))
    assert loads == [41, 43]


def test_a_message_for_many_is_written_once(two_workers):
    spec = toys.spec(FedAvg(), sizes=(5,) * 6)
    engine = Processes(spec, two_workers)
    model = toys.client(spec).init(0)
    method = FedAvg()
    refs = engine._post(Messages(method, {"model": model}, list(range(6))))
    assert len(set(refs.values())) == 1
    personal = engine._post({k: {"model": trees.scale(model, k)} for k in range(6)})
    assert len(set(personal.values())) == 6


def test_closing_ends_every_process_and_removes_the_spool():
    workers = Workers(2)
    processes, spool = list(workers.processes), Path(workers.spool)
    assert all(process.is_alive() for process in processes)
    workers.close()
    assert not any(process.is_alive() for process in processes)
    assert not spool.exists()
