"""A network whose towers and heads are ONNX graphs: no weights, neither torch nor transformers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from tokenizers import Tokenizer

from aladin_network.config import ModelConfig
from aladin_network.encoders.pixels import PixelReader
from aladin_network.encoders.readers import TokenizedTexts
from aladin_network.encoders.tokenization import Tokenization
from aladin_network.graphs.files import PIXELS, GraphManifest
from aladin_network.graphs.onnx_runtime import GraphSource
from aladin_network.graphs.threads import compute_threads
from aladin_network.inference import Network, Throughput
from aladin_network.scoring.encoding import Encoding
from aladin_network.types import Modality, Precision

E = TypeVar("E")


@dataclass(frozen=True)
class GraphSide(Generic[E]):
    """Half of a network that is computed by a graph."""

    encoder: E


class GraphNetwork:
    """A network computed by graphs; it encodes, and has no weights to train, copy or move.

    It computes in float32. A graph is loaded when the first batch of its modality arrives, or by
    `warm`. Safe to use from any number of threads.

    Attributes:
        zero_tokens: Number of zero tokens behind an image's own tokens: 1 or 0.
    """

    def __init__(
        self,
        config: ModelConfig,
        image: PixelReader,
        text: Tokenization,
        graphs: GraphSource,
        threads: int | None = None,
    ) -> None:
        """Take the readers of inputs, and the graphs; `threads` compute a batch."""
        self.config = config
        self.image, self.text = GraphSide(image), GraphSide(text)
        trunk = config.image_tower.trunk
        width = image.dim if trunk is None else trunk.width
        self.embedding_dim = width if config.matching.dim is None else config.matching.dim
        self.token_dim = width if config.alignment.dim is None else config.alignment.dim
        self.zero_tokens = int(config.alignment.empty_fill == "zero")
        self._graphs = graphs
        self._threads = threads or compute_threads()

    @classmethod
    def of(
        cls,
        config: ModelConfig,
        manifest: GraphManifest,
        tokenizer: Tokenizer,
        graphs: GraphSource,
    ) -> GraphNetwork:
        """Build the network of a checkpoint."""
        image = PixelReader(config.image_encoder, manifest.image)
        text = Tokenization(config.text_encoder, tokenizer)
        # Of the recurrent encoders, whose configurations are complete.
        architecture = config.text_encoder.architecture or {}
        text.special_tokens_are_words = bool(architecture.get("special_tokens_are_words", False))
        return cls(config, image, text, graphs)

    def infer_images(self, batch: Float[np.ndarray, "batch 3 height width"]) -> Encoding:
        """Encode collated photos one by one: several together take no less time each."""
        return Encoding.concatenate([self._run("image", {PIXELS: photo[None]}) for photo in batch])

    def infer_texts(self, batch: TokenizedTexts) -> Encoding:
        longest = int(batch.mask.sum(axis=1).max())
        embedding, tokens, mask = self._run("text", batch._asdict())
        # What is padded beyond the longest text, as for SigLIP; a graph cannot leave it out.
        kept = mask.shape[1] - (batch.mask.shape[1] - longest)
        return Encoding(embedding, tokens[:, :kept], mask[:, :kept])

    def with_texts_in_bfloat16(self) -> GraphNetwork:
        """Return the network itself: graphs compute in float32."""
        return self

    def on_threads(self, count: int) -> GraphNetwork:
        """Return the same network with each batch computed by a number of threads."""
        if self._threads == count:
            return self
        readers = self.image.encoder, self.text.encoder
        return GraphNetwork(self.config, *readers, self._graphs, count)

    def throughput(self) -> Throughput:
        """Return one thread for each photo."""
        return Throughput(self.on_threads(1), callers=self._threads, photos_a_call=1)

    def warm(self, *modalities: Modality) -> None:
        """Load graphs before the first batch."""
        for modality in modalities:
            self._graphs.get(modality, self._threads)

    def _run(self, modality: Modality, inputs: Mapping[str, NDArray[Any]]) -> Encoding:
        graph = self._graphs.get(modality, self._threads)
        return Encoding(*graph.run(inputs))


def query_network(
    model: Network,
    modality: Modality,
    precision: Precision = "float32",
    photo_threads: int | None = None,
) -> Network:
    """Return the network that encodes queries in place of an index's own.

    Args:
        model: Network of the index, in float32 and evaluation mode; it is not modified.
        modality: Modality of the queries.
        precision: Precision of texts by torch; photos, and all that graphs compute, are float32.
        photo_threads: Threads that compute a photo by graphs, or None for those of the model.
    """
    if modality == "text":
        return model.with_texts_in_bfloat16() if precision == "bfloat16" else model
    return model if photo_threads is None else model.on_threads(photo_threads)
