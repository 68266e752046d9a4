"""What a box finds in other photos: the thing that it holds, by nouns of the captions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from aladin_index.search.backend import EncodedQuery
from aladin_index.search.evidence import region_boxes
from aladin_index.search.options import SearchOptions
from aladin_index.search.results import Box, SearchAnswer
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.types import Target
from aladin_service.search.encoder import QueryEncoder
from aladin_service.search.job import ItemQuery, PhotoQuery, PlainQuery, TextQuery
from aladin_training.data.phrases import find_phrases
from benchmarks.lib.boxed_photos import as_box

WHOLE: Box = (0.0, 0.0, 1.0, 1.0)
PAGE = 10
# Captions that have to name a noun for the photo to show it.
_LEAST_NAMED = 2
# A noun's region, and how far its box reaches beyond it, by the region's sides.
_LARGEST_REGION, _MARGIN = 0.25, 0.5
# Nouns that more photos have say nothing; of rarer ones there are too few right hits.
_SHARE_WITH_NOUN = (0.01, 0.15)


class Searches:
    """Searches of an index, by queries as a service takes them."""

    def __init__(self, searcher: TwoStageSearcher, encoder: QueryEncoder) -> None:
        """Search with queries that `encoder` encodes."""
        self.searcher = searcher
        self._encoder = encoder

    def answer(
        self, query: PlainQuery, target: Target = "images", k: int = PAGE, *, rerank: bool = True
    ) -> SearchAnswer:
        """Answer one query."""
        return self.searcher.search(self.encode(query), target, SearchOptions(k=k, rerank=rerank))

    def encode(self, query: PlainQuery) -> EncodedQuery:
        """Encode one query."""
        return self._encoder.encode_one(self.searcher, query)


def nouns_of(captions: Sequence[str]) -> Counter[str]:
    """Return the nouns of captions, plural ones as singular, each with its number of captions."""
    found: Counter[str] = Counter()
    for caption in captions:
        phrases = find_phrases(caption)
        found.update(
            {word for each in phrases for word in each._replace(words=each.words[-1:]).meaning}
        )
    return found


class Thing(NamedTuple):
    """A noun, and a box around it in a photo.

    Attributes:
        photo: Id of the photo.
        noun: What the box holds.
        box: The box.
    """

    photo: str
    noun: str
    box: Box


def find_box(searcher: TwoStageSearcher, photo: str, words: EncodedQuery) -> Box | None:
    """Return a box around the region of a photo that fits some words best, or None without one."""
    query = searcher.stored_query(photo)
    regions, model = query.encoding.item_tokens(0), searcher.index.checkpoint.model
    boxes = np.array(region_boxes(model, len(regions), query.size_px, query.boxes))
    sizes = boxes[:, 2:] - boxes[:, :2]
    cosines = (words.encoding.item_tokens(0) @ regions[: len(boxes)].T).mean(axis=0)
    cosines[sizes.prod(axis=1) > _LARGEST_REGION] = -np.inf
    best = int(cosines.argmax())
    if not np.isfinite(cosines[best]):
        return None
    margin = _MARGIN * np.concatenate([-sizes[best], sizes[best]])
    return as_box((boxes[best] + margin).clip(0, 1))


def draw_things(
    searches: Searches, named: dict[str, Counter[str]], count: int, seed: int
) -> list[Thing]:
    """Draw nouns with their boxes; fewer if there are not enough.

    Args:
        searches: Searches of the photos.
        named: Nouns of each photo's captions.
        count: Number of nouns.
        seed: Seed of the choice.
    """
    photos = Counter(noun for each in named.values() for noun, n in each.items() if n >= 2)
    least, most = (share * len(named) for share in _SHARE_WITH_NOUN)
    pairs = [
        (photo, noun)
        for photo, each in named.items()
        for noun, captions in sorted(each.items())
        if captions >= 2 and least <= photos[noun] <= most
    ]
    order = np.random.default_rng(seed).permutation(len(pairs))[:count]
    things: list[Thing] = []
    for photo, noun in (pairs[place] for place in order.tolist()):
        words = searches.encode(TextQuery(noun))
        box = find_box(searches.searcher, photo, words)
        if box is not None:
            things.append(Thing(photo, noun, box))
    return things


def find_things(
    searches: Searches,
    things: Sequence[Thing],
    named: dict[str, Counter[str]],
    crops: Sequence[bytes],
) -> dict[str, float]:
    """Return the shares of hits that show what the boxes hold, by the way to ask.

    Args:
        searches: Searches of the photos and their captions.
        things: Nouns with their boxes.
        named: Nouns of each photo's captions.
        crops: What each box holds, as a picture file.
    """
    shares: dict[str, list[float]] = {}
    for thing, crop in zip(things, crops, strict=True):
        whole, boxed = ItemQuery(thing.photo), ItemQuery(thing.photo, box=thing.box)
        answers = {
            "text": searches.answer(TextQuery(thing.noun), k=PAGE + 1),
            "whole": searches.answer(whole, k=PAGE + 1),
            "crop": searches.answer(PhotoQuery(crop), k=PAGE + 1),
            "first": searches.answer(boxed, k=PAGE + 1, rerank=False),
            "box": searches.answer(boxed, k=PAGE + 1),
        }
        for name, answer in answers.items():
            others = [hit.id for hit in answer.hits if hit.id != thing.photo][:PAGE]
            shown = [named[each][thing.noun] >= _LEAST_NAMED for each in others]
            shares.setdefault(f"things_{name}", []).append(float(np.mean(shown)))
        # A photo has few captions, of which all may be among the first.
        own = {f"{thing.photo}#{place}" for place in range(named[thing.photo].total())}
        for name, query in (("texts_whole", whole), ("texts_box", boxed)):
            hits = searches.answer(query, "texts", k=PAGE + 10).hits
            texts = [hit.text or "" for hit in hits if hit.id not in own][:PAGE]
            told = [thing.noun in nouns_of([text]) for text in texts]
            shares.setdefault(f"things_{name}", []).append(float(np.mean(told)))
    return {name: float(np.mean(each)) for name, each in shares.items()}


def compare_alike(
    searches: Searches, photos: Sequence[str], named: dict[str, Counter[str]]
) -> dict[str, float]:
    """Return the mean share of nouns that photos and their first hits have in common.

    Args:
        searches: Searches of the photos.
        photos: Ids of the photos.
        named: Nouns of each photo's captions.
    """
    nouns = {
        photo: {noun for noun, captions in each.items() if captions >= _LEAST_NAMED}
        for photo, each in named.items()
    }
    ways = {"embeddings": None, "regions": WHOLE}
    common: dict[str, list[float]] = {f"alike_{name}": [] for name in ways}
    for photo in photos:
        for name, box in ways.items():
            hits = searches.answer(ItemQuery(photo, box=box)).hits
            shares = [
                len(nouns[photo] & nouns[hit.id]) / max(len(nouns[photo] | nouns[hit.id]), 1)
                for hit in hits
            ]
            common[f"alike_{name}"].append(float(np.mean(shares)))
    return {name: float(np.mean(each)) for name, each in common.items()}
