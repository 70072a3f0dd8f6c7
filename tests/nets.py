"""Small networks with hidden units in all kinds of places, for the tests of what can be done to units."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from fedakd.activations import changed, hidden
from fedakd.examples import Examples
from fedakd.models import factory
from fedakd.models.cnn import ConvNormPool
from fedakd.training import Bench, Recipe, Task

CLASSES = 4


class Net(nn.Module):
    """Any body, and a linear head."""

    def __init__(self, body: nn.Module, width: int) -> None:
        super().__init__()
        self.body, self.head = body, nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))  # type: ignore[no-any-return]


class Skipping(nn.Module):
    """Layers that are not called one after another."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.tanh, self.second, self.elu = nn.Linear(64, 5), nn.Tanh(), nn.Linear(5, 5), nn.ELU()

    def forward(self, x: Tensor) -> Tensor:
        early: Tensor = self.tanh(self.first(x.flatten(1)))
        return early + self.elu(self.second(early))  # type: ignore[no-any-return]


class Prepared(Net):
    """What it does with rows before its body sees them is its own affair."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x[:, 0, 1:, 1:] * 3).tanh()


def normed() -> nn.Module:
    return Net(nn.Sequential(nn.Flatten(), nn.Linear(64, 6), nn.BatchNorm1d(6), nn.ReLU()), 6)


def normed_behind() -> nn.Module:
    return Net(nn.Sequential(nn.Flatten(), nn.Linear(64, 6), nn.ReLU(), nn.BatchNorm1d(6)), 6)


def mixed() -> nn.Module:
    """The usual layers in unusual places."""
    conv = nn.Conv2d(1, 3, 3, padding=1, bias=False)
    first = nn.Sequential(conv, nn.MaxPool2d(2), nn.BatchNorm2d(3), nn.LeakyReLU(), nn.Dropout(0.5))
    return Net(nn.Sequential(first, ConvNormPool(3, 5), nn.Flatten(), nn.Linear(20, 7), nn.SiLU()), 7)


NETS: dict[str, Callable[[], nn.Module]] = {
    **{name: factory(name, (1, 8, 8), CLASSES) for name in ("cnn", "cnn2", "cnn3", "mlp", "linear")},
    "normed": normed,
    "normed behind": normed_behind,
    "mixed": mixed,
    "skipping": lambda: Net(Skipping(), 5),
    "prepared": lambda: Prepared(nn.Sequential(nn.Flatten(), nn.Linear(49, 6), nn.GELU()), 6),
}
DIVISIBLE = [name for name in NETS if name != "linear"]
SCALES = [1.0, 1e6, 0.0]  # of images: any input


def used(net: str) -> nn.Module:
    """A model whose every value, batch norm's scale and statistics included, is its own."""
    module = NETS[net]()
    with torch.no_grad():
        for name, tensor in module.state_dict().items():
            if tensor.is_floating_point():
                tensor.copy_(torch.rand_like(tensor) + 0.1 if "var" in name else torch.randn_like(tensor))
    return module


def units(module: nn.Module) -> list[int]:
    """How many there are in each layer."""
    return [layer.units for layer in hidden(module)]


def half(count: int) -> Tensor:
    """A mask that drops units, but not all of them."""
    return (torch.arange(count) % 2 == 0).float()


def bench(module: nn.Module, **recipe: object) -> Bench:
    return Bench(Task(lambda: module), Recipe(batch_size=4, **recipe), module=module)  # type: ignore[arg-type]


def images(count: int = 9) -> Tensor:
    return torch.randn(count, 1, 8, 8)


def rows(count: int = 12) -> Examples:
    return Examples(images(count), torch.randint(0, CLASSES, (count,)))


@torch.no_grad()
def heard(module: nn.Module, x: Tensor) -> list[Tensor]:
    """What comes out of each layer of hidden units."""
    found: list[Tensor] = []

    def listen(output: Tensor) -> Tensor:
        found.append(output)
        return output

    with changed(module, {layer.out: listen for layer in hidden(module)}):
        module(x)
    return found


def hooks(module: nn.Module) -> int:
    return sum(len(part._forward_hooks) for part in module.modules())
