"""What goes over the wire comes back to the bit, and what is not a tree is told so."""

from __future__ import annotations

import math
import struct
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from fedakd import wire
from fedakd.errors import FedakdError
from fedakd.trees import Tree, leaves
from fedakd.wire import WireError

DTYPES = [torch.float32, torch.float64, torch.int64, torch.bool, torch.uint8]
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="/="), min_size=1, max_size=8)


def stored(a: Tensor) -> bytes:
    """The entries in order, as bytes."""
    return a.detach().contiguous().numpy().tobytes()


def same(a: Any, b: Any) -> bool:
    """Equal in structure, types, shapes and bits, nan and -0.0 included; written apart from trees.equal."""
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[name], b[name]) for name in a)
    if isinstance(a, Tensor):
        return isinstance(b, Tensor) and (a.dtype, a.shape, stored(a)) == (b.dtype, b.shape, stored(b))
    return type(b) is float and struct.pack("d", a) == struct.pack("d", b)


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    dtype = draw(st.sampled_from(DTYPES))
    shape = draw(st.lists(st.integers(0, 3), max_size=4))
    count = math.prod(shape)
    noise = torch.tensor(draw(st.lists(st.integers(0, 255), min_size=8, max_size=8)), dtype=torch.uint8)
    if dtype is torch.bool:
        return (noise > 127).repeat(count // 8 + 1)[:count].view(shape)
    return noise.view(dtype).repeat(count // (8 // dtype.itemsize) + 1)[:count].view(shape)


TREES = st.recursive(
    tensors() | st.floats(), lambda inside: st.dictionaries(NAMES, inside, max_size=4), max_leaves=12
).map(lambda drawn: drawn if isinstance(drawn, dict) else {"leaf": drawn})


@settings(max_examples=200, deadline=None)
@given(TREES)
def test_every_tree_survives_the_wire(tree: Tree) -> None:
    assert same(tree, wire.loads(wire.dumps(tree)))


@settings(max_examples=50, deadline=None)
@given(TREES)
def test_unflatten_undoes_flatten(tree: Tree) -> None:
    arrays, numbers = wire.flatten(tree)
    assert all(isinstance(value, float) for value in numbers.values())
    assert same(tree, wire.unflatten(arrays, numbers))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -0.0, 0.0, 5e-324, 1 / 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_special_numbers_survive(value: float, dtype: torch.dtype) -> None:
    tree = {"number": value, "tensor": torch.tensor([value, 1.0], dtype=dtype), "one": torch.tensor(value)}
    assert same(tree, wire.loads(wire.dumps(tree)))


def test_whole_numbers_arrive_as_floats() -> None:
    assert same({"n": 3.0, "yes": 1.0}, wire.loads(wire.dumps({"n": 3, "yes": True})))


def layouts() -> dict[str, Tree]:
    base = torch.arange(120.0).view(2, 3, 4, 5)
    return {
        "not contiguous": {"a": base.transpose(0, 3), "b": base[:, ::2]},
        "channels_last": {"a": base.contiguous(memory_format=torch.channels_last)},
        "aliases": {"a": base, "b": base, "c": {"d": base.view(-1), "e": base.view(6, 20)}},
        "views into one storage": {
            "a": base[0],
            "b": base[1],
            "c": base.view(-1)[5:9],
            "d": base.view(-1)[:0],
        },
        "overlapping": {"a": base.view(-1)[:7], "b": base.view(-1)[3:10]},
        "expanded": {"a": torch.ones(1, 3).expand(4, 3), "b": torch.tensor(2.0).expand(2)},
        "empty": {"a": torch.zeros(0), "b": torch.zeros(0), "c": torch.zeros(3, 0, 2)},
        "parameters": {"a": torch.nn.Parameter(base), "b": (base * 1).requires_grad_() * 2},
    }


@pytest.mark.parametrize("kind", layouts())
def test_values_survive_however_they_lie_in_memory(kind: str) -> None:
    tree = layouts()[kind]
    back = wire.loads(wire.dumps(tree))
    assert same(tree, back)
    assert not any(leaf.requires_grad for _, leaf in leaves(back))
    assert not any(leaf.requires_grad for leaf in wire.flatten(tree)[0].values())


def test_a_small_view_is_not_sent_with_its_large_storage() -> None:
    assert len(wire.dumps({"a": torch.zeros(100_000)[:3]})) < 200


def test_writing_changes_nothing_and_what_is_read_is_its_own() -> None:
    base = torch.ones(4)
    tree = {"a": base, "b": base}
    back = wire.loads(wire.dumps(tree))
    back["a"].zero_()
    assert torch.equal(back["b"], torch.ones(4))
    assert torch.equal(base, torch.ones(4))
    assert tree["a"] is tree["b"]


def test_bytes_are_plain_safetensors() -> None:
    tree = {"n": 2.5, "model": {"w": torch.ones(2)}, "empty": {}}
    flat = load_tensors(wire.dumps(tree))
    assert set(flat) == {"n=", "model/w", "empty/="}
    assert float(flat["n="]) == 2.5


@pytest.mark.parametrize("leaf", [None, "text", [1.0], (torch.ones(1),), 1j, {1.0}])
def test_what_is_no_tree_is_refused_with_its_place(leaf: Any) -> None:
    with pytest.raises(
        WireError, match=f"model/w: expected a tensor, a number or a tree, got {type(leaf).__name__}"
    ):
        wire.dumps({"model": {"w": leaf}})


# A name is not checked: it can come back as another tree.
AMBIGUOUS: list[Tree] = [
    {"a/b": 1.0},
    {"a": {"b": 1.0}, "a/b": 2.0},
    {"a/": torch.ones(2)},
    {"a": {"": 1.0}},
    {"": {"a": 1.0}},
    {"w=": torch.ones(())},
    {"w=": torch.ones(2)},
]


@pytest.mark.parametrize("tree", AMBIGUOUS, ids=str)
def test_names_that_would_come_back_different_are_refused(tree: Tree) -> None:
    with pytest.raises(WireError):
        wire.dumps(tree)


def test_names_come_back_sorted() -> None:
    tree = {name: torch.zeros(1) for name in "qwertzuiopasdfghjkl"}
    assert list(wire.loads(wire.dumps(tree))) == sorted(tree)


# Damage

SAMPLE = {"n": 1.0, "model": {"w": torch.arange(6.0), "i": torch.arange(3)}}


@pytest.mark.parametrize("keep", [0, 1, 7, 8, 20, -9, -1])
def test_truncated_bytes_are_refused(keep: int, tmp_path: Path) -> None:
    data = wire.dumps(SAMPLE)[:keep]
    with pytest.raises(WireError, match=f"{len(data)} bytes are not a tree"):
        wire.loads(data)
    (tmp_path / "model.safetensors").write_bytes(data)
    with pytest.raises(WireError, match=r"model\.safetensors: \d+ bytes are not a tree"):
        wire.load(tmp_path / "model.safetensors")


def test_other_files_are_refused_by_name(tmp_path: Path) -> None:
    for number, data in enumerate([b"not a tree at all", b"\xff" * 64, wire.dumps(SAMPLE) + b"more"]):
        path = tmp_path / f"file-{number}"
        path.write_bytes(data)
        with pytest.raises(FedakdError, match=f"file-{number}"):
            wire.load(path)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_damaged_header_gives_a_wire_error_or_a_tree(data: st.DataObject) -> None:
    damaged = bytearray(wire.dumps(SAMPLE))
    header = 8 + int.from_bytes(damaged[:8], "little")
    damaged[data.draw(st.integers(0, header - 1))] = data.draw(
        st.integers(0, 255).filter(lambda b: b != ord("="))
    )
    with suppress(WireError):
        assert isinstance(wire.loads(bytes(damaged)), dict)


@pytest.mark.parametrize("names", [["n="], ["a", "a/b"]])
def test_safetensors_that_are_no_tree_are_refused(names: list[str]) -> None:
    with pytest.raises(WireError):
        wire.loads(save_tensors({name: torch.ones(2) for name in names}))


# Files


@pytest.mark.parametrize("durable", [True, False])
def test_load_undoes_save_and_nothing_else_is_left(durable: bool, tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    wire.save(path, {"old": 1.0}, durable)
    wire.save(path, SAMPLE, durable)
    assert same(SAMPLE, wire.load(path))
    assert [child.name for child in tmp_path.iterdir()] == ["state.safetensors"]


@pytest.mark.parametrize("failing", ["os.fsync", "pathlib.Path.replace"])
def test_a_failed_write_leaves_the_old_file(
    failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state.safetensors"
    wire.save(path, SAMPLE)

    def fail(*_: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(failing, fail)
    with pytest.raises(OSError, match="the disk is full"):
        wire.write(path, b"half of something")
    assert same(SAMPLE, wire.load(path))


def test_a_durable_write_is_on_the_disk_before_it_gets_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    replace = Path.replace

    def named(self: Path, target: Path) -> Path:
        events.append(f"named with {len(self.read_bytes())} bytes")
        return replace(self, target)

    monkeypatch.setattr("os.fsync", lambda _: events.append("synced"))
    monkeypatch.setattr(Path, "replace", named)
    wire.write(tmp_path / "a", b"12345")
    wire.write(tmp_path / "b", b"123", durable=False)
    assert events == ["synced", "named with 5 bytes", "synced", "named with 3 bytes"]


def test_a_file_that_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        wire.load(tmp_path / "nothing")


WRITER = """
import sys
from pathlib import Path
from fedakd.wire import write
for number in range(400):
    write(Path(sys.argv[1]), sys.argv[2].encode() * 3000, durable=False)
"""


def test_several_processes_can_write_one_file(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    both = [subprocess.Popen([sys.executable, "-c", WRITER, str(path), letter]) for letter in "ab"]
    assert [process.wait() for process in both] == [0, 0]
    assert path.read_bytes() in (b"a" * 3000, b"b" * 3000)
    assert [child.name for child in tmp_path.iterdir()] == ["summary.json"]
