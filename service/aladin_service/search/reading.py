"""Searches whose words name dates and places: read before they are encoded, told in the answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from aladin_index.search.options import SearchOptions
from aladin_index.search.results import Evidence, SearchAnswer
from aladin_index.search.searcher import TwoStageSearcher
from aladin_index.search.word_filters import ReadText, read_filters
from aladin_network.types import Target
from aladin_service.search.job import Query, TextQuery


@dataclass(frozen=True)
class ReadSearch:
    """A search as it is encoded and run.

    Attributes:
        query: The query, without the words that became filters.
        options: The options, with these filters.
        text: What was read, or None if nothing was.
    """

    query: Query
    options: SearchOptions
    text: ReadText | None = None

    def told(self, answer: SearchAnswer) -> SearchAnswer:
        """Return the answer with what was read; its evidence is of the words as they were typed."""
        if self.text is None:
            return answer
        hits = [
            hit if hit.evidence is None else replace(hit, evidence=self._moved(hit.evidence))
            for hit in answer.hits
        ]
        return replace(answer, hits=hits, read=self.text.read, searched=self.text.rest)

    def _moved(self, evidence: Sequence[Evidence]) -> list[Evidence]:
        assert self.text is not None
        place = self.text.place
        return [
            replace(each, start=place(each.start), end=place(each.end - 1) + 1) for each in evidence
        ]


def read_search(
    searcher: TwoStageSearcher, query: Query, target: Target, options: SearchOptions
) -> ReadSearch:
    """Read the dates and places in the words of a query, if that is asked for, or usual there.

    The name of a file is not read.
    """
    index, wants = searcher.index, options.read_words
    if wants is None:
        wants = index.follows_folders
    if not (wants and isinstance(query, TextQuery) and target in index.manifest.targets):
        return ReadSearch(query, options)
    found = read_filters(query.text, index.known_values(target), options.unread)
    if not found.read or _is_name(searcher, query.text, target):
        return ReadSearch(query, options)
    filters = [options.filter, found.filter()] if options.filter else [found.filter()]
    filter = filters[0] if len(filters) == 1 else {"and": filters}
    return ReadSearch(TextQuery(found.rest), replace(options, filter=filter), found)


def _is_name(searcher: TwoStageSearcher, text: str, target: Target) -> bool:
    words = searcher.index.collection(target).find_words(text)
    return words is not None and 2 in words.levels
