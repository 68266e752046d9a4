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
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.encoders.readers import PhotoInput
from aladin_network.errors import TextTooLongError
from aladin_network.inference import Network, encode_images, encode_texts, tokenize
from aladin_network.photos.memory import wanted_while
from aladin_network.types import Modality
from aladin_service.search.job import EncodedDocument, EncodeJob, PhotoQuery, TextQuery, VectorForm
from aladin_service.settings import QueryLimits

_NO_VECTOR = np.empty(0, dtype=np.float32)
_NO_VECTORS = np.empty((0, 0), dtype=np.float32)


class _Prepared(NamedTuple):
    """A document that is ready for the network.

    Attributes:
        modality: Modality of the document.
        value: Text, or the result of the image encoder's `preprocess`.
        num_tokens: Number of tokens of a text, special ones included; 0 for a photo.
        truncated: Whether the text was cut.
    """

    modality: Modality
    value: str | PhotoInput
    num_tokens: int = 0
    truncated: bool = False


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
        prepare = partial(self._prepare, model, until_s, is_wanted)
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
            encoded = _encode(searcher, own, list(inputs.values()))
            for place, result in zip(inputs, encoded, strict=True):
                results[place] = result
        return results

    def _prepare(
        self,
        model: Network,
        until_s: float,
        is_wanted: Callable[[int], bool],
        place: int,
        job: EncodeJob,
    ) -> _Prepared | Exception | None:
        """Do the part that does not need the network; never raises."""
        if not is_wanted(place):
            return None
        try:
            match job.document:
                case TextQuery(text):
                    return self._prepare_text(model, text, job)
                case PhotoQuery(data, source):
                    with wanted_while(partial(is_wanted, place), until_s):
                        read = self._images.read_photo(model.image.encoder, data, source)
                    return _Prepared("image", read.value)
        except Exception as error:  # the caller tells apart what was foreseen and what was not
            return error

    def _prepare_text(self, model: Network, text: str, job: EncodeJob) -> _Prepared:
        most = self._limits.max_text_chars
        if len(text) > most and not job.truncate:
            raise TextTooLongError(len(text), most, "characters")
        kept = text
        if job.truncate:
            own = model.text.encoder.config.max_tokens
            limit = own if job.max_tokens is None else min(job.max_tokens, own)
            kept = model.text.encoder.shortened(text[:most], limit)
        batch = tokenize(model, [kept], truncate=job.truncate)
        return _Prepared("text", kept, int(batch.mask.sum()), truncated=len(kept) < len(text))


def _encode(
    searcher: TwoStageSearcher, jobs: Sequence[EncodeJob], inputs: Sequence[_Prepared]
) -> list[EncodedDocument | Exception]:
    """Encode documents of one modality together; if that fails unexpectedly, one by one."""
    model, modality = searcher.index.checkpoint.model, inputs[0].modality
    values = [item.value for item in inputs]
    try:
        if modality == "text":
            encoding = encode_texts(model, cast(list[str], values), truncate=True)
        else:
            encoding = encode_images(model, cast(list[PhotoInput], values))
    except Exception as error:
        if len(inputs) == 1:
            return [error]
        pairs = zip(jobs, inputs, strict=True)
        return [_encode(searcher, [job], [item])[0] for job, item in pairs]
    model_id = searcher.index.manifest.model.id
    results: list[EncodedDocument | Exception] = []
    for row, (job, item) in enumerate(zip(jobs, inputs, strict=True)):
        # Copied, so that it does not keep its whole batch in memory.
        embedding, tokens = encoding.embedding[row].copy(), encoding.item_tokens(row)
        written = b""
        if job.form != "arrays":
            written = write_vectors(tokens if job.multivector else embedding, job.form)
        results.append(
            EncodedDocument(
                modality=modality,
                embedding=_NO_VECTOR if written else embedding,
                tokens=_NO_VECTORS if written else tokens,
                written=written,
                num_tokens=item.num_tokens or len(tokens),
                truncated=item.truncated,
                model_id=model_id,
                batch=len(inputs),
            )
        )
    return results


def write_vectors(vectors: NDArray[np.float32], form: VectorForm) -> bytes:
    """Write a vector, or a list of them, as JSON numbers or as base64 of little-endian float32."""
    if form == "float":
        return to_json(vectors.tolist())
    rows = np.atleast_2d(vectors).astype("<f4")
    written = [base64.b64encode(row.tobytes()).decode() for row in rows]
    return to_json(written if vectors.ndim == 2 else written[0])
