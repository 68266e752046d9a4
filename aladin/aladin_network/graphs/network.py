"""A network whose towers and heads are ONNX graphs: no weights, neither torch nor transformers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from aladin_network.config import ModelConfig
from aladin_network.encoders.pixels import PixelReader
from aladin_network.encoders.readers import TokenizedTexts
from aladin_network.encoders.tokenization import Tokenization
from aladin_network.graphs.files import OUTPUTS, GraphManifest
from aladin_network.graphs.onnx_runtime import GraphSource
from aladin_network.graphs.threads import compute_threads
from aladin_network.inference import Network, Throughput
from aladin_network.scoring.encoding import Encoding
from aladin_network.types import PIXELS, RGB, ZEROS, Modality, Precision

E = TypeVar("E")

_SMALLEST = 1e-12  # length of a vector that is no direction


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
        has_tokens: Whether the alignment was trained, so that an index stores tokens.
    """

    has_tokens: bool = True

    def __init__(
        self,
        config: ModelConfig,
        image: PixelReader,
        text: Tokenization,
        graphs: GraphSource,
        dims: tuple[int, int],
        threads: int | None = None,
    ) -> None:
        """Take the readers of inputs, the graphs, and the sizes of an embedding and a token.

        `threads` compute a batch.
        """
        self.config = config
        self.image, self.text = GraphSide(image), GraphSide(text)
        self.embedding_dim, self.token_dim = dims
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
        cells, form = manifest.image, manifest.forms["image"]
        image = PixelReader(config.image_encoder, cells, takes_bytes=form.takes_bytes)
        text = Tokenization(config.text_encoder, tokenizer)
        # Of the recurrent encoders, whose configurations are complete.
        architecture = config.text_encoder.architecture or {}
        text.special_tokens_are_words = bool(architecture.get("special_tokens_are_words", False))
        trunk = config.image_tower.trunk
        width = manifest.text_dim if cells is None else cells.dim
        width = width if trunk is None else trunk.width
        dims = config.matching.dim or width, config.alignment.dim or width
        return cls(config, image, text, graphs, dims)

    def infer_images(self, batch: NDArray[Any]) -> Encoding:
        """Encode collated photos one by one: several together take no less time each."""
        each = [{PIXELS: photo[None], RGB: photo[None]} for photo in batch]
        return Encoding.concatenate([self._run("image", parts) for parts in each])

    def infer_texts(self, batch: TokenizedTexts) -> Encoding:
        longest = int(batch.mask.sum(axis=1).max())
        parts = batch._asdict() | {ZEROS: np.zeros_like(batch.ids)}
        if self._graphs.forms["text"].batches:
            embedding, tokens, mask = self._run("text", parts)
        else:
            each = [
                {name: part[[row]] for name, part in parts.items()} for row in range(len(batch.ids))
            ]
            embedding, tokens, mask = Encoding.concatenate([self._run("text", one) for one in each])
        # What is padded beyond the longest text, as for SigLIP; a graph cannot leave it out.
        kept = max(0, mask.shape[1] - (batch.mask.shape[1] - longest))
        return Encoding(embedding, tokens[:, :kept], mask[:, :kept])

    def with_texts_in_bfloat16(self) -> GraphNetwork:
        """Return the network itself: graphs compute in float32."""
        return self

    def on_threads(self, count: int) -> GraphNetwork:
        """Return the same network with each batch computed by a number of threads."""
        if self._threads == count:
            return self
        readers = self.image.encoder, self.text.encoder
        dims = self.embedding_dim, self.token_dim
        other = GraphNetwork(self.config, *readers, self._graphs, dims, count)
        other.has_tokens = self.has_tokens
        return other

    def throughput(self) -> Throughput:
        """Return one thread for each photo."""
        return Throughput(self.on_threads(1), callers=self._threads, photos_a_call=1)

    def warm(self, *modalities: Modality) -> None:
        """Load graphs before the first batch."""
        for modality in modalities:
            self._graphs.get(modality, self._threads)

    def _run(self, modality: Modality, parts: Mapping[str, NDArray[Any]]) -> Encoding:
        graph, form = self._graphs.get(modality, self._threads), self._graphs.forms[modality]
        inputs = {
            name: parts[each.part].astype(each.number, copy=False)
            for name, each in form.inputs.items()
        }
        outputs = graph.run(inputs, form.outputs)
        if len(outputs) == len(OUTPUTS):
            return Encoding(*outputs)
        embedding = outputs[0].astype(np.float32)
        embedding /= np.maximum(np.linalg.norm(embedding, axis=1, keepdims=True), _SMALLEST)
        tokens = np.zeros((len(embedding), 0, self.token_dim), dtype=np.float32)
        return Encoding(embedding, tokens, np.zeros(tokens.shape[:2], dtype=np.bool_))


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
