"""Train the embeddings of one photo's captions to find each other."""

from __future__ import annotations

from torch import Tensor

from aladin.errors import ConfigError
from training.tasks.base import PairTask
from training.tasks.scores import BatchScores


class CaptionTask(PairTask):
    """A ranking loss between the first and the second caption of each photo of a batch.

    Not of the papers: with few photos, captions that say the same in other words teach the
    text tower what one caption a photo cannot.
    """

    def forward(self, scores: BatchScores) -> Tensor:
        """Return the scalar loss of a batch.

        Raises:
            ConfigError: the stage shows one caption of each photo only.
        """
        negatives = scores.negatives
        per_photo = negatives.shape[1] // negatives.shape[0]
        if per_photo < 2:
            raise ConfigError("task captions needs captions_per_photo of at least 2")
        return self.loss(scores.captions()[0::per_photo, 1::per_photo], negatives[:, 0::per_photo])
