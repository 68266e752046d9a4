"""Two real processes with half of the batch each find what one finds with the whole."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from aladin_training.parallel import distributed
from aladin_training.parallel.numerics import loss_scaler
from aladin_training.step import compute_gradients
from tests.training.job_of_two import CHUNK_SIZE
from tests.training.step_cases import CASES, batch_of, gradients, task_of

UNSCALED = loss_scaler("float32", torch.device("cpu"))
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What the two processes of `job_of_two.py` found."""
    out = tmp_path_factory.mktemp("job")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "tests.training.job_of_two", str(port), str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return [
        torch.load(out / f"{rank}.pt") | {"end": (out / f"{rank}.txt").read_text()}
        for rank in range(2)
    ]


@pytest.mark.parametrize("kind", sorted(CASES))
def test_loss_and_gradients_are_those_of_one_process(
    kind: str, found: list[dict[str, Any]]
) -> None:
    """All encode in chunks: `test_step.py` shows that of one process.

    In chunks of another size a word may round nearer to another region, which moves the shares.
    """
    task = task_of(CASES[kind])
    batch = batch_of(CASES[kind])
    report = compute_gradients(task, batch, "float32", CHUNK_SIZE, UNSCALED, measure_shares=True)
    shares = torch.tensor(list(report.shares.values()))
    alone = gradients(task) | {"loss": report.total.detach(), "shares": shares}
    for process in found:
        steps = process["steps"][kind]
        assert steps.keys() == alone.keys()
        for name, value in alone.items():
            torch.testing.assert_close(steps[name], value, rtol=1e-5, atol=1e-5, msg=name)
            assert name == "loss" or torch.equal(steps[name], found[0]["steps"][kind][name])


def test_the_first_process_s_word_counts(found: list[dict[str, Any]]) -> None:
    for process in found:
        facts = process["facts"]
        assert facts["agreed"] == 10
        assert facts["copied"] == [5.0] * 3
        assert facts["refused"]


def test_a_process_that_fails_ends_the_others_and_says_why_alone(
    found: list[dict[str, Any]],
) -> None:
    assert found[0]["end"].startswith("ReportedElsewhereError: ")
    assert found[1]["end"] == "DataError: captions.jsonl:3: cannot be read"


def test_one_process_is_the_plain_case() -> None:
    assert distributed.world_size() == 1
    assert distributed.is_main_process()
    assert distributed.broadcast_value("x") == "x"
    distributed.wait_for_all()
    distributed.check_even_shares(7)
    with distributed.distributed_job(), distributed.main_process_first():
        assert distributed.own_share() == distributed.BatchShare(rank=0, world=1)
