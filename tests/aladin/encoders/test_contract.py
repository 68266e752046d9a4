"""What every encoder keeps to: shapes, padding, saving, freezing; and what is refused."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from tokenizers import Tokenizer
from torch import nn
from transformers import AutoConfig, AutoModel

from aladin_network.config import ImageEncoderConfig, ImagePreprocessing, TextEncoderConfig
from aladin_network.encoders.base import Features, ImageEncoder, TextEncoder
from aladin_network.encoders.hf_image import HFImageEncoder
from aladin_network.encoders.hf_text import HFTextEncoder
from aladin_network.encoders.recurrent_text import (
    GRUTextEncoder,
    LSTMTextEncoder,
    RecurrentTextEncoder,
)
from aladin_network.encoders.registry import IMAGE_ENCODERS, TEXT_ENCODERS, look_up
from aladin_network.errors import CheckpointError, ConfigError, InputError, RegionError
from aladin_network.photos.regions import RegionSet
from tests.aladin.encoders.conftest import (
    CAPTIONS,
    MOBILENET,
    PATCHES,
    RESNET,
    SIZES,
    SWIN,
    WORDS,
    image_encoder,
    naflex,
    region_model,
    region_sets,
    save,
)

TEXTS = ["a circle", "two dogs run on a small red square", "red", "a xylophone, two dogs"]


def bert(**settings: Any) -> HFTextEncoder:
    torch.manual_seed(0)
    tokenizer = HFTextEncoder.learn_tokenizer(CAPTIONS, 200)
    architecture = {"model_type": "bert", **WORDS}
    config = TextEncoderConfig(architecture=architecture, max_tokens=16, **settings)
    return HFTextEncoder.from_source(config, tokenizer).eval()


def recurrent(kind: type[RecurrentTextEncoder], **settings: Any) -> RecurrentTextEncoder:
    torch.manual_seed(0)
    tokenizer = kind.learn_tokenizer(CAPTIONS, 100)
    options = {"embedding_size": 5, "hidden_size": 6, "dropout": 0.0, "layers": 2}
    config = TextEncoderConfig(name="gru", architecture=options | settings, max_tokens=16)
    return kind.from_source(config, tokenizer).eval()


def regions() -> nn.Module:
    return region_model().image.encoder


# Encoders of photos, of photos of any shape, of regions, of texts.
ENCODERS: dict[str, Callable[[], Any]] = {
    "vit": lambda: image_encoder("vit", **PATCHES),
    "dinov2": lambda: image_encoder("dinov2", **PATCHES),
    "registers": lambda: image_encoder("dinov2_with_registers", num_register_tokens=4, **PATCHES),
    "clip": lambda: image_encoder("clip_vision_model", **PATCHES),
    "siglip": lambda: image_encoder("siglip_vision_model", **PATCHES),
    "mobilenet": lambda: image_encoder("mobilenet_v2", 64, **MOBILENET),
    "resnet": lambda: image_encoder("resnet", **RESNET),
    "swin": lambda: image_encoder("swin", **SWIN),
    "naflex": naflex,
    "naflex, pooled": lambda: naflex(pooled=True),
    "naflex, pyramid": lambda: naflex(pyramid=(2, 1)),
    "regions": regions,
    "bert": bert,
    "gru": lambda: recurrent(GRUTextEncoder),
    "lstm": lambda: recurrent(LSTMTextEncoder),
    "one way": lambda: recurrent(GRUTextEncoder, bidirectional=False),
}
EVERY = pytest.mark.parametrize("name", ENCODERS)


@pytest.fixture(scope="module")
def encoder_of() -> Callable[[str], Any]:
    """A copy of an encoder that is made once, which a test may change."""
    made: dict[str, Any] = {}

    def of(name: str) -> Any:
        if name not in made:
            made[name] = ENCODERS[name]()
        return copy.deepcopy(made[name])

    return of


def inputs_of(encoder: Any, photos: Sequence[Image.Image]) -> list[Any]:
    """Four inputs of different sizes."""
    if isinstance(encoder, TextEncoder):
        return list(TEXTS)
    given = region_sets() if encoder.config.name == "regions" else photos
    return [encoder.preprocess(each) for each in given]


def encode(encoder: Any, inputs: Sequence[Any], poison: bool = False) -> Features:
    """Encode inputs; if `poison`, with other values in the padding."""
    if isinstance(encoder, TextEncoder):
        batch = encoder.preprocess(list(inputs))
        return encoder(batch._replace(ids=batch.ids.masked_fill(~batch.mask, 9 * poison)))
    batch = encoder.collate(list(inputs))
    if poison and encoder.config.name == "naflex":
        batch = batch._replace(values=batch.values + 9.0 * ~batch.mask.unsqueeze(-1))
    return encoder(batch)


@EVERY
@torch.no_grad()
def test_states_have_the_widths_and_tokens_that_are_announced(
    name: str, encoder_of: Callable[[str], Any], photos: list[Image.Image]
) -> None:
    encoder = encoder_of(name)
    features = encode(encoder, inputs_of(encoder, photos))
    items, tokens, dim = features.states.shape
    assert (items, dim) == (4, encoder.dim)
    assert features.mask.shape == features.content.shape == (items, tokens)
    assert not (features.content & ~features.mask).any()
    assert features.content.any(dim=1).all()
    if isinstance(encoder, TextEncoder):
        spans = [len(encoder.spans(text)) for text in TEXTS]
        assert features.content.sum(dim=1).tolist() == spans
    elif encoder.num_tokens is not None:
        assert tokens == encoder.num_tokens
        assert features.mask.all()
        regions = encoder.region_boxes(96, 72)
        assert features.content.sum(dim=1).tolist() == [len(regions)] * items
        assert (regions[:, :2] < regions[:, 2:]).all()


# Seventeen random blocks of a MobileNet amplify what a batch rounds otherwise.
@pytest.mark.parametrize("name", [each for each in ENCODERS if each != "mobilenet"])
@torch.no_grad()
def test_neither_padding_nor_other_items_nor_their_order_change_a_state(
    name: str, encoder_of: Callable[[str], Any], photos: list[Image.Image]
) -> None:
    encoder = encoder_of(name)
    inputs = inputs_of(encoder, photos)
    together = encode(encoder, inputs, poison=True)
    backwards = encode(encoder, inputs[::-1])
    for row, one in enumerate(inputs):
        alone = encode(encoder, [one])
        count = int(alone.mask.sum())
        for batch, place in ((together, row), (backwards, 3 - row)):
            assert int(batch.mask[place].sum()) == count
            assert torch.equal(
                batch.content[place][batch.mask[place]], alone.content[0][alone.mask[0]]
            )
            torch.testing.assert_close(
                batch.states[place][batch.mask[place]],
                alone.states[0][alone.mask[0]],
                atol=1e-5,
                rtol=1e-4,
            )
    assert float(together.states[together.mask].std()) > 1e-3


# `test_regions` loads a network of regions.
@pytest.mark.parametrize("name", [each for each in ENCODERS if each != "regions"])
@torch.no_grad()
def test_an_encoder_is_built_again_from_its_configuration(
    name: str, encoder_of: Callable[[str], Any], photos: list[Image.Image]
) -> None:
    """What a checkpoint stores is enough."""
    encoder = encoder_of(name)
    words = [encoder.tokenizer] if isinstance(encoder, TextEncoder) else []
    rebuilt = type(encoder)(encoder.config, *words).eval()
    rebuilt.load_state_dict(encoder.state_dict())
    inputs = inputs_of(encoder, photos)
    expected, found = encode(encoder, inputs), encode(rebuilt, inputs)
    # Seventeen random blocks amplify the rounding of differently aligned weights.
    torch.testing.assert_close(found.states, expected.states, atol=1e-3, rtol=1e-2)
    assert rebuilt.weights_digest() == encoder.weights_digest()


@EVERY
def test_gradients_reach_what_is_not_frozen(
    name: str, encoder_of: Callable[[str], Any], photos: list[Image.Image]
) -> None:
    encoder = encoder_of(name)
    inputs, digest = inputs_of(encoder, photos), encoder.weights_digest()
    encoder.train()
    encode(encoder, inputs).states.square().sum().backward()
    learning = [value for value in encoder.parameters() if value.grad is not None]
    assert sum(map(torch.numel, learning)) > 0.5 * sum(map(torch.numel, encoder.parameters()))
    encoder = encoder_of(name)
    encoder.frozen = True
    if name == "regions":  # frozen with the BERT that it shares
        encoder.text_encoder.frozen = True
    encoder.train()
    assert not encode(encoder, inputs).states.requires_grad
    assert not any(module.training for module in encoder.modules())
    assert encoder.weights_digest() == digest  # batch norm has counted nothing


@pytest.mark.parametrize("registry", [IMAGE_ENCODERS, TEXT_ENCODERS], ids=["photos", "texts"])
def test_every_registered_name_has_a_class(registry: dict[str, str]) -> None:
    kind: type[Any] = ImageEncoder if registry is IMAGE_ENCODERS else TextEncoder
    for name in registry:
        assert issubclass(look_up(registry, name, kind, "encoder"), kind)
    with pytest.raises(TypeError, match=r"torch\.nn:Linear is no "):
        look_up({"linear": "torch.nn:Linear"}, "linear", kind, "encoder")


def test_reading_a_checkpoint_or_an_index_imports_no_transformers() -> None:
    """They take seconds, which commands that build no network need not spend."""
    modules = "aladin_network.checkpoint, aladin_index.open, aladin_training.stages.run"
    found = f"import sys, {modules}; print('transformers' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", found], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def photo_config(**settings: Any) -> Callable[[Tokenizer], object]:
    return lambda _: HFImageEncoder(ImageEncoderConfig(**settings))


def text_config(architecture: dict[str, Any] | None) -> Callable[[Tokenizer], object]:
    return lambda tokenizer: HFTextEncoder(TextEncoderConfig(architecture=architecture), tokenizer)


def gru(source: str | None = None, **options: Any) -> Callable[[Tokenizer], object]:
    config = TextEncoderConfig(name="gru", source=source, architecture=options or None)
    return lambda tokenizer: GRUTextEncoder.from_source(config, tokenizer)


UNEVEN = ImagePreprocessing(height_px=30, width_px=32)  # 15 x 16, padded to merge
PREPROCESSED = ImageEncoderConfig(name="regions", preprocessing=ImagePreprocessing())


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (photo_config(), "give a source or an architecture"),
        (photo_config(architecture={"hidden_size": 8}), "model_type"),
        (photo_config(architecture={"model_type": "no-such-network"}), "no-such-network"),
        (
            photo_config(architecture={"model_type": "vit", **PATCHES, "patch_size": 256}),
            r"cannot take photos of 224 x 224 px",
        ),
        (
            photo_config(architecture={"model_type": "swin", **SWIN}, preprocessing=UNEVEN),
            "64 tokens of 15 x 16 patches are on no grid",
        ),
        (
            photo_config(
                architecture={"model_type": "vit", **PATCHES},
                preprocessing=ImagePreprocessing(height_px=32, width_px=32),
                pyramid=(5,),
            ),
            r"pyramid \(5,\), the grid is \(4, 4\)",
        ),
        (lambda _: naflex(architecture={"model_type": "vit"}), "vision tower of a siglip2 network"),
        (lambda _: naflex(layers=(1,)), "no layers beside"),
        (lambda _: naflex(preprocessing=ImagePreprocessing()), "need max_patches"),
        (lambda _: naflex(pyramid=(0,)), r"pyramid \(0,\)"),
        (text_config(None), "give a source or an architecture"),
        (text_config({"model_type": "bert", **WORDS, "vocab_size": 10}), "vocab_size is 10"),
        (lambda _: gru()(None), "needs a trained tokenizer"),  # type: ignore[arg-type]
        (gru("glove"), "gru starts at random, it has no source 'glove'"),
        (gru(hidden=3), "text_encoder.architecture: hidden: unknown key"),
        (gru(layers="1"), "text_encoder.architecture: layers: "),
        (gru(hidden_size=0), "hidden_size must be greater than zero"),
        (gru(dropout=1.5), "dropout probability"),
        (gru(vocab_size=10), "the architecture's vocab_size is 10"),
        (lambda _: region_model(architecture={"region_dims": 5}), "region_dims: unknown key"),
        (lambda _: region_model(architecture={"region_dim": 0}), "region_dim: expected at least 1"),
        (
            lambda _: region_model(architecture={"max_label_tokens": 33}),
            "_tokens: expected 2 to 32",
        ),
        (lambda _: region_model(architecture={"dropout": 1.0}), "dropout: expected at least 0 and"),
        (
            lambda _: region_model(image_encoder=ImageEncoderConfig(name="regions", source="a")),
            "regions has no source",
        ),
        (
            lambda _: region_model(image_encoder=PREPROCESSED),
            "regions has no source, preprocessing",
        ),
        (
            lambda _: region_model(image_encoder=ImageEncoderConfig(name="regions", frozen=True)),
            "frozen, but the text encoder, whose BERT it shares",
        ),
        (
            lambda _: region_model(text_encoder=TextEncoderConfig(name="gru")),
            "the BERT of a text encoder named hf",
        ),
        *(
            (
                lambda _, kind=kind: region_model(
                    text_encoder=TextEncoderConfig(architecture=kind)
                ),
                f"a network of type '{kind['model_type']}'",
            )
            for kind in (
                {"model_type": "distilbert", "dim": 16, "n_heads": 2},
                {"model_type": "electra", "embedding_size": 8, "hidden_size": 16, **SIZES},
            )
        ),
    ],
)
def test_impossible_settings_are_refused(
    make: Callable[[Tokenizer], object], says: str, tokenizer: Tokenizer
) -> None:
    with pytest.raises(ConfigError, match=says):
        make(tokenizer)


@pytest.mark.parametrize("config", [None, '{"model_type": "vit"}'])
@pytest.mark.parametrize("kind", ["a vision encoder", "a text encoder", "a tokenizer"])
def test_folders_without_a_network_are_refused(
    kind: str, config: str | None, tmp_path: Path
) -> None:
    if kind == "a tokenizer":
        network = AutoModel.from_config(AutoConfig.for_model("bert", vocab_size=50, **WORDS))
        network.save_pretrained(tmp_path)
    elif config is not None:
        (tmp_path / "config.json").write_text(config)
    with pytest.raises(CheckpointError, match=f"cannot load {kind}"):
        if kind == "a vision encoder":
            HFImageEncoder.from_source(ImageEncoderConfig(source=str(tmp_path)))
        else:
            HFTextEncoder.from_source(TextEncoderConfig(source=str(tmp_path)), None)


def test_towers_that_cannot_be_pooled_or_read_are_refused(
    dual_encoder: Callable[[str], Any], tokenizer: Tokenizer, tmp_path: Path
) -> None:
    save(tmp_path, "bert", tokenizer, vocab_size=tokenizer.get_vocab_size(), **WORDS)
    with pytest.raises(CheckpointError, match="no dual encoder with a pooling of its own"):
        HFTextEncoder.from_source(TextEncoderConfig(source=str(tmp_path), pooled=True), None)
    clip = str(dual_encoder("clip").folder)
    with pytest.raises(ConfigError, match=r"max_tokens is 78, .* takes 77"):
        HFTextEncoder.from_source(TextEncoderConfig(source=clip, max_tokens=78), None)
    with pytest.raises(ConfigError, match="no further layers"):
        HFImageEncoder.from_source(ImageEncoderConfig(source=clip, pooled=True, layers=(1,)))
    shapes = str(dual_encoder("siglip2").folder)
    with pytest.raises(ConfigError, match='needs name = "naflex"'):
        HFImageEncoder.from_source(ImageEncoderConfig(source=shapes))


def test_inputs_of_another_kind_are_refused() -> None:
    options = {"region_dim": 5, "max_label_tokens": 9}
    config = ImageEncoderConfig(name="regions", architecture=options, detector="vinvl")
    encoder: Any = region_model(image_encoder=config).image.encoder
    vectors = region_sets()[0].vectors
    for wrong, error, says in (
        (Image.new("RGB", (8, 8)), InputError, "reads the regions of a photo, not the photo"),
        (RegionSet(vectors[:0]), RegionError, "at least one region, got none"),
        (RegionSet(vectors, detector="detr"), RegionError, "of the detector vinvl, got some of"),
    ):
        with pytest.raises(error, match=says):
            encoder.preprocess(wrong)
    assert len(encoder.preprocess(RegionSet(vectors, detector="vinvl")).vectors) == 3
    with pytest.raises(InputError, match="does not tell where its regions are"):
        encoder.region_boxes(640, 480)
    with pytest.raises(InputError, match="reads photos, not regions"):
        image_encoder("vit", **PATCHES).preprocess(RegionSet(vectors))
