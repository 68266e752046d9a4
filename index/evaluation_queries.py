"""What an evaluation asks an index: every caption for its image, every image for its captions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from aladin.encoding import Encoding
from aladin.errors import InputError
from aladin.inference import encode_texts
from aladin.progress import NullProgress, Progress
from index.backend import SearchSide
from index.searcher import TwoStageSearcher

_TEXTS_AT_A_TIME = 64


class EvaluationText(NamedTuple):
    """A caption that asks for its image.

    Attributes:
        id: of the text in the index.
        text: the caption.
        image_id: of its image in the index.
    """

    id: str
    text: str
    image_id: str


class Question(NamedTuple):
    """A query, and what it should find.

    Attributes:
        query: one encoded item.
        right: ids of the right answers, at least one.
    """

    query: Encoding
    right: set[str]


class EvaluationQueries(NamedTuple):
    """The questions of both directions.

    Attributes:
        texts: one a caption; a caption of 13 words of 128 values takes 8 kB.
        images: one an image that has a caption.
        image_of_text: for each of `texts`, its image's place in `images`.
    """

    texts: list[Question]
    images: list[Question]
    image_of_text: Int[Tensor, " texts"]


def evaluation_queries(
    searcher: TwoStageSearcher,
    image_ids: Sequence[str],
    texts: Sequence[EvaluationText],
    progress: Progress | None = None,
) -> EvaluationQueries:
    """Make the questions: texts are encoded, as those of users are; images ask as they are stored.

    Args:
        searcher: of an index with images and texts.
        image_ids: the images; those without a caption do not ask.
        texts: any number an image.
        progress: advanced question by question.

    Raises:
        NoSuchTargetError: the index lacks images or texts.
        InputError: there is nothing to evaluate, or an id is not in the index or not among
            `image_ids`.
    """
    if not image_ids or not texts:
        raise InputError(f"nothing to evaluate: {len(image_ids)} images, {len(texts)} texts")
    _check_known(searcher.index.side("images"), image_ids)
    _check_known(searcher.index.side("texts"), (text.id for text in texts))
    captions: dict[str, set[str]] = {image_id: set() for image_id in image_ids}
    for text in texts:
        if text.image_id not in captions:
            raise InputError(f"text {text.id!r} belongs to {text.image_id!r}, which is no image")
        captions[text.image_id].add(text.id)
    asking = [image_id for image_id in image_ids if captions[image_id]]
    progress = progress or NullProgress()
    progress.start(len(texts) + len(asking), "questions encoded")

    of_texts: list[Question] = []
    for start in range(0, len(texts), _TEXTS_AT_A_TIME):
        batch = texts[start : start + _TEXTS_AT_A_TIME]
        encoded = encode_texts(
            searcher.index.checkpoint.model, [text.text for text in batch], truncate=True
        )
        for place, text in enumerate(batch):
            query = encoded.rows(slice(place, place + 1))
            of_texts.append(Question(query, {text.image_id}))
        progress.advance(len(batch))
    of_images: list[Question] = []
    for image_id in asking:
        of_images.append(Question(_stored_image(searcher, image_id), captions[image_id]))
        progress.advance()
    place_of = {image_id: place for place, image_id in enumerate(asking)}
    image_of_text = torch.tensor([place_of[text.image_id] for text in texts])
    return EvaluationQueries(of_texts, of_images, image_of_text)


def _stored_image(searcher: TwoStageSearcher, image_id: str) -> Encoding:
    encoding, modality = searcher.encode_item(image_id)
    assert modality == "image"  # `encode_item` looks among the images first
    return encoding


def _check_known(side: SearchSide, ids: Iterable[str]) -> None:
    # These alone: the index may have many times as many items as are evaluated.
    wanted = list(ids)
    known = side.items.by_ids(wanted)
    unknown = [item_id for item_id, item in zip(wanted, known, strict=True) if item is None]
    if unknown:
        raise InputError(
            f"{len(unknown)} of the {side.target} to evaluate are not in the index, "
            f"e.g. {unknown[0]!r}"
        )
