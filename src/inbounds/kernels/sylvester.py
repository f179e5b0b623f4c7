"""H Y + Y H = C for symmetric H: the linear equation behind the derivative of polar factors and eigenvalue clamps.

Its own derivative is the same equation, Y' = solve(H, C' - H' Y - Y H'), so projections built on it can be differentiated
any number of times without the 1/(l_i - l_j) of eigenvectors.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .derivative import with_derivative


def _solver(h: Tensor) -> Callable[[Tensor], Tensor]:
    """C -> Q ((Q^T C Q)_ij / (l_i + l_j)) Q^T, with 0 where Y is undetermined."""
    ok = torch.isfinite(h).flatten(-2).all(-1)[..., None, None]  # LAPACK fails the batch for one NaN row
    l, q = torch.linalg.eigh(torch.where(ok, h, torch.eye(h.shape[-1], dtype=h.dtype, device=h.device)))
    return lambda c: q @ divide_pairs(q.mT @ c @ q, l) @ q.mT


def divide_pairs(c: Tensor, l: Tensor) -> Tensor:
    """c_ij / (l_i + l_j), and 0 where l_i + l_j is at rounding level."""
    pair = l[..., :, None] + l[..., None, :]
    tiny = torch.finfo(l.dtype).tiny
    determined = pair > 16 * torch.finfo(l.dtype).eps * l.abs().amax(-1)[..., None, None].clamp(min=tiny)
    return c / torch.where(determined, pair, 1.0) * determined


def _vjp(h: Tensor, c: Tensor, y: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    gc = sylvester(h, g)
    return -(gc @ y.mT + y.mT @ gc), gc


def _jvp(h: Tensor, c: Tensor, y: Tensor, dh: Tensor, dc: Tensor) -> Tensor:
    return sylvester(h, dc - dh @ y - y @ dh)


def _expanded(h: Tensor, c: Tensor) -> Tensor:
    """Y of H0 Y + Y H0 = C - dH Y - Y dH, where H0 is H held fixed and dH = H - H0 is 0 with H's derivatives.

    Each of the two substitutions makes one more derivative right, as `expand` in derivative.py does for other functions.
    """
    held = h.detach()
    dh, solve = h - held, _solver(held)
    y = solve(c)
    for _ in range(2):
        y = solve(c - dh @ y - y @ dh)
    return y


sylvester = with_derivative(lambda h, c: _solver(h)(c), _vjp, _jvp, _expanded, two=True)
sylvester.__doc__ = "Y with H Y + Y H = C, for symmetric H with l_i + l_j >= 0."
