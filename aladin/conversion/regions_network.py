"""The network that OSCAR's and ALADIN's tensors go into: one BERT for texts and for regions."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from tokenizers import Tokenizer

from aladin.config import (
    AlignmentHeadConfig,
    ImageEncoderConfig,
    MatchingHeadConfig,
    ModelConfig,
    TextEncoderConfig,
    TowerConfig,
)
from aladin.conversion.oscar_folder import OscarConfig
from aladin.encoders.regions import RegionsArchitecture
from aladin.errors import ConfigError
from aladin.model import AladinModel
from aladin.strict_config import dump_config

# ALADIN's README trains and tests with these lengths.
MAX_TOKENS, MAX_REGIONS = 50, 34


@dataclass(frozen=True, kw_only=True)
class RegionsOptions:
    """What a checkpoint's own files do not say of the network.

    Attributes:
        max_tokens: longest text, and longest label part of a photo, special tokens included.
        max_regions: regions of a photo that are read.
        official: compute as ALADIN's published code where it differs from the paper (A-1, A-2,
            A-4 and A-5 of training/PAPERS.md); the paper's way otherwise.
        seed: of the random numbers with which new tensors start.
    """

    max_tokens: int = MAX_TOKENS
    max_regions: int = MAX_REGIONS
    official: bool = False
    seed: int = 0


def new_network(
    oscar: OscarConfig,
    tokenizer: Tokenizer,
    options: RegionsOptions,
    matching: MatchingHeadConfig | None = None,
) -> AladinModel:
    """Build the paper's network at random, the same at every call.

    Args:
        oscar: the backbone.
        tokenizer: of its vocabulary.
        options: what its files do not say.
        matching: None: the paper's matching head.

    Raises:
        ConfigError: an impossible combination.
    """
    if options.max_tokens > oscar.max_position_embeddings:
        raise ConfigError(
            f"max_tokens {options.max_tokens}: this network has {oscar.max_position_embeddings} "
            "positions"
        )
    regions = RegionsArchitecture(
        region_dim=oscar.img_feature_dim,
        max_regions=options.max_regions,
        max_label_tokens=options.max_tokens,
        start_token="unk" if options.official else "cls",
        norm=bool(oscar.use_img_layernorm),
        norm_eps=oscar.img_layer_norm_eps,
        dropout=oscar.hidden_dropout_prob,
    )
    config = ModelConfig(
        image_encoder=ImageEncoderConfig(name="regions", architecture=dump_config(regions)),
        text_encoder=TextEncoderConfig(architecture=oscar.bert(), max_tokens=options.max_tokens),
        image_tower=TowerConfig(
            trunk=None, aggregate="first_region" if options.official else "encoder"
        ),
        text_tower=TowerConfig(trunk=None),
        alignment=AlignmentHeadConfig(
            dim=None,
            official_trim=options.official,
            empty_fill="zero" if options.official else "exclude",
        ),
        matching=matching or MatchingHeadConfig(),
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(options.seed)
        return AladinModel.create(config, tokenizer)
