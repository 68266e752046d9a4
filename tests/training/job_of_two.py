"""Two processes take steps together: what `test_distributed.py` starts, with torch imported once.

    python -m tests.training.job_of_two PORT OUT

Each writes its loss and gradients for every kind of task.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch

from tests.training.step_cases import CASES, PHOTOS, batch_of, gradients, task_of
from training import distributed
from training.collectives import copy_from_first
from training.precision import loss_scaler
from training.step import compute_gradients

CHUNK_SIZE = 2


def take_steps(out: Path) -> None:
    """Take a step of every kind, and ask what else processes agree on."""
    plain = loss_scaler("float32", torch.device("cpu"))
    with distributed.joined_job():
        own = distributed.own_share()
        steps: dict[str, dict[str, torch.Tensor]] = {}
        for kind, case in CASES.items():
            for chunk_size in CHUNKS:
                task = task_of(case)
                report = compute_gradients(task, batch_of(case, own), "float32", chunk_size, plain)
                both[f"{kind}, {chunk_size}"] = gradients(task) | {"loss": report.total.detach()}
        module = torch.nn.BatchNorm1d(3)
        torch.nn.init.constant_(module.weight, 5.0 + own.rank)
        copy_from_first(module)
        facts = {
            "agreed": torch.tensor(distributed.agreed(own.rank + 10)),
            "copied": module.weight.detach(),
            "refused": torch.tensor(_refuses_odd_batches()),
        }
    torch.save({"steps": steps, "facts": facts}, out / f"{own.rank}.pt")


def _refuses_odd_batches() -> bool:
    distributed.check_divides(PHOTOS)
    try:
        distributed.check_divides(PHOTOS + 1)
    except distributed.ConfigError as error:
        return "cannot be shared evenly by 2 processes" in str(error)
    return False


def main(port: str, out: Path) -> int:
    """Fork before anything has started a thread; return the exit code."""
    torch.set_num_threads(1)
    os.environ |= {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    child = os.fork()
    os.environ["RANK"] = os.environ["LOCAL_RANK"] = "1" if child == 0 else "0"
    take_steps(out)
    return 0 if child == 0 else os.waitpid(child, 0)[1]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
