"""A CUDA device, or what stands for one: its memory, and what computes there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aladin_index.ann.first_stage_build import CARD_FLAT_UP_TO
from aladin_index.devices.faiss_card import FaissCard, has_card_form
from aladin_index.search.file_collection import StoredCollection
from aladin_index.tokens.codec import CODED, TokenCodec
from aladin_network.errors import ConfigError
from aladin_network.types import Target, TokenDtype

# Bytes of intermediate results at a time: products of a block of rows, or unpacked tokens.
BLOCK_BYTES = 2**28
# Rows that are copied at a time, so that no second copy of an array is in the processor's memory.
_ROWS_AT_A_TIME = 2**18

# Blocks of products and of unpacked tokens, FAISS's working memory, and the libraries' own.
_WORKING_BYTES = 2 * 2**30
_ROW_BYTES = 8  # of an offset, or of an id in an inverted list


class Card:
    """A device on which torch computes both stages, and FAISS the first where it can.

    Attributes:
        device: Torch's device.
        dtype: Number format of embeddings and of unpacked tokens: half precision on a GPU, where
            the time of a search is that of reading them.
        faiss: FAISS on the same device, or None where it has no support for GPUs.
    """

    def __init__(
        self,
        device: torch.device,
        dtype: torch.dtype = torch.float16,
        faiss: FaissCard | None = None,
    ) -> None:
        self.device, self.dtype, self.faiss = device, dtype, faiss

    def free_bytes(self) -> int:
        """Return how much of the device's memory is free."""
        return torch.cuda.mem_get_info(self.device)[0]

    def tensor(self, array: NDArray[Any], dtype: torch.dtype | None = None) -> Tensor:
        """Copy a small array to the device."""
        return torch.from_numpy(np.require(array, requirements=["C", "W"])).to(self.device, dtype)

    def copy(self, array: NDArray[Any], dtype: torch.dtype | None = None) -> Tensor:
        """Copy a mapped array to the device, part by part."""
        dtype = dtype or torch.from_numpy(np.empty(0, dtype=array.dtype)).dtype
        copy = torch.empty(array.shape, dtype=dtype, device=self.device)
        for start in range(0, len(array), _ROWS_AT_A_TIME):
            part = slice(start, start + _ROWS_AT_A_TIME)
            copy[part] = self.tensor(array[part], dtype)
        return copy

    def padded(
        self, parts: Sequence[NDArray[Any]], dtype: torch.dtype | None = None
    ) -> tuple[Tensor, Tensor]:
        """Copy arrays of different lengths, as (parts, longest, ...) and the mask of what is real.

        There is at least one part; the longest counts as one row if all are empty.
        """
        lengths = np.array([len(part) for part in parts])
        real = np.arange(max(1, int(lengths.max()))) < lengths[:, None]
        together = np.zeros((*real.shape, *parts[0].shape[1:]), dtype=parts[0].dtype)
        together[real] = np.concatenate(parts)
        return self.tensor(together, dtype), self.tensor(real)

    def close(self) -> None:
        """Stop FAISS's thread; no search of FAISS is possible afterwards."""
        if self.faiss is not None:
            self.faiss.close()


def check_memory(collections: Mapping[Target, StoredCollection], card: Card) -> None:
    """Check, before anything is copied, that an index fits into what is free of a GPU's memory.

    Raises:
        ConfigError: If it does not; says what each part takes, and which form of tokens fits.
    """
    free_bytes = card.free_bytes()
    needs: dict[str, int] = {}
    for target, collection in collections.items():
        needs[f"embeddings of the {target}"] = _vector_bytes(collection, card)
        needs[f"{collection.entry.token_dtype} tokens of the {target}"] = _token_bytes(collection)
    available, needed = free_bytes - _WORKING_BYTES, sum(needs.values())
    if needed <= available:
        return
    parts = ", ".join(f"{_shown(size)} for {part}" for part, size in needs.items())
    forms: dict[TokenDtype, int] = {
        form: needed
        + sum(_token_bytes(each, form) - _token_bytes(each) for each in collections.values())
        for form in ("int8", "4bit")
    }
    fitting = [
        f"--tokens {form} ({_shown(size)})" for form, size in forms.items() if size <= available
    ]
    raise ConfigError(
        f"expected {_shown(needed)} free on the GPU ({parts}) beside {_shown(_WORKING_BYTES)} to "
        f"work with, got {_shown(free_bytes)}; "
        + (f"an index built with {fitting[0]} fits" if fitting else "no form of tokens fits")
    )


def _vector_bytes(collection: StoredCollection, card: Card) -> int:
    """Return the bytes of the embeddings in half precision, and of inverted lists beside them."""
    count, width = collection.entry.count, collection.entry.vector_dim
    size = 2 * count * width
    index = collection.ann.faiss_index
    if card.faiss is not None and count > CARD_FLAT_UP_TO and has_card_form(index):
        size += (int(index.code_size) + _ROW_BYTES) * count
    return size


def _token_bytes(collection: StoredCollection, form: TokenDtype | None = None) -> int:
    entry, codec = collection.entry, collection.tokens.codec
    if form is not None:
        codebook = np.zeros((1, codec.dim), dtype=np.float32) if form == CODED else None
        codec = TokenCodec(form, codec.dim, codebook)
    return codec.token_bytes * entry.token_count + _ROW_BYTES * (entry.count + 1)


def _shown(size: int) -> str:
    return f"{size / 1e9:.1f} GB"
