"""A set that is known only through samples: positions of a two-joint arm's elbow and hand. Needs the extra [lab]."""

import tempfile
from pathlib import Path

import torch

import inbounds as ib


def poses(count, g):
    """Elbow and hand of an arm with links 1 and 0.7: (count, 4)."""
    a, b = (2 * torch.pi * torch.rand(2, count, generator=g, dtype=torch.float64)).unbind()
    elbow = torch.stack([a.cos(), a.sin()], -1)
    return torch.cat([elbow, elbow + 0.7 * torch.stack([b.cos(), b.sin()], -1)], -1)


def main():
    g = torch.Generator().manual_seed(0)
    M = ib.fit(poses(600, g))  # it finds |elbow| = 1 and |hand - elbow| = 0.7
    with tempfile.TemporaryDirectory() as folder:
        M.save(Path(folder) / "arm.safetensors")
        M = ib.load(Path(folder) / "arm.safetensors")
    y = M.project(poses(500, g) + 0.1 * torch.randn(500, 4, generator=g, dtype=torch.float64))
    elbow, hand = y.split(2, -1)
    off = torch.maximum((elbow.norm(dim=-1) - 1).abs(), ((hand - elbow).norm(dim=-1) - 0.7).abs()).max()
    print(f"found {M.info['found'] if 'found' in M.info else M!r}; links of projected poses off by {off:.0e}")
    return M, float(off)


if __name__ == "__main__":
    main()
