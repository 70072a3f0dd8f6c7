"""A report of one of the paper's tables shows what was published beside ours."""

from __future__ import annotations

import html
import re
from dataclasses import replace

from small_comparison import as_if

from fedakd import report
from fedakd.compare.results import Results
from fedakd.paper.forms import terminal
from fedakd.paper.tables import subtables


def test_published_numbers_are_on_the_page_of_a_table(results: Results):
    ours = replace(as_if(results, dataset="fashion-mnist"), table="table1")
    page = html.unescape(report.html(ours))
    part = page[page.index('id="published"') :]
    blocks = [block for one in subtables(ours, "table1") for block in terminal(one)]
    assert len(blocks) == 3
    for block in blocks:
        assert block.title in part
        assert all(cell in part for row in block.forms[0][1] for cell in row)
    assert re.search(r"\(88\.1, [+-]\d", part), "Standalone's published maximum under POW, and the difference"


def test_a_comparison_of_ones_own_has_nothing_published(results: Results):
    assert 'id="published"' not in report.html(results)


def test_the_page_tells_who_is_ahead_over_all_settings(results: Results):
    page = html.unescape(report.html(results))
    assert "average client accuracy: Mean ranks over 2 columns" in page
    assert "CF: In one column: with" in page
