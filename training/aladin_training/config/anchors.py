"""The anchors of a stage: the networks that its target is boosted beyond, or learns from (DBL)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from aladin_training.config.rules import Rule, check

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
        check("anchors: ", self._rules())

    def _rules(self) -> Iterator[Rule]:
        scenario = self.scenario
        offline, momentum = scenario == "offline", scenario == "momentum"
        yield offline or not self.checkpoints, f"the {scenario} scenario takes no checkpoints"
        yield (
            len(self.model_ids) in (0, len(self.checkpoints)),
            "expected as many model_ids as checkpoints, or none",
        )
        yield scenario == "online" or not self.mutual, "only online anchors learn mutually"
        yield (
            not (momentum and self.stages),
            "momentum anchors follow the target; give no stages",
        )
        yield (
            not momentum or (bool(self.decays) and all(0 <= decay <= 1 for decay in self.decays)),
            f"decays are {self.decays}, expected values in [0, 1]",
        )
        sources = "stages or checkpoints" if offline else "stages"
        yield (
            momentum or bool(self.stages or self.checkpoints),
            f"the {scenario} scenario needs {sources}",
        )

    @property
    def needed_stages(self) -> dict[str, str]:
        """Names of the earlier stages that the anchors need, by the key that refers to them."""
        online = self.scenario == "online"
        return {
            f"stages[{number}]": stage
            for number, stage in enumerate(self.stages)
            if not (online and stage == RANDOM)
        }
