"""A network whose towers and heads are ONNX graphs: no weights, and no transformers library."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, cast

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from PIL import Image
from tokenizers import Tokenizer
from torch import Tensor, nn

from aladin_network.config import ImageEncoderConfig, ModelConfig, TextEncoderConfig
from aladin_network.encoders.base import Features, ImageBatch, ImageEncoder, TextBatch, TextEncoder
from aladin_network.encoders.pixels import grid_boxes, preprocess_photo
from aladin_network.encoders.tokenized_text import TokenizedTextEncoder
from aladin_network.errors import CheckpointError, ConfigError, InputError
from aladin_network.graphs.files import PIXELS, GraphManifest, ImageFacts
from aladin_network.graphs.runtimes import Graph
from aladin_network.graphs.threads import compute_threads
from aladin_network.inference import PHOTOS_AT_A_TIME
from aladin_network.model import AladinModel
from aladin_network.photos.regions import RegionSet
from aladin_network.scoring.scores import EncodedBatch
from aladin_network.types import Modality, QueryPrecision

# Function that loads the graph of a modality in a precision, for a number of threads.
OpenGraph = Callable[[Modality, QueryPrecision, int], Graph]

_NO_WEIGHTS = (
    "this network is computed by ONNX graphs, without weights for torch; set ALADIN_RUNTIME=torch"
)


def _refuse() -> NoReturn:
    raise ConfigError(_NO_WEIGHTS)


class GraphImageEncoder(ImageEncoder):
    """The preprocessing and the boxes of an `hf` image encoder; the graph does the rest."""

    reads = "photo"

    def __init__(
        self,
        config: ImageEncoderConfig,
        text_encoder: TextEncoder | None = None,
        facts: ImageFacts | None = None,
    ) -> None:
        """Build from a complete configuration.

        Args:
            config: Configuration of a checkpoint.
            text_encoder: Text encoder of the same network; unused.
            facts: Facts from the export.

        Raises:
            CheckpointError: If the configuration has no preprocessing, or there are no facts.
        """
        super().__init__(config, text_encoder)
        if config.preprocessing is None or facts is None:
            raise CheckpointError("image_encoder: expected preprocessing, got none")
        self.config, self.preprocessing = config, config.preprocessing
        self.dim, self.num_tokens = facts.dim, facts.num_tokens
        self._facts = facts
        self._levels = [(side, side) for side in config.pyramid or ()] or [facts.grid]

    @classmethod
    def from_source(
        cls,
        config: ImageEncoderConfig,  # noqa: ARG003
        text_encoder: TextEncoder | None = None,  # noqa: ARG003
    ) -> ImageEncoder:
        """Refuse: a graph is not trained."""
        _refuse()

    def preprocess(self, photo: Image.Image | RegionSet) -> Float[Tensor, "3 height width"]:
        """Convert an RGB photo to the network's input."""
        if isinstance(photo, RegionSet):
            raise InputError("this network reads photos, not regions")
        return preprocess_photo(photo, self.preprocessing)

    def collate(self, inputs: Sequence[Tensor]) -> Float[Tensor, "batch 3 height width"]:
        """Stack preprocessed photos."""
        return torch.stack(list(inputs))

    def forward(self, batch: object) -> NoReturn:  # noqa: ARG002
        """Refuse: the graph includes the heads."""
        _refuse()

    def region_boxes(self, width_px: int, height_px: int) -> Float[Tensor, "regions 4"]:
        """Return each region's (x0, y0, x1, y1) in fractions of a photo of this size."""
        grid, covered = self._facts.grid, self._facts.covered
        return grid_boxes((width_px, height_px), self.preprocessing, grid, self._levels, covered)


class GraphTextEncoder(TokenizedTextEncoder):
    """The tokenizer of a text encoder; the graph does the rest."""

    def __init__(self, config: TextEncoderConfig, tokenizer: Tokenizer, dim: int = 0) -> None:
        """Build from a complete configuration.

        Args:
            config: Configuration of a checkpoint.
            tokenizer: Tokenizer of the checkpoint.
            dim: Width of the states.
        """
        super().__init__(config, tokenizer)
        self.dim = dim
        # Of the recurrent encoders, whose configurations are complete.
        architecture = config.architecture or {}
        self.special_tokens_are_words = bool(architecture.get("special_tokens_are_words", False))

    @classmethod
    def from_source(
        cls,
        config: TextEncoderConfig,  # noqa: ARG003
        tokenizer: Tokenizer | None,  # noqa: ARG003
    ) -> TokenizedTextEncoder:
        """Refuse: a graph is not trained."""
        _refuse()

    @staticmethod
    def learn_tokenizer(texts: object, vocabulary_size: int) -> NoReturn:  # noqa: ARG004
        """Refuse: the tokenizer is the checkpoint's."""
        _refuse()

    def forward(self, batch: object) -> NoReturn:  # noqa: ARG002
        """Refuse: the graph includes the heads."""
        _refuse()


class GraphModel(AladinModel):
    """A network computed by graphs; it encodes, and has no weights to train, copy or move.

    A graph is loaded when the first batch of its modality arrives, or by `warm`.
    """

    def __init__(
        self,
        config: ModelConfig,
        image_encoder: ImageEncoder,
        text_encoder: TokenizedTextEncoder,
        open_graph: OpenGraph,
        precision: QueryPrecision = "float32",
        threads: int | None = None,
    ) -> None:
        """Take the encoders' halves that are no arithmetic.

        Args:
            config: Configuration of the network.
            image_encoder: Preprocessing of photos.
            text_encoder: Tokenizer of texts.
            open_graph: Function that loads the graph of a modality.
            precision: Precision of the graphs.
            threads: Number of threads that compute a batch, or None for `compute_threads`.
        """
        with torch.device("meta"):
            super().__init__(config, image_encoder, text_encoder)
        # Its first parameter tells a network's callers on which device they are to put batches.
        self.on_cpu = nn.Parameter(torch.empty(0), requires_grad=False)
        self._open = open_graph
        self._precision: QueryPrecision = precision
        self._threads = threads or compute_threads()
        self._graphs: dict[Modality, Graph] = {}
        # In a tuple: an attribute would be taken for a part of this network.
        self._on_one_thread: tuple[GraphModel] | None = None
        self._lock = threading.Lock()

    @classmethod
    def of(
        cls,
        config: ModelConfig,
        manifest: GraphManifest,
        tokenizer: Tokenizer,
        open_graph: OpenGraph,
    ) -> GraphModel:
        """Build the network of a checkpoint.

        Args:
            config: Configuration of the network.
            manifest: Manifest of the graphs.
            tokenizer: Tokenizer of the checkpoint.
            open_graph: Function that loads the graph of a modality.
        """
        image = GraphImageEncoder(config.image_encoder, facts=manifest.image)
        text = GraphTextEncoder(config.text_encoder, tokenizer, manifest.text_dim)
        return cls(config, image, text, open_graph)

    def encode_images(self, batch: ImageBatch | Features) -> EncodedBatch:
        """Encode collated photos."""
        if isinstance(batch, Features):
            _refuse()
        return self._run("image", named_inputs(batch))

    def encode_texts(self, batch: TextBatch | Features) -> EncodedBatch:
        """Encode tokenised texts."""
        if isinstance(batch, Features):
            _refuse()
        encoding = self._run("text", named_inputs(batch))
        # What is padded beyond the longest text, as for SigLIP; a graph cannot leave it out.
        surplus = batch.mask.shape[1] - int(batch.mask.sum(dim=1).max())
        kept = encoding.mask.shape[1] - surplus
        return encoding._replace(tokens=encoding.tokens[:, :kept], mask=encoding.mask[:, :kept])

    def with_texts_in_bfloat16(self) -> AladinModel:
        """Return the same network in bfloat16, where its runtime has it."""
        encoders = self.image.encoder, self.text.encoder
        return GraphModel(self.config, *encoders, self._open, "bfloat16")

    def on_one_thread(self) -> tuple[GraphModel, int]:
        """Return the network for callers that compute on their own threads, and their number."""
        if self._threads == 1:
            return self, 1
        with self._lock:
            if self._on_one_thread is None:
                encoders = self.image.encoder, self.text.encoder
                other = GraphModel(self.config, *encoders, self._open, self._precision, threads=1)
                self._on_one_thread = (other.eval(),)
            return self._on_one_thread[0], self._threads

    def warm(self, *modalities: Modality) -> None:
        """Load graphs before the first batch."""
        for modality in modalities:
            self._graph(modality)

    def _graph(self, modality: Modality) -> Graph:
        with self._lock:
            if modality not in self._graphs:
                self._graphs[modality] = self._open(modality, self._precision, self._threads)
            return self._graphs[modality]

    def _run(self, modality: Modality, inputs: Mapping[str, NDArray[Any]]) -> EncodedBatch:
        outputs = self._graph(modality).run(inputs)
        return EncodedBatch(*(torch.from_numpy(np.ascontiguousarray(each)) for each in outputs))


class Throughput(NamedTuple):
    """How a network encodes most items in a time.

    Attributes:
        network: The network to call.
        callers: Number of threads that call it at the same time.
        photos_a_call: Number of photos that a thread encodes together.
    """

    network: AladinModel
    callers: int
    photos_a_call: int


def for_throughput(model: AladinModel) -> Throughput:
    """Return how to encode many items.

    Threads that compute a batch each lose less than those that share one, and a graph takes no
    less time for a photo that has company. Torch's own threads share every batch, so a network of
    torch is called by one thread at a time.
    """
    if isinstance(model, GraphModel):
        return Throughput(*model.on_one_thread(), photos_a_call=1)
    return Throughput(model, callers=1, photos_a_call=PHOTOS_AT_A_TIME)


def named_inputs(batch: object) -> dict[str, NDArray[Any]]:
    """Return a batch as the inputs of a graph, by the names of its parts."""
    if isinstance(batch, Tensor):
        return {PIXELS: batch.numpy()}
    parts = cast(Any, batch)._asdict()
    return {name: part.numpy() for name, part in parts.items()}
