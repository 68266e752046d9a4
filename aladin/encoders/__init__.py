"""Encoders by the name that a checkpoint's configuration gives them."""

from __future__ import annotations

from aladin.encoders.hf_image import HFImageEncoder
from aladin.encoders.hf_text import HFTextEncoder

IMAGE_ENCODERS: dict[str, type[HFImageEncoder]] = {"hf": HFImageEncoder}
TEXT_ENCODERS: dict[str, type[HFTextEncoder]] = {"hf": HFTextEncoder}
