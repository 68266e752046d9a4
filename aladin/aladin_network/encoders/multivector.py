"""The `multivector` encoders: one late-interaction network of transformers for texts and photos.

The text encoder owns the network, the image encoder shares it. Their states are the network's own
token vectors, already projected and normalised; `aladin_network.conversion.multivector` makes the
checkpoints, whose towers and alignment head pass them on unchanged. Photos and texts go through the
network without padding: photos one by one, texts together with others of their length.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar, cast

import numpy as np
import torch
import transformers
from jaxtyping import Float
from PIL import Image
from tokenizers import Encoding, Tokenizer
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoConfig

from aladin_network.config import ImageEncoderConfig, TextEncoderConfig
from aladin_network.encoders.base import (
    Features,
    PromptedPhoto,
    PromptedPhotos,
    Reads,
    TextBatch,
    TextEncoder,
)
from aladin_network.encoders.multivector_families import (
    FAMILIES,
    PhotoPrompts,
    TextPrompt,
    network_arguments,
    text_arguments,
)
from aladin_network.encoders.readers import TokenizedTexts
from aladin_network.encoders.shared_network import OwningTextEncoder, SharingEncoder
from aladin_network.encoders.transformers_model import quiet
from aladin_network.errors import ConfigError, InputError, TextTooLongError
from aladin_network.photos.regions import RegionSet
from aladin_network.scoring.masking import lengthened


class MultiVectorTextEncoder(OwningTextEncoder):
    """Token vectors of texts inside of the network's query prompt, whose tokens all count."""

    name = "multivector"

    def __init__(
        self, config: TextEncoderConfig, tokenizer: Tokenizer, network: nn.Module | None = None
    ) -> None:
        """Build from a complete configuration, with random weights unless `network` is given.

        Args:
            config: ``architecture`` has ``network``, the configuration of transformers, and
                ``prefix`` and ``suffix`` of a text.
            tokenizer: Tokenizer of the source.
            network: Network described by ``architecture``.

        Raises:
            ConfigError: If ``architecture`` is missing or impossible, or ``max_tokens`` leaves no
                room for a text.
        """
        super().__init__(config, tokenizer)
        architecture = config.architecture or {}
        try:
            values = dict(architecture["network"])
            self.kind = str(values["model_type"])
            self.prompt = TextPrompt(str(architecture["prefix"]), str(architecture["suffix"]))
            self.network = _built(values) if network is None else network
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"text_encoder.architecture: {error!r}") from error
        self.freeze()
        settings = cast(Any, self.network.config)
        self.dim = int(settings.embedding_dim)
        embeddings = cast(Any, self.network).get_input_embeddings()
        self._check_vocabulary(int(embeddings.num_embeddings))
        room = config.max_tokens - len(self._encode("").ids)
        if room < 1:
            raise ConfigError(
                f"text_encoder: max_tokens is {config.max_tokens}, the prompt alone has "
                f"{config.max_tokens - room} tokens"
            )

    def tokenize(self, texts: Sequence[str], *, truncate: bool = False) -> TokenizedTexts:
        """Tokenise texts inside of their prompts; every token counts."""
        encodings = [self._encode(text) for text in texts]
        longest = max(len(encoding.ids) for encoding in encodings)
        if longest > self.config.max_tokens:
            if not truncate:
                raise TextTooLongError(longest, self.config.max_tokens)
            encodings = [self._encode(self._shortened(text)) for text in texts]
        shape = (len(encodings), max(len(encoding.ids) for encoding in encodings))
        ids = np.full(shape, self.config.pad_id, dtype=np.int64)
        mask = np.zeros(shape, dtype=np.bool_)
        for row, encoding in enumerate(encodings):
            ids[row, : len(encoding.ids)] = encoding.ids
            mask[row, : len(encoding.ids)] = True
        return TokenizedTexts(ids, mask, mask)

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return the characters [start, end) of each token; those of the prompt have none."""
        shown = self._shortened(text)
        begin, spans, last = len(self.prompt.prefix), list[tuple[int, int]](), 0
        encoding = self._encode(shown)
        for start, end in encoding.offsets:
            first = min(max(start - begin, last), len(shown))
            last = min(max(end - begin, first), len(shown))
            spans.append((first, last))
        return spans

    def forward(self, batch: TextBatch) -> Features:
        """Encode tokenised texts."""
        lengths = batch.mask.sum(dim=1)
        states = self._states(batch, lengths)
        return Features(states, batch.mask, batch.content)

    def _states(self, batch: TextBatch, lengths: Tensor) -> Float[Tensor, "batch tokens dim"]:
        """Run the texts of each length together: padding would change the states."""
        parts: list[Tensor] = []
        order: list[Tensor] = []
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            for length in sorted(set(lengths.tolist())):
                rows = (lengths == length).nonzero()[:, 0]
                found = self.network(**text_arguments(self.kind, batch.ids[rows, :length]))
                parts.append(lengthened(found.embeddings, batch.ids.shape[1]))
                order.append(rows)
        return torch.cat(parts)[torch.cat(order).argsort()]

    def _encode(self, text: str) -> Encoding:
        return self.tokenizer.encode(f"{self.prompt.prefix}{text}{self.prompt.suffix}")

    def _shortened(self, text: str) -> str:
        """Cut the end of a text off until it fits into its prompt."""
        begin = len(self.prompt.prefix)
        while text:
            encoding = self._encode(text)
            over = len(encoding.ids) - self.config.max_tokens
            if over <= 0:
                break
            starts = [
                start - begin
                for start, end in encoding.offsets
                if begin <= start < end <= begin + len(text)
            ]
            text = text[: starts[-min(over, len(starts))]] if starts else ""
        return text


class MultiVectorImageEncoder(SharingEncoder[MultiVectorTextEncoder]):
    """Token vectors of photos inside of the network's prompt."""

    reads: ClassVar[Reads] = "photo"
    owner = MultiVectorTextEncoder

    def __init__(self, config: ImageEncoderConfig, text_encoder: TextEncoder | None = None) -> None:
        """Build around the network of a text encoder.

        Args:
            config: ``architecture`` is the description of the processor
                (`aladin_network.encoders.multivector_families.describe_processor`).
            text_encoder: Text encoder of the kind `multivector`.

        Raises:
            ConfigError: If the configuration is impossible, or the text encoder of another kind.
        """
        super().__init__(config, text_encoder)
        shared = self.text_encoder
        self._prompts = PhotoPrompts(shared.kind, config.architecture or {}, shared.tokenizer)

    def preprocess(self, photo: Image.Image | RegionSet) -> PromptedPhoto:
        """Convert an RGB photo to pixels and a prompt."""
        if isinstance(photo, RegionSet):
            raise InputError("this network reads photos, not regions")
        return self._prompts.prompted(photo)

    def collate(self, inputs: Sequence[PromptedPhoto]) -> PromptedPhotos:
        """Collect photos; none is padded."""
        return PromptedPhotos(*inputs)

    def forward(self, batch: PromptedPhotos) -> Features:
        """Encode photos one by one."""
        kind, network = self.text_encoder.kind, self.text_encoder.network
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            states = [network(**network_arguments(kind, each)).embeddings[0] for each in batch]
        mask = pad_sequence(
            [each.new_ones(len(each), dtype=torch.bool) for each in states], batch_first=True
        )
        part = [self._prompts.takes_part(each.ids) for each in batch]
        content = pad_sequence(part, batch_first=True)
        return Features(pad_sequence(states, batch_first=True), mask, content)

    def region_boxes(self, width_px: int, height_px: int) -> Float[np.ndarray, "regions 4"]:
        """Return each token's (x0, y0, x1, y1) in fractions; a word's is the whole photo."""
        return np.array(self._prompts.boxes(width_px, height_px), dtype=np.float32)


def network_config(network: nn.Module) -> dict[str, Any]:
    """Return the plain data from which a network is built again."""
    values: dict[str, Any] = cast(Any, network.config).to_dict()
    dropped = ("_name_or_path", "architectures", "transformers_version", "dtype")
    return {key: value for key, value in values.items() if key not in dropped}


def _built(values: dict[str, Any]) -> nn.Module:
    """Build a network with random weights.

    Raises:
        ConfigError: If the family is unknown.
    """
    kind = values.pop("model_type")
    if kind not in FAMILIES:
        raise ConfigError(f"multivector: unknown family {kind!r}, known are {sorted(FAMILIES)}")
    with quiet():
        config = AutoConfig.for_model(kind, **values)
        return getattr(transformers, FAMILIES[kind].network)(config).float()


def text_config(
    network: nn.Module, prompt: TextPrompt, pad_id: int, max_tokens: int
) -> TextEncoderConfig:
    """Return the configuration of the text encoder of a network."""
    architecture = {"network": network_config(network)} | dataclasses.asdict(prompt)
    return TextEncoderConfig(
        name="multivector",
        architecture=architecture,
        frozen=True,
        max_tokens=max_tokens,
        pad_id=pad_id,
    )
