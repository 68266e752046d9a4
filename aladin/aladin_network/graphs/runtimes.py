"""Packages that compute ONNX graphs on a CPU: ONNX Runtime and OpenVINO."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Protocol, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from aladin_network.errors import CheckpointError, ConfigError, missing_package
from aladin_network.graphs.files import OUTPUTS, graph_path
from aladin_network.inference import multiplies_bfloat16
from aladin_network.types import RUNTIMES, GraphRuntime, Modality, Precision

Arrays = Mapping[str, NDArray[Any]]


@runtime_checkable
class Graph(Protocol):
    """A graph that is ready to run; safe to use from any number of threads."""

    def run(self, inputs: Arrays) -> Sequence[NDArray[Any]]:
        """Compute the outputs `OUTPUTS`; the arrays belong to the caller."""
        ...


class OnnxRuntimeGraph:
    """A graph computed by ONNX Runtime.

    Attributes:
        PRECISIONS: What it computes in.
        PREPARES_SHAPES: Whether each new shape of its inputs takes time and memory.
    """

    PRECISIONS: ClassVar[tuple[Precision, ...]] = ("float32",)
    PREPARES_SHAPES: ClassVar[bool] = False

    def __init__(self, path: Path, threads: int, precision: Precision) -> None:  # noqa: ARG002
        """Load a graph; see `open_graph`."""
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
        self._session = onnxruntime.InferenceSession(
            path, options, providers=["CPUExecutionProvider"]
        )

    def run(self, inputs: Arrays) -> Sequence[NDArray[Any]]:
        """Compute the outputs on the caller's thread, and on others if there are several."""
        return cast(Sequence[NDArray[Any]], self._session.run(OUTPUTS, dict(inputs)))


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


class OpenVinoGraph:
    """A graph computed by OpenVINO.

    Attributes:
        PRECISIONS: What it computes in; in bfloat16 only if the processor multiplies it, else in
            float32 without a word.
        PREPARES_SHAPES: Whether each new shape of its inputs takes time and memory: some 8 ms and
            1 MB of a text graph.
    """

    PRECISIONS: ClassVar[tuple[Precision, ...]] = ("float32", "bfloat16")
    PREPARES_SHAPES: ClassVar[bool] = True

    def __init__(self, path: Path, threads: int, precision: Precision) -> None:
        """Load and compile a graph; see `open_graph`."""
        streams = max(1, (os.cpu_count() or 1) // threads)
        self._compiled: Any = _openvino().compile_model(
            path,
            "CPU",
            {
                # Its own default is the fastest precision of the processor.
                "INFERENCE_PRECISION_HINT": _HINTS[precision],
                "INFERENCE_NUM_THREADS": streams * threads,
                "NUM_STREAMS": streams,
                "ENABLE_CPU_PINNING": False,
            },
        )
        self._own = threading.local()

    def run(self, inputs: Arrays) -> Sequence[NDArray[Any]]:
        """Compute the outputs; each thread has its own request."""
        request = getattr(self._own, "request", None)
        if request is None:
            request = self._own.request = self._compiled.create_infer_request()
        found = request.infer(dict(inputs), share_inputs=True, share_outputs=True)
        # Copied: the next call of this thread overwrites them.
        return [np.array(found[name]) for name in OUTPUTS]


@cache
def _openvino() -> Any:
    """Return OpenVINO, which stays in memory until the process ends.

    It gives the thread that loads it a stack for signal handlers. Of several instances, the one
    that ends last may restore the stack of one that has ended before: the next signal with a
    handler would then end the process.
    """
    import openvino

    return openvino.Core()


_HINTS: Mapping[Precision, str] = {"float32": "f32", "bfloat16": "bf16"}
_KINDS: Mapping[GraphRuntime, type[OnnxRuntimeGraph | OpenVinoGraph]] = {
    "openvino": OpenVinoGraph,
    "onnxruntime": OnnxRuntimeGraph,
}


# Extras that install the packages.
_EXTRAS: Mapping[GraphRuntime, str] = {"openvino": "openvino", "onnxruntime": "onnx"}


def installed_runtimes() -> list[GraphRuntime]:
    """Return those of `RUNTIMES` whose package is installed, the default first."""
    return [name for name in RUNTIMES if find_spec(name) is not None]


def precisions_of(runtime: GraphRuntime) -> list[Precision]:
    """Return what a runtime computes in on this processor, float32 first."""
    reduced = multiplies_bfloat16()
    return [each for each in _KINDS[runtime].PRECISIONS if each == "float32" or reduced]


def check_installed(runtime: GraphRuntime) -> None:
    """Refuse a runtime whose package is not installed.

    Raises:
        ConfigError: If it is not.
    """
    if find_spec(runtime) is None:
        raise ConfigError(missing_package("this runtime", runtime, _EXTRAS[runtime]))


def open_graph(
    path: Path, runtime: GraphRuntime, threads: int, precision: Precision = "float32"
) -> Graph:
    """Load a graph.

    Args:
        path: File of the graph.
        runtime: Package that computes it, which is installed.
        threads: Number of threads that compute one batch.
        precision: Precision of the arithmetic; inputs and outputs are float32.

    Raises:
        CheckpointError: If the package cannot load the graph.
    """
    try:
        return _KINDS[runtime](path, threads, precision)
    except Exception as error:  # each package has its own exceptions
        reason = " ".join(str(error).split())
        raise CheckpointError(f"{path}: {runtime} cannot load it ({reason})") from error


class GraphSource:
    """The graphs of a checkpoint, each loaded when it is first asked for; thread-safe.

    Attributes:
        runtime: Package that computes the graphs.
        prepares_shapes: Whether each new shape of inputs takes the runtime time and memory.
    """

    def __init__(self, checkpoint: Path, runtime: GraphRuntime) -> None:
        """Load nothing yet.

        Args:
            checkpoint: Folder of the checkpoint.
            runtime: Package that computes the graphs, which is installed.
        """
        self._checkpoint = checkpoint
        self.runtime: GraphRuntime = runtime
        self.prepares_shapes = _KINDS[runtime].PREPARES_SHAPES
        self._opened: dict[tuple[Modality, Precision, int], Graph] = {}
        self._lock = threading.Lock()

    def get(self, modality: Modality, precision: Precision, threads: int) -> Graph:
        """Return a graph.

        Args:
            modality: Tower.
            precision: Precision that the runtime has here.
            threads: Number of threads that compute a batch.

        Raises:
            CheckpointError: If the package cannot load the graph.
        """
        key = modality, precision, threads
        graph = self._opened.get(key)
        if graph is not None:
            return graph
        with self._lock:
            if key not in self._opened:
                path = graph_path(self._checkpoint, modality)
                self._opened[key] = open_graph(path, self.runtime, threads, precision)
            return self._opened[key]

    def by(self, runtime: GraphRuntime) -> GraphSource:
        """Return the same graphs, computed by a package that is installed."""
        return self if runtime == self.runtime else GraphSource(self._checkpoint, runtime)
