"""The command line as a person meets it: real processes, real signals."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from test_runfolder import numbers

FEDAKD = [sys.executable, "-c", "from fedakd.cli import main; main()"]
SMALL = ["--clients", "3", "--rounds", "3", "--fraction", "0.3", "--model", "linear", "--method", "fedakd"]


def fedakd(
    *words: str, check: bool = True, cwd: Path | None = None, columns: int = 100
) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": str(columns)}
    done = subprocess.run(
        [*FEDAKD, *words], capture_output=True, text=True, cwd=cwd, env=environment, check=False
    )
    assert not check or done.returncode == 0, done.stderr
    return done


def started(*words: str, group: bool = False) -> subprocess.Popen[str]:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(
        [*FEDAKD, *words], **pipes, text=True, start_new_session=group, preexec_fn=mind_interrupts
    )


def mind_interrupts() -> None:
    """A shell has what it runs in the background ignore Ctrl-C, and children inherit that."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def wait_for_rounds(path: Path, count: int, process: subprocess.Popen[str]) -> None:
    """Until that many rounds of all cells are on disk, or the process has ended."""
    while process.poll() is None:
        written = sum(file.read_text().count("\n") for file in path.glob("cells/*/rounds.jsonl"))
        if written >= count:
            return
        time.sleep(0.005)


def test_help_teaches_and_loads_nothing_heavy():
    heavy = ("torch", "numpy", "scipy", "sklearn", "pydantic", "matplotlib")
    script = f"import sys; from fedakd.cli import app; print([m for m in {heavy} if m in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert loaded.strip() == "[]"
    text = fedakd("--help").stdout
    assert all(command in text for command in ("demo", "run", "methods", "partitions", "datasets", "data"))
    options = fedakd("run", "--help").stdout
    assert "--resume" in options
    assert options.count("[default:") >= 12
    assert "digits, fashion-mnist or cifar10" in options
    assert fedakd("--version").stdout.startswith("fedakd ")


THIRTEEN = {
    "standalone", "fedavg", "fedprox", "scaffold", "cffl", "cgsv", "fedave", "fedsac", "pfedck", "feddc",
    "fedas", "fedmpr", "fedakd",
}  # fmt: skip


def test_methods_say_where_they_come_from_and_how_sure_we_are():
    listed = {one["name"]: one for one in json.loads(fedakd("methods", "--json").stdout)}
    assert all(one["citation"] and one["confidence"] for one in listed.values())
    rebuilt = {name for name, one in listed.items() if one["confidence"] == "reconstructed"}
    assert rebuilt == {"fedsac", "pfedck", "fedmpr"}


def test_one_method_is_shown_in_full():
    shown = fedakd("methods", "CFFL").stdout
    assert "Collaborative Fairness in Federated Learning" in shown
    assert "Deviations:" in shown
    assert re.search(r"upload +0.1 +0.5 +0.5", shown)
    done = fedakd("methods", "cfl", check=False)
    assert done.returncode == 2
    assert "unknown method 'cfl'; did you mean 'cffl'" in done.stderr


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("methods", THIRTEEN | {"converged", "fedakd-all-data", "fedakd-single-dist", "fedakd-correct-agg"}),
        ("partitions", {"iid", "pow", "bcs", "ics", "cla", "dir", "group"}),
        ("datasets", {"digits", "fashion-mnist", "cifar10"}),
    ],
)
def test_lists_have_one_entry_each(command, names):
    listed = json.loads(fedakd(command, "--json").stdout)
    assert {entry["name"] for entry in listed} == names
    assert all(entry["summary"] for entry in listed)
    shown = fedakd(command).stdout
    assert all(name in shown for name in names)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--method", "fedavk"], "unknown method 'fedavk'; did you mean 'fedavg'"),
        (["--dataset", "digit"], "unknown dataset 'digit'; did you mean 'digits'?"),
        (["--partition", "isc(5)"], "unknown partition 'isc'; did you mean 'ics'?"),
        (["--preset", "papier"], "unknown preset 'papier'; did you mean 'paper'?"),
        (["--model", "cnn9"], "unknown model 'cnn9'"),
        (["--clients", "5000"], "5000"),
        (["--rounds", "0"], "rounds: Input should be greater than or equal to 1, got 0"),
    ],
)
def test_bad_input_is_an_error_without_traceback(words, message, tmp_path):
    done = fedakd("run", "--workers", "0", *words, check=False, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("error: ")
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.glob("runs/*"))


def test_a_run_writes_its_folder_and_prints_table_and_verdicts(tmp_path):
    done = fedakd("run", *SMALL, "--seed", "0", "--seed", "1", "--out", str(tmp_path / "run"))
    found = {path.name for path in (tmp_path / "run").iterdir()}
    assert found >= {
        "plan.json",
        "audit-seed0.json",
        "audit-seed1.json",
        "cells",
        "summary.json",
        "summary.md",
    }
    assert "0 rows shared between pools" in done.stderr
    assert "round 3/3" in done.stderr
    assert "FedAKD (personal)" in done.stdout
    assert "FedAKD (global)" in done.stdout
    assert "Standalone: the reference" in done.stdout
    cells = sorted(path.name for path in (tmp_path / "run/cells").iterdir())
    assert cells == ["fedakd-seed0", "fedakd-seed1", "standalone-seed0", "standalone-seed1"]


def test_json_is_all_that_goes_to_standard_output(tmp_path):
    done = fedakd("run", *SMALL, "--json", "--quiet", "--workers", "0", "--out", str(tmp_path / "run"))
    assert done.stderr == ""
    told = json.loads(done.stdout)
    assert told == json.loads((tmp_path / "run/summary.json").read_text())
    assert [row["label"] for row in told["rows"]] == ["Standalone", "FedAKD (personal)", "FedAKD (global)"]


def test_an_existing_run_is_refused_and_stays(tmp_path):
    fedakd("run", *SMALL, "--workers", "0", "--out", str(tmp_path / "run"))
    before = numbers(tmp_path / "run")
    done = fedakd("run", *SMALL, "--out", str(tmp_path / "run"), check=False)
    assert done.returncode == 2
    assert "--resume" in done.stderr
    assert numbers(tmp_path / "run") == before


def test_resume_takes_no_other_plan(tmp_path):
    done = fedakd("run", "--resume", str(tmp_path), "--rounds", "5", "--preset", "paper", check=False)
    assert done.returncode == 2
    assert "leave out --preset" in done.stderr
    assert "leave out --preset, --rounds" not in done.stderr


def test_every_field_of_a_plan_can_be_said(tmp_path):
    said = {
        "dataset": "digits",
        "partition": "pow(1.5)",
        "method": "fedavg",
        "seed": "3",
        "clients": "2",
        "rounds": "1",
        "preset": "paper",
        "fraction": "0.4",
        "model": "linear",
        "epochs": "2",
        "batch_size": "9",
        "optimizer": "adam",
        "lr": "0.05",
        "weight_decay": "0.25",
        "participation": "0.5",
        "evaluation": "global",
        "scale": "0.5",
        "judge_every": "3",
        "equal_time": "fedavg",
        "reference": "equal-budget",
        "method_rounds": "fedavg=1",
        "max_seconds": "900.0",
        "max_gradients": "90000.0",
    }
    words = [word for name, value in said.items() for word in (f"--{name.replace('_', '-')}", value)]
    said |= {"leak": "True", "method_rounds": "{'fedavg': 1}", "equal_gradients": "None"}
    fedakd("run", *words, "--leak", "--workers", "0", "--out", str(tmp_path / "run"))
    plan = json.loads((tmp_path / "run/plan.json").read_text())["plan"]
    assert plan.pop("methods") == ["standalone", "fedavg"]
    assert plan.pop("seeds") == [3]
    assert {name: str(value) for name, value in plan.items()} == {
        name: value for name, value in said.items() if name not in ("method", "seed")
    }


def test_the_published_protocol_can_be_had_without_its_leak(tmp_path):
    words = [
        "--preset",
        "released",
        "--no-leak",
        "--dataset",
        "digits",
        "--rounds",
        "1",
        "--method",
        "fedakd",
    ]
    fedakd("run", *words, "--model", "linear", "--workers", "0", "--out", str(tmp_path / "run"))
    assert json.loads((tmp_path / "run/plan.json").read_text())["plan"]["leak"] is False
    assert "without their test rows train fedakd" in (tmp_path / "run/summary.md").read_text()


@pytest.mark.parametrize("option", ["--out", "--resume"])
def test_a_file_where_a_folder_should_be_is_an_error_without_traceback(option, tmp_path):
    (tmp_path / "file").write_text("mine")
    for path in ("file", "file/below"):
        done = fedakd("run", option, str(tmp_path / path), check=False)
        assert done.returncode == 2
        assert done.stderr.startswith("error: ")
        assert "Traceback" not in done.stderr
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.slow
def test_ctrl_c_while_workers_start_shows_no_traceback(tmp_path):
    """The terminal sends it to the whole group; workers that are still importing must not answer."""
    for delay in (0.2, 0.8, 1.6):
        path = tmp_path / f"run {delay}"
        words = ["run", *SMALL, "--rounds", "500", "--workers", "2", "--out", str(path)]
        process = started(*words, group=True)
        while not list(path.glob("spool-*")) and process.poll() is None:
            time.sleep(0.01)
        time.sleep(delay)
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=60)
        assert process.returncode == 130
        assert "Traceback" not in said
        assert f"--resume '{path}'" in said


KILLED = """
import os, signal
from fedakd import experiment
from fedakd.cli import main
from fedakd.runfolder import CellFolder

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

if {stage!r} == "after":
    make = experiment.keeper
    experiment.keeper = lambda *given: lambda *round, keep=make(*given): die(keep(*round))
else:
    whole = CellFolder.checkpoint

    def checkpoint(*given):
        CellFolder.prune = die  # the new checkpoint is there, the old ones are not removed yet
        whole(*given)

    CellFolder.checkpoint = checkpoint
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["after", "before pruning"])
def test_resume_after_kill_9_at_every_round_is_bit_identical(stage, tmp_path):
    """One run that is killed with each round it completes, and resumed each time, against one left alone."""
    words = [*SMALL, "--workers", "1"]
    fedakd("run", *words, "--out", str(tmp_path / "whole"))
    path = tmp_path / "killed"
    command = ["run", *words, "--out", str(path)]
    for _ in range(6):  # three rounds of Standalone, three of FedAKD
        killing = [sys.executable, "-c", KILLED.format(stage=stage), *command]
        assert subprocess.run(killing, capture_output=True, check=False).returncode == -signal.SIGKILL
        command = ["run", "--resume", str(path), "--workers", "1"]
    fedakd(*command)
    assert numbers(path) == numbers(tmp_path / "whole")
    for name in ("summary.json", "summary.md"):
        assert (path / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert not list(path.glob("spool-*"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_cleanly_and_says_how_to_resume(number, tmp_path):
    path = tmp_path / "run"
    process = started("run", *SMALL, "--rounds", "500", "--workers", "1", "--out", str(path))
    wait_for_rounds(path, 2, process)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"continue with: fedakd run --resume {path}" in said
    assert "Traceback" not in said
    assert not list(path.glob("spool-*"))


def test_a_killed_parent_leaves_no_worker_behind(tmp_path):
    path = tmp_path / "run"
    process = started("run", *SMALL, "--rounds", "500", "--workers", "2", "--out", str(path))
    wait_for_rounds(path, 1, process)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(children) >= 2
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 20
    while any(alive(int(child)) for child in children) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(alive(int(child)) for child in children)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("others", [(), ("cffl(preset=paper, upload=0.2)",)])
@pytest.mark.parametrize("seeds", [("0",), ("0", "1")])
def test_no_number_is_cut_on_eighty_columns(others, seeds, tmp_path):
    words = [word for name in ("fedavg", "fedakd", *others) for word in ("--method", name)]
    words += [word for seed in seeds for word in ("--seed", seed)]
    size = ("--clients", "3", "--rounds", "1", "--model", "linear", "--workers", "0")
    done = fedakd("run", *size, *words, "-q", "--out", str(tmp_path / "run"), columns=80)
    rows = json.loads((tmp_path / "run" / "summary.json").read_text())["rows"]
    for row in rows:
        for name in ("average", "maximum", "minimum"):
            assert f"{100 * row['over_seeds'][name]['mean']:.1f}" in done.stdout
    levels = [sum(own) / len(own) for own in zip(*rows[0]["accuracies"], strict=True)]
    assert all(any(f"{100 * level:.{digits}f}" in done.stdout for digits in (0, 1)) for level in levels)
    tables = done.stdout.partition("Accuracies and gains in")[0]
    assert max(map(len, tables.splitlines())) <= 80
