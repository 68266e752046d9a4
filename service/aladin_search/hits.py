"""The hits of a search: a sequence, a table in a terminal, photos in a notebook."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from html import escape
from typing import TYPE_CHECKING, overload

if TYPE_CHECKING:
    from aladin_index.search.results import Evidence, SearchAnswer, SearchHit

# Height of the rows of photos in a notebook; the pictures have twice as many pixels for sharp
# screens.
_ROW_PX = 160
THUMBNAIL_PX = 2 * _ROW_PX

_STYLE = (
    "display:inline-block;vertical-align:top;margin:0 8px 12px 0;max-width:320px;"
    "font:13px/1.4 sans-serif"
)


class Hits(Sequence["SearchHit"]):
    """The hits of a search, best first.

    Attributes:
        query: Description of the query, such as its words.
        answer: The complete answer, as the HTTP service returns it: besides the hits whether the
            second stage decided, the probability of any match, and times in ms.
    """

    def __init__(
        self, query: str, answer: SearchAnswer, thumbnail: Callable[[str], bytes | None]
    ) -> None:
        """Wrap an answer.

        Args:
            query: Description of the query.
            answer: Answer of the search.
            thumbnail: Returns a JPEG of an item's photo, or None for a text or a missing photo;
                called when the hits are displayed.
        """
        self.query = query
        self.answer = answer
        self._thumbnail = thumbnail

    @overload
    def __getitem__(self, index: int) -> SearchHit: ...

    @overload
    def __getitem__(self, index: slice) -> list[SearchHit]: ...

    def __getitem__(self, index: int | slice) -> SearchHit | list[SearchHit]:
        """Return a hit by its place from 0, or several."""
        return self.answer.hits[index]

    def __len__(self) -> int:
        """Return the number of hits."""
        return len(self.answer.hits)

    @property
    def ids(self) -> list[str]:
        """Ids of the hits, best first."""
        return [hit.id for hit in self]

    @property
    def no_match(self) -> bool:
        """Whether the index's calibration says that nothing matches; False if it cannot judge."""
        return self.answer.no_match is True

    def __repr__(self) -> str:
        """Return one line for each hit: rank, score, id and text."""
        lines = [f"{len(self)} hits for {self.query}"]
        for hit in self:
            text = f"  {hit.text}" if hit.text and hit.text != hit.id else ""
            lines.append(f"{hit.rank:4}  {hit.score:7.3f}  {hit.id}{text}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Return the hits as HTML without links or scripts; photos are small and inline."""
        figures = "".join(self._figure(hit) for hit in self)
        title = f"{len(self)} hits for {self.query}"
        note = " · nothing is likely to match" if self.no_match else ""
        return f"<div><p>{escape(title + note)}</p>{figures}</div>"

    def _figure(self, hit: SearchHit) -> str:
        picture = self._thumbnail(hit.id)
        parts: list[str] = []
        if picture is not None:
            data = base64.b64encode(picture).decode("ascii")
            parts.append(
                f'<img alt="{escape(hit.text or hit.id)}" src="data:image/jpeg;base64,{data}" '
                f'style="height:{_ROW_PX}px;max-width:100%;object-fit:contain"><br>'
            )
        elif hit.uri is not None:
            parts.append("<em>the photo's file was not found</em><br>")
        parts.append(f"<b>{hit.rank}</b> {escape(hit.id)}")
        if self.answer.probabilities_reliable and hit.probability is not None:
            parts.append(f" · {hit.probability:.0%} likely")
        if hit.text and hit.text != hit.id:
            parts.append(f"<br>{escape(hit.text)}")
        if hit.evidence:
            parts.append(f"<br><small>{_evidence(hit.evidence)}</small>")
        return f'<figure style="{_STYLE}">{"".join(parts)}</figure>'


def _evidence(evidence: Sequence[Evidence]) -> str:
    """Return the words with the cosine of each with its best region."""
    return " ".join(f"{escape(word.token)}&nbsp;{word.score:.2f}" for word in evidence)
