"""Constants that are easily added up by hand."""

import pytest

from aladin_index.capacity.constants import (
    SCHEMA_VERSION,
    Constants,
    EncodingConstants,
    EngineConstants,
    FileConstants,
    FirstStageConstants,
    FormConstants,
    Machine,
    ProcessConstants,
    SearchConstants,
    SearchWidth,
)
from aladin_network.types import TOKEN_DTYPES


@pytest.fixture
def machine() -> Machine:
    return Machine(processor="one of these", cores=2, threads=2, memory_bytes=2**34)


@pytest.fixture
def constants(machine: Machine) -> Constants:
    """Every unit of work has a cost of its own."""
    return Constants(
        schema_version=SCHEMA_VERSION,
        command="by hand",
        measured_on="2026-11-22",
        machine=machine,
        process=ProcessConstants(
            serving_bytes=5 * 10**8, building_bytes=7 * 10**8, building_s=0.25
        ),
        files=FileConstants(item_bytes=250.0, item_s=1e-5, byte_s=1e-9),
        first_stage=FirstStageConstants(
            flat_s=[(1e6, 1e-5), (1e7, 2e-4), (5e7, 2e-3)],
            coarse_s=1e-10,
            scan_s=1e-5,
            list_s=2e-7,
            code_byte_s=5e-11,
            row_s=1e-7,
            train_s=1e-10,
            train_fixed_s=3e-7,
            assign_s=2e-11,
            encode_s=4e-9,
            calibrate_s=5e-9,
            widths=[
                SearchWidth(items=100_000, lists=256, width=25, oversample=2, skew=1.2),
                SearchWidth(items=400_000, lists=512, width=40, oversample=3, skew=1.4),
            ],
        ),
        forms={
            dtype: FormConstants(pack_s=1e-8, value_s=2e-10, score_s=1e-11)
            for dtype in TOKEN_DTYPES
        },
        search=SearchConstants(around_s=2e-4, spread=1.2, page_s=1e-4),
        encoding=EncodingConstants(network="one", photo_s=0.02, text_s=0.01),
        engine=EngineConstants(
            engine="one server",
            items=100_000,
            index="HNSW",
            call_s=0.004,
            segment_s=0.0005,
            spread=1.5,
            byte_s=5e-9,
            token_expansion=4 / 3,
            vector_overhead_bytes=280.0,
            item_bytes=700.0,
            insert_byte_s=5e-8,
            index_s=5e-4,
        ),
    )
