"""The `naflex` image encoder: SigLIP 2's network for photos of any shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
from jaxtyping import Float
from PIL import Image
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers.configuration_utils import PretrainedConfig
from typing_extensions import override

from aladin_network.config import ImageEncoderConfig, ImagePreprocessing
from aladin_network.encoders.base import Features, PatchBatch, PhotoPatches, with_front
from aladin_network.encoders.pixels import patch_grid, pooled_boxes, preprocess_patches
from aladin_network.encoders.pretrained import pool
from aladin_network.encoders.vision_tower import VisionTowerEncoder, pooled_cells
from aladin_network.errors import ConfigError
from aladin_network.photos.regions import RegionSet

# Number of patches of SigLIP 2's last training phase, and its processor's default.
_MAX_PATCHES = 256


class NaFlexImageEncoder(VisionTowerEncoder):
    """Patches of photos that keep their aspect ratio, so that photos have different grids.

    The states are the last layer's after the network's last norm. There is no CLS; with
    ``pooled`` the network's attention pooling comes in front. A pyramid gives every photo the
    same number of regions.
    """

    default_preprocessing = ImagePreprocessing(max_patches=_MAX_PATCHES)
    no_graph = "every photo has its own grid of patches, with positions interpolated for it"

    @override
    def measure(self) -> None:
        config = self.config
        settings = cast(PretrainedConfig, self.model.config)
        self.dim = int(settings.hidden_size)
        self._patch_px = int(settings.patch_size)
        patch_grid(1, 1, self.preprocessing, self._patch_px)
        self._levels = [(side, side) for side in config.pyramid or ()]
        if any(side < 1 for side, _ in self._levels):
            raise ConfigError(
                f"image_encoder: pyramid {config.pyramid}, expected sides of 1 and up"
            )
        self.has_front = config.pooled
        regions = sum(rows * columns for rows, columns in self._levels)
        self.num_tokens = regions + int(config.pooled) if self._levels else None

    @staticmethod
    @override
    def check(config: ImageEncoderConfig) -> None:
        if (config.architecture or {}).get("model_type") != "siglip2_vision_model":
            raise ConfigError("image_encoder: naflex needs the vision tower of a siglip2 network")
        if config.layers:
            raise ConfigError("image_encoder: naflex has no layers beside the last one")

    def preprocess(self, photo: Image.Image | RegionSet) -> PhotoPatches:
        """Cut an RGB photo into patches."""
        values, grid = preprocess_patches(photo, self.preprocessing, self._patch_px)
        return PhotoPatches(torch.from_numpy(values), grid)

    def collate(self, inputs: Sequence[PhotoPatches]) -> PatchBatch:
        """Pad all photos to the largest number of patches among them."""
        counts = torch.tensor([len(each.values) for each in inputs])
        return PatchBatch(
            values=pad_sequence([each.values for each in inputs], batch_first=True),
            mask=torch.arange(int(counts.max())) < counts.unsqueeze(1),
            grids=torch.tensor([each.grid for each in inputs]),
        )

    def forward(self, batch: PatchBatch) -> Features:
        """Encode collated photos."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            output = self.model(
                pixel_values=batch.values,
                pixel_attention_mask=batch.mask.long(),
                spatial_shapes=batch.grids,
            )
            states, pooled = pool(self.model, output)
        features = (
            self._on_levels(states, batch)
            if self._levels
            else Features(states, batch.mask, batch.mask)
        )
        return with_front(features, pooled) if self.config.pooled else features

    def region_boxes(self, width_px: int, height_px: int) -> Float[np.ndarray, "regions 4"]:
        """Return each region's (x0, y0, x1, y1) in fractions of a photo of this size."""
        grid = patch_grid(width_px, height_px, self.preprocessing, self._patch_px)
        return pooled_boxes(grid, self._levels or [grid])

    def _on_levels(self, states: Tensor, batch: PatchBatch) -> Features:
        """Pool each photo's patches to the pyramid's grids."""
        regions = torch.cat(
            [
                pooled_cells(
                    own[: rows * columns].T.reshape(1, self.dim, rows, columns), self._levels
                )
                for own, (rows, columns) in zip(states, batch.grids.tolist(), strict=True)
            ]
        )
        mask = regions.new_ones(regions.shape[:2], dtype=torch.bool)
        return Features(regions, mask, mask)
