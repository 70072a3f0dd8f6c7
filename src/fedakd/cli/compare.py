"""The commands `fedakd compare` and `fedakd merge`, and what the paper's tables share with them."""

from __future__ import annotations

import json
import shlex
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from fedakd.errors import PlanError

if TYPE_CHECKING:
    from rich.console import Console

    from fedakd.cli.board import Board
    from fedakd.compare import Comparison, Job, Results, Store
    from fedakd.compare.results import Recorded
    from fedakd.paper.tables import SubTable

Out = Annotated[
    Path | None, typer.Option(show_default="runs/<name of the plan>", help="Where the results go.")
]
StoreAt = Annotated[
    Path | None,
    typer.Option("--store", show_default="the results' folder", help="Where cells are kept and looked for."),
]
Shard = Annotated[
    str | None, typer.Option(metavar="K/N", help="Compute the k-th of n parts only; see `fedakd merge`.")
]
Processes = Annotated[int | None, typer.Option("--workers", min=0, show_default="cores", help="Processes.")]
Parallel = Annotated[
    str,
    typer.Option(
        help="What runs side by side: cells, clients, or auto: clients if cells are fewer than cores."
    ),
]
DataDir = Annotated[Path | None, typer.Option(metavar="FOLDER", help="Where the datasets' files are.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only the result.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the summary as JSON on standard output.")]


@dataclass(frozen=True)
class Way:
    """How a comparison is carried out; nothing of this changes its numbers."""

    out: Path
    store: Path
    command: str
    table: str = ""  # of the paper, whose published numbers are shown beside ours
    shard: str | None = None
    processes: int | None = None
    parallel: str = "auto"
    data_dir: Path | None = None
    quiet: bool = False
    as_json: bool = False
    estimate: bool = False


def compare(
    plan: Annotated[
        Path, typer.Argument(metavar="PLAN", help="A TOML file: datasets, partitions, methods, seeds.")
    ],
    out: Out = None,
    store: StoreAt = None,
    shard: Shard = None,
    workers: Processes = None,
    parallel: Parallel = "auto",
    data_dir: DataDir = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Compare methods over datasets, partitions and seeds, with statistics.

    What is stored is not computed again: a comparison that was stopped, killed or extended goes on where it
    was, and several processes may work in one folder. A plan looks like this:

    title = "Does it pay to join?"\n
    datasets = ["digits"]\n
    partitions = ["pow", "ics(1)"]\n
    methods = ["fedavg", "fedakd"]\n
    seeds = 3\n
    rounds = 10

    Any field of a run may be set (clients, lr, model, scale, ...), for some settings in an override table:
    see docs/comparing.md.
    """
    from fedakd.compare import read_comparison

    asked = read_comparison(plan)
    out = Path("runs") / plan.stem if out is None else out
    options = (shard, workers, parallel, data_dir, quiet, as_json)
    carry_out(asked, Way(out, store or out, typed(), "", *options))


def merge(
    folders: Annotated[list[Path], typer.Argument(metavar="FOLDER...", help="Parts of one comparison.")],
    out: Annotated[Path, typer.Option(help="Where all of it goes.")],
) -> None:
    """Put the parts of one comparison together that were computed with --shard.

    Example: fedakd merge runs/part1 runs/part2 --out runs/whole
    """
    from rich.console import Console

    from fedakd.compare import read
    from fedakd.compare.merge import merge as merged
    from fedakd.compare.merge import store_beside
    from fedakd.compare.results import record

    found = merged(folders, store_beside(out, folders[0]))
    record(
        out, found.told._replace(command=_into(found.told.command, out.parent if found.told.table else out))
    )
    typer.echo(
        f"{found.copied} cells copied, {found.present} were there, {found.missing} are missing", err=True
    )
    results = read(out)
    conclude(results, Console(), as_json=False)
    if not found.missing:
        drawn(results)


def _into(command: str, out: Path) -> str:
    """The command that goes on with what was merged."""
    words = shlex.split(command)
    kept = [w for w, before in zip(words, ["", *words], strict=False) if "--out" not in (w, before)]
    return shlex.join([*(word for word in kept if not word.startswith("--out=")), "--out", str(out)])


def drawn(results: Results) -> None:
    """The paper's figures, where the comparison was made for one."""
    from fedakd.paper.drawing import draw

    if told := draw(results):
        typer.echo(f"drawn: {told} in {results.folder} as SVG, PNG, PDF and CSV", err=True)


def carry_out(asked: Comparison, way: Way) -> Results:
    """Everything from the first cell to the tables; a cell that failed is an error in the end."""
    from rich.console import Console

    from fedakd.cli.board import Board
    from fedakd.compare import Store, jobs_of, sharded
    from fedakd.compare.results import Recorded, record, results_of
    from fedakd.experiment import versions

    console, store = Console(stderr=True), Store(way.store).usable()
    jobs, parallel = sharded(jobs_of(asked), way.shard), _known(way.parallel)
    told = Recorded(asked, store, way.command, versions(), way.table)
    _take_over(way.out, told, console)
    record(way.out, told)
    with Board(console, jobs, way.quiet) as board:
        _gather(jobs, store, board, way)
        _announce(console, jobs, store, way)
        _work(jobs, store, board, way, parallel)
        _audit(jobs, store, board, way)
    results = results_of(way.out, told)
    conclude(results, Console(), way.as_json)
    lost = [why for job, why in board.failures if not store.done(job.name)]  # or another process did it
    if lost:
        raise PlanError(f"{len(lost)} of {len(jobs)} cells failed; the first: {lost[0]}")
    return results


def _gather(jobs: list[Job], store: Store, board: Board, way: Way) -> None:
    """The datasets that are needed, before anything is computed: else every cell would fail by itself."""
    from fedakd.data import load

    for dataset in dict.fromkeys(job.plan.dataset for job in jobs if not store.done(job.name)):
        load(dataset, way.data_dir, progress=board.fetching)


def _take_over(out: Path, told: Recorded, console: Console) -> None:
    """What another comparison left in the folder is replaced, all but its cells; that must not go unsaid."""
    from fedakd.compare.results import RECORD, recorded, set_aside

    if not (out / RECORD).exists():
        return
    try:
        before = recorded(out).comparison
    except PlanError:
        before = None
    if before != told.comparison:
        kept = set_aside(out)
        console.print(
            f"{out} held another comparison: its cells stay, its tables are in {kept}", markup=False
        )


def _audit(jobs: list[Job], store: Store, board: Board, way: Way) -> None:
    from fedakd.compare.work import Hand

    Hand(store, board, data_dir=way.data_dir).restore_audits(jobs)


def _work(jobs: list[Job], store: Store, board: Board, way: Way, parallel: Any) -> None:
    from fedakd.compare.crew import Crew

    signal.signal(signal.SIGTERM, _interrupt)
    try:
        Crew(store, board, way.processes, parallel, way.data_dir).work(jobs)
    except KeyboardInterrupt:
        board.bars.stop()
        board.console.print("\nstopped; every finished round is kept. Continue with:")
        again = shlex.join(["fedakd", *sys.argv[1:]])
        board.console.print(again, markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(130) from None


def _known(parallel: str) -> Any:
    from fedakd.compare.crew import Parallel as Known
    from fedakd.errors import unknown

    if parallel not in get_args(Known):
        raise PlanError(unknown("--parallel", parallel, get_args(Known)))
    return parallel


def _announce(console: Console, jobs: list[Job], store: Store, way: Way) -> None:
    """How much there is to do, and how long it will take."""
    from fedakd.cli.board import duration
    from fedakd.compare.estimate import expected
    from fedakd.simulation import cores

    left = [job for job in jobs if not store.done(job.name)]
    if way.quiet:
        return
    said = f"{len(jobs)} cells, {len(jobs) - len(left)} of them stored"
    if not jobs:
        said = f"nothing to do: there are fewer federations than parts, and none is in {way.shard}"
    if left and way.estimate:
        count = cores() if way.processes is None else max(1, way.processes)
        said += f"; about {duration(expected(left, count, way.data_dir))} on {count} cores, by one short cell"
    console.print(f"{said}; results go to {way.out}", markup=False, highlight=False, soft_wrap=True)


def conclude(results: Results, console: Console, as_json: bool) -> list[SubTable]:
    """The summary, into the folder and onto the screen."""
    from fedakd import outcome
    from fedakd.cli.catalogue import put
    from fedakd.paper.forms import notes, terminal

    parts = outcome.write_outcome(results)
    if as_json:
        sys.stdout.write(json.dumps(outcome.summary(results), indent=2) + "\n")
        return parts
    for remark in outcome.remarks(results):
        console.print(f"! {remark}", style="bold", markup=False, highlight=False)
    for part in parts:
        for block in terminal(part):
            put(console, *block.forms, title=block.title)
        for note in notes(part, "terminal"):
            console.print(note, style="dim", markup=False, highlight=False)
    console.print(
        f"results: {results.folder}; as a page: fedakd report {results.folder}", markup=False, soft_wrap=True
    )
    return parts


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def typed() -> str:
    """The command as it was typed, to be repeated; a part is a part of the whole."""
    words, kept = iter(sys.argv[1:]), []
    for word in words:
        if word == "--shard":
            next(words, None)
        elif not word.startswith("--shard="):
            kept.append(word)
    return shlex.join(["fedakd", *kept])
