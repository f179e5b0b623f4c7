"""Peers of benchmarks/equations.py that are written in jax, in their own environment: reads one .npz file, writes another.

In: A, b, E, f of {A y <= b, E y = f}, points x, the names of the peers, rounds. Out, for every peer: ms (CPU time of forward and
backward for every round, without compilation) and y, or the error that the peer raised.
"""

from __future__ import annotations

import os
import sys
import time

import numpy as np

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
os.environ["PINET_RUNTIME_CHECK"] = "0"
ENOUGH = 0.5  # seconds of a first call that is not repeated


def qpax(A, b, E, f):
    import jax.numpy as jnp  # pyright: ignore[reportMissingImports]
    from jax import vmap  # pyright: ignore[reportMissingImports]
    from qpax import solve_qp_primal  # pyright: ignore[reportMissingImports]

    Q = jnp.eye(A.shape[1], dtype=A.dtype)
    return vmap(lambda x: solve_qp_primal(Q, -x, jnp.asarray(E), jnp.asarray(f), jnp.asarray(A), jnp.asarray(b)))


def pinet(A, b, E, f, steps: int):
    import jax.numpy as jnp  # pyright: ignore[reportMissingImports]
    from pinet import AffineInequalityConstraint, EqualityConstraint, Project, ProjectionInstance  # pyright: ignore[reportMissingImports]

    low = np.full_like(b, -np.inf)
    inner = AffineInequalityConstraint(*(jnp.asarray(t) for t in (A[None], low[None, :, None], b[None, :, None])))
    equal = EqualityConstraint(jnp.asarray(E[None]), jnp.asarray(f[None, :, None])) if len(E) else None
    layer = Project(ineq_constraint=inner, eq_constraint=equal)
    return lambda x: layer.call(y_raw=ProjectionInstance(x=x[:, :, None]), n_iter=steps, n_iter_bwd=steps)[0].x[:, :, 0]


def timed(run, x) -> tuple[float, np.ndarray]:
    start = time.process_time()
    y, g = run(x)
    g.block_until_ready()
    return 1e3 * (time.process_time() - start), np.asarray(y)


def measured(peer: str, task) -> dict:
    import jax  # pyright: ignore[reportMissingImports]

    jax.config.update("jax_enable_x64", bool(task["x"].dtype == np.float64))
    A, b, E, f = (task[k] for k in ("A", "b", "E", "f"))
    name, _, steps = peer.partition(" ")
    project = pinet(A, b, E, f, int(steps)) if name == "pinet" else qpax(A, b, E, f)

    def both(x):
        y, pull = jax.vjp(project, x)
        return y, pull(jax.numpy.ones_like(y))[0]

    x = jax.numpy.asarray(task["x"])
    run = jax.jit(both).lower(x).compile()
    first, y = timed(run, x)
    again = [] if first > 1e3 * ENOUGH else [timed(run, x)[0] for _ in range(int(task["rounds"]))]
    return {f"{peer}, ms": np.array(again or [first]), f"{peer}, y": y}


def main(source: str, target: str) -> None:
    task, out = np.load(source), {}
    for peer in task["peers"]:
        try:
            out |= measured(str(peer), task)
        except Exception as error:  # the caller reports it
            out[f"{peer}, error"] = np.array(f"{type(error).__name__}: {error}".splitlines()[0][:200])
    np.savez(target, **out)


if __name__ == "__main__":
    main(*sys.argv[1:])
