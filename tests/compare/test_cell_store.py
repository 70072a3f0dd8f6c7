"""A store hands each cell to one process at a time, and knows what is done from what is not."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from small_plans import bytes_of, small, worked

from fedakd.compare import Store, jobs_of

HOLD = """
import sys, time
from pathlib import Path
from fedakd.compare.store import Store
with Store(Path(sys.argv[1])).claim("cell") as mine:
    print(mine, flush=True)
    time.sleep(60)
"""


def test_a_claim_is_for_one_at_a_time(tmp_path):
    store = Store(tmp_path)
    with store.claim("a") as first, store.claim("a") as second, store.claim("b") as other:
        assert (first, second, other) == (True, False, True)
    with store.claim("a") as again:
        assert again


def test_a_claim_ends_with_its_process_even_if_that_is_killed(tmp_path):
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "True\n"
        with Store(tmp_path).claim("cell") as mine:
            assert not mine
    finally:
        holder.kill()
        holder.wait()
        if holder.stdout:
            holder.stdout.close()
    with Store(tmp_path).claim("cell") as mine:
        assert mine


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory):
    path = tmp_path_factory.mktemp("finished")
    worked(path, methods=["fedavg"], partitions=["pow"], seeds=1)
    return path


def test_what_is_done_is_known_without_its_data(finished):
    store = Store(finished)
    names = [job.name for job in jobs_of(small(methods=["fedavg"], partitions=["pow"], seeds=1))]
    assert all(store.done(name) for name in names)
    assert store.done("nonsense") is None
    assert not [*finished.glob("cells/*/checkpoints/*")], "nothing goes on from a cell that is done"


@pytest.mark.parametrize("damage", ["rounds.jsonl", "cell.json", "done.json"])
def test_a_cell_with_a_damaged_file_is_computed_again_to_the_same_bytes(damage, tmp_path):
    changes = {"methods": ["fedavg"], "partitions": ["pow"], "seeds": 1}
    worked(tmp_path, **changes)
    before = bytes_of(tmp_path)
    name = next(job.name for job in jobs_of(small(**changes)) if job.method == "fedavg")
    path = tmp_path / "cells" / name / damage
    path.write_text(path.read_text().replace("0", "1", 1))
    assert Store(tmp_path).done(name) is None
    clerk = worked(tmp_path, **changes)
    assert clerk.named("took") == ["digits pow(1) fedavg seed 0"]
    after = bytes_of(tmp_path)
    assert {n: b for n, b in after.items() if "rounds" in n} == {
        n: b for n, b in before.items() if "rounds" in n
    }


def test_a_cell_in_the_folder_of_another_is_not_that_cell(finished, tmp_path):
    done = next(finished.glob("cells/*"))
    other = tmp_path / "cells" / "0123456789abcdef"
    other.mkdir(parents=True)
    for file in done.iterdir():
        if file.is_file():
            (other / file.name).write_bytes(file.read_bytes())
    assert Store(tmp_path).done("0123456789abcdef") is None


def test_folders_for_messages_are_removed_when_their_process_is_gone(tmp_path):
    store = Store(tmp_path)
    left = tmp_path / "spools" / "left"
    left.mkdir(parents=True)
    with store.spool() as spool:
        spool.mkdir(parents=True)
        assert not left.exists()
        with store.spool():
            assert spool.exists(), "the folder of a process that lives is left alone"
    assert not spool.exists()


def test_what_a_cell_records_says_what_made_it(finished):
    cell = json.loads(next(finished.glob("cells/*/cell.json")).read_text())
    assert {"dataset", "partition", "scale", "method", "seed", "rounds", "results", "data"} <= set(cell)
