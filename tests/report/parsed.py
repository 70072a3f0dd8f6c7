"""A page read back, and settings with scores made to measure."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

from fedakd.compare.results import Setting
from fedakd.experiment import Cell
from fedakd.plan import RESULTS, resolve
from fedakd.rounds import Round

VOID = {"meta", "link", "input", "img", "br"}


@dataclass
class Shown:
    text: str = ""
    value: float | None = None
    kind: str = ""
    bold: bool = False


@dataclass
class Tag:
    name: str
    attributes: dict[str, str | None]
    inside: tuple[str, ...]
    text: str = ""
    children: list[str] = field(default_factory=list)


class Page(HTMLParser):
    """Every tag in order with the text directly in it, and the tables by their id."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[Tag] = []
        self.tables: dict[str, list[list[Shown]]] = {}
        self._open: list[Tag] = []
        self.feed(html)
        self.close()
        assert not self._open, f"never closed: {[tag.name for tag in self._open]}"

    def handle_starttag(self, name, attrs):
        tag = Tag(name, dict(attrs), tuple(one.name for one in self._open))
        if self._open:
            self._open[-1].children.append(name)
        self.tags.append(tag)
        if name == "table":
            self.rows = self.tables.setdefault(tag.attributes["id"], [])
        elif name == "tr":
            self.rows.append([])
        elif name in ("td", "th"):
            value = tag.attributes.get("data-value")
            self.rows[-1].append(
                Shown("", None if value is None else float(value), tag.attributes.get("class") or "")
            )
        elif name == "strong" and "td" in tag.inside:
            self.rows[-1][-1].bold = True
        if name not in VOID and not self.get_starttag_text().endswith("/>"):
            self._open.append(tag)

    handle_startendtag = handle_starttag

    def handle_endtag(self, name):
        assert self._open[-1].name == name, f"</{name}> closes <{self._open[-1].name}>"
        self._open.pop()

    def handle_data(self, data):
        if self._open:
            self._open[-1].text += data
        if any(tag.name in ("td", "th") for tag in self._open):
            self.rows[-1][-1].text += data

    def all(self, name: str) -> list[Tag]:
        return [tag for tag in self.tags if tag.name == name]

    def table(self, name: str) -> dict[str, dict[str, Shown]]:
        """Row -> column -> cell."""
        headers, *rows = self.tables[name]
        return {row[0].text: dict(zip((one.text for one in headers), row, strict=True)) for row in rows}


def made(levels: dict[str, list[float]], clients: int = 6, **plan) -> Setting:
    """A setting in which a method's clients score its level, a little apart, in each of four rounds."""
    seeds = tuple(range(len(levels["standalone"])))
    cells = tuple(
        Cell(
            name,
            seed,
            [_round(number, own[seed], seed, clients) for number in range(1, 5)],
            600,
            (100,) * clients,
            version=RESULTS,
        )
        for seed in seeds
        for name, own in levels.items()
    )
    fields = {"methods": tuple(levels), "clients": clients, "rounds": 4, "seeds": seeds, **plan}
    asked = resolve(dataset="digits", **fields)
    return Setting(asked, cells, {}, {"fedakd": "1"})


def _round(number: int, level: float, seed: int, clients: int) -> Round:
    scores = {k: level + 0.02 * k + 0.001 * ((seed * k) % 3) for k in range(clients)}
    everyone = list(range(clients))
    return Round(number, everyone, {"personal/accuracy": scores}, None, 600, 1000, 2000, {}, 0.5)
