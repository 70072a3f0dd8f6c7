"""Where a network's hidden units come out, what can be done to them there, and which tensors are theirs."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from fedakd.errors import PlanError
from fedakd.examples import Examples
from fedakd.models.cnn import ConvNormPool
from fedakd.training import Bench
from fedakd.trees import Params

Change = Callable[[Tensor], Tensor]
MAKERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, ConvNormPool)
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
# activations that make 0 of 0: a unit whose incoming parameters are zero is then silent by itself
FINISHERS = (nn.ReLU, nn.Tanh, nn.GELU, nn.LeakyReLU, nn.ELU, nn.SiLU, ConvNormPool)
POOLS = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d)
FOLLOWERS = (*NORMS, *FINISHERS, *POOLS, nn.Dropout, nn.Identity)  # keep units apart, and in dimension 1


@dataclass(frozen=True)
class Layer:
    """Hidden units that come out of one place: filters of a convolution, or neurons."""

    out: str  # the submodule whose output holds them, after batch norm and activation; units are dimension 1
    units: int
    incoming: tuple[str, ...]  # the submodules whose tensors have one entry, or row, for each unit


def hidden(module: nn.Module) -> list[Layer]:
    """The layers of hidden units in a model's body, in the order of its submodules.

    A convolution or linear layer counts with the batch norm and activation that follow it. Layers of other
    kinds (recurrent ones, say) are passed over, and so are a linear layer without activation, one whose
    activation makes something of nothing (a sigmoid), and submodules that occur twice.
    """
    body = getattr(module, "body", None)
    steps = list(_steps(body, "body")) if isinstance(body, nn.Module) else []
    times = Counter(id(part) for _, part in steps)
    groups: list[list[tuple[str, nn.Module]]] = [[]]  # a maker and its followers; empty after a stranger
    for name, part in steps:
        once = times[id(part)] == 1
        if once and isinstance(part, MAKERS):
            groups.append([(name, part)])
        elif once and isinstance(part, FOLLOWERS) and groups[-1]:
            groups[-1].append((name, part))
        else:
            groups.append([])
    return [_layer(group) for group in groups if any(isinstance(part, FINISHERS) for _, part in group)]


def _steps(module: nn.Module, path: str) -> Iterator[tuple[str, nn.Module]]:
    """Submodules in order, each block that is one step as a whole; one that occurs twice is there twice."""
    parts = {} if isinstance(module, ConvNormPool) else module._modules
    if not parts:
        yield path, module
    for name, part in parts.items():
        if part is not None:
            yield from _steps(part, f"{path}.{name}")


def _layer(group: list[tuple[str, nn.Module]]) -> Layer:
    name, maker = group[0]
    norms = [step for step, part in group if isinstance(part, NORMS)]
    # a batch norm behind the activation would make something of silence: it belongs to the units too
    out = [step for step, part in group if isinstance(part, (*FINISHERS, *NORMS))][-1]
    if isinstance(maker, ConvNormPool):
        return Layer(out, maker.conv.out_channels, (f"{name}.conv", f"{name}.norm", *norms))
    return Layer(out, len(maker.weight), (name, *norms))  # type: ignore[arg-type]


@contextmanager
def changed(module: nn.Module, changes: Mapping[str, Change]) -> Iterator[nn.Module]:
    """The outputs of these submodules are changed on their way, while this lasts."""
    handles = []
    try:
        for name, change in changes.items():
            handles.append(module.get_submodule(name).register_forward_hook(_hook(change)))
        yield module
    finally:
        for handle in handles:
            handle.remove()


def _hook(change: Change) -> Callable[[nn.Module, object, Tensor], Tensor]:
    return lambda _module, _inputs, output: change(output)


def silenced(mask: Tensor) -> Change:
    """Units whose entry in the mask is 0 say 0, whatever comes in, and learn nothing; `mask`: (units,)."""
    dropped = mask == 0
    # not masked_fill, which forgets the layout of images; not a product, which makes nan of infinity
    return lambda output: torch.where(dropped.view(1, -1, *[1] * (output.dim() - 2)), 0.0, output)


# From here on a mask is about the units of all layers, one layer after another.


def silencing(module: nn.Module, mask: Tensor) -> dict[str, Change]:
    """What `changed` needs to silence these units; layers that keep all of theirs are left alone."""
    layers = hidden(module)
    parts = torch.split(mask, [layer.units for layer in layers])
    return {layer.out: silenced(part) for layer, part in zip(layers, parts, strict=True) if not part.all()}


def owners(module: nn.Module) -> Params:
    """The tensors that have a row for each unit of a layer (weights, batch norm): whose each row is."""
    owned: Params = {}
    first = 0
    for layer in hidden(module):
        for path in layer.incoming:
            for name, tensor in module.get_submodule(path).state_dict().items():
                if tensor.is_floating_point():
                    owned[f"{path}.{name}"] = torch.arange(first, first + layer.units)
        first += layer.units
    return owned


def check(bench: Bench, params: Params, data: Examples) -> None:
    """Refuses a model in which units without their parameters are not silent: in a residual sum, say."""
    layers, owned, rows = hidden(bench.module), owners(bench.module), data[torch.arange(min(len(data), 8))]
    for layer in layers:
        own = half_of(layer.units)
        mask = torch.cat([own if one is layer else torch.ones(one.units) for one in layers])
        whole, cut = (_said(bench, layer, one, rows) for one in (params, masked(params, owned, mask)))
        apart = whole.dim() > 1 and whole.shape[1] == layer.units
        if not (apart and not cut[:, own == 0].any() and torch.equal(cut[:, own == 1], whole[:, own == 1])):
            raise PlanError(
                f"fedsac: the units of {layer.out} cannot be taken out of the model: what comes out there is "
                f"not made by {' and '.join(layer.incoming)} alone, unit by unit in dimension 1; expected a "
                "body of layers one after another"
            )


def half_of(units: int) -> Tensor:
    """A mask of every second unit, the first of them dropped.

    >>> half_of(3)
    tensor([0., 1., 0.])
    """
    return (torch.arange(units) % 2).float()


def _said(bench: Bench, layer: Layer, params: Params, data: Examples) -> Tensor:
    """What comes out where a layer's units do, in evaluation mode."""
    heard: list[Tensor] = []

    def listen(output: Tensor) -> Tensor:
        heard.append(output)
        return output

    with changed(bench.module, {layer.out: listen}):
        bench.logits(params, data)
    return torch.cat(heard)


def _spread(values: Tensor, owner: Tensor, like: Tensor) -> Tensor:
    """The units' values at the rows they own, in a shape that goes with the tensor's."""
    return values[owner].view(-1, *[1] * (like.dim() - 1))


def masked(params: Params, owners: Params, mask: Tensor) -> Params:
    """The parameters, rows of dropped units zero: even without hooks such units say 0."""
    dropped = {name: _spread(mask == 0, owner, params[name]) for name, owner in owners.items()}
    return {n: torch.where(dropped[n], 0.0, part) if n in dropped else part for n, part in params.items()}


def prefix(shares: Tensor, enough: float, owners: Params, descending: bool = False) -> Tensor:
    """The mask of the first units by their shares that reach so much together, and of every layer's first."""
    order = torch.argsort(shares, descending=descending, stable=True)
    rank = torch.argsort(order)
    mask = (rank <= int((shares[order].cumsum(0) < enough).sum())).float()
    for units in owners.values():  # of one layer
        mask[units[rank[units].argmin()]] = 1.0
    return mask


def mean_of_holders(held: Iterable[tuple[Params, Tensor]], owners: Params, old: Params) -> Params:
    """The mean of every entry over the masked parameters that hold it; the old value where none does."""
    sums = {name: torch.zeros_like(part, dtype=torch.float64) for name, part in old.items()}
    masks = []
    for params, mask in held:
        masks.append(mask)
        for name, total in sums.items():
            total.add_(params[name])
    everyone, holders = torch.tensor(float(len(masks))), torch.stack(masks).double().sum(0)
    counts = {n: _spread(holders, owners[n], part) if n in owners else everyone for n, part in old.items()}
    return {n: torch.where(counts[n] > 0, (sums[n] / counts[n]).to(old[n].dtype), old[n]) for n in old}


def importance(bench: Bench, params: Params, data: Examples) -> Tensor:
    """How much the loss grows without each unit, as shares of the sum, (all units,); alike if nowhere."""
    growth = (losses_without(bench, params, data) - bench.risk(params, data)).clamp(min=0)
    return growth / growth.sum() if growth.any() else torch.ones_like(growth) / len(growth)


def losses_without(bench: Bench, params: Params, data: Examples) -> Tensor:
    """The mean loss without each of the units, (all units,)."""
    bench = replace(bench, threads=1)  # chunks of rows are remembered in their order
    losses = [loss for layer in hidden(bench.module) for loss in _layer_losses(bench, layer, params, data)]
    return torch.tensor(losses, dtype=torch.float64)


def _layer_losses(bench: Bench, layer: Layer, params: Params, data: Examples) -> Iterator[float]:
    silences = [silenced(mask) for mask in 1 - torch.eye(layer.units)]
    body, step = bench.module.body, layer.out.removeprefix("body.")
    if type(body) is not nn.Sequential or step not in body._modules:
        for silence in silences:
            with changed(bench.module, {layer.out: silence}):
                yield bench.risk(params, data)
        return
    rest = _Rest(body, step)
    with changed(bench.module, {layer.out: rest.remember}):
        bench.risk(params, data)
    bench.module.body = rest
    try:
        for silence in silences:
            rest.chunks = map(silence, rest.remembered)
            yield bench.risk(params, data)
    finally:
        bench.module.body = body


class _Rest(nn.Sequential):
    """What follows a step of a sequence, going on from what the step said: that need not be said again."""

    def __init__(self, body: nn.Sequential, step: str) -> None:
        after = list(body._modules).index(step) + 1
        super().__init__(OrderedDict(list(body._modules.items())[after:]))
        self.remembered: list[Tensor] = []
        self.chunks: Iterator[Tensor] = iter(())  # one for each time the model is called

    def remember(self, output: Tensor) -> Tensor:
        self.remembered.append(output)
        return output

    def forward(self, _: Tensor) -> Tensor:
        return super().forward(next(self.chunks))  # type: ignore[no-any-return, no-untyped-call]
