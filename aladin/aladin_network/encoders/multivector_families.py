"""Families of late-interaction networks for photos: their classes, prompts and image tokens.

    family (``model_type``)   one photo
    colpali                   a square grid of image tokens
    colqwen2                  a grid that follows the photo's shape
    colmodernvbert            tiles, each a square grid, and the whole photo once more

In all of them a photo is a prompt with placeholders, and a text is a prompt with a prefix and a
suffix. Every token of either prompt takes part in the late interaction, as in the libraries that
these networks come from, unless the source keeps some tokens of photos only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import transformers
from PIL import Image
from tokenizers import Tokenizer
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from aladin_network.encoders.base import PromptedPhoto
from aladin_network.encoders.transformers_model import quiet
from aladin_network.errors import ConfigError, ImageError

Box = tuple[float, float, float, float]
_WHOLE: Box = (0.0, 0.0, 1.0, 1.0)
# The augmentation of a query: so many tokens without a meaning of their own.
_AUGMENTATIONS = 10
_TOKENS = ("bos_token", "eos_token", "pad_token", "unk_token", "image_token")


class Family(NamedTuple):
    """Names of what the transformers library has for a family.

    Attributes:
        network: Class of the network.
        processor: Class of the processor.
        layout: Argument of the network beside the pixels, or "" for none.
        token_types: Whether the network distinguishes prompts by token types.
        options: Options of the processor, apart from its tokenizer and image processor.
    """

    network: str
    processor: str
    layout: str
    token_types: bool
    options: tuple[str, ...]


FAMILIES = {
    "colpali": Family(
        "ColPaliForRetrieval",
        "ColPaliProcessor",
        "",
        True,
        ("visual_prompt_prefix", "query_prefix"),
    ),
    "colqwen2": Family(
        "ColQwen2ForRetrieval",
        "ColQwen2Processor",
        "image_grid_thw",
        False,
        ("visual_prompt_prefix", "query_prefix"),
    ),
    "colmodernvbert": Family(
        "ColModernVBertForRetrieval",
        "ColModernVBertProcessor",
        "pixel_attention_mask",
        False,
        ("visual_prompt_prefix", "query_prefix", "image_seq_len"),
    ),
}


@dataclass(frozen=True)
class TextPrompt:
    """What surrounds a text.

    Attributes:
        prefix: Characters before the text.
        suffix: Characters after it.
    """

    prefix: str
    suffix: str


def describe_processor(
    kind: str, processor: Any, kept: Sequence[int] | None = None, dropped: Sequence[int] = ()
) -> dict[str, Any]:
    """Return plain data from which `PhotoPrompts` rebuilds a processor.

    Args:
        kind: Family.
        processor: Processor of the family's class.
        kept: Ids of the tokens of a photo's prompt that take part in the late interaction, or None
            for all.
        dropped: Ids of tokens that take no part in any case.
    """
    tokenizer = processor.tokenizer
    return {
        "image_processor": processor.image_processor.to_dict(),
        "options": {name: getattr(processor, name) for name in FAMILIES[kind].options},
        "tokens": {
            name: str(value)
            for name in _TOKENS
            if (value := getattr(tokenizer, name, None)) is not None
        },
        "kept": None if kept is None else list(kept),
        "dropped": list(dropped),
    }


def text_prompt(kind: str, processor: Any) -> TextPrompt:
    """Return what a family's processor puts around a query."""
    suffix = processor.query_augmentation_token * _AUGMENTATIONS
    if kind == "colmodernvbert":
        return TextPrompt(processor.query_prefix, suffix)
    start = processor.tokenizer.bos_token if kind == "colpali" else ""
    return TextPrompt(f"{start}{processor.query_prefix}", f"{suffix}\n")


class PhotoPrompts:
    """Converts photos to the input of a family's network; thread-safe."""

    def __init__(self, kind: str, description: dict[str, Any], tokenizer: Tokenizer) -> None:
        """Rebuild the processor.

        Args:
            kind: Family.
            description: Result of `describe_processor`.
            tokenizer: Tokenizer that neither pads nor truncates.

        Raises:
            ConfigError: If the description is impossible.
        """
        family, self._kind = FAMILIES[kind], kind
        self._tokenizer = tokenizer
        try:
            values = dict(description["image_processor"])
            name = str(values.pop("image_processor_type")).removesuffix("Fast").removesuffix("Pil")
            with quiet():
                # Pillow resizes alike on all machines, with torchvision and without.
                self._images = getattr(transformers, f"{name}Pil")(**values)
                wrapped = PreTrainedTokenizerFast(
                    tokenizer_object=Tokenizer.from_str(tokenizer.to_str()), **description["tokens"]
                )
                build = getattr(transformers, family.processor)
                self._processor = build(self._images, wrapped, **description["options"])
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ConfigError(
                f"image_encoder.architecture: no {family.processor} ({error})"
            ) from error
        self._kept: list[int] | None = description.get("kept")
        self._dropped: list[int] = description.get("dropped") or []
        self._layout = family.layout
        self._image_id = int(self._processor.image_token_id)

    def prompted(self, photo: Image.Image) -> PromptedPhoto:
        """Convert an RGB photo to pixels and a prompt.

        Raises:
            ImageError: If the network takes no photo of this shape.
        """
        nested = [[photo]] if self._kind == "colmodernvbert" else [photo]
        try:
            inputs = self._images(images=nested, **self._processor.images_kwargs)
        except ValueError as error:
            size = f"{photo.width} x {photo.height} pixels"
            raise ImageError("photo", f"the network takes no photo of {size} ({error})") from error
        pixels = inputs["pixel_values"]
        layout = inputs.get(self._layout) if self._layout else None
        return PromptedPhoto(
            ids=torch.tensor(self._ids(inputs)),
            pixels=pixels if self._kind == "colqwen2" else pixels[0],
            layout=torch.empty(0) if layout is None else layout[0],
        )

    def takes_part(self, ids: Tensor) -> Tensor:
        """Return which tokens of a photo's prompt take part in the late interaction.

        Args:
            ids: (tokens,) ids of the prompt.
        """
        part = torch.isin(ids, torch.tensor(self._dropped, device=ids.device), invert=True)
        if self._kept is not None:
            part &= torch.isin(ids, torch.tensor(self._kept, device=ids.device))
        return part

    def boxes(self, width_px: int, height_px: int) -> list[Box]:
        """Return the box of each token that takes part; that of a word is the whole photo.

        Args:
            width_px: Width of the photo.
            height_px: Height of the photo.
        """
        cells = _cells(self._grids(width_px, height_px))
        ids = self._ids(self._sizes(width_px, height_px))
        boxes = [next(cells) if each == self._image_id else _WHOLE for each in ids]
        part = self.takes_part(torch.tensor(ids)).tolist()
        return [box for box, takes_part in zip(boxes, part, strict=True) if takes_part]

    def _ids(self, inputs: Any) -> list[int]:
        """Return the ids of the prompt of the one photo that `inputs` describes."""
        processor = self._processor
        image, prompt = processor.image_token, processor.visual_prompt_prefix
        if self._kind == "colpali":
            prompt = f"{image}{processor.tokenizer.bos_token}{prompt}\n"
        filled = prompt.replace(image, processor.replace_image_token(inputs, 0), 1)
        return self._tokenizer.encode(filled).ids

    def _sizes(self, width_px: int, height_px: int) -> dict[str, Any]:
        """Return what the image processor tells of a photo of a size."""
        if self._kind == "colqwen2":
            rows, columns = self._qwen_grid(width_px, height_px)
            side = int(self._images.merge_size)
            return {"image_grid_thw": torch.tensor([[1, side * rows, side * columns]])}
        if self._kind == "colmodernvbert":
            _, rows, columns = self._images.get_number_of_image_patches(height_px, width_px)
            return {"rows": [[rows]], "cols": [[columns]]}
        return {}

    def _grids(self, width_px: int, height_px: int) -> list[tuple[int, int, Box]]:
        """Return rows, columns and box of each grid of image tokens, in the order of the prompt."""
        if self._kind == "colqwen2":
            return [(*self._qwen_grid(width_px, height_px), _WHOLE)]
        if self._kind == "colpali":
            side = math.isqrt(int(self._processor.image_seq_length))
            return [(side, side, _WHOLE)]
        side = math.isqrt(int(self._processor.image_seq_len))
        _, rows, columns = self._images.get_number_of_image_patches(height_px, width_px)
        tiles = list(_cells([(rows, columns, _WHOLE)])) if rows and columns else []
        return [(side, side, box) for box in (*tiles, _WHOLE)]

    def _qwen_grid(self, width_px: int, height_px: int) -> tuple[int, int]:
        from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

        size = self._images.size
        factor = int(self._images.patch_size) * int(self._images.merge_size)
        height, width = smart_resize(
            height_px,
            width_px,
            factor=factor,
            min_pixels=size["shortest_edge"],
            max_pixels=size["longest_edge"],
        )
        return height // factor, width // factor


def network_arguments(kind: str, photo: PromptedPhoto) -> dict[str, Tensor]:
    """Return the arguments of a family's network for one photo, with a batch axis of one."""
    arguments = text_arguments(kind, photo.ids.unsqueeze(0))
    arguments["pixel_values"] = photo.pixels.unsqueeze(0)
    layout = FAMILIES[kind].layout
    if layout and photo.layout.numel():
        arguments[layout] = photo.layout.unsqueeze(0)
    return arguments


def text_arguments(kind: str, ids: Tensor) -> dict[str, Tensor]:
    """Return the arguments of a family's network for prompts of one length.

    Args:
        kind: Family.
        ids: (batch, tokens) ids, without padding.
    """
    arguments = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if FAMILIES[kind].token_types:
        arguments["token_type_ids"] = torch.zeros_like(ids)
    return arguments


def _cells(grids: list[tuple[int, int, Box]]) -> Iterator[Box]:
    """Yield the boxes of the cells of grids, row by row."""
    for rows, columns, (x0, y0, x1, y1) in grids:
        width, height = (x1 - x0) / columns, (y1 - y0) / rows
        for row in range(rows):
            for column in range(columns):
                left, top = x0 + column * width, y0 + row * height
                yield left, top, left + width, top + height
