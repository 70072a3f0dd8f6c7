"""The commands `fedakd demo` and `fedakd run`."""

from __future__ import annotations

import json
import shlex
import signal
import sys
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedakd.errors import FedakdError

if TYPE_CHECKING:
    from rich.console import Console

    from fedakd.cli.watch import Watch
    from fedakd.experiment import Cell
    from fedakd.plan import Plan
    from fedakd.runfolder import RunFolder
    from fedakd.summary import Row

Dataset = Annotated[str | None, typer.Option(show_default="digits", help="digits, fashion-mnist or cifar10.")]
Partition = Annotated[
    str | None,
    typer.Option(
        show_default="ics(1)", help='How rows go to clients: "ics(5)", bcs, pow, cla, "dir(1)", iid.'
    ),
]
MethodNames = Annotated[
    list[str] | None,
    typer.Option(
        "--method",
        show_default="fedavg, fedakd",
        help="Repeatable; fields in brackets; all: the thirteen. Standalone, the reference, always runs.",
    ),
]
Rounds = Annotated[int | None, typer.Option(show_default="20", help="Rounds of training.")]
Clients = Annotated[int | None, typer.Option(show_default="10", help="Clients in the federation.")]
Seeds = Annotated[
    list[int] | None,
    typer.Option("--seed", show_default="0", help="Repeatable; reseeds partition, model and batches."),
]
PresetName = Annotated[
    str | None,
    typer.Option(
        show_default="tuned",
        help="tuned (Adam), paper (SGD, half of the rows) or released (the published code's leaky protocol); "
        "also chooses each method's own values.",
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        min=0, show_default="cores", help="Processes; 0 is none but this one. Results never depend on it."
    ),
]
Out = Annotated[
    Path | None, typer.Option(show_default="runs/DATASET-PARTITION-TIME", help="The run's folder.")
]
Resume = Annotated[Path | None, typer.Option(metavar="FOLDER", help="Continue the run in this folder.")]
Leak = Annotated[
    bool | None,
    typer.Option(
        "--leak/--no-leak",
        show_default="leak",
        help="Preset released: train on test rows where the published code does.",
    ),
]
DataDir = Annotated[Path | None, typer.Option(metavar="FOLDER", help="Where the dataset's files are.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the summary as JSON on standard output.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no audit, only the result.")]

PLAIN: Any = {"markup": False, "highlight": False, "soft_wrap": True}  # paths as they are, to be copied


def demo(out: Out = None, workers: Workers = None) -> None:
    """Compare Standalone, FedAvg and FedAKD on handwritten digits: 5 clients, 5 seeds, under 3 minutes.

    Clients have power-law sizes and shifted inputs, ICS(1), over all 1,797 rows. You see the audit of
    the splits, the fairness table, and one sentence of verdict for each method.
    """
    from fedakd.plan import resolve

    plan = resolve("tuned", dataset="digits", partition="ics(1)", clients=5, rounds=20, seeds=(0, 1, 2, 3, 4))
    _carry_out(*_new(plan, out), workers, None, as_json=False, quiet=False)


def run(
    dataset: Dataset = None,
    partition: Partition = None,
    method: MethodNames = None,
    rounds: Rounds = None,
    clients: Clients = None,
    seed: Seeds = None,
    preset: PresetName = None,
    workers: Workers = None,
    out: Out = None,
    resume: Resume = None,
    data_dir: DataDir = None,
    model: Annotated[
        str | None, typer.Option(show_default="cnn", help="cnn, cnn2, cnn3, mlp or linear.")
    ] = None,
    fraction: Annotated[
        float | None, typer.Option(show_default="preset's", help="Share of the rows given out.")
    ] = None,
    scale: Annotated[
        float | None, typer.Option(show_default="1", help="Share of the training rows; tests stay whole.")
    ] = None,
    lr: Annotated[float | None, typer.Option(show_default="preset's", help="Learning rate.")] = None,
    optimizer: Annotated[str | None, typer.Option(show_default="preset's", help="sgd or adam.")] = None,
    epochs: Annotated[int | None, typer.Option(show_default="1", help="Local epochs a round.")] = None,
    batch_size: Annotated[int | None, typer.Option(show_default="32", help="Rows a step.")] = None,
    weight_decay: Annotated[float | None, typer.Option(show_default="0", help="L2 penalty.")] = None,
    participation: Annotated[
        float | None, typer.Option(show_default="1", help="Share of clients a round.")
    ] = None,
    evaluation: Annotated[
        str | None,
        typer.Option(show_default="the partition's", help="local: own test rows; global: common ones."),
    ] = None,
    judge_every: Annotated[
        int | None,
        typer.Option(
            show_default="1",
            help="Rounds between two judgements of the models; the last quarter is judged in every round.",
        ),
    ] = None,
    equal_time: Annotated[
        str | None, typer.Option(help="Give all methods the time this one needs for its rounds.")
    ] = None,
    equal_gradients: Annotated[
        str | None,
        typer.Option(help="Give all methods, Standalone included, the sample-gradients of this one."),
    ] = None,
    method_rounds: Annotated[
        list[str] | None,
        typer.Option(metavar="METHOD=N", help="Rounds of one method, instead of --rounds; repeatable."),
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(
            show_default="equal-budget",
            help="What gains are shown against first: equal-budget (trained alone for the run's rounds) or "
            "converged (trained alone for as long as held-out rows gain by it).",
        ),
    ] = None,
    max_seconds: Annotated[float | None, typer.Option(help="Stop a method after this much time.")] = None,
    max_gradients: Annotated[
        float | None, typer.Option(help="Stop a method after this many sample-gradients.")
    ] = None,
    leak: Leak = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Run methods on one federation and compare them.

    Every round is on disk before the next begins: a run that was stopped, or killed, continues with
    --resume and ends with the very same numbers. With --resume FOLDER --rounds N a run, finished or not,
    goes on from its last round up to round N.

    Example: fedakd run --dataset fashion-mnist --partition "ics(5)" --method fedavg --method fedakd
    """
    choices = _choices(locals())  # first: before there is anything else among them
    from fedakd.plan import resolve
    from fedakd.runfolder import RunFolder

    if resume is not None:
        _refuse_changes({**choices, "rounds": None}, out)
        folder, plan = RunFolder.open(resume)
        plan = plan if rounds is None else folder.extend(plan, rounds)
    else:
        plan, folder = _new(resolve(**choices), out)
    _carry_out(plan, folder, workers, data_dir, as_json=as_json, quiet=quiet)


def _choices(options: dict[str, Any]) -> dict[str, Any]:
    """What the options say about the plan, by its fields; the other options are about this call alone."""
    from fedakd.plan import SINGULAR, Plan
    from fedakd.spelling import numbers_by_name

    said = {field: options.get(SINGULAR.get(field, field)) for field in Plan.model_fields}
    said["method_rounds"] = numbers_by_name("--method-rounds", options.get("method_rounds") or []) or None
    return said | {field: tuple(said[field] or ()) or None for field in SINGULAR}


def _refuse_changes(choices: dict[str, Any], out: Path | None) -> None:
    from fedakd.errors import PlanError
    from fedakd.plan import SINGULAR

    said = [
        f"--{SINGULAR.get(name, name).replace('_', '-')}"
        for name, value in {**choices, "out": out}.items()
        if value is not None
    ]
    if said:
        raise PlanError(
            f"--resume takes everything but --rounds from the folder's plan; leave out {', '.join(said)}"
        )


def _new(plan: Plan, out: Path | None) -> tuple[Plan, RunFolder]:
    from fedakd.data import source
    from fedakd.experiment import versions
    from fedakd.runfolder import RunFolder

    source(plan.dataset)  # an unknown name leaves no folder behind
    if out is None:
        brief = plan.partition.replace("(", "").replace(")", "").replace(", ", "-")
        out = Path("runs") / f"{plan.dataset}-{brief}-{datetime.now():%Y%m%d-%H%M%S-%f}"
    return plan, RunFolder.create(out, plan, versions())


def _carry_out(
    plan: Plan, folder: RunFolder, workers: int | None, data_dir: Path | None, *, as_json: bool, quiet: bool
) -> None:
    from rich.console import Console

    from fedakd.cli.watch import Watch
    from fedakd.experiment import carry_out

    console = Console(stderr=True)
    signal.signal(signal.SIGTERM, _interrupt)
    if not quiet:
        console.print(f"run folder: {folder.path}", **PLAIN)
    try:
        with Watch(console, len(plan.methods) * len(plan.seeds), quiet) as watch:
            cells = carry_out(plan, folder, watch, workers=workers, data_dir=data_dir)
    except FedakdError:
        folder.discard_if_unused()
        raise
    except KeyboardInterrupt:
        where = ["--data-dir", str(data_dir)] if data_dir else []
        command = shlex.join(["fedakd", "run", "--resume", str(folder.path), *where])
        console.print(f"\nstopped; continue with: {command}", **PLAIN)
        raise typer.Exit(130) from None
    _conclude(plan, folder, cells, watch, as_json)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _conclude(plan: Plan, folder: RunFolder, cells: list[Cell], watch: Watch, as_json: bool) -> None:
    """The summary, into the folder and onto the screen."""
    from fedakd import summary, tables
    from fedakd.cellfolder import write_json
    from fedakd.wire import write

    rows = summary.rows_of(cells, plan.preset, plan.reference)
    seen = (watch.warnings, watch.audits)
    write_json(folder.path / "summary.json", summary.to_dict(plan, rows, *seen))
    write_json(folder.path / "costs.json", tables.costs(cells))  # apart: seconds never repeat
    write(folder.path / "summary.md", tables.markdown(plan, cells, rows, *seen).encode())
    if as_json:
        sys.stdout.write(json.dumps(summary.to_dict(plan, rows, *seen), indent=2) + "\n")
    else:
        _show(plan, folder, cells, rows)


def _show(plan: Plan, folder: RunFolder, cells: list[Cell], rows: list[Row]) -> None:
    from rich.console import Console

    from fedakd import tables
    from fedakd.cli.catalogue import put
    from fedakd.convergence import continue_command

    console = Console()
    title = f"{plan.title}, {len(plan.seeds)} seed{'s' * (len(plan.seeds) > 1)}"
    put(console, tables.accuracy_table(rows), title=title)
    put(console, (tables.FAIRNESS, [tables.fairness_line(row) for row in rows]))
    put(console, (tables.COST, tables.cost_lines(cells)))
    forms = [tables.client_lines(rows, digits) for digits in (1, 0)]
    if not put(console, tables.client_table(rows), *forms, title=tables.CLIENTS, whole=True):
        console.print(f"{tables.CLIENTS}: {folder.path / 'summary.md'}", **PLAIN)
    console.print(tables.NOTE, style="dim")
    for remark in plan.remarks:
        console.print(f"! {remark}", style="bold", markup=False, highlight=False)
    _verdicts(console, tables.told(rows))
    if any(row.unconverged for row in rows if row.judged):
        more = continue_command(folder.path, plan.rounds)
        console.print(f"Not all runs have converged; go on with: {more}", **PLAIN)
    console.print(f"results: {folder.path}", **PLAIN)


def _verdicts(console: Console, rows: Iterable[Row]) -> None:
    for row in rows:
        console.print(f"- {row.verdict}", highlight=False, markup=False)
        for problem in row.troubles if row.judged else ():
            console.print(f"  ! {problem}", highlight=False, markup=False)
