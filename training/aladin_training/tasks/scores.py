"""The scores of a batch, computed when a task first needs them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from aladin_network.model import AladinModel
from aladin_network.scoring.scores import EncodedBatch, matching_scores
from aladin_network.types import ScoreName
from aladin_training.batches.batch import Batch
from aladin_training.losses.offline_quintuplet import OfflineScores
from aladin_training.parallel.distributed import gather_inputs, gather_results

Inputs = TypeVar("Inputs", bound=Tensor | tuple[Tensor, ...])


class Encode(Protocol):
    """Runs an encoder in a training step: all inputs at once, or chunk by chunk."""

    def __call__(self, encoder: Callable[[Inputs], EncodedBatch], inputs: Inputs) -> EncodedBatch:
        """Run `encoder` on the photos or texts of this process."""
        ...


def encode_directly(encoder: Callable[[Inputs], EncodedBatch], inputs: Inputs) -> EncodedBatch:
    """Run an encoder directly, with its gradient."""
    return encoder(inputs)


class BatchScorer(Protocol):
    """Another network that reads the same batch: an anchor of deep boosting learning."""

    def __call__(self, batch: Batch, encode: Encode) -> BatchScores:
        """Encode the batch."""
        ...


class BatchTeacher(Protocol):
    """Provides the scores that a distillation task learns."""

    def scores(self, batch: Batch, encode: Encode) -> Float[Tensor, "images texts"]:
        """Score all pairs of a batch, without gradient."""
        ...


class BatchScores:
    """The encodings and scores of a batch by one network, computed once and only if needed.

    Each process encodes its own photos and texts, and scores its photos with the texts of all:
    the rows of all processes together are the scores of the batch.

    Attributes:
        negatives: (images, texts) bool, for the whole batch.
        images: Encodings of this process's photos.
        texts: Encodings of their captions.
        anchors: The same batch as scored by the anchors of deep boosting learning.
    """

    def __init__(
        self,
        model: AladinModel,
        batch: Batch,
        encode: Encode = encode_directly,
        anchors: Sequence[BatchScores] = (),
        teacher: BatchTeacher | None = None,
    ) -> None:
        """Encode the batch; scores are computed on demand.

        Args:
            model: Network.
            batch: Batch to score.
            encode: Runs the network's encoders.
            anchors: The same batch as scored by anchors.
            teacher: Teacher of distillation, or None for the network's own alignment scores.
        """
        self._model = model
        self._batch = batch
        self._encode = encode
        self._teacher = teacher
        self._of: dict[ScoreName, Tensor] = {}
        self._taught: Tensor | None = None
        self.images = encode(model.encode_images, batch.images)
        self.texts = encode(model.encode_texts, batch.texts)
        # A batch that is encoded in chunks may still be on the CPU.
        self._device = self.images.mask.device
        self.negatives: Bool[Tensor, "images texts"] = batch.negatives.to(self._device)
        self.anchors = tuple(anchors)

    def of(self, score: ScoreName) -> Float[Tensor, "images texts"]:
        """Return a score of all pairs."""
        if score not in self._of:
            # The matching score reads embeddings only: tokens need not be exchanged.
            own = _without_tokens(self.texts) if score == "matching" else self.texts
            rows = self._model.scores(score, self.images, gather_inputs(own))
            self._of[score] = gather_results(rows)
        return self._of[score]

    def captions(self) -> Float[Tensor, "texts texts"]:
        """Return the cosines of the captions' embeddings."""
        own = _without_tokens(self.texts)
        return gather_results(matching_scores(own, gather_inputs(own)))

    def embeddings(self) -> tuple[Float[Tensor, "images dim"], Float[Tensor, "texts dim"]]:
        """Return the embeddings of all photos and of all texts."""
        return gather_results(self.images.embedding), gather_results(self.texts.embedding)

    def teacher(self) -> Float[Tensor, "images texts"]:
        """Return the scores to distil."""
        if self._teacher is None:
            return self.of("alignment").detach()
        if self._taught is None:  # several tasks may learn from them
            self._taught = self._teacher.scores(self._batch, self._encode)
        return self._taught

    def offline(self, score: ScoreName, *, cross: bool) -> OfflineScores:
        """Return a score of the pairs with mined negatives (AOQ).

        Args:
            score: Name of the score.
            cross: Also score the negatives with each other; a pair whose negatives match gets -inf
                there.
        """
        offline = self._batch.offline
        assert offline is not None  # ensured by the stage's configuration

        def paired(images: EncodedBatch, texts: EncodedBatch) -> Tensor:
            return gather_results(self._model.paired_scores(score, images, texts))

        encode, model = self._encode, self._model
        images_bar = encode(model.encode_images, offline.images_bar)
        texts_bar = encode(model.encode_texts, offline.texts_bar)
        text, image = paired(self.images, texts_bar), paired(images_bar, self.texts)
        if not cross:
            return OfflineScores(text, image)
        images_tilde = encode(model.encode_images, offline.images_tilde)
        texts_tilde = encode(model.encode_texts, offline.texts_tilde)
        dropped = ~gather_results(offline.cross.to(self._device))
        return OfflineScores(
            text,
            image,
            paired(images_bar, texts_bar).masked_fill(dropped, float("-inf")),
            paired(images_tilde, texts_tilde).masked_fill(dropped, float("-inf")),
        )


def _without_tokens(texts: EncodedBatch) -> EncodedBatch:
    return texts._replace(tokens=texts.tokens[:, :0], mask=texts.mask[:, :0])


class FrozenNetwork:
    """A trained network that scores batches in evaluation mode, without gradient.

    It is no submodule of the task that it helps: its weights are neither trained nor saved with it.
    """

    def __init__(self, model: AladinModel, reads: str = "") -> None:
        """Freeze a network.

        Args:
            model: Network to freeze.
            reads: Name of the network in `Batch.others`, if it has inputs of its own.
        """
        self.model = model.eval().requires_grad_(False)
        self._reads = reads

    @torch.no_grad()
    def __call__(self, batch: Batch, encode: Encode = encode_directly) -> BatchScores:
        """Encode the batch."""
        return BatchScores(self.model, batch.for_network(self._reads), encode)
