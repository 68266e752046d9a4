"""The anchors of a stage: the networks that its target is boosted beyond, or learns from (DBL)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from aladin_network.errors import ConfigError

# Used instead of a stage's name for an anchor branch that starts from new weights.
RANDOM = "random"


@dataclass(frozen=True, kw_only=True)
class AnchorsConfig:
    """The anchor branches of deep boosting learning (DBL).

    The boosting losses of the stage are averaged over the anchors: M branches are M - 1 anchors
    and the target.

    Attributes:
        scenario: Where the anchors come from. "offline" (OAS): frozen networks of earlier stages or
            of other runs. "online" (OSS): networks trained at the same time on the same batches,
            each boosted by those before it, the first by none. "momentum" (MSS): moving averages of
            the target's weights.
        stages: One entry for each anchor. Offline: the stage whose network it is. Online: the stage
            from whose weights it starts, or "random".
        checkpoints: Offline: folders of further anchors, checkpoints of any runs; relative paths
            are relative to the working folder.
        model_ids: Required model id of each checkpoint, or nothing for any; they are recorded when
            the run begins.
        mutual: Online: every branch is also boosted by those after it, so that all learn from all
            (deep mutual learning).
        decays: Momentum: one entry for each anchor, its beta at the stage's start, in [0, 1].
    """

    scenario: Literal["offline", "online", "momentum"]
    stages: tuple[str, ...] = ()
    checkpoints: tuple[str, ...] = ()
    model_ids: tuple[str, ...] = ()
    mutual: bool = False
    decays: tuple[float, ...] = (0.99995,)

    def __post_init__(self) -> None:
        """Refuse impossible values.

        Raises:
            ConfigError: If there is no anchor, a decay is out of its range, or a setting belongs to
                another scenario.
        """
        if self.checkpoints and self.scenario != "offline":
            raise ConfigError(f"anchors: the {self.scenario} scenario takes no checkpoints")
        if self.model_ids and len(self.model_ids) != len(self.checkpoints):
            raise ConfigError("anchors: expected as many model_ids as checkpoints, or none")
        if self.mutual and self.scenario != "online":
            raise ConfigError("anchors: only online anchors learn mutually")
        if self.scenario == "momentum":
            if self.stages:
                raise ConfigError("anchors: momentum anchors follow the target; give no stages")
            if not self.decays or not all(0 <= decay <= 1 for decay in self.decays):
                raise ConfigError(f"anchors: decays are {self.decays}, expected values in [0, 1]")
        elif not (self.stages or self.checkpoints):
            sources = "stages or checkpoints" if self.scenario == "offline" else "stages"
            raise ConfigError(f"anchors: the {self.scenario} scenario needs {sources}")

    @property
    def needed_stages(self) -> dict[str, str]:
        """Names of the earlier stages that the anchors need, by the key that refers to them."""
        online = self.scenario == "online"
        return {
            f"stages[{number}]": stage
            for number, stage in enumerate(self.stages)
            if not (online and stage == RANDOM)
        }
