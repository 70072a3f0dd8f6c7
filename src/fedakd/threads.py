"""Work on one thread: sums and products are split among threads, so their last bits depend on the number."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager


@contextmanager
def one_thread() -> Iterator[None]:
    """Everything that torch counts runs on one thread."""
    import torch  # takes a second to import, and drawing rows needs none of it

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def one_blas_thread() -> AbstractContextManager[object]:
    """Everything that numpy multiplies runs on one thread."""
    from threadpoolctl import threadpool_limits

    limits: AbstractContextManager[object] = threadpool_limits(1)
    return limits
