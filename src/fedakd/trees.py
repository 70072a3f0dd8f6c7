"""Arithmetic on named tensors: the vocabulary of every client update and every aggregation."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

import torch
from torch import Tensor

Params: TypeAlias = dict[str, Tensor]  # every floating tensor of a model's state_dict, buffers included
Tree: TypeAlias = dict[str, Any]  # tensors, floats and trees by name: all that is ever sent or kept


def add(a: Params, b: Params, by: float = 1.0) -> Params:
    """a + by * b, on the names of a.

    >>> add({"w": torch.tensor([1.0])}, {"w": torch.tensor([2.0])}, by=0.5)
    {'w': tensor([2.])}
    """
    return {name: torch.add(a[name], b[name], alpha=by) for name in a}


def sub(a: Params, b: Params) -> Params:
    return {name: a[name] - b[name] for name in a}


def mul(a: Params, b: Params) -> Params:
    return {name: a[name] * b[name] for name in a}


def scale(a: Params, by: float) -> Params:
    return {name: part * by for name, part in a.items()}


def zeros(a: Params) -> Params:
    return {name: torch.zeros_like(part) for name, part in a.items()}


def pick(a: Params, names: Iterable[str]) -> Params:
    return {name: a[name] for name in names}


def join(**parts: Params) -> Params:
    """Several trees of tensors in one, told apart by a prefix; `split` takes one out again."""
    return {f"{part}:{name}": leaf for part, tree in parts.items() for name, leaf in tree.items()}


def split(a: Params, part: str) -> Params:
    return {name.removeprefix(f"{part}:"): leaf for name, leaf in a.items() if name.startswith(f"{part}:")}


def move(params: Params, delta: Params, by: float = 1.0) -> Params:
    """The parameters moved by the delta on the names it has; the rest (buffers, say) as they were."""
    return {**params, **add(pick(params, delta), delta, by)}


def mean(trees: Iterable[Params], weights: Iterable[float]) -> Params:
    """The weighted mean, in one pass: memory is that of one tree however many there are.

    Sums are kept in double precision, so that the mean of equal single-precision trees is exactly that tree.
    """
    weights = list(weights)
    if not sum(weights) > 0 or min(weights) < 0:
        raise ValueError(f"weights must be at least 0 with a positive sum, got {weights}")
    sums: Params = {}
    like: Params = {}
    for tree, weight in zip(trees, weights, strict=True):
        if not sums:
            sums = {n: torch.zeros_like(t, dtype=torch.float64) for n, t in tree.items()}
            like = {n: t.new_empty(0) for n, t in tree.items()}
        if weight:  # a weight of 0 means absent, whatever the tree holds
            for name, total in sums.items():
                total.add_(tree[name], alpha=weight)
    return {name: (total / sum(weights)).to(like[name].dtype) for name, total in sums.items()}


def vector(a: Params) -> Tensor:
    """All entries in one row, names sorted, so that trees of the same names give comparable rows."""
    return torch.cat([a[name].reshape(-1) for name in sorted(a)])


def unvector(row: Tensor, like: Params) -> Params:
    names = sorted(like)
    parts = dict(zip(names, torch.split(row, [like[name].numel() for name in names]), strict=True))
    return {name: parts[name].view_as(part) for name, part in like.items()}


def norm(a: Params) -> float:
    return float(torch.linalg.vector_norm(vector(a)))


def clip(a: Params, limit: float) -> Params:
    """Scaled down to the given Euclidean norm where it is longer."""
    length = norm(a)
    return scale(a, limit / length) if length > limit else dict(a)


def cosine(a: Params, b: Params) -> float:
    """The cosine of the angle between two trees; 0 where either is zero."""
    x, y = vector(a).double(), vector(b).double()
    lengths = [torch.linalg.vector_norm(one).clamp_min(1e-10) for one in (x, y)]
    return float(x @ y / (lengths[0] * lengths[1]))


def largest(a: Params, count: int) -> Params:
    """The `count` entries of largest magnitude, zero elsewhere; ties go to the lower index."""
    row = vector(a)
    kept = torch.argsort(row.abs(), descending=True, stable=True)[: max(count, 0)]
    return unvector(torch.zeros_like(row).index_copy_(0, kept, row[kept]), a)


def top(a: Params, fraction: float) -> Params:
    """The largest floor(fraction * D) entries of the whole tree.

    >>> top({"w": torch.tensor([3.0, -4.0, 1.0])}, 0.67)
    {'w': tensor([ 3., -4.,  0.])}
    """
    # the small term keeps exact fractions exact: 0.29 * 100 is 28.999999999999996
    return largest(a, int(fraction * sum(part.numel() for part in a.values()) + 1e-9))


def top_each(a: Params, fraction: float) -> Params:
    """The largest ceil(fraction * entries) of each tensor by itself.

    >>> top_each({"w": torch.tensor([3.0, -4.0, 1.0]), "b": torch.tensor([0.5])}, 0.4)
    {'w': tensor([ 3., -4.,  0.]), 'b': tensor([0.5000])}
    """
    counts = {name: math.ceil(fraction * part.numel() - 1e-9) for name, part in a.items()}
    return {name: largest({name: part}, counts[name])[name] for name, part in a.items()}


def pack(a: Params) -> Tree:
    """A tree of tensors in the shorter of two forms: all entries, or those that are not zero and where."""
    row = vector(a)
    where = row.nonzero().squeeze(1)
    if len(where) * (4 + row.element_size()) >= row.nbytes:
        return {"all": row}
    return {"where": where.to(torch.int32), "what": row[where]}


def unpack(packed: Tree, like: Params) -> Params:
    """The tree that was packed, with the names and shapes of another.

    >>> unpack(pack({"w": torch.tensor([0.0, 0.0, 0.0, 2.0])}), {"w": torch.ones(4)})
    {'w': tensor([0., 0., 0., 2.])}
    """
    if "all" in packed:
        return unvector(packed["all"], like)
    row = torch.zeros_like(vector(like))
    return unvector(row.index_copy_(0, packed["where"].long(), packed["what"]), like)


def leaves(tree: Tree, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every leaf with its path; an empty subtree counts as a leaf, so that nothing is lost."""
    for name, value in tree.items():
        here = f"{path}/{name}" if path else name
        if isinstance(value, dict) and value:
            yield from leaves(value, here)
        else:
            yield here, value


def nbytes(tree: Tree) -> int:
    """The size of a tree's values, 8 bytes a number."""
    return sum(leaf.nbytes if isinstance(leaf, Tensor) else 8 for _, leaf in leaves(tree))


def transform(tree: Tree, change: Callable[[Tensor], Tensor]) -> Tree:
    """The same tree with every tensor changed."""
    return {
        name: transform(value, change)
        if isinstance(value, dict)
        else change(value)
        if isinstance(value, Tensor)
        else value
        for name, value in tree.items()
    }


def equal(a: Tree, b: Tree) -> bool:
    """Same names, same shapes and types, same values; nan is equal to nothing."""
    ours, theirs = dict(leaves(a)), dict(leaves(b))
    return ours.keys() == theirs.keys() and all(_same(ours[name], theirs[name]) for name in ours)


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and bool(torch.equal(a, b))
    return type(a) is type(b) and bool(a == b)
