"""A summary as text: the tables on the screen and in `summary.md`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median, stdev

from fedakd.audit import LEGEND, Audit, blocks
from fedakd.experiment import Cell
from fedakd.fairness import Fairness, Spread
from fedakd.plan import CONVERGED, REFERENCE, Plan, is_reference
from fedakd.summary import Row, named, reference_row, shifted

ACCURACY = ("method", "average", "max", "min", "gain", "worse off")
FAIRNESS = ("method", "CF", "95 % interval", "Spearman", "Jain", "Gini")
COST = ("method", "passes a round", "MB up a round", "MB down a round", "seconds a round")
CLIENTS = "Accuracy alone, and what each client gains by joining"
FEW = 4  # models whose gains fit beside each other with their intervals
NOTE = (
    "Accuracies and gains in percentage points, mean ± standard deviation over seeds. CF is 100 times the "
    "Pearson correlation with Standalone, so it is read together with the gains. "
    "*: of a method's models, the one it is judged by. "
    "~: not converged: the last rounds still gained 0.5 points or more. "
    "!: judged on fewer effective test rows than the rule asks, by force."
)


def starred(row: Row) -> str:
    star = "*" if row.judged and not is_reference(row.method) else ""
    return f"{row.label}{star} {row.marks}".strip()


def accuracy_table(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Accuracies and gains; where both references were trained, gains against either."""
    first = rows[0].reference
    headers = [*ACCURACY[:4], "gain" if first == "equal-budget" else "gain over converged", ACCURACY[5]]
    lines = [accuracy_line(row) for row in rows]
    if not any(row.method == CONVERGED for row in rows):
        return headers, lines
    second = "budget" if first == "converged" else "converged"
    more = [f"gain over {'equal budget' if second == 'budget' else second}", "worse off"]
    return [*headers, *more], [line + _second(row, second) for line, row in zip(lines, rows, strict=True)]


def _second(row: Row, reference: str) -> list[str]:
    """The gain over the other reference, and how many clients are worse off by it."""
    worse = [getattr(run, f"{reference}_worse_off") for run in row.per_seed]
    if is_reference(row.method) or row.failed or None in worse:
        return ["", ""]
    clients = sum(run.clients for run in row.per_seed)
    return [points(row.spread[f"{reference}_gain"], sign=True), f"{sum(worse)} of {clients}"]


def accuracy_line(row: Row) -> list[str]:
    """Accuracies and gains in percentage points, as text."""
    if row.failed:
        return [starred(row), "failed", *[""] * 4]
    spread = row.spread
    levels = [points(spread[name]) for name in ("average", "maximum", "minimum")]
    if row.method == REFERENCE:
        return [starred(row), *levels, "", ""]
    compared = [one for one in row.per_seed if one.worse_off is not None]
    worse, clients = sum(one.worse_off or 0 for one in compared), sum(one.clients for one in compared)
    told = f"{worse} of {clients}" if compared else "unknown"
    return [starred(row), *levels, points(spread["mean_gain"], sign=True), told]


def fairness_line(row: Row) -> list[str]:
    """Means over seeds, as text."""
    if is_reference(row.method) or row.failed:
        return [starred(row), *[""] * 5]
    cf, low, high, rank, jain, gini = (
        row.spread[name].mean for name in ("cf", "cf_low", "cf_high", "spearman", "jain", "gini")
    )
    interval = "undefined" if math.isnan(low) else f"{low:.0f} to {high:.0f}"
    return [starred(row), plain(cf, 1), interval, plain(rank, 2), plain(jain, 2), plain(gini, 2)]


def cost_lines(cells: Sequence[Cell]) -> list[list[str]]:
    return [[named(method), *map(_amount, own.values())] for method, own in costs(cells).items()]


def _amount(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.2f}"


def costs(cells: Sequence[Cell]) -> dict[str, dict[str, float | None]]:
    """What a round costs: gradients per training row, megabytes that travel, and its time, if known."""
    by_method: dict[str, list[Cell]] = {}
    for cell in cells:
        by_method.setdefault(cell.method, []).append(cell)
    return {method: cost_of(own) for method, own in by_method.items()}


def cost_of(cells: Sequence[Cell]) -> dict[str, float | None]:
    rounds = [record for cell in cells for record in cell.rounds]
    timed = [seconds for cell in cells if not math.isnan(seconds := fmean(r.seconds for r in cell.rounds))]
    return {
        "passes": fmean(r.gradients / max(cell.train_rows, 1) for cell in cells for r in cell.rounds),
        "megabytes_up": fmean(record.bytes_up for record in rounds) / 1e6,
        "megabytes_down": fmean(record.bytes_down for record in rounds) / 1e6,
        # the median of the seeds, since a machine may sleep or be busy in one of them
        "seconds": median(timed) if timed else None,
    }


def client_table(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """What each client gains by joining, the answer to "does it pay for us?": models as columns."""
    reference, others = reference_row(rows), rows[1:]
    cells = [[gain_of(row.per_seed, k) for row in others] for k in range(len(alone(reference)))]
    names = client_names(reference)
    lines = [[names[k], plain(100 * alone(reference)[k], 1), *own] for k, own in enumerate(cells)]
    return ["client", "alone", *(row.label for row in others)], lines


def client_lines(rows: Sequence[Row], digits: int | None = None) -> tuple[list[str], list[list[str]]]:
    """The same with methods as lines, by the model each is judged by; without digits, with intervals."""
    reference, others = reference_row(rows), rows[1:]
    shown = 1 if digits is None else digits
    levels = ["accuracy alone", *(plain(100 * level, shown) for level in alone(reference))]
    lines = [
        [row.label, *(gain_of(row.per_seed, k, digits) for k in range(len(levels) - 1))]
        for row in others
        if row.judged
    ]
    return ["gain of client", *client_names(reference)], [levels, *lines]


def client_names(row: Row) -> list[str]:
    """The clients by number, with a mark where they are judged on too few effective test rows."""
    return [f"{k}{'!' * (k in row.few_test_rows)}" for k in range(len(row.accuracies[0]))]


def alone(reference: Row) -> list[float]:
    """Each client's accuracy without joining, the mean over seeds."""
    return [fmean(of_client) for of_client in zip(*reference.accuracies, strict=True)]


def gain_of(per_seed: Sequence[Fairness], client: int, digits: int | None = None) -> str:
    """One seed: the gain with its 95 % interval, if it has one; several: mean and standard deviation.

    With digits it is the gain alone.
    """
    gains = [one.gains[client] if one.gains else math.nan for one in per_seed]
    if math.isnan(sum(gains)):
        return "unknown" if digits is None else "?"
    if digits is not None:
        return f"{round(100 * fmean(gains), digits) + 0.0:+.{digits}f}"  # + 0.0: no negative nothing
    if len(per_seed) > 1:
        return points(Spread(fmean(gains), stdev(gains), len(gains)), sign=True)
    low, high = (100 * end[client] for end in (per_seed[0].gain_low, per_seed[0].gain_high))
    return f"{100 * gains[0]:+.1f}" + (f" ({low:.1f} to {high:.1f})" if not math.isnan(low) else "")


def points(spread: Spread, sign: bool = False) -> str:
    """A fraction as percentage points, with its standard deviation over seeds."""
    if math.isnan(spread.mean):
        return "unknown"
    shown = f"{100 * spread.mean:{'+' if sign else ''}.1f}"
    return shown if math.isnan(spread.std) else f"{shown} ± {100 * spread.std:.1f}"


def plain(value: float, digits: int) -> str:
    return "undefined" if math.isnan(value) else f"{value:.{digits}f}"


def markdown(
    plan: Plan,
    cells: Sequence[Cell],
    rows: Sequence[Row],
    warnings: Sequence[str],
    audits: Sequence[Audit] = (),
) -> str:
    troubles = [f"- {row.label}: {text}" for row in rows if row.judged for text in row.troubles]
    parts = [
        f"# {plan.title}",
        "\n".join(f"**{warning}**" for warning in [*warnings, *plan.remarks]),
        markdown_table(*accuracy_table(rows)),
        markdown_table(FAIRNESS, [fairness_line(row) for row in rows]),
        NOTE,
        markdown_table(COST[:-1], [line[:-1] for line in cost_lines(cells)]),
        f"{CLIENTS}:",
        markdown_table(*(client_table(rows) if len(rows) <= FEW + 1 else client_lines(rows))),
        "\n".join(f"- {row.verdict}" for row in told(rows)),
        *(shift_tables(shifted(audits)[0]) if shifted(audits) else ()),
        "\n".join(["## What went wrong", "", *troubles]) if troubles else "",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def shift_tables(found: Audit) -> list[str]:
    """How far each client is from the pool, for one seed; the audits have the others."""
    title = f"Shift of the clients, {found.partition}, seed {found.seed}:"
    parts = [markdown_table(headers, rows[:-1]) for headers, rows in blocks(found)[1:]]  # no total
    return [title, *parts, f"{LEGEND[0].upper()}{LEGEND[1:]}."]


def told(rows: Sequence[Row]) -> list[Row]:
    """The rows that get a sentence: all where there are few, else one for each method."""
    return [row for row in rows if row.judged or len(rows) <= FEW + 1]


def markdown_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = (headers, ["---"] * len(headers), *rows)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
