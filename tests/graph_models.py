"""Folders of models with graphs, as Immich and transformers.js have them, small and random.

A photo's embedding is a random linear map of the network's input; a text's is the mean of random
vectors of its tokens, weighted by their places, padding included where the graph gets no mask. So
everything that is prepared wrongly gives other numbers.
"""

from __future__ import annotations

import json
import string
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from PIL import Image
from tokenizers import Tokenizer, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.processors import TemplateProcessing
from tokenizers.trainers import BpeTrainer

DIM, SIDE = 16, 32
MEAN, STD = (0.48, 0.45, 0.40), (0.26, 0.25, 0.27)
TEXTS = [
    "a small red circle above a striped blue square",
    "Two dogs run on the green grass, don't they?",
    "ein Hund läuft",
]


@dataclass(frozen=True, kw_only=True)
class Family:
    """How the models of one kind differ.

    Attributes:
        inputs: Names and types of the text graph's inputs.
        length: Tokens that the text graph takes, or None for any number.
        padded_to: Length to which a user of the model pads texts, or None for the longest.
        clean: What is done to texts before the tokenizer.
        squashes: Whether photos are squashed, and not cropped.
        takes_bytes: Whether the image graph normalises photos itself.
    """

    immich: bool
    inputs: dict[str, str]
    length: int | None = None
    padded_to: int | None = None
    outputs: tuple[str, str] = ("embedding", "embedding")
    config: dict[str, Any] = field(default_factory=dict[str, Any])
    tokenizer_config: dict[str, Any] = field(default_factory=dict[str, Any])
    clean: str = "spaces"
    squashes: bool = False
    takes_bytes: bool = False
    language: str | None = None
    pad_token: str = "<pad>"


FAMILIES = {
    "immich-openai": Family(
        immich=True,
        inputs={"text": "int32"},
        length=21,
        padded_to=21,
        config={"embed_dim": DIM, "text_cfg": {"context_length": 21}},
        pad_token="</s>",
    ),
    "immich-siglip2": Family(
        immich=True,
        inputs={"text": "int32"},
        length=20,
        padded_to=20,
        config={
            "text_cfg": {"context_length": 20, "tokenizer_kwargs": {"clean": "canonicalize"}},
        },
        clean="canonicalize",
        squashes=True,
        takes_bytes=True,
    ),
    "immich-xlm-roberta": Family(
        immich=True,
        inputs={"text": "int32"},
        length=77,
        padded_to=77,
        config={"text_cfg": {"hf_model_name": "xlm-roberta-base"}},
    ),
    "immich-m-clip": Family(
        immich=True,
        inputs={"input_ids": "int32", "attention_mask": "int32"},
        length=77,
        padded_to=77,
        config={"text_cfg": {"context_length": 77}},
    ),
    "immich-nllb": Family(
        immich=True,
        inputs={"text": "int32"},
        length=16,
        padded_to=16,
        config={"text_cfg": {"context_length": 16}},
        tokenizer_config={"tokenizer_class": "NllbTokenizer"},
        language="eng_Latn",
    ),
    "js-clip": Family(
        immich=False,
        inputs={"input_ids": "int64", "attention_mask": "int64"},
        outputs=("image_embeds", "text_embeds"),
        config={"model_type": "clip", "text_config": {"max_position_embeddings": 24}},
        clean="none",
    ),
    "js-siglip": Family(
        immich=False,
        inputs={"input_ids": "int64"},
        padded_to=64,
        outputs=("pooler_output", "pooler_output"),
        config={"model_type": "siglip", "text_config": {"model_type": "siglip_text_model"}},
        tokenizer_config={"tokenizer_class": "SiglipTokenizer", "model_max_length": 64},
        clean="canonicalize",
        squashes=True,
    ),
}

_TYPES = {
    "float32": TensorProto.FLOAT,
    "uint8": TensorProto.UINT8,
    "int32": TensorProto.INT32,
    "int64": TensorProto.INT64,
}


@dataclass(frozen=True, kw_only=True)
class GraphModel:
    """A model in a folder, and what it computes, written by hand.

    Attributes:
        weights: (3 * SIDE * SIDE, DIM) map of a photo.
        table: (entries, DIM) vectors of tokens.
        places: (128,) weights of places in a text.
    """

    folder: Path
    family: Family
    tokenizer: Tokenizer
    weights: NDArray[np.float32]
    table: NDArray[np.float32]
    places: NDArray[np.float32]

    def photo_embedding(self, photo: Image.Image) -> NDArray[np.float64]:
        """Return the unit vector of a photo, prepared pixel by pixel as open_clip does."""
        width, height = photo.size
        if self.family.squashes:
            resized = photo.resize((SIDE, SIDE), Image.Resampling.BICUBIC)
        else:
            short = min(width, height)
            size = int(SIDE * width / short), int(SIDE * height / short)
            resized = photo.resize(size, Image.Resampling.BICUBIC)
        starts = [(side - SIDE) / 2 for side in resized.size]
        left, top = (round(each) if self.family.immich else int(each) for each in starts)
        numbers = np.zeros((3, SIDE, SIDE))
        for row in range(SIDE):
            for column in range(SIDE):
                pixel = resized.getpixel((left + column, top + row))
                for channel, value in enumerate(pixel):
                    numbers[channel, row, column] = (value / 255 - MEAN[channel]) / STD[channel]
        return _unit(numbers.reshape(-1) @ self.weights.astype(np.float64))

    def text_embedding(self, text: str, language: str | None = None) -> NDArray[np.float64]:
        """Return the unit vector of a text, tokenised as a user of the layout does."""
        cleaned = " ".join(text.split()) if self.family.clean != "none" else text
        if self.family.clean == "canonicalize":
            cleaned = cleaned.replace("_", " ").lower()
            cleaned = "".join(each for each in cleaned if each not in string.punctuation)
            cleaned = " ".join(cleaned.split())
        tokenizer = Tokenizer.from_str(self.tokenizer.to_str())
        tokens = tokenizer.encode(cleaned).ids
        if self.family.language is not None:
            code = tokenizer.token_to_id(language or self.family.language)
            tokens = [code, *tokens[1:]]
        pad = tokenizer.token_to_id(self.family.pad_token)
        real = len(tokens)
        tokens = tokens + [pad] * ((self.family.padded_to or real) - real)
        counted = range(real if len(self.family.inputs) > 1 else len(tokens))
        total = sum(self.places[at] * self.table[tokens[at]].astype(np.float64) for at in counted)
        return _unit(total)


def _unit(vector: NDArray[np.float64]) -> NDArray[np.float64]:
    return vector / np.linalg.norm(vector)


def make_graph_model(folder: Path, kind: str, variants: Sequence[str] = ("",)) -> GraphModel:
    """Write a model of a kind of `FAMILIES`, its graphs in some variants that compute the same."""
    family, random = FAMILIES[kind], np.random.default_rng(len(kind))
    tokenizer = _tokenizer(family)
    made = GraphModel(
        folder=folder,
        family=family,
        tokenizer=tokenizer,
        weights=random.normal(size=(3 * SIDE * SIDE, DIM)).astype(np.float32),
        table=random.normal(size=(tokenizer.get_vocab_size(), DIM)).astype(np.float32),
        places=random.uniform(0.5, 1.5, 128).astype(np.float32),
    )
    names = ("visual/model", "textual/model") if family.immich else ("onnx/vision_model",) * 2
    if not family.immich:
        names = ("onnx/vision_model", "onnx/text_model")
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
    for variant in variants:
        suffix = f"_{variant}" if variant else ""
        onnx.save(_image_graph(made), folder / f"{names[0]}{suffix}.onnx")
        onnx.save(_text_graph(made), folder / f"{names[1]}{suffix}.onnx")
    _describe(made)
    return made


def _describe(made: GraphModel) -> None:
    family, folder = made.family, made.folder
    place = folder / "textual" if family.immich else folder
    made.tokenizer.save(str(place / "tokenizer.json"))
    said = {"pad_token": family.pad_token, **family.tokenizer_config}
    (place / "tokenizer_config.json").write_text(json.dumps(said))
    (folder / "config.json").write_text(json.dumps(family.config))
    if family.immich:
        name = "visual/preprocess_cfg.json"
        data: dict[str, Any] = {"size": [SIDE, SIDE], "interpolation": "bicubic"}
        data |= {"mean": MEAN, "std": STD, "mode": "RGB", "fill_color": 0}
        if family.squashes:
            data["resize_mode"] = "squash"
    else:
        name = "preprocessor_config.json"
        data = {"do_normalize": True, "do_resize": True, "resample": 3}
        data |= {"image_mean": MEAN, "image_std": STD}
        crops = {"do_center_crop": True, "crop_size": SIDE, "size": SIDE}
        data |= {"size": {"height": SIDE, "width": SIDE}} if family.squashes else crops
    (folder / name).write_text(json.dumps(data))


def _tokenizer(family: Family) -> Tokenizer:
    """Byte pairs with a beginning, an end and padding; and two languages where there are any."""
    special = ["<pad>", "<s>", "</s>", "<unk>", "eng_Latn", "deu_Latn"]
    tokenizer = Tokenizer(BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = BpeTrainer(vocab_size=330, special_tokens=special, initial_alphabet=alphabet)
    tokenizer.train_from_iterator(TEXTS, trainer)
    first = family.language or "<s>"
    ids = [(each, special.index(each)) for each in (first, "</s>")]
    tokenizer.post_processor = TemplateProcessing(single=f"{first} $A </s>", special_tokens=ids)
    return tokenizer


def _image_graph(made: GraphModel) -> onnx.ModelProto:
    family = made.family
    constants = {"weights": made.weights, "flat": np.array([-1, 3 * SIDE * SIDE])}
    nodes = list[onnx.NodeProto]()
    if family.takes_bytes:
        shape, kind, pixels = [1, SIDE, SIDE, 3], "uint8", "normal"
        mean, std = (np.array(each, np.float32).reshape(1, 3, 1, 1) for each in (MEAN, STD))
        constants |= {"mean": mean, "std": std, "bytes": np.array(255, np.float32)}
        nodes += [
            helper.make_node("Cast", ["image"], ["numbers"], to=TensorProto.FLOAT),
            helper.make_node("Transpose", ["numbers"], ["channels"], perm=[0, 3, 1, 2]),
            helper.make_node("Div", ["channels", "bytes"], ["fractions"]),
            helper.make_node("Sub", ["fractions", "mean"], ["centred"]),
            helper.make_node("Div", ["centred", "std"], ["normal"]),
        ]
    else:
        shape, kind = [1 if family.immich else "batch", 3, SIDE, SIDE], "float32"
        pixels = "image" if family.immich else "pixel_values"
    nodes += [
        helper.make_node("Reshape", [pixels, "flat"], ["flattened"]),
        helper.make_node("MatMul", ["flattened", "weights"], [family.outputs[0]]),
    ]
    name = "pixel_values" if not family.immich else "image"
    inputs = [helper.make_tensor_value_info(name, _TYPES[kind], shape)]
    return _model(nodes, inputs, family.outputs[0], constants)


def _text_graph(made: GraphModel) -> onnx.ModelProto:
    family = made.family
    shape = [1, family.length] if family.length else ["batch", "sequence"]
    ids, *masks = family.inputs
    inputs = [
        helper.make_tensor_value_info(name, _TYPES[kind], shape)
        for name, kind in family.inputs.items()
    ]
    constants = {
        "table": made.table,
        "places": made.places[None],
        "second": np.array([1]),
        "none": np.array([0]),
    }
    nodes = [
        helper.make_node("Gather", ["table", ids], ["vectors"]),
        helper.make_node("Shape", [ids], ["length"], start=1, end=2),
        helper.make_node("Slice", ["places", "none", "length", "second"], ["kept"]),
    ]
    weight = "kept"
    if masks:
        nodes += [
            helper.make_node("Cast", [masks[0]], ["real"], to=TensorProto.FLOAT),
            helper.make_node("Mul", ["kept", "real"], ["masked"]),
        ]
        weight = "masked"
    constants["last"] = np.array([2])
    nodes += [
        helper.make_node("Unsqueeze", [weight, "last"], ["factors"]),
        helper.make_node("Mul", ["vectors", "factors"], ["weighted"]),
        helper.make_node("ReduceSum", ["weighted", "second"], [family.outputs[1]], keepdims=0),
    ]
    return _model(nodes, inputs, family.outputs[1], constants)


def _model(
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    output: str,
    constants: dict[str, NDArray[Any]],
) -> onnx.ModelProto:
    outputs = [helper.make_tensor_value_info(output, TensorProto.FLOAT, ["batch", DIM])]
    initial = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "tower", inputs, outputs, initial)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
