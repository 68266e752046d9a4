"""A model that comes as ONNX graphs becomes a checkpoint: described, and its files linked.

Its layout says where things are (`aladin_network.conversion.layouts`), its files say the rest:
types and sizes of inputs are read from the graphs, preprocessing, tokenizer and longest text from
the descriptions. The weights stay what and, where the disk allows it, where they are. Such a
checkpoint has an embedding of each item and no tokens.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path, PurePosixPath
from typing import Any, cast

import numpy as np
from PIL import Image
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from aladin_network.checkpoint_files import (
    CONFIG,
    GRAPHS,
    SCHEMA_VERSION,
    TOKENIZER,
    ConfigFile,
    Provenance,
)
from aladin_network.config import (
    AlignmentHeadConfig,
    ImageEncoderConfig,
    ImagePreprocessing,
    MatchingHeadConfig,
    ModelConfig,
    TextEncoderConfig,
    TowerConfig,
    dump_config,
    parse_config,
)
from aladin_network.conversion import layouts
from aladin_network.conversion.layouts import LANGUAGE, GraphFiles, Layout
from aladin_network.encoders.cleaning import clean_texts, cleaning
from aladin_network.encoders.pixels import PixelReader
from aladin_network.encoders.tokenization import Tokenization
from aladin_network.errors import AladinError, CheckpointError
from aladin_network.files import atomic_folder, link_or_copy, read_json, write_json
from aladin_network.graphs.files import (
    RGB,
    GraphForm,
    GraphInput,
    GraphManifest,
    Number,
    Part,
    describe_graphs,
    write_manifest,
)
from aladin_network.graphs.files import SCHEMA_VERSION as GRAPHS_VERSION
from aladin_network.graphs.network import GraphNetwork
from aladin_network.graphs.onnx_runtime import ONNX_RUNTIME, Graph, GraphSource
from aladin_network.inference import encode_photos, encode_texts
from aladin_network.scoring.encoding import Encoding
from aladin_network.scoring.fusion import Fusion
from aladin_network.sources.limits import check_model_folder
from aladin_network.types import Modality

# Longer than any caption; some text towers read thousands.
_MOST_TOKENS = 128
_NUMBERS: dict[str, Number] = {
    "tensor(float)": "float32",
    "tensor(float16)": "float16",
    "tensor(uint8)": "uint8",
    "tensor(int32)": "int32",
    "tensor(int64)": "int64",
    "tensor(bool)": "bool",
}
# The size of a graph's input that the tokens of a text have to fill.
_TOKENS_AXIS = 1


def link_graph_model(folder: Path, files: GraphFiles, out: Path, known_as: str) -> None:
    """Make a checkpoint of a model that has graphs; `out` appears complete.

    Both graphs are computed once before it is kept.

    Args:
        folder: Folder of the model.
        files: Its files.
        out: Folder of the checkpoint.
        known_as: Name to record for the model.

    Raises:
        CheckpointError: If something is missing, cannot be read or computed, or is not known.
    """
    try:
        _link(folder, files, out, known_as)
    except CheckpointError as error:
        raise CheckpointError(f"{known_as}: {error}") from error


def _link(folder: Path, files: GraphFiles, out: Path, known_as: str) -> None:
    for name in ("", *files.layout.graphs.values()):
        check_model_folder((folder / name).parent if name else folder)
    settings = _Settings(folder, files.layout)
    preprocessing = read_preprocessing(
        settings.required(files.layout.preprocessing), files.layout.crop_start
    )
    with atomic_folder(out) as partial:
        graphs: dict[Modality, _Opened] = {
            part: _Opened(part, folder, files, partial) for part in files.weights
        }
        forms: dict[Modality, GraphForm] = {part: graph.form() for part, graph in graphs.items()}
        width = graphs["text"].size_of(forms["text"], "ids", _TOKENS_AXIS)
        graphs.clear()  # each is loaded again to compute, and takes its weights twice
        tokenizer, text = _text_encoder(settings, files, known_as, width)
        image = ImageEncoderConfig(
            name="graph", source=known_as, frozen=True, preprocessing=preprocessing, pooled=True
        )
        config = _config(image, text, dim=None)
        reader = PixelReader(image, None, takes_bytes=forms["image"].takes_bytes)
        source = GraphSource(partial, forms)
        network = GraphNetwork(config, reader, Tokenization(text, tokenizer), source, (1, 1))
        dim = _compute(network, preprocessing)
        config = _config(image, text, dim)
        tokenizer.save(str(partial / TOKENIZER))
        inputs = [dump_config(each) for each in (preprocessing, replace(text, source=None))]
        prepared = (partial / TOKENIZER).read_bytes() + json.dumps(inputs).encode()
        origin = {"linked_from": known_as}
        described = ConfigFile(
            SCHEMA_VERSION, config, Fusion(), Provenance(recipe=json.dumps(origin)), False
        )
        write_json(partial / CONFIG, dump_config(described))
        manifest = GraphManifest(
            schema_version=GRAPHS_VERSION,
            model_id=None,
            prepares=hashlib.sha256(prepared).hexdigest(),
            image=None,
            text_dim=dim,
            forms=forms,
            versions={ONNX_RUNTIME: version(ONNX_RUNTIME)},
            files=describe_graphs(partial / GRAPHS),
        )
        write_manifest(partial / GRAPHS, manifest)


class _Settings:
    """The descriptions of a model, by the names of their files."""

    def __init__(self, folder: Path, layout: Layout) -> None:
        self._folder, self._layout = folder, layout

    def required(self, name: str) -> dict[str, Any]:
        """Return the content of a file by its path in the folder."""
        path = self._folder / name
        try:
            data: object = read_json(path)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise CheckpointError(f"{name} cannot be read ({reason})") from error
        if not isinstance(data, dict):
            raise CheckpointError(f"{name}: expected an object, got {type(data).__name__}")
        return cast(dict[str, Any], data)

    def __call__(self, name: str) -> dict[str, Any]:
        """Return the content of a file by its name; nothing if it is missing."""
        place = f"{self._layout.tokenizer}{name}" if name.startswith("tokenizer") else name
        return self.required(place) if (self._folder / place).exists() else {}

    def tokenizer(self) -> Tokenizer:
        path = self._folder / f"{self._layout.tokenizer}{TOKENIZER}"
        try:
            return Tokenizer.from_file(str(path))
        except Exception as error:  # the tokenizers library raises bare Exception
            raise CheckpointError(f"{path.name} cannot be read ({error})") from error


class _Opened:
    """A graph that was linked into a checkpoint, and read."""

    def __init__(
        self, modality: Modality, folder: Path, files: GraphFiles, checkpoint: Path
    ) -> None:
        """Link the graph and its weights; all keep their names."""
        names = files.weights[modality]
        place = checkpoint / GRAPHS / modality
        place.mkdir(parents=True)
        for name in names:
            try:
                link_or_copy(folder / name, place / PurePosixPath(name).name)
            except OSError as error:
                raise CheckpointError(f"{name} cannot be read ({error.strerror})") from error
        self._name, self._known = names[0], layouts.INPUTS[modality]
        self._file = f"{modality}/{PurePosixPath(names[0]).name}"
        self._graph = Graph(checkpoint / GRAPHS / self._file, 1)

    def form(self) -> GraphForm:
        """Describe how the graph is fed, by the names, types and sizes of its inputs."""
        inputs, batches = dict[str, GraphInput](), True
        for name, (kind, shape) in self._graph.inputs.items():
            part = self._known.get(name)
            if part is None or kind not in _NUMBERS:
                known = ", ".join(self._known)
                raise CheckpointError(
                    f"{self._name}: expected inputs among {known}, got {name} of {kind}"
                )
            if kind == "tensor(uint8)":  # it normalises photos itself
                part = cast(Part, RGB)
            inputs[name] = GraphInput(part=part, number=_NUMBERS[kind])
            batches = batches and not isinstance(shape[0], int)
        outputs = self._graph.outputs
        named = [name for name in layouts.OUTPUTS if name in outputs]
        if not named and len(outputs) > 1:
            raise CheckpointError(
                f"{self._name}: expected an output among {', '.join(layouts.OUTPUTS)}, got"
                f" {', '.join(outputs)}"
            )
        return GraphForm(
            file=self._file, inputs=inputs, outputs=tuple((named or outputs)[:1]), batches=batches
        )

    def size_of(self, form: GraphForm, part: Part, axis: int) -> int | None:
        """Return the size of an input along an axis, or None if it may differ."""
        for name, each in form.inputs.items():
            if each.part == part:
                size = self._graph.inputs[name][1][axis]
                return size if isinstance(size, int) else None
        raise CheckpointError(f"{self._name}: expected an input of {part}, it has none")


def read_preprocessing(data: Mapping[str, Any], crop_start: str) -> ImagePreprocessing:
    """Read what is done to photos, in the words of open_clip or of the transformers library.

    Raises:
        CheckpointError: If it is anything else than resizing, a centre crop and normalisation.
    """
    size = data.get("size")
    mean, std = data.get("image_mean", data.get("mean")), data.get("image_std", data.get("std"))
    how = data.get("interpolation", data.get("resample"))
    squashes = data.get("resize_mode", "shortest") == "squash"
    final = size
    if "image_mean" in data:
        crops = data.get("do_center_crop", "crop_size" in data)
        final = data.get("crop_size", size) if crops else size
        shortest = size.get("shortest_edge") if isinstance(size, dict) else size
        squashes = not crops and not (isinstance(size, dict) and "shortest_edge" in size)
        size = shortest if not squashes else size
    try:
        height, width = _sides(final)
        if data.get("do_normalize", True) is not True or not data.get("do_resize", True):
            raise ValueError("it does not resize or normalise")
        if data.get("resize_mode", "shortest") not in ("shortest", "squash"):
            raise ValueError(f"resize_mode is {data['resize_mode']}")
        return parse_config(
            ImagePreprocessing,
            {
                "height_px": height,
                "width_px": width,
                "shortest_edge_px": None if squashes else min(_sides(size)),
                "crop_start": crop_start,
                "mean": mean,
                "std": std,
                "resample": how if isinstance(how, str) else Image.Resampling(how).name.lower(),
            },
            "preprocessing",
        )
    except (AladinError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"its preprocessing is not known ({error})") from error


def _sides(size: Any) -> tuple[int, int]:
    """Return height and width of a size, however it is given."""
    if isinstance(size, dict):
        sides = cast(dict[str, int], size)
        if "shortest_edge" in sides:
            return sides["shortest_edge"], sides["shortest_edge"]
        return sides["height"], sides["width"]
    if isinstance(size, list):
        height, width = cast(list[int], size)
        return height, width
    return int(size), int(size)


def _text_encoder(
    settings: _Settings, files: GraphFiles, known_as: str, width: int | None
) -> tuple[Tokenizer, TextEncoderConfig]:
    """Return the tokenizer as it was in training, and what texts are padded to.

    `width` is the number of tokens that the graph takes, or None if it takes any.
    """
    tokenizer, said = settings.tokenizer(), settings("tokenizer_config.json")
    padding: dict[str, Any] = tokenizer.padding or {}
    longest = _longest(settings(layouts.CONFIG), said, files.layout, tokenizer)
    is_padded = files.layout.is_padded or _family(settings) in layouts.PADDED_FAMILIES
    pad_to = width or padding.get("length") or (longest if is_padded else None)
    pad_token: Any = said.get("pad_token")
    pad_token = pad_token.get("content") if isinstance(pad_token, dict) else pad_token
    pad_id = tokenizer.token_to_id(pad_token) if pad_token else padding.get("pad_id")
    text = TextEncoderConfig(
        name="graph",
        source=known_as,
        frozen=True,
        max_tokens=min(longest, pad_to or longest),
        pooled=True,
        pad_to=pad_to,
        pad_id=pad_id or 0,
    )
    clean_texts(tokenizer, cleaning(settings))
    is_nllb = str(said.get("tokenizer_class")).startswith("Nllb")
    if files.language is not None or is_nllb:
        _set_language(tokenizer, files.language or layouts.USUAL_LANGUAGE)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer, text


def _family(settings: _Settings) -> str:
    return str(settings(layouts.CONFIG).get("model_type"))


def _longest(
    config: Mapping[str, Any], said: Mapping[str, Any], layout: Layout, tokenizer: Tokenizer
) -> int:
    """Return the length of the longest text in tokens, by whatever says it."""
    part, key = layout.longest
    nested: Any = config.get(part)
    own = nested.get(key) if isinstance(nested, dict) else None
    family = layouts.USUAL_LENGTHS.get(str(config.get("model_type", layouts.OPEN_CLIP)))
    truncation: dict[str, Any] = tokenizer.truncation or {}
    stated = (own or family, said.get("model_max_length"), truncation.get("max_length"))
    known = [each for each in stated if isinstance(each, (int, float)) and each > 0]
    return int(min([*known, _MOST_TOKENS]))


def _set_language(tokenizer: Tokenizer, code: str) -> None:
    """Let a multilingual tokenizer put the code of a language before each text."""
    if tokenizer.token_to_id(code) is None:
        raise CheckpointError(f"its tokenizer has no language {code}")
    sample = tokenizer.encode("a")
    special = list(zip(sample.tokens, sample.special_tokens_mask, strict=True))
    words = [number for number, (_, is_special) in enumerate(special) if not is_special]
    if not words:
        raise CheckpointError("its tokenizer keeps no word")
    before = [token for token, _ in special[: words[0]] if not LANGUAGE.fullmatch(token)]
    after = [token for token, _ in special[words[-1] + 1 :] if not LANGUAGE.fullmatch(token)]
    ids = {token: tokenizer.token_to_id(token) for token in (*before, code, *after)}
    tokenizer.post_processor = TemplateProcessing(  # type: ignore[assignment]
        single=[*before, code, "$A", *after],
        special_tokens=list(ids.items()),
    )


def _config(image: ImageEncoderConfig, text: TextEncoderConfig, dim: int | None) -> ModelConfig:
    bare = TowerConfig(trunk=None)
    return ModelConfig(
        image_encoder=image,
        text_encoder=text,
        image_tower=bare,
        text_tower=bare,
        matching=MatchingHeadConfig(layers=0, dim=dim),
        # There are no tokens; their size is that of the smallest one.
        alignment=AlignmentHeadConfig(dim=1),
    )


def _compute(network: GraphNetwork, preprocessing: ImagePreprocessing) -> int:
    """Encode a photo and a text; return the size of their embeddings."""
    photo = Image.new("RGB", (preprocessing.width_px, preprocessing.height_px), "grey")
    try:
        found = {"photo": encode_photos(network, [photo]), "text": encode_texts(network, ["a"])}
    except AladinError:
        raise
    except Exception as error:  # ONNX Runtime has exceptions of its own
        reason = " ".join(str(error).split())[:300]
        raise CheckpointError(f"{ONNX_RUNTIME} cannot compute it ({reason})") from error
    sizes = {name: _size(name, encoding) for name, encoding in found.items()}
    if len(set(sizes.values())) > 1:
        said = ", ".join(f"{size} of a {name}" for name, size in sizes.items())
        raise CheckpointError(f"expected embeddings of one size, got {said}")
    return sizes["photo"]


def _size(name: str, encoding: Encoding) -> int:
    embedding = encoding.embedding
    if embedding.ndim != 2 or len(embedding) != 1 or not np.isfinite(embedding).all():
        raise CheckpointError(
            f"expected one embedding of finite numbers of a {name}, got {embedding.shape}"
        )
    return embedding.shape[1]
