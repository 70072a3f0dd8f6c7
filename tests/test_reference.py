"""The page about the methods is what the code says of them today."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedakd import reference
from fedakd.methods import ABLATIONS, METHODS

PAGE = Path(__file__).parent.parent / "docs" / "methods.md"


@pytest.mark.slow
def test_the_page_about_methods_is_up_to_date():
    told = "it is made by: python -m fedakd.reference > docs/methods.md"
    assert PAGE.read_text() == reference.page(), told


@pytest.mark.parametrize("name", [name for name in METHODS if name not in ABLATIONS])
def test_the_page_says_of_each_method_what_its_file_says(name):
    told = "the page is made by: python -m fedakd.reference > docs/methods.md"
    assert reference.section(name, METHODS[name]) in PAGE.read_text(), told


def test_what_a_method_keeps_sends_and_costs_is_measured():
    seen = reference.observed(METHODS["scaffold"])
    server, received, sent, kept, passes, up, down = reference.traffic_line(seen)
    assert server == "`c` 1.0x, `model` 1.0x, `sizes`"
    assert received == "`c` 1.0x, `model` 1.0x"
    assert sent == "`delta_c` 1.0x, `model` 1.0x, `n`"
    assert kept == "`c_k` 1.0x, `trained` 1.0x"
    assert (passes, up, down) == ("1.0", "2.0", "2.0")
    assert reference.judged(seen) == "global (trained)"


def test_a_first_round_that_costs_more_is_told():
    seen = reference.observed(METHODS["fedsac"])
    assert reference.cost(seen, "gradients", seen.rows) == "6.0, then 1.0"
    assert reference.judged(seen) == "personal"


def test_presets_show_where_they_differ():
    lines = reference.field_table("cffl").splitlines()
    assert lines[0] == "| field | orig | paper | released |"
    assert "| `upload` | 0.1 | 0.5 | 0.5 |" in lines
    assert "| `quota_by` | size | – | – |" in lines
    assert "| `restart` | false | – | – |" in reference.field_table("standalone").splitlines()
