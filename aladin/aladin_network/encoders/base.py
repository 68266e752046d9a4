"""Interfaces of the encoders, and the batches and features that they exchange with the towers."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar, cast

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt8
from PIL import Image
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm  # pyright: ignore[reportPrivateUsage]
from typing_extensions import override

from aladin_network.config import ImageEncoderConfig, TextEncoderConfig
from aladin_network.encoders.pixels import CellLayout, PixelReader
from aladin_network.encoders.readers import Reads
from aladin_network.encoders.tokenization import Tokenization
from aladin_network.errors import ConfigError
from aladin_network.photos.regions import RegionSet
from aladin_network.scoring.masking import lengthened


class Features(NamedTuple):
    """A batch of token sequences inside the network.

    Attributes:
        states: Hidden states; after a tower, element 0 is the aggregate (CLS).
        mask: True at real tokens.
        content: True at tokens that take part in the alignment: no CLS, no SEP, no padding.
    """

    states: Float[Tensor, "batch tokens dim"]
    mask: Bool[Tensor, "batch tokens"]
    content: Bool[Tensor, "batch tokens"]


class Projection(NamedTuple):
    """The linear map that follows the pooled vector of a dual encoder's tower."""

    weight: Float[Tensor, "shared dim"]
    bias: Float[Tensor, " shared"] | None


class PhotoPatches(NamedTuple):
    """A photo cut into square patches, row by row: normalised red, green and blue of each pixel."""

    values: Float[Tensor, "patches numbers"]
    grid: tuple[int, int]


class TextBatch(NamedTuple):
    """Tokenised texts.

    Attributes:
        mask: True at real tokens, special tokens included.
        content: True at word pieces.
    """

    ids: Int[Tensor, "batch tokens"]
    mask: Bool[Tensor, "batch tokens"]
    content: Bool[Tensor, "batch tokens"]


class RegionInput(NamedTuple):
    """The regions of one photo, ready for the network."""

    label_ids: Int[Tensor, " label_tokens"]
    vectors: Float[Tensor, "regions dim"]


class RegionBatch(NamedTuple):
    """The regions of several photos, padded."""

    label_ids: Int[Tensor, "batch label_tokens"]
    label_mask: Bool[Tensor, "batch label_tokens"]
    vectors: Float[Tensor, "batch regions dim"]
    region_mask: Bool[Tensor, "batch regions"]


class PatchBatch(NamedTuple):
    """Photos of any shape cut into patches, padded; `mask` is True at real patches."""

    values: Float[Tensor, "batch patches numbers"]
    mask: Bool[Tensor, "batch patches"]
    grids: Int[Tensor, "batch 2"]


class LayerStates(NamedTuple):
    """States that enter a layer of an image encoder, in place of photos.

    Attributes:
        values: States of tokens, or of a map's cells row by row.
    """

    values: Float[Tensor, "batch tokens dim"]


# Pixels as they are, or normalised; the network normalises the former on its device.
PhotoBatch = UInt8[Tensor, "batch 3 height width"] | Float[Tensor, "batch 3 height width"]
# One photo as returned by an image encoder's `preprocess`, and several as by its `collate`.
ImageInput = UInt8[Tensor, "3 height width"] | PhotoPatches | RegionInput
ImageBatch = PhotoBatch | PatchBatch | RegionBatch | LayerStates


class Freezable(nn.Module):
    """Base of the encoders: when frozen, no gradient and evaluation mode always.

    Evaluation mode matters beyond dropout: a converted network may keep placeholders in its
    batch norms' running statistics.

    Attributes:
        fixed_statistics: Whether the batch norms keep their running statistics, frozen or not.
    """

    def __init__(self, frozen: bool) -> None:
        super().__init__()
        self.frozen = frozen
        self.fixed_statistics = False
        self._digested: tuple[object, str] | None = None

    def freeze(self) -> None:
        """Freeze if configured, once the weights are loaded."""
        if self.frozen:
            self.requires_grad_(False)
            self.eval()

    def train(self, mode: bool = True) -> Freezable:
        """Switch the mode; a frozen module stays in evaluation mode."""
        super().train(mode and not self.frozen)
        if self.fixed_statistics:
            for module in self.modules():
                if isinstance(module, _BatchNorm):
                    module.eval()
        return self

    def divide(self, last_layers: int | None) -> None:
        """Let `forward` go on from the states that enter the last layers, or no longer.

        Args:
            last_layers: Number of layers that are computed from these states, or None to read
                photos only. A divided encoder is a `DividedEncoder`, and takes photos as well.

        Raises:
            ConfigError: If this encoder cannot be divided there.
        """
        if last_layers is not None:
            raise ConfigError("cached: states are kept for image encoders only")

    def weights_digest(self) -> str:
        """Return the sha256 of all weights and buffers, by name.

        It is computed anew only if a tensor has been replaced or raised its version, since training
        asks for it at every stage and for every data set. Fused optimizers and changes of `data`
        change a tensor and not its version: call `forget_digest` before and after training.
        """
        weights = self.state_dict()
        present = [(each.data_ptr(), each._version) for each in weights.values()]  # pyright: ignore[reportPrivateUsage]
        if self._digested is None or self._digested[0] != present:
            self._digested = present, digest_of(weights)
        return self._digested[1]

    def forget_digest(self) -> None:
        """Compute the next digest anew, whether or not a change of the weights can be seen."""
        self._digested = None


class TextEncoder(Tokenization, Freezable, ABC):
    """Base of the text encoders; it owns the tokenizer, a subclass owns the network.

    Attributes:
        config: Complete configuration, from which a checkpoint rebuilds the same encoder.
        dim: Width of the states; set by the subclass.
        projection: Projection of the source's tower, or None if it has none or there was no source.
    """

    config: TextEncoderConfig
    dim: int
    projection: Projection | None = None

    def __init__(self, config: TextEncoderConfig, tokenizer: Tokenizer) -> None:
        Freezable.__init__(self, config.frozen)
        Tokenization.__init__(self, config, tokenizer)

    @classmethod
    @abstractmethod
    def from_source(cls, config: TextEncoderConfig, tokenizer: Tokenizer | None) -> TextEncoder:
        """Build for training: pretrained if ``config.source`` is set, else random.

        Args:
            config: Configuration of a recipe.
            tokenizer: Tokenizer for a random start; a pretrained source has its own.

        Raises:
            ConfigError: If the configuration is impossible, or a random initialisation has no
                tokenizer.
            CheckpointError: If the source cannot be loaded.
        """

    @staticmethod
    @abstractmethod
    def learn_tokenizer(texts: Iterable[str], vocabulary_size: int) -> Tokenizer:
        """Train a tokenizer of the kind that this encoder needs for a random start.

        Args:
            texts: The training captions.
            vocabulary_size: Upper bound, special tokens included.
        """

    @abstractmethod
    def forward(self, batch: TextBatch) -> Features:
        """Encode tokenised texts."""

    def preprocess(self, texts: Sequence[str], *, truncate: bool = False) -> TextBatch:
        """Tokenise texts as tensors; see `tokenize`."""
        tokenized = self.tokenize(texts, truncate=truncate)
        return TextBatch(*(torch.from_numpy(part) for part in tokenized))

    def _check_vocabulary(self, rows: int) -> None:
        """Refuse a tokenizer with more entries than the network has embeddings."""
        if self.tokenizer.get_vocab_size() > rows:
            raise ConfigError(
                f"text_encoder: the tokenizer has {self.tokenizer.get_vocab_size()} entries, "
                f"the architecture's vocab_size is {rows}"
            )


class ImageEncoder(Freezable, ABC):
    """Base of the image encoders, which encode photos or their regions.

    Attributes:
        reads: Kind of input of `preprocess`.
        config: Complete configuration, from which a checkpoint rebuilds the same encoder.
        dim: Width of the states; set by the subclass.
        num_tokens: Number of tokens of every photo, or None if it differs from photo to photo.
        projection: Projection of the source's tower, or None if it has none or there was no source.
        last_layers: Number of layers that are computed from `LayerStates`, or None if the encoder
            is not divided.
        no_graph: Reason why the network has no graph form, where `cells` is None.
    """

    reads: ClassVar[Reads]
    no_graph: ClassVar[str] = "only networks of the encoder hf have one"
    config: ImageEncoderConfig
    dim: int
    num_tokens: int | None
    projection: Projection | None = None
    last_layers: int | None = None

    @abstractmethod
    def __init__(self, config: ImageEncoderConfig, text_encoder: TextEncoder | None = None) -> None:
        super().__init__(config.frozen)

    @classmethod
    @abstractmethod
    def from_source(
        cls, config: ImageEncoderConfig, text_encoder: TextEncoder | None = None
    ) -> ImageEncoder:
        """Build for training: pretrained if ``config.source`` is set, else random.

        Args:
            config: Configuration of a recipe.
            text_encoder: Text encoder of the same network, with its weights.

        Raises:
            ConfigError: If the configuration is impossible.
            CheckpointError: If the source cannot be loaded.
        """

    @property
    def cells(self) -> CellLayout | None:
        """Layout of a photo's cells, or None for a network that has no graph form."""
        return None

    def pixel_reader(self) -> PixelReader | None:
        """Return what prepares photos without the weights; None where the encoder itself has to."""
        return None if self.cells is None else PixelReader(self.config, self.cells)

    @override
    def divide(self, last_layers: int | None) -> None:
        if last_layers is not None:
            raise ConfigError("this encoder has no layers below which states can be kept")

    @abstractmethod
    def preprocess(self, photo: Image.Image | RegionSet) -> ImageInput:
        """Convert an RGB photo, or its regions, to the network's input.

        Raises:
            InputError: If this encoder reads the other kind of input.
        """

    @abstractmethod
    def collate(self, inputs: Sequence[Any]) -> ImageBatch:
        """Join results of this encoder's `preprocess` for at least one photo."""

    @abstractmethod
    def forward(self, batch: Any) -> Features:
        """Encode a batch returned by this encoder's `collate`, or `LayerStates` once divided."""

    @abstractmethod
    def region_boxes(self, width_px: int, height_px: int) -> Float[np.ndarray, "regions 4"]:
        """Return the box of each content token for a photo of this size.

        Returns:
            (x0, y0, x1, y1) in fractions of the photo's width and height.

        Raises:
            InputError: If this encoder reads regions, which have their own boxes.
        """


def digest_of(tensors: Mapping[str, Tensor]) -> str:
    """Return the sha256 of tensors, by name."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name}:{tuple(tensor.shape)}:{tensor.dtype};".encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


class DividedEncoder(Protocol):
    """An image encoder after `Freezable.divide`."""

    def layer_states(self, batch: Any) -> LayerStates:
        """Return the states of photos, as `collate` returns them, that enter the last layers."""
        ...

    def states_digest(self) -> str:
        """Return a digest of everything that determines `layer_states`."""
        ...


Batched = TypeVar("Batched", bound=Tensor | tuple[Tensor, ...])


def to_device(batch: Batched, device: torch.device | str) -> Batched:
    """Move a batch, or each part of one, to a device."""
    if isinstance(batch, Tensor):
        return cast(Batched, batch.to(device))
    return type(batch)(*(part.to(device) for part in batch))


def sent_to(batch: Batched, device: torch.device) -> Batched:
    """Move a batch to a device; to a card beside what it computes for other threads."""
    if device.type != "cuda":
        return to_device(batch, device)
    copying = _copying(device)
    parts = (batch,) if isinstance(batch, Tensor) else batch
    with torch.cuda.stream(copying):
        sent = [part.pin_memory().to(device, non_blocking=True) for part in parts]
    computing = torch.cuda.current_stream(device)
    computing.wait_stream(copying)
    for part in sent:
        part.record_stream(computing)
    return cast(Batched, sent[0] if isinstance(batch, Tensor) else type(batch)(*sent))


@cache
def _copying(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


def concatenate_features(parts: Sequence[Features]) -> Features:
    """Join batches of different token counts; shorter ones are padded.

    Args:
        parts: Batches, at least one.
    """
    longest = max(part.mask.shape[1] for part in parts)
    padded = [Features(*(lengthened(values, longest) for values in part)) for part in parts]
    return Features(*(torch.cat(values) for values in zip(*padded, strict=True)))


def with_front(features: Features, vector: Float[Tensor, "batch dim"]) -> Features:
    """Prepend one vector to each sequence: a real token, but not content."""
    one = features.mask.new_ones(features.mask.shape[0], 1)
    front = vector.unsqueeze(1).to(features.states.dtype)
    return Features(
        torch.cat([front, features.states], dim=1),  # (batch, 1 + tokens, dim)
        torch.cat([one, features.mask], dim=1),
        torch.cat([~one, features.content], dim=1),
    )
