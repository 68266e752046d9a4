"""The `windows` detector: an image classifier applied to fixed windows of a photo.

It is no substitute for a trained detector, but it requires no detection weights, and produces the
input of region models for any photo: vectors, boxes and labels.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, cast

import numpy as np
import torch
from jaxtyping import Float
from PIL import Image
from pydantic import ConfigDict, Field
from torch import Tensor, nn
from transformers import AutoModelForImageClassification

from aladin_network.config import STRICT, ImagePreprocessing
from aladin_network.detectors.base import options_text, parse_options
from aladin_network.encoders.pixels import normalised, preprocess_photo
from aladin_network.encoders.transformers_model import load_network, network_digest
from aladin_network.encoders.vision_tower import read_preprocessing
from aladin_network.errors import CheckpointError, ConfigError
from aladin_network.inference import PHOTOS_AT_A_TIME
from aladin_network.photos.regions import GEOMETRY, RegionSet, with_geometry

_ON_A_CARD = 64


@dataclass(frozen=True, kw_only=True)
class WindowOptions:
    """Positions of the windows.

    Attributes:
        grid: Number of windows along each side, in addition to the one that is the whole photo;
            with 1, there is only that one.
        overlap: Overlap of two neighbours, as a fraction of a window.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    grid: Annotated[int, Field(ge=1, le=16)] = 3
    overlap: Annotated[float, Field(ge=0, lt=1)] = 0.25


class WindowDetector:
    """Pooled features and the top class of a classifier for each window."""

    def __init__(
        self, model: Any, preprocessing: ImagePreprocessing, options: WindowOptions
    ) -> None:
        """Wrap a network, which is modified: its last layer is removed."""
        self._options = options
        # The whole window is resized: a crop of its centre would not match its box.
        self._preprocessing = dataclasses.replace(preprocessing, shortest_edge_px=None)
        names: dict[int, str] = dict(model.config.id2label)
        digest = network_digest(model, [dataclasses.asdict(self._preprocessing), names])
        kind = model.config.model_type
        self.id = f"windows:{kind}:{digest}:{options_text(options)}"
        # ImageNet's class names list all synonyms; the first one is the usual word.
        self._labels = [names[number].split(",")[0].strip() for number in range(len(names))]
        self._device = model.device
        self._classify = _take_classifier(model, len(names))
        self._pooled = model
        self.dim = self._classify.in_features + GEOMETRY
        self._boxes = window_boxes(options.grid, options.overlap)

    def detect(self, photo: Image.Image) -> RegionSet:
        """Encode the windows of a photo; see `Detector`."""
        return self.detect_batch([photo])[0]

    @torch.inference_mode()
    def detect_batch(self, photos: Sequence[Image.Image]) -> list[RegionSet]:
        """Encode the windows of each photo; see `BatchDetector`."""
        views = [self._view(photo, box) for photo in photos for box in self._boxes]
        size = PHOTOS_AT_A_TIME if self._device.type == "cpu" else _ON_A_CARD
        batches = [torch.stack(views[at : at + size]) for at in range(0, len(views), size)]
        # Without the last layer, the network's logits are the pooled features.
        features = torch.cat([self._pooled(batch.to(self._device)).logits for batch in batches])
        classes = self._classify(features).argmax(dim=1).tolist()  # (photos x windows)
        vectors = features.float().cpu().numpy()
        found: list[RegionSet] = []
        for row, photo in enumerate(photos):
            of_photo = slice(row * len(self._boxes), (row + 1) * len(self._boxes))
            labels = tuple(self._labels[number] for number in classes[of_photo])
            own = with_geometry(vectors[of_photo], self._boxes)
            found.append(RegionSet(own, self._boxes, labels, photo.size, self.id))
        return found

    def _view(
        self, photo: Image.Image, box: Float[np.ndarray, " 4"]
    ) -> Float[Tensor, "3 height width"]:
        sides = (photo.width, photo.height) * 2
        edges = [round(float(edge) * side) for edge, side in zip(box, sides, strict=True)]
        x0, y0 = min(edges[0], photo.width - 1), min(edges[1], photo.height - 1)
        window = photo.crop((x0, y0, max(edges[2], x0 + 1), max(edges[3], y0 + 1)))
        pixels = preprocess_photo(window, self._preprocessing)
        return torch.from_numpy(normalised(pixels, self._preprocessing))


def window_boxes(grid: int, overlap: float) -> Float[np.ndarray, "windows 4"]:
    """Return the windows in fractions of the photo: all of it, then a grid row by row."""
    side = 1 / (grid - (grid - 1) * overlap)
    starts = [place * side * (1 - overlap) for place in range(grid)]
    windows = [(x, y, x + side, y + side) for y in starts for x in starts] if grid > 1 else []
    return np.array([(0, 0, 1, 1), *windows], dtype=np.float32).clip(0, 1)


def load_windows(source: str | None, options: Mapping[str, str], device: str) -> WindowDetector:
    """Build the detector `windows`; see `DetectorFactory`."""
    if source is None:
        raise ConfigError("detector windows: expected windows=SOURCE, a folder or a hub name")
    chosen = parse_options(WindowOptions, options, "windows")
    model = load_network(AutoModelForImageClassification, source, None, device)
    return WindowDetector(model, read_preprocessing(source), chosen)


def _take_classifier(model: nn.Module, classes: int) -> nn.Linear:
    """Remove the last linear layer, so that the network returns that layer's input."""
    linears = [
        name
        for name, layer in model.named_modules()
        if isinstance(layer, nn.Linear) and layer.out_features == classes
    ]
    if not linears:
        raise CheckpointError("detector windows: expected a network that ends with its classes")
    layer = cast(nn.Linear, model.get_submodule(linears[-1]))
    model.set_submodule(linears[-1], nn.Identity())
    return layer
