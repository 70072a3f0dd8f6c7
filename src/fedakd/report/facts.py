"""What the numbers are of: rows, rounds, models, and the words of the page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean

from fedakd.compare.results import Setting
from fedakd.paper.overall import SUBJECT
from fedakd.report import audit
from fedakd.summary import named

WORDS = {
    "Standalone": "every client trains alone, with its own rows: the reference.",
    "gain": "what a client's accuracy wins by joining, in percentage points, against training alone.",
    "CF": "collaborative fairness, 100 times the correlation of the clients' accuracies alone and after "
    "joining. A method that changes nothing has 100, so it is read beside the gains.",
    "pow, bcs, ics": "how rows are given out: sizes by a power law; inputs shifted; both. The number is how "
    "far inputs are shifted.",
    "cla, dir": "clients with more and more classes; classes shared out at random, more evenly the larger "
    "the number.",
    "personal, trained, shared, global": "which model a client would use: its own; the common one after "
    "training at home; that of its group; the common one.",
    "seed": "one repetition with everything drawn anew: rows, first parameters, batches.",
    "passes": "how often gradients were computed for each training row.",
    "preset": "tuned: one recipe for all methods; paper: the recipe of the paper; released: the published "
    "code's protocol, which trains some methods on their test rows.",
    "KL": "how far a client's inputs (x) or labels (y) are from everybody's; 0 is not at all.",
}


def facts_of(settings: Sequence[Setting]) -> str:
    """A line for the head of the page."""
    plans = [setting.plan for setting in settings]
    counts = {
        "setting": len(plans),
        "method": len({method for plan in plans for method in plan.methods}),
        "seed": len({seed for plan in plans for seed in plan.seeds}),
    }
    told = [", ".join(_each(plan.dataset for plan in plans))]
    told += [f"{n} {thing}{'s' if n != 1 else ''}" for thing, n in counts.items()]
    told += [f"preset {', '.join(_each(plan.preset for plan in plans))}"]
    return " · ".join([*told, *_shares(settings)])


def setting_facts(setting: Setting) -> str:
    plan = setting.plan
    seeds = ", ".join(map(str, plan.seeds))
    told = [
        f"{plan.clients} clients{_rows(setting)}",
        _rounds(setting),
        f"seeds {seeds}",
        f"model {plan.model}",
    ]
    return ", ".join([*told, f"preset {plan.preset}", *_shares([setting])])


def judged_models(settings: Sequence[Setting]) -> str:
    """Which model counts, of the methods that have several."""
    rows = [row for setting in settings for row in setting.rows]
    several = {row.method for row in rows if not row.judged}
    told = _each(row.label for row in rows if row.judged and row.method in several)
    return f"Of methods with several models one is judged: {', '.join(told)}." if told else ""


def otherwise(settings: Sequence[Setting]) -> str:
    """What to know before ours are held against published numbers."""
    views = _each(row.view for one in settings for row in one.rows if row.judged and row.method == SUBJECT)
    told = ["Published numbers are of another protocol, and are no target."]
    told += [f"Here: {share}." for share in _shares(settings)]
    if views and views != ["global"]:
        told.append(
            f"{named(SUBJECT)} is judged by its {views[0]} model; the published code judges its global one."
        )
    return " ".join(told)


def _shares(settings: Sequence[Setting]) -> list[str]:
    shares = _each(f"{setting.plan.scale:g}" for setting in settings)
    return [] if shares == ["1"] else [f"{' or '.join(shares)} of the training rows"]


def _rows(setting: Setting) -> str:
    """How many all clients train on, mean over seeds."""
    totals = [
        sum(audit.train_rows(one, k) for k in range(len(one["clients"]))) for one in setting.audits.values()
    ]
    return f" with {fmean(totals):,.0f} training rows in all".replace(",", " ") if totals else ""


def _rounds(setting: Setting) -> str:
    plan = setting.plan
    if plan.equal_time:
        return f"as many rounds as {named(plan.equal_time)} needs time for {plan.rounds}"
    means = {row.method: fmean(row.rounds) for row in setting.rows if row.judged}
    others = [f"{named(name)} {count:g}" for name, count in means.items() if count != plan.rounds]
    return f"{plan.rounds} rounds" + (f" ({', '.join(others)})" if others else "")


def _each(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))
