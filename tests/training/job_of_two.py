"""Two processes take steps together: what `test_distributed.py` starts, with torch imported once.

    python -m tests.training.job_of_two PORT OUT

Each writes its loss, gradients and shares for every kind of task; then the second one fails.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch

from aladin_network.errors import AladinError, ConfigError, DataError
from aladin_training.parallel import distributed
from aladin_training.parallel.distributed import broadcast_weights
from aladin_training.parallel.numerics import loss_scaler
from aladin_training.step import compute_gradients
from tests.training.step_cases import CASES, PHOTOS, batch_of, gradients, task_of

CHUNK_SIZE = 2


def take_steps(own: distributed.BatchShare, out: Path) -> None:
    """Take a step of every kind, ask what else processes agree on, and let one of them fail."""
    plain = loss_scaler("float32", torch.device("cpu"))
    with distributed.distributed_job():
        assert distributed.own_share() == own
        steps: dict[str, dict[str, torch.Tensor]] = {}
        for kind, case in CASES.items():
            task = task_of(case)
            report = compute_gradients(
                task, batch_of(case, own), "float32", CHUNK_SIZE, plain, measure_shares=True
            )
            shares = torch.tensor(list(report.shares.values()))
            steps[kind] = gradients(task) | {"loss": report.total.detach(), "shares": shares}
        module = torch.nn.BatchNorm1d(3)
        torch.nn.init.constant_(module.weight, 5.0 + own.rank)
        broadcast_weights(module)
        facts = {
            "agreed": distributed.broadcast_value(own.rank + 10),
            "copied": module.weight.tolist(),
            "refused": _refuses_odd_batches(),
        }
        torch.save({"steps": steps, "facts": facts}, out / f"{own.rank}.pt")
        if own.rank == 1:
            raise DataError("captions.jsonl", 3, "cannot be read")
        distributed.wait_for_all()


def _refuses_odd_batches() -> bool:
    distributed.check_even_shares(PHOTOS)
    try:
        distributed.check_even_shares(PHOTOS + 1)
    except ConfigError as error:
        return "cannot be shared evenly by 2 processes" in str(error)
    return False


def main(port: str, out: Path) -> None:
    """Fork before anything has started a thread, and say how each process ended."""
    torch.set_num_threads(1)
    task_of(CASES["alignment"])  # imports what networks are made with, once for both
    os.environ |= {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    child = os.fork()
    own = distributed.BatchShare(rank=1 if child == 0 else 0, world=2)
    os.environ["RANK"] = os.environ["LOCAL_RANK"] = str(own.rank)
    try:
        take_steps(own, out)
    except AladinError as error:
        (out / f"{own.rank}.txt").write_text(f"{type(error).__name__}: {error}")
    if child:
        os.waitpid(child, 0)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
