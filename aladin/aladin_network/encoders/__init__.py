"""Registries of the encoders, by their names in a checkpoint's configuration."""

from __future__ import annotations

from aladin_network.encoders.base import ImageEncoder
from aladin_network.encoders.hf_image import HFImageEncoder
from aladin_network.encoders.hf_text import HFTextEncoder
from aladin_network.encoders.naflex import NaFlexImageEncoder
from aladin_network.encoders.recurrent_text import GRUTextEncoder, LSTMTextEncoder
from aladin_network.encoders.regions import RegionsImageEncoder
from aladin_network.encoders.tokenized_text import TokenizedTextEncoder

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
