"""Stand-ins for what earlier stages leave: a step takes as long with them as with the real ones."""

from __future__ import annotations

import copy

import torch

from aladin.checkpoint import Checkpoint, Provenance
from aladin.fusion import DirectionFusion, Fusion
from aladin.model import AladinModel
from training.dataset import PairDataset
from training.mining.negatives import MinedFrom, OfflineNegatives
from training.stage import OfflineNegativesConfig
from training.streaming.photo_stream import PhotoStream

# Both scores take part, as with a fusion that has been fitted.
_HALF = DirectionFusion(weight=0.5)


class RandomSources:
    """Teachers and anchors are copies of the network itself, mined lists are drawn at random."""

    def __init__(self, model: AladinModel, train_set: PairDataset | PhotoStream) -> None:
        """Stand in for the earlier stages of a recipe.

        Args:
            model: the recipe's network, any weights.
            train_set: what lists would be mined from; at least two photos.
        """
        self._model = model
        self._train_set = train_set

    def checkpoint(self, stage: str) -> Checkpoint:
        """Return a copy of the network."""
        fusion = Fusion(text_to_image=_HALF, image_to_text=_HALF)
        return Checkpoint(copy.deepcopy(self._model), fusion, Provenance(stage=stage), "random")

    def negatives(self, config: OfflineNegativesConfig) -> OfflineNegatives:
        """Return lists of random captions and photos, never a photo's own."""
        assert isinstance(self._train_set, PairDataset)  # recipes mine in no stream
        captions_of_photo = self._train_set.captions_of_photo
        n_photos = len(captions_of_photo)
        first_captions = torch.tensor([captions[0] for captions in captions_of_photo])
        generator = torch.Generator().manual_seed(0)

        def other_photos(photos: torch.Tensor, count: int) -> torch.Tensor:
            steps = torch.randint(1, n_photos, (len(photos), count), generator=generator)
            return (photos.unsqueeze(1) + steps) % n_photos  # (len(photos), count)

        of_photos = other_photos(torch.arange(n_photos), config.num_texts)
        of_captions = other_photos(self._train_set.image_of_text, config.num_images)
        mined_from = MinedFrom(data=self._train_set.digest, model_id=None, score=config.score)
        return OfflineNegatives(first_captions[of_photos].int(), of_captions.int(), mined_from)
