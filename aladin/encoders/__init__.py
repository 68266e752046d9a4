"""Encoders by the name that a checkpoint's configuration gives them."""

from __future__ import annotations

from aladin.encoders.base import ImageEncoder
from aladin.encoders.hf_image import HFImageEncoder
from aladin.encoders.hf_text import HFTextEncoder
from aladin.encoders.naflex import NaFlexImageEncoder
from aladin.encoders.recurrent_text import GRUTextEncoder, LSTMTextEncoder
from aladin.encoders.regions import RegionsImageEncoder
from aladin.encoders.tokenized_text import TokenizedTextEncoder

IMAGE_ENCODERS: dict[str, type[ImageEncoder]] = {
    "hf": HFImageEncoder,
    "naflex": NaFlexImageEncoder,
    "regions": RegionsImageEncoder,
}
TEXT_ENCODERS: dict[str, type[TokenizedTextEncoder]] = {
    "hf": HFTextEncoder,
    "gru": GRUTextEncoder,
    "lstm": LSTMTextEncoder,
}
