"""Duration and memory of each recipe's training step, beside the baseline's.

Each recipe is measured against the baseline in one process, in alternating steps: other load on
the machine slows both alike, so the ratio is reliable even if the milliseconds are not.
"""

from __future__ import annotations

import copy
import hashlib
import itertools
import json
import logging
import statistics
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch

from aladin_network.checkpoint_files import Checkpoint, Provenance, config_file_of
from aladin_network.config import dump_config
from aladin_network.errors import AladinError
from aladin_network.files import write_json
from aladin_network.model import AladinModel
from aladin_network.scoring.fusion import DirectionFusion, Fusion
from aladin_network.types import NullProgress, Progress
from aladin_training.batches.batch import Batch
from aladin_training.batches.dataset import PairDataset, TrainingSet
from aladin_training.batches.offline_negatives import MinedFrom, OfflineNegatives
from aladin_training.comparison.peak_memory import peak_bytes
from aladin_training.config.recipe import Recipe
from aladin_training.config.stage import OfflineNegativesConfig
from aladin_training.loop import StageTrainer
from aladin_training.parallel.threads import torch_threads
from aladin_training.stages.preparation import prepare_run
from aladin_training.stages.setup import set_up_stage

# Both scores contribute, as in a fitted fusion.
_HALF = DirectionFusion(weight=0.5)

logger = logging.getLogger(__name__)

ROUNDS = 30
_WARM_UP = 3


class RandomSources:
    """Stands in for earlier stages: copies of the network itself, and random lists of negatives.

    A training step takes as long with these as with the real ones.
    """

    def __init__(self, model: AladinModel, train_set: TrainingSet) -> None:
        self._model = model
        self._train_set = train_set

    def checkpoint(self, stage: str) -> Checkpoint[AladinModel]:
        """Return a copy of the network."""
        fusion = Fusion(text_to_image=_HALF, image_to_text=_HALF)
        model = copy.deepcopy(self._model)
        return Checkpoint(model, config_file_of(model, fusion, Provenance(stage=stage)), "random")

    def negatives(self, config: OfflineNegativesConfig) -> OfflineNegatives:
        """Return lists of random captions and photos, never a photo's own captions."""
        pairs = cast(PairDataset, self._train_set)  # recipes refuse to mine a stream
        captions_of_photo = pairs.captions_of_photo
        n_photos = len(captions_of_photo)
        first_captions = torch.tensor([captions[0] for captions in captions_of_photo])
        generator = torch.Generator().manual_seed(0)

        def other_photos(photos: torch.Tensor, count: int) -> torch.Tensor:
            steps = torch.randint(1, n_photos, (len(photos), count), generator=generator)
            return (photos.unsqueeze(1) + steps) % n_photos  # (len(photos), count)

        of_photos = other_photos(torch.arange(n_photos), config.num_texts)
        of_captions = other_photos(pairs.image_of_text, config.num_images)
        mined_from = MinedFrom(data=pairs.digest, model_id=None, score=config.score)
        return OfflineNegatives(first_captions[of_photos].int(), of_captions.int(), mined_from)


class StepTime(NamedTuple):
    """Duration of a recipe's training step, measured alternately with the baseline's.

    A step includes its batch, forward and backward pass, and the optimizer.
    """

    ms: float
    baseline_ms: float
    ratio: float
    peak_bytes: int | None = None


def measure_step_times(
    recipes: Sequence[Recipe],
    baseline: Recipe,
    rounds: int = ROUNDS,
    progress: Progress | None = None,
) -> dict[str, StepTime]:
    """Measure a training step of the final stage of each recipe, with random weights."""
    progress = progress or NullProgress()
    progress.start(len(recipes), "step times")
    times: dict[str, StepTime] = {}
    with torch_threads(baseline.threads), closing(_Steps(baseline)) as their_step:
        for recipe in recipes:
            try:
                with closing(_Steps(recipe)) as step:
                    time = _in_turn(step, their_step, rounds)
                    times[recipe.name] = time._replace(peak_bytes=step.peak_bytes())
            except AladinError as error:
                logger.warning("%s: step time not measured: %s", recipe.name, error)
            progress.advance()
    return times


def _in_turn(our_step: Callable[[], None], their_step: Callable[[], None], rounds: int) -> StepTime:
    ours: list[float] = []
    theirs: list[float] = []
    for turn in range(-_WARM_UP, rounds):
        # The second of a pair benefits from warmer caches, so the order alternates.
        pair = [(our_step, ours), (their_step, theirs)]
        for step, seconds in pair if turn % 2 else reversed(pair):
            begun = time.perf_counter()
            step()
            if turn >= 0:
                seconds.append(time.perf_counter() - begun)
    return StepTime(
        ms=1000 * statistics.median(ours),
        baseline_ms=1000 * statistics.median(theirs),
        ratio=statistics.median(our / their for our, their in zip(ours, theirs, strict=True)),
    )


class _Steps:
    """The training steps of a recipe's final stage; a call takes the next one."""

    def __init__(self, recipe: Recipe) -> None:
        prepared = prepare_run(recipe, NullProgress())
        sources = RandomSources(prepared.model, prepared.train_set)
        with tempfile.TemporaryDirectory() as scratch:  # nothing is written before `run`
            self._trainer = set_up_stage(
                recipe, recipe.final_stage, prepared, Path(scratch), sources, NullProgress()
            )
        self._trainer.start_epoch(0)
        self._device = next(prepared.model.parameters()).device
        self._batches = _all_batches(self._trainer)

    def __call__(self) -> None:
        """Take a step."""
        self._trainer.train_step(next(self._batches))
        if self._device.type == "cuda":
            torch.cuda.synchronize()

    def peak_bytes(self) -> int:
        """Take a step, and return the memory that it allocated at its most, beyond its batch."""
        self._trainer.task.zero_grad(set_to_none=True)  # the last step's gradients
        batch = next(self._batches)
        return peak_bytes(lambda: self._trainer.train_step(batch), self._device)

    def close(self) -> None:
        """End the threads that prepare batches."""
        self._batches.close()


def _all_batches(trainer: StageTrainer) -> Generator[Batch]:
    """Yield the batches of one epoch after another."""
    for epoch in itertools.count():
        yield from trainer.epoch(epoch)


def load_step_times(file: Path, recipes: Sequence[Recipe], baseline: Recipe) -> dict[str, StepTime]:
    """Read what has been measured of exactly these recipes."""
    if not file.exists():
        return {}
    stored: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return {
        recipe.name: StepTime(**stored[key]["time"])
        for recipe in recipes
        if (key := _key(recipe, baseline)) in stored
    }


def save_step_times(
    file: Path, times: dict[str, StepTime], recipes: Sequence[Recipe], baseline: Recipe
) -> None:
    """Write times, keyed by everything that they depend on."""
    stored = {
        _key(recipe, baseline): {"recipe": recipe.name, "time": times[recipe.name]._asdict()}
        for recipe in recipes
        if recipe.name in times
    }
    write_json(file, stored)


def _key(recipe: Recipe, baseline: Recipe) -> str:
    content = json.dumps([dump_config(recipe), dump_config(baseline)], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:16]
