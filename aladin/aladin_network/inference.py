"""Encoding of photos and texts for indexing and serving: no gradients, float32 results.

Queries may be encoded in bfloat16; indexes are always built in float32.

The outputs of frozen encoders are cached on disk, and memory-mapped by training:

    ROOT/ENCODER/            one folder per encoder, named by the digest of its configuration
      PART.json              keys and token counts; written last, so a part is complete if it exists
      PART.states.npy        (tokens of all items, dim) float16
      PART.content.npy       (tokens of all items,) bool

Items are keyed by the digest of their content, so data sets and splits share common items, and
interrupted work resumes where it stopped.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from aladin_network.encoders.base import Features, ImageInput, TextBatch, to_device
from aladin_network.encoders.documents import DocumentRoleEncoder
from aladin_network.errors import InputError, ShapeError
from aladin_network.files import atomic_file, write_json
from aladin_network.model import AladinModel
from aladin_network.scoring.encoding import Encoding
from aladin_network.scoring.scores import EncodedBatch, concatenate
from aladin_network.types import QueryPrecision, QueryPrecisionSetting

# Early maps of a convolutional network are large: above some MiB the allocator returns their memory
# after every layer, and most of the time is spent on allocating it again. With MobileNetV2 on one
# thread, a photo takes 19 ms alone, 17 in a batch of two, 20 of four, 28 of eight.
PHOTOS_AT_A_TIME = 2

# Texts of different lengths are padded to the longest. Another call of the network takes as long as
# some 10 tokens with ONNX Runtime and 25 with torch (MiniLM on one thread); so much padding is
# allowed. Beyond some hundred tokens, more of them at a time take no less time each, but memory.
_TOKENS_OF_A_CALL = 16
_MOST_TOKENS = 2048

# Instructions that multiply bfloat16; without them it is emulated and slower than float32.
_BFLOAT16_INSTRUCTIONS = frozenset({"avx512_bf16", "amx_bf16"})

FORMAT_VERSION = 1


@torch.inference_mode()
def encode_photos(model: AladinModel, photos: Sequence[Image.Image]) -> Encoding:
    """Encode decoded RGB photos.

    Args:
        model: Network in evaluation mode.
        photos: Photos, at least one.
    """
    return encode_images(model, [model.image.encoder.preprocess(photo) for photo in photos])


@torch.inference_mode()
def encode_images(model: AladinModel, inputs: Sequence[ImageInput]) -> Encoding:
    """Encode results of the image encoder's `preprocess`, `PHOTOS_AT_A_TIME`.

    Args:
        model: Network in evaluation mode.
        inputs: Inputs of at least one photo; they take far less memory than photos.
    """
    parts: list[EncodedBatch] = []
    for start in range(0, len(inputs), PHOTOS_AT_A_TIME):
        batch = model.image.encoder.collate(inputs[start : start + PHOTOS_AT_A_TIME])
        parts.append(model.encode_images(to_device(batch, next(model.parameters()).device)))
    return concatenate(parts).arrays()


@torch.inference_mode()
def encode_texts(model: AladinModel, texts: Sequence[str], *, truncate: bool = False) -> Encoding:
    """Encode texts in one batch.

    Args:
        model: Network in evaluation mode.
        texts: Texts, at least one.
        truncate: Whether to truncate texts that are too long instead of rejecting them.

    Raises:
        InputError: If a text is blank, or has no word that the tokenizer keeps.
        TextTooLongError: If a text has more tokens than the network takes, and `truncate` is off.
    """
    batch = tokenize(model, texts, truncate=truncate)
    device = next(model.parameters()).device
    return model.encode_texts(TextBatch(*(part.to(device) for part in batch))).arrays()


@torch.inference_mode()
def encode_documents(model: AladinModel, texts: Sequence[str]) -> Encoding:
    """Encode texts that are to be found, those of similar length together.

    A network for texts alone encodes them in the role of documents, and does not read the end of a
    text that is longer than its longest document; any other network encodes them as `encode_texts`.

    Args:
        model: Network in evaluation mode.
        texts: Texts, at least one.

    Raises:
        InputError: If a text is blank, or has no word that the tokenizer keeps.
        TextTooLongError: If the network is for photos as well, and a text has too many tokens.
    """
    device = next(model.parameters()).device
    encoder = model.image.encoder
    parts: list[EncodedBatch] = []
    if isinstance(encoder, DocumentRoleEncoder):
        for text in texts:
            check_document(model, text)
        inputs = [encoder.preprocess(text) for text in texts]
        groups = similar_lengths([len(each.ids) for each in inputs])
        for rows in groups:
            some = encoder.collate([inputs[row] for row in rows])
            parts.append(model.encode_images(to_device(some, device)))
    else:
        batch = tokenize(model, texts)
        # A network that pads to a number of tokens of its own takes nothing shorter.
        pad_to = model.text.encoder.config.pad_to
        lengths = [pad_to or int(length) for length in batch.mask.sum(dim=1)]
        groups = similar_lengths(lengths)
        for rows in groups:
            width = lengths[rows[-1]]
            some = TextBatch(*(part[rows, :width].to(device) for part in batch))
            parts.append(model.encode_texts(some))
    places = [row for rows in groups for row in rows]
    return concatenate(parts).rows(torch.tensor(places).argsort()).arrays()


def similar_lengths(lengths: Sequence[int]) -> list[list[int]]:
    """Divide texts into groups that are encoded together, so that little of a group is padding.

    Args:
        lengths: Number of tokens of each text.

    Returns:
        Rows of the texts of each group by ascending length.
    """
    groups: list[list[int]] = []
    tokens = 0
    for row in sorted(range(len(lengths)), key=lengths.__getitem__):
        padded = (len(groups[-1]) + 1) * lengths[row] if groups else 0
        tokens += lengths[row]
        if not groups or padded > _MOST_TOKENS or padded - tokens > _TOKENS_OF_A_CALL:
            groups.append([])
            tokens = lengths[row]
        groups[-1].append(row)
    return groups


def check_document(model: AladinModel, text: str) -> None:
    """Refuse a text that `encode_documents` cannot encode."""
    if not isinstance(model.image.encoder, DocumentRoleEncoder):
        tokenize(model, [text])
    elif not text.strip():
        raise InputError("the text is empty")


def tokenize(model: AladinModel, texts: Sequence[str], *, truncate: bool = False) -> TextBatch:
    """Tokenise texts; refuse those that cannot be encoded; see `encode_texts`."""
    for text in texts:
        if not text.strip():
            raise InputError("the text is empty")
    batch = model.text.encoder.preprocess(texts, truncate=truncate)
    if not bool(batch.content.any(dim=1).all()):
        raise InputError("the text has no word that the tokenizer knows how to keep")
    return batch


def choose_precision(name: QueryPrecisionSetting, device: str) -> QueryPrecision:
    """Return the precision for a setting.

    "auto" takes bfloat16 where the processor multiplies it. On one with AVX512-BF16 (EPYC, one
    thread) a text of a 6-layer MiniLM takes 4.6 ms for 8.7 alone, and 1.4 for 3.8 in a batch of
    16; on Flickr8k 99 % of the top 10 stay, and recall as it is. Photos stay float32: MobileNetV2
    in bfloat16 takes 11 ms for 24, but 6 % of the top 10 change. Dynamic int8 takes another third
    from a text and turns embeddings by ten degrees (cosine 0.98); torch means to give it up.

    Args:
        name: Name of a precision, or "auto".
        device: Name of the network's device; on a GPU, "auto" is float32.
    """
    if name != "auto":
        return name
    native = not _BFLOAT16_INSTRUCTIONS.isdisjoint(_processor_flags())
    return "bfloat16" if native and device == "cpu" else "float32"


def _processor_flags() -> list[str]:
    """Return the names of the processor's instructions; none where the system has no such list."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    return next((line.split() for line in lines if line.startswith("flags")), [])


class QueryModels:
    """Copies of networks that encode texts in the precision of queries; thread-safe.

    What leaves them through `aladin_network.inference` is float32, as from the networks themselves.
    """

    def __init__(self, precision: QueryPrecision = "float32") -> None:
        """Set the precision; no network is copied yet.

        Args:
            precision: Precision of the queries; float32 needs no copy.
        """
        self._precision: QueryPrecision = precision
        self._copies: WeakKeyDictionary[AladinModel, AladinModel] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def for_texts(self, model: AladinModel) -> AladinModel:
        """Return the network that encodes texts in place of another, copied at the first call.

        Args:
            model: Network of an index, in float32 and evaluation mode; it is not modified.
        """
        if self._precision == "float32":
            return model
        with self._lock:
            if model not in self._copies:
                self._copies[model] = model.with_texts_in_bfloat16()
            return self._copies[model]


class _Place(NamedTuple):
    """Location of an item's tokens."""

    part: str
    start: int
    stop: int


class FeatureCache:
    """The cached outputs of one frozen encoder."""

    def __init__(self, root: Path, encoder_digest: str) -> None:
        """Open or create the cache.

        Args:
            root: Folder shared by all encoders.
            encoder_digest: Digest of the weights, the architecture and the preprocessing.
        """
        version = f"{FORMAT_VERSION}:{encoder_digest}"
        self.folder = root / hashlib.sha256(version.encode()).hexdigest()[:16]
        self.folder.mkdir(parents=True, exist_ok=True)
        self._places: dict[str, _Place] = {}
        self._states: dict[str, npt.NDArray[np.float16]] = {}
        self._content: dict[str, npt.NDArray[np.bool_]] = {}
        for part in sorted(self.folder.glob("*.json")):
            self._open(part.stem)

    def __contains__(self, key: str) -> bool:
        """Tell whether an item is cached."""
        return key in self._places

    def add(self, keys: Sequence[str], features: Features) -> None:
        """Write one part.

        Args:
            keys: Digests of the items' content.
            features: Encoder output of the items; padding is not stored.

        Raises:
            ShapeError: If the number of keys differs from the number of items.
        """
        if len(keys) != features.states.shape[0]:
            raise ShapeError(f"({len(keys)}, tokens, dim)", tuple(features.states.shape))
        part = hashlib.sha256("".join(keys).encode()).hexdigest()[:16]
        states = features.states[features.mask].to(torch.float16).cpu().numpy()
        content = features.content[features.mask].cpu().numpy()
        for name, values in (("states", states), ("content", content)):
            with (
                atomic_file(self.folder / f"{part}.{name}.npy") as partial,
                partial.open("wb") as file,
            ):
                np.save(file, values)
        lengths = features.mask.sum(dim=1).tolist()
        write_json(self.folder / f"{part}.json", {"keys": list(keys), "lengths": lengths})
        self._open(part)

    def get(self, keys: Sequence[str]) -> Features:
        """Read items, padded to the longest.

        Args:
            keys: Keys of cached items.

        Returns:
            Float32 features.
        """
        places = [self._places[key] for key in keys]
        longest = max(place.stop - place.start for place in places)
        dim = self._states[places[0].part].shape[1]
        states = np.zeros((len(keys), longest, dim), dtype=np.float16)
        content = np.zeros((len(keys), longest), dtype=np.bool_)
        mask = np.zeros((len(keys), longest), dtype=np.bool_)
        for row, (part, start, stop) in enumerate(places):
            states[row, : stop - start] = self._states[part][start:stop]
            content[row, : stop - start] = self._content[part][start:stop]
            mask[row, : stop - start] = True
        return Features(
            torch.from_numpy(states).float(), torch.from_numpy(mask), torch.from_numpy(content)
        )

    def _open(self, part: str) -> None:
        index = json.loads((self.folder / f"{part}.json").read_text(encoding="utf-8"))
        self._states[part] = np.load(self.folder / f"{part}.states.npy", mmap_mode="r")
        self._content[part] = np.load(self.folder / f"{part}.content.npy")
        start = 0
        for key, length in zip(index["keys"], index["lengths"], strict=True):
            self._places[key] = _Place(part, start, start + length)
            start += length


def content_digest(content: bytes, variant: str = "") -> str:
    """Return the key of an item: a digest of its bytes and its preprocessing variant."""
    return hashlib.sha256(variant.encode() + b":" + content).hexdigest()
