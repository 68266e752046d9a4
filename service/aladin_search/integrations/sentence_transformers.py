"""Networks of this project as models of sentence-transformers 6: all tokens, or the embedding.

`AladinMultiVector` is the module of a `MultiVectorEncoder`, `AladinEmbedding` that of a
`SentenceTransformer`. ``aladin export sentence-transformers`` writes folders that name them:

    model = MultiVectorEncoder("FOLDER", trust_remote_code=True)
    scores = model.similarity(model.encode_query(texts), model.encode_document(photos))

sentence-transformers demands ``trust_remote_code=True`` for every module that is not its own. No
code is in such a folder; what is imported is this file. `multi_vector_encoder` and
`sentence_transformer` below load the same folders, and plain checkpoints, without it.

The tokens of a text are its word pieces, those of a photo its regions: special tokens, padding and
aggregate vectors are no tokens, so that every vector counts in the MaxSim of texts with photos,
which is the alignment score. That score sums over words in both directions of search: the scores
of photos as queries are the transpose of ``similarity(texts, photos)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor

from aladin_network.calibration.fitted_files import copy_fitted, drop_fitted
from aladin_network.checkpoint import load_checkpoint, write_checkpoint
from aladin_network.checkpoint_files import Checkpoint, read_model_id
from aladin_network.encoders.base import (
    ImageBatch,
    PatchBatch,
    RegionBatch,
    TextBatch,
)
from aladin_network.errors import CheckpointError, ConfigError, InputError
from aladin_network.inference import PHOTOS_AT_A_TIME, tokenize
from aladin_network.model import AladinModel
from aladin_network.scoring.scores import EncodedBatch, concatenate
from aladin_search.integrations.pictures import picture_of

try:
    from sentence_transformers import MultiVectorEncoder, SentenceTransformer
    from sentence_transformers.base.modality import infer_batch_modality
    from sentence_transformers.base.modules import InputModule
except ImportError as error:
    raise ConfigError(
        "sentence-transformers: version 6 is not installed; "
        "pip install 'aladin-search[sentence-transformers]'"
    ) from error


class AladinModule(InputModule):
    """Base of both modules: reads texts and photos, and runs the network.

    Features in: those of `preprocess`. Features out: ``token_embeddings`` (batch, tokens, d_align),
    ``attention_mask`` (batch, tokens), True at real tokens, and ``sentence_embedding`` (batch,
    d_match). Gradients flow if they are enabled, so that the losses of sentence-transformers train
    the network.
    """

    def __init__(self, checkpoint: Checkpoint[AladinModel], source: Path | None = None) -> None:
        """Wrap a network.

        Args:
            checkpoint: Network, and what else is saved with it.
            source: Folder of the checkpoint, whose calibration and hubness correction are saved
                again with the same weights, or None for neither.
        """
        super().__init__()
        self.network = checkpoint.model
        self._checkpoint = checkpoint
        self._alignment = {
            name: value.clone() for name, value in checkpoint.model.alignment.state_dict().items()
        }
        self._source = source

    @classmethod
    def load(
        cls,
        model_name_or_path: str,
        subfolder: str = "",
        token: bool | str | None = None,
        cache_folder: str | None = None,
        revision: str | None = None,
        local_files_only: bool = False,
        init_defaults: dict[str, Any] | None = None,  # noqa: ARG003  of modules with options
        **_: Any,
    ) -> AladinModule:
        """Load the module from a folder or from a hub; see `InputModule.load`.

        Args:
            model_name_or_path: Folder, or name on the hub.
            subfolder: Folder of the module inside of it.
            token: Token of the hub's client.
            cache_folder: Folder of what was downloaded, or None for the client's own.
            revision: Revision on the hub, or None for the newest.
            local_files_only: Whether to download nothing.
            init_defaults: Not used: the checkpoint has all options.

        Raises:
            CheckpointError: If there is no such checkpoint, or it cannot be read.
        """
        folder = cls.load_dir_path(
            model_name_or_path, subfolder, token, cache_folder, revision, local_files_only
        )
        if folder is None:
            raise CheckpointError(f"{model_name_or_path}: no such checkpoint")
        return cls(load_checkpoint(Path(folder)), Path(folder))

    def save(
        self,
        output_path: str,
        *_: Any,
        safe_serialization: bool = True,  # noqa: ARG002  checkpoints have no other format
        **__: Any,
    ) -> None:
        """Write the files of a checkpoint, of which the folder is one afterwards.

        What is fitted to the weights is saved if they are those that were loaded.
        """
        folder = Path(output_path)
        source = self._checkpoint
        trained = source.alignment_trained or self._has_other_alignment()
        write_checkpoint(folder, self.network, source.fusion, source.provenance, trained)
        if self._source is not None and read_model_id(folder) == source.model_id:
            copy_fitted(self._source, folder, source.model_id)
        else:
            drop_fitted(folder)

    def _has_other_alignment(self) -> bool:
        """Tell whether the alignment head was trained since it was loaded."""
        now = self.network.alignment.state_dict()
        return any(not torch.equal(now[name].cpu(), self._alignment[name].cpu()) for name in now)

    @property
    def modalities(self) -> list[Any]:
        """Kinds of inputs; no photos for networks that read regions, which a detector finds."""
        return ["text", "image"] if self.network.image.encoder.reads == "photo" else ["text"]

    @property
    def tokenizer(self) -> Tokenizer:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Tokenizer of the text encoder."""
        return self.network.text.encoder.tokenizer

    @property
    def max_seq_length(self) -> int:
        """Longest text in tokens, special ones included; longer texts are truncated."""
        return self.network.text.encoder.config.max_tokens

    def preprocess(
        self, inputs: Sequence[Any], prompt: str | None = None, **_: Any
    ) -> dict[str, Tensor | Any]:
        """Convert texts, or photos, to the network's input.

        Args:
            inputs: Either texts, or photos as `picture_of` takes them.
            prompt: Text to put before each text, or None; photos have no prompt.

        Raises:
            ImageError: If a photo cannot be used.
            InputError: If an input is of another kind, or a text has no word.
        """
        if infer_batch_modality(inputs, supported_modalities=self.modalities) == "image":
            encoder = self.network.image.encoder
            photos = [encoder.preprocess(picture_of(value)) for value in inputs]
            return _features(encoder.collate(photos))
        texts = [f"{prompt or ''}{_text_of(value)}" for value in inputs]
        tokenized = tokenize(self.network, texts, truncate=True)
        batch = TextBatch(*(torch.from_numpy(part) for part in tokenized))
        return {
            "input_ids": batch.ids,
            "attention_mask": batch.mask,
            "content_mask": batch.content,
        }

    def forward(self, features: dict[str, Tensor | Any], **_: Any) -> dict[str, Tensor | Any]:
        """Encode the texts or photos of one batch."""
        encoding = self._encode(features)
        features["token_embeddings"] = encoding.tokens
        features["attention_mask"] = encoding.mask
        features["sentence_embedding"] = encoding.embedding
        return features

    def _encode(self, features: dict[str, Any]) -> EncodedBatch:
        if "input_ids" in features:
            names = ("input_ids", "attention_mask", "content_mask")
            return self.network.encode_texts(TextBatch(*(features[name] for name in names)))
        parameter = next(self.network.parameters())
        batch = _image_batch(features, parameter.dtype)
        count = len(batch[0] if isinstance(batch, PatchBatch) else batch)
        if torch.is_grad_enabled() or count <= PHOTOS_AT_A_TIME:
            return self.network.encode_images(batch)
        parts = [
            slice(start, start + PHOTOS_AT_A_TIME) for start in range(0, count, PHOTOS_AT_A_TIME)
        ]
        return concatenate([self.network.encode_images(_rows(batch, part)) for part in parts])


class AladinMultiVector(AladinModule):
    """The module of a `MultiVectorEncoder`: a vector for every word and every region."""

    def get_embedding_dimension(self) -> int:
        """Return the size of the tokens."""
        return self.network.token_dim


class AladinEmbedding(AladinModule):
    """The module of a `SentenceTransformer`: one vector for each text and photo."""

    def get_embedding_dimension(self) -> int:
        """Return the size of the embeddings."""
        return self.network.embedding_dim


def multi_vector_encoder(source: str | Path, **options: Any) -> MultiVectorEncoder:
    """Load an exported folder, or any checkpoint, for late interaction.

    Args:
        source: Folder, or name on the hub.
        **options: Further arguments of `MultiVectorEncoder`, such as ``device``.

    Raises:
        CheckpointError: If there is no such checkpoint, or it cannot be read.
    """
    options.setdefault("device", "cpu")
    return MultiVectorEncoder(modules=[AladinMultiVector.load(str(source))], **options)


def sentence_transformer(source: str | Path, **options: Any) -> SentenceTransformer:
    """Load an exported folder, or any checkpoint, for its embeddings, which cosine compares.

    Args:
        source: Folder, or name on the hub.
        **options: Further arguments of `SentenceTransformer`, such as ``device``.

    Raises:
        CheckpointError: If there is no such checkpoint, or it cannot be read.
    """
    options.setdefault("device", "cpu")
    options.setdefault("similarity_fn_name", "cosine")
    return SentenceTransformer(modules=[AladinEmbedding.load(str(source))], **options)


def _text_of(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and set(value) == {"text"} and isinstance(value["text"], str):
        return value["text"]
    raise InputError(
        f"input: expected a text or a photo, got {type(value).__name__}; pairs and messages are "
        "not encoded by this network"
    )


def _features(batch: ImageBatch) -> dict[str, Tensor | Any]:
    if isinstance(batch, PatchBatch):
        return {"patches": batch.values, "patch_mask": batch.mask, "grids": batch.grids}
    if isinstance(batch, RegionBatch):
        raise InputError("this network reads the regions of a photo, not the photo")
    return {"pixel_values": batch}


def _image_batch(features: dict[str, Any], dtype: torch.dtype) -> Tensor | PatchBatch:
    if "pixel_values" in features:
        return features["pixel_values"].to(dtype)
    return PatchBatch(features["patches"].to(dtype), features["patch_mask"], features["grids"])


def _rows(batch: Tensor | PatchBatch, rows: slice) -> Tensor | PatchBatch:
    if isinstance(batch, Tensor):
        return batch[rows]
    return PatchBatch(*(part[rows] for part in batch))
