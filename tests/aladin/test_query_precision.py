"""Texts in bfloat16: close to float32, and of the same type and shape."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch

from aladin_network.config import TextEncoderConfig
from aladin_network.graphs.network import query_network
from aladin_network.inference import QueryNetworks, choose_precision
from aladin_network.model import AladinModel
from aladin_network.scoring.scores import EncodedBatch
from tests.tensors import encode_texts

TEXTS = ["a dog", "two dogs run on the green grass", "the yellow star"]
RECURRENT = TextEncoderConfig(name="gru", architecture={"embedding_size": 6, "hidden_size": 10})


def assert_close(found: EncodedBatch, exact: EncodedBatch) -> None:
    """Expect the same items with directions that differ by what 8 bits leave out."""
    assert found.embedding.dtype == found.tokens.dtype == torch.float32
    assert torch.equal(found.mask, exact.mask)
    for values, others in ((found.embedding, exact.embedding), (found.tokens, exact.tokens)):
        torch.testing.assert_close(values.norm(dim=-1), torch.ones(values.shape[:-1]))
        cosines = (values * others).sum(-1)
        assert cosines.min() > 0.999
        assert not torch.equal(values, others)  # it was another precision indeed


@pytest.mark.parametrize("changes", [{}, {"text_encoder": RECURRENT}], ids=["bert", "gru"])
def test_texts_in_bfloat16_are_close_and_float32(
    build_tiny: Callable[..., AladinModel], changes: dict[str, object]
) -> None:
    model = build_tiny(**changes)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert query_network(model, "text", precision="float32") is model
    reduced = query_network(model, "text", precision="bfloat16")
    assert_close(encode_texts(reduced, TEXTS), encode_texts(model, TEXTS))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_network_is_converted_once(build_tiny: Callable[..., AladinModel]) -> None:
    networks = QueryNetworks(partial(query_network, precision="bfloat16"))
    model, other = build_tiny(), build_tiny()
    assert networks.of(model, "text") is networks.of(model, "text")
    assert networks.of(model, "text") is not networks.of(other, "text")


@pytest.mark.parametrize(
    ("flags", "device", "expected"),
    [
        ("fpu avx512_bf16 sse", "cpu", "bfloat16"),
        ("amx_bf16", "cpu", "bfloat16"),
        ("fpu avx512f", "cpu", "float32"),
        ("", "cpu", "float32"),
        ("avx512_bf16", "cuda", "float32"),
    ],
)
def test_auto_goes_by_the_processor(
    monkeypatch: pytest.MonkeyPatch, flags: str, device: str, expected: str
) -> None:
    info = f"processor\t: 0\nflags\t\t: {flags}\nbugs\t\t: amx_bf16\n"
    monkeypatch.setattr(Path, "read_text", lambda *_args, **_kwargs: info)
    assert choose_precision("auto", device) == expected
    for name in ("float32", "bfloat16"):
        assert choose_precision(name, device) == name
