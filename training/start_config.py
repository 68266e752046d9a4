"""What a recipe says of the checkpoint that it starts from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from aladin.errors import ConfigError
from training.tuning.config import EncoderPart


@dataclass(frozen=True, kw_only=True)
class StartConfig:
    """The network of a checkpoint, in place of one that the recipe describes.

    Attributes:
        checkpoint: its folder; a relative path counts from the working folder.
        model_id: that it must have; None: any, and noted when the run begins.
        frozen: encoders that are frozen or not whatever the checkpoint says, from the keys
            ``model.image_encoder.frozen`` and ``model.text_encoder.frozen``.
    """

    checkpoint: str
    model_id: str | None = None
    frozen: dict[EncoderPart, bool] = field(default_factory=dict)


def with_start(data: dict[str, Any], where: str) -> dict[str, Any]:
    """Bring a recipe's ``start = "CHECKPOINT"`` into the form of a `StartConfig`.

    Args:
        data: of the recipe.
        where: names the recipe in errors.

    Raises:
        ConfigError: the recipe describes a network besides.
    """
    start = data.get("start")
    if start is None:
        return data
    table: dict[str, Any] = {"checkpoint": start} if isinstance(start, str) else dict(start)
    model: Any = data.get("model") or {}
    frozen: dict[str, Any] = {}
    for part, settings in model.items():
        is_encoder = part in ("image_encoder", "text_encoder") and isinstance(settings, dict)
        others = [f"{part}.{key}" for key in settings if key != "frozen"] if is_encoder else [part]
        if others:
            raise ConfigError(
                f"{where}: model.{others[0]}: the network is that of start; only frozen of "
                "image_encoder and text_encoder can be set besides"
            )
        frozen |= {part: settings["frozen"]} if settings else {}
    rest = {key: value for key, value in data.items() if key != "model"}
    return rest | {"start": table | ({"frozen": frozen} if frozen else {})}
