"""The `regions` image encoder: a photo's labels and regions, encoded by the text encoder's BERT.

As in ALADIN, section 3.1, with the input of OSCAR and VinVL: one BERT with one set of weights
encodes texts in the `hf` text encoder and ``[CLS] label pieces [SEP] regions`` here. The two
modalities are encoded independently.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
from PIL import Image
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers.masking_utils import create_bidirectional_mask

from aladin_network.config import STRICT, ImageEncoderConfig, dump_config, parse_config
from aladin_network.encoders.base import (
    Features,
    ImageEncoder,
    Reads,
    RegionBatch,
    RegionInput,
    TextEncoder,
)
from aladin_network.encoders.hf_text import HFTextEncoder
from aladin_network.errors import ConfigError, InputError, RegionError
from aladin_network.photos.regions import GEOMETRY, RegionSet, with_geometry


@dataclass(frozen=True, kw_only=True)
class RegionsArchitecture:
    """How regions and labels enter the BERT; the defaults are VinVL's and ALADIN's.

    Attributes:
        region_dim: Length of a region's vector: 2048 for its appearance, 6 for its position.
        max_regions: Maximum number of regions; further ones are dropped and the detector's first
            ones are kept.
        labels: Whether the detected classes are read; otherwise the label part is [CLS] [SEP].
        max_label_tokens: Maximum length of the label part, special tokens included; longer ones are
            truncated.
        start_token: Token before the labels. With "unk", it is [UNK]: ALADIN's released code looks
            up a token that the vocabulary lacks, so that its checkpoint was trained with [UNK]
            (A-2).
    """

    __pydantic_config__ = STRICT

    region_dim: int = 2054
    max_regions: int = 50
    labels: bool = True
    max_label_tokens: int = 50
    start_token: Literal["cls", "unk"] = "cls"
    norm: bool = True
    norm_eps: float = 1e-12
    dropout: float = 0.1


class RegionsImageEncoder(ImageEncoder):
    """Encodes labels and regions with a shared BERT; outputs the CLS and the regions.

    Owns the embedding of regions alone. The BERT belongs to the text encoder, is held outside of
    this module's parameters, and is so trained, saved and moved once.
    """

    reads: ClassVar[Reads] = "regions"
    no_graph = "its regions come from a detector, which torch computes"

    def __init__(self, config: ImageEncoderConfig, text_encoder: TextEncoder | None = None) -> None:
        """Build with random weights of the regions' embedding."""
        bert = _check_shared(config, text_encoder)
        # A tuple: a module in an attribute would become a submodule of this one.
        self._shared = (cast(HFTextEncoder, text_encoder),)
        super().__init__(config, text_encoder)
        self.architecture = parse_config(
            RegionsArchitecture, config.architecture or {}, "image_encoder.architecture"
        )
        _check_architecture(self.architecture, bert)
        # Includes the defaults, so that a checkpoint does not depend on them.
        self.config = dataclasses.replace(config, architecture=dump_config(self.architecture))
        self.dim, self.num_tokens = int(bert.config.hidden_size), None
        self.embedding = nn.Linear(self.architecture.region_dim, self.dim)
        norm = nn.LayerNorm(self.dim, eps=self.architecture.norm_eps)
        self.norm = norm if self.architecture.norm else nn.Identity()
        self.dropout = nn.Dropout(self.architecture.dropout)
        nn.init.normal_(self.embedding.weight, std=bert.config.initializer_range)
        nn.init.zeros_(self.embedding.bias)
        self._start, self._end = self._special_ids()
        self.freeze()

    @classmethod
    def from_source(
        cls, config: ImageEncoderConfig, text_encoder: TextEncoder | None = None
    ) -> RegionsImageEncoder:
        """Start with a random embedding; only the text encoder is pretrained."""
        return cls(config, text_encoder)

    @property
    def text_encoder(self) -> HFTextEncoder:
        """Text encoder that owns the BERT."""
        return self._shared[0]

    @property
    def frozen(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether everything that affects the output is frozen: the embedding and the BERT."""
        return self._frozen and self.text_encoder.frozen

    @frozen.setter
    def frozen(self, value: bool) -> None:
        self._frozen = value

    def preprocess(self, photo: Image.Image | RegionSet) -> RegionInput:
        """Convert the regions of a photo to the network's input.

        A geometry that the vectors lack is taken from the boxes.
        """
        if isinstance(photo, Image.Image):
            raise InputError("this network reads the regions of a photo, not the photo")
        if len(photo) == 0:
            raise RegionError("expected at least one region, got none")
        known, own = photo.detector, self.config.detector
        if known is not None and own is not None and known != own:
            raise RegionError(f"expected regions of the detector {own}, got some of {known}")
        # A copy: a reader's arrays may be views of a file.
        vectors = torch.tensor(self._vectors(photo)[: self.architecture.max_regions])
        return RegionInput(self._label_ids(photo), vectors)

    def collate(self, inputs: Sequence[RegionInput]) -> RegionBatch:
        """Pad labels and regions, each to the longest of the batch."""
        padding = self.text_encoder.config.pad_id
        label_ids = [each.label_ids for each in inputs]
        vectors = [each.vectors for each in inputs]
        return RegionBatch(
            pad_sequence(label_ids, batch_first=True, padding_value=padding),
            pad_sequence([torch.ones_like(ids, dtype=torch.bool) for ids in label_ids], True),
            pad_sequence(vectors, batch_first=True),
            pad_sequence([torch.ones(len(each), dtype=torch.bool) for each in vectors], True),
        )

    def forward(self, batch: RegionBatch) -> Features:
        """Encode labels and regions; the outputs of the labels are not used."""
        model = cast(Any, self.text_encoder.model)
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            states = self._embed(batch)  # (batch, labels + regions, dim)
            mask = torch.cat([batch.label_mask, batch.region_mask], dim=1)
            attended = create_bidirectional_mask(model.config, states, mask)
            states = model.encoder(states, attention_mask=attended).last_hidden_state
        labels, one = batch.label_ids.shape[1], batch.label_mask[:, :1]
        return Features(
            torch.cat([states[:, :1], states[:, labels:]], dim=1),  # (batch, 1 + regions, dim)
            torch.cat([one, batch.region_mask], dim=1),
            torch.cat([~one, batch.region_mask], dim=1),
        )

    def region_boxes(self, width_px: int, height_px: int) -> Float[np.ndarray, "regions 4"]:
        """Raise an error: the boxes come with the regions."""
        raise InputError(
            f"a photo of {width_px} x {height_px} px alone does not tell where its regions are"
        )

    def weights_digest(self) -> str:
        """Return the sha256 of everything that affects the output, incl. BERT and vocabulary."""
        shared = self.text_encoder
        parts = [
            super().weights_digest(),
            shared.weights_digest(),
            json.dumps(shared.config.architecture, sort_keys=True),
            shared.tokenizer.to_str(),
        ]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def _embed(self, batch: RegionBatch) -> Tensor:
        """Embed both parts; regions have no position and no token type."""
        embeddings = cast(Any, self.text_encoder.model.embeddings)
        # The start token has the first token type, the labels the second, if there is one.
        types = torch.ones_like(batch.label_ids)
        types[:, 0] = 0
        types = types.clamp_max(embeddings.token_type_embeddings.num_embeddings - 1)
        labels = embeddings(input_ids=batch.label_ids, token_type_ids=types)
        regions = self.dropout(self.norm(self.embedding(batch.vectors)))
        return torch.cat([labels, regions.to(labels.dtype)], dim=1)

    def _vectors(self, regions: RegionSet) -> npt.NDArray[np.float32]:
        dim = self.architecture.region_dim
        if regions.dim == dim:
            return regions.vectors
        if regions.dim + GEOMETRY == dim and regions.boxes is not None:
            return with_geometry(regions.vectors, regions.boxes)
        more = f", or {dim - GEOMETRY} with boxes" if dim > GEOMETRY else ""
        raise RegionError(f"expected {dim} numbers a region{more}, got {regions.dim}")

    def _label_ids(self, regions: RegionSet) -> Tensor:
        ids: list[int] = []
        if self.architecture.labels and regions.labels:
            words = " ".join(regions.labels)
            ids = self.text_encoder.tokenizer.encode(words, add_special_tokens=False).ids
        kept = ids[: self.architecture.max_label_tokens - 2]
        return torch.tensor([self._start, *kept, self._end])

    def _special_ids(self) -> tuple[int, int]:
        """Find the ids of the tokens before and after the labels."""
        tokenizer = self.text_encoder.tokenizer
        ids = tokenizer.encode("").ids
        if len(ids) != 2:
            raise ConfigError(
                f"image_encoder: regions needs a tokenizer that puts one token on either side of a "
                f"text, this one puts {len(ids)} tokens"
            )
        if self.architecture.start_token == "cls":
            return ids[0], ids[1]
        unknown = getattr(tokenizer.model, "unk_token", None)
        number = None if unknown is None else tokenizer.token_to_id(unknown)
        if number is None:
            raise ConfigError("image_encoder: start_token is unk, the tokenizer has no such token")
        return number, ids[1]


def _check_shared(config: ImageEncoderConfig, text_encoder: TextEncoder | None) -> Any:
    """Return the BERT; refuse one that regions cannot be inserted into."""
    if not isinstance(text_encoder, HFTextEncoder):
        raise ConfigError("image_encoder: regions shares the BERT of a text encoder named hf")
    plain = ImageEncoderConfig(
        name=config.name,
        architecture=config.architecture,
        frozen=config.frozen,
        detector=config.detector,
    )
    if config != plain:
        raise ConfigError(
            "image_encoder: regions has no source, preprocessing, pyramid, layers and pooled; its "
            "pretrained weights are the text encoder's"
        )
    if config.frozen and not text_encoder.config.frozen:
        raise ConfigError(
            "image_encoder: frozen, but the text encoder, whose BERT it shares, is not"
        )
    model: Any = text_encoder.model
    embeddings = getattr(model, "embeddings", None)
    words = getattr(embeddings, "word_embeddings", None)
    fits = words is not None and words.embedding_dim == model.config.hidden_size
    if not (fits and hasattr(embeddings, "token_type_embeddings") and hasattr(model, "encoder")):
        raise ConfigError(
            f"image_encoder: regions cannot go through a network of type "
            f"{model.config.model_type!r}, only through one of BERT's kind"
        )
    return model


def _check_architecture(architecture: RegionsArchitecture, bert: Any) -> None:
    where = "image_encoder.architecture"
    for name in ("region_dim", "max_regions"):
        if getattr(architecture, name) < 1:
            raise ConfigError(f"{where}.{name}: expected at least 1")
    positions = bert.config.max_position_embeddings
    if not 2 <= architecture.max_label_tokens <= positions:
        raise ConfigError(f"{where}.max_label_tokens: expected 2 to {positions}")
    if not 0 <= architecture.dropout < 1:
        raise ConfigError(f"{where}.dropout: expected at least 0 and less than 1")
