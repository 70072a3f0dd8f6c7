"""All that is measured of a federation's shift, in one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedakd.audit import finite
from fedakd.features import FeatureMap, fitted
from fedakd.fitting import Epoch
from fedakd.models.vae import TRAINING
from fedakd.partition import ClientShift
from fedakd.shift.measure import REPEATS, SiteShift, measured
from fedakd.shift.sentences import overall, sentence
from fedakd.shift.sites import Sites
from fedakd.shift.telling import Told, tell_apart

DIMS = {"vae": 100}  # of each kind of features, where nothing is said
USUAL = 10


@dataclass(frozen=True)
class Report:
    """All that was measured."""

    dataset: str
    kind: str
    dims: int
    pool: int  # rows
    sites: tuple[SiteShift, ...]
    told: Told

    def to_dict(self, shifts: Sequence[ClientShift] | None = None) -> dict[str, Any]:
        """Plain values for JSON, with the sentences, and what was asked of the generator, if anything."""
        said = [sentence(site) for site in self.sites] + [overall(self.sites, self.told)]
        asked = [asdict(shift) for shift in shifts] if shifts else None
        plain: dict[str, Any] = finite({**asdict(self), "verdicts": said, "generator": asked})
        return plain


def feature_map(
    sites: Sites,
    kind: str,
    dims: int | None,
    seed: int,
    progress: Callable[[str], None] = lambda what: None,
    cache: Path | None = None,
    epochs: int = TRAINING.epochs,
) -> FeatureMap:
    """Fitted to the sites' pool; `dims` None: as many as are usual for the kind."""
    wanted = DIMS.get(kind, USUAL) if dims is None else dims
    progress(f"fitting {kind} features")

    def tell(epoch: Epoch) -> None:
        progress(f"{kind}: epoch {epoch.number}, validation loss {epoch.validation:.4g}")

    rows, model = (sites.fitting, sites.validation), "cnn" if sites.dataset.x.ndim == 4 else "mlp"
    options: Any = {"dims": wanted, "seed": seed, "progress": tell, "cache": cache, "model": model}
    options["epochs"] = epochs
    return fitted(kind, sites.dataset, *rows, **options)


def report(
    sites: Sites,
    kind: str = "pca",
    *,
    dims: int | None = None,
    seed: int = 0,
    repeats: int = REPEATS,
    progress: Callable[[str], None] = lambda what: None,
    cache: Path | None = None,
) -> Report:
    """Fits the features on the pool and compares every site with it; `cache` keeps what was trained."""
    features = feature_map(sites, kind, dims, seed, progress, cache)
    telling_rng, measuring_rng = np.random.default_rng(seed).spawn(2)
    progress("telling sites apart")
    told = tell_apart(sites, features, telling_rng)
    found = measured(
        sites,
        features,
        told.of_each,
        measuring_rng,
        repeats=repeats,
        progress=lambda name: progress(f"measured site {name}"),
    )
    return Report(sites.dataset.name, kind, found[0].dims, len(sites.pool), found, told)
