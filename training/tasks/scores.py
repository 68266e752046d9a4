"""The scores of a batch, computed when a task first asks for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from aladin.model import AladinModel
from aladin.scoring import ScoreName, matching_scores
from training.losses.offline_quintuplet import OfflineScores
from training.tasks.batch import Batch


class BatchScorer(Protocol):
    """Another network that looks at the same batch: an anchor of deep boosting learning."""

    def __call__(self, batch: Batch) -> BatchScores:
        """Encode the batch."""
        ...


class BatchTeacher(Protocol):
    """Gives the scores that a distillation task learns."""

    def scores(self, batch: Batch) -> Float[Tensor, "images texts"]:
        """Score all pairs of a batch, without gradient."""
        ...


class BatchScores:
    """What one network says of a batch; every tensor is computed once, and only if needed.

    Attributes:
        negatives: (images, texts) bool, of the batch.
        images: the photos' encodings.
        texts: the captions' encodings.
        anchors: the same batch seen by the anchors of deep boosting learning.
    """

    def __init__(
        self,
        model: AladinModel,
        batch: Batch,
        anchors: Sequence[BatchScores] = (),
        teacher: BatchTeacher | None = None,
    ) -> None:
        """Encode the batch; scores follow on demand.

        Args:
            model: the network.
            batch: to be scored.
            anchors: the same batch seen by others.
            teacher: of distillation; None: the network's own alignment scores.
        """
        self._model = model
        self._batch = batch
        self._teacher = teacher
        self._of: dict[ScoreName, Tensor] = {}
        self.negatives: Bool[Tensor, "images texts"] = batch.negatives
        self.images = model.encode_images(batch.images)
        self.texts = model.encode_texts(batch.texts)
        self.anchors = tuple(anchors)

    def of(self, score: ScoreName) -> Float[Tensor, "images texts"]:
        """Return a score of all pairs."""
        if score not in self._of:
            self._of[score] = self._model.scores(score, self.images, self.texts)
        return self._of[score]

    def captions(self) -> Float[Tensor, "texts texts"]:
        """Return the cosines of the captions' embeddings."""
        return matching_scores(self.texts, self.texts)

    def teacher(self) -> Float[Tensor, "images texts"]:
        """Return what is to be distilled."""
        if self._teacher is None:
            return self.of("alignment").detach()
        return self._teacher.scores(self._batch)

    def offline(self, score: ScoreName, *, cross: bool) -> OfflineScores:
        """Return a score of the pairs with mined negatives (AOQ).

        Args:
            score: which one.
            cross: also score the negatives with each other; a pair whose negatives belong
                together gets -inf there.
        """
        offline = self._batch.offline
        assert offline is not None  # the stage's configuration sees to it
        model = self._model
        images_bar = model.encode_images(offline.images_bar)
        texts_bar = model.encode_texts(offline.texts_bar)
        text = model.paired_scores(score, self.images, texts_bar)
        image = model.paired_scores(score, images_bar, self.texts)
        if not cross:
            return OfflineScores(text, image)
        images_tilde = model.encode_images(offline.images_tilde)
        texts_tilde = model.encode_texts(offline.texts_tilde)
        cross_text = model.paired_scores(score, images_bar, texts_bar)
        cross_image = model.paired_scores(score, images_tilde, texts_tilde)
        dropped = ~offline.cross
        return OfflineScores(
            text,
            image,
            cross_text.masked_fill(dropped, float("-inf")),
            cross_image.masked_fill(dropped, float("-inf")),
        )


class FrozenNetwork:
    """A trained network that scores batches in evaluation mode, without gradient.

    No module of the task that it helps: its weights are neither trained nor saved with it.
    """

    def __init__(self, model: AladinModel) -> None:
        """Take a network over."""
        self.model = model.eval().requires_grad_(False)

    @torch.no_grad()
    def __call__(self, batch: Batch) -> BatchScores:
        """Encode the batch."""
        return BatchScores(self.model, batch)
