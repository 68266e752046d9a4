"""What mteb hands to a model, read: ids, texts and photos, and the description of a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast, get_args

from aladin_network.checkpoint_files import Checkpoint
from aladin_network.errors import ConfigError, InputError
from aladin_network.inference import encode_photos
from aladin_network.model import AladinModel
from aladin_network.photos.decoding import decode_image, read_image
from aladin_network.scoring.encoding import Encoding
from aladin_network.scoring.scores import EncodedBatch
from aladin_network.types import Modality, NullProgress
from aladin_training.evaluation import encode_captions

try:
    from datasets import Dataset
    from datasets import Image as ImageFeature
    from mteb.models import ModelMeta
    from mteb.models.model_meta import ScoringFunction
    from mteb.types import PromptType
except ImportError as error:
    raise ConfigError("mteb: not installed; pip install 'aladin-search[mteb]'") from error

__all__ = [
    "Dataset",
    "ModelMeta",
    "PromptType",
    "check_reads_photos",
    "checkpoint_meta",
    "encode_rows",
    "ids_of",
    "modality_of",
    "name_of",
    "photos_of",
    "plain_meta",
    "texts_of",
]

_PHOTOS_AT_A_TIME = 32  # as `aladin evaluate`, so that sums are those of the same batches


def ids_of(rows: Dataset) -> list[str]:
    """Return the ids of queries or documents."""
    return [str(each) for each in rows["id"]]


def modality_of(task_metadata: Any, prompt_type: PromptType) -> Modality:
    """Return the modality of the queries or documents of a task.

    Raises:
        InputError: If they are neither texts nor photos, or both.
    """
    found = list(task_metadata.get_modalities(prompt_type))
    if len(found) != 1 or found[0] not in get_args(Modality):
        raise InputError(
            f"{task_metadata.name}: expected texts or photos as {prompt_type.value}, got "
            f"{' with '.join(found) or 'nothing'}"
        )
    return found[0]


def encode_rows(
    checkpoint: Checkpoint[AladinModel], rows: Dataset, modality: Modality, *, document: bool
) -> EncodedBatch:
    """Encode queries or documents in the batches of `aladin evaluate`.

    Args:
        checkpoint: Network that encodes.
        rows: Queries or documents.
        modality: Their modality.
        document: Whether they are documents, whose titles belong to their texts.

    Raises:
        ImageError: If a photo cannot be decoded.
        InputError: If a text cannot be encoded, or the network does not read photos.
    """
    if modality == "text":
        texts = texts_of(rows, document=document)
        return encode_captions(checkpoint.model, texts, NullProgress())
    check_reads_photos(checkpoint)
    parts: list[Encoding] = []
    photos = photos_of(rows)
    for start in range(0, len(rows), _PHOTOS_AT_A_TIME):
        count = min(_PHOTOS_AT_A_TIME, len(rows) - start)
        decoded = [
            decode_image(photo, f"photo {start + place}")
            if isinstance(photo, bytes)
            else read_image(photo)
            for place, photo in zip(range(count), photos, strict=False)
        ]
        parts.append(encode_photos(checkpoint.model, decoded))
    return EncodedBatch.of(Encoding.concatenate(parts))


def check_reads_photos(checkpoint: Checkpoint[AladinModel]) -> None:
    """Refuse a network that reads regions, which mteb does not have, or texts only.

    Raises:
        InputError: If it does not read photos.
    """
    if checkpoint.model.image.encoder.reads != "photo":
        raise InputError("this network reads the regions of a photo, not the photo")


def texts_of(rows: Dataset, *, document: bool = False) -> list[str]:
    """Return the texts as mteb's own encoders read them: with titles or instructions."""
    texts = list(rows["text"])
    if any(not isinstance(text, str) for text in texts):
        raise InputError("expected texts, got conversations")
    extra = "title" if document else "instruction"
    if extra not in rows.column_names:
        return texts
    pairs = zip(texts, rows[extra], strict=True)
    if document:
        return [f"{title} {text}".strip() if title else text.strip() for text, title in pairs]
    return [f"{text} {more}" if more else text for text, more in pairs]


def photos_of(rows: Dataset) -> Iterator[bytes | Path]:
    """Yield the encoded photos, or the paths of their files."""
    for row in rows.select_columns(["image"]).cast_column("image", ImageFeature(decode=False)):
        stored = cast(Mapping[str, Any], cast(Mapping[str, Any], row)["image"])
        yield stored["bytes"] if stored["bytes"] is not None else Path(stored["path"])


def name_of(folder: Path) -> str:
    """Return the name of a checkpoint in results: its folder and the one above."""
    parts = [part for part in folder.absolute().parts[-2:] if part != "/"]
    return "-".join(parts)


def checkpoint_meta(checkpoint: Checkpoint[AladinModel], name: str, score: str) -> ModelMeta:
    """Describe a network that orders documents by a score."""
    model = checkpoint.model
    weights = [*model.parameters()]
    return plain_meta(
        f"{name}-{score}",
        revision=checkpoint.model_id,
        score=score,
        n_parameters=sum(each.numel() for each in weights),
        memory_usage_mb=round(sum(each.nbytes for each in weights) / 2**20, 1),
        max_tokens=float(model.text.encoder.config.max_tokens),
        embed_dim=model.embedding_dim,
    )


def plain_meta(name: str, *, revision: str | None, score: str, **facts: Any) -> ModelMeta:
    """Describe a model for mteb.

    Args:
        name: Name in results, below ``aladin-search/``.
        revision: Revision, or None if it is not known.
        score: Score that orders documents.
        **facts: Further fields of the description.
    """
    unknown: dict[str, Any] = dict.fromkeys(
        ("n_parameters", "memory_usage_mb", "max_tokens", "embed_dim")
    )
    fields: dict[str, Any] = unknown | facts
    return ModelMeta(
        loader=None,
        name=f"aladin-search/{name}",
        revision=revision or "unknown",
        release_date=None,
        languages=None,
        license=None,
        open_weights=None,
        public_training_code=None,
        public_training_data=None,
        framework=["PyTorch"],
        similarity_fn_name=(
            ScoringFunction.COSINE if score == "matching" else ScoringFunction.CUSTOM
        ),
        use_instructions=False,
        training_datasets=None,
        modalities=["text", "image"],
        model_type=["dense" if score == "matching" else "late-interaction"],
        **fields,
    )
