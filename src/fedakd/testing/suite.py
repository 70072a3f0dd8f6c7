"""All laws in their order, and the one call that goes through them."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import closing

from fedakd.engine.processes import Workers
from fedakd.errors import FedakdError, unknown
from fedakd.method import Method
from fedakd.testing import bearing, form, outputs, privacy, purity, rows
from fedakd.testing.check import Check, Verdict
from fedakd.testing.report import ConformanceError, account
from fedakd.testing.subject import Subject

CHECKS = tuple(
    check
    for module in (form, bearing, outputs, purity, rows, privacy)
    for check in vars(module).values()
    if isinstance(check, Check) and check.judge.__module__ == module.__name__
)


def check_method(method: Method, *, workers: bool | Workers = True, skip: Collection[str] = ()) -> list[str]:
    """Tries a method on small federations and returns the names of the laws that hold.

    Raises ConformanceError, which tells of every law that is broken, if there is one. `workers=False` leaves
    worker processes and the laws about them out; a pool of workers may be given, to be used for many methods.
    `skip` names laws that are not meant to hold; those that rest on them are judged nevertheless.
    """
    __tracebackhide__ = True
    for name in skip:
        if name not in (known := [check.name for check in CHECKS]):
            raise FedakdError(unknown("law", name, known))
    wanted = [check for check in CHECKS if check.name not in skip]
    with closing(Subject(method, workers)) as subject:
        subject.verdicts |= {name: Verdict([]) for name in skip}
        for check in sorted(wanted, key=lambda check: check.parallel):  # meanwhile workers start
            check.verdict(subject)
        verdicts = {check: check.verdict(subject) for check in wanted}
    if any(verdict.violations for verdict in verdicts.values()):
        raise failure(type(method).__name__, verdicts)
    return [check.name for check, verdict in verdicts.items() if verdict.holds]


def failure(name: str, verdicts: dict[Check, Verdict]) -> ConformanceError:
    """The error that tells of every broken law, and of those of which nothing can be said."""
    broken = {check: verdict for check, verdict in verdicts.items() if verdict.violations}
    parts = [f"{name} breaks {len(broken)} of {len(verdicts)} laws"]
    parts += [account(str(check), verdict.violations) for check, verdict in broken.items()]
    open_ = [
        f"{check.name} ({verdict.unchecked})" for check, verdict in verdicts.items() if verdict.unchecked
    ]
    parts += [f"not checked: {', '.join(open_)}"] if open_ else []
    return ConformanceError("\n\n".join(parts), {c.name: v.violations for c, v in broken.items()})
