# SPDX-License-Identifier: Apache-2.0
"""Identifiers use the terms of docs/vocabulary.md, and none of the words that the terms replaced."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCES = [p for folder in ("cpp", "cuda", "tests/cpp") for p in sorted((ROOT / folder).rglob("*.*"))]
REPLACED = {
    "CarefulSum": "CompensatedSum",
    "Divisor": "FastDivmod",
    "GemmEnding": "EpilogueTraits",
    "GemmFinish": "Epilogue",
    "GemmDigits": "GemmCoordinates",
    "GemmSmallDigits": "GemmCoordinates32",
    "SimtDigits": "GemmCoordinates32",
    "AddParts": "SplitKReduce",
    "Relaid": "OperandRelayout",
    "in_lines": "fits_tma",
    "in_order": "tma_layout",
    "ConvSide": "ConvTensorView",
    "Odometer": "NdIterator",
    "Square": "TransposeTile",
    "past_caches": "non_temporal",
    "read_run": "read_span",
    "write_run": "write_span",
    "copy_run": "copy_span",
    "kRoom": "kCapacity",
    "streams_end": "store_fence",
    "over_lanes": "reduce_lanes",
    "sum_of_lanes": "sum_lanes",
    "survey": "evaluate_engines",
    "may_meet": "may_overlap",
    "Solo": "SingleThread",
    "BlockTeam": "BlockReduce",
    "SoftmaxCut": "SoftmaxTiling",
    "PointwiseWalk": "PointwiseIndexing",
    "MaskWalk": "RowLayout",
    "Spot": "VecCoord",
    "WalkRoom": "SmemLayout",
    "NormWalk": "SlidingWindowParams",
    "WalkCut": "SlidingWindowTiling",
    "NormSplit": "ChannelTiling",
    "NormResident": "PersistentTiling",
    "NormLongRows": "TwoPassTiling",
    "NormAcross": "CrossChannelParams",
    "kCareful": "kPromote",
    "sm90_turn": "sm90_transpose",
    "sixteen_bits": "approx_16bit",
    "copy_async": "cp_async",
    "commit_copies": "cp_async_commit_group",
    "wait_copies": "cp_async_wait_group",
    "address_in_block": "mapa",
    "store_to_block": "st_cluster",
    "send_to_block": "st_async_cluster",
    "give_to_blocks": "cluster_all_gather",
    "let_next_grid_start": "griddep_launch_dependents",
    "wait_for_grid_before": "griddep_wait",
    "barrier_expect": "mbarrier_arrive_expect_tx",
    "copy_engine_fence": "fence_proxy_async",
    "load_box": "tma_load",
    "give_registers": "setmaxnreg_dec",
    "take_registers": "setmaxnreg_inc",
    "wgmma_pin": "warpgroup_fence_operand",
    "wgmma_matrix": "make_smem_descriptor",
    "store_sixteen": "st_global_v4",
    "shared_address": "cvta_to_shared",
    "run_pieces": "run_chunks",
    "pieces_of": "chunks_of",
    "take_pieces": "take_chunks",
    "kPieces": "kCoefficients",
    "PackedSolo": "PackedSingleThread",
    "kCachedShare": "kCachedFraction",
    "of_turns": "sine_and_cosine",
}


@pytest.mark.parametrize("path", [p for p in SOURCES if p.suffix in (".h", ".cpp", ".cu", ".cuh")], ids=str)
def test_identifiers_have_the_terms_of_the_field(path: Path) -> None:
    code = re.sub(r'//.*|"(?:[^"\\\n]|\\.)*"', "", path.read_text())
    for word in REPLACED.keys() & set(re.findall(r"\w+", code)):
        pytest.fail(f"{word} is called {REPLACED[word]} (docs/vocabulary.md)")
