"""How long a build takes, by the stages that it reports."""

from __future__ import annotations

from typing import NamedTuple

from index.plan.constants import Constants
from index.plan.first_stage import FirstStage, build_s
from index.plan.second_stage import pack_s
from index.plan.sizes import IndexSizes
from index.plan.workload import Workload


class BuildTime(NamedTuple):
    """Seconds of a build.

    Attributes:
        begin_s: whatever the size.
        encode_s: to read, decode and encode the photos.
        pack_s: to bring their tokens into the stored form.
        write_s: to write everything, with checksums.
        first_stage_s: to train, fill and calibrate the first stage.
    """

    begin_s: float
    encode_s: float
    pack_s: float
    write_s: float
    first_stage_s: float

    @property
    def indexing_s(self) -> float:
        """Seconds of what follows the network: what `benchmarks.scale` measures."""
        return self.begin_s + self.pack_s + self.write_s + self.first_stage_s

    @property
    def total_s(self) -> float:
        """Seconds of all stages, one after the other."""
        return sum(self)


def build_time(
    workload: Workload, stage: FirstStage, sizes: IndexSizes, constants: Constants
) -> BuildTime:
    """Expect the times of a build.

    Encoding and packing are divided among the machines that build (``--part i/n``); one of them
    writes the whole and builds its first stage (``aladin index merge``), on all of its cores.
    """
    photos_per_s = workload.photos_per_s
    if photos_per_s is None:
        photos_per_s = workload.machine_cores / constants.encoding.photo_s
    threads = constants.machine.threads
    files = constants.files
    return BuildTime(
        begin_s=constants.process.building_s,
        encode_s=workload.items / photos_per_s / workload.build_machines,
        pack_s=pack_s(workload, constants.forms[workload.token_dtype]) / workload.build_machines,
        write_s=files.item_s * workload.items + files.byte_s * sizes.mapped,
        first_stage_s=build_s(stage, workload, constants.first_stage)
        * threads
        / workload.machine_cores,
    )
