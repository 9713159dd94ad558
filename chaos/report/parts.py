"""Pieces that several parts of a report are made of."""

from collections.abc import Iterable, Sequence

from chaos.report.html import Html, join, tag
from pipeline.history.results import Verdict


def section(title: str, *children: object) -> Html:
    """Return a part of the page under its title."""
    return tag("section", tag("h2", title), *children)


def card(*children: object) -> Html:
    """Return a box."""
    return tag("div", *children, class_="card")


def note(text: str) -> Html:
    """Return a line that explains."""
    return tag("p", text, class_="note")


def folded(title: object, *children: object, open_: bool = False) -> Html:
    """Return what is shown when its title is touched."""
    return tag("details", tag("summary", title), *children, open=open_)


def chip(verdict: Verdict, words: str = "") -> Html:
    """Return a verdict in its colour, named otherwise where `words` are given."""
    return tag("span", words or verdict, class_=f"chip {verdict}")


def pairs_list(pairs: Iterable[tuple[str, object]]) -> Html:
    """Return names with their values."""
    return tag("dl", *(join(tag("dt", key), tag("dd", value)) for key, value in pairs), class_="facts")


def table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], ids: Sequence[str] = (), about: Sequence[bool] = ()
) -> Html:
    """Return a table; `ids` name its rows. On a phone its rows become blocks, where an empty cell ("") is left out.

    One with `about`, which marks some rows, is for comparing them: it stays a table, and a phone scrolls it sideways.
    """
    head = tag("thead", tag("tr", *(tag("th", column) for column in columns)))
    body = []
    for place, row in enumerate(rows):
        cells = (
            tag("td", None if cell == "" else tag("span", cell), data_label=column)
            for column, cell in zip(columns, row, strict=True)
        )
        marked = "about" if about and about[place] else None
        body.append(tag("tr", *cells, id_=ids[place] if ids else None, class_=marked))
    if about:
        return tag("div", tag("table", head, tag("tbody", *body)), class_="scroll")
    return tag("table", head, tag("tbody", *body), class_="fold")
