"""Models of this project in MTEB: a checkpoint by any of its scores, an index, a running service.

    import mteb
    from aladin_search.integrations.mteb import CheckpointSearch
    from aladin_search.integrations.mteb_tasks import local_tasks

    mteb.evaluate(CheckpointSearch("RUN/checkpoint"), local_tasks("captions.jsonl"), cache=None)

`CheckpointSearch` and `IndexSearch` implement mteb's `SearchProtocol`, `CheckpointEncoder` its
`EncoderProtocol`. The ``hit_rate_at_k`` of mteb is the recall that `aladin evaluate` prints: of the
row ``fused``, ``matching`` or ``alignment`` for a checkpoint, ``two_stage`` for an index.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aladin_index.search.options import MAX_K
from aladin_network.checkpoint import load_checkpoint
from aladin_network.errors import InputError
from aladin_network.inference import encode_photos
from aladin_network.scoring.scores import EncodedBatch
from aladin_network.types import DIRECTION_OF, Direction, Modality, NullProgress, Target
from aladin_search.index import Index
from aladin_search.integrations.mteb_inputs import (
    Dataset,
    ModelMeta,
    PromptType,
    check_reads_photos,
    checkpoint_meta,
    encode_rows,
    ids_of,
    modality_of,
    name_of,
    photos_of,
    plain_meta,
    texts_of,
)
from aladin_search.integrations.pictures import picture_of
from aladin_search.integrations.places import OpenIndex, Place, Service
from aladin_service.client.searches import Search
from aladin_service.library.places import model_folder
from aladin_training.evaluation import encode_captions

Score = Literal["fused", "matching", "alignment", "attention", "first_stage"]
_QUERIES_AT_A_TIME = 64
_DEFAULT_HITS = 100
_TARGETS: dict[Modality, Target] = {"text": "texts", "image": "images"}


class CheckpointSearch:
    """Scores every document of a corpus for every query by a network, without an index.

    Encodings of the corpus stay in memory, as with `aladin evaluate`: a photo of 50 regions of 128
    values takes 26 kB.
    """

    def __init__(
        self,
        checkpoint: str | PathLike[str],
        *,
        score: Score | None = None,
        name: str | None = None,
    ) -> None:
        """Load a network.

        Args:
            checkpoint: Folder of a checkpoint, or what ``--model`` of the command line takes.
            score: Score that orders documents, or None for the fused one, and for matching if the
                alignment was not trained. Queries and documents of one modality are compared by
                matching.
            name: Name of the model in results, or None for the folder's.

        Raises:
            CheckpointError: If there is no such checkpoint, or it cannot be read.
            InputError: If the network has no such score.
        """
        folder = model_folder(Path(checkpoint))
        self._checkpoint = load_checkpoint(folder)
        trained = self._checkpoint.alignment_trained
        self._score: Score = score or ("fused" if trained else "matching")
        known = ["fused", *self._checkpoint.model.score_names]
        if self._score not in known:
            raise InputError(f"score: expected one of {', '.join(known)}, got {score!r}")
        self._meta = checkpoint_meta(self._checkpoint, name or name_of(folder), self._score)
        self._ids: list[str] = []
        self._corpus: tuple[Modality, EncodedBatch] | None = None

    @property
    def mteb_model_meta(self) -> ModelMeta:
        """Description of the model for mteb."""
        return self._meta

    def index(self, corpus: Dataset, *, task_metadata: Any, **_: Any) -> None:
        """Encode a corpus; see mteb's `SearchProtocol`.

        Raises:
            InputError: If the documents are neither texts nor photos, or one cannot be used.
        """
        self._ids = ids_of(corpus)
        modality = modality_of(task_metadata, PromptType.document)
        self._corpus = (modality, encode_rows(self._checkpoint, corpus, modality, document=True))

    def search(
        self,
        queries: Dataset,
        *,
        task_metadata: Any,
        top_k: int,
        top_ranked: Mapping[str, Sequence[str]] | None = None,
        **_: Any,
    ) -> dict[str, dict[str, float]]:
        """Return the best documents of each query with their scores; see mteb's `SearchProtocol`.

        Raises:
            InputError: If there is no corpus, or the queries are neither texts nor photos.
        """
        if self._corpus is None:
            raise InputError("search: expected a corpus first, call index()")
        modality = modality_of(task_metadata, PromptType.query)
        held, corpus = self._corpus
        encoding = encode_rows(self._checkpoint, queries, modality, document=False)
        row_of = {each: row for row, each in enumerate(self._ids)}
        results: dict[str, dict[str, float]] = {}
        names = ids_of(queries)
        for start in range(0, len(names), _QUERIES_AT_A_TIME):
            rows = slice(start, start + _QUERIES_AT_A_TIME)
            block = self._scores(encoding.rows(rows), modality, corpus, held)
            for query, scores in zip(names[rows], block, strict=True):
                allowed = None if top_ranked is None else [row_of[i] for i in top_ranked[query]]
                results[query] = self._best(scores, allowed, top_k)
        return results

    @torch.inference_mode()
    def _scores(
        self, queries: EncodedBatch, modality: Modality, corpus: EncodedBatch, held: Modality
    ) -> Tensor:
        """Return the scores (queries, documents)."""
        if modality == held:
            return queries.embedding @ corpus.embedding.T
        by_text = modality == "text"
        images, texts = (corpus, queries) if by_text else (queries, corpus)

        def of(name: Any) -> Tensor:
            scores = self._checkpoint.model.scores(name, images, texts)
            return scores.T if by_text else scores

        if self._score != "fused":
            return of(self._score)
        direction: Direction = DIRECTION_OF[modality]
        return self._checkpoint.fusion.of(direction).combine(of("alignment"), of("matching"))

    def _best(self, scores: Tensor, allowed: list[int] | None, top_k: int) -> dict[str, float]:
        rows = torch.arange(len(scores)) if allowed is None else torch.tensor(allowed)
        best = scores[rows].topk(min(top_k, len(rows)))
        found: list[int] = rows[best.indices].tolist()
        return {
            self._ids[row]: value for row, value in zip(found, best.values.tolist(), strict=True)
        }


class IndexSearch:
    """Searches an index that has the documents already, in this process or of a running service.

    The ids of the documents are those of its items. What the index has besides competes for its
    candidates, and is then left out of the results.
    """

    def __init__(
        self,
        index: Index | str | PathLike[str] | None = None,
        *,
        url: str | None = None,
        api_key: str | None = None,
        hits: int = _DEFAULT_HITS,
        name: str = "index",
        timeout_s: float = 60.0,
    ) -> None:
        """Connect to an index.

        Args:
            index: Open index, or the folder of one.
            url: URL of a service, instead of `index`.
            api_key: Key of the service, or None.
            hits: Number of hits of a search, at most 1,000; mteb's own limit is lower for some
                tasks.
            name: Name of the model in results.
            timeout_s: Time limit of a request to the service.

        Raises:
            InputError: If not exactly one of `index` and `url` is given, or `hits` is out of
                bounds.
        """
        if (index is None) == (url is None):
            raise InputError("expected either an index or the URL of a service")
        if not 1 <= hits <= MAX_K:
            raise InputError(f"hits: expected 1 to {MAX_K}, got {hits}")
        self._place: Place
        self._place = OpenIndex(index) if url is None else Service(url, api_key, timeout_s)
        self._hits = hits
        self._meta = plain_meta(name, revision=None, score="two_stage")
        self._known: set[str] = set()
        self._target: Target = "images"

    @property
    def mteb_model_meta(self) -> ModelMeta:
        """Description of the model for mteb."""
        return self._meta

    def index(self, corpus: Dataset, *, task_metadata: Any, **_: Any) -> None:
        """Note which items are documents; see mteb's `SearchProtocol`.

        Raises:
            InputError: If the documents are neither texts nor photos.
        """
        self._known = set(ids_of(corpus))
        self._target = _TARGETS[modality_of(task_metadata, PromptType.document)]

    def search(
        self,
        queries: Dataset,
        *,
        task_metadata: Any,
        top_k: int,
        top_ranked: Mapping[str, Sequence[str]] | None = None,
        **_: Any,
    ) -> dict[str, dict[str, float]]:
        """Return the hits of each query with their scores; see mteb's `SearchProtocol`.

        Raises:
            InputError: If the queries are neither texts nor photos, no hit is a document, or the
                documents are given, as in tasks of re-ranking.
            NoSuchTargetError: If the index has no such items.
        """
        if top_ranked is not None:
            raise InputError("an index orders its own candidates; use CheckpointSearch")
        modality = modality_of(task_metadata, PromptType.query)
        k = min(top_k, self._hits)
        names = ids_of(queries)
        results: dict[str, dict[str, float]] = {}
        if modality == "text":
            asked = (Search(text=text, k=k, target=self._target) for text in texts_of(queries))
        else:
            asked = (Search(image=each, k=k, target=self._target) for each in photos_of(queries))
        for query, search in zip(names, asked, strict=True):
            hits = self._place.answer(search).hits
            results[query] = {hit.id: hit.score for hit in hits if hit.id in self._known}
        if not any(results.values()):
            raise InputError(
                f"no hit of {len(names)} queries is a document of {task_metadata.name}; expected "
                "an index whose ids are those of the documents"
            )
        return results


class CheckpointEncoder:
    """Embeddings of texts and photos, which mteb compares by their cosines."""

    def __init__(self, checkpoint: str | PathLike[str], name: str | None = None, **_: Any) -> None:
        """Load a network.

        Args:
            checkpoint: Folder of a checkpoint, or what ``--model`` of the command line takes.
            name: Name of the model in results, or None for the folder's.
            **_: Further arguments of mteb's `EncoderProtocol`, which have no effect.

        Raises:
            CheckpointError: If there is no such checkpoint, or it cannot be read.
        """
        folder = model_folder(Path(checkpoint))
        self._checkpoint = load_checkpoint(folder)
        self._meta = checkpoint_meta(self._checkpoint, name or name_of(folder), "matching")

    @property
    def mteb_model_meta(self) -> ModelMeta:
        """Description of the model for mteb."""
        return self._meta

    def encode(self, inputs: Any, **_: Any) -> NDArray[np.float32]:
        """Encode batches of texts or of photos; see mteb's `EncoderProtocol`.

        Args:
            inputs: Batches with either the key ``text`` or the key ``image``.
            **_: What mteb tells about the task.

        Returns:
            Array (inputs, d_match) of float32, L2-normalised.

        Raises:
            InputError: If a batch has both or neither, or an input cannot be used.
        """
        model = self._checkpoint.model
        parts: list[NDArray[np.float32]] = []
        for batch in inputs:
            if ("text" in batch) == ("image" in batch):
                raise InputError(f"expected either texts or photos, got {sorted(batch)}")
            if "text" in batch:
                texts = list(batch["text"])
                embedding = encode_captions(model, texts, NullProgress()).embedding.numpy()
            else:
                check_reads_photos(self._checkpoint)
                photos = [picture_of(each) for each in batch["image"]]
                embedding = encode_photos(model, photos).embedding
            parts.append(embedding)
        return np.concatenate(parts)

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Tensor:
        """Return the cosines (inputs 1, inputs 2)."""
        return _rows(embeddings1) @ _rows(embeddings2).T

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Tensor:
        """Return the cosine of each row with the row of the same number."""
        return (_rows(embeddings1) * _rows(embeddings2)).sum(dim=1)


def _rows(embeddings: Any) -> Tensor:
    values = torch.atleast_2d(torch.as_tensor(embeddings, dtype=torch.float32))
    return torch.nn.functional.normalize(values, dim=1)
