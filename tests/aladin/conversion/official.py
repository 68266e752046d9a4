"""The authors' forward pass, written down plainly, and small checkpoints that it can run.

What it does is read off mesnico/ALADIN (`alad_model.py`, `dataset.py`, `evaluation.py`, `loss.py`)
and microsoft/Oscar (`modeling_bert.py`); tensors are looked up by the names that those give them.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from aladin_network.conversion.tensors import Left, Rename, map_tensors
from aladin_network.errors import CheckpointError

SPECIAL = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = ["a", "the", "dog", "dogs", "cat", "man", "run", "on", "grass", "street", "red", "motor"]
VOCABULARY = [*SPECIAL, *WORDS, "##s", "##cycle", "table", ".", ",", *"bdfgmnrst"]
HIDDEN, LAYERS, HEADS, REGION_DIM = 24, 2, 3, 10
MAX_TOKENS, MAX_REGIONS, EVALUATION_LENGTH = 12, 5, 71


class Photo(NamedTuple):
    """Regions as a detector found them."""

    vectors: Tensor
    labels: list[str]


CAPTIONS = [
    "A dog runs on the grass.",
    "the red motorcycle, on the street.",
    "cat",
    "dogs xyz man a a a a a a a a a the end of it is cut off",
]


def photos() -> list[Photo]:
    """Photos with few, many and no more than one region; long and short label parts."""
    generator = torch.Generator().manual_seed(3)
    labels = (["dog", "red grass"], ["cat"], ["the motorcycle"] * 7, ["man", "a", "table", "xyz"])
    return [Photo(torch.randn(len(each), REGION_DIM, generator=generator), each) for each in labels]


@dataclass
class Official:
    """A checkpoint of the authors, and its scores.

    Attributes:
        oscar: state dict of OSCAR's network, ``bert.*`` and what else is in such files.
        state: state dict of the authors' network; everything of `oscar` and the heads.
        config: OSCAR's ``config.json``.
        recipe: the authors' yaml.
    """

    oscar: dict[str, Tensor]
    state: dict[str, Tensor]
    config: dict[str, Any]
    recipe: dict[str, Any]
    vocabulary: list[str] = field(default_factory=lambda: list(VOCABULARY))

    def write_oscar(self, folder: Path, **files: object) -> Path:
        """Write the folder that OSCAR publishes; `files` replaces parts of it."""
        folder.mkdir(parents=True, exist_ok=True)
        torch.save(files.get("tensors", self.oscar), folder / "pytorch_model.bin")
        (folder / "config.json").write_text(json.dumps(files.get("config", self.config)))
        (folder / "vocab.txt").write_text("\n".join(self.vocabulary) + "\n", encoding="utf-8")
        return folder

    def write_release(self, path: Path, *, zipped: bool = True, **parts: object) -> Path:
        """Write what the authors' training saves; `parts` replaces some of it."""
        options = argparse.Namespace(
            max_seq_length=MAX_TOKENS,
            max_img_seq_length=MAX_REGIONS,
            att_mask_type="CLR",
            add_od_labels=True,
            device=torch.device("cpu"),
        )
        saved: dict[str, object] = {
            "epoch": 7,
            "model": self.state,
            "optimizer": {"state": {0: {"step": 3}}, "param_groups": [{"lr": 1e-5}]},
            "scheduler": {"step_size": 15, "last_epoch": 6, "base_lrs": [1e-5]},
            "opt": options,
            "config": self.recipe,
            "Eiters": 100,
        }
        saved = {name: part for name, part in (saved | parts).items() if part is not None}
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(saved, path, _use_new_zipfile_serialization=zipped)
        return path

    def ids(self, text: str, first: str) -> list[int]:
        """Split lower-case words and punctuation greedily into word pieces, and look them up."""
        spaced = "".join(f" {char} " if char in ".," else char for char in text.lower())
        pieces: list[str] = []
        for word in spaced.split():
            pieces += _pieces(word, self.vocabulary)
        kept = pieces[: MAX_TOKENS - 2]
        return [self.vocabulary.index(piece) for piece in (first, *kept, "[SEP]")]

    def bert(self, ids: Tensor, types: Tensor, mask: Tensor, regions: Tensor | None) -> Tensor:
        """Run OSCAR's transformer: (batch, tokens + regions, hidden)."""
        w = {name.removeprefix("bert."): value for name, value in self.oscar.items()}
        x = w["embeddings.word_embeddings.weight"][ids]
        x = x + w["embeddings.position_embeddings.weight"][torch.arange(ids.shape[1])]
        x = x + w["embeddings.token_type_embeddings.weight"][types]
        x = _norm(x, w, "embeddings.LayerNorm")
        if regions is not None:
            embedded = _norm(_linear(regions, w, "img_embedding"), w, "LayerNorm")
            x = torch.cat([x, embedded], dim=1)
        bias = (1.0 - mask.float())[:, None, None, :] * -10000.0
        for layer in range(LAYERS):
            name = f"encoder.layer.{layer}"
            q, k, v = (
                _linear(x, w, f"{name}.attention.self.{part}")
                .unflatten(2, (HEADS, -1))
                .transpose(1, 2)
                for part in ("query", "key", "value")
            )
            scores = q @ k.transpose(2, 3) / math.sqrt(HIDDEN / HEADS) + bias
            mixed = (scores.softmax(dim=-1) @ v).transpose(1, 2).flatten(2)
            attended = _linear(mixed, w, f"{name}.attention.output.dense")
            x = _norm(x + attended, w, f"{name}.attention.output.LayerNorm")
            inner = F.gelu(_linear(x, w, f"{name}.intermediate.dense"))
            x = _norm(x + _linear(inner, w, f"{name}.output.dense"), w, f"{name}.output.LayerNorm")
        return x

    def text_states(self, captions: list[str]) -> tuple[Tensor, list[int]]:
        """Run the text pass: (batch, longest, hidden), and the lengths with CLS and SEP."""
        rows = [self.ids(caption, "[CLS]") for caption in captions]
        ids, mask = _padded(rows, MAX_TOKENS)
        states = self.bert(ids, torch.zeros_like(ids), mask, None)
        lengths = [len(row) for row in rows]
        return states[:, : max(lengths)], lengths

    def image_states(
        self, images: list[Photo], first: str, whole: bool = False
    ) -> tuple[Tensor, list[int]]:
        """Run the image pass: the regions' part (or the `whole`), and the numbers of regions."""
        rows = [self.ids(" ".join(image.labels), first) for image in images]
        ids, mask = _padded(rows, MAX_TOKENS)
        types = torch.ones_like(ids)
        types[:, 0] = 0
        lengths = [min(len(image.vectors), MAX_REGIONS) for image in images]
        regions = torch.zeros(len(images), MAX_REGIONS, REGION_DIM)
        region_mask = torch.zeros(len(images), MAX_REGIONS, dtype=torch.long)
        for row, (image, length) in enumerate(zip(images, lengths, strict=True)):
            regions[row, :length] = image.vectors[:length]
            region_mask[row, :length] = 1
        states = self.bert(ids, types, torch.cat([mask, region_mask], dim=1), regions)
        return (states if whole else states[:, MAX_TOKENS : MAX_TOKENS + max(lengths)]), lengths

    def embeddings(self, states: Tensor, lengths: list[int]) -> Tensor:
        """Run the matching head: two of torch's own layers, element 0, unit length."""
        layer = nn.TransformerEncoderLayer(HIDDEN, 4, HIDDEN, 0.1)
        head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
        prefix = "img_txt_enc.final_projection_net."
        head.load_state_dict(
            {
                name.removeprefix(prefix): value
                for name, value in self.state.items()
                if name.startswith(prefix)
            }
        )
        padding = torch.arange(states.shape[1]) >= torch.tensor(lengths)[:, None]
        with torch.no_grad():
            first = head(states.transpose(0, 1), src_key_padding_mask=padding)[0]
        return first / first.pow(2).sum(dim=1, keepdim=True).sqrt()

    def scores(self, images: list[Photo], captions: list[str]) -> tuple[Tensor, Tensor]:
        """Evaluate as the authors do: matching and alignment scores, [image, text]."""
        image_states, image_lengths = self.image_states(images, "[UNK]")
        text_states, text_lengths = self.text_states(captions)
        matching = (
            self.embeddings(image_states, image_lengths)
            @ self.embeddings(text_states, text_lengths).T
        )
        images_71, texts_71 = (
            F.pad(F.normalize(states, dim=2), (0, 0, 0, EVALUATION_LENGTH - states.shape[1]))
            for states in (image_states, text_states)
        )
        alignment = torch.zeros(len(images), len(captions))
        for i, regions in enumerate(images_71):
            for t, words in enumerate(texts_71):
                cells = regions[1:] @ words[1:-2].T
                cells[image_lengths[i] - 1 :] = 0
                cells[:, max(0, text_lengths[t] - 3) :] = 0
                alignment[i, t] = cells.max(dim=0).values.sum()
        return matching, alignment


def make_official() -> Official:
    """Return a small random checkpoint with every name that the real ones have."""
    generator = torch.Generator().manual_seed(11)

    def drawn(*shape: int, scale: float = 0.1) -> Tensor:
        return torch.randn(*shape, generator=generator) * scale

    # Biases are small: they are in all tokens alike, and cosines would all be large.
    def linear(name: str, rows: int, columns: int) -> dict[str, Tensor]:
        return {f"{name}.weight": drawn(rows, columns), f"{name}.bias": drawn(rows, scale=0.05)}

    def norm(name: str) -> dict[str, Tensor]:
        weight, bias = 1 + drawn(HIDDEN, scale=0.2), drawn(HIDDEN, scale=0.05)
        return {f"{name}.weight": weight, f"{name}.bias": bias}

    oscar = {
        "bert.embeddings.word_embeddings.weight": drawn(len(VOCABULARY), HIDDEN),
        "bert.embeddings.position_embeddings.weight": drawn(20, HIDDEN),
        "bert.embeddings.token_type_embeddings.weight": drawn(2, HIDDEN),
        **norm("bert.embeddings.LayerNorm"),
    }
    for layer in range(LAYERS):
        name = f"bert.encoder.layer.{layer}"
        for part in ("self.query", "self.key", "self.value", "output.dense"):
            oscar |= linear(f"{name}.attention.{part}", HIDDEN, HIDDEN)
        oscar |= norm(f"{name}.attention.output.LayerNorm")
        oscar |= linear(f"{name}.intermediate.dense", 40, HIDDEN)
        oscar |= linear(f"{name}.output.dense", HIDDEN, 40)
        oscar |= norm(f"{name}.output.LayerNorm")
    oscar |= linear("bert.pooler.dense", HIDDEN, HIDDEN)
    oscar |= linear("bert.img_embedding", HIDDEN, REGION_DIM)
    oscar |= norm("bert.LayerNorm")
    oscar |= linear("classifier", 2, HIDDEN)

    state = {f"img_txt_enc.oscar_model.{name}": value for name, value in oscar.items()}
    state |= linear("img_txt_enc.img_proj", HIDDEN, HIDDEN)
    state |= linear("img_txt_enc.cap_proj", HIDDEN, HIDDEN)
    for layer in range(2):
        name = f"img_txt_enc.final_projection_net.layers.{layer}"
        state[f"{name}.self_attn.in_proj_weight"] = drawn(3 * HIDDEN, HIDDEN)
        state[f"{name}.self_attn.in_proj_bias"] = drawn(3 * HIDDEN)
        for part in ("self_attn.out_proj", "linear1", "linear2"):
            state |= linear(f"{name}.{part}", HIDDEN, HIDDEN)
        state |= norm(f"{name}.norm1") | norm(f"{name}.norm2")

    config = {
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "hidden_size": HIDDEN,
        "img_feature_dim": REGION_DIM,
        "img_feature_type": "frcnn",
        "img_layer_norm_eps": 1e-12,
        "intermediate_size": 40,
        "layer_norm_eps": 1e-12,
        "max_position_embeddings": 20,
        "num_attention_heads": HEADS,
        "num_hidden_layers": LAYERS,
        "num_labels": 2,
        "pruned_heads": {},
        "type_vocab_size": 2,
        "use_img_layernorm": 1,
        "vocab_size": len(VOCABULARY),
    }
    recipe = {
        "dataset": {"name": "coco"},
        "model": {
            "name": "teran",
            "embed-size": HIDDEN,
            "text-aggregation": "first",
            "image-aggregation": "first",
            "freeze-teran": False,
            "teran-layers": 0,
            "tern-layers": 2,
            "post-layers": 0,
            "exclude-stopwords": False,
            "shared-transformer": True,
            "depth-aggregation-alignment": False,
            "depth-aggregation-matching": False,
            "dropout": 0.1,
        },
        "training": {
            "loss-type": "alignment-distillation",
            "loss-weights": [1, 1],
            "alignment-mode": "MrSw",
            "distillation-mode": "listnet",
        },
    }
    return Official(oscar, state, config, recipe)


def named(
    tensors: Mapping[str, Tensor],
    ours: Mapping[str, Tensor],
    renames: Sequence[Rename],
    left: Sequence[Left],
) -> None:
    """Check that each tensor of a state dict is named when it is missing, renamed and so on."""

    def complaint(changed: dict[str, Tensor]) -> str:
        with pytest.raises(CheckpointError) as caught:
            map_tensors(changed, ours, renames, left, "file")
        return str(caught.value)

    taken = {each.source for each in map_tensors(tensors, ours, renames, left, "file").report.taken}
    for name, value in tensors.items():
        if re.search(r"layers?\.0\.", name):
            continue  # the last layer stands for all
        rest = {other: each for other, each in tensors.items() if other != name}
        wrong, unknown = {**rest, f"{name}_v": value}, f"unknown tensors: {name}_v"
        if name not in taken:
            assert complaint(wrong) == f"file: {unknown}"
            continue
        assert complaint(rest) == f"file: missing tensors: {name}"
        assert complaint(wrong) == f"file: missing tensors: {name}; {unknown}"
        assert complaint({**rest, name: value[:-1]}).startswith(f"file: tensor {name}: expected sh")


def _pieces(word: str, vocabulary: list[str]) -> list[str]:
    pieces: list[str] = []
    rest = word
    while rest:
        mark = "##" if pieces else ""
        ends = [n for n in range(len(rest), 0, -1) if mark + rest[:n] in vocabulary]
        if not ends:
            return ["[UNK]"]
        pieces.append(mark + rest[: ends[0]])
        rest = rest[ends[0] :]
    return pieces


def _padded(rows: list[list[int]], length: int) -> tuple[Tensor, Tensor]:
    ids = torch.tensor([row + [0] * (length - len(row)) for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (length - len(row)) for row in rows])
    return ids, mask


def _linear(x: Tensor, weights: dict[str, Tensor], name: str) -> Tensor:
    return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def _norm(x: Tensor, weights: dict[str, Tensor], name: str) -> Tensor:
    centred = x - x.mean(dim=-1, keepdim=True)
    scale = (centred.pow(2).mean(dim=-1, keepdim=True) + 1e-12).sqrt()
    return centred / scale * weights[f"{name}.weight"] + weights[f"{name}.bias"]
