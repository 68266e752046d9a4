"""Encoding of documents: texts and photos that a request brings, not to search with.

Documents are encoded like the items of an index: in float32 whatever the precision of the queries
is, and without the cache of the queries, which a thousand documents would empty.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from pydantic_core import to_json

from aladin_index.encode.item_encoders import ImageReader
from aladin_index.search.documents import DocumentVectors
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.encoders.readers import PhotoInput
from aladin_network.errors import TextTooLongError
from aladin_network.inference import Network, encode_images, encode_texts, tokenize
from aladin_network.photos.memory import wanted_while
from aladin_network.types import Modality
from aladin_service.search.job import EncodedDocument, EncodeJob, PhotoQuery, TextQuery, VectorForm
from aladin_service.settings import QueryLimits


class _Prepared(NamedTuple):
    """A text, or the result of the image encoder's `preprocess`, and its document without vectors.

    The number of tokens of a photo is that of its regions, and not known yet.
    """

    modality: Modality
    value: str | PhotoInput
    document: EncodedDocument


class DocumentEncoder:
    """Encodes documents in batches; a document that fails does not affect the others."""

    def __init__(
        self, limits: QueryLimits, images: ImageReader, decoders: ThreadPoolExecutor
    ) -> None:
        self._limits = limits
        self._images = images
        self._decoders = decoders

    def encode(
        self,
        searcher: TwoStageSearcher,
        jobs: Sequence[EncodeJob],
        is_wanted: Callable[[int], bool],
    ) -> list[EncodedDocument | Exception | None]:
        """Encode documents, all texts together and all photos together.

        Returns by place the document, or why there is none, as `QueryEncoder.encode` does.
        """
        model = searcher.index.checkpoint.model
        has_photos = any(isinstance(job.document, PhotoQuery) for job in jobs)
        each = self._decoders.map if has_photos else map
        until_s = time.monotonic() + self._limits.memory.patience_s
        prepare = partial(self._prepare, searcher, until_s, is_wanted)
        prepared = list(each(prepare, range(len(jobs)), jobs))
        results: list[EncodedDocument | Exception | None] = [
            None if isinstance(item, _Prepared) else item for item in prepared
        ]
        groups: dict[Modality, dict[int, _Prepared]] = {}
        for place, item in enumerate(prepared):
            if isinstance(item, _Prepared) and is_wanted(place):
                groups.setdefault(item.modality, {})[place] = item
        for inputs in groups.values():
            own = [jobs[place] for place in inputs]
            encoded = _encode(model, own, list(inputs.values()))
            for place, result in zip(inputs, encoded, strict=True):
                results[place] = result
        return results

    def _prepare(
        self,
        searcher: TwoStageSearcher,
        until_s: float,
        is_wanted: Callable[[int], bool],
        place: int,
        job: EncodeJob,
    ) -> _Prepared | Exception | None:
        """Do the part that does not need the network; never raises."""
        if not is_wanted(place):
            return None
        model = searcher.index.checkpoint.model
        document = partial(EncodedDocument, model_id=searcher.index.manifest.model.id)
        try:
            match job.document:
                case TextQuery(text):
                    kept, tokens = self._shortened(model, text, job)
                    is_cut = len(kept) < len(text)
                    return _Prepared("text", kept, document(num_tokens=tokens, truncated=is_cut))
                case PhotoQuery(data, source):
                    with wanted_while(partial(is_wanted, place), until_s):
                        read = self._images.read_photo(model.image.encoder, data, source)
                    return _Prepared("image", read.value, document())
        except Exception as error:  # the caller tells apart what was foreseen and what was not
            return error

    def _shortened(self, model: Network, text: str, job: EncodeJob) -> tuple[str, int]:
        """Return a text, cut if it may be, and its number of tokens, special ones included."""
        most = self._limits.max_text_chars
        if len(text) > most and not job.truncate:
            raise TextTooLongError(len(text), most, "characters")
        kept = text
        if job.truncate:
            own = model.text.encoder.config.max_tokens
            limit = own if job.max_tokens is None else min(job.max_tokens, own)
            kept = model.text.encoder.shortened(text[:most], limit)
        return kept, int(tokenize(model, [kept], truncate=job.truncate).mask.sum())


def _encode(
    model: Network, jobs: Sequence[EncodeJob], inputs: Sequence[_Prepared]
) -> list[EncodedDocument | Exception]:
    """Encode documents of one modality together; if that fails unexpectedly, one by one."""
    modality, values = inputs[0].modality, [item.value for item in inputs]
    try:
        if modality == "text":
            encoding = encode_texts(model, cast(list[str], values), truncate=True)
        else:
            encoding = encode_images(model, cast(list[PhotoInput], values))
    except Exception as error:
        if len(inputs) == 1:
            return [error]
        pairs = zip(jobs, inputs, strict=True)
        return [_encode(model, [job], [item])[0] for job, item in pairs]
    results: list[EncodedDocument | Exception] = []
    for row, (job, (_, _, document)) in enumerate(zip(jobs, inputs, strict=True)):
        # Copied, so that it does not keep its whole batch in memory.
        embedding, tokens = encoding.embedding[row].copy(), encoding.item_tokens(row)
        count = document.num_tokens or len(tokens)
        document = document._replace(num_tokens=count, batch=len(inputs))
        if job.form == "arrays":
            document = document._replace(vectors=DocumentVectors(modality, embedding, tokens))
        else:
            written = write_vectors(tokens if job.multivector else embedding, job.form)
            document = document._replace(written=written)
        results.append(document)
    return results


def write_vectors(vectors: NDArray[np.float32], form: VectorForm) -> bytes:
    """Write a vector, or a list of them, as JSON numbers or as base64 of little-endian float32."""
    if form == "float":
        return to_json(vectors.tolist())
    rows = np.atleast_2d(vectors).astype("<f4")
    written = [base64.b64encode(row.tobytes()).decode() for row in rows]
    return to_json(written if vectors.ndim == 2 else written[0])
