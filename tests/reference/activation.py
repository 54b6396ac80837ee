# SPDX-License-Identifier: Apache-2.0
"""Activations and their derivatives, one line of formula each.

At kinks, the derivative is that of the negative side: at 0, relu' = 0, leaky_relu' = alpha, elu' = alpha. clipped_relu'
is 1 in the open interval (0, alpha) and 0 elsewhere; hardswish' is 0 at x <= -3 and 1 at x >= 3.
NaN in x gives NaN in y and dx, for relu too, but not in the dx of identity. Any finite x gives a finite,
accurate result.
At infinite x the formula decides, and 0 * inf is NaN: gelu, gelu_tanh, silu, mish and hardswish of -inf are NaN, as in
torch; so are the derivatives of gelu, gelu_tanh, silu and mish at both infinities.
"""

import math

import numpy as np

# The default of alpha for each mode. It is the ceiling of clipped_relu, the slope of leaky_relu, the scale of elu, and
# the beta of softplus.
DEFAULT_ALPHA = {"clipped_relu": 6.0, "leaky_relu": 0.01, "elu": 1.0, "softplus": 1.0}

_erfc = np.vectorize(math.erfc, otypes=[np.float64])


def _sigmoid(x):
    e = np.exp(-np.abs(x))  # exp(-|x|) never overflows
    return np.where(x < 0, e, 1) / (1 + e)


def _sech2(x):
    e = np.exp(-2 * np.abs(x))
    return 4 * e / (1 + e) ** 2  # this form keeps its accuracy for large |x|, where 1 - tanh(x)^2 loses all digits


def _softplus(x):
    return np.logaddexp(0, x)


def _normal_cdf(x):
    # For x < 0, erfc is accurate. There, 1 + erf(x / sqrt(2)) would lose most digits to cancellation.
    return 0.5 * _erfc(-x / math.sqrt(2))


def _normal_pdf(x):
    return np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)


# gelu_tanh(x) = x/2 * (1 + tanh(u)) = x * sigmoid(2 u), with u = sqrt(2/pi) * (x + 0.044715 x^3). For |x| > 50, the
# sigmoid is 0 or 1 in float64. So the result does not change if x is clipped at 50, and x^3 remains finite.
def _gelu_tanh_2u(x):
    x = np.clip(x, -50, 50)
    return 2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)


def _gelu_tanh_2du(x):
    return 2 * math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * np.clip(x, -50, 50) ** 2)


def _gelu_tanh_derivative(x):
    s, one_minus_s = _sigmoid(_gelu_tanh_2u(x)), _sigmoid(-_gelu_tanh_2u(x))
    return s + x * (s * one_minus_s * _gelu_tanh_2du(x))


# For each mode, the function f(x, alpha) and its derivative f'(x, alpha). Cancellation is avoided: the derivative of
# tanh is computed as sech(x)^2, and 1 - sigmoid(x) is computed as sigmoid(-x).
_FORMULAS = {
    "identity": (lambda x, _: x.copy(), lambda x, _: np.ones_like(x)),
    "relu": (lambda x, _: np.maximum(x, 0), lambda x, _: np.where(x > 0, 1, 0)),
    "clipped_relu": (lambda x, a: np.clip(x, 0, a), lambda x, a: np.where((x > 0) & (x < a), 1, 0)),
    "leaky_relu": (lambda x, a: np.where(x > 0, x, a * x), lambda x, a: np.where(x > 0, 1, a)),
    "elu": (
        lambda x, a: np.where(x > 0, x, a * np.expm1(np.minimum(x, 0))),
        lambda x, a: np.where(x > 0, 1, a * np.exp(np.minimum(x, 0))),
    ),
    "tanh": (lambda x, _: np.tanh(x), lambda x, _: _sech2(x)),
    "sigmoid": (lambda x, _: _sigmoid(x), lambda x, _: _sigmoid(x) * _sigmoid(-x)),
    "softplus": (lambda x, beta: _softplus(beta * x) / beta, lambda x, beta: _sigmoid(beta * x)),
    "silu": (lambda x, _: x * _sigmoid(x), lambda x, _: _sigmoid(x) * (1 + x * _sigmoid(-x))),
    "gelu": (lambda x, _: x * _normal_cdf(x), lambda x, _: _normal_cdf(x) + x * _normal_pdf(x)),
    "gelu_tanh": (lambda x, _: x * _sigmoid(_gelu_tanh_2u(x)), lambda x, _: _gelu_tanh_derivative(x)),
    "hardswish": (
        lambda x, _: x * (np.clip(x + 3, 0, 6) / 6),
        lambda x, _: np.where(x <= -3, 0, np.where(x >= 3, 1, np.clip(x, -3, 3) / 3 + 0.5)),
    ),
    "mish": (
        lambda x, _: x * np.tanh(_softplus(x)),
        lambda x, _: np.tanh(_softplus(x)) + x * (_sech2(_softplus(x)) * _sigmoid(x)),
    ),
}
MODES = tuple(_FORMULAS)


def activation_forward(x, mode, *, alpha=None):
    """y = f(x). alpha: the ceiling of clipped_relu, slope of leaky_relu, scale of elu, beta of softplus."""
    x = np.asarray(x, np.float64)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return _FORMULAS[mode][0](x, DEFAULT_ALPHA.get(mode) if alpha is None else alpha)


def activation_backward(dy, x, y, mode, *, alpha=None):
    """dx = dy * f'(x), NaN where x or dy is NaN (identity: dx = dy); 0 * inf is NaN.

    y is a parameter of the public function; it is not used here, because the derivative is computed at x.
    """
    dy, x = np.asarray(dy, np.float64), np.asarray(x, np.float64)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        dx = dy * _FORMULAS[mode][1](x, DEFAULT_ALPHA.get(mode) if alpha is None else alpha)
    return dx if mode == "identity" else np.where(np.isnan(x), np.nan, dx)
