"""Hits as a sequence, as text and as HTML for notebooks."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest

from aladin_index.search.results import (
    Evidence,
    HitStages,
    SearchAnswer,
    SearchHit,
    Stage,
    TookMs,
)
from aladin_search.hits import Hits

NASTY = "<script>alert(\"x\")</script> & 'y'"


def hit(item_id: str, rank: int = 1, **changes: Any) -> SearchHit:
    """A hit with a photo."""
    values: dict[str, Any] = {
        "id": item_id,
        "rank": rank,
        "score": 1.5,
        "per_word": None,
        "stages": HitStages(match=Stage(rank=1, score=0.5), align=None),
        "uri": "photo.jpg",
        "text": None,
        "metadata": {},
        "evidence": None,
    }
    return SearchHit(**values | changes)


def hits(*found: SearchHit, query: str = "'dog'", **changes: Any) -> Hits:
    """Hits whose photos are three bytes, but "gone" has none."""
    values: dict[str, Any] = {
        "hits": list(found),
        "reranked": True,
        "fusion": 0.5,
        "candidates": 10,
        "generation": 1,
        "degraded": [],
        "took_ms": TookMs(decode=0, encode=0, retrieve=0, rerank=0, total=0),
    }
    answer = SearchAnswer(**values | changes)
    return Hits(query, answer, lambda item_id: None if item_id == "gone" else b"jpg")


class Page(HTMLParser):
    """Collects the elements and the text of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def test_hits_are_a_sequence_and_a_table() -> None:
    found = hits(hit("a", text="a dog"), hit("b", 2))
    assert (len(found), found[1].id, found.ids) == (2, "b", ["a", "b"])
    assert [each.id for each in found[1:]] == ["b"]
    assert hit("b", 2) in found
    assert repr(found) == "2 hits for 'dog'\n   1    1.500  a  a dog\n   2    1.500  b"


def test_a_notebook_shows_photos_inline() -> None:
    page = Page(hits(hit("a"), hit("gone", 2))._repr_html_())
    pictures = [attributes for tag, attributes in page.tags if tag == "img"]
    assert [picture["src"] for picture in pictures] == ["data:image/jpeg;base64,anBn"]
    assert "the photo's file was not found" in page.text
    assert "2 hits for 'dog'" in page.text


@pytest.mark.parametrize("place", ["id", "text", "query", "token"])
def test_nothing_of_an_item_becomes_html(place: str) -> None:
    word = Evidence(token=NASTY, start=0, end=1, region=0, box=None, score=0.25, share=1.0)
    found = {
        "id": hits(hit(NASTY)),
        "text": hits(hit("a", text=NASTY)),
        "query": hits(hit("a"), query=NASTY),
        "token": hits(hit("a", evidence=[word])),
    }[place]
    html = found._repr_html_()
    page = Page(html)
    assert {tag for tag, _ in page.tags} <= {"div", "p", "figure", "img", "br", "b", "small", "em"}
    assert NASTY in page.text.replace("\xa0", " ")
    assert not re.search(r"<script|href|https?:", html)


def test_probabilities_are_shown_only_if_they_are_reliable() -> None:
    likely = hit("a", probability=0.62)
    assert "62% likely" in Page(hits(likely, probabilities_reliable=True)._repr_html_()).text
    assert "likely" not in hits(likely, probabilities_reliable=False)._repr_html_()
    none = hits(likely, probabilities_reliable=True, no_match=True)
    assert none.no_match
    assert "nothing is likely to match" in none._repr_html_()
    assert not hits(likely, no_match=None).no_match
