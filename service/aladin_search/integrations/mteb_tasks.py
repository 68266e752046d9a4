"""Data sets of photos and captions as retrieval tasks of MTEB, without a download."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any, cast

from aladin_network.errors import ConfigError, InputError
from aladin_network.types import DIRECTIONS, Direction
from aladin_training.data import Record, read_records

try:
    from datasets import Dataset, Features, Value
    from datasets import Image as ImageFeature
    from mteb.abstasks.retrieval import AbsTaskRetrieval
    from mteb.abstasks.task_metadata import TaskMetadata
except ImportError as error:
    raise ConfigError("mteb: not installed; pip install 'aladin-search[mteb]'") from error

_SHORT = {"text_to_image": "T2I", "image_to_text": "I2T"}
FLICKR8K = (
    "Hodosh, Young, Hockenmaier: Framing Image Description as a Ranking Task: Data, Models and "
    "Evaluation Metrics (JAIR 47, 2013): photos with five captions each, in Karpathy's splits."
)
DRAWN_SCENES = "Scenes of drawn shapes with captions, as `aladin demo` draws them."


class LocalRetrievalTask(AbsTaskRetrieval):
    """A task whose photos and captions are on this machine.

    Its ``hit_rate_at_k`` is the recall that `aladin evaluate` prints, its ``recall_at_k`` the share
    of the captions of a photo that are found.
    """

    def load_data(self, *_: Any, **__: Any) -> None:
        """Do nothing: the data were given with the task."""


def local_tasks(
    data: str | PathLike[str],
    split: str = "test",
    *,
    name: str | None = None,
    description: str | None = None,
    language: str = "eng-Latn",
) -> list[LocalRetrievalTask]:
    """Make two tasks of a data set: photos for captions, and captions for photos.

    Args:
        data: Data set of any format that `aladin evaluate` reads.
        split: Split of the data.
        name: Beginning of the tasks' names, or None for the name of the file or folder.
        description: Description, or None for a plain one.
        language: Language of the captions, as mteb writes it.

    Returns:
        ``NAMET2IRetrieval`` and ``NAMEI2TRetrieval``. Photos without captions compete, and are no
        queries.

    Raises:
        DataError: If the data cannot be used.
        InputError: If no photo has a caption, or two captions have one id.
    """
    path = Path(data)
    records = read_records(path, split, require_captions=False)
    if not any(record.captions for record in records):
        raise InputError(f"{path}: nothing to evaluate, no photo of split {split!r} has a caption")
    ids = [each for record in records for each in record.caption_ids]
    if len(set(ids)) != len(ids):
        raise InputError(f"{path}: expected different ids of captions, found equal ones")
    title = name or "".join(filter(str.isalnum, path.stem)) or "Local"
    about = description or f"Photos and captions of {path.name}."
    return [
        _task(records, direction, split, f"{title}{_SHORT[direction]}Retrieval", about, language)
        for direction in DIRECTIONS
    ]


def flickr8k_tasks(folder: str | PathLike[str], split: str = "test") -> list[LocalRetrievalTask]:
    """Make the tasks of Flickr8k from a folder with its photos.

    Args:
        folder: Folder with ``captions.jsonl``, or Karpathy's ``dataset_flickr8k.json`` beside the
            photos.
        split: Split of the data.

    Raises:
        InputError: If the folder has neither file; see also `local_tasks`.
    """
    names = ("captions.jsonl", "dataset_flickr8k.json", "dataset.json")
    found = [Path(folder) / name for name in names if (Path(folder) / name).is_file()]
    if not found:
        raise InputError(f"{folder}: expected one of {', '.join(names)}")
    return local_tasks(found[0], split, name="Flickr8k", description=FLICKR8K)


def drawn_scenes_tasks(data: str | PathLike[str], split: str = "test") -> list[LocalRetrievalTask]:
    """Make the tasks of drawn scenes.

    Args:
        data: Folder of ``aladin demo --out``, or the file ``data/captions.jsonl`` in it.
        split: Split of the data.

    Raises:
        DataError: If the data cannot be used.
    """
    return local_tasks(_lines(Path(data)), split, name="DrawnScenes", description=DRAWN_SCENES)


def _lines(data: Path) -> Path:
    """Return the file of the demo's captions in a folder, or the source itself."""
    places = (data / "captions.jsonl", data / "data" / "captions.jsonl")
    return next((file for file in places if file.is_file()), data)


def _task(
    records: Sequence[Record],
    direction: Direction,
    split: str,
    name: str,
    description: str,
    language: str,
) -> LocalRetrievalTask:
    by_text = direction == "text_to_image"
    pairs = [(text, record.id) for record in records for text in record.caption_ids]
    relevant: dict[str, dict[str, int]] = {}
    for text, photo in pairs:
        query, document = (text, photo) if by_text else (photo, text)
        relevant.setdefault(query, {})[document] = 1
    asking = records if by_text else [record for record in records if record.captions]
    texts, photos = _texts(records), _photos(asking)
    metadata = TaskMetadata(
        name=name,
        description=description,
        dataset={"path": f"local/{name}", "revision": _digest(records)},
        type="Any2AnyRetrieval",
        category="t2i" if by_text else "i2t",
        modalities=["text", "image"],
        eval_splits=[split],
        eval_langs=[language],
        main_score="hit_rate_at_1",
        is_public=False,
    )
    # mteb wants the description as an attribute of the class.
    task = type(name, (LocalRetrievalTask,), {"metadata": metadata})()
    parts = {
        "corpus": photos if by_text else texts,
        "queries": texts if by_text else photos,
        "relevant_docs": relevant,
        "top_ranked": None,
    }
    task.dataset = {"default": {split: cast(Any, parts)}}
    task.data_loaded = True
    return task


def _texts(records: Sequence[Record]) -> Dataset:
    return Dataset.from_dict(
        {
            "id": [each for record in records for each in record.caption_ids],
            "text": [each for record in records for each in record.captions],
        }
    )


def _photos(records: Sequence[Record]) -> Dataset:
    """Return the photos; those that are files of their own stay there."""
    images = [
        {"path": str(record.photo.path), "bytes": None}
        if record.photo.length is None and not record.photo.offset
        else {"path": None, "bytes": record.photo.read()}
        for record in records
    ]
    features = Features({"id": Value("string"), "image": ImageFeature()})
    return Dataset.from_dict(
        {"id": [record.id for record in records], "image": images}, features=features
    )


def _digest(records: Sequence[Record]) -> str:
    content = [[record.id, record.caption_ids, record.captions] for record in records]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:40]
