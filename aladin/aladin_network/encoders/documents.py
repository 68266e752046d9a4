"""Interface of the encoders of documents, in networks for texts alone.

Such a network encodes a text in one of two *roles*: a query asks, a document is found. Its text
encoder encodes queries, and an encoder of documents takes the place of the image encoder.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from PIL import Image

from aladin_network.encoders.base import DocumentInput, ImageEncoder
from aladin_network.encoders.readers import Reads
from aladin_network.photos.regions import RegionSet


class DocumentRoleEncoder(ImageEncoder):
    """Base of the encoders of networks for texts alone: documents take the place of photos.

    Attributes:
        max_tokens: Longest document in tokens; the rest of a longer one is not read.
    """

    reads: ClassVar[Reads] = "text"
    max_tokens: int

    @abstractmethod
    def preprocess(self, photo: Image.Image | RegionSet | str) -> DocumentInput:
        """Tokenise a document.

        Raises:
            InputError: If it is a photo or regions of one.
        """

    @abstractmethod
    def count_tokens(self, text: str) -> int:
        """Return the number of tokens of a whole document, prefix and special tokens included."""

    @abstractmethod
    def shortened(self, text: str, max_tokens: int) -> str:
        """Return the beginning of a document that has no more than a number of tokens.

        Args:
            text: Text of any length.
            max_tokens: Number of tokens with the special ones; at least one of the text is kept.
        """
