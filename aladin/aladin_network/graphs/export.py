"""Export of a checkpoint's network as ONNX graphs, compared with torch before they are kept."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn
from torch.export import Dim

from aladin_network.checkpoint import load_checkpoint
from aladin_network.checkpoint_files import GRAPHS, read_model_id
from aladin_network.encoders.base import TextBatch
from aladin_network.encoders.pixels import PixelReader
from aladin_network.errors import AladinError, CheckpointError, ConfigError, need_packages
from aladin_network.files import atomic_folder
from aladin_network.graphs.files import (
    OUTPUTS,
    SCHEMA_VERSION,
    GraphForm,
    GraphManifest,
    describe_graphs,
    own_form,
    read_graphs,
    write_manifest,
)
from aladin_network.graphs.loading import runtime_setting
from aladin_network.graphs.onnx_runtime import ONNX_RUNTIME, Graph
from aladin_network.model import AladinModel
from aladin_network.scoring.scores import EncodedBatch
from aladin_network.types import PIXELS, Modality

_LOG = logging.getLogger(__name__)

# Largest difference of a number of an embedding or a token, all of which are in [-1, 1].
TOLERANCE = 1e-4

_EXPORTERS = ("onnx", "onnxscript")
_PACKAGES = (*_EXPORTERS, ONNX_RUNTIME)
# Of different lengths, and padded; any tokenizer finds words in them.
_TEXTS = ("a dog", "two dogs run on green grass after a red ball", "a man rides a motorcycle")


def export_where_possible(checkpoint: Path) -> bool:
    """Write the graphs of a finished checkpoint, unless it has them or cannot have any.

    The checkpoint is complete without them: whatever prevents them is logged in one line, and is no
    failure of the job that made the checkpoint. None are written where the variable ALADIN_RUNTIME
    is `torch`.

    Args:
        checkpoint: Folder of the checkpoint.

    Returns:
        Whether the checkpoint has graphs of its weights.

    Raises:
        ConfigError: If the variable has an impossible value.
        CheckpointError: If the weights cannot be read.
    """
    if runtime_setting() == "torch":
        return False
    model_id = read_model_id(checkpoint)
    try:
        if read_graphs(checkpoint, model_id) is not None:
            return True
    except CheckpointError as error:
        _LOG.info("%s", error)
    _LOG.info("writing the graphs of %s", checkpoint)
    try:
        export_graphs(checkpoint)
    except Exception as error:  # the exporter fails in its own ways, too
        kind = "" if isinstance(error, (AladinError, OSError)) else f"{type(error).__name__}: "
        reason = " ".join(f"{kind}{error}".split())
        _LOG.warning("%s has no graphs, so that encoding needs torch: %s", checkpoint, reason)
        return False
    return True


def export_graphs(checkpoint: Path) -> GraphManifest:
    """Write the graphs of a checkpoint into it, completely or not at all.

    They are computed by ONNX Runtime and compared with torch, with other photos, and other
    numbers of texts and words, than those that they were exported with.

    Args:
        checkpoint: Folder of the checkpoint.

    Returns:
        The manifest of the graphs.

    Raises:
        CheckpointError: If the checkpoint cannot be read.
        ConfigError: If a package is missing, the network has an encoder that cannot be exported,
            or the graphs do not compute what torch does.
        OSError: If the folder cannot be written.
    """
    need_packages("the export of graphs", *_PACKAGES)
    loaded = load_checkpoint(checkpoint)
    model = loaded.model
    encoder = model.image.encoder
    if (cells := encoder.cells) is None:
        name, reason = encoder.config.name, encoder.no_graph
        raise ConfigError(f"a network of the image encoder {name} has no graph form: {reason}")
    forms: dict[Modality, GraphForm] = {}
    with atomic_folder(checkpoint / GRAPHS) as partial:
        for modality, samples in _samples(model, PixelReader(encoder.config, cells)).items():
            path = partial / f"{modality}.onnx"
            encode = model.encode_images if modality == "image" else model.encode_texts
            with torch.no_grad():
                expected = [cast(Any, encode)(sample) for sample in samples]
            _export(model, modality, samples[0], path)
            forms[modality] = own_form(modality, _named_inputs(samples[0]))
            graph = Graph(path, torch.get_num_threads())
            for sample, encoding in zip(samples, expected, strict=True):
                _compare(modality, graph.run(_named_inputs(sample), OUTPUTS), encoding)
        manifest = GraphManifest(
            schema_version=SCHEMA_VERSION,
            model_id=loaded.model_id,
            image=cells,
            text_dim=model.text.encoder.dim,
            forms=forms,
            versions={name: version(name) for name in ("torch", *_EXPORTERS)},
            files=describe_graphs(partial),
        )
        write_manifest(partial, manifest)
    return manifest


def _samples(model: AladinModel, reader: PixelReader) -> dict[Modality, list[Tensor | TextBatch]]:
    """Return batches of each modality; the first is the one to export with.

    A graph takes one photo, so that nothing in it depends on a number of photos. The first batch of
    texts has several, since torch takes a dimension of one for a constant.
    """
    text = model.text.encoder
    random = np.random.default_rng(0)
    photos = [
        Image.fromarray(random.integers(0, 256, (12, 16, 3), dtype=np.uint8)).resize((96, 64))
        for _ in range(3)
    ]
    inputs = [reader.preprocess(photo) for photo in photos]
    return {
        "image": [torch.from_numpy(reader.collate([each])) for each in inputs],
        "text": [
            text.preprocess(_TEXTS[:2], truncate=True),
            text.preprocess(_TEXTS[:1], truncate=True),
            text.preprocess(_TEXTS, truncate=True),
        ],
    }


class _Encode(nn.Module):
    """The half of a network that encodes one modality, with tensors for arguments."""

    def __init__(self, model: AladinModel, modality: Modality, batch: Tensor | TextBatch):
        super().__init__()
        self._kind = type(batch)
        self.model = model
        self._is_image = modality == "image"

    def forward(self, *parts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        batch: Any = parts[0] if self._kind is Tensor else cast(Any, self._kind)(*parts)
        encode = self.model.encode_images if self._is_image else self.model.encode_texts
        embedding, tokens, mask = encode(batch)
        return embedding, tokens, mask


def _export(model: AladinModel, modality: Modality, sample: Tensor | TextBatch, path: Path) -> None:
    names = list(_named_inputs(sample))
    parts = (sample,) if isinstance(sample, Tensor) else tuple(cast(Sequence[Tensor], sample))
    pads = modality == "text" and model.text.encoder.config.pad_to is None
    free = {} if modality == "image" else dict.fromkeys((0, 1) if pads else (0,), Dim.DYNAMIC)
    module = _Encode(model, modality, sample).eval()
    try:
        with _quiet(), torch.no_grad():
            program = torch.onnx.export(
                module,
                parts,
                input_names=names,
                output_names=list(OUTPUTS),
                dynamic_shapes=(tuple(free for _ in parts),),
                dynamo=True,
                verbose=False,
            )
            assert program is not None  # with dynamo
            program.save(path, external_data=True)
    except torch.onnx.errors.OnnxExporterError as error:
        reason = " ".join(str(error.__cause__ or error).split())[:300]
        raise ConfigError(f"torch cannot export the {modality} tower ({reason})") from error


@contextmanager
def _quiet() -> Generator[None]:
    """Silence the exporter: it warns of its own parts, and of packages that it does without."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _compare(modality: Modality, found: Sequence[NDArray[Any]], expected: EncodedBatch) -> None:
    embedding, tokens, mask = (torch.from_numpy(np.array(each)) for each in found)
    real = mask[:, : expected.mask.shape[1]]
    if not torch.equal(real, expected.mask) or int(mask.sum()) != int(real.sum()):
        raise ConfigError(
            f"the exported {modality} graph and torch disagree on which tokens are masked"
        )
    pairs = (
        (embedding, expected.embedding),
        (tokens[:, : expected.mask.shape[1]][real], expected.tokens[real]),
    )
    worst = max(float((ours - theirs).abs().max()) for ours, theirs in pairs)
    if not worst <= TOLERANCE:
        raise CheckpointError(
            f"expected the {modality} tower's numbers to {TOLERANCE}, they differ by {worst:.2g}"
        )


def _named_inputs(batch: object) -> dict[str, NDArray[Any]]:
    """Return a batch as the inputs of a graph, by the names of its parts."""
    if isinstance(batch, Tensor):
        return {PIXELS: batch.numpy()}
    parts = cast(Any, batch)._asdict()
    return {name: part.numpy() for name, part in parts.items()}
