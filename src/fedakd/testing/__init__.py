"""Laws that every method obeys, for those who write one.

In one call, with every broken law in the message of one error:

    from fedakd.testing import check_method

    check_method(MyMethod())

or, with pytest, as one test for each law:

    from fedakd.testing import CHECKS

    @pytest.mark.parametrize("check", CHECKS)
    def test_my_method(check):
        check(MyMethod())

Federations are made here, from seeds; nothing is downloaded, and a method takes some seconds.
"""

from __future__ import annotations

from fedakd.testing.check import Check
from fedakd.testing.report import ConformanceError, Violation
from fedakd.testing.suite import CHECKS, check_method

__all__ = ["CHECKS", "Check", "ConformanceError", "Violation", "check_method"]
