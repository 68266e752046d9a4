"""What an objective encodes besides its batch shows in the memory of its step."""

from __future__ import annotations

import torch

from aladin_training.losses import LOSSES
from benchmarks.training.objective_memory import OBJECTIVES, measure


def test_every_loss_is_measured() -> None:
    losses = {task.loss for each in OBJECTIVES.values() for task in each.tasks.values()}
    assert losses == set(LOSSES)


def test_more_encoded_batches_take_more_memory() -> None:
    names = [
        "mh",
        "imc-l1",
        "aladin-a-ft",
        "aoq-triplet",
        "aoq-quintuplet",
        "oas-rm",
        "oss-rm",
        "mss-dino-star",
    ]
    rows = measure(names, batch_size=3, rounds=1, device=torch.device("cpu"))
    assert [row["objective"] for row in rows] == names
    memory = {row["objective"]: row["memory_ratio"] for row in rows}
    assert memory["mh"] == 1
    # Gradients of as many weights count on both sides, so that twice the graph is not twice all.
    assert memory["oss-rm"] > 1.5
    assert memory["aoq-quintuplet"] > memory["aoq-triplet"] > 1.1
    assert memory["oas-rm"] < memory["oss-rm"]
    loss = {row["objective"]: row["loss_bytes"] for row in rows}
    # Gradients of 2 x 3 embeddings of 192 numbers; cosines of all words and regions.
    assert loss["imc-l1"] > loss["mh"] + 2 * 3 * 192 * 4
    assert loss["aladin-a-ft"] > loss["mh"] + 3 * 18 * 3 * 16 * 4
