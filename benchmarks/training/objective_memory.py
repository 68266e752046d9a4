"""Memory and time of a training step of each objective, on equal batches.

    python -m benchmarks.training.objective_memory
    python -m benchmarks.training.objective_memory --only mh imc-l1 --batch 256 --device cuda

A network with random weights (`benchmarks.training.random_step`) takes steps on random photos and
texts; objectives are named as in training/recipes/compare. Memory is what a step without the
optimizer allocates at its most, beyond weights and batch: what autograd keeps, the scores, the
gradients. What an objective adds can hide below a maximum at another place of the step: "loss" is
the memory from finished encodings to their gradients, of scores and losses alone. On the CPU both
are exact, the largest running sum of the allocations that torch's profiler records; on a GPU they
are torch's own maximum. Times are medians of steps taken in turn, and ratios are to the first
objective.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from aladin_network.scoring.scores import EncodedBatch
from aladin_training.comparison.peak_memory import peak_bytes
from aladin_training.config.anchors import AnchorsConfig
from aladin_training.config.stage import OfflineNegativesConfig, StageConfig, TaskConfig
from aladin_training.parallel.numerics import loss_scaler
from aladin_training.step import compute_gradients
from aladin_training.tasks.frozen import MomentumAnchor
from aladin_training.tasks.joint import JointTask, OnlineBranches
from aladin_training.tasks.scores import FrozenNetwork, Inputs
from benchmarks.lib.measuring import ratio, time_in_turn
from benchmarks.lib.output import figures_parser, print_json, print_rows
from benchmarks.training.random_step import random_batch, random_network

_MH = {"matching": TaskConfig(loss="triplet")}
_OFFLINE = AnchorsConfig(scenario="offline", stages=("earlier",))
_ONLINE = AnchorsConfig(scenario="online", stages=("random",))
_MOMENTUM = AnchorsConfig(scenario="momentum")
_BOTH_SHARP = {"temperature": 10.0, "teacher_scale": 10.0}


class Objective(NamedTuple):
    """A stage's objective.

    Attributes:
        tasks: Tasks of the stage.
        anchors: Scenario of its anchors, or None.
    """

    tasks: Mapping[str, TaskConfig]
    anchors: AnchorsConfig | None = None


def _one(loss: str, task: str = "matching", **options: Any) -> Objective:
    return Objective({task: TaskConfig(loss=loss, options=options)})


def _with_mh(
    loss: str, task: str, anchors: AnchorsConfig | None = None, weight: float = 1.0, **options: Any
) -> Objective:
    return Objective({**_MH, task: TaskConfig(loss=loss, weight=weight, options=options)}, anchors)


OBJECTIVES: dict[str, Objective] = {
    "mh": Objective(_MH),
    "sh": _one("triplet", hardest_negative=False),
    "infonce": _one("infonce"),
    "cmpm": _one("projection_matching"),
    "mpl": _one("polynomial"),
    "goal-con-con": _one("gradient"),
    "goal-cir-sig-ms": _one("gradient", triplet_weight="cir", pair_weight="sig_ms"),
    "imc-l1": _with_mh("intra_modal", "intra_modal"),
    "imc-cos": _with_mh("intra_modal", "intra_modal", distance="cos"),
    "aladin-a-ft": _one("triplet", "alignment"),
    "aladin-d": _one("listnet", "distillation"),
    "aladin-a-ft-d-ft": Objective(
        {"alignment": TaskConfig(loss="triplet"), "distillation": TaskConfig(loss="listnet")}
    ),
    "aoq-triplet": _one("offline_quintuplet", "matching_quintuplet"),
    "aoq-quintuplet": _one("offline_quintuplet", "matching_quintuplet", form="quintuplet"),
    "aoq-adaptive": _one("offline_quintuplet", "matching_quintuplet", form="adaptive"),
    "oas-rm": _with_mh("boosting", "matching_boosting", _OFFLINE),
    "oas-am": _with_mh("boosting", "matching_boosting", _OFFLINE, form="absolute"),
    "oss-rm": _with_mh("boosting", "matching_boosting", _ONLINE),
    "oss-am": _with_mh("boosting", "matching_boosting", _ONLINE, form="absolute"),
    "mss-rm": _with_mh("boosting", "matching_boosting", _MOMENTUM),
    "mss-am": _with_mh("boosting", "matching_boosting", _MOMENTUM, form="absolute"),
    "oas-dark-rank": _with_mh("dark_rank", "matching_imitation", _OFFLINE),
    "oas-rkd": _with_mh("score_regression", "matching_imitation", _OFFLINE, weight=10.0),
    "oss-dml": _with_mh("listnet", "matching_imitation", _ONLINE, **_BOTH_SHARP),
    "mss-dino": _with_mh("listnet", "matching_imitation", _MOMENTUM, **_BOTH_SHARP),
    "mss-dino-star": _with_mh("reverse_divergence", "matching_imitation", _MOMENTUM),
}


def measure(
    names: Sequence[str], batch_size: int, rounds: int, device: torch.device
) -> list[dict[str, Any]]:
    """Measure objectives on batches of one size.

    Args:
        names: Names in `OBJECTIVES`; ratios are to the first.
        batch_size: Number of photos per step, each with one text.
        rounds: Number of timed steps of each.
        device: Device that computes.
    """
    setups = {name: _Setup(OBJECTIVES[name], batch_size, device) for name in names}
    memory = {name: peak_bytes(setup.step, device) for name, setup in setups.items()}
    times = time_in_turn({name: setup.timed_step for name, setup in setups.items()}, rounds, 1)
    first = names[0]
    return [
        {
            "objective": name,
            "peak_bytes": memory[name],
            "memory_ratio": memory[name] / memory[first],
            "loss_bytes": setups[name].loss_bytes(),
            "step_ms": float(np.median(times[name])),
            "time_ratio": ratio(times, name, first),
        }
        for name in names
    ]


class _Setup:
    """An objective that is ready for steps on one batch."""

    def __init__(self, objective: Objective, batch_size: int, device: torch.device) -> None:
        offline = any(name.endswith("_quintuplet") for name in objective.tasks)
        stage = StageConfig(
            name="s",
            tasks=dict(objective.tasks),
            anchors=objective.anchors,
            offline=OfflineNegativesConfig(stage="earlier") if offline else None,
            batch_size=batch_size,
        )
        self._device = device
        self._task = _task(stage).to(device)
        batch = random_batch(batch_size, offline=offline)
        self._batch = batch.to(device)
        self._scaler = loss_scaler("float32", device)
        self._task.start_epoch(0)

    def step(self) -> None:
        """Compute the gradients of the batch."""
        compute_gradients(self._task, self._batch, "float32", None, self._scaler)
        self._task.zero_grad(set_to_none=True)

    def timed_step(self, _: int) -> None:
        """Take a step, and wait for the device."""
        self.step()
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def loss_bytes(self) -> int:
        """Return the memory of scores and losses, forwards and back to the encodings."""
        encode = _KnownEncodings()

        def loss() -> None:
            self._task(self._batch, encode).total.backward()
            self._task.zero_grad(set_to_none=True)

        loss()  # which encodes
        return peak_bytes(loss, self._device)


class _KnownEncodings:
    """Encodes every input once, and gives its encoding as the start of a new graph."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, int], EncodedBatch] = {}

    def __call__(self, encoder: Callable[[Inputs], EncodedBatch], inputs: Inputs) -> EncodedBatch:
        key = encoder, id(inputs)  # of one network, as it is a bound method
        if key not in self._known:
            with torch.no_grad():
                self._known[key] = encoder(inputs)
        embedding, tokens, mask = self._known[key]
        learns = torch.is_grad_enabled()
        return EncodedBatch(
            embedding.detach().requires_grad_(learns), tokens.detach().requires_grad_(learns), mask
        )


def _task(stage: StageConfig) -> JointTask | OnlineBranches:
    target = JointTask(random_network(), stage)
    if stage.anchors is None:
        return target
    match stage.anchors.scenario:
        case "offline":
            target.anchors = (FrozenNetwork(random_network()),)
            return target
        case "momentum":
            target.momentum_anchors = (MomentumAnchor(target.model, stage.anchors.decays[0]),)
            return target
        case "online":
            return OnlineBranches([JointTask(random_network(), stage)], target)


def main() -> None:
    """Run the measurements, and print a table or JSON."""
    parser = figures_parser(__doc__)
    parser.add_argument(
        "--only", nargs="+", choices=OBJECTIVES, default=list(OBJECTIVES), help="objectives"
    )
    parser.add_argument("--batch", type=int, default=128, help="photos per step")
    parser.add_argument("--rounds", type=int, default=5, help="timed steps of each")
    parser.add_argument("--device", default="cpu", help="device of torch")
    options = parser.parse_args()
    rows = measure(options.only, options.batch, options.rounds, torch.device(options.device))
    if options.json:
        print_json(rows)
        return
    cells = [
        [
            row["objective"],
            f"{row['peak_bytes'] / 1e6:.1f}",
            f"{row['memory_ratio']:.2f}",
            f"{row['loss_bytes'] / 1e6:.2f}",
            f"{row['step_ms']:.0f}",
            f"{row['time_ratio']:.2f}",
        ]
        for row in rows
    ]
    print_rows(["objective", "peak MB", "ratio", "loss MB", "step ms", "ratio"], cells)


if __name__ == "__main__":
    main()
