"""The training loop of one stage: exact resume, best weights, progress and timing.

A stage that is killed at any step and started again ends with the same weights as one without an
interruption: batches are a function of seed and epoch, the random numbers of a step are a function
of seed, step and process, and the state file holds everything else. Several processes take every
step together and hold the same weights after it; the first of them writes, validates and logs.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import time
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from aladin_network.checkpoint import read_tensors, write_tensors
from aladin_network.errors import CheckpointError, NonFiniteLossError
from aladin_network.files import atomic_file
from aladin_network.types import Progress
from aladin_training.batches.batch import Batch
from aladin_training.batches.dataset import BatchSource
from aladin_training.config.recipe import Recipe
from aladin_training.config.stage import StageConfig
from aladin_training.optimization import WeightAverage, build_optimizer, lr_factor, set_lr
from aladin_training.parallel.distributed import (
    broadcast_weights,
    is_main_process,
    own_share,
    rank,
    wait_for_all,
)
from aladin_training.parallel.numerics import loss_scaler, seed_torch
from aladin_training.stage_files import StageLog, Validation
from aladin_training.step import check_no_batch_statistics, compute_gradients
from aladin_training.tasks.joint import JointTask, LossReport, OnlineBranches

# Interval of saving: an interruption loses at most this much work, and does not change the result.
SAVE_EVERY_S = 60.0
LOG_EVERY_STEPS = 20
DRAW_EVERY_S = 30.0


def save_state(path: Path, state: dict[str, Any], fingerprint: str) -> None:
    """Write numbers and tensors under the digest of everything that they belong to."""
    with atomic_file(path) as partial:
        torch.save(state | {"fingerprint": fingerprint}, partial)


def load_state(path: Path, fingerprint: str, device: torch.device) -> dict[str, Any] | None:
    """Read the state of a stage; return None if there is no file."""
    if not path.exists():
        return None
    try:
        state: dict[str, Any] = torch.load(path, weights_only=True, map_location=device)
    except Exception as error:  # a damaged file can make the reader raise anything
        raise CheckpointError(f"{path}: cannot be read ({error})") from error
    if state["fingerprint"] != fingerprint:
        raise CheckpointError(
            f"{path}: state of another recipe or other data; resume with those, "
            "or train into another folder"
        )
    return state


Validate = Callable[[], dict[str, Validation]]


@dataclass
class Clock:
    """Seconds spent on each part of a stage."""

    data_s: float = 0.0
    step_s: float = 0.0
    validation_s: float = 0.0

    def shares(self) -> dict[str, str]:
        """Return the share of each part in percent, for the progress line."""
        total = max(self.data_s + self.step_s + self.validation_s, 1e-9)
        return {
            name.removesuffix("_s"): f"{100 * seconds / total:.0f}%"
            for name, seconds in vars(self).items()
        }


class StageTrainer:
    """Trains one stage, and ends with its best weights in the task's network."""

    def __init__(
        self,
        recipe: Recipe,
        stage: StageConfig,
        task: JointTask | OnlineBranches,
        batches: BatchSource,
        validate: Validate,
        folder: Path,
        progress: Progress,
    ) -> None:
        """Set up the stage; nothing runs yet."""
        if stage.chunk_size is not None or own_share().world > 1:
            check_no_batch_statistics(task)
        self._recipe = recipe
        self._stage = stage
        self.task = task
        self._batches = batches
        self._validate = validate
        self._folder = folder
        self._progress = progress
        self.steps = stage.steps(batches.batches_per_epoch)
        self._optimizer = build_optimizer(task, stage)
        # The norm of each branch's gradient is bounded separately.
        self._trained = [
            [value for value in branch.parameters() if value.requires_grad]
            for branch in task.branches
        ]
        self._average = WeightAverage(task, stage.average_decay)
        self._device = self._trained[0][0].device
        self._scaler = loss_scaler(recipe.precision, self._device)
        self.clock = Clock()
        self._saved_at = self._drawn_at = time.monotonic()
        self.step = 0
        self.best_rsum = -math.inf
        self.best_step = 0

    def run(self) -> None:
        """Train to the end, from the saved state if there is one."""
        self._folder.mkdir(parents=True, exist_ok=True)
        broadcast_weights(self.task)
        self._resume()
        # Only the first process keeps a log and writes files.
        log = StageLog(self._folder, self._stage.name, self.step) if is_main_process() else None
        self._progress.start(self.steps, "steps")
        self._progress.advance(self.step)
        while self.step < self.steps:
            epoch, done = divmod(self.step, self._batches.batches_per_epoch)
            self.start_epoch(epoch)
            with closing(self.epoch(epoch, done)) as batches:
                for batch in itertools.islice(batches, self.steps - self.step):
                    report = self.train_step(batch)
                    if log is not None:
                        self._report(report, log)
                        self._save_if_due()
            if log is not None:
                self._end_epoch(epoch, log)
                self._save()
            wait_for_all()
        if log is not None:
            log.close()
        self._load_best()

    @property
    def trained_parameters(self) -> int:
        """Number of trained parameters of the target: those that a gradient has reached."""
        reached = self._optimizer.state
        return sum(value.numel() for value in self._trained[-1] if value in reached)

    def start_epoch(self, number: int) -> None:
        """Prepare the task for the steps of an epoch, counted from 0."""
        self.task.start_epoch(number)

    def epoch(self, number: int, done: int = 0) -> Generator[Batch]:
        """Yield this process's share of the batches of an epoch."""
        with closing(self._batches.epoch(number, done, own_share())) as batches:
            while True:
                begun = time.monotonic()
                batch = next(batches, None)
                self.clock.data_s += time.monotonic() - begun
                if batch is None:
                    return
                yield batch

    def train_step(self, batch: Batch) -> LossReport:
        """Take one optimizer step."""
        begun = time.monotonic()
        # Different numbers in every process, so that shares do not have the same dropout masks.
        seed_torch(f"{self._recipe.seed}:{self._stage.name}:{self.step}:{rank()}", self._device)
        set_lr(self._optimizer, self._lr(self.step))
        self._optimizer.zero_grad(set_to_none=True)
        report = compute_gradients(
            self.task,
            batch,
            self._recipe.precision,
            self._stage.chunk_size,
            self._scaler,
            # Not of a single task, whose share is the whole.
            measure_shares=len(self._stage.tasks) > 1 and (self.step + 1) % LOG_EVERY_STEPS == 0,
        )
        loss = report.total.item()
        if not math.isfinite(loss):
            raise NonFiniteLossError(self._stage.name, self.step, loss)
        self._scaler.unscale_(self._optimizer)
        for trained in self._trained:
            nn.utils.clip_grad_norm_(trained, self._stage.clip_norm)
        self._scaler.step(self._optimizer)
        self._scaler.update()
        self.task.after_step(self.step, self.steps)
        self._average.update()
        self.step += 1
        self.clock.step_s += time.monotonic() - begun
        return report

    def _lr(self, step: int) -> float:
        per_epoch = self._batches.batches_per_epoch
        return self._stage.lr * lr_factor(step, self.steps, per_epoch, self._stage.schedule)

    def _report(self, report: LossReport, log: StageLog) -> None:
        self._progress.advance()
        if self.step % LOG_EVERY_STEPS == 0:
            loss = report.total.item()
            terms = {f"{name}_loss": term.item() for name, term in report.terms.items()}
            shares = {f"{name}_gradient_share": share for name, share in report.shares.items()}
            lr = self._lr(self.step - 1)  # of the step that was taken
            scalars = self.task.branches[-1].scalars()
            log.write(self.step, {"loss": loss, **terms, **shares, **scalars, "lr": lr})
            self._progress.note(loss=loss, **self.clock.shares())

    def _end_epoch(self, epoch: int, log: StageLog) -> None:
        """Validate if it is due, and keep the weights if they are the best so far."""
        last = self.step >= self.steps
        if not last and (epoch + 1) % self._stage.validate_every_epochs:
            return
        begun = time.monotonic()
        self.task.eval()
        with self._average.applied():
            found = self._validate()
            # Selection by the sum of the rsums of all trained heads (ALADIN's official code).
            rsum = sum(found[name].metrics.rsum for name in sorted(self._stage.trained_scores))
            if rsum > self.best_rsum:
                self.best_rsum, self.best_step = rsum, self.step
                with atomic_file(self._folder / "best.safetensors") as partial:
                    write_tensors(partial, self._weights())
        entries = [each.entries(name) for name, each in found.items()]
        log.write(self.step, {key: value for each in entries for key, value in each.items()})
        if last or time.monotonic() - self._drawn_at > DRAW_EVERY_S:
            log.draw()
            self._drawn_at = time.monotonic()
        self.clock.validation_s += time.monotonic() - begun
        self._progress.note(**{f"{name}_rsum": each.metrics.rsum for name, each in found.items()})

    def _weights(self) -> dict[str, Tensor]:
        """Return what training changes: trained parameters, and buffers such as statistics."""
        parameters = {
            name: value.detach().contiguous()
            for name, value in self.task.named_parameters()
            if value.requires_grad
        }
        return parameters | dict(self.task.named_buffers())

    def _save_if_due(self) -> None:
        """Save if it is due within an epoch; its end is saved after validation."""
        inside = self.step % self._batches.batches_per_epoch != 0
        if inside and time.monotonic() - self._saved_at > SAVE_EVERY_S:
            self._save()

    def _save(self) -> None:
        """Write everything that the next step depends on; it is the same in every process."""
        state = {
            "step": self.step,
            "best_rsum": self.best_rsum,
            "best_step": self.best_step,
            "clock": vars(self.clock),
            "weights": self._weights(),
            "optimizer": self._optimizer.state_dict(),
            "scaler": self._scaler.state_dict(),
            "average": self._average.state_dict(),
            "anchors": self.task.anchor_state(),
        }
        save_state(self._folder / "state.pt", state, self._fingerprint())
        self._saved_at = time.monotonic()

    def _resume(self) -> None:
        state = load_state(self._folder / "state.pt", self._fingerprint(), self._device)
        if state is None:
            return
        self.step = state["step"]
        self.best_rsum, self.best_step = state["best_rsum"], state["best_step"]
        self.clock = Clock(**state["clock"])
        self.task.load_state_dict(state["weights"], strict=False)
        self._optimizer.load_state_dict(state["optimizer"])
        self._scaler.load_state_dict(state["scaler"])
        self._average.load_state_dict(state["average"])
        self.task.load_anchor_state(state["anchors"])

    def _load_best(self) -> None:
        weights = read_tensors(self._folder / "best.safetensors", self._device)
        self.task.load_state_dict(weights, strict=False)
        self.task.eval()

    def _fingerprint(self) -> str:
        content = f"{self._recipe!r}:{self._stage!r}:{self._batches.digest}"
        return hashlib.sha256(content.encode()).hexdigest()
