"""Transformer layers against torch's own, and the dropouts."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from aladin_network.heads.layers import (
    ChannelDropout,
    Packed,
    Padded,
    TokenDropout,
    TransformerLayer,
    TransformerStack,
    layout_of,
)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_a_layer_equals_torchs_encoder_layer(norm: str) -> None:
    torch.manual_seed(0)
    ours = TransformerLayer(8, 2, 12, 0.0, norm).eval()  # type: ignore[arg-type]
    theirs = nn.TransformerEncoderLayer(
        8, 2, 12, 0.0, batch_first=True, norm_first=norm == "pre"
    ).eval()
    with torch.no_grad():
        for mine, other in (
            (ours.query_key_value.weight, theirs.self_attn.in_proj_weight),
            (ours.query_key_value.bias, theirs.self_attn.in_proj_bias),
            (ours.output.weight, theirs.self_attn.out_proj.weight),
            (ours.output.bias, theirs.self_attn.out_proj.bias),
            (ours.feedforward[0].weight, theirs.linear1.weight),
            (ours.feedforward[0].bias, theirs.linear1.bias),
            (ours.feedforward[2].weight, theirs.linear2.weight),
            (ours.feedforward[2].bias, theirs.linear2.bias),
        ):
            other.copy_(mine.uniform_(-0.5, 0.5))
    states = torch.randn(3, 5, 8)
    mask = torch.arange(5) < torch.tensor([[5], [3], [1]])
    expected = theirs(states, src_key_padding_mask=~mask)
    packed = Packed(mask)
    rows = ours(packed.rows(states), packed)
    torch.testing.assert_close(rows, expected[mask], atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(
        ours(states, Padded(mask))[mask], expected[mask], atol=1e-6, rtol=1e-5
    )


def test_padding_of_a_batch_is_not_computed_and_changes_neither_states_nor_gradients() -> None:
    """The same dropout, states and gradients as the layers have on the padded batch."""
    torch.manual_seed(0)
    stack = TransformerStack(8, 2, 2, 16, 0.2, "pre").double()
    mask = torch.arange(5) < torch.tensor([[5], [2], [1], [4]])
    states = torch.randn(4, 5, 8, dtype=torch.float64, requires_grad=True)
    upstream = torch.randn(4, 5, 8, dtype=torch.float64) * mask.unsqueeze(-1)

    def computed(layout: Padded) -> list[torch.Tensor]:
        torch.manual_seed(1)
        rows = layout.rows(states)
        for layer in stack.layers:
            rows = layer(rows, layout)
        ended = layout.sequences(stack.final_norm(rows))
        wanted = [states, *stack.parameters()]
        return [ended[mask], *torch.autograd.grad((ended * upstream).sum(), wanted)]

    assert isinstance(layout_of(mask), Packed)
    for packed, padded in zip(computed(Packed(mask)), computed(Padded(mask)), strict=True):
        torch.testing.assert_close(packed, padded)
    torch.manual_seed(1)
    torch.testing.assert_close(stack(states, mask)[mask], computed(Packed(mask))[0])


def test_without_padding_or_layers_nothing_is_copied_or_changed() -> None:
    whole, states = torch.ones(2, 3, dtype=torch.bool), torch.randn(2, 3, 8)
    assert not isinstance(layout_of(whole), Packed)
    assert layout_of(whole).rows(states) is states
    assert torch.equal(TransformerStack(8, 0, 2, 16, 0.0)(states, whole), states)


@pytest.mark.parametrize(
    ("dropout", "kept", "mean"),
    [(ChannelDropout(0.25), 1 / 0.75, 1.0), (TokenDropout(0.25), 1.0, 0.75)],
)
def test_dropouts_of_channels_keep_the_mean_and_of_tokens_the_scale(
    dropout: nn.Module, kept: float, mean: float
) -> None:
    torch.manual_seed(0)
    states = torch.ones(64, 30, 50)
    dropped = dropout.train()(states)
    same = dropped[:, :1] if isinstance(dropout, ChannelDropout) else dropped[..., :1]
    assert torch.equal(dropped, same.expand_as(dropped))
    assert set(dropped.unique().tolist()) == {0.0, torch.tensor(kept).item()}
    assert float(dropped.mean()) == pytest.approx(mean, abs=0.04)
    assert torch.equal(dropout.eval()(states), states)
