"""Encoding of photos and texts for indexing and serving, whatever computes the network.

Texts of queries may be encoded in bfloat16. Torch is not imported here: a network may be one of
torch (`aladin_network.model`) or of graphs (`aladin_network.graphs`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable
from weakref import WeakKeyDictionary

import numpy as np
from PIL import Image

from aladin_network.config import ModelConfig
from aladin_network.encoders.readers import PhotoInput, PhotoReader, TextReader, TokenizedTexts
from aladin_network.encoders.tokenization import similar_lengths
from aladin_network.errors import InputError, TextTooLongError
from aladin_network.scoring.encoding import Encoding
from aladin_network.types import Modality, Precision, QueryPrecisionSetting

# Early maps of a convolutional network are large: above some MiB the allocator returns their memory
# after every layer, and most of the time is spent on allocating it again. With MobileNetV2 on one
# thread, a photo takes 19 ms alone, 17 in a batch of two, 20 of four, 28 of eight.
PHOTOS_AT_A_TIME = 2
# A card is given enough to do with each of a network's some hundred steps.
PHOTOS_ON_A_CARD = 64

# Instructions that multiply bfloat16; without them it is emulated and slower than float32.
_BFLOAT16_INSTRUCTIONS = frozenset({"avx512_bf16", "amx_bf16"})


@runtime_checkable
class PhotoSide(Protocol):
    """The image half of a network."""

    @property
    def encoder(self) -> PhotoReader:
        """Its encoder, as far as inputs are concerned."""
        ...


@runtime_checkable
class TextSide(Protocol):
    """The text half of a network."""

    @property
    def encoder(self) -> TextReader:
        """Its encoder, as far as inputs are concerned."""
        ...


@runtime_checkable
class Network(Protocol):
    """A network that encodes; what indexing and serving need of it."""

    @property
    def config(self) -> ModelConfig:
        """Complete configuration."""
        ...

    @property
    def image(self) -> PhotoSide:
        """Image half."""
        ...

    @property
    def text(self) -> TextSide:
        """Text half."""
        ...

    @property
    def embedding_dim(self) -> int:
        """Size of an embedding."""
        ...

    @property
    def token_dim(self) -> int:
        """Size of a token."""
        ...

    @property
    def zero_tokens(self) -> int:
        """Number of zero tokens behind an image's own tokens: 1 or 0."""
        ...

    @property
    def has_tokens(self) -> bool:
        """Whether tokens of items are worth storing: those of a trained alignment are."""
        ...

    def infer_images(self, batch: Any) -> Encoding:
        """Encode a batch of the image encoder's `collate`, without gradients."""
        ...

    def infer_texts(self, batch: TokenizedTexts) -> Encoding:
        """Encode tokenised texts, without gradients."""
        ...

    def with_texts_in_bfloat16(self) -> Network:
        """Return a network that encodes texts in bfloat16, and photos as this one."""
        ...

    def on_threads(self, count: int) -> Network:
        """Return the network that computes a batch on so many threads, if it has its own."""
        ...

    def throughput(self) -> Throughput:
        """Return how to encode many items."""
        ...


class Throughput(NamedTuple):
    """How a network encodes most items in a time.

    Threads that compute a batch each lose less than those that share one, and a graph takes no
    less time for a photo that has company. Torch's own threads share every batch, so a network of
    torch is called by one thread at a time; on a card by two, of which one computes while the
    other prepares and copies the next batch.

    Attributes:
        callers: Number of threads that call it at the same time.
        photos_a_call: Number of photos that a thread encodes together.
        reader: What prepares photos for it in other processes, if it needs so many that threads
            would wait for each other's Python; else None.
    """

    network: Network
    callers: int
    photos_a_call: int
    reader: PhotoReader | None = None


def encode_photos(model: Network, photos: Sequence[Image.Image]) -> Encoding:
    """Encode decoded RGB photos.

    Args:
        model: Network in evaluation mode.
        photos: Photos, at least one.
    """
    return encode_images(model, [model.image.encoder.preprocess(photo) for photo in photos])


def encode_images(
    model: Network, inputs: Sequence[PhotoInput], at_a_time: int = PHOTOS_AT_A_TIME
) -> Encoding:
    """Encode results of the image encoder's `preprocess`.

    Args:
        model: Network in evaluation mode.
        inputs: Inputs of at least one photo; they take far less memory than photos.
        at_a_time: Number of photos of a batch.
    """
    parts: list[Encoding] = []
    for start in range(0, len(inputs), at_a_time):
        batch = model.image.encoder.collate(inputs[start : start + at_a_time])
        parts.append(model.infer_images(batch))
    return Encoding.concatenate(parts)


def encode_texts(model: Network, texts: Sequence[str], *, truncate: bool = False) -> Encoding:
    """Encode texts in one batch.

    Args:
        model: Network in evaluation mode.
        texts: Texts, at least one.
        truncate: Whether to truncate texts that are too long instead of rejecting them.

    Raises:
        InputError: If a text is blank, or has no word that the tokenizer keeps.
        TextTooLongError: If a text has more tokens than the network takes, and `truncate` is off.
    """
    return model.infer_texts(tokenize(model, texts, truncate=truncate))


def encode_documents(model: Network, texts: Sequence[str]) -> Encoding:
    """Encode texts that are to be found, those of similar length together.

    The end of a text that is longer than the network reads is cut, see `is_cut`.

    Args:
        model: Network in evaluation mode.
        texts: Texts, at least one.

    Raises:
        InputError: If a text is blank, or has no word that the tokenizer keeps.
    """
    parts: list[Encoding] = []
    batch = tokenize(model, texts, truncate=True)
    # A network that pads to a number of tokens of its own takes nothing shorter.
    pad_to = model.text.encoder.config.pad_to
    lengths = [pad_to or int(length) for length in batch.mask.sum(axis=1)]
    groups = similar_lengths(lengths)
    for rows in groups:
        width = lengths[rows[-1]]
        kept = np.ix_(rows, range(width))
        some = TokenizedTexts(batch.ids[kept], batch.mask[kept], batch.content[kept])
        parts.append(model.infer_texts(some))
    places = [row for rows in groups for row in rows]
    return Encoding.concatenate(parts).rows(np.argsort(places))


def is_cut(model: Network, text: str) -> bool:
    """Tell whether `encode_documents` does not read the end of a text.

    Raises:
        InputError: If the text cannot be encoded.
    """
    try:
        tokenize(model, [text])
    except TextTooLongError:
        tokenize(model, [text], truncate=True)
        return True
    return False


def tokenize(model: Network, texts: Sequence[str], *, truncate: bool = False) -> TokenizedTexts:
    """Tokenise texts; refuse those that cannot be encoded; see `encode_texts`."""
    for text in texts:
        if not text.strip():
            raise InputError("the text is empty")
    batch = model.text.encoder.tokenize(texts, truncate=truncate)
    if not bool(batch.content.any(axis=1).all()):
        raise InputError("the text has no word that the tokenizer knows how to keep")
    return batch


def choose_precision(name: QueryPrecisionSetting, device: str) -> Precision:
    """Return the precision in which torch encodes the texts of queries, for a setting.

    "auto" takes bfloat16 where the processor multiplies it. On one with AVX512-BF16 (EPYC, one
    thread) a text of a 6-layer MiniLM takes 4.6 ms for 8.7 alone, and 1.4 for 3.8 in a batch of
    16; on Flickr8k 99 % of the top 10 stay, and recall as it is. Photos stay float32: in bfloat16
    MobileNetV2 takes 11 ms for 24, but 6 % of the top 10 change, and few queries are photos.
    Dynamic int8 takes another third from a text and turns embeddings by ten degrees (cosine 0.98);
    what it gives depends on the other texts of a batch.

    Args:
        name: Name of a precision, or "auto".
        device: Name of the network's device; on a GPU, "auto" is float32.
    """
    if name != "auto":
        return name
    return "bfloat16" if _multiplies_bfloat16() and device == "cpu" else "float32"


def _multiplies_bfloat16() -> bool:
    """Tell whether the processor has instructions that multiply bfloat16, as far as it is known."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return False
    flags = next((line.split() for line in lines if line.startswith("flags")), [])
    return not _BFLOAT16_INSTRUCTIONS.isdisjoint(flags)


class QueryNetworks:
    """Networks that encode queries in place of those of indexes; thread-safe.

    What leaves them through `aladin_network.inference` is float32, as from the networks themselves.
    """

    def __init__(self, make: Callable[[Network, Modality], Network]) -> None:
        """Make no network yet."""
        self._make = make
        self._made: WeakKeyDictionary[Network, dict[Modality, Network]] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def of(self, model: Network, modality: Modality) -> Network:
        """Return the network that encodes queries in place of another, made at the first call.

        Args:
            model: Network of an index, in float32 and evaluation mode.
            modality: Modality of the queries.
        """
        with self._lock:
            made = self._made.setdefault(model, {})
            if modality not in made:
                made[modality] = self._make(model, modality)
            return made[modality]
