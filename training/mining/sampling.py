"""Draw offline negatives for the pairs of a batch (AOQ)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from aladin.errors import InputError
from training.mining.best_rows import NO_ROW
from training.mining.negatives import OfflineNegatives

# The paper draws again while the two negatives belong together; short lists may offer nothing else.
MAX_DRAWS = 20


class OfflineRows(NamedTuple):
    """For each pair (i, t) of a batch the rows of its offline negatives.

    Attributes:
        images_bar: photos from the captions' lists.
        texts_bar: captions from the photos' lists.
        images_tilde: the photos that `texts_bar` describe.
        texts_tilde: a random caption of each of `images_bar`.
        cross: whether (images_bar, texts_bar) and (images_tilde, texts_tilde) may serve as
            negative pairs; if not, the loss drops the pair's cross terms.
    """

    images_bar: list[int]
    texts_bar: list[int]
    images_tilde: list[int]
    texts_tilde: list[int]
    cross: list[bool]


def sample_offline(
    pairs: Sequence[tuple[int, int]],
    negatives: OfflineNegatives,
    captions_of_photo: Sequence[Sequence[int]],
    photo_of_caption: Sequence[int],
    generator: random.Random,
    coupled: bool = False,
) -> OfflineRows:
    """Draw the offline negatives of every pair.

    The photo and the caption come from independent uniform draws out of the pair's two lists,
    both drawn again while they belong together (AOQ), `MAX_DRAWS` times at most.

    Args:
        pairs: rows of photo and caption.
        negatives: mined lists; none is empty, for `mine_negatives` refuses a single photo.
        captions_of_photo: rows of each photo's captions.
        photo_of_caption: row of each caption's photo, as plain integers.
        generator: all randomness comes from it, so that training resumes exactly.
        coupled: what the official code does instead: one rank r takes the caption of rank r and
            the photo of rank r // ratio, the ratio being that of the lists' lengths (300 / 60);
            nothing is drawn again and every cross term kept, even where it is a matching pair.

    Returns:
        The rows, in the order of the pairs.

    Raises:
        InputError: `coupled` and the lists of captions are the shorter ones.
    """
    width_texts, width_images = negatives.texts.shape[1], negatives.images.shape[1]
    ratio = width_texts // width_images
    if coupled and ratio < 1:
        lengths = f"{width_texts} captions and {width_images} photos"
        raise InputError(f"coupled draws need no fewer captions than photos, got {lengths}")
    photos, captions = [photo for photo, _ in pairs], [caption for _, caption in pairs]
    rows = OfflineRows([], [], [], [], [])
    for texts, images in zip(
        _unpadded(negatives.texts.numpy()[photos]),
        _unpadded(negatives.images.numpy()[captions]),
        strict=True,
    ):
        if coupled:
            rank = generator.randrange(min(len(texts), len(images) * ratio))
            text_bar, image_bar, cross = int(texts[rank]), int(images[rank // ratio]), True
        else:
            text_bar, image_bar, cross = _draw_apart(texts, images, photo_of_caption, generator)
        rows.images_bar.append(image_bar)
        rows.texts_bar.append(text_bar)
        rows.images_tilde.append(photo_of_caption[text_bar])
        rows.texts_tilde.append(generator.choice(captions_of_photo[image_bar]))
        rows.cross.append(cross)
    return rows


def _draw_apart(
    texts: npt.NDArray[np.int32],
    images: npt.NDArray[np.int32],
    photo_of_caption: Sequence[int],
    generator: random.Random,
) -> tuple[int, int, bool]:
    """Draw a caption and a photo; the last value tells whether they belong to different photos."""

    def draw() -> tuple[int, int]:
        text = texts[generator.randrange(len(texts))]
        return int(text), int(images[generator.randrange(len(images))])

    text_bar, image_bar = draw()
    for _ in range(MAX_DRAWS - 1):
        if photo_of_caption[text_bar] != image_bar:
            break
        text_bar, image_bar = draw()
    return text_bar, image_bar, photo_of_caption[text_bar] != image_bar


def _unpadded(lists: npt.NDArray[np.int32]) -> list[npt.NDArray[np.int32]]:
    """Cut each list to its rows; `NO_ROW` stands only at the end."""
    lengths: list[int] = (lists != NO_ROW).sum(axis=1).tolist()
    return [each[:length] for each, length in zip(lists, lengths, strict=True)]
