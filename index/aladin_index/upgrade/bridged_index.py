"""The live generation as the new model's queries see it over a bridge."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aladin_index.format.manifest import Manifest
from aladin_index.items.filters import Filter
from aladin_index.search.backend import Collection, SearchBackend
from aladin_network.checkpoint_files import Checkpoint
from aladin_network.config import ModelConfig
from aladin_network.encoders.readers import TokenizedTexts
from aladin_network.inference import Network, PhotoSide, TextSide
from aladin_network.scoring.encoding import Encoding
from aladin_network.types import MODALITY_OF, Target


@dataclass(frozen=True, eq=False)
class BridgedNetwork:
    """What evidence needs of two networks: the words of one, the regions of the other.

    Attributes:
        asking: The new model, which encodes queries.
        stored: The old model, which has encoded the items.
        target: Collection that is searched.
    """

    asking: Network
    stored: Network
    target: Target

    @property
    def config(self) -> ModelConfig:
        """Configuration of the model of the queries."""
        return self.asking.config

    @property
    def image(self) -> PhotoSide:
        """Image half of the model whose photos are compared."""
        return self._of_photos.image

    @property
    def text(self) -> TextSide:
        """Text half of the model whose texts are compared."""
        is_stored = MODALITY_OF[self.target] == "text"
        return self.stored.text if is_stored else self.asking.text

    @property
    def embedding_dim(self) -> int:
        """Size of a stored embedding."""
        return self.stored.embedding_dim

    @property
    def token_dim(self) -> int:
        """Size of a stored token."""
        return self.stored.token_dim

    @property
    def zero_tokens(self) -> int:
        """Number of zero tokens behind the tokens of the photos that are compared."""
        return self._of_photos.zero_tokens

    def infer_images(self, batch: Any) -> Encoding:
        """Encode photos as queries."""
        return self.asking.infer_images(batch)

    def infer_texts(self, batch: TokenizedTexts) -> Encoding:
        """Encode texts as queries."""
        return self.asking.infer_texts(batch)

    def with_texts_in_bfloat16(self) -> Network:
        """Return the network that encodes queries with texts in bfloat16."""
        return self.asking.with_texts_in_bfloat16()

    @property
    def _of_photos(self) -> Network:
        return self.stored if self.target == "images" else self.asking


class BridgedIndex:
    """The live generation, asked over a bridge; a `SearchBackend`.

    Attributes:
        checkpoint: The old model's checkpoint with a network of both models.
    """

    def __init__(
        self, live: SearchBackend, new: Checkpoint, target: Target, *, aligns: bool
    ) -> None:
        """Store the arguments.

        Args:
            live: The live generation; closed by its owner.
            new: The new model.
            target: Collection that is searched.
            aligns: Whether tokens have a bridge.
        """
        self._live = live
        network = BridgedNetwork(new.model, live.checkpoint.model, target)
        self.checkpoint: Checkpoint = replace(
            live.checkpoint, model=network, alignment_trained=aligns
        )

    @property
    def path(self) -> Path:
        """The index folder."""
        return self._live.path

    @property
    def manifest(self) -> Manifest:
        """Manifest of the live generation."""
        return self._live.manifest

    @property
    def generation(self) -> int:
        """Number of the live generation."""
        return self._live.generation

    @property
    def place(self) -> Hashable:
        """Identity of the live generation's files."""
        return self._live.place

    def side(self, target: Target, filter: Filter | None = None) -> Collection:
        """Return one collection of the live generation."""
        return self._live.side(target, filter)

    def check_health(self) -> None:
        """Check the live generation."""
        self._live.check_health()

    def warm(self) -> None:
        """Do nothing: the live generation is warmed by its owner."""

    def close(self) -> None:
        """Do nothing: the live generation is closed by its owner."""
