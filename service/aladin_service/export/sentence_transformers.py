"""Export of a checkpoint as a folder that sentence-transformers loads.

The folder is a checkpoint itself, with two more files:

    modules.json                       the module: a class of `aladin_search.integrations`
    config_sentence_transformers.json  the kind of model, and its similarity

It contains no code. sentence-transformers is not needed to write it.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Literal

from aladin_network.calibration.fitted_files import copy_fitted
from aladin_network.checkpoint import load_checkpoint
from aladin_network.checkpoint_files import CHECKPOINT_FILES, Checkpoint
from aladin_network.conversion.tensors import refuse_existing
from aladin_network.errors import CheckpointError
from aladin_network.files import atomic_folder, recover_folder, write_json

Kind = Literal["multi-vector", "embedding"]

_MODULES = "aladin_search.integrations.sentence_transformers"
_CLASSES: dict[Kind, str] = {"multi-vector": "AladinMultiVector", "embedding": "AladinEmbedding"}
_CONFIGS: dict[Kind, dict[str, Any]] = {
    "multi-vector": {"model_type": "MultiVectorEncoder", "similarity_fn_name": "maxsim"},
    "embedding": {"model_type": "SentenceTransformer", "similarity_fn_name": "cosine"},
}


def export_sentence_transformers(checkpoint: Path, out: Path, kind: Kind) -> None:
    """Write a checkpoint as a folder for sentence-transformers.

    Args:
        checkpoint: Folder of the checkpoint.
        out: Folder to write; it must not exist yet, or be empty.
        kind: "multi-vector" for `MultiVectorEncoder`, with a vector for every word and region;
            "embedding" for `SentenceTransformer`, with one vector for each text and photo.

    Raises:
        CheckpointError: If the checkpoint cannot be read.
        ConfigError: If `out` is in use.
        OSError: If `out` cannot be written.
    """
    refuse_existing(out)
    with atomic_folder(out) as partial:
        copy_checkpoint(checkpoint, partial)
        module = {
            "idx": 0,
            "name": "0",
            "path": "",
            "type": f"{_MODULES}.{_CLASSES[kind]}",
        }
        write_json(partial / "modules.json", [module])
        config = {"prompts": {}, "default_prompt_name": None}
        write_json(partial / "config_sentence_transformers.json", _CONFIGS[kind] | config)


def copy_checkpoint(checkpoint: Path, folder: Path) -> Checkpoint:
    """Copy the files of a checkpoint, and what is fitted to its weights, after it was loaded once.

    Args:
        checkpoint: Folder of the checkpoint.
        folder: Existing folder.

    Returns:
        The checkpoint, as it was loaded.

    Raises:
        CheckpointError: If the checkpoint cannot be read, or what is fitted belongs to others.
    """
    recover_folder(checkpoint)
    loaded = load_checkpoint(checkpoint)  # nothing that cannot be loaded is handed on
    for name in CHECKPOINT_FILES:
        try:
            shutil.copyfile(checkpoint / name, folder / name)
        except FileNotFoundError as error:
            raise CheckpointError(f"{checkpoint / name}: no such file") from error
    copy_fitted(checkpoint, folder, loaded.model_id)
    return loaded
