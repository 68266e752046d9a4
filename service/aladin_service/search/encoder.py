"""Encoding of queries: concurrent queries pass through the network together."""

from __future__ import annotations

import contextlib
import io
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple
from weakref import WeakSet

import numpy as np
from PIL import Image

from aladin_index.encode.item_encoders import ImageReader
from aladin_index.encode.region_sources import check_detector
from aladin_index.encode.source_items import Prepared
from aladin_index.search.collection import SearchBackend
from aladin_index.search.query import Query as EncodedQuery
from aladin_index.search.query import Term
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.detectors.base import Detector
from aladin_network.errors import AladinError, InputError, TextTooLongError
from aladin_network.graphs.network import query_network
from aladin_network.inference import (
    Network,
    QueryNetworks,
    choose_precision,
    encode_images,
    encode_texts,
    tokenize,
)
from aladin_network.photos.decoding import ImageLimits
from aladin_network.photos.memory import (
    DecodingMemory,
    WithdrawnError,
    is_still_wanted,
    wanted_while,
)
from aladin_network.scoring.encoding import Encoding
from aladin_network.types import Modality
from aladin_service.search.document_encoder import DocumentEncoder
from aladin_service.search.job import (
    ItemQuery,
    PhotoQuery,
    PlainQuery,
    Query,
    QueryTerm,
    RegionsQuery,
    TermsQuery,
    TextQuery,
)
from aladin_service.search.lru_cache import CachedEncoding, CacheKey, EncodingCache, content_of
from aladin_service.settings import QueryLimits, ServiceSettings

_LOG = logging.getLogger(__name__)
_MODALITIES: tuple[Modality, ...] = ("text", "image")


class _Input(NamedTuple):
    """A term of a query that the network has to encode.

    Attributes:
        modality: Modality, which selects the tower.
        read: The text, or the photo as the image encoder takes it.
        key: Cache key of the encoding, or None if it is not cached.
        text: Text of a text query.
        decode_ms: Decoding time of a photo query.
    """

    modality: Modality
    read: Prepared
    key: CacheKey | None
    text: str | None = None
    decode_ms: float = 0.0


def always(_: int) -> bool:
    """Report that every query is still wanted, whatever its position."""
    return True


def query_networks(settings: ServiceSettings, device: str) -> QueryNetworks:
    """Return what encodes queries at every door, in the precision that the settings choose."""
    precision = choose_precision(settings.query_precision, device)
    return QueryNetworks(
        partial(query_network, precision=precision, photo_threads=settings.photo_threads)
    )


class QueryEncoder:
    """Encodes queries in batches; a query that fails does not affect the others.

    Outlives the indexes that it is used with. Safe to use from any number of threads.

    Attributes:
        documents: Encodes documents with the same threads, memory and limits.
    """

    def __init__(
        self,
        limits: QueryLimits,
        cache: EncodingCache | None = None,
        decode_threads: int = 1,
        detector: Detector | None = None,
        networks: QueryNetworks | None = None,
    ) -> None:
        """Decode at most `decode_threads` photos at a time, as the memory of the limits allows.

        `detector` finds the regions of photos for models that read regions, and `networks` encode
        in place of those of the indexes.
        """
        self._limits = limits
        self._detector = detector
        self._images = ImageReader(
            limits.image, memory=limits.memory, regions=limits.regions, detector=detector
        )
        self._networks = networks or QueryNetworks(query_network)
        self._warm = {modality: WeakSet[Network]() for modality in _MODALITIES}
        self._cache = cache or EncodingCache(0)
        self._decoders = ThreadPoolExecutor(decode_threads, thread_name_prefix="decode")
        self.documents = DocumentEncoder(limits, self._images, self._decoders)

    @property
    def memory(self) -> DecodingMemory:
        """The memory budget of all photos that are decoded at the same time."""
        return self._limits.memory

    @property
    def image_limits(self) -> ImageLimits:
        """The limits for a photo."""
        return self._limits.image

    def close(self) -> None:
        """End the threads; nothing may be encoded any more."""
        self._decoders.shutdown()

    def check_detector(self, model: Network) -> None:
        """Refuse a detector that is not the one of a model; see
        `aladin_index.encode.item_encoders`."""
        check_detector(model.image.encoder, self._detector)

    def warm_up(self, index: SearchBackend) -> None:
        """Encode a text and a photo once, so that no query takes longer than later ones.

        The words and stacks of an index that searches by them are read meanwhile and afterwards.
        """
        if index.follows_folders:
            threading.Thread(target=_read_words, args=(index,), name="words", daemon=True).start()
        model = index.checkpoint.model
        texts, photos = (self._networks.of(model, each) for each in _MODALITIES)
        if texts not in self._warm["text"]:
            with contextlib.suppress(InputError):  # a small vocabulary may have none of the words
                encode_texts(texts, ["a photo"])
        encoder = photos.image.encoder
        if photos not in self._warm["image"] and encoder.reads == "photo":
            picture = io.BytesIO()
            Image.new("RGB", (64, 64)).save(picture, "JPEG")
            # Not by `read_photo`: the limits of queries and their memory are not for this picture.
            with Image.open(picture) as photo:
                encode_images(photos, [encoder.preprocess(photo)])
        self._warm["text"].add(texts)
        self._warm["image"].add(photos)

    def encode(
        self,
        searcher: TwoStageSearcher,
        queries: Sequence[Query],
        is_wanted: Callable[[int], bool] = always,
        until_s: Sequence[float] = (),
    ) -> list[EncodedQuery | Exception | None]:
        """Encode the terms of queries, all texts together and all photos together.

        `is_wanted` says whether the query at a place is still awaited; until `until_s`, by
        `time.monotonic`, a photo waits for memory to be decoded in. Returns by place the query, or
        why there is none: an `AladinError` about the first term that fails, another exception if
        something unforeseen happened, None if nobody waits.
        """
        asked = [
            (place, one)
            for place, query in enumerate(queries)
            for one in (query.terms if isinstance(query, TermsQuery) else (QueryTerm(query),))
        ]
        has_photos = any(isinstance(one.query, PhotoQuery | RegionsQuery) for _, one in asked)
        each = self._decoders.map if has_photos else map
        # All photos of a batch together wait no longer than a single photo would.
        last_s = time.monotonic() + self._limits.memory.patience_s
        limits_s = [min(until_s[place], last_s) if until_s else last_s for place, _ in asked]
        owners = [place for place, _ in asked]
        prepare = partial(self._prepare, searcher, is_wanted)
        prepared = list(each(prepare, owners, [one.query for _, one in asked], limits_s))
        terms = [None if isinstance(item, _Input) else item for item in prepared]
        for modality in _MODALITIES:
            inputs = {
                number: item
                for number, item in enumerate(prepared)
                if isinstance(item, _Input)
                and item.modality == modality
                and is_wanted(owners[number])
            }
            if inputs:
                model = self._networks.of(searcher.index.checkpoint.model, modality)
                encoded = self._run_network(model, list(inputs.values()))
                for number, result in zip(inputs, encoded, strict=True):
                    terms[number] = result
        joined: list[list[Term]] = [[] for _ in queries]
        missing: dict[int, Exception | None] = {}
        for (place, one), term in zip(asked, terms, strict=True):
            if isinstance(term, Term):
                # A photo was encoded as a whole: another box of it needs no further encoding.
                term = term._replace(box=one.query.box, role=one.role, weight=one.weight)
                joined[place].append(term)
            else:
                missing.setdefault(place, term)
        return [missing.get(place, tuple(each)) for place, each in enumerate(joined)]

    def encode_one(self, searcher: TwoStageSearcher, query: Query) -> EncodedQuery:
        """Encode one query by itself, or raise why it cannot be."""
        is_wanted = is_still_wanted()
        (encoded,) = self.encode(searcher, [query], lambda _: is_wanted())
        if isinstance(encoded, Exception):
            raise encoded
        if encoded is None:
            raise WithdrawnError
        return encoded

    def _prepare(
        self,
        searcher: TwoStageSearcher,
        is_wanted: Callable[[int], bool],
        place: int,
        query: PlainQuery,
        until_s: float,
    ) -> _Input | Term | Exception | None:
        """Do what does not need the network; never raises. `place` is that of the whole query."""
        if not is_wanted(place):
            return None
        try:
            match query:
                case TextQuery(text):
                    most = self._limits.max_text_chars
                    if len(text) > most:
                        raise TextTooLongError(len(text), most, "characters")
                    # The text as it came: for some tokenizers capitals and white space count.
                    key = CacheKey(searcher.index.manifest.model.id, text)
                    remembered = self._cache.get(key)
                    if remembered is not None:
                        return Term(remembered.encoding, "text", text, cached=True)
                    return _Input("text", Prepared(text, None), key, text=text)
                case PhotoQuery() | RegionsQuery():
                    with wanted_while(partial(is_wanted, place), until_s):
                        return self._prepare_photo(searcher, query)
                case ItemQuery(item_id):
                    return searcher.stored_query(item_id)
        except Exception as error:  # the caller tells apart what was foreseen and what was not
            return error

    def _prepare_photo(
        self, searcher: TwoStageSearcher, query: PhotoQuery | RegionsQuery
    ) -> _Input | Term:
        started = time.perf_counter()
        key = None
        if self._cache.is_on:
            key = CacheKey.of(searcher.index.manifest.model.id, content_of(query))
        remembered = self._cache.get(key) if key else None
        if remembered is not None:
            encoding, size_px, boxes = remembered
            return Term(encoding, "image", size_px=size_px, boxes=boxes, cached=True)
        encoder = searcher.index.checkpoint.model.image.encoder
        if isinstance(query, PhotoQuery):
            read = self._images.read_photo(encoder, query.data, query.source)
        else:
            read = self._images.read_regions(encoder, query.data, query.picture, query.source)
        decode_ms = 1000 * (time.perf_counter() - started)
        return _Input("image", read, key, None, decode_ms)

    def _run_network(self, model: Network, inputs: Sequence[_Input]) -> list[Term | Exception]:
        """Encode inputs of one modality together; if that fails, without the faulty ones."""
        started = time.perf_counter()
        try:
            values = [item.read.value for item in inputs]
            if inputs[0].modality == "text":
                encoding = encode_texts(model, values)
            else:
                encoding = encode_images(model, values)
        except Exception as error:
            if len(inputs) == 1:
                return [error]
            faults = [_fault(model, item) for item in inputs]
            if not any(faults):
                _LOG.exception(
                    "encoding %d queries as a batch failed; encoding them one by one", len(inputs)
                )
                return [self._run_network(model, [item])[0] for item in inputs]
            good = [item for item, fault in zip(inputs, faults, strict=True) if fault is None]
            rest = iter(self._run_network(model, good) if good else ())
            return [next(rest) if fault is None else fault for fault in faults]
        encode_ms = 1000 * (time.perf_counter() - started)
        results: list[Term | Exception] = []
        for row, item in enumerate(inputs):
            # Copied without padding, so that it does not keep its whole batch in memory.
            tokens = encoding.tokens[row][encoding.mask[row]]
            mask = np.ones((1, len(tokens)), dtype=np.bool_)
            own = Encoding(encoding.embedding[row : row + 1].copy(), tokens[None], mask)
            if item.key is not None:
                self._cache.put(item.key, CachedEncoding(own, item.read.size_px, item.read.boxes))
            results.append(
                Term(
                    own,
                    item.modality,
                    item.text,
                    item.read.size_px,
                    item.read.boxes,
                    decode_ms=item.decode_ms,
                    encode_ms=encode_ms,
                    batch=len(inputs),
                )
            )
        return results


def _read_words(index: SearchBackend) -> None:
    """Read the words of all items and their stacks, unless the index is closed before."""
    with contextlib.suppress(AladinError):
        for target in index.manifest.targets:
            collection = index.collection(target)
            collection.find_words("")
            collection.stacks()


def _fault(model: Network, item: _Input) -> InputError | None:
    """Return why the network rejects a query, if it does; it accepts every decoded photo."""
    if not isinstance(item.read.value, str):
        return None
    try:
        tokenize(model, [item.read.value])
    except InputError as error:
        return error
    return None
