"""Mined hard negatives (AOQ): their lists, drawing from them for a batch, and their file.

The file is one safetensors file:

tensors     texts, images (int32), see `OfflineNegatives`
metadata    schema_version, what the lists were mined from, sha256 of both tensors
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from jaxtyping import Int32
from pydantic import ConfigDict
from safetensors import SafetensorError, safe_open
from torch import Tensor

from aladin_network.checkpoint import check_readable, write_tensors
from aladin_network.config import STRICT, dump_config, parse_config
from aladin_network.errors import ConfigError, DataError, InputError, StaleNegativesError
from aladin_network.files import atomic_file
from aladin_network.types import ScoreName
from aladin_training.batches.batch import OfflineRows
from aladin_training.config.defaults import NUM_IMAGES, NUM_TEXTS, Lists

# Fills the end of a list that has fewer negatives than requested.
NO_ROW = -1

# The paper draws again while the two negatives match; short lists may offer nothing else.
MAX_DRAWS = 20

SCHEMA_VERSION = 1

_TENSORS = ("images", "texts")
# Names of the fields of `MinedFrom` in messages.
_FACTS = {
    "data": "the data or its order",
    "model_id": "the model",
    "score": "the score",
    "num_texts": "texts for each photo",
    "num_images": "images for each caption",
}


@dataclass(frozen=True, kw_only=True)
class MinedFrom:
    """Everything that determines the content of the lists; any network if `model_id` is None."""

    data: str
    model_id: str | None
    score: ScoreName
    num_texts: int = NUM_TEXTS
    num_images: int = NUM_IMAGES

    @classmethod
    def of(cls, data: str, model_id: str | None, lists: Lists) -> MinedFrom:
        """Combine data and network with what is listed."""
        return cls(data=data, model_id=model_id, **lists._asdict())


@dataclass(frozen=True)
class OfflineNegatives:
    """The hardest negatives of every training photo and caption (AOQ).

    Attributes:
        texts: For each photo the captions of other photos that score highest, best first, as rows
            of the data set's captions; -1 at the end if there are fewer.
        images: For each caption the other photos that score highest, as rows of photos.
        mined_from: What the lists were mined from.
    """

    texts: Int32[Tensor, "photos num_texts"]
    images: Int32[Tensor, "captions num_images"]
    mined_from: MinedFrom


def sample_offline(
    pairs: Sequence[tuple[int, int]],
    negatives: OfflineNegatives,
    captions_of_photo: Sequence[Sequence[int]],
    photo_of_caption: Sequence[int],
    generator: random.Random,
    coupled: bool = False,
) -> OfflineRows:
    """Draw the offline negatives of every pair.

    The photo and the caption are drawn independently and uniformly from the pair's two lists, and
    drawn again while they match each other (AOQ), `MAX_DRAWS` times at most. By `coupled`, they are
    drawn as in the official code: one rank r selects the caption of rank r and the photo of rank
    r // ratio, where ratio is that of the lists' lengths (300 / 60); nothing is drawn again, and
    every cross term is kept, even if it is a matching pair.
    """
    width_texts, width_images = negatives.texts.shape[1], negatives.images.shape[1]
    ratio = width_texts // width_images
    if coupled and ratio < 1:
        lengths = f"{width_texts} captions and {width_images} photos"
        raise InputError(f"coupled draws need no fewer captions than photos, got {lengths}")
    photos, captions = [photo for photo, _ in pairs], [caption for _, caption in pairs]
    rows = OfflineRows([], [], [], [], [])
    for texts, images in zip(
        _unpadded(negatives.texts.numpy()[photos]),
        _unpadded(negatives.images.numpy()[captions]),
        strict=True,
    ):
        if coupled:
            rank = generator.randrange(min(len(texts), len(images) * ratio))
            text_bar, image_bar, cross = int(texts[rank]), int(images[rank // ratio]), True
        else:
            text_bar, image_bar, cross = _draw_apart(texts, images, photo_of_caption, generator)
        rows.images_bar.append(image_bar)
        rows.texts_bar.append(text_bar)
        rows.images_tilde.append(photo_of_caption[text_bar])
        rows.texts_tilde.append(generator.choice(captions_of_photo[image_bar]))
        rows.cross.append(cross)
    return rows


def _draw_apart(
    texts: npt.NDArray[np.int32],
    images: npt.NDArray[np.int32],
    photo_of_caption: Sequence[int],
    generator: random.Random,
) -> tuple[int, int, bool]:
    """Draw a caption and a photo; the last value tells whether they do not match."""

    def draw() -> tuple[int, int]:
        text = texts[generator.randrange(len(texts))]
        return int(text), int(images[generator.randrange(len(images))])

    text_bar, image_bar = draw()
    for _ in range(MAX_DRAWS - 1):
        if photo_of_caption[text_bar] != image_bar:
            break
        text_bar, image_bar = draw()
    return text_bar, image_bar, photo_of_caption[text_bar] != image_bar


def _unpadded(lists: npt.NDArray[np.int32]) -> list[npt.NDArray[np.int32]]:
    """Cut each list to its rows; `NO_ROW` occurs only at the end."""
    lengths: list[int] = (lists != NO_ROW).sum(axis=1).tolist()
    return [each[:length] for each, length in zip(lists, lengths, strict=True)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Header:
    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    schema_version: int
    mined_from: MinedFrom
    content: str


def save_negatives(path: Path, negatives: OfflineNegatives) -> None:
    """Write mined lists atomically, replacing an older file."""
    tensors = {
        "texts": negatives.texts.contiguous(),
        "images": negatives.images.contiguous(),
    }
    header = _Header(
        schema_version=SCHEMA_VERSION,
        mined_from=negatives.mined_from,
        content=_content(tensors),
    )
    with atomic_file(path) as partial:
        write_tensors(partial, tensors, {"header": json.dumps(dump_config(header))})


def load_negatives(path: Path, expected: MinedFrom) -> OfflineNegatives:
    """Read mined lists and check that they are of the present data and settings."""
    header, tensors = _read(path)
    found = header.mined_from
    differences = [
        (words, _short(getattr(expected, name)), _short(getattr(found, name)))
        for name, words in _FACTS.items()
        if getattr(expected, name) != getattr(found, name)
    ]
    if expected.model_id is None:
        differences = [each for each in differences if each[0] != _FACTS["model_id"]]
    if differences:
        raise StaleNegativesError(path, differences)
    return OfflineNegatives(tensors["texts"], tensors["images"], found)


def lists_digest(path: Path) -> str:
    """Return the digest of the lists in a file."""
    header, _ = _read(path)
    return header.content


def _read(path: Path) -> tuple[_Header, dict[str, Tensor]]:
    """Read a file and check that its content is what was written."""
    try:
        check_readable(path)
        with safe_open(path, framework="pt") as file:
            metadata: dict[str, str] = file.metadata() or {}
            tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in _TENSORS}
    except FileNotFoundError:
        raise DataError(path, None, "no such file; `aladin mine` writes it") from None
    except PermissionError:
        raise DataError(path, None, "cannot be read (Permission denied)") from None
    except (OSError, SafetensorError) as error:
        raise DataError(path, None, f"not a file of mined negatives ({error})") from error
    header = _read_header(path, metadata.get("header", ""))
    if _content(tensors) != header.content:
        raise DataError(path, None, "damaged: the lists are not those that were written")
    return header, tensors


def _read_header(path: Path, text: str) -> _Header:
    try:
        data: Any = json.loads(text)
    except ValueError:
        raise DataError(path, None, "not a file of mined negatives (no header)") from None
    version = data.get("schema_version") if isinstance(data, dict) else None
    if version != SCHEMA_VERSION:
        raise DataError(path, None, f"schema version {version}, expected {SCHEMA_VERSION}")
    try:
        return parse_config(_Header, data, "header")
    except ConfigError as error:
        raise DataError(path, None, str(error)) from error


def _content(tensors: dict[str, Tensor]) -> str:
    """Digest the lists; safetensors detects a truncated file, but no changed byte."""
    digest = hashlib.sha256()
    for name in _TENSORS:
        digest.update(f"{name} {tuple(tensors[name].shape)} {tensors[name].dtype}".encode())
        digest.update(tensors[name].numpy().data)
    return digest.hexdigest()


def _short(fact: object) -> object:
    """Shorten a digest to enough characters to tell two of them apart."""
    return fact[:12] if isinstance(fact, str) else fact
