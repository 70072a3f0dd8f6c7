"""Random streams that depend on what they are for, and on nothing else."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


def derived_seed(*parts: int | str) -> int:
    """A seed that depends on every part; equal parts, equal seed, on every machine."""
    words = [zlib.crc32(part.encode()) if isinstance(part, str) else part for part in parts]
    return int(np.random.SeedSequence(words).generate_state(1, np.uint64)[0] >> 1)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Layers that draw random numbers (dropout, initialisation) draw them from this seed."""
    before = torch.get_rng_state()
    torch.default_generator.manual_seed(seed)  # torch.manual_seed formats a stack trace for each other device
    try:
        yield
    finally:
        torch.set_rng_state(before)
