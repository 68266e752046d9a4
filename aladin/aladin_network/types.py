"""Types and names that all packages share.

Libraries report progress to a `Progress`; the command line passes one that draws a bar or logs
lines.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

# Kinds of items in an index.
Target = Literal["images", "texts"]
TARGETS: tuple[Target, ...] = ("images", "texts")

# Kinds of inputs of the network, and of queries.
Modality = Literal["text", "image"]
MODALITY_OF: dict[Target, Modality] = {"images": "image", "texts": "text"}
TARGET_OF: dict[Modality, Target] = {"text": "texts", "image": "images"}
# Items whose words or regions the second stage can align with those of a query.
OTHER_TARGET_OF: dict[Modality, Target] = {"text": "images", "image": "texts"}

# Search across the modalities, named by the query's modality and the target's.
Direction = Literal["text_to_image", "image_to_text"]
DIRECTIONS: tuple[Direction, ...] = ("text_to_image", "image_to_text")
DIRECTION_OF: dict[Modality, Direction] = {"text": "text_to_image", "image": "image_to_text"}

# What the tokens of a query are for late interaction with items, by the query's modality and the
# target: where photos are searched by the regions of a photo, these take the place of words.
COMPARED_AS: dict[tuple[Modality, Target], Modality] = {
    ("text", "images"): "text",
    ("text", "texts"): "text",
    ("image", "texts"): "image",
    ("image", "images"): "text",
}

# Limits of what is stored of an item and returned with each hit: characters of a photo's caption,
# of an id or a name, and bytes of a text or of the metadata as JSON.
MAX_CAPTION_CHARS = 2000
MAX_NAME_CHARS = 4096
MAX_STORED_BYTES = 64 * 2**10

# Treatment of a new item whose id is already in the index.
OnDuplicate = Literal["error", "replace", "skip"]

# Stored form of the second stage's tokens. "4bit" stores a token as its nearest centroid
# and a quantised residual.
TokenDtype = Literal["float16", "int8", "4bit"]
TOKEN_DTYPES: tuple[TokenDtype, ...] = ("float16", "int8", "4bit")

# Engines (vector databases) that can keep an index.

# Heads that can score a pair.
ScoreName = Literal["matching", "alignment", "attention"]

# Input of an image graph whose batches have a single part: normalised numbers, channel by channel.
PIXELS = "pixels"
# The same photo for graphs that normalise it themselves: bytes, pixel by pixel.
RGB = "rgb"
# An input that only pairs of texts need.
ZEROS = "zeros"
# What a graph reads; its manifest says by which input.
Part = Literal["pixels", "rgb", "ids", "mask", "content", "zeros"]

# Device of the network and of searches.
DeviceName = Literal["auto", "cpu", "cuda"]

# Precision in which torch encodes the texts of queries, and its setting; all else is float32.
Precision = Literal["float32", "bfloat16"]
QueryPrecisionSetting = Literal["auto", "float32", "bfloat16"]

# Package that computes a network on the CPU: "auto" is ONNX Runtime, if it is installed and the
# checkpoint has graphs, else torch.
RuntimeSetting = Literal["auto", "torch", "onnxruntime"]


@dataclass(frozen=True, kw_only=True)
class TextItem:
    """A text to search for, from a source of texts or the captions of photos.

    Attributes:
        id: Id that is unique among the texts; for captions ``IMAGE#0``, ``IMAGE#1`` ...
        text: The text itself, not blank.
        metadata: The user's own JSON values by field name; scalars and lists of scalars can be
            filtered by. A caption has its photo's.
        image_id: Id of the photo that the text describes, or None.
    """

    id: str
    text: str
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    image_id: str | None = None


@runtime_checkable
class Progress(Protocol):
    """Interface for the progress of one long task at a time."""

    def start(self, total: int | None, unit: str) -> None:
        """Begin a task of `total` units, or None if their number is unknown."""
        ...

    def advance(self, count: int = 1) -> None:
        """Report that `count` more units are done."""
        ...

    def note(self, **numbers: float | str) -> None:
        """Report figures to show beside the progress bar, e.g. ``loss=1.2``."""
        ...


class NullProgress:
    """A progress interface that ignores all reports."""

    def start(self, total: int | None, unit: str) -> None:
        """Ignore the start of a task."""

    def advance(self, count: int = 1) -> None:
        """Ignore finished units."""

    def note(self, **numbers: float | str) -> None:
        """Ignore figures."""
