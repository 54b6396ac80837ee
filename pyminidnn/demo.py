# SPDX-License-Identifier: Apache-2.0
"""Trains a small convolutional network on handwritten digits (8x8, scikit-learn's load_digits) with this library alone.

The network has two blocks of conv 3x3 -> batch norm -> relu -> max pool, then a matrix product and a log-softmax. It is
trained by stochastic gradient descent with momentum. Every step forward and backward is one call of the library.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

import pyminidnn as dnn

BATCH = 64
MOMENTUM = 0.9
LEARNING_RATE = 0.05
WANTED = 0.98  # the accuracy on the held-out images of digits that the demo must reach after 20 epochs


class Parameter:
    """Values, their gradient of the last backward pass, and the velocity of gradient descent."""

    def __init__(self, values: np.ndarray[Any, Any], device: str) -> None:
        self.values = dnn.asarray(values.astype("float32"), device=device, copy=True)
        self.velocity = dnn.zeros(values.shape, device=device)
        self.gradient = self.velocity

    def step(self, rate: float) -> None:
        """One step of gradient descent with momentum."""
        dnn.transform(self.gradient, beta=MOMENTUM, out=self.velocity)  # velocity = gradient + momentum * velocity
        dnn.transform(self.velocity, alpha=-rate, beta=1.0, out=self.values)  # values = values - rate * velocity


class Block:
    """conv 3x3 -> batch norm -> relu -> max pool 2x2"""

    def __init__(self, rng: np.random.Generator, channels_in: int, channels: int, device: str) -> None:
        self.w = Parameter(rng.normal(0, (2 / (9 * channels_in)) ** 0.5, (channels, channels_in, 3, 3)), device)
        self.scale = Parameter(np.ones(channels), device)
        self.bias = Parameter(np.zeros(channels), device)
        self.running_mean = dnn.zeros((channels,), device=device)
        self.running_var = dnn.full((channels,), 1.0, device=device)
        self.parameters = [self.w, self.scale, self.bias]

    def forward(self, x: dnn.DeviceTensor, training: bool) -> dnn.DeviceTensor:
        """The block's output for x; keeps what backward() needs."""
        self.x = x
        self.conv = dnn.conv_forward(x, self.w.values, padding=1)
        if training:
            self.norm, self.mean, self.inv_std = dnn.batch_norm_forward_training(
                self.conv,
                self.scale.values,
                self.bias.values,
                running_mean=self.running_mean,
                running_var=self.running_var,
            )
        else:
            self.norm = dnn.batch_norm_forward_inference(
                self.conv, self.scale.values, self.bias.values, self.running_mean, self.running_var
            )
        self.relu = dnn.activation_forward(self.norm, "relu")
        self.pool = dnn.pool_forward(self.relu, (2, 2))
        return self.pool

    def backward(self, dy: dnn.DeviceTensor) -> dnn.DeviceTensor:
        """The gradient with respect to x; stores those of the parameters."""
        dy = dnn.pool_backward(dy, self.relu, self.pool, (2, 2))
        dy = dnn.activation_backward(dy, self.norm, self.relu, "relu")
        dy, self.scale.gradient, self.bias.gradient = dnn.batch_norm_backward(
            dy, self.conv, self.scale.values, self.mean, self.inv_std
        )
        self.w.gradient = dnn.conv_backward_filter(dy, self.x, self.w.values.shape, padding=1)
        return dnn.conv_backward_data(dy, self.w.values, self.x.shape, padding=1)


class Network:
    """Two blocks and a linear layer, for ten classes of 8x8 images."""

    def __init__(self, device: str) -> None:
        rng = np.random.default_rng(0)
        self.device = device
        self.blocks = [Block(rng, 1, 32, device), Block(rng, 32, 64, device)]
        self.w = Parameter(rng.normal(0, (1 / 256) ** 0.5, (256, 10)), device)
        self.b = Parameter(np.zeros(10), device)
        self.parameters = [p for block in self.blocks for p in block.parameters] + [self.w, self.b]

    def forward(self, images: np.ndarray[Any, Any], training: bool) -> dnn.DeviceTensor:
        """Log-probabilities [n, 10] of images [n, 1, 8, 8]."""
        x = dnn.asarray(images, device=self.device)
        for block in self.blocks:
            x = block.forward(x, training)
        self.pooled = x.shape
        self.features = x.reshape((x.shape[0], 256))
        self.log_p = dnn.softmax_forward(dnn.matmul(self.features, self.w.values, bias=self.b.values), log=True)
        return self.log_p

    def backward(self, labels: np.ndarray[Any, Any]) -> None:
        """Gradients of the mean negative log-likelihood."""
        n = len(labels)
        d_log_p = np.zeros((n, 10), "float32")
        d_log_p[np.arange(n), labels] = -1 / n
        d_logits = dnn.softmax_backward(dnn.asarray(d_log_p, device=self.device), self.log_p, log=True)
        self.w.gradient = dnn.matmul(self.features, d_logits, transpose_a=True)
        ones = dnn.full((1, n), 1.0, device=self.device)
        self.b.gradient = dnn.matmul(ones, d_logits).reshape((10,))
        dx = dnn.matmul(d_logits, self.w.values, transpose_b=True).reshape(self.pooled)
        for block in reversed(self.blocks):
            dx = block.backward(dx)


def train(device: str, epochs: int, out: Path) -> int:
    """Trains the network, prints a report, and writes digits_loss.png and digits_mistakes.png to `out`.

    Returns 0 if the accuracy reaches 98 %, else 1.
    """
    model = dnn._C.device_info(device)["model"]
    pictures = _pictures(out)
    try:
        import matplotlib  # noqa: F401  (fails before the training, not after it)
        from sklearn.datasets import load_digits
        from tqdm import tqdm
    except ImportError as error:
        raise dnn.NotSupported(f'demo: {error.name} is not installed; pip install "pyminidnn[demo]"') from None

    digits = load_digits()
    order = np.random.default_rng(1).permutation(len(digits.target))
    images = (digits.images[order, None] / 16).astype("float32")
    labels = digits.target[order]
    held_out = 360
    train_x, train_y, test_x, test_y = images[held_out:], labels[held_out:], images[:held_out], labels[:held_out]

    network = Network(device)
    print(f"device    {device}: {model}")
    _print_engines(network, train_x[:BATCH], train_y[:BATCH])
    rng = np.random.default_rng(2)
    losses: list[float] = []
    seconds: list[float] = []
    batches = len(train_x) // BATCH
    # With disable=None, tqdm shows the progress bar only if stderr is a terminal.
    with tqdm(total=epochs * batches, unit="batch", disable=None) as bar:
        for epoch in range(epochs):
            start = time.perf_counter()
            rate = LEARNING_RATE * (1 - epoch / epochs)
            for batch in np.array_split(rng.permutation(len(train_x)), batches):
                log_p = network.forward(train_x[batch], training=True)
                network.backward(train_y[batch])
                for parameter in network.parameters:
                    parameter.step(rate)
                losses.append(-float(log_p.numpy()[np.arange(len(batch)), train_y[batch]].mean()))
                bar.update()
            seconds.append(time.perf_counter() - start)
            bar.set_postfix(loss=f"{np.mean(losses[-batches:]):.4f}")
    predict = dnn.fuse(lambda images: network.forward(images, training=False))
    answers = predict(dnn.asarray(test_x, device=device)).numpy()
    accuracy = float((answers.argmax(1) == test_y).mean())
    print(f"time      {np.median(seconds):.3f} s an epoch, {sum(seconds):.1f} s in all")
    print(f"accuracy  {accuracy:.2%} of {held_out} digits that were not in the training set")
    _draw(losses, answers, test_x, test_y, pictures)
    print(f"pictures  {', '.join(map(str, pictures))}")
    return _verdict(accuracy)


def _pictures(out: Path) -> list[Path]:
    """The paths of the pictures. Opens each once, so that a path that cannot be written fails before the training."""
    pictures = [out / "digits_loss.png", out / "digits_mistakes.png"]
    try:
        out.mkdir(parents=True, exist_ok=True)
        for path in pictures:
            new = not path.exists()
            path.open("ab").close()
            if new:
                path.unlink()
    except OSError as error:
        raise dnn.DeviceError(f"demo: the pictures cannot be written: {error}; --out names another folder") from None
    return pictures


def _verdict(accuracy: float) -> int:
    if accuracy >= WANTED:
        return 0
    print(f"verdict   below {WANTED:.0%}, which 20 epochs should reach; the exit code is 1")
    return 1


def _print_engines(network: Network, x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> None:
    """Prints the engine of each layer's calls. It runs one batch under explain()."""

    def one_batch() -> None:
        network.forward(x, training=True)
        network.backward(y)

    for report in dict.fromkeys((r.problem, r.chosen) for r in dnn.explain(one_batch)):
        print(f"engine    {report[1]:<28} {report[0]}")


def _draw(
    losses: list[float],
    log_p: np.ndarray[Any, Any],
    x: np.ndarray[Any, Any],
    y: np.ndarray[Any, Any],
    pictures: list[Path],
) -> None:
    """Draws the loss of each batch, and the held-out digits to which the network gives the least likelihood."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
    axes.semilogy(losses, linewidth=1)
    axes.set(xlabel="batch", ylabel="negative log-likelihood", title="Training loss")
    figure.savefig(pictures[0], dpi=120)
    likelihood = log_p[np.arange(len(y)), y]
    figure, grid = plt.subplots(2, 6, figsize=(9, 3.6), layout="constrained")
    for axes, i in zip(grid.flat, likelihood.argsort(), strict=False):
        axes.imshow(x[i, 0], cmap="gray_r")
        axes.set_title(f"{y[i]}, read as {log_p[i].argmax()}\np = {np.exp(likelihood[i]):.3f}", fontsize=9)
        axes.axis("off")
    figure.savefig(pictures[1], dpi=120)
    plt.close("all")
