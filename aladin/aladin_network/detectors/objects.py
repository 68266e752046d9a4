"""Object detectors of the DETR family of the transformers library: DETR, YOLOS, RT-DETR and more.

Their decoders keep one state per object, from which its box and class are predicted; it is used as
the region's appearance. (Bottom-up attention uses the pooled features of the box instead.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from PIL import Image
from pydantic import ConfigDict, Field
from torch import Tensor
from transformers import AutoImageProcessor, AutoModelForObjectDetection

from aladin_network.config import STRICT
from aladin_network.detectors.base import options_text, parse_options
from aladin_network.encoders.transformers_model import (
    load_network,
    loading,
    network_digest,
)
from aladin_network.errors import CheckpointError, ConfigError, InputError
from aladin_network.photos.regions import GEOMETRY, RegionSet, with_geometry


@dataclass(frozen=True, kw_only=True)
class ObjectOptions:
    """Selection of regions. The defaults are those of bottom-up attention and VinVL.

    Attributes:
        min_regions: Number of the most probable objects that are kept regardless of their
            probability.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    threshold: Annotated[float, Field(ge=0, le=1)] = 0.2
    min_regions: Annotated[int, Field(ge=1)] = 10
    max_regions: Annotated[int, Field(ge=1)] = 36
    revision: str | None = None


class ObjectDetector:
    """A detector whose decoder has one state for each object."""

    def __init__(self, model: Any, processor: Any, options: ObjectOptions) -> None:
        if options.min_regions > options.max_regions:
            raise ConfigError(
                f"detector objects: expected min_regions of at most max_regions, got "
                f"{options.min_regions} and {options.max_regions}"
            )
        self._model = model
        self._processor = processor
        self._options = options
        self._labels: dict[int, str] = dict(model.config.id2label)
        self.dim = self._state_dim() + GEOMETRY
        digest = network_digest(model, [processor.to_dict(), self._labels])
        kind = model.config.model_type
        self.id = f"objects:{kind}:{digest}:{options_text(options, leave_out=('revision',))}"

    @classmethod
    def from_source(cls, source: str, options: ObjectOptions, device: str) -> ObjectDetector:
        """Load the network of a folder or hub name."""
        model = load_network(AutoModelForObjectDetection, source, options.revision, device)
        with loading(source, "read its preprocessing"):
            # This way of resizing gives the same result with and without torchvision.
            processor = AutoImageProcessor.from_pretrained(
                source, revision=options.revision, backend="pil", trust_remote_code=False
            )
        return cls(model, processor, options)

    def detect(self, photo: Image.Image) -> RegionSet:
        """Find the regions of a photo; see `Detector`."""
        return self.detect_batch([photo])[0]

    def detect_batch(self, photos: Sequence[Image.Image]) -> list[RegionSet]:
        """Find the regions of each photo; see `BatchDetector`.

        Photos are put together where the network's input has the same size: padding would change
        what it sees.
        """
        pixels = [self._preprocess(photo) for photo in photos]
        by_size: dict[torch.Size, list[int]] = {}
        for place, each in enumerate(pixels):
            by_size.setdefault(each.shape, []).append(place)
        found: dict[int, RegionSet] = {}
        for places in by_size.values():
            batch = torch.stack([pixels[place] for place in places])
            regions = self._run(batch, [photos[place].size for place in places])
            found.update(zip(places, regions, strict=True))
        return [found[place] for place in range(len(photos))]

    @torch.inference_mode()
    def _run(
        self, pixels: Float[Tensor, "batch 3 height width"], sizes_px: Sequence[tuple[int, int]]
    ) -> list[RegionSet]:
        output = self._model(pixel_values=pixels.to(self._model.device))
        objects = output.logits.shape[1]
        # YOLOS has the states of its patches before those of the objects.
        states = output.last_hidden_state[:, -objects:].float()  # (batch, objects, dim)
        probabilities = self._probabilities(output.logits.float())
        batch = (states, probabilities, output.pred_boxes.float())
        rows = zip(*(part.cpu() for part in batch), sizes_px, strict=True)
        return [self._regions(*row) for row in rows]

    def _regions(
        self,
        states: Float[Tensor, "objects dim"],
        probabilities: Float[Tensor, "objects classes"],
        boxes: Float[Tensor, "objects 4"],
        size_px: tuple[int, int],
    ) -> RegionSet:
        best, classes = probabilities.max(dim=1)
        order = best.argsort(descending=True, stable=True)
        certain = int((best >= self._options.threshold).sum())
        count = min(max(certain, self._options.min_regions), self._options.max_regions)
        kept = order[:count]
        centres, half = boxes[kept, :2], boxes[kept, 2:] / 2
        corners = torch.cat([centres - half, centres + half], dim=1).clamp(0, 1).numpy()
        return RegionSet(
            with_geometry(states[kept].numpy().astype(np.float32), corners),
            corners,
            tuple(self._labels[label] for label in classes[kept].tolist()),
            size_px,
            self.id,
        )

    def _probabilities(self, logits: Float[Tensor, "batch objects classes"]) -> Tensor:
        """Return each class's probability; DETR has an additional class for no object."""
        if logits.shape[2] == len(self._labels) + 1:
            return logits.softmax(dim=2)[:, :, :-1]
        return logits.sigmoid()

    def _preprocess(self, photo: Image.Image) -> Float[Tensor, "3 height width"]:
        try:
            batch = self._processor(images=photo, do_pad=False, return_tensors="pt")
        except (ValueError, ZeroDivisionError) as error:  # a line of pixels has no shortest edge
            size = f"{photo.width} x {photo.height} px"
            raise InputError(f"the detector takes no photo of {size} ({error})") from error
        return batch["pixel_values"][0]

    def _state_dim(self) -> int:
        """Determine the size of a state from a blank photo."""
        blank = self._preprocess(Image.new("RGB", (64, 64))).unsqueeze(0)
        with torch.inference_mode():
            output = self._model(pixel_values=blank.to(self._model.device))
        states = getattr(output, "last_hidden_state", None)
        if states is None or states.ndim != 3 or states.shape[1] < output.logits.shape[1]:
            kind = self._model.config.model_type
            raise CheckpointError(f"detector objects: a {kind} has no state for each object")
        return int(states.shape[2])


def load_objects(source: str | None, options: Mapping[str, str], device: str) -> ObjectDetector:
    """Build the detector `objects`; see `DetectorFactory`."""
    if source is None:
        raise ConfigError("detector objects: expected objects=SOURCE, a folder or a hub name")
    chosen = parse_options(ObjectOptions, options, "objects")
    return ObjectDetector.from_source(source, chosen, device)
