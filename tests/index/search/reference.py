"""What a search should answer, worked out item by item from what an index stores."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from aladin_index.items.tables import StoredItem
from aladin_index.search.options import SearchOptions
from aladin_index.search.query import Query
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.scoring.encoding import Encoding
from aladin_network.scoring.hub_correction import EncodedItems, HubCorrection
from aladin_network.types import DIRECTION_OF, MODALITY_OF, Target

# Fewer than the photos, so that some hits are beyond.
POOL = 12
# Score, cosine and alignment.
Term3 = tuple[float, float, float | None]


class KnownItem(NamedTuple):
    """An item, and what a hub correction subtracts from its cosines, and its alignment by word."""

    item: StoredItem
    embedding: np.ndarray
    tokens: np.ndarray
    biases: tuple[float, float]


class ExpectedHit(NamedTuple):
    """A hit; `terms` are (score, cosine, alignment) of each of several."""

    id: str
    rank: int
    score: float
    match: float
    match_rank: int
    align: float | None
    align_rank: int | None
    per_word: float | None
    probability: float | None
    words: list[tuple[str, list[str]]] | None
    terms: list[Term3] | None


class Expected(NamedTuple):
    """An answer."""

    hits: list[ExpectedHit]
    candidates: int
    reranked: bool
    fusion: float | None
    no_match: bool | None
    unreliable_because: str | None
    unknown_fields: list[str]
    terms: list[tuple[str | None, float, str | None]] | None


class Reference:
    """The items of an index, and the answers to its searches."""

    def __init__(self, searcher: TwoStageSearcher, correction: HubCorrection | None) -> None:
        """Read all that is stored."""
        self.items: dict[Target, list[KnownItem]] = {}
        for target in searcher.index.manifest.targets:
            collection = searcher.index.collection(target)
            ids = sorted(collection.items.ids(), key=lambda pair: pair[1])
            self.items[target] = []
            for item in collection.items.by_rows([row for _, row in ids]):
                vector, tokens = collection.embedding(item.row), collection.tokens(item.row)
                biases = (0.0, 0.0)
                if correction is not None:
                    encoded = EncodedItems.of(Encoding.of_item(vector, tokens))
                    biases = tuple(correction.biases(target, encoded)[0].tolist())
                self.items[target].append(KnownItem(item, vector, tokens, biases))
        fusion = searcher.index.manifest.fusion(searcher.index.checkpoint.fusion)
        self._fusions = {each: fusion.of(each) for each in ("text_to_image", "image_to_text")}
        self._default = searcher.index.manifest.default_candidates

    def answer(self, query: Query, target: Target, options: SearchOptions) -> Expected:
        """Return the answer of an index that is calibrated by `made_up_calibration`."""
        return _Search(self, query, target, options).answer()


class _Search:
    def __init__(
        self, known: Reference, query: Query, target: Target, options: SearchOptions
    ) -> None:
        self.query, self.target, self.options = query, target, options
        self.is_joined = query[0].role is not None
        self.crosses = [term.modality != MODALITY_OF[target] for term in query]
        self.every = {
            each.item.id: each
            for each in known.items[target]
            if _passes(each.item.metadata, options.filter)
        }
        self.of_index = {each.item.id: each for each in known.items[target]}
        self.fields = {name for each in known.items[target] for name in each.item.metadata}
        own = {
            term.own_id
            for term, crosses in zip(query, self.crosses, strict=True)
            if not crosses and term.own_id is not None
        }
        self.items = {name: each for name, each in self.every.items() if name not in own}
        self.fusions = [known._fusions[DIRECTION_OF[term.modality]] for term in query]
        self.weights = [
            fusion.weight if options.fusion is None else options.fusion for fusion in self.fusions
        ]
        likes = sum(term.role == "like" for term in query)
        factors = {None: 1.0, "all": 1.0, "not": -1.0, "like": 0.75 / max(likes, 1)}
        self.factors = [term.weight * factors[term.role] for term in query]
        self.tokens = [term.encoding.item_tokens(0) for term in query]
        self.moved = self._move_words() if self.is_joined and options.rerank else []
        default = max(known._default, 200) if self.moved else known._default
        size = options.candidates or default
        self.is_exhaustive = size == "exhaustive" and options.rerank and any(self.crosses)
        self.size = known._default if size == "exhaustive" else int(size)
        self._choose()

    def _move_words(self) -> list[int]:
        """Move texts' words towards the liked items; return the places of those texts."""
        likes = [
            words
            for term, words, crosses in zip(self.query, self.tokens, self.crosses, strict=True)
            if term.role == "like" and not crosses
        ]
        moved: list[int] = []
        for place, term in enumerate(self.query):
            if likes and term.role == "all" and term.modality == "text" and self.crosses[place]:
                words: list[np.ndarray] = []
                for word in self.tokens[place]:
                    nearest = [max(of, key=lambda each: float(each @ word)) for of in likes]
                    to = word + 0.5 * np.mean(nearest, axis=0)
                    words.append(to / np.linalg.norm(to))
                self.tokens[place] = np.array(words, dtype=np.float32)
                moved.append(place)
        return moved

    def _choose(self) -> None:
        """Choose the candidates: blocks of ids, of which the second stage orders each."""
        chosen = [n for n, term in enumerate(self.query) if term.role != "not"]
        total = sum(self.factors[n] * self.query[n].encoding.embedding[0] for n in chosen)
        length = float(np.linalg.norm(total))
        self.hubs = sum(self.factors[n] * self.crosses[n] for n in chosen) / length
        self.match = {
            name: float(each.embedding @ total) / length - self.hubs * each.biases[0]
            for name, each in self.items.items()
        }
        nearest = sorted(self.items, key=lambda name: -self.match[name])
        size = max(len(nearest), 1) if self.is_exhaustive else self.size
        self.candidates = min(size, len(self.items if self.is_exhaustive else self.every))
        self.blocks = [nearest[n : n + size] for n in range(0, len(nearest), size)]
        self.pool = nearest[:POOL]
        self.words = self._find_words() if self.options.lexical else {}
        if self.options.lexical and self.blocks:
            extra = [name for name in self.words if name not in self.blocks[0]]
            tail = [name for block in self.blocks[1:] for name in block if name not in extra]
            wanted = max(self.options.offset + self.options.k - size, 0)
            tails = [tail[n : n + size] for n in range(0, min(wanted, len(tail)), size)]
            self.blocks = [[*self.blocks[0], *extra], *tails]
            self.candidates += len(extra)

    def _find_words(self) -> dict[str, list[tuple[str, float]]]:
        """Return the rare words that items have, and what each counts."""
        found: dict[str, list[tuple[str, float]]] = {}
        count = len(self.of_index)
        for word in dict.fromkeys(_plain(self.query[0].text or "").split()):
            having = [
                name
                for name, each in self.of_index.items()
                if any(word in words for _, words in _words(each.item))
            ]
            if 0 < len(having) <= max(0.01 * count, 5):
                weight = (math.log((1 + count) / len(having)) / math.log(1 + count)) ** 4
                for name in having:
                    if name in self.items:
                        found.setdefault(name, []).append((word, weight))
        return found

    def align(self, place: int, name: str) -> tuple[float, float]:
        """Return the alignment score of a term and an item, without and with the correction."""
        words, item, is_text = self.tokens[place], self.items[name], self.target == "images"
        pairs = words @ item.tokens.T if is_text else item.tokens @ words.T
        raw = sum(max(row) for row in pairs.tolist())
        return raw, raw - item.biases[1] * (len(words) if is_text else 1)

    def score_terms(self, block: Sequence[str]) -> list[dict[str, Term3]]:
        """Return what each of several terms adds to the items of a block, and its scores."""
        found: list[dict[str, Term3]] = []
        for place, term in enumerate(self.query):
            vector, fusion = term.encoding.embedding[0], self.fusions[place]
            is_aligned = self.options.rerank and self.crosses[place]
            raw = {name: float(self.items[name].embedding @ vector) for name in block}
            bias = {name: self.items[name].biases[0] * self.crosses[place] for name in block}
            match = np.array([raw[name] - bias[name] for name in block])
            aligned = [self.align(place, name) if is_aligned else None for name in block]
            score = match
            if is_aligned:
                align = np.array([each[1] for each in aligned if each is not None])
                if place in self.moved and self.options.fusion is None:
                    score = (align - fusion.align_mean) / fusion.align_std
                else:
                    score = fusion.combine(align, match, self.weights[place])
            else:
                score = (score - score.mean()) / (score.std() or 1)
            if term.role == "not":
                score = np.maximum(score - (score.mean() - score.std()), 0)
            if term.role == "like" and self.moved:
                score = 0 * score
            values = zip(block, (self.factors[place] * score).tolist(), aligned, strict=True)
            found.append({n: (s, raw[n], None if a is None else a[0]) for n, s, a in values})
        return found

    def answer(self) -> Expected:
        options, is_plain = self.options, not self.is_joined
        aligns = is_plain and self.crosses[0]
        align = {n: self.align(0, n) for n in self.items} if aligns else {}
        every = [name for block in self.blocks for name in block]
        terms: dict[str, list[Term3]] = {}
        total = dict(self.match)
        for block in self.blocks:
            if self.is_joined:
                each = self.score_terms(block)
                terms |= {name: [of[name] for of in each] for name in block}
                total |= {name: sum(of[name][0] for of in each) for name in block}
            elif aligns and options.rerank:
                fuse, weight = self.fusions[0].combine, self.weights[0]
                total |= {n: fuse(align[n][1], self.match[n], weight) for n in block}
        if options.lexical and self.blocks:
            first = [total[name] for name in self.blocks[0]]
            bonus = options.lexical * (2 * (max(first) - min(first)) + 1e-3)
            for name in every:
                total[name] += bonus * sum(weight for _, weight in self.words.get(name, ()))
        is_ordered = self.is_joined or options.lexical or (aligns and options.rerank)
        blocks = self.blocks if is_ordered else [every]
        ordered = [n for block in blocks for n in sorted(block, key=lambda n: -total[n])]
        page = ordered[options.offset : options.offset + options.k]
        ranked = [every] if is_plain and not options.rerank else self.blocks
        if aligns and not options.rerank:
            ranked = [[None] * (0 if options.lexical else options.offset), page]
        align_ranks = _ranks([n for b in ranked for n in _sorted(b, align)])
        match_ranks = _ranks(sorted(every, key=lambda name: -self.match[name]))
        because = "several_terms" if self.is_joined and any(self.crosses) else None
        likely = self._judge(page, align) if aligns and self.pool else dict.fromkeys(page)
        hits: list[ExpectedHit] = []
        for place, name in enumerate(page):
            if (likely[name] or 0) < (options.min_probability or 0):
                continue
            item, raw = self.items[name], align[name][0] if aligns else None
            count = len(self.tokens[0] if self.target == "images" else item.tokens)
            hits.append(
                ExpectedHit(
                    id=name,
                    rank=options.offset + place + 1,
                    score=total[name],
                    match=self.match[name] + self.hubs * item.biases[0],
                    match_rank=match_ranks[name],
                    align=raw,
                    align_rank=align_ranks.get(name) if aligns else None,
                    per_word=None if raw is None else raw / count,
                    probability=likely[name],
                    words=self._fields_with_words(name) if options.lexical else None,
                    terms=terms.get(name) if self.is_joined else None,
                )
            )
        no_match = None
        if aligns and self.pool:
            no_match = options.offset == 0 and not hits
        reranked = options.rerank and any(self.crosses)
        if self.is_joined and not self.is_exhaustive:  # nothing is aligned beyond the last page
            reranked &= options.offset < len(self.items)
        if options.sort:
            hits = _by_field(hits, self.items, options.sort)
        return Expected(
            hits=hits,
            candidates=self.candidates,
            reranked=bool(reranked),
            fusion=self.weights[0] if reranked else None,
            no_match=no_match,
            unreliable_because=because,
            unknown_fields=[name for name in self._asked_fields() if name not in self.fields],
            terms=[
                (term.role, factor, term.own_id)
                for term, factor in zip(self.query, self.factors, strict=True)
            ]
            if self.is_joined
            else None,
        )

    def _judge(
        self, page: Sequence[str], align: dict[str, tuple[float, float]]
    ) -> dict[str, float | None]:
        """Work the probabilities of `made_up_calibration` out."""
        best, *others = sorted(self.pool, key=lambda name: -align[name][1])
        less = 0.0 if self.target == "images" else -1.0
        likely: dict[str, float | None] = {}
        for name in page:
            rival = best if name != best or not others else others[0]
            words = len(self.tokens[0] if self.target == "images" else self.items[name].tokens)
            gap = align[name][1] - align[rival][1]
            odds = 3 * self.match[name] + align[name][1] / 4 + gap / 2 - math.log(words) / 2 + less
            likely[name] = 1 / (1 + math.exp(-odds))
        return likely

    def _fields_with_words(self, name: str) -> list[tuple[str, list[str]]]:
        """Return the fields of an item that have rare words, with these."""
        rare = [word for word, _ in self.words.get(name, ())]
        found = [
            (field, [w for w in rare if w in words])
            for field, words in _words(self.items[name].item)
        ]
        return [(field, words) for field, words in found if words]

    def _asked_fields(self) -> list[str]:
        sort = [self.options.sort.removeprefix("-")] if self.options.sort else []
        return [*sort, *(self.options.filter if not self.items else ())]


def _passes(metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> bool:
    tests = {"lt": lambda a, b: a < b, "gte": lambda a, b: a >= b, "eq": lambda a, b: a == b}
    for field, wanted in spec.items():
        for name, value in (wanted if isinstance(wanted, dict) else {"eq": wanted}).items():
            if field not in metadata or not tests[name](metadata[field], value):
                return False
    return True


def _plain(text: str) -> str:
    """A text without case and accents."""
    decomposed = unicodedata.normalize("NFKD", text)
    return "".join(each for each in decomposed if not unicodedata.combining(each)).casefold()


def _words(item: StoredItem) -> list[tuple[str, list[str]]]:
    texts = {"text": item.text, **{f"metadata.{n}": v for n, v in item.metadata.items()}}
    return [(name, _plain(text).split()) for name, text in texts.items() if isinstance(text, str)]


def _ranks(names: Sequence[str | None]) -> dict[str | None, int]:
    return {name: place + 1 for place, name in enumerate(names)}


def _sorted(names: Sequence[Any], align: Mapping[str, tuple[float, float]]) -> list[Any]:
    return sorted(names, key=lambda name: -align[name][1] if name in align else 0)


def _by_field(
    hits: Sequence[ExpectedHit], items: Mapping[str, KnownItem], sort: str
) -> list[ExpectedHit]:
    field, is_falling = sort.removeprefix("-"), sort.startswith("-")
    values = {hit.id: items[hit.id].item.metadata.get(field) for hit in hits}
    having = [hit for hit in hits if values[hit.id] is not None]
    having.sort(key=lambda hit: values[hit.id], reverse=is_falling)
    return [*having, *(hit for hit in hits if values[hit.id] is None)]
