"""Training for as long as held-out rows gain by it, and going on where a training was interrupted."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from fedakd import wire
from fedakd.errors import PlanError
from fedakd.examples import Examples
from fedakd.seeds import derived_seed, seeded
from fedakd.threads import one_thread
from fedakd.training import Batch, Bench, Loss, loaded
from fedakd.trees import Params, Tree


class Epoch(NamedTuple):
    """One pass over the train rows; number 0 stands for the parameters before any."""

    number: int
    train: float  # mean loss of the steps on the way; nan for number 0
    validation: float  # the score after it, the lower the better


Progress = Callable[[Epoch], None]


@dataclass(frozen=True, eq=False)
class Course:
    """How far a training has come: all that is needed to go on with it, bit for bit."""

    now: Params
    best: Params  # those of the epoch with the lowest score, the first of equals
    history: tuple[Epoch, ...]

    @property
    def best_epoch(self) -> Epoch:
        return min(self.history, key=lambda epoch: (math.isnan(epoch.validation), epoch.validation))

    def over(self, epochs: int, patience: int) -> bool:
        """Whether all epochs are done, or the last `patience` of them brought nothing."""
        last = self.history[-1].number
        return last >= epochs or last - self.best_epoch.number >= patience

    def then(self, now: Params, epoch: Epoch) -> Course:
        longer = Course(now, self.best, (*self.history, epoch))
        return replace(longer, best=now) if longer.best_epoch is epoch else longer

    def tree(self) -> Tree:
        history = torch.tensor(self.history, dtype=torch.float64)  # (epochs + 1, 3)
        return {"now": self.now, "best": self.best, "history": history}


@dataclass(frozen=True)
class Training:
    """How long something is trained at most and in vain, who is told, and the folder where it is kept."""

    epochs: int = 30
    patience: int = 3
    progress: Progress | None = None
    cache: Path | None = None


def trained(
    kind: str,
    bench: Bench,
    start: Params,
    train: Examples,
    validation: Examples,
    how: Training,
    loss: Loss | None = None,
) -> Course:
    """The course of a training, on one thread, scored by the mean loss on validation rows.

    A training of the same kind, model, start, rows and settings that is in the cache is not done again.
    """
    if not len(validation):
        raise PlanError("training stops by validation rows, got none; set some aside")
    settings = (bench.module, bench.recipe, bench.stream, how.epochs, how.patience)
    store = _place(how.cache, kind, *settings, start, train, validation) if how.cache else None
    score = partial(mean_loss, bench, data=validation, loss=loss)
    fit = partial(early_stopped, loss=loss, progress=how.progress, store=store)
    with one_thread():
        course = fit(bench, start, train, score, epochs=how.epochs, patience=how.patience)
    if math.isnan(course.best_epoch.validation):
        raise PlanError(f"{kind}: the loss on validation rows is nan in every epoch; are all rows finite?")
    return course


def early_stopped(
    bench: Bench,
    start: Params,
    train: Examples,
    score: Callable[[Params], float],
    *,
    epochs: int,
    patience: int,
    loss: Loss | None = None,
    progress: Progress | None = None,
    store: Path | None = None,
) -> Course:
    """Fits epoch by epoch until `patience` epochs have not lowered the score, with at most `epochs` of them.

    Each epoch has an optimiser of its own, so an epoch depends on the parameters before it and its number
    alone. With `store`, the course is written there after each epoch and read from there at the start: an
    interrupted training goes on and ends as it would have ended.
    """
    _check(train, epochs, patience)
    course = _stored(store) or Course(start, start, (Epoch(0, math.nan, score(start)),))
    recipe = replace(bench.recipe, epochs=1)
    while not course.over(epochs, patience):
        number, meter = course.history[-1].number + 1, _Meter(loss or bench.loss)
        now = bench.fit(course.now, train, loss=meter, recipe=recipe, purpose=f"epoch {number}")
        course = course.then(now, Epoch(number, meter.total / len(train), score(now)))
        if store:
            wire.save(store, course.tree())
        if progress:
            progress(course.history[-1])
    return course


def mean_loss(bench: Bench, params: Params, data: Examples, loss: Loss | None = None) -> float:
    """The mean loss over rows in evaluation mode, with the same random numbers at every call."""
    module, loss = loaded(bench.module, params).eval(), loss or bench.loss
    with torch.no_grad(), seeded(derived_seed(*bench.stream, "judging")):
        batches = bench.batches(data, replace(bench.recipe, epochs=1), "judging")
        return sum(float(loss(module, batch)) * len(batch.y) for batch in batches) / len(data)


def _place(folder: Path, kind: str, *parts: object) -> Path:
    """The file of a training in a folder: its name tells the parts apart, be they settings or tensors."""
    folder.mkdir(parents=True, exist_ok=True)
    total = hashlib.sha256()
    for part in parts:
        for tensor in _tensors(part):
            total.update(f"{tuple(tensor.shape)} {tensor.dtype}".encode() + tensor.numpy().tobytes())
        if not isinstance(part, dict | Examples):
            total.update(str(part).encode())
    return folder / f"{kind}-{total.hexdigest()[:16]}.safetensors"


def _tensors(part: object) -> Iterator[Tensor]:
    if isinstance(part, Examples):
        yield from (*_tensors(part.x), part.y)
    elif isinstance(part, dict):
        yield from part.values()
    elif isinstance(part, Tensor):
        yield part


def _stored(path: Path | None) -> Course | None:
    if path is None or not path.exists():
        return None
    try:
        tree = wire.load(path)
    except wire.WireError as error:
        raise PlanError(f"{error}; delete the file, and what it holds is trained again") from error
    history = (Epoch(int(number), a, b) for number, a, b in tree["history"].tolist())
    return Course(tree["now"], tree["best"], tuple(history))


def _check(train: Examples, epochs: int, patience: int) -> None:
    for name, number in (
        ("train rows", len(train)),
        ("epochs", epochs),
        ("patience", patience),
    ):
        if number < 1:
            raise PlanError(f"{name} must be at least 1, got {number}")


@dataclass
class _Meter:
    """A loss that remembers its sum over rows."""

    loss: Loss
    total: float = 0.0

    def __call__(self, module: nn.Module, batch: Batch) -> Tensor:
        value = self.loss(module, batch)
        self.total += value.item() * len(batch.y)
        return value
