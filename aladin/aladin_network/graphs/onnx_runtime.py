"""ONNX Runtime, the package that computes graphs on a CPU."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, cast

from numpy.typing import NDArray

from aladin_network.errors import CheckpointError
from aladin_network.graphs.files import GRAPHS, GraphForm
from aladin_network.types import Modality

ONNX_RUNTIME = "onnxruntime"
Arrays = Mapping[str, NDArray[Any]]


class Graph:
    """A graph that is ready to run; safe to use from any number of threads."""

    def __init__(self, path: Path, threads: int) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        # Planned as one piece for every shape of inputs, activations take twice the memory, 43 MB
        # instead of 25 for a photo of 384 pixels by MobileNetV2, and no less time.
        options.enable_mem_pattern = False
        # Threads that wait for the next batch would take the processors from all else.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        _share_arena()
        options.add_session_config_entry("session.use_env_allocators", "1")
        try:
            self._session = onnxruntime.InferenceSession(
                path, options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # the package has exceptions of its own
            reason = " ".join(str(error).split())
            raise CheckpointError(f"{path}: {ONNX_RUNTIME} cannot load it ({reason})") from error

    def run(self, inputs: Arrays, outputs: Sequence[str]) -> Sequence[NDArray[Any]]:
        """Compute outputs, on the caller's thread and others; the arrays belong to the caller."""
        return cast(Sequence[NDArray[Any]], self._session.run(outputs, dict(inputs)))

    @property
    def inputs(self) -> dict[str, tuple[str, list[int | str | None]]]:
        """Type and shape of each input by name; a size that may differ is no number."""
        return {
            each.name: (str(each.type), list(each.shape)) for each in self._session.get_inputs()
        }

    @property
    def outputs(self) -> list[str]:
        """Names of the outputs."""
        return [str(each.name) for each in self._session.get_outputs()]


@cache
def _share_arena() -> None:
    """Let all graphs of this process reuse the same memory, which grows by what they need.

    By itself each graph has an arena of its own, whose size doubles.
    """
    import onnxruntime

    ort: Any = onnxruntime  # these names have no types
    arena = ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR
    place = ort.OrtMemoryInfo("Cpu", arena, 0, ort.OrtMemType.DEFAULT)
    as_requested = 1
    ort.create_and_register_allocator(
        place, ort.OrtArenaCfg({"arena_extend_strategy": as_requested})
    )


class GraphSource:
    """The graphs of a checkpoint, each loaded when it is first asked for; thread-safe."""

    def __init__(self, checkpoint: Path, forms: Mapping[Modality, GraphForm]) -> None:
        self.forms = forms
        self._folder = checkpoint / GRAPHS
        self._opened: dict[tuple[Modality, int], Graph] = {}
        self._lock = threading.Lock()

    def get(self, modality: Modality, threads: int) -> Graph:
        key = modality, threads
        graph = self._opened.get(key)
        if graph is not None:
            return graph
        with self._lock:
            if key not in self._opened:
                self._opened[key] = Graph(self._folder / self.forms[modality].file, threads)
            return self._opened[key]
