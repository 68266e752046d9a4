"""The processor time of processes, which other programs do not lengthen."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from benchmarks.lib.processes import processor_time_s

WORKER = """
import threading, time
def work():
    while time.thread_time() < 0.1: pass
thread = threading.Thread(target=work); thread.start(); thread.join()
print(flush=True)
input()
"""


def test_it_counts_threads_that_have_ended_and_no_waiting() -> None:
    before_s = time.process_time()
    own_s = processor_time_s([os.getpid()])
    assert before_s <= own_s <= time.process_time()
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert worker.stdout is not None
    worker.stdout.readline()
    first_s = processor_time_s([worker.pid])
    assert first_s >= 0.1
    time.sleep(0.05)
    both_s = processor_time_s([worker.pid, os.getpid()])
    assert both_s == pytest.approx(first_s + processor_time_s([os.getpid()]), abs=0.02)
    worker.communicate(b"\n")
    with pytest.raises(OSError):
        processor_time_s([worker.pid])
