# SPDX-License-Identifier: Apache-2.0
"""The choice of engines, and what a user can see of it: explain, find, the tuning file, algo, limits and the log."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from cases import FAMILIES

import pyminidnn as dnn

X = np.random.default_rng(0).normal(size=(4, 8, 9, 9)).astype("float32")
W = np.random.default_rng(1).normal(size=(6, 8, 3, 3)).astype("float32")
PARAMETERS = np.ones(8, "float32")
CTC_TARGETS = np.ones((9, 2), "int64"), np.full(9, 8), np.full(9, 2)  # of x [8, 9, 9]
RECURRENT = [np.ones((9, 9), "float32")] * 2  # w_ih and w_hh

# For each family of functions, one call for each of its problem types. Tests may add keywords such as algo to a call.
CALLS: dict[str, list[Callable[..., object]]] = {
    "conv": [
        lambda x, **o: dnn.conv_forward(x, W, padding=1, **o),
        lambda x, **o: dnn.conv_forward_statistics(x, W, **o),
    ],
    "matmul": [lambda x, **o: dnn.matmul(x, x, **o)],
    "attention": [lambda x, **o: dnn.attention_forward(x, x, x, **o)],
    "rnn": [lambda x, **o: dnn.rnn_forward(x[0], RECURRENT, mode="relu", hidden_size=9, bias=False, **o)],
    "pooling": [lambda x, **o: dnn.pool_forward(x, 3, **o)],
    "softmax": [lambda x, **o: dnn.softmax_forward(x, **o)],
    "loss": [lambda x, **o: dnn.cross_entropy_forward(x, np.zeros((4, 9, 9), "int64"), **o)],
    "ctc": [lambda x, **o: dnn.ctc_loss_forward(x[0], *CTC_TARGETS, **o)],
    "batch_norm": [lambda x, **o: dnn.batch_norm_forward_training(x, PARAMETERS, PARAMETERS, **o)],
    "layer_norm": [lambda x, **o: dnn.layer_norm_forward(x, **o)],
    "lrn": [lambda x, **o: dnn.lrn_forward(x, 5, **o)],
    "activation": [lambda x, **o: dnn.activation_forward(x, "relu", **o)],
    "pointwise": [lambda x, **o: dnn.add(x, x, **o)],
    "random": [lambda x, **o: dnn.dropout_forward(x, 0.5, seed=1, **o)],
    "transform": [
        lambda x, **o: dnn.transform(x, layout="NHWC", **o),
    ],
    "pad": [lambda x, **o: dnn.pad(x, 1, **o)],
    "gather": [lambda x, **o: dnn.gather(x, on(x.device, np.zeros(2, "int64")), **o)],
    "reduce": [lambda x, **o: dnn.reduce(x, "sum", axis=1, **o)],
}


def on(device: str, values: np.ndarray = X) -> dnn.DeviceTensor:
    return dnn.asarray(values, device=device)


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs the code in another process with another environment and the same packages."""
    paths = os.pathsep.join(p for p in sys.path if p)
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": paths, **environment},
        capture_output=True,
        text=True,
    )


def test_explain_reports_every_family(device: str) -> None:
    assert set(CALLS) == set(FAMILIES)
    for family, calls in CALLS.items():
        reports = [report for call in calls for report in dnn.explain(call, on(device))]
        assert len(reports) == len(calls)
        assert [e.name for report in reports for e in report.engines] == dnn.engines(family, device)
        for report in reports:
            assert report.family == family
            assert report.device == device
            assert report.chosen in [e.name for e in report.engines if not e.why_not]
            text = str(report)
            assert f"\n* {report.chosen} " in text and text.startswith(f"{report.problem} on {device}\n")
            assert f"<b>{report.chosen}</b>" in report._repr_html_() and text in str(reports)
            for engine in report.engines:
                assert engine.name in text
                assert bool(engine.why_not) != (engine.estimate_us > 0)


def test_explain_and_find_run_nothing(device: str) -> None:
    out = dnn.full(X.shape, 7.0, device=device)
    mean, var = dnn.zeros((8,), device=device), dnn.full((8,), 1.0, device=device)
    for look in (dnn.explain, dnn.find):
        look(dnn.activation_forward, on(device), "relu", out=out)
        look(dnn.batch_norm_forward_training, on(device), PARAMETERS, PARAMETERS, running_mean=mean, running_var=var)
    assert (out.numpy() == 7).all()
    assert (mean.numpy() == 0).all()
    assert (var.numpy() == 1).all()


def test_find_measures_all_and_chooses_the_fastest(device: str) -> None:
    (report,) = dnn.find(CALLS["conv"][0], on(device))
    able = [e for e in report.engines if not e.why_not]
    assert len(able) >= 2
    assert report.chosen == min(able, key=lambda e: e.measured_us).name
    (again,) = dnn.explain(CALLS["conv"][0], on(device))
    assert again.chosen == report.chosen
    assert f"{again.engines[0].estimate_us:.4g}" in str(again)


def test_find_chooses_by_measured_times() -> None:
    """The estimates name a slower engine than the fastest for at least one of several problems."""
    for channels, filters, side in itertools.product((3, 8, 32), (4, 16, 32), (7, 14, 28)):
        x, w = np.ones((3, channels, side, side), "float32"), np.ones((filters, channels, 3, 3), "float32")
        estimated = dnn.explain(dnn.conv_forward, x, w)[0].chosen
        (report,) = dnn.find(dnn.conv_forward, x, w)
        able = [e for e in report.engines if not e.why_not]
        assert report.chosen == min(able, key=lambda e: e.measured_us).name
        if report.chosen != estimated:
            return
    raise AssertionError("each estimate named the fastest engine")


FIND = """
import numpy as np, pyminidnn as dnn
(report,) = dnn.{how}(dnn.softmax_forward, np.ones((3, 5), "float32"))
print(report.chosen, [e.measured_us > 0 for e in report.engines if e.name == report.chosen])
"""


def test_the_next_process_uses_the_tuning_file(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    folder = {"PYMINIDNN_CACHE_DIR": str(tmp_path)}
    chosen, measured = run_python(FIND.format(how="find"), **folder).stdout.split()
    assert chosen in dnn.engines("softmax", "cpu") and measured == "[True]"
    (line,) = (tmp_path / "tuning.txt").read_text().splitlines()
    assert line.split("\t")[1:4] == ["softmax forward f32 x=3x5 axis=1", chosen, "1"]
    assert run_python(FIND.format(how="explain"), **folder).stdout == f"{chosen} [True]\n"
    # The library ignores incomplete lines of a tuning file. It also ignores lines of another format, or of another
    # revision of the engine.
    (tmp_path / "tuning.txt").write_text("torn\t\n" + line.replace("\t1\t", "\t99\t") + "\n\x00\xff\n")
    assert run_python(FIND.format(how="explain"), **folder).stdout.split()[1] == "[False]"


@pytest.mark.parametrize("algo", ["direct", "im2col_gemm"])
def test_algo_accepts_short_and_full_engine_names(algo: str, device: str) -> None:
    full = f"{device.partition(':')[0]}.conv.{algo}"
    for name in (algo, full):
        (report,) = dnn.explain(dnn.conv_forward, on(device), W, algo=name)
        assert report.chosen == full
    default = dnn.conv_forward(on(device), W)
    np.testing.assert_allclose(dnn.conv_forward(on(device), W, algo=algo).numpy(), default.numpy(), atol=1e-4)


@pytest.mark.parametrize("family", CALLS)
def test_algo_ignores_engines_whose_names_merely_end_with_it(family: str, device: str) -> None:
    """The name cuda.conv.wgmma ends with "mma", which names another engine."""
    for call in CALLS[family]:
        for engine in dnn.explain(call, on(device))[0].engines:
            if engine.why_not:
                continue
            last = engine.name.rpartition(".")[2]
            engines = dnn.explain(call, on(device), algo=last)[0].engines
            named = [e.name for e in engines if "selects another engine" not in e.why_not]
            assert named == [e.name for e in engines if e.name.rpartition(".")[2] == last]


def test_an_unknown_algo_lists_the_engines(device: str) -> None:
    (report,) = dnn.explain(dnn.conv_forward, on(device), W)
    with pytest.raises(dnn.NotSupported) as caught:
        dnn.conv_forward(on(device), W, algo="fft")
    there_are = f"the engines are {', '.join(e.name for e in report.engines)}"
    assert (
        str(caught.value) == f"conv_forward: algo='fft' names no engine for {report.problem} on {device}; {there_are}"
    )
    with pytest.raises(
        dnn.NotSupported,
        match="algo='dirct:x=1' names no engine for .*; near ones: direct, direct_nchw; the engines are",
    ):
        dnn.conv_forward(on(device), W, algo="dirct:x=1")
    # "gemm" is only the end of several names of engines, such as im2col_gemm. So it names no engine.
    with pytest.raises(dnn.NotSupported, match="algo='gemm' names no engine for "):
        dnn.conv_forward(on(device), W, algo="gemm")


def test_algo_may_name_a_config(device: str) -> None:
    (report,) = dnn.explain(dnn.conv_forward, on(device), W, algo="im2col_gemm")
    (engine,) = (e for e in report.engines if not e.why_not)
    assert engine.config == engine.configs[0]
    for config in engine.configs:
        (report,) = dnn.explain(dnn.conv_forward, on(device), W, algo=f"im2col_gemm:{config}")
        assert [e.config for e in report.engines if not e.why_not] == [config]
        dnn.conv_forward(on(device), W, algo=f"{engine.name}:{config}")
    with pytest.raises(
        dnn.NotSupported, match=r"im2col_gemm: config 'tile=1' is not supported for this problem; use 'images="
    ):
        dnn.conv_forward(on(device), W, algo="im2col_gemm:tile=1")


def test_max_workspace_is_obeyed(device: str) -> None:
    def workspace(limit: int | None) -> tuple[str, int]:
        handle = dnn.Handle(device, max_workspace=limit)
        (report,) = dnn.explain(dnn.conv_forward, on(device), W, algo="im2col_gemm", handle=handle)
        (chosen,) = [e for e in report.engines if e.name == report.chosen]
        return chosen.config, chosen.workspace_bytes

    whole, most = workspace(None)
    smaller, less = workspace(most - 1)
    assert less < most
    assert smaller != whole
    tight = dnn.Handle(device, max_workspace=16)
    with pytest.raises(
        dnn.NotSupported, match=r"im2col_gemm: needs .* of workspace; Handle\.max_workspace allows 16 bytes"
    ):
        dnn.conv_forward(on(device), W, algo="im2col_gemm", handle=tight)
    want = dnn.conv_forward(on(device), W)
    got = dnn.conv_forward(on(device), W, handle=dnn.Handle(device, max_workspace=less))
    np.testing.assert_allclose(got.numpy(), want.numpy(), atol=1e-4)


def test_engines_by_family_and_device() -> None:
    assert "cuda.conv.direct" in dnn.engines("conv", "cuda")
    assert set(dnn.engines("conv", "cpu")) < set(dnn.engines(None, "cpu"))
    with pytest.raises(dnn.ShapeError, match="engines: family must be one of activation, "):
        dnn.engines("convolution")


LOG = "import numpy as np, pyminidnn as dnn; dnn.conv_forward(np.ones((1, 1, 3, 3)), np.ones((1, 1, 2, 2)), algo='direct')"


def test_the_log_says_what_ran_and_why_not_the_others() -> None:
    assert run_python(LOG).stderr == ""
    line = "pyminidnn: conv forward f64 x=1x1x3x3 w=1x1x2x2 on cpu -> cpu.conv.direct\n"
    assert run_python(LOG, PYMINIDNN_LOG="info").stderr == line
    debug = run_python(LOG, PYMINIDNN_LOG="debug").stderr
    (report,) = dnn.explain(CALLS["conv"][0], on("cpu"))
    others = [e.name for e in report.engines if e.name != "cpu.conv.direct"]
    assert debug == line + "".join(f"pyminidnn:   not {e}: algo='direct' selects another engine\n" for e in others)


def test_set_log_level(capfd: pytest.CaptureFixture[str]) -> None:
    dnn.set_log_level("info")
    dnn.activation_forward(X, "relu")
    dnn.set_log_level("off")
    dnn.activation_forward(X, "relu")
    assert (
        capfd.readouterr().err
        == "pyminidnn: activation forward f32 relu x=4x8x9x9 on cpu -> cpu.activation.vectorized\n"
    )


def test_without_nvrtc_the_error_says_what_to_install() -> None:
    code = "from pyminidnn import _C; s = _C.manifest()[0]; _C.compile_kernel(s, 'sm_90a', None)"
    told = run_python(code, PYMINIDNN_NVRTC="none", PYMINIDNN_CACHE_DIR="/nonexistent").stderr
    assert 'pip install "pyminidnn[cuda]"' in told
