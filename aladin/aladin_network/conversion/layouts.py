"""Layouts of models as folders and hub repositories have them: which of their files are taken.

Two layouts have ONNX graphs, which need neither torch nor the transformers library: Immich's, as
its exporter makes it of models of open_clip, and that of transformers.js. Here they are data;
`aladin_network.conversion.graph_models` reads them. Anything else is a folder of the transformers
library, or a checkpoint, whose weights may lie there in several forms, of which one is taken.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Literal, NamedTuple

from aladin_network.errors import CheckpointError
from aladin_network.types import PIXELS, ZEROS, Modality, Part

CONFIG = "config.json"


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Where a model with graphs has its files, and what they leave unsaid.

    Attributes:
        graphs: Graph of each modality, with the name of a variant in place of the braces.
        has_loose_weights: Whether a graph's weights may be files of any name beside it.
        preprocessing: File that describes what is done to a photo.
        tokenizer: Folder of ``tokenizer.json`` and ``tokenizer_config.json``.
        crop_start: See `ImagePreprocessing`.
        longest: Keys of ``config.json`` under which the longest text is, in tokens.
        is_padded: Whether all texts are padded to it, whatever the model.
    """

    title: str
    graphs: Mapping[Modality, str]
    has_loose_weights: bool
    preprocessing: str
    tokenizer: str
    crop_start: Literal["down", "even"]
    longest: tuple[str, str]
    is_padded: bool


LAYOUTS = (
    Layout(
        title="Immich's",
        graphs={"image": "visual/model{}.onnx", "text": "textual/model{}.onnx"},
        has_loose_weights=True,
        preprocessing="visual/preprocess_cfg.json",
        tokenizer="textual/",
        crop_start="even",
        longest=("text_cfg", "context_length"),
        is_padded=True,
    ),
    Layout(
        title="transformers.js'",
        graphs={"image": "onnx/vision_model{}.onnx", "text": "onnx/text_model{}.onnx"},
        has_loose_weights=False,
        preprocessing="preprocessor_config.json",
        tokenizer="",
        crop_start="down",
        longest=("text_config", "max_position_embeddings"),
        is_padded=False,
    ),
)

# Inputs of graphs, and the part of a batch that each takes; their types are in the graphs.
INPUTS: dict[Modality, dict[str, Part]] = {
    "image": {"image": PIXELS, "pixel_values": PIXELS},
    "text": {
        "text": "ids",
        "input_ids": "ids",
        "attention_mask": "mask",
        "token_type_ids": ZEROS,
    },
}
# Outputs that are embeddings, the projected ones first.
OUTPUTS = ("embedding", "image_embeds", "text_embeds", "pooler_output")

# Longest texts of families whose configurations may leave out what is usual, by the type of the
# model; and those that attend to padding as they do to words.
# Configurations of open_clip name no type.
OPEN_CLIP = "open_clip"
USUAL_LENGTHS = {OPEN_CLIP: 77, "clip": 77, "siglip": 64, "siglip2": 64}
PADDED_FAMILIES = frozenset({"siglip", "siglip2"})

# Codes of languages that some tokenizers put before each text (NLLB), and the usual one.
LANGUAGE = re.compile(r"[a-z]{3}_[A-Z][a-z]{3}")
USUAL_LANGUAGE = "eng_Latn"

# Files beside loose weights that are none.
_NO_WEIGHTS = frozenset({".onnx", ".json", ".txt", ".model", ".md", ".armnn", ".rknn", ".py"})
_DESCRIPTIONS = ("*.json", "*.txt", "*.model", "correction.safetensors")
# Forms in which weights of the transformers library are saved, the best first.
_WEIGHTS = (
    ("model.safetensors",),
    ("model-*-of-*.safetensors",),
    ("*.safetensors",),
    ("pytorch_model.bin",),
    ("pytorch_model-*-of-*.bin",),
    ("*.bin",),
)


class Variant(NamedTuple):
    """What a name asks for behind its colons.

    Attributes:
        graph: Suffix of the graphs' files without its line, such as "quantized", or "".
        language: Code such as "deu_Latn", for models that put one before each text, or None.
    """

    graph: str = ""
    language: str | None = None

    @classmethod
    def of(cls, words: Sequence[str]) -> Variant:
        """Tell the words of a name apart, at most one of each kind."""
        languages = [word for word in words if LANGUAGE.fullmatch(word)]
        graphs = [word for word in words if word not in languages]
        if len(languages) > 1 or len(graphs) > 1:
            raise CheckpointError(
                "expected at most one variant and one language behind the model's name, got"
                f" {', '.join(words)}"
            )
        return cls(graphs[0] if graphs else "", languages[0] if languages else None)

    def __bool__(self) -> bool:
        """Whether anything is asked for."""
        return bool(self.graph or self.language)


class GraphFiles(NamedTuple):
    """The files of a model with graphs, by their paths in its folder.

    Attributes:
        weights: For each modality its graph, which comes first, and the files of its weights.
        descriptions: All other files that are read, as far as they are there.
    """

    layout: Layout
    weights: dict[Modality, list[str]]
    descriptions: list[str]
    language: str | None

    @property
    def names(self) -> list[str]:
        """All files."""
        return [*self.descriptions, *(name for each in self.weights.values() for name in each)]


def graph_files(names: Collection[str], variant: Variant) -> GraphFiles | None:
    """Choose the files of a model with graphs.

    Args:
        names: Paths of all files of a folder or repository.
        variant: What its name asks for.

    Returns:
        The files, or None if it is in none of the layouts.

    Raises:
        CheckpointError: If it has no graphs of this variant.
    """
    for layout in LAYOUTS:
        known = _variants(layout, names)
        if not known:
            continue
        if variant.graph not in known:
            asked = variant.graph or "no variant"
            raise CheckpointError(
                f"expected one of its variants {', '.join(sorted(known - {''})) or '(it has none)'}"
                f" behind a colon{', or none' if '' in known else ''}, got {asked}"
            )
        suffix = f"_{variant.graph}" if variant.graph else ""
        weights: dict[Modality, list[str]] = {
            part: _with_weights(layout, form.format(suffix), names)
            for part, form in layout.graphs.items()
        }
        tokenizer = [f"{layout.tokenizer}tokenizer{end}.json" for end in ("", "_config")]
        described = (CONFIG, layout.preprocessing, *tokenizer)
        return GraphFiles(
            layout,
            weights,
            [name for name in described if name in names],
            variant.language,
        )
    return None


def _variants(layout: Layout, names: Iterable[str]) -> set[str]:
    """Return the variants that both graphs have, "" for the plain one."""
    found: list[set[str]] = []
    for form in layout.graphs.values():
        before, after = form.split("{}")
        pattern = re.compile(rf"{re.escape(before)}(?:_(\w+))?{re.escape(after)}")
        matches = (pattern.fullmatch(name) for name in names)
        found.append({match[1] or "" for match in matches if match})
    return set.intersection(*found)


def _with_weights(layout: Layout, graph: str, names: Iterable[str]) -> list[str]:
    folder = PurePosixPath(graph).parent
    weights = [
        name
        for name in sorted(names)
        if PurePosixPath(name).parent == folder
        and name != graph
        and (
            name.startswith(f"{graph}_")
            or name.startswith(f"{graph}.")
            or (layout.has_loose_weights and PurePosixPath(name).suffix not in _NO_WEIGHTS)
        )
    ]
    return [graph, *weights]


def plain_files(names: Iterable[str]) -> list[str]:
    """Choose the files of a folder of the transformers library, or of a checkpoint.

    Weights that lie there in several forms are taken once.
    """
    own = [name for name in names if "/" not in name]
    described = [name for name in own if any(fnmatchcase(name, form) for form in _DESCRIPTIONS)]
    others = [name for name in own if name not in described]
    for forms in _WEIGHTS:
        weights = [name for name in others if any(fnmatchcase(name, form) for form in forms)]
        if weights:
            return [*described, *weights]
    return described
