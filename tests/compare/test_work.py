"""Whoever works on a comparison takes what is free, once, and nothing is lost by failures."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from small_plans import Clerk, bytes_of, small, worked

from fedakd.cli import app
from fedakd.compare import Store, jobs_of
from fedakd.compare.crew import Crew, Heard
from fedakd.compare.results import Recorded, options_of, read, record
from fedakd.compare.work import Hand
from fedakd.errors import PlanError
from fedakd.experiment import stored_cell, versions
from fedakd.plan import SINGULAR, Plan, fingerprint, resolve

FEW = {"methods": ["fedavg"], "partitions": ["pow"], "seeds": 1}


def test_what_is_stored_is_not_computed_again(tmp_path):
    assert len(worked(tmp_path, **FEW).named("finished")) == 2
    again = worked(tmp_path, **{**FEW, "methods": ["fedavg", "fedprox"]})
    assert again.named("took") == ["digits pow(1) fedprox seed 0"]
    assert len(again.named("found")) == 2


def test_a_comparison_leaves_the_audits_of_another_on_the_same_rows_alone(tmp_path):
    worked(tmp_path, **FEW)
    before = {path.name: path.read_bytes() for path in (tmp_path / "federations").glob("*.json")}
    worked(tmp_path, **FEW, evaluation="global")
    after = {path.name: path.read_bytes() for path in (tmp_path / "federations").glob("*.json")}
    assert before.items() < after.items()


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"pools": {}}'], ids=["lost", "cut", "list", "part"])
def test_an_audit_that_was_lost_or_damaged_is_made_again(tmp_path, damage):
    worked(tmp_path, **FEW)
    (path,) = (tmp_path / "federations").glob("*.json")
    before = path.read_bytes()
    path.write_text(damage) if damage else path.unlink()
    Hand(Store(tmp_path), Clerk()).restore_audits(jobs_of(small(**FEW)))
    assert path.read_bytes() == before


def test_both_audits_of_the_published_protocol_are_made_again(tmp_path):
    """Its leaking methods stand on rows of their own."""
    released = {**FEW, "methods": ["fedavg", "fedakd"], "preset": "released"}
    worked(tmp_path, **released)
    paths = sorted((tmp_path / "federations").glob("*.json"))
    before = [path.read_bytes() for path in paths]
    assert len(paths) == 2
    for path in paths:
        path.unlink()
        Hand(Store(tmp_path), Clerk()).restore_audits(jobs_of(small(**released)))
        assert [one.read_bytes() for one in paths] == before


def test_an_audit_of_rows_that_are_not_those_of_the_cells_is_not_made_up(tmp_path):
    worked(tmp_path, **FEW)
    for path in (tmp_path / "federations").iterdir():
        path.unlink()
    for cell in (tmp_path / "cells").iterdir():  # as if another processor had drawn other rows
        fields = {**json.loads((cell / "cell.json").read_text()), "data": "others"}
        done = json.loads((cell / "done.json").read_text())
        (cell / "cell.json").write_text(json.dumps(fields))
        (cell / "done.json").write_text(json.dumps({**done, "identity": fingerprint(fields)}))
    Hand(Store(tmp_path), Clerk()).restore_audits(jobs_of(small(**FEW)))
    assert not list((tmp_path / "federations").glob("*.json"))


def test_a_damaged_audit_is_named_to_those_who_read_it(tmp_path):
    asked = small(**FEW)
    worked(tmp_path, **FEW)
    record(tmp_path, Recorded(asked, Store(tmp_path), "", {}))
    (path,) = (tmp_path / "federations").glob("*.json")
    path.write_text('{"pools": {}}')
    with pytest.raises(PlanError, match=r"is no audit: it lacks clients, shared, leaky, warnings; give the"):
        read(tmp_path)


def test_a_cell_that_fails_is_told_and_the_others_go_on(tmp_path):
    """A shift no federation can have fails its cells; CFFL cannot begin where its threshold expels all."""
    clerk = worked(tmp_path, partitions=["ics(500)", "pow"], methods=["fedavg"], seeds=1)
    assert sorted(clerk.named("failed")) == [f"digits ics(500) {m} seed 0" for m in ("fedavg", "standalone")]
    assert "500" in clerk.reasons["digits ics(500) fedavg seed 0"]
    assert len(clerk.named("finished")) == 2


def test_a_method_that_cannot_begin_does_not_stop_the_others_of_its_federation(tmp_path):
    methods = ["cffl(expel=0.9, expel_by=constant)", "fedavg"]
    clerk = worked(tmp_path, methods=methods, partitions=["pow"], seeds=1)
    assert [label.split()[2] for label in clerk.named("failed")] == ["cffl(expel=0.9,"]
    assert len(clerk.named("finished")) == 2


def test_what_somebody_else_computes_is_waited_for_and_taken_over_if_they_give_up(tmp_path):
    store, clerk = Store(tmp_path), Clerk()
    jobs = jobs_of(small(**FEW))
    other = store.claim(jobs[0].name)
    other.__enter__()
    pauses = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            other.__exit__(None, None, None)

    Hand(store, clerk, pause=pause).work(jobs)
    assert clerk.named("took") == [jobs[1].label, jobs[0].label]
    assert clerk.named("waiting") == ["1", "1"]


def test_what_others_finished_is_told_at_once_and_what_a_member_took_by_that_member():
    jobs, clerk = jobs_of(small(**FEW)), Clerk()
    mine, theirs = (job.name for job in jobs)
    heard = Heard({job.name: job for job in jobs}, clerk)
    heard.event("took", [mine])
    for _ in range(2):  # two members come across both
        heard.event("found", [theirs])
        heard.event("found", [mine])
    assert clerk.named("found") == [jobs[1].label]
    heard.event("finished", [mine, 1.0])
    heard.close()
    assert clerk.named("finished") == [jobs[0].label]
    assert clerk.named("found") == [jobs[1].label]


def test_what_a_member_that_died_had_finished_is_told_in_the_end():
    jobs, clerk = jobs_of(small(**FEW)), Clerk()
    heard = Heard({job.name: job for job in jobs}, clerk)
    heard.event("took", [jobs[0].name])
    heard.event("found", [jobs[0].name])
    heard.close()
    assert clerk.named("found") == [jobs[0].label]


def test_equal_time_ends_the_others_when_the_time_of_one_is_used_up(tmp_path):
    changes = {"methods": ["fedavg", "fedakd"], "partitions": ["pow"], "seeds": 1, "equal_time": "fedakd"}
    worked(tmp_path, **changes, rounds=5)
    cells = cells_of(tmp_path, **changes, rounds=5)
    given = sum(r.seconds for r in cells["fedakd"].rounds)
    used = [r.seconds for r in cells["fedavg"].rounds]
    assert len(cells["fedakd"].rounds) == len(cells["standalone"].rounds) == 5
    assert sum(used[:-1]) < given
    assert given <= sum(used) or len(used) == 100, "or it came to the most rounds there may be"
    assert cells["fedavg"].rounds[-1].scores


def test_equal_gradients_give_everybody_the_sample_gradients_of_one(tmp_path):
    changes = {"methods": ["fedavg", "fedakd"], "partitions": ["pow"], "seeds": 1}
    changes |= {"equal_gradients": "fedakd", "rounds": 4}
    worked(tmp_path, **changes)
    cells = cells_of(tmp_path, **changes)
    given = sum(r.gradients for r in cells["fedakd"].rounds)
    assert len(cells["fedakd"].rounds) == 4
    for method in ("standalone", "fedavg"):
        used = [r.gradients for r in cells[method].rounds]
        assert len(used) > 4, "one pass per round, where FedAKD makes up to two"
        assert sum(used[:-1]) < given <= sum(used)


def cells_of(path: Path, **changes: object):
    found = {job.method: (job, Store(path).done(job.name)) for job in jobs_of(small(**changes))}
    return {name: stored_cell(own, name, job.seed) for name, (job, own) in found.items()}


def test_if_the_one_that_sets_the_time_fails_so_do_those_that_get_it(tmp_path, monkeypatch):
    monkeypatch.setattr("fedakd.methods.fedakd.FedAKD.client_update", lambda *_: 1 / 0)
    changes = {"methods": ["fedavg", "fedakd"], "partitions": ["pow"], "seeds": 1, "equal_time": "fedakd"}
    clerk = worked(tmp_path, **changes)
    assert "which failed" in clerk.reasons["digits pow(1) fedavg seed 0"]


def test_a_mistake_in_a_method_or_a_full_disk_fails_its_cell_alone(tmp_path, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fedakd.methods.fedprox.FedProx.server_update", full)
    clerk = worked(tmp_path, methods=["fedprox", "fedavg"], partitions=["pow"], seeds=1)
    why = clerk.reasons["digits pow(1) fedprox seed 0"]
    assert why.startswith("OSError: [Errno 28] No space left on device (test_work.py, line ")
    assert len(clerk.named("finished")) == 2


@pytest.mark.slow
def test_cells_and_clients_side_by_side_write_the_same_bytes(tmp_path):
    for parallel in ("cells", "clients"):
        clerk = Clerk()
        Crew(Store(tmp_path / parallel), clerk, 2, parallel).work(jobs_of(small()))
        assert len(clerk.named("finished")) == 12
    one, other = (bytes_of(tmp_path / parallel) for parallel in ("cells", "clients"))
    assert one.keys() == other.keys()
    assert one == other
    worked(tmp_path / "alone")
    assert bytes_of(tmp_path / "alone") == one


@pytest.mark.slow
def test_a_member_that_dies_is_told_of_and_the_others_take_over(tmp_path, monkeypatch):
    monkeypatch.setattr("fedakd.compare.crew.serve", dying)
    clerk = Clerk()
    Crew(Store(tmp_path), clerk, 2, "cells").work(jobs_of(small(**FEW)))
    assert len(clerk.named("finished")) == 2
    assert any("died" in notice for notice in clerk.watching.notices)


def dying(pipe, jobs, path, data_dir):
    """The first to come dies; the second does the work."""
    import os

    from fedakd.compare import crew

    try:
        (path / "first").touch(exist_ok=False)
    except FileExistsError:
        crew.serve(pipe, jobs, path, data_dir)
    else:
        os._exit(3)


def test_a_comparison_is_read_as_far_as_it_has_come(tmp_path):
    asked = small(methods=["fedavg"], partitions=["pow"])
    store = Store(tmp_path / "store")
    record(tmp_path / "out", Recorded(asked, store, "fedakd compare mine.toml", {"fedakd": "0"}))
    assert read(tmp_path / "out").settings[0].rows == []
    worked(store.path, [job for job in jobs_of(asked) if job.method == "fedavg" or job.seed == 0])
    setting = read(tmp_path / "out").settings[0]
    assert setting.missing == [("standalone", 1)]
    scores = setting.scores("average")
    assert {method: list(own) for method, own in scores.items()} == {"standalone": [0], "fedavg": [0]}
    assert list(setting.audits) == [0, 1]


def test_where_seconds_decide_all_cells_are_timed_alike(tmp_path):
    """One core each, whether many cells are left or one."""
    crew = Crew(Store(tmp_path), Clerk(), 2)
    timed = jobs_of(small(methods=["fedavg", "fedakd"], equal_time="fedakd"))
    plain = jobs_of(small())
    assert [crew.by_cells(jobs, 2) for jobs in (timed, timed[:1], plain, plain[:1])] == [
        True,
        True,
        True,
        False,
    ]
    with pytest.raises(PlanError, match="timed on one core each; leave out --parallel"):
        replace(crew, parallel="clients").by_cells(timed, 2)


def test_seconds_that_are_lost_are_told_and_not_taken_for_none(tmp_path):
    changes = {"methods": ["fedavg", "fedakd"], "partitions": ["pow"], "seeds": 1, "equal_time": "fedakd"}
    jobs = {job.method: job for job in jobs_of(small(**changes))}
    worked(tmp_path, [jobs["standalone"], jobs["fedakd"]])
    (tmp_path / "cells" / jobs["fedakd"].name / "timings.jsonl").unlink()
    clerk = worked(tmp_path, list(jobs.values()))
    assert "the seconds of fedakd are not in" in clerk.reasons[jobs["fedavg"].label]


def test_another_version_of_results_draws_its_own_rows(tmp_path, monkeypatch):
    worked(tmp_path, **FEW)
    monkeypatch.setattr("fedakd.plan.RESULTS", 10**6)
    worked(tmp_path, **FEW)
    assert len([*tmp_path.glob("federations/*.judged.safetensors")]) == 2
    assert len([*tmp_path.glob("federations/*.safetensors")]) == 4


def test_cells_say_what_they_were_made_with(tmp_path):
    asked = small(**FEW)
    worked(tmp_path, jobs_of(asked))
    told = Recorded(asked, Store(tmp_path), "", {"fedakd": "of the last command"})
    record(tmp_path, told)
    assert read(tmp_path).settings[0].versions == versions()


@pytest.mark.parametrize(
    "said",
    [
        {}, {"methods": ("standalone",)}, {"methods": ("all",)}, {"equal_time": "standalone"},
        {"preset": "paper"}, {"preset": "released", "partition": "pow"},
        {"methods": ("cffl(preset=paper)",), "lr": 0.5, "seeds": (3, 1)},
        {"max_seconds": 9.0, "judge_every": 3, "scale": 0.5, "evaluation": "global", "optimizer": "sgd"},
    ],
)  # fmt: skip
def test_the_options_of_a_plan_give_it_back(said):
    plan = resolve(**said)
    command = typer.main.get_command(app).commands["run"]
    params = command.make_context("run", options_of(plan)).params
    named = {field: params.get(SINGULAR.get(field, field)) for field in Plan.model_fields}
    assert (
        resolve(**{key: tuple(own) if isinstance(own, list) else own for key, own in named.items() if own})
        == plan
    )
