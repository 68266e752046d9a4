"""Conversion of the checkpoint that ALADIN's authors released (mesnico/ALADIN, ``alad/train.py``).

The file is a pickled dictionary: the network's tensors under "model", the settings under "config"
and "opt", and the state of the optimizer. The network is OSCAR's with a transformer on top, the
matching head; the alignment head has no parameters.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aladin_network.config import MatchingHeadConfig
from aladin_network.conversion.oscar import (
    MAX_REGIONS,
    MAX_TOKENS,
    OscarConfig,
    RegionsOptions,
    new_network,
    oscar_left,
    oscar_renames,
    read_oscar_config,
    read_oscar_tokenizer,
)
from aladin_network.conversion.tensors import (
    ConversionReport,
    Left,
    Rename,
    SkippedSummary,
    map_tensors,
    named_tensors,
    read_torch_file,
    refuse_existing,
    write_converted,
)
from aladin_network.errors import CheckpointError

_OSCAR = "img_txt_enc.oscar_model."

# Names in a layer of torch's nn.TransformerEncoder and in one of
# `aladin_network.heads.layers.TransformerStack`: both stack query, key and value in this order,
# each with its heads one after the other.
_LAYER = {
    r"query_key_value\.(weight|bias)": r"self_attn.in_proj_\2",
    r"output\.(weight|bias)": r"self_attn.out_proj.\2",
    r"feedforward\.0\.(weight|bias)": r"linear1.\2",
    r"feedforward\.2\.(weight|bias)": r"linear2.\2",
    r"attention_norm\.(weight|bias)": r"norm1.\2",
    r"feedforward_norm\.(weight|bias)": r"norm2.\2",
}
RENAMES = [
    *oscar_renames(_OSCAR),
    *(
        Rename(
            rf"matching\.stack\.layers\.(\d+)\.{ours}",
            rf"img_txt_enc.final_projection_net.layers.\1.{theirs}",
        )
        for ours, theirs in _LAYER.items()
    ),
]

_UNUSED = "built by the published code, but its forward pass never uses it"
LEFT = [
    *oscar_left(_OSCAR),
    Left(r"img_txt_enc\.(img|cap)_proj\.(weight|bias)", _UNUSED),
    Left(r"img_txt_enc\.(text|image)_aggregation\..+", _UNUSED),
    Left(r"img_txt_enc\.post_oscar_transformer\..+", "runs with depth aggregation only; it is off"),
    Left(r"distillation_loss\.wb", "scale and shift of a distillation loss"),
]

_TRAINING = "of the training that made it"
_PARTS = {
    "config": "settings, checked; what decides how the network computes was taken",
    "opt": "command line, of which the lengths were taken",
    "epoch": f"number {_TRAINING}",
    "Eiters": f"number of steps {_TRAINING}",
    "best_rsum": f"best validation figure {_TRAINING}",
    "optimizer": f"state {_TRAINING}",
    "scheduler": f"state {_TRAINING}",
}

# Required values of the settings for the network of the paper; missing ones are accepted.
_EXPECTED: dict[tuple[str, str], object] = {
    ("model", "teran-layers"): 0,
    ("model", "depth-aggregation"): False,
    ("model", "depth-aggregation-alignment"): False,
    ("model", "depth-aggregation-matching"): False,
    ("model", "exclude-stopwords"): False,
    ("training", "alignment-mode"): "MrSw",
}


def convert_aladin(
    file: Path,
    oscar: Path,
    out: Path,
    *,
    max_tokens: int | None = None,
    max_regions: int | None = None,
) -> ConversionReport:
    """Convert to a network that reproduces the scores of the authors' evaluation.

    It computes as their code does where that differs from the paper: A-1, A-2, A-4 and A-5 of
    training/PAPERS.md.

    Args:
        file: File that their training saved.
        oscar: Folder with ``config.json`` and ``vocab.txt`` of the OSCAR or VinVL network that the
            training started from, which the file does not repeat.
        out: Folder of the new checkpoint; it must not exist yet, or be empty.
        max_tokens: Longest text and label part, or None for the value of their training, else 50.
        max_regions: Number of regions that are read, or None for the value of their training, else
            34.

    Raises:
        CheckpointError: If a file cannot be read, the settings are not those of the paper's
            network, or a tensor is missing, unknown or of another shape; the message names it.
        ConfigError: If `out` is in use, or the options do not fit the network.
    """
    refuse_existing(out)
    config = read_oscar_config(oscar)
    tokenizer = read_oscar_tokenizer(oscar, config.vocab_size)
    # Their command-line options are saved as an object of a class that only holds attributes.
    saved = _parts(read_torch_file(file, harmless=[argparse.Namespace]), file)
    tensors = named_tensors(saved["model"], f"{file}: model")
    matching = _matching_head(saved["config"], config, file)
    options = _options(saved.get("opt"), max_tokens, max_regions, file)

    model = new_network(config, tokenizer, options, matching)
    mapped = map_tensors(tensors, model.state_dict(), RENAMES, LEFT, str(file))
    left = [SkippedSummary(name, reason) for name, reason in _PARTS.items() if name in saved]
    return write_converted(model, mapped, file, out, seed=None, left=left, alignment_trained=True)


def _parts(saved: object, file: Path) -> dict[str, Any]:
    """Check the file's structure and return its known parts by name."""
    if not isinstance(saved, dict):
        raise CheckpointError(f"{file}: expected parts by name, found {type(saved).__name__}")
    missing = sorted({"model", "config"} - saved.keys())
    unknown = sorted(map(str, saved.keys() - {"model", *_PARTS}))
    if missing or unknown:
        raise CheckpointError(
            f"{file}: not a checkpoint of ALADIN's training: it lacks {missing}, and has {unknown} "
            "that it should not"
        )
    return saved


def _matching_head(settings: object, oscar: OscarConfig, file: Path) -> MatchingHeadConfig:
    """Read the matching head's settings; refuse a network that is not the paper's."""
    for (section, key), expected in _EXPECTED.items():
        found = _setting(settings, section, key, file)
        if found is not None and found != expected:
            raise CheckpointError(
                f"{file}: config {section}.{key}: expected {expected!r}, found {found!r}; only "
                "the paper's network can be converted"
            )
    width = _setting(settings, "model", "embed-size", file)
    if width != oscar.hidden_size:
        raise CheckpointError(
            f"{file}: config model.embed-size: expected OSCAR's hidden_size {oscar.hidden_size}, "
            f"found {width!r}"
        )
    layers = _setting(settings, "model", "tern-layers", file)
    dropout = _setting(settings, "model", "dropout", file)
    if not isinstance(layers, int) or not isinstance(dropout, (int, float)):
        raise CheckpointError(f"{file}: config model: expected numbers tern-layers and dropout")
    return MatchingHeadConfig(layers=layers, heads=4, dropout=float(dropout))


def _setting(settings: object, section: str, key: str, file: Path) -> object:
    part = settings.get(section) if isinstance(settings, Mapping) else None
    if not isinstance(part, Mapping):
        raise CheckpointError(f"{file}: config: expected a section {section!r}")
    return part.get(key)


def _options(
    arguments: object, max_tokens: int | None, max_regions: int | None, file: Path
) -> RegionsOptions:
    """Take the lengths from the caller, else from the command line of their training."""
    own = vars(arguments) if isinstance(arguments, argparse.Namespace) else {}
    attention = own.get("att_mask_type", "CLR")
    if attention != "CLR":
        raise CheckpointError(
            f"{file}: opt.att_mask_type: expected 'CLR', full attention, found {attention!r}"
        )
    return RegionsOptions(
        max_tokens=max_tokens or _length(own, "max_seq_length", MAX_TOKENS, file),
        max_regions=max_regions or _length(own, "max_img_seq_length", MAX_REGIONS, file),
        official=True,
    )


def _length(own: Mapping[str, object], name: str, default: int, file: Path) -> int:
    value = own.get(name, default)
    if not isinstance(value, int) or value < 1:
        raise CheckpointError(f"{file}: opt.{name}: expected a positive number, found {value!r}")
    return value
