"""The suite for methods: those of this package pass it, and every law has been seen to fail."""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
import types
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing import active_children
from unittest import SkipTest

import pytest
import torch

import faulty_methods as faulty
from fedakd.engine.processes import Workers
from fedakd.errors import FedakdError
from fedakd.method import Method
from fedakd.methods.fedakd import FedAKD
from fedakd.methods.fedavg import FedAvg
from fedakd.methods.standalone import Standalone
from fedakd.testing import CHECKS, ConformanceError, check_method
from presets import METHODS, PRESETS

BY_NAME = {check.name: check for check in CHECKS}
FAULTS: list[tuple[Method, set[str]]] = [  # each with all the laws it breaks: one, where that is possible
    (faulty.Thawed(), {"frozen_dataclass"}),
    (faulty.Lenient(), {"equal_by_fields"}),
    (faulty.Unpicklable(), {"picklable"}),
    (faulty.Crashing(), {"runs"}),
    (faulty.BufferShy(), {"runs_with_batch_norm"}),
    (faulty.Quorum(), {"bears_partial_participation"}),
    (faulty.Faithful(), {"bears_partial_participation", "bears_a_failed_client"}),
    (faulty.Punctual(), {"bears_partial_participation", "bears_a_late_client"}),
    (faulty.Spread(), {"bears_one_row"}),
    (faulty.Contrastive(), {"bears_one_class", "bears_no_contribution"}),
    (faulty.Normalised(), {"bears_no_contribution"}),
    (faulty.Proportional(), {"bears_no_contribution"}),
    (faulty.Others(), {"bears_any_number_of_clients"}),
    (faulty.Present(), {"bears_partial_participation", "bears_any_number_of_clients"}),
    (faulty.Decorated(), {"views_are_models"}),
    (faulty.Growing(), {"views_stay"}),
    (faulty.Unnormed(), {"statistics_run"}),
    (faulty.Miscounting(), {"contributions_are_one_each"}),
    (faulty.Restless(), {"empty_round_changes_nothing"}),
    (faulty.Hoarding(), {"state_does_not_grow"}),
    (faulty.InPlace(), {"changes_nothing_given"}),
    (faulty.Noisy(source="torch"), {"leaves_the_process_alone"}),
    (faulty.Keeping(what="int"), {"survives_the_wire"}),
    (faulty.Clock(), {"same_twice"}),
    (faulty.Local(), {"same_in_workers"}),
    (faulty.Remembering(), {"resumes"}),
    (faulty.Seedless(), {"depends_on_the_seed"}),
    (faulty.Showing(), {"rows_stay"}),
    (faulty.Peeping(), {"never_sees_test_rows"}),
    (faulty.PeepingAndKeeping(), {"rows_stay", "never_sees_test_rows"}),
    (faulty.Undeclared(), {"validation_rows_are_declared"}),
    (faulty.Telling(), {"private_stays"}),
]
VARIANTS: list[tuple[Method, str]] = [  # other ways to break one of them
    (faulty.Bare(), "frozen_dataclass"),
    (faulty.Undecorated(), "frozen_dataclass"),
    (faulty.Forgetful(), "picklable"),
    (faulty.WrongKind(), "runs"),
    (faulty.Exploding(), "runs"),
    (faulty.Viewless(), "views_are_models"),
    (faulty.Untrained(), "statistics_run"),
    (faulty.Infinite(), "contributions_are_one_each"),
    (faulty.Chronicling(), "state_does_not_grow"),
    (faulty.Popping(), "changes_nothing_given"),
    (faulty.Augmenting(), "changes_nothing_given"),
    (faulty.Freezing(), "changes_nothing_given"),
    (faulty.Annealing(), "changes_nothing_given"),
    (faulty.Noisy(source="numpy"), "leaves_the_process_alone"),
    (faulty.Noisy(source="random"), "leaves_the_process_alone"),
    (faulty.Keeping(what="list"), "survives_the_wire"),
    (faulty.Keeping(what="name"), "survives_the_wire"),
    (faulty.Keeping(what="grad"), "survives_the_wire"),
    (faulty.Counting(), "same_twice"),
    (faulty.Ordered(), "same_in_workers"),
    (faulty.RememberingClient(), "resumes"),
    (faulty.Publishing(), "rows_stay"),
    (faulty.TellingAll(), "private_stays"),
    (faulty.TellingBias(), "private_stays"),
    (faulty.Misspelt(), "private_stays"),
]


@pytest.fixture(scope="module")
def three_workers() -> Iterator[Workers]:
    workers = Workers(3)
    yield workers
    workers.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_methods_of_this_package_obey_all_laws(name, three_workers):
    assert check_method(METHODS[name], workers=three_workers) == list(BY_NAME)


@pytest.mark.slow
@pytest.mark.parametrize("method", [Standalone(restart=True), Standalone(sgd=True)], ids=repr)
def test_other_references_do_too(method, three_workers):
    assert check_method(method, workers=three_workers) == list(BY_NAME)


@pytest.mark.slow
@pytest.mark.parametrize("name", PRESETS)
def test_their_presets_do_too(name, three_workers):
    assert check_method(PRESETS[name], workers=three_workers) == list(BY_NAME)


def test_a_state_that_grows_once_does_not_grow():
    BY_NAME["state_does_not_grow"](faulty.Late(), workers=False)
    with pytest.raises(
        ConformanceError, match=r"state_does_not_grow.*\n.*round 6.*no more values than after round 2"
    ):
        BY_NAME["state_does_not_grow"](faulty.Hoarding(), workers=False)


@pytest.mark.parametrize("check", CHECKS)
def test_a_users_method_is_checked_law_by_law(check, three_workers):
    check(faulty.Mine(), workers=three_workers)


@pytest.mark.slow
@pytest.mark.parametrize(("method", "laws"), FAULTS, ids=[type(method).__name__ for method, _ in FAULTS])
def test_a_faulty_method_is_told_which_laws_it_breaks(method, laws, three_workers):
    with pytest.raises(ConformanceError) as caught:
        check_method(method, workers=three_workers)
    assert caught.value.broken.keys() == laws, caught.value
    assert all(f"\n{law}: {BY_NAME[law].law}" in str(caught.value) for law in laws)
    assert f"{type(method).__name__} breaks {len(laws)} of {len(CHECKS)} laws" in str(caught.value)


@pytest.mark.parametrize(("method", "law"), VARIANTS, ids=[type(method).__name__ for method, _ in VARIANTS])
def test_a_law_can_be_broken_in_other_ways(method, law, three_workers):
    with pytest.raises(ConformanceError, match=f"^{type(method).__name__} breaks {law}: "):
        BY_NAME[law](method, workers=three_workers)


def test_every_law_has_been_seen_to_fail():
    assert set().union(*(laws for _, laws in FAULTS)) | {"importable"} == set(BY_NAME)


@pytest.mark.slow
@pytest.mark.parametrize("method", [faulty.Remembering(), faulty.RememberingClient()])
def test_what_is_kept_in_a_global_is_noticed_without_workers_too(method):
    with pytest.raises(ConformanceError, match="resumed after round 2, state after round 3, model/"):
        BY_NAME["resumes"](method, workers=False)


def test_an_error_names_hook_client_round_and_leaf_and_what_was_expected():
    with pytest.raises(ConformanceError) as caught:
        BY_NAME["changes_nothing_given"](faulty.Augmenting(), workers=False)
    place = r"four clients \(plain\), client_update, client 0, round 1, client/rows/x"
    assert re.search(
        rf"\n  {place}: expected 0\.\d+, got 0\.\d+ \(entry 0; 144 of 144 differ\)", str(caught.value)
    )
    assert re.search(r"and in (\d+|many) more places", str(caught.value))
    assert isinstance(caught.value, AssertionError)
    assert isinstance(caught.value, FedakdError)
    assert (
        pickle.loads(pickle.dumps(caught.value)).broken == caught.value.broken
    )  # as parallel test runners do


def test_the_cause_of_a_crash_is_kept():
    with pytest.raises(
        ConformanceError, match="client 0, round 1: expected no error, got KeyError: 'mo"
    ) as caught:
        BY_NAME["runs"](faulty.Crashing(), workers=False)
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_law_that_rests_on_a_broken_one_is_skipped():
    with pytest.raises(SkipTest, match="it rests on runs"):
        BY_NAME["bears_one_row"](faulty.Crashing(), workers=False)
    with pytest.raises(SkipTest, match="worker processes"):
        BY_NAME["same_in_workers"](faulty.Mine(), workers=False)


@pytest.mark.slow
def test_laws_about_workers_and_those_skipped_are_not_said_to_hold():
    held = check_method(faulty.Quorum(), workers=False, skip=["bears_partial_participation"])
    left_out = {"bears_partial_participation", "importable", "same_in_workers"}
    assert held == [name for name in BY_NAME if name not in left_out]


def test_laws_that_rest_on_a_skipped_one_are_judged():
    with pytest.raises(ConformanceError) as caught:
        check_method(faulty.Crashing(), workers=False, skip=["runs"])
    assert "runs" not in caught.value.broken
    assert "runs_with_batch_norm" in caught.value.broken


def test_mistakes_in_the_call_are_explained():
    with pytest.raises(FedakdError, match="unknown law 'bears_one_rwo'; did you mean 'bears_one_row'"):
        check_method(faulty.Mine(), workers=False, skip=["bears_one_rwo"])
    with pytest.raises(FedakdError, match=r"expected a method such as FedAvg\(\), got the class itself"):
        check_method(FedAvg, workers=False)
    with pytest.raises(FedakdError, match="expected an instance of a subclass of"):
        check_method("fedavg", workers=False)


@pytest.mark.slow
def test_a_check_leaves_the_process_as_it_was(three_workers):
    torch.set_num_threads(2)
    before, children = torch.get_rng_state(), set(active_children())
    BY_NAME["resumes"](faulty.Mine(), workers=three_workers)
    assert torch.get_num_threads() == 2
    assert torch.equal(torch.get_rng_state(), before)
    assert set(active_children()) == children
    assert len(three_workers) == 3


def test_a_view_may_be_untrained_in_the_first_round():
    BY_NAME["statistics_run"](FedAKD(order="released"), workers=False)


@pytest.mark.slow
def test_a_method_that_needs_validation_rows_must_ask_for_them(monkeypatch):
    law = BY_NAME["validation_rows_are_declared"]
    law(faulty.Tolerant(), workers=False)
    monkeypatch.setattr("fedakd.rounds.check", lambda method, server: None)
    with pytest.raises(ConformanceError, match="expected a FedakdError that asks for validation rows"):
        law(replace(faulty.Tolerant(), weigh_by="uniform"), workers=False)


def test_a_class_of_a_module_that_only_this_process_knows_cannot_be_imported(three_workers, monkeypatch):
    notebook = types.ModuleType("notebook_of_a_user")
    monkeypatch.setitem(sys.modules, "notebook_of_a_user", notebook)
    exec(f"from {faulty.__name__} import *\n@dataclass(frozen=True)\nclass Own(Mine): pass", vars(notebook))
    with pytest.raises(ConformanceError, match="No module named") as caught:
        BY_NAME["importable"](notebook.Own(), workers=three_workers)
    assert "Own of notebook_of_a_user: expected a class that workers can import" in str(caught.value)
    assert "define it in a module that can be imported" in str(caught.value)


NOTEBOOK = """
from dataclasses import dataclass
from fedakd.methods.fedakd import FedAKD
from fedakd.methods.fedavg import FedAvg
from fedakd.testing import check_method

@dataclass(frozen=True)
class Own(FedAvg):
    pass

print(check_method(Own()))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("script", "hint"), [(False, "define it in a module"), (True, "if __name__ ==")])
def test_a_class_of_a_notebook_or_an_unguarded_script_is_told_what_to_do(script, hint, tmp_path):
    (tmp_path / "script.py").write_text(NOTEBOOK)
    command = [sys.executable, *(["script.py"] if script else ["-c", NOTEBOOK])]
    (spools := tmp_path / "tmp").mkdir()
    own = {"env": {**os.environ, "TMPDIR": str(spools)}, "cwd": tmp_path}
    done = subprocess.run(command, **own, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 1
    assert list(spools.iterdir()) == []
    assert "Own breaks 1 of 30 laws\n\nimportable: worker processes can import" in done.stderr
    assert hint in done.stderr
    assert "not checked: same_in_workers (it rests on importable), resumes" in done.stderr


@pytest.mark.slow
def test_a_guarded_script_is_checked_as_a_whole(tmp_path):
    guarded = NOTEBOOK.replace("print(", "if __name__ == '__main__':\n    print(")
    (tmp_path / "script.py").write_text(guarded)
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.stdout.strip() == str(list(BY_NAME)), done.stderr
    assert done.stderr == ""
