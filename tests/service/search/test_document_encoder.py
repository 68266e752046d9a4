"""Documents in batches: the vectors of the network itself, and nobody is harmed by a neighbour."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pydantic_core import from_json

import aladin_service.search.document_encoder as document_encoder
from aladin_index.encode.item_encoders import ImageReader
from aladin_index.generations.reader import open_index
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.errors import ImageError, InputError, TextTooLongError
from aladin_network.inference import encode_photos, encode_texts
from aladin_service.search.document_encoder import DocumentEncoder, write_vectors
from aladin_service.search.job import Document, EncodedDocument, EncodeJob, PhotoQuery, TextQuery
from aladin_service.settings import QueryLimits

TEXTS = ["a red dog", "two men ride a motorcycle in the street", "a star"]


def always(_: int) -> bool:
    return True


@pytest.fixture(scope="module")
def searcher(index_folder: Path) -> Iterator[TwoStageSearcher]:
    with open_index(index_folder) as index:
        yield TwoStageSearcher(index)


@pytest.fixture(scope="module")
def encode(
    searcher: TwoStageSearcher,
) -> Iterator[Callable[..., list[EncodedDocument | Exception | None]]]:
    """Encodes documents: ``encode([TextQuery("a dog")], truncate=True)``."""
    limits = QueryLimits(max_text_chars=100)
    with ThreadPoolExecutor(2) as decoders:
        encoder = DocumentEncoder(limits, ImageReader(memory=limits.memory), decoders)

        def run(
            documents: Sequence[Document],
            is_wanted: Callable[[int], bool] = always,
            **options: Any,
        ) -> list[EncodedDocument | Exception | None]:
            now = time.monotonic()
            jobs = [EncodeJob(document=each, received_s=now, **options) for each in documents]
            return encoder.encode(searcher, jobs, is_wanted)

        yield run


def test_texts_and_photos_of_a_batch_get_the_vectors_of_the_network(
    encode: Any, searcher: TwoStageSearcher, query_photo: Image.Image, encoded: Any
) -> None:
    photo = PhotoQuery(encoded(query_photo))
    first, seen, second, third = encode(
        [TextQuery(TEXTS[0]), photo, TextQuery(TEXTS[1]), TextQuery(TEXTS[2])]
    )
    model = searcher.index.checkpoint.model
    texts, photos = encode_texts(model, TEXTS), encode_photos(model, [query_photo])
    for row, own in enumerate((first, second, third)):
        np.testing.assert_allclose(own.vectors.embedding, texts.embedding[row], atol=1e-6)
        np.testing.assert_allclose(own.vectors.tokens, texts.item_tokens(row), atol=1e-6)
        assert (own.vectors.modality, own.batch, own.truncated) == ("text", 3, False)
        tokenizer = model.text.encoder.tokenizer
        assert own.num_tokens == len(tokenizer.encode(TEXTS[row]).ids)
    np.testing.assert_allclose(seen.vectors.embedding, photos.embedding[0], atol=1e-6)
    assert (seen.vectors.modality, seen.batch) == ("image", 1)
    assert seen.num_tokens == len(photos.item_tokens(0)) == len(seen.vectors.tokens)
    assert {each.model_id for each in (first, seen)} == {searcher.index.manifest.model.id}


def test_a_document_that_fails_fails_alone(encode: Any) -> None:
    results = encode(
        [
            TextQuery(TEXTS[0]),
            TextQuery(" "),
            PhotoQuery(b"no photo"),
            TextQuery("a dog " * 20),
            TextQuery("dog " * 24),
            TextQuery(TEXTS[2]),
        ]
    )
    assert [type(each) for each in results] == [
        EncodedDocument,
        InputError,
        ImageError,
        TextTooLongError,  # in characters
        TextTooLongError,  # in tokens
        EncodedDocument,
    ]


def test_withdrawn_documents_are_not_encoded(encode: Any) -> None:
    results = encode([TextQuery(text) for text in TEXTS], is_wanted=lambda place: place == 1)
    assert (results[0], results[2]) == (None, None)
    assert results[1].batch == 1


def test_a_batch_that_fails_unexpectedly_is_encoded_one_by_one(
    encode: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def fail(model: Any, texts: Sequence[str], *, truncate: bool) -> Any:
        calls.append(len(texts))
        if "a star" in texts:
            raise RuntimeError("the network failed")
        return encode_texts(model, texts, truncate=truncate)

    monkeypatch.setattr(document_encoder, "encode_texts", fail)
    results = encode([TextQuery(text) for text in TEXTS])
    assert calls == [3, 1, 1, 1]
    assert [type(each) for each in results] == [EncodedDocument, EncodedDocument, RuntimeError]


@pytest.mark.parametrize("most", [3, 4, 6, 1000])
def test_texts_are_cut_to_a_number_of_tokens(
    encode: Any, searcher: TwoStageSearcher, most: int
) -> None:
    text = "a red dog runs in the street and a blue square is above a circle, far away. " * 3
    (own,) = encode([TextQuery(text)], truncate=True, max_tokens=most)
    config = searcher.index.checkpoint.model.text.encoder.config
    assert own.truncated
    assert own.num_tokens == min(most, config.max_tokens)


def test_vectors_are_written_as_numbers_or_base64(encode: Any) -> None:
    document, vector = TextQuery(TEXTS[0]), np.array([0.5, -2.0], dtype=np.float32)
    (own,) = encode([document])
    (numbers,) = encode([document], form="float")
    (tokens,) = encode([document], form="base64", multivector=True)
    np.testing.assert_allclose(from_json(numbers.written), own.vectors.embedding, atol=1e-6)
    assert (numbers.vectors, own.written) == (None, b"")
    rows = [np.frombuffer(base64.b64decode(each), "<f4") for each in from_json(tokens.written)]
    np.testing.assert_allclose(rows, own.vectors.tokens, atol=1e-6)
    assert write_vectors(vector, "float") == b"[0.5,-2.0]"
    assert write_vectors(np.stack([vector, vector]), "float") == b"[[0.5,-2.0],[0.5,-2.0]]"
    assert write_vectors(vector, "base64") == b'"AAAAPwAAAMA="'
    assert write_vectors(vector[np.newaxis], "base64") == b'["AAAAPwAAAMA="]'
