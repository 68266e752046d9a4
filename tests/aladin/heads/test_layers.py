"""Transformer layers against torch's own, and the dropouts."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from aladin_network.errors import ConfigError
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


def test_padding_is_never_attended_to() -> None:
    torch.manual_seed(0)
    stack = TransformerStack(8, 2, 2, 16, 0.0).eval()
    states = torch.randn(2, 4, 8)
    mask = torch.tensor([[True] * 4, [True, True, False, False]])
    poisoned = states.masked_fill(~mask.unsqueeze(-1), 9.0)
    torch.testing.assert_close(stack(states, mask)[mask], stack(poisoned, mask)[mask])


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


def test_a_batch_without_padding_stays_as_it_is() -> None:
    whole = torch.ones(2, 3, dtype=torch.bool)
    assert not isinstance(layout_of(whole), Packed)
    states = torch.randn(2, 3, 4)
    assert layout_of(whole).rows(states) is states


def test_a_stack_without_layers_changes_nothing() -> None:
    states = torch.randn(1, 2, 8)
    stack = TransformerStack(8, 0, 2, 16, 0.0)
    assert torch.equal(stack(states, torch.ones(1, 2, dtype=torch.bool)), states)


def test_heads_must_divide_the_width() -> None:
    with pytest.raises(ConfigError, match="width 8 is not a multiple of 3"):
        TransformerStack(8, 1, 3, 16, 0.0)


def test_channel_dropout_drops_a_channel_for_all_tokens_and_keeps_the_mean() -> None:
    torch.manual_seed(0)
    dropout = ChannelDropout(0.25)
    states = torch.ones(64, 3, 50)
    dropped = dropout(states)
    assert torch.equal(dropped, dropped[:, :1].expand_as(dropped))
    assert set(dropped.unique().tolist()) == {0.0, torch.tensor(1 / 0.75).item()}
    assert float(dropped.mean()) == pytest.approx(1.0, abs=0.03)
    assert torch.equal(dropout.eval()(states), states)


def test_token_dropout_drops_whole_tokens_and_scales_nothing() -> None:
    torch.manual_seed(0)
    dropout = TokenDropout(0.25)
    states = torch.ones(64, 30, 4)
    dropped = dropout(states)
    assert torch.equal(dropped, dropped[..., :1].expand_as(dropped))
    assert set(dropped.unique().tolist()) == {0.0, 1.0}
    assert float(dropped.mean()) == pytest.approx(0.75, abs=0.04)
    assert torch.equal(dropout.eval()(states), states)
