"""The commands `fedakd paper table1` and so on: comparisons that come with the package."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedakd.cli.compare import (
    AsJson,
    DataDir,
    Parallel,
    Processes,
    Quiet,
    Shard,
    Way,
    carry_out,
    drawn,
    typed,
)
from fedakd.cli.run import Leak

if TYPE_CHECKING:
    from fedakd.compare import Comparison

Datasets = Annotated[
    list[str] | None,
    typer.Option(
        "--dataset", show_default="the paper's", help="digits, fashion-mnist or cifar10; repeatable."
    ),
]
Partitions = Annotated[
    list[str] | None,
    typer.Option(
        "--partition", show_default="the paper's", help="As `fedakd partitions` lists them; repeatable."
    ),
]
Methods = Annotated[
    list[str] | None,
    typer.Option(
        "--method",
        show_default="the paper's",
        help="As `fedakd methods` lists them; repeatable; `all`: all 13.",
    ),
]
Scale = Annotated[
    float | None,
    typer.Option(show_default="1", help="Share of the training rows; test and validation rows stay whole."),
]
Rounds = Annotated[int | None, typer.Option(min=1, show_default="the paper's", help="Rounds of each method.")]
Seeds = Annotated[int | None, typer.Option(min=1, show_default="the plan's", help="How many: 0, 1, 2, ...")]
PresetName = Annotated[str | None, typer.Option(show_default="paper", help="paper, tuned or released.")]
Clients = Annotated[int | None, typer.Option(min=2, show_default="10", help="Clients of each federation.")]
JudgeEvery = Annotated[
    int | None, typer.Option(min=1, show_default="the plan's", help="Rounds between two judgements.")
]
OutFolder = Annotated[Path, typer.Option("--out", help="Results go to a folder in it; cells are shared.")]

COMMANDS = {
    "table1": "Max, average and CF of eleven methods under covariate shift (Table 1).",
    "table3": "The same when every method gets the time that FedAKD needs (Table 3).",
    "table4": "FedAKD without one of its parts (Table 4).",
    "table5": "Max and CF under label shift, judged on one common test set (Table 5).",
    "figure1": "What methods hold clients to contribute, against standalone accuracy (Figure 1, b to e).",
    "figure3": "Seconds a round of each method, and the global model's loss by round (Figure 3).",
}
STANDING = {  # commands with a file of their own
    "figure1a": "KL divergence against size, client by client (Figure 1a).",
    "figure2": "Rows a model gets right and wrong (Figure 2).",
    "figure4": "Theorem 2 beside the exact divergence (Figure 4).",
}


def register(app: typer.Typer) -> None:
    """Adds the commands to those of `fedakd paper`."""
    app.command("list")(list_)
    for name in COMMANDS:
        _register(app, name)


def list_() -> None:
    """What of the paper there is as a command, and how much each computes by default."""
    for name, about in COMMANDS.items():
        asked = plan_of(name)
        first = asked.settings[0]
        grid = f"{len(asked.settings)} settings, {len(first.methods)} methods, {len(asked.seeds)} seeds"
        typer.echo(f"{name:<10}{about}\n{'':<10}{grid}, {first.rounds} rounds")
    for name, about in STANDING.items():
        typer.echo(f"{name:<10}{about}")


def plan_of(name: str, **changes: Any) -> Comparison:
    """The comparison of that name, with what the user says otherwise."""
    import tomllib

    from fedakd.compare import comparison
    from fedakd.paper.drawing import check

    text = (files("fedakd.paper") / "plans" / f"{name}.toml").read_text()
    said = tomllib.loads(text)
    if datasets := changes.get("datasets"):  # an override for a dataset that is not asked for is no mistake
        kept = [one for one in said.get("override", ()) if one.get("dataset") in (None, *datasets)]
        said |= {"override": kept}
    asked = comparison(said, f"fedakd paper {name}", **changes)
    check(name, asked)
    return asked


def _register(app: typer.Typer, name: str) -> None:
    @app.command(name, help=f"{COMMANDS[name]}\n\n{PUBLISHED.get(name, '')}{HOW}\n\n{EXAMPLE.format(name)}")
    def command(
        dataset: Datasets = None,
        partition: Partitions = None,
        method: Methods = None,
        scale: Scale = None,
        rounds: Rounds = None,
        seeds: Seeds = None,
        preset: PresetName = None,
        clients: Clients = None,
        judge_every: JudgeEvery = None,
        leak: Leak = None,
        out: OutFolder = Path("paper"),
        shard: Shard = None,
        workers: Processes = None,
        parallel: Parallel = "auto",
        data_dir: DataDir = None,
        as_json: AsJson = False,
        quiet: Quiet = False,
    ) -> None:
        axes = {"datasets": dataset, "partitions": partition, "methods": method}
        changes = {"scale": scale, "rounds": rounds, "seeds": seeds, "preset": preset, "clients": clients}
        asked = plan_of(name, **axes, **changes, judge_every=judge_every, leak=leak)
        if name in EQUAL_TIME:
            asked = _at_equal_time(asked, name, out / name, data_dir, quiet)
        options = (shard, workers, parallel, data_dir, quiet, as_json)
        results = carry_out(asked, Way(out / name, out / "store", typed(), name, *options, estimate=True))
        if shard is None:  # a part has not all that is drawn; the parts merged have
            drawn(results)


def _at_equal_time(
    asked: Comparison, name: str, folder: Path, data_dir: Path | None, quiet: bool
) -> Comparison:
    from fedakd.compare.pace import at_equal_time

    def say(text: str) -> None:
        if not quiet:
            typer.echo(text, err=True)

    return at_equal_time(asked, EQUAL_TIME[name], folder, say, data_dir)


EQUAL_TIME = {"table3": "fedakd"}  # commands whose methods get the time of one
HOW = "What is stored is not computed again, so a command that was stopped goes on where it was."
PUBLISHED = dict.fromkeys(("table1", "table5"), "Published numbers are shown beside ours. ")
EXAMPLE = "Example, in a minute or two: fedakd paper {} --dataset digits --partition pow --rounds 2 --seeds 2"
