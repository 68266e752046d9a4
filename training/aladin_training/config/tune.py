"""Which weights of an encoder a stage fine-tunes, and how."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from aladin_training.config.rules import Rule, check

EncoderPart = Literal["image_encoder", "text_encoder"]
TuneMode = Literal["full", "last", "lora"]


@dataclass(frozen=True, kw_only=True)
class TuneConfig:
    """Fine-tuning of one encoder in a stage.

    Attributes:
        mode: "full": all weights; "last": the last `layers` layers and what follows them; "lora":
            low-rank changes of matrices, which are merged into these when the stage ends (Hu et
            al., LoRA, 2021).
        layers: Number of layers for "last".
        rank: Rank of the changes; this and the next three apply to "lora".
        alpha: The changes are scaled by alpha / rank.
        dropout: Dropout on the input of the changes.
        targets: Endings of the names of the changed modules, e.g. ("query", "value"), or None for
            all linear maps of the encoder's layers, and their 1 x 1 convolutions.
        lr_decay: Learning rate of each layer relative to the one above it; the embeddings have the
            lowest rate, the last layer and what follows it the encoder's own rate.
        checkpointing: Recompute the activations of the layers in the backward pass instead of
            keeping them: about a third more time for a fraction of the memory.
        cached: Keep the states that enter the last `layers` layers of the image encoder in the
            feature cache, instead of computing them from the photos in every step; for "last".
            MobileNetV2 at 384 px takes 111 kB for each view of a photo below its last four layers,
            and a step a tenth of the time.
    """

    mode: TuneMode = "full"
    layers: int | None = None
    rank: int = 8
    alpha: float = 16.0
    dropout: float = 0.0
    targets: tuple[str, ...] | None = None
    lr_decay: float = 1.0
    checkpointing: bool = False
    cached: bool = False

    def __post_init__(self) -> None:
        check("tune: ", self._rules())

    def _rules(self) -> Iterator[Rule]:
        last = self.mode == "last"
        yield last == (self.layers is not None), 'mode "last" and layers require each other'
        yield (
            self.layers is None or self.layers >= 1,
            f"layers is {self.layers}, expected at least 1",
        )
        yield last or not self.cached, 'cached requires mode "last"'
        yield self.rank >= 1 and self.alpha > 0, "rank must be at least 1 and alpha above 0"
        yield 0 <= self.dropout < 1, f"dropout is {self.dropout}, expected [0, 1)"
        yield (
            self.targets is None or (self.mode == "lora" and bool(self.targets)),
            'targets require mode "lora" and at least one name',
        )
        yield 0 < self.lr_decay <= 1, f"lr_decay is {self.lr_decay}, expected (0, 1]"
