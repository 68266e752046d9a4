"""Jobs that draw the evidence for a score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from service.evidence.pairs import PairQuery, draw_pair, drawing_version, find_pair
from service.work.job import Job, JobLane
from service.work.worker import Worker


class DrawnEvidence(NamedTuple):
    """A drawing of evidence.

    Attributes:
        version: another one as soon as the drawing is another.
        png: None for a client that has this version.
    """

    version: str
    png: bytes | None


@dataclass(frozen=True)
class DrawEvidence(Job[DrawnEvidence]):
    """Draw the evidence for a text and a photo.

    Attributes:
        query: one of the two.
        item_id: the other, of the index.
        known: versions that the client has.
    """

    query: PairQuery
    item_id: str
    known: frozenset[str] = frozenset()

    @property
    def lane(self) -> JobLane:
        """Drawings wait with the smaller photos."""
        return "picture"

    def run(self, worker: Worker) -> DrawnEvidence:
        """Return it as a PNG file."""
        engine = worker.engine()
        searcher = engine.searcher
        pair = find_pair(searcher, self.query, self.item_id, engine.photos_root)
        version = drawing_version(searcher, pair)
        if version in self.known:
            return DrawnEvidence(version, None)
        encoded = worker.encode(searcher, pair.query)
        return DrawnEvidence(version, draw_pair(searcher, pair, encoded, worker.memory))
