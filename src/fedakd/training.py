"""Fitting and judging one model on one set of rows; the only training loop of the package."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, TypeAlias, TypedDict, Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from fedakd.errors import FedakdError
from fedakd.examples import Examples, take
from fedakd.optimizers import optimizer, training_only
from fedakd.seeds import derived_seed, seeded
from fedakd.trees import Params, Tree, pick

SGD_LR = 0.1  # for methods that need SGD where the recipe says Adam: what SCAFFOLD and FedDC were run with
CHUNK = 64  # rows per forward pass where no gradient is kept: what a core's cache holds
BN_ROWS, BN_BATCH = 1024, 256  # rows that batch-norm statistics are estimated on, at most, and at a time


class Diverged(FedakdError):
    """The loss of a training step is not a number, or not finite."""


@dataclass(frozen=True)
class Task:
    """What is learned: a factory of the model (importable, so that workers can call it) and the loss."""

    model: Callable[[], nn.Module]
    loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy


@dataclass(frozen=True)
class Recipe:
    """How a model is fitted, the same for all methods of a comparison."""

    epochs: int = 1
    batch_size: int = 32
    lr: float = 0.01
    optimizer: Literal["sgd", "adam"] = "sgd"
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        for name in ("lr", "weight_decay"):  # a rate of 0 is what some methods freeze parameters with
            if not 0 <= (value := getattr(self, name)) < math.inf:
                raise FedakdError(f"Recipe: {name} must be a finite number of 0 or more, got {value}")
        for name in ("epochs", "batch_size"):
            if not (value := getattr(self, name)) >= 1:
                raise FedakdError(f"Recipe: {name} must be 1 or more, got {value}")

    def as_sgd(self, lr: float | None = None) -> Recipe:
        """With plain SGD, for methods whose arithmetic needs it: at the rate given, or its own, or 0.1.

        >>> Recipe(lr=0.001, optimizer="adam").as_sgd().lr, Recipe(lr=0.03).as_sgd().lr
        (0.1, 0.03)
        """
        own = self.lr if self.optimizer == "sgd" else SGD_LR
        return replace(self, optimizer="sgd", lr=own if lr is None else lr)


class Batch(NamedTuple):
    x: Tensor | dict[str, Tensor]
    y: Tensor
    rows: Tensor  # which of the examples being fitted these are


Loss: TypeAlias = Callable[[nn.Module, Batch], Tensor]


class Options(TypedDict, total=False):
    """What a fit can be told besides the parameters and the rows."""

    loss: Loss | None
    grad: Callable[[str, Tensor], Tensor] | None  # rewrites a parameter's gradient before each step
    recipe: Recipe | None  # instead of the bench's own
    only: Callable[[str], bool] | None  # whether the parameter of that name may move
    module: nn.Module | None  # instead of the bench's own
    purpose: str  # fits of one purpose see the rows in the same order


@dataclass
class Bench:
    """A model, a recipe and a random stream: all that is needed to fit, and nothing about federation."""

    task: Task
    recipe: Recipe
    stream: tuple[int, ...] = (0,)  # (seed, round, client): every generator is derived from it and a purpose
    module: nn.Module = field(default=None)  # type: ignore[assignment]  # shared by the benches of one worker
    gradients: int = 0  # sample-gradients computed so far
    threads: int = 1  # chunks of rows judged at a time; each on one thread, so that bits do not depend on it

    def __post_init__(self) -> None:
        if self.module is None:
            self.module = made(self.task)

    @property
    def trainable(self) -> list[str]:
        """The names of the parameters, without buffers: what gradients, updates and masks are about."""
        return [name for name, _ in self.module.named_parameters()]

    def parameters(self, params: Params) -> Params:
        """What is trained, without buffers."""
        return pick(params, self.trainable)

    def buffers(self, params: Params) -> Params:
        """What is not trained: running statistics."""
        trained = set(self.trainable)
        return {name: part for name, part in params.items() if name not in trained}

    def generator(self, purpose: str) -> torch.Generator:
        return torch.Generator().manual_seed(derived_seed(*self.stream, purpose))

    def init(self, seed: int) -> Params:
        """The initial parameters of this seed, the same for every method and client."""
        with seeded(derived_seed(seed, "init")):
            return snapshot(self.task.model())

    def fit(self, params: Params, data: Examples, **options: Unpack[Options]) -> Params:
        """The parameters after some epochs over the rows, with an optimiser of their own."""
        return self.fit_from(params, {}, data, **options)[0]

    def fit_from(
        self,
        params: Params,
        moments: Tree,
        data: Examples,
        *,
        loss: Loss | None = None,
        grad: Callable[[str, Tensor], Tensor] | None = None,
        recipe: Recipe | None = None,
        only: Callable[[str], bool] | None = None,
        module: nn.Module | None = None,
        purpose: str = "fit",
    ) -> tuple[Params, Tree]:
        """Parameters and optimiser state after some epochs over the rows.

        `moments` is the optimiser's state by parameter name; parameters it does not name start without one.
        """
        recipe, loss = recipe or self.recipe, loss or self.loss
        module = loaded(self.module if module is None else module, params).train()
        named = {n: p for n, p in module.named_parameters() if only is None or only(n)}
        if len(data) == 1 or recipe.batch_size == 1:
            keep_statistics(module)
        with training_only(module, named), seeded(derived_seed(*self.stream, purpose, "layers")):
            stepper = optimizer(recipe.optimizer, named, recipe.lr, recipe.weight_decay, moments)
            for step, batch in enumerate(self.batches(data, recipe, purpose), 1):
                value = loss(module, batch)
                if not math.isfinite(value.item()):
                    raise Diverged(f"step {step}: the loss is {value.item()}")
                value.backward()  # type: ignore[no-untyped-call]
                for name, parameter in named.items() if grad else ():
                    if parameter.grad is not None:
                        parameter.grad = grad(name, parameter.grad)  # type: ignore[misc]
                stepper.step()
                self.gradients += len(batch.y)
        return finite(snapshot(module), self.steps(data, recipe)), {**moments, **stepper.moments()}

    def loss(self, module: nn.Module, batch: Batch) -> Tensor:
        return self.task.loss(module(batch.x), batch.y)

    def batches(self, data: Examples, recipe: Recipe | None = None, purpose: str = "fit") -> Iterator[Batch]:
        recipe, rng = recipe or self.recipe, self.generator(purpose)
        for _ in range(recipe.epochs):
            order = torch.randperm(len(data), generator=rng)
            for rows in torch.split(order, batch_sizes(len(data), recipe.batch_size)):
                yield Batch(take(data.x, rows), data.y[rows], rows)

    def steps(self, data: Examples, recipe: Recipe | None = None) -> int:
        """How many optimiser steps a fit takes."""
        recipe = recipe or self.recipe
        return recipe.epochs * len(batch_sizes(len(data), recipe.batch_size))

    def logits(self, params: Params, data: Examples) -> Tensor:
        """The model's outputs in evaluation mode, (rows, classes)."""
        return self._forward(loaded(self.module, params), data)

    def features(self, params: Params, data: Examples) -> Tensor:
        """What the model's body hands to its head, in evaluation mode, (rows, width)."""
        module = loaded(self.module, params)
        return self._forward(module.eval().body, data)  # type: ignore[arg-type]

    def _forward(self, module: nn.Module, data: Examples) -> Tensor:
        module.eval()
        chunks = torch.split(torch.arange(len(data)), CHUNK)

        @torch.no_grad()  # a thread's own
        def outputs(rows: Tensor) -> Tensor:
            return module(take(data.x, rows))  # type: ignore[no-any-return]

        if self.threads == 1 or len(chunks) == 1:
            return torch.cat([outputs(rows) for rows in chunks])
        with ThreadPoolExecutor(self.threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            return torch.cat(list(pool.map(outputs, chunks)))

    @torch.no_grad()
    def update_bn(self, params: Params, data: Examples) -> Params:
        """The parameters with batch-norm statistics estimated on these rows, on 1,024 of them at most.

        Statistics kept during training lag behind the parameters, and belong to another model where a method
        changes parameters afterwards. A model without batch norm, or a single row, changes nothing.
        """
        module = loaded(self.module, params).eval()
        layers = [layer for layer in module.modules() if isinstance(layer, _BatchNorm)]
        rows = torch.randperm(len(data), generator=self.generator("statistics"))[:BN_ROWS]
        if not layers or len(rows) < 2:
            return params
        momenta = [layer.momentum for layer in layers]
        try:
            for number, batch in enumerate(torch.tensor_split(rows, math.ceil(len(rows) / BN_BATCH)), 1):
                for layer in layers:
                    layer.train().momentum = 1 / number  # the mean over all batches so far
                module(take(data.x, batch))
            return snapshot(module)
        finally:
            for layer, momentum in zip(layers, momenta, strict=True):
                layer.momentum = momentum

    def accuracy(self, params: Params, data: Examples) -> float:
        return accuracy(self.logits(params, data), data.y)

    def risk(self, params: Params, data: Examples) -> float:
        """The mean loss."""
        return float(self.task.loss(self.logits(params, data), data.y))


def accuracy(logits: Tensor, y: Tensor) -> float:
    return float((logits.argmax(1) == y).double().mean())


def batch_sizes(rows: int, size: int) -> list[int]:
    """Full batches and a short last one; a last single row joins its neighbour, for batch norm's sake.

    >>> batch_sizes(70, 32), batch_sizes(65, 32), batch_sizes(1, 32), batch_sizes(0, 32)
    ([32, 32, 6], [32, 33], [1], [])
    """
    sizes = [size] * (rows // size) + [rows % size] * (rows % size > 0)
    if len(sizes) > 1 and sizes[-1] == 1 < size:
        sizes[-2:] = [size + 1]
    return sizes


def keep_statistics(module: nn.Module) -> None:
    """One row of plain features has no spread to normalise by: such layers use their running statistics."""
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm1d):
            layer.eval()


def made(task: Task) -> nn.Module:
    """A model object to load values into, its convolutions in the layout the images have.

    That layout halves the time of a training step.
    """
    with seeded(0):
        return task.model().to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def loaded(module: nn.Module, params: Params) -> nn.Module:
    """The module, holding a copy of these values; counters of batches, which are none, begin anew.

    With momentum=None batch norm's running statistics depend on them, and a module serves many clients.
    """
    with torch.no_grad():
        for name, tensor in module.state_dict().items():
            if tensor.is_floating_point():
                tensor.copy_(params[name])
            elif name.endswith("num_batches_tracked"):
                tensor.zero_()
    return module


def finite(params: Params, step: int) -> Params:
    """The values, if the last step left them finite; its loss was computed before it."""
    if not all(bool(torch.isfinite(part).all()) for part in params.values()):
        raise Diverged(f"step {step}: a parameter is not finite after it")
    return params


def snapshot(module: nn.Module) -> Params:
    """A copy of the module's values."""
    floating = {n: t for n, t in module.state_dict().items() if t.is_floating_point()}
    return {n: t.clone(memory_format=torch.contiguous_format) for n, t in floating.items()}
