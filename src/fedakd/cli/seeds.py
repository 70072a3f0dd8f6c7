"""What the paper's figures about shift have in common: a plan, its federations, seed after seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from fedakd.errors import PlanError

if TYPE_CHECKING:
    from fedakd.data.images import ImageDataset
    from fedakd.federation import Federation
    from fedakd.plan import Plan

Tell = Callable[[str], None]
Found = TypeVar("Found")  # what comes of one seed


@dataclass(frozen=True, eq=False)
class Ground:
    """A plan and the federations it stands for, the first of which is also what time is estimated by."""

    plan: Plan
    dataset: ImageDataset

    @cached_property
    def first(self) -> Federation:
        return self._drawn(self.plan.seeds[0])

    def federation(self, seed: int) -> Federation:
        return self.first if seed == self.plan.seeds[0] else self._drawn(seed)

    def _drawn(self, seed: int) -> Federation:
        from fedakd.drawn import federation_of

        return federation_of(self.plan, self.dataset, seed, leak=False)


def ground(preset: str | None, seed: int, seeds: int, data_dir: Path | None, **choices: Any) -> Ground:
    """What is asked for, checked; readers are told what a preset makes of it."""
    from fedakd.data import load
    from fedakd.plan import resolve

    plan = resolve(preset, seeds=tuple(range(seed, seed + seeds)), methods=("fedavg",), **choices)
    if plan.preset == "released":
        _check_released(plan.partition)
    found = Ground(plan, load(plan.dataset, data_dir))
    for warning in found.first.warnings:
        typer.echo(f"warning: {warning}", err=True)
    return found


def _check_released(partition: str) -> None:
    """The published generator has a strength of its own: one in the text is told of, the rest refused."""
    name = partition.split("(")[0]
    if "=" in partition:
        raise PlanError(f"preset released has no settings of its generator, got {partition}; ask for {name}")
    if partition != name:
        typer.echo(f"preset released: of {partition} only {name} counts, its shift has no strength", err=True)


def each_seed(
    asked: Ground,
    work: Callable[[Federation, Tell], Found],
    keep: Callable[[Mapping[int, Found]], None],
) -> dict[int, Found]:
    """What comes of every seed. What is finished is kept after each, so Ctrl-C costs one seed at most."""
    from rich.console import Console

    from fedakd.cli.shift import telling

    done: dict[int, Found] = {}
    kept = 0
    try:
        with telling(Console(stderr=True)) as tell:
            for seed in asked.plan.seeds:
                done[seed] = work(asked.federation(seed), _naming(seed, asked.plan.seeds, tell))
                keep(done)
                kept = len(done)
    except KeyboardInterrupt:
        typer.echo(f"stopped; {_kept(list(done)[:kept], len(asked.plan.seeds))}", err=True)
        raise typer.Exit(130) from None
    return done


def _naming(seed: int, seeds: tuple[int, ...], tell: Tell) -> Tell:
    return (lambda what: tell(f"seed {seed}: {what}")) if len(seeds) > 1 else tell


def _kept(seeds: list[int], asked: int) -> str:
    if not seeds:
        return "no seed was finished, and nothing written"
    return f"{len(seeds)} of {asked} seeds are finished and written down: {', '.join(map(str, seeds))}"


def conclude(
    found: Mapping[int, Found],
    sentence: Callable[[Found], str],
    over_seeds: Callable[[Mapping[int, Found]], str],
    stem: Path,
) -> None:
    """A sentence for each seed, one over all if there are several, and where the files are."""
    for seed, one in found.items():
        typer.echo(sentence(one) if len(found) == 1 else f"seed {seed}: {sentence(one)}")
    if len(found) > 1:
        typer.echo(over_seeds(found))
    typer.echo(f"written: {stem}.svg, .png, .pdf and .csv")
