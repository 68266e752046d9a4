"""A training split that is streamed from tars, as one network reads it."""

from __future__ import annotations

from dataclasses import dataclass

from aladin.encoders.base import ImageEncoder, TextEncoder
from training.streaming.tar_stream import TarStream


@dataclass(frozen=True)
class PhotoStream:
    """Photos and captions that come front to back, and what a network makes of them.

    Attributes:
        stream: the tars.
        image_encoder: preprocesses; frozen or not, it encodes each photo when it is shown.
        text_encoder: tokenises.
        views: names of the views that are shown, see `training.views.view_names`.
        shuffle: photos in the shuffle buffer.
    """

    stream: TarStream
    image_encoder: ImageEncoder
    text_encoder: TextEncoder
    views: tuple[str, ...]
    shuffle: int

    @property
    def digest(self) -> str:
        """Identify the data; a resumed run must find the same."""
        return self.stream.digest
