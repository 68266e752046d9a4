"""Fits a bridge on items that both models have encoded, and measures whether it is better.

Half of the sample is searched, the other half fits the bridge that is measured; the one that is
kept is fitted on all. Queries are the captions of the searched photos and their texts, or for texts
the photos that they describe. Without such, the ten items that the new model finds first count as
right, for the texts that the index has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from aladin_index.format.upgrade_methods import MeasuredRecalls, RestMethod
from aladin_index.items.tables import StoredItem
from aladin_index.search.live_collection import LiveCollection
from aladin_index.tokens.maxsim import alignment_with_all
from aladin_index.upgrade.bridge import Bridge, fit_matrix, pair_tokens
from aladin_index.upgrade.methods import ChosenMethod
from aladin_index.upgrade.new_collection import live_rows
from aladin_index.upgrade.sample import ItemVectors, PairedItems, paired_items
from aladin_index.upgrade.successor import SuccessorIndex
from aladin_network.checkpoint_files import Checkpoint
from aladin_network.errors import InputError
from aladin_network.inference import encode_texts
from aladin_network.scoring.encoding import Encoding
from aladin_network.scoring.fusion import DirectionFusion, Fusion
from aladin_network.types import DIRECTION_OF, Modality, Target

T = TypeVar("T")

_AT = 10
_MOST_QUERIES, _LEAST_QUERIES = 500, 20
_LEAST_ITEMS = 64
# Texts of the index that are looked through for those of searched photos.
_MOST_TEXTS = 5000
_DAMPINGS = (1e-3, 1e-2, 1e-1)
# Candidates whose scores the constants of a fusion are of, as in a search by default.
_CANDIDATES = 100


@dataclass(frozen=True, eq=False)
class MeasuredQueries:
    """Queries of one modality, encoded by both models.

    Attributes:
        modality: Modality of the queries.
        old: Encodings by the old model, one item each.
        new: Encodings by the new model.
        right: For each query, the places of the right items among those that are searched; empty
            where the new model's own answers count as right.
    """

    modality: Modality
    old: Sequence[Encoding]
    new: Sequence[Encoding]
    right: Sequence[frozenset[int]]

    @property
    def has_truth(self) -> bool:
        """Whether it is known which items are right."""
        return any(self.right)


def choose_methods(
    successor: SuccessorIndex, queries: Sequence[str] = ()
) -> dict[Target, ChosenMethod]:
    """Fit and measure a bridge for each collection.

    Args:
        successor: What the new model has encoded: at least the samples.
        queries: Texts to measure by; none for the captions and the texts of the index.
    """
    live = successor.live
    samples: dict[Target, PairedItems] = {}
    for target in live.manifest.targets:
        side, encoded = live.side(target), successor.encoded(target)
        rows = live_rows(side)
        sample = rows[encoded.are_encoded(rows)]
        if len(sample):
            samples[target] = paired_items(side, encoded, sample)
    texts = live.side("texts") if "texts" in live.manifest.targets else None
    fusion = live.manifest.fusion(live.checkpoint.fusion)
    models = live.checkpoint, fusion, successor.checkpoint
    chooser = MethodChooser(*models, samples, texts, queries)
    return {target: chooser.choose(target) for target in live.manifest.targets}


class MethodChooser:
    """Chooses the method of each collection by recall."""

    def __init__(
        self,
        old: Checkpoint,
        old_fusion: Fusion,
        new: Checkpoint,
        samples: Mapping[Target, PairedItems],
        texts: LiveCollection | None,
        queries: Sequence[str] = (),
    ) -> None:
        """Measure nothing yet.

        Args:
            old: The old model.
            old_fusion: Fusion of its scores in this index.
            new: The new model.
            samples: Items of each collection that both models have encoded.
            texts: The texts of the index, or None if it has none.
            queries: Texts to measure by, or none for the captions and the texts of the index.
        """
        self._old = old
        self._old_fusion = old_fusion
        self._new = new
        self._samples = samples
        self._texts = texts
        self._given = queries

    def choose(self, target: Target) -> ChosenMethod:
        """Choose the method of one collection: the bridge if its recall is the better one."""
        bridged = self.fit(target)
        if bridged is None:
            return ChosenMethod(RestMethod(method="old"))
        recalls = bridged.rest.recalls
        if recalls is not None and recalls.bridge <= recalls.old:
            return ChosenMethod(RestMethod(method="old", recalls=recalls))
        return bridged

    def fit(self, target: Target) -> ChosenMethod | None:
        """Fit the bridge of one collection, and measure it.

        Returns:
            The bridge, whether or not it is better than the old model, or None if there can be
            none, or it cannot be measured.
        """
        sample = self._samples.get(target)
        if sample is None:
            return None
        # Scores of a corrected index are less than its cosines, by biases of the old model.
        is_possible = sample.old.biases is None
        if not is_possible or len(sample) < _LEAST_ITEMS:
            return None
        order = np.random.default_rng(0).permutation(len(sample))
        fitted, searched = (sample.take(half) for half in np.array_split(order, 2))
        queries = self._queries(target, searched)
        if queries is None:
            return None
        new_scores = self._scores(queries.new, searched.new, queries.modality)
        right = [set(each) for each in queries.right]
        if not queries.has_truth:
            right = [set(each.tolist()) for each in np.argsort(-new_scores, axis=1)[:, :_AT]]
        old_scores = self._old_scores(queries, searched.old)
        measured: dict[float, tuple[float, DirectionFusion]] = {}
        for damping in _DAMPINGS:
            bridge = self._matrices(fitted, target, damping)
            fusion, scores = self._over_bridge(bridge, queries, searched.old)
            measured[damping] = recall_at(scores, right), fusion
        damping = max(measured, key=lambda each: measured[each][0])
        recalls = MeasuredRecalls(
            truth="captions" if queries.has_truth else "agreement",
            queries=len(right),
            items=len(searched),
            new=recall_at(new_scores, right),
            old=recall_at(old_scores, right),
            bridge=measured[damping][0],
        )
        rest = RestMethod(method="bridge", recalls=recalls, fusion=measured[damping][1])
        return ChosenMethod(rest, self._matrices(sample, target, damping))

    def _matrices(self, sample: PairedItems, target: Target, damping: float) -> Bridge:
        embedding = fit_matrix(sample.old.embeddings, sample.new.embeddings, damping, centred=True)
        tokens = None
        if self._is_aligned(self._old, sample.old) and self._is_aligned(self._new, sample.new):
            boxes = [((), ())] * len(sample)
            if target == "images":
                boxes = sample.boxes(self._old.model, self._new.model)
            pairs = pair_tokens(sample.old.each(), sample.new.each(), boxes)
            if pairs is not None:
                # Of several words that a region may fit, a constant is not the same for all.
                tokens = fit_matrix(*pairs, damping, centred=target == "images")
        return Bridge(embedding, tokens)

    def _is_aligned(self, checkpoint: Checkpoint, vectors: ItemVectors) -> bool:
        return checkpoint.alignment_trained and vectors.tokens.stored.count > 0

    def _scores(
        self, queries: Sequence[Encoding], items: ItemVectors, modality: Modality
    ) -> NDArray[np.float32]:
        """Return the scores of the new model, (queries, items)."""
        match = _match(queries, items)
        if not self._is_aligned(self._new, items):
            return match
        align = _align(queries, items, modality)
        return self._new.fusion.of(DIRECTION_OF[modality]).combine(align, match)

    def _old_scores(self, queries: MeasuredQueries, items: ItemVectors) -> NDArray[np.float32]:
        match = _match(queries.old, items)
        if not self._is_aligned(self._old, items):
            return match
        align = _align(queries.old, items, queries.modality)
        return self._old_fusion.of(DIRECTION_OF[queries.modality]).combine(align, match)

    def _over_bridge(
        self, bridge: Bridge, queries: MeasuredQueries, items: ItemVectors
    ) -> tuple[DirectionFusion, NDArray[np.float32]]:
        """Return the fusion of scores over a bridge, and the scores, (queries, items)."""
        fusion = self._new.fusion.of(DIRECTION_OF[queries.modality])
        asked = [bridge.query(each, items.tokens.codec.dim) for each in queries.new]
        match = _match(asked, items)
        if bridge.tokens is None:
            return fusion, match
        align = _align(asked, items, queries.modality)
        fusion = bridged_fusion(fusion, align, match)
        return fusion, fusion.combine(align, match)

    def _queries(self, target: Target, searched: PairedItems) -> MeasuredQueries | None:
        """Return the queries that the searched items are measured by, or None without any."""
        if target == "texts":
            return self._photos_of(searched)
        others: list[tuple[str, int | None]] = [(text, None) for text in self._given]
        if self._given:
            return self._encoded_texts(others)
        place_of = {item.id: place for place, item in enumerate(searched.items)}
        known: list[tuple[str, int | None]] = [
            (item.text, place) for place, item in enumerate(searched.items) if item.text
        ]
        for item in self._some_texts():
            place = place_of.get(item.image_id or "")
            if place is not None:
                known.append((item.text or "", place))
            elif item.text:
                others.append((item.text, None))
        return self._encoded_texts(known if len(known) >= _LEAST_QUERIES else others)

    def _encoded_texts(self, texts: Sequence[tuple[str, int | None]]) -> MeasuredQueries | None:
        """Encode some of the texts by both models; with each, the place of its right item."""
        chosen = _some(np.random.default_rng(1), texts)
        asked: list[tuple[Encoding, Encoding, frozenset[int]]] = []
        for text, place in chosen:
            try:
                old = encode_texts(self._old.model, [text])
                new = encode_texts(self._new.model, [text])
            except InputError:  # longer than one of the models takes
                continue
            asked.append((old, new, frozenset(() if place is None else (place,))))
        return _as_queries("text", asked)

    def _photos_of(self, searched: PairedItems) -> MeasuredQueries | None:
        """Return the sampled photos that the searched texts describe."""
        photos = self._samples.get("images")
        if photos is None:
            return None
        texts_of: dict[str, set[int]] = {}
        for place, item in enumerate(searched.items):
            texts_of.setdefault(item.image_id or "", set()).add(place)
        described = [p for p, item in enumerate(photos.items) if item.id in texts_of]
        if len(described) < _LEAST_QUERIES:
            return None
        chosen = np.array(_some(np.random.default_rng(1), described), dtype=np.int64)
        photos = photos.take(chosen)
        pairs = zip(_encodings(photos.old), _encodings(photos.new), photos.items, strict=True)
        asked = [(old, new, frozenset(texts_of[item.id])) for old, new, item in pairs]
        return _as_queries("image", asked)

    def _some_texts(self) -> list[StoredItem]:
        """Return some of the texts of the index."""
        if self._texts is None:
            return []
        rows = live_rows(self._texts)
        count = min(len(rows), _MOST_TEXTS)
        chosen = np.sort(np.random.default_rng(2).choice(rows, count, replace=False))
        return self._texts.items.by_rows(chosen.tolist())


def recall_at(scores: NDArray[np.float32], right: Sequence[set[int]]) -> float:
    """Return the mean share of right items, at most ten of each query, among the best ten."""
    best = np.argsort(-scores, axis=1, kind="stable")[:, :_AT].tolist()
    shares = [
        len(of_query & set(found)) / min(len(of_query), _AT)
        for of_query, found in zip(right, best, strict=True)
    ]
    return float(np.mean(shares))


def bridged_fusion(
    fusion: DirectionFusion, align: NDArray[np.float32], match: NDArray[np.float32]
) -> DirectionFusion:
    """Return a fusion with the constants of the scores over a bridge, and the weight as it is.

    Args:
        fusion: Fusion of the new model.
        align: (queries, items) alignment scores over the bridge.
        match: (queries, items) cosines over the bridge.
    """
    best = np.argsort(-match, axis=1)[:, :_CANDIDATES]
    align, match = (np.take_along_axis(each, best, axis=1) for each in (align, match))
    deviations = [max(float(np.sqrt(each.var(axis=1).mean())), 1e-6) for each in (align, match)]
    return replace(
        fusion,
        align_mean=float(align.mean()),
        align_std=deviations[0],
        match_mean=float(match.mean()),
        match_std=deviations[1],
    )


def _match(queries: Sequence[Encoding], items: ItemVectors) -> NDArray[np.float32]:
    return np.concatenate([each.embedding for each in queries]) @ items.embeddings.T


def _align(
    queries: Sequence[Encoding], items: ItemVectors, modality: Modality
) -> NDArray[np.float32]:
    tokens = [each.item_tokens(0) for each in queries]
    return alignment_with_all(tokens, modality, items.tokens)


def _encodings(vectors: ItemVectors) -> list[Encoding]:
    return [
        Encoding.of_item(embedding, tokens)
        for embedding, tokens in zip(vectors.embeddings, vectors.each(), strict=True)
    ]


def _as_queries(
    modality: Modality, asked: Sequence[tuple[Encoding, Encoding, frozenset[int]]]
) -> MeasuredQueries | None:
    if len(asked) < _LEAST_QUERIES:
        return None
    old, new, right = zip(*asked, strict=True)
    return MeasuredQueries(modality, old, new, right)


def _some(random: np.random.Generator, items: Sequence[T]) -> list[T]:
    count = min(len(items), _MOST_QUERIES)
    return [items[place] for place in random.choice(len(items), count, replace=False).tolist()]
