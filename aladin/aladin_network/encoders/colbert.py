"""The `colbert` encoders: one late-interaction network for texts alone, as ColBERT and PyLate.

A query and a document are encoded in two roles: each has its own prefix and longest length, a query
may be extended by mask tokens, and a document may leave out punctuation. The text encoder encodes
queries and owns the network; the encoder of documents shares it and takes the place of the image
encoder. Their states are the network's own token vectors, projected and normalised;
`aladin_network.conversion.colbert` makes the checkpoints.

Source: Khattab and Zaharia, ColBERT, SIGIR 2020; the roles are those of sentence-transformers 6.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn, cast

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from PIL import Image
from tokenizers import Encoding, Tokenizer
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from aladin_network.config import ImageEncoderConfig, TextEncoderConfig, parse_config
from aladin_network.encoders.base import DocumentInput, Features, TextBatch, TextEncoder
from aladin_network.encoders.colbert_roles import (
    ColBERTArchitecture,
    DocumentRole,
    TokenProjection,
    check_room,
    compared,
    shortened_text,
)
from aladin_network.encoders.documents import DocumentRoleEncoder
from aladin_network.encoders.readers import TokenizedTexts
from aladin_network.encoders.shared_network import OwningTextEncoder, SharingEncoder
from aladin_network.encoders.transformers_model import build_tower
from aladin_network.errors import InputError, TextTooLongError
from aladin_network.photos.regions import RegionSet


class ColBERTTextEncoder(OwningTextEncoder):
    """Token vectors of queries.

    In its batches, `TextBatch.mask` is True at the tokens that others attend to, and
    `TextBatch.content` at those that are compared, which include the appended ones.
    """

    name = "colbert"

    def __init__(
        self, config: TextEncoderConfig, tokenizer: Tokenizer, network: nn.Module | None = None
    ) -> None:
        """Build from a complete configuration, with random weights unless `network` is given.

        Args:
            config: ``architecture`` is a `ColBERTArchitecture` as plain data.
            tokenizer: Tokenizer of the source.
            network: Network described by ``architecture``.

        Raises:
            ConfigError: If ``architecture`` is missing or impossible, or ``max_tokens`` leaves no
                room for a text.
        """
        super().__init__(config, tokenizer)
        where = "text_encoder.architecture"
        settings = parse_config(ColBERTArchitecture, config.architecture or {}, where)
        self.role = settings.query
        self.network = build_tower(dict(settings.network)) if network is None else network
        self.projections = nn.ModuleList(TokenProjection(each) for each in settings.projections)
        self.freeze()
        hidden = int(cast(Any, self.network).config.hidden_size)
        self.dim = settings.projections[-1].out_dim if settings.projections else hidden
        self._check_vocabulary(int(cast(Any, self.network).get_input_embeddings().num_embeddings))
        check_room(self.tokenizer, self.role.prefix, config.max_tokens, "text_encoder")

    def tokenize(self, texts: Sequence[str], *, truncate: bool = False) -> TokenizedTexts:
        """Tokenise queries, and extend short ones."""
        ids = [self._encode(text).ids for text in texts]
        longest = max(len(each) for each in ids)
        if longest > self.config.max_tokens:
            if not truncate:
                raise TextTooLongError(longest, self.config.max_tokens)
            ids = [self._truncating.encode(self.role.prefix + text).ids for text in texts]
        expansion = self.role.expansion
        floor = 0 if expansion is None else expansion.length
        width = max(floor, *(len(each) for each in ids))
        batch = np.full((len(ids), width), self.config.pad_id, dtype=np.int64)
        mask = np.zeros(batch.shape, dtype=np.bool_)
        content = np.zeros(batch.shape, dtype=np.bool_)
        for row, own in enumerate(ids):
            batch[row, : len(own)] = own
            mask[row, : len(own)] = True
            content[row, : len(own)] = compared(batch[row, : len(own)], self.role.skipped)
            if expansion is not None:
                batch[row, len(own) : floor] = expansion.token
                mask[row, len(own) : floor] = expansion.attend
                content[row, len(own) : floor] = expansion.token not in self.role.skipped
        return TokenizedTexts(batch, mask, content)

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return the characters [start, end) of each compared token; those beside the text have
        none."""
        encoding = self._truncating.encode(self.role.prefix + text)
        before, last, spans = len(self.role.prefix), 0, list[tuple[int, int]]()
        for start, end in encoding.offsets:
            first = min(max(start - before, last), len(text))
            last = min(max(end - before, first), len(text))
            spans.append((first, last))
        expansion = self.role.expansion
        added = 0 if expansion is None else max(0, expansion.length - len(spans))
        spans += [(last, last)] * added
        content = self.tokenize([text], truncate=True).content[0].tolist()
        return [span for span, counts in zip(spans, content, strict=True) if counts]

    def shortened(self, text: str, max_tokens: int) -> str:
        """Return the beginning of a text that has no more than a number of tokens."""
        return shortened_text(self.tokenizer, self.role.prefix, text, max_tokens)

    def forward(self, batch: TextBatch) -> Features:
        """Encode tokenised queries."""
        counted = batch.mask | batch.content
        return Features(self.states(batch.ids, batch.mask), counted, batch.content)

    def states(
        self, ids: Int[Tensor, "batch tokens"], attended: Bool[Tensor, "batch tokens"]
    ) -> Float[Tensor, "batch tokens dim"]:
        """Return the normalised vectors of tokens.

        Args:
            ids: Ids, padded at the end.
            attended: True at tokens that others attend to.
        """
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            found = self.network(input_ids=ids, attention_mask=attended.to(ids.dtype))
            states: Tensor = found.last_hidden_state
            for projection in self.projections:
                states = projection(states)
            return F.normalize(states, dim=-1)

    def _encode(self, text: str) -> Encoding:
        return self.tokenizer.encode(self.role.prefix + text)


class ColBERTDocumentEncoder(SharingEncoder[ColBERTTextEncoder], DocumentRoleEncoder):
    """Token vectors of documents, by the network of a `ColBERTTextEncoder`."""

    owner = ColBERTTextEncoder

    def __init__(self, config: ImageEncoderConfig, text_encoder: TextEncoder | None = None) -> None:
        """Build around the network of a text encoder.

        Args:
            config: ``architecture`` is a `DocumentRole` as plain data.
            text_encoder: Text encoder of the kind `colbert`.

        Raises:
            ConfigError: If the configuration is impossible, or the text encoder of another kind.
        """
        super().__init__(config, text_encoder)
        shared = self.text_encoder
        where = "image_encoder.architecture"
        self.role = parse_config(DocumentRole, config.architecture or {}, where)
        self.max_tokens = self.role.max_tokens
        check_room(shared.tokenizer, self.role.prefix, self.max_tokens, "image_encoder")
        self._truncating = Tokenizer.from_str(shared.tokenizer.to_str())
        self._truncating.enable_truncation(self.max_tokens)

    def preprocess(self, photo: Image.Image | RegionSet | str) -> DocumentInput:
        """Tokenise a document; the end of a long one is not read."""
        if not isinstance(photo, str):
            raise InputError("this network reads texts only, no photos")
        return DocumentInput(torch.tensor(self._truncating.encode(self.role.prefix + photo).ids))

    def count_tokens(self, text: str) -> int:
        """Return the number of tokens of a whole document."""
        return len(self.text_encoder.tokenizer.encode(self.role.prefix + text).ids)

    def shortened(self, text: str, max_tokens: int) -> str:
        """Return the beginning of a document that has no more than a number of tokens."""
        tokenizer = self.text_encoder.tokenizer
        return shortened_text(tokenizer, self.role.prefix, text, max_tokens)

    def collate(self, inputs: Sequence[DocumentInput]) -> TextBatch:
        """Pad documents to the longest of them."""
        ids = [each.ids for each in inputs]
        pad_id = self.text_encoder.config.pad_id
        mask = [torch.ones_like(each, dtype=torch.bool) for each in ids]
        content = [torch.from_numpy(compared(each.numpy(), self.role.skipped)) for each in ids]
        return TextBatch(
            pad_sequence(ids, batch_first=True, padding_value=pad_id),
            pad_sequence(mask, batch_first=True),
            pad_sequence(content, batch_first=True),
        )

    def forward(self, batch: TextBatch) -> Features:
        """Encode tokenised documents."""
        states = self.text_encoder.states(batch.ids, batch.mask)
        return Features(states, batch.mask, batch.content)

    def region_boxes(self, width_px: int, height_px: int) -> NoReturn:  # noqa: ARG002
        """Refuse: words of documents have no boxes."""
        raise InputError("this network reads texts only, which have no regions")
