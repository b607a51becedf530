"""The records that come with the package: whole, verified, and counted as the model counts."""

from __future__ import annotations

import pytest

from gemmsim.device import device
from gemmsim.gpu.counters import METRICS
from gemmsim.gpu.verify import TOLERANCE
from gemmsim.kernels import KERNELS
from gemmsim.occupancy import occupancy
from gemmsim.record_files import latest, read_records, shipped_records
from gemmsim.records import Record
from gemmsim.traffic import block_reads, traffic


@pytest.fixture(scope="module")
def records() -> list[Record]:
    found, warnings = read_records(shipped_records())
    assert warnings == []
    return found


def test_they_are_one_campaign_of_all_kernels(records):
    assert len(records) == 250
    assert latest(records) == records  # no point twice
    assert {record.point.kernel for record in records} == set(KERNELS)
    assert {record.device for record in records} == {"h200"}
    for name in ("gpu", "driver", "compiler", "l2_flushed"):
        assert len({record.environment[name] for record in records}) == 1, name


def test_every_result_was_verified(records):
    for record in records:
        assert record.ok
        assert record.verification_error is not None
        assert record.verification_error <= TOLERANCE


def test_the_drivers_occupancy_is_ours(records):
    for record in records:
        resources = record.resources
        assert resources is not None
        ours = occupancy(
            device(record.device).capability,
            record.point.tiling.threads,
            resources["registers_per_thread"],
            dynamic_shared_bytes=resources["shared_bytes"],
        )
        assert resources["blocks_per_sm"] == ours.blocks_per_sm, record.point


def test_every_counter_is_there(records):
    for record in records:
        assert record.counters is not None
        assert set(record.counters) == set(METRICS)


def test_the_hardware_settles_no_load_that_the_instructions_do_not_count(records):
    for record in records:
        assert record.counters is not None
        assert record.counters["global_load_instructions"] == record.counters["global_load_requests"], record.point


def test_blocks_share_fetches_through_l1_as_the_theory_says(records):
    ratios = [32 * r.counters["l2_read_sectors"] / (4 * block_reads(r.point.problem, r.point.tiling)) for r in records]
    assert min(ratios) == pytest.approx(1 / 3, abs=0.02)


def test_the_model_counts_as_the_hardware_does(records):
    for record in records:
        assert record.counters is not None
        point = record.point
        ours = traffic(point.problem, KERNELS[point.kernel], point.tiling).counters
        assert len(ours) == 9
        assert {name: record.counters[name] for name in ours} == ours, point
