"""Pi-net for benchmarks/authors.py, in its own environment: reads one .npz file, writes another.

In: A with rows of length 1, b, E, f of {A y <= b, E y = f}, points u, a cotangent g, numbers of steps. Out, for every number of
steps: the point from the start (u, A u) and the gradient of sum(g * y) with respect to u.
"""

from __future__ import annotations

import importlib.metadata
import os
import sys

import numpy as np

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
os.environ["PINET_RUNTIME_CHECK"] = "0"
SIGMA = 0.5  # Pi-net's formula has 2 sigma where ours has sigma = 1


def main(source: str, target: str) -> None:
    import jax  # pyright: ignore[reportMissingImports]

    jax.config.update("jax_enable_x64", True)
    import jax.numpy as jnp  # pyright: ignore[reportMissingImports]
    from pinet import AffineInequalityConstraint, EqualityConstraint, Project, ProjectionInstance  # pyright: ignore[reportMissingImports]

    task, out = np.load(source), {"version": np.array(importlib.metadata.version("pinet-hcnn"))}
    A, b, E, f, u, g = (task[k] for k in "AbEfug")
    low = np.full_like(b, -np.inf)
    inner = AffineInequalityConstraint(*(jnp.asarray(t) for t in (A[None], low[None, :, None], b[None, :, None])))
    layer = Project(ineq_constraint=inner, eq_constraint=EqualityConstraint(jnp.asarray(E[None]), jnp.asarray(f[None, :, None])))
    start = ProjectionInstance(x=jnp.asarray(np.concatenate([u, u @ A.T], 1)[:, :, None]))
    for steps in task["steps"].tolist():

        def point(u, steps=steps):
            raw = ProjectionInstance(x=u[:, :, None])
            return layer.call(s0=start, y_raw=raw, sigma=SIGMA, n_iter=steps, n_iter_bwd=steps, fpi=True)[0].x[:, :, 0]

        y, pull = jax.vjp(point, jnp.asarray(u))
        out |= {f"y {steps}": np.asarray(y), f"slope {steps}": np.asarray(pull(jnp.asarray(g))[0])}
    np.savez(target, **out)


if __name__ == "__main__":
    main(*sys.argv[1:])
