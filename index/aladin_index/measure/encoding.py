"""Measures the ways in which a service can encode queries, and chooses one for each modality."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import cast

import numpy as np

from aladin_index.format.query_encoding import MeasuredWay, QueryEncoding, choose_way
from aladin_index.generations.reader import SearchIndex
from aladin_index.items.tables import StoredItem
from aladin_index.items.uploaded_photos import photo_of
from aladin_index.search.backend import EncodedQuery
from aladin_index.search.options import SearchOptions
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.encoders.readers import PhotoInput
from aladin_network.errors import AladinError
from aladin_network.graphs.threads import compute_threads, set_compute_threads
from aladin_network.graphs.ways import computed_in, ways_of
from aladin_network.inference import Network, encode_images, encode_texts, tokenize
from aladin_network.photos.decoding import DEFAULT_LIMITS, read_image
from aladin_network.scoring.encoding import Encoding
from aladin_network.types import OTHER_TARGET_OF, Modality, NullProgress, Progress, Target, Way

# Most queries that are encoded together, as by a service under load.
_MOST_TOGETHER = 16
# A photo as the network takes it is some megabytes.
MOST_PHOTOS = 50

Inputs = Sequence[str] | Sequence[PhotoInput]
# Id and score of each hit.
Hits = dict[str, float]


class EncodingMeasurement:
    """Encodes queries in every way, and compares times and answers; see `run`."""

    def __init__(
        self, index: SearchIndex, at: int, agreement: float, progress: Progress | None = None
    ) -> None:
        """Take the index whose answers are compared.

        Args:
            index: Open index whose network is on the CPU.
            at: Number of top hits to compare.
            agreement: Share of them that a way other than the first has to keep to be chosen.
            progress: Receives the progress in queries.
        """
        self._index = index
        self._searcher = TwoStageSearcher(index)
        self._at, self._agreement = at, agreement
        self._progress = progress or NullProgress()

    def run(
        self, given: Mapping[Modality, Inputs], count: int
    ) -> tuple[dict[Modality, QueryEncoding], list[str]]:
        """Measure the modalities whose queries this machine can encode in several ways.

        Every query is encoded on its own on one thread, as by a service, in all ways in turn, so
        that other work on the machine meets all of them; then texts are encoded in batches.

        Args:
            given: Queries by modality; missing ones are taken from the index.
            count: Number of queries to take from the index.

        Returns:
            The choice for each measured modality, and sentences about those without queries.
        """
        model = self._index.checkpoint.model
        found: dict[Modality, QueryEncoding] = {}
        warnings: list[str] = []
        threads = compute_threads()
        set_compute_threads(1)  # before the networks are made, which keep it
        try:
            modalities: tuple[Modality, ...] = ("text", "image")
            for modality in modalities:
                ways = ways_of(model, modality)
                if len(ways) == 1:
                    continue
                inputs = given.get(modality) or self._stored(modality, count)
                if not inputs:
                    warnings.append(
                        f"{modality} queries: their encoding was not measured, for the index has "
                        "none to ask with; give --queries"
                    )
                    continue
                networks = {way: computed_in(model, way) for way in ways}
                found[modality] = self._measure(modality, networks, inputs)
        finally:
            set_compute_threads(threads)
        return found, warnings

    def _measure(
        self, modality: Modality, networks: Mapping[Way, Network], inputs: Inputs
    ) -> QueryEncoding:
        encode = _encode_texts if modality == "text" else _encode_photos
        self._progress.start(len(inputs), f"{modality} queries encoded")
        for network in networks.values():
            encode(network, inputs[:1])  # loads its graph
        alone_s: dict[Way, list[float]] = {way: [] for way in networks}
        overlaps: dict[Way, list[float]] = {way: [] for way in networks}
        difference = dict.fromkeys(networks, 0.0)
        for place in range(len(inputs)):
            exact: Hits = {}
            for way, network in networks.items():
                encoding, taken_s = _timed(encode, network, inputs[place : place + 1])
                alone_s[way].append(taken_s)
                hits = self._hits(encoding, modality)
                exact = exact or hits
                kept = exact.keys() & hits.keys()
                overlaps[way].append(len(kept) / len(exact))
                away = (abs(exact[each] - hits[each]) for each in kept)
                difference[way] = max(difference[way], *away, 0.0)
            self._progress.advance()
        batch_ms = _batch_ms(networks, inputs) if modality == "text" else {}
        measured = [
            MeasuredWay(
                way=way,
                alone_ms=1000 * statistics.median(alone_s[way]),
                batch_ms=batch_ms.get(way),
                overlap=statistics.fmean(overlaps[way]),
                difference=difference[way],
            )
            for way in networks
        ]
        return QueryEncoding(
            chosen=choose_way(measured, self._agreement),
            overlap_wanted=self._agreement,
            at=self._at,
            queries=len(inputs),
            measured=measured,
        )

    def _hits(self, encoding: Encoding, modality: Modality) -> Hits:
        held = self._index.manifest.targets
        crossing = OTHER_TARGET_OF[modality]
        target: Target = crossing if crossing in held else held[0]
        query = EncodedQuery(encoding, modality)
        answer = self._searcher.search(query, target, SearchOptions(k=self._at))
        return {hit.id: hit.score for hit in answer.hits}

    def _stored(self, modality: Modality, count: int) -> Inputs:
        """Take texts or photos from a sample of the index's items."""
        model = self._index.checkpoint.model
        if modality == "image":
            return list(self._stored_photos(model, min(count, MOST_PHOTOS)))
        target: Target = "images" if self._index.texts is None else "texts"
        texts = [item.text or "" for item in self._sample(target, count)]
        return [text for text in texts if _is_text(model, text)]

    def _stored_photos(self, model: Network, count: int) -> Iterator[PhotoInput]:
        for item in self._sample("images", count):
            photo = photo_of(self._index.path, item)
            if photo is None:
                continue
            try:
                yield model.image.encoder.preprocess(read_image(photo, DEFAULT_LIMITS))
            except AladinError:  # the file was moved or changed since
                continue

    def _sample(self, target: Target, count: int) -> list[StoredItem]:
        side = self._index.images if target == "images" else self._index.texts
        if side is None:
            return []
        rows = np.random.default_rng(0).permutation(side.entry.count)[:count]
        return side.items.by_rows(np.sort(rows).tolist())


def _is_text(model: Network, text: str) -> bool:
    try:
        tokenize(model, [text], truncate=True)
    except AladinError:
        return False
    return True


def _encode_texts(network: Network, texts: Inputs) -> Encoding:
    return encode_texts(network, cast(Sequence[str], texts), truncate=True)


def _encode_photos(network: Network, photos: Inputs) -> Encoding:
    return encode_images(network, cast(Sequence[PhotoInput], photos))


def _batch_ms(networks: Mapping[Way, Network], texts: Inputs) -> dict[Way, float]:
    """Return the mean time of a text in batches of all sizes, as a service meets them.

    What a runtime prepares for each new shape of a batch counts.
    """
    sizes = np.random.default_rng(0).integers(1, _MOST_TOGETHER, len(texts), endpoint=True)
    taken_s = dict.fromkeys(networks, 0.0)
    count, start = 0, 0
    for size in sizes:
        batch = [str(texts[(start + place) % len(texts)]) for place in range(size)]
        start, count = start + int(size), count + len(batch)
        for way, network in networks.items():
            taken_s[way] += _timed(_encode_texts, network, batch)[1]
        if start >= 2 * len(texts):
            break
    return {way: 1000 * each / count for way, each in taken_s.items()}


def _timed(
    encode: Callable[[Network, Inputs], Encoding], network: Network, inputs: Inputs
) -> tuple[Encoding, float]:
    started_s = time.perf_counter()
    found = encode(network, inputs)
    return found, time.perf_counter() - started_s
