"""Jobs about documents: the model that encodes them, their pixels, and their scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from aladin_index.format.models import model_folder
from aladin_index.search.documents import DocumentScore, DocumentVectors, score_documents
from aladin_network.errors import ImageError
from aladin_network.inference import tokenize
from aladin_network.photos.decoding import opened_image
from aladin_service.search.job import EncodedDocument, ItemQuery, PhotoQuery, TextQuery
from aladin_service.work.worker import Job, JobQueueName, Worker

_DIGITS = 12


def model_name(model_id: str) -> str:
    """Return the public name of a model, which changes with its weights.

    Args:
        model_id: SHA-256 of the weights.
    """
    return f"aladin-{model_id[:_DIGITS]}"


class ModelFacts(NamedTuple):
    """The model of the live index.

    Attributes:
        name: Public name.
        created_s: When the index received it, in seconds since 1970.
        dimensions: Size of an embedding.
        token_dimensions: Size of a token.
        max_tokens: Maximum number of tokens of a text, special ones included.
    """

    name: str
    created_s: int
    dimensions: int
    token_dimensions: int
    max_tokens: int


@dataclass(frozen=True)
class DescribeModel(Job[ModelFacts]):
    """Describe the model of the live index."""

    def run(self, worker: Worker) -> ModelFacts:
        """Return the facts."""
        index = worker.searcher().index
        manifest = index.manifest
        entry = next(iter(manifest.collections.values()))
        return ModelFacts(
            name=model_name(manifest.model.id),
            created_s=int(model_folder(index.path, manifest.model.id).stat().st_mtime),
            dimensions=entry.embedding_dim,
            token_dimensions=entry.token_dim,
            max_tokens=index.checkpoint.model.text.encoder.config.max_tokens,
        )


@dataclass(frozen=True)
class CountPixels(Job[int]):
    """Count the pixels of photos, from their headers; one that is no photo has none.

    Attributes:
        photos: Photos, undecoded and untrusted.
        most: Number of pixels from which on the rest is not counted.
        needed: Sources of the photos without which there is no answer.
    """

    photos: tuple[PhotoQuery, ...]
    most: int
    needed: tuple[str, ...] = ()

    @property
    def queue(self) -> JobQueueName:
        """Queue of the smaller photos."""
        return "picture"

    def run(self, worker: Worker) -> int:
        """Return the number of pixels that decoding takes; one photo after the other."""
        pixels = 0
        for photo in self.photos:
            try:
                with opened_image(photo.data, photo.source, worker.image_limits) as opened:
                    pixels += opened.picture.width * opened.picture.height
            except ImageError:
                if photo.source in self.needed:
                    raise
            if pixels > self.most:
                break
        return pixels


class ScoredDocuments(NamedTuple):
    """Scores of the documents of a request.

    Attributes:
        scores: Score of each document, in their order, or None where there is no such item.
        model: Public name of the model.
        generation: Generation of the index.
        query_tokens: Number of tokens of the query: those of the tokenizer, or the regions of a
            photo.
    """

    scores: list[DocumentScore | None]
    model: str
    generation: int
    query_tokens: int


@dataclass(frozen=True)
class ScoreDocuments(Job[ScoredDocuments | None]):
    """Score documents for a query.

    Attributes:
        query: Query.
        documents: Encoded documents, and ids of items.
    """

    query: TextQuery | PhotoQuery | ItemQuery
    documents: tuple[EncodedDocument | str, ...]

    @property
    def queue(self) -> JobQueueName:
        """Queue of the drawings: a photo may have to be encoded."""
        return "picture"

    def run(self, worker: Worker) -> ScoredDocuments | None:
        """Return the scores; None if another model encoded the documents: it was replaced."""
        searcher = worker.searcher()
        index = searcher.index
        model_id = index.manifest.model.id
        documents: list[str | DocumentVectors] = []
        for document in self.documents:
            if isinstance(document, str):
                documents.append(document)
                continue
            if document.model_id != model_id:
                return None
            vectors = DocumentVectors(document.modality, document.embedding, document.tokens)
            documents.append(vectors)
        query = worker.encode(searcher, self.query)
        scores = score_documents(searcher, query, documents)
        tokens = query.encoding.tokens.shape[1]
        if query.modality == "text" and query.text is not None:
            tokens = int(tokenize(index.checkpoint.model, [query.text], truncate=True).mask.sum())
        return ScoredDocuments(scores, model_name(model_id), index.manifest.generation, tokens)
