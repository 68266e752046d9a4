"""OSCAR's and VinVL's tensors (microsoft/Oscar, ``oscar/modeling/modeling_bert.py``).

Their network is BERT with one more embedding, of regions. Whatever it was trained for sits on top
of the pooler: a classifier of pairs, a masked language model. None of that takes part in ALADIN.
"""

from __future__ import annotations

from pathlib import Path

from aladin.conversion.oscar_folder import WEIGHTS, read_oscar_config, read_oscar_tokenizer
from aladin.conversion.regions_network import RegionsOptions, new_network
from aladin.conversion.report import ConversionReport, refuse_existing, write_converted
from aladin.conversion.tensor_mapping import Left, Rename, map_tensors
from aladin.conversion.torch_file import named_tensors, read_torch_file

_PAIRS = "of what OSCAR was trained for, on top of a text and a photo read together"


def oscar_renames(prefix: str = "") -> list[Rename]:
    """Return how our backbone's tensors are called in OSCAR's network.

    Args:
        prefix: in front of all of OSCAR's names, where its network is part of another.
    """
    return [
        Rename(r"text\.encoder\.model\.(.+)", rf"{prefix}bert.\1"),
        Rename(r"image\.encoder\.embedding\.(weight|bias)", rf"{prefix}bert.img_embedding.\1"),
        Rename(r"image\.encoder\.norm\.(weight|bias)", rf"{prefix}bert.LayerNorm.\1"),
    ]


def oscar_left(prefix: str = "") -> list[Left]:
    """Return what of OSCAR's network ours has no place for; see `oscar_renames`."""
    transform = r"transform\.(dense|LayerNorm)\.(weight|bias)"
    patterns = {
        r"bert\.embeddings\.position_ids": "counts positions from 0, as BERT does without it",
        r"bert\.pooler\.dense\.(weight|bias)": "the heads read the tokens, not this",
        r"classifier(\.\d)?\.(weight|bias)": f"classifier {_PAIRS}",
        rf"cls\.predictions\.(bias|decoder\.(weight|bias)|{transform})": f"word predictor {_PAIRS}",
        r"cls\.seq_relationship\.(weight|bias)": f"classifier {_PAIRS}",
    }
    front = prefix.replace(".", r"\.")
    return [Left(front + theirs, reason) for theirs, reason in patterns.items()]


def convert_oscar(folder: Path, out: Path, options: RegionsOptions) -> ConversionReport:
    """Make a network whose backbone is OSCAR's, as ALADIN's training starts.

    The alignment head has no parameters; the matching head is new.

    Args:
        folder: with ``pytorch_model.bin``, ``config.json`` and ``vocab.txt``.
        out: folder of the new checkpoint; not there yet, or empty.
        options: what the files do not say.

    Raises:
        CheckpointError: a file cannot be read, or a tensor is missing, unknown or of another
            shape; it is named.
        ConfigError: `out` is in use, or the options do not fit the network.
    """
    refuse_existing(out)
    config = read_oscar_config(folder)
    tokenizer = read_oscar_tokenizer(folder, config.vocab_size)
    source = folder / WEIGHTS
    tensors = named_tensors(read_torch_file(source), str(source))

    model = new_network(config, tokenizer, options)
    mapped = map_tensors(tensors, model.state_dict(), oscar_renames(), oscar_left(), str(source))
    return write_converted(model, mapped, source, out, options.seed)
