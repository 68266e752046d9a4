"""How a stage fine-tunes an encoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from aladin.errors import ConfigError

EncoderPart = Literal["image_encoder", "text_encoder"]
TuneMode = Literal["full", "last", "lora"]


@dataclass(frozen=True, kw_only=True)
class TuneConfig:
    """Fine-tuning of one encoder in a stage.

    Attributes:
        mode: "full": all of its weights; "last": its last `layers` layers and what follows them;
            "lora": low-rank changes of its matrices, which are added to these when the stage
            ends (Hu et al., LoRA, 2021).
        layers: for "last".
        rank: of the changes, for "lora" as all that follows up to `targets`.
        alpha: the changes count alpha / rank times.
        dropout: of what enters the changes.
        targets: ends of the names of the modules that are changed, e.g. ("query", "value"); None:
            all linear maps of the encoder's layers, and their 1 x 1 convolutions.
        lr_decay: each layer learns so many times as fast as the one above it, and the embeddings
            slowest; the last layer, and what follows it, at the encoder's own rate.
        checkpointing: compute the layers' inner states again in the backward pass instead of
            keeping them: about a third more time for a fraction of the memory.
    """

    mode: TuneMode = "full"
    layers: int | None = None
    rank: int = 8
    alpha: float = 16.0
    dropout: float = 0.0
    targets: tuple[str, ...] | None = None
    lr_decay: float = 1.0
    checkpointing: bool = False

    def __post_init__(self) -> None:
        """Refuse impossible values.

        Raises:
            ConfigError: a value is out of its range, or belongs to another mode.
        """
        if (self.mode == "last") != (self.layers is not None):
            raise ConfigError('tune: mode "last" and layers need each other')
        if self.layers is not None and self.layers < 1:
            raise ConfigError(f"tune: layers is {self.layers}, expected at least 1")
        if self.rank < 1 or self.alpha <= 0:
            raise ConfigError("tune: rank must be at least 1 and alpha above 0")
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"tune: dropout is {self.dropout}, expected [0, 1)")
        if self.targets is not None and (self.mode != "lora" or not self.targets):
            raise ConfigError('tune: targets go with mode "lora", and name at least one')
        if not 0 < self.lr_decay <= 1:
            raise ConfigError(f"tune: lr_decay is {self.lr_decay}, expected (0, 1]")
