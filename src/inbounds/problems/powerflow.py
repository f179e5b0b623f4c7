"""Optimal power flow with alternating currents on the networks of PYPOWER: voltages that serve the load at the lowest cost."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from ..core import ConstraintSet
from ..data.pairs import generator
from ..extras import needed_for
from ..sets import Depends, Implicit
from ..solvers.jets import Constraints
from .planes import Known
from .solvers import Unsolved
from .task import Task

SPREAD = 0.2  # every load is 80 to 120 % of its nominal value
MOST = {"case30": (8, 1.03)}  # but for a bus whose lines carry no more: PYPOWER served all 46 loads below 1.04, none of 14 above
BATCH = {"case30": 20, "case57": 20}  # inputs a step of training: a projection on these networks takes some 10 ms
SCALE = 0.1  # with 0.02, voltages of 30 buses were still off by 0.07 after 1,200 steps
PULL = 1.0  # 0 let raw outputs drift to 0.7 from the set in 620 steps, where 11 of 100 projections on 30 buses were flat
CASES = ("case9", "case14", "case30", "case57")


@dataclass(frozen=True, eq=False)
class Network:
    """Per unit: admittances G + jB of buses and of both ends of the branches with a limit, loads, limits, costs of generators.

    A point v has the real parts of the voltages, then their imaginary parts but that of the reference bus, whose angle is 0.
    """

    G: Tensor  # (n, n)
    B: Tensor
    ends: tuple[tuple[Tensor, Tensor, Tensor], ...]  # for both ends: the bus of every branch, its row of G and of B
    rate: Tensor  # (branches,)
    load: Tensor  # P and Q of the loaded buses, (2, loads)
    loaded: Tensor  # their buses
    generating: Tensor  # the buses of the generators
    free: Tensor  # the other buses
    low: Tensor  # of P and Q of the generators, (2, generators)
    high: Tensor
    floor: Tensor  # of the length of the voltage, (n,)
    ceiling: Tensor
    price: Tensor  # (3, generators): of P^2, of P, and what is paid anyway
    nominal: Tensor  # the optimum of the nominal load
    moving: Tensor  # the buses whose imaginary part moves

    def voltages(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """Real and imaginary parts, (*batch, n)."""
        n = len(self.G)
        return v[..., :n], v[..., n:] @ torch.eye(n, dtype=v.dtype)[self.moving]

    def injections(self, v: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
        """P and Q that generators give at every bus if s times the nominal load is served: (*batch, n) each."""
        e, f = self.voltages(v)
        real, imaginary = e @ self.G.mT - f @ self.B.mT, e @ self.B.mT + f @ self.G.mT
        at = torch.eye(len(self.G), dtype=v.dtype)[self.loaded]
        P, Q = e * real + f * imaginary, f * real - e * imaginary
        return P + (s * self.load[0]) @ at, Q + (s * self.load[1]) @ at

    def balance(self, v: Tensor, s: Tensor) -> Tensor:
        """What is missing at the buses without a generator: P, then Q. At the others the generator gives what is missing."""
        return torch.cat([p[..., self.free] for p in self.injections(v, s)], -1)

    def limits(self, v: Tensor, s: Tensor) -> Tensor:
        """Generators, squared lengths of the voltages, squared flows at both ends of the branches; <= 0 where all is well."""
        given = [p[..., self.generating] for p in self.injections(v, s)]
        parts = [low - p for low, p in zip(self.low, given, strict=True)]
        parts += [p - high for high, p in zip(self.high, given, strict=True)]
        size, *currents = self.squares(v)
        parts += [self.floor.square() - size, size - self.ceiling.square()]
        parts += [size[..., bus] * I / self.rate.square() - 1 for (bus, *_), I in zip(self.ends, currents, strict=True)]
        return torch.cat(parts, -1)

    def squares(self, v: Tensor) -> list[Tensor]:
        """Squared lengths of the voltages, and of the currents at both ends of the branches that have a limit."""
        e, f = self.voltages(v)
        sizes = [e.square() + f.square()]
        for _, G, B in self.ends:
            real, imaginary = e @ G.mT - f @ B.mT, e @ B.mT + f @ G.mT
            sizes.append(real.square() + imaginary.square())
        return sizes

    def forms(self) -> Tensor:
        """K (F, n, n): P, Q and the squares are v^T K_i v / 2 but for the load, all in one tensor."""

        def all_of_them(v: Tensor) -> Tensor:
            return torch.cat([*self.injections(v, torch.zeros(len(self.loaded), dtype=v.dtype)), *self.squares(v)])

        return torch.func.jacfwd(torch.func.jacrev(all_of_them))(torch.zeros_like(self.nominal))  # pyright: ignore[reportReturnType]

    def cost(self, s: Tensor, v: Tensor) -> Tensor:
        """What the generators cost, (*batch,)."""
        P = self.injections(v, s)[0][..., self.generating]
        return (self.price[0] * P.square() + self.price[1] * P + self.price[2]).sum(-1)


@dataclass(frozen=True)
class Forms:
    """All constraints of a network but for flows are one of `Network.forms` up to a sign: sign forms[which] + load s + ends."""

    K: Tensor  # (F, n, n)
    which: Tensor  # (straight,)
    sign: Tensor  # (straight,)
    load: Tensor  # (straight, loads)
    ends: Tensor  # (straight,)
    first: Tensor  # which forms are multiplied in every flow: |V|^2 and |I|^2
    second: Tensor
    top: Tensor  # (flows,), rate^2

    @staticmethod
    def of(net: Network) -> Forms:
        """Signs are slopes of functions that are affine in the forms and in the load."""
        n, K = len(net.G), net.forms()
        at = torch.eye(n, dtype=torch.float64)[net.loaded]

        def straight(q: Tensor, s: Tensor) -> Tensor:
            given = [q[k * n : (k + 1) * n] + (s * net.load[k]) @ at for k in (0, 1)]
            made, size = [p[net.generating] for p in given], q[2 * n : 3 * n]
            parts = [p[net.free] for p in given] + [low - p for low, p in zip(net.low, made, strict=True)]
            parts += [p - high for high, p in zip(net.high, made, strict=True)]
            return torch.cat([*parts, net.floor.square() - size, size - net.ceiling.square()])

        zero = torch.zeros(len(K), dtype=torch.float64), torch.zeros(len(net.loaded), dtype=torch.float64)
        picks, load = torch.func.jacrev(straight, argnums=(0, 1))(*zero)
        which = picks.abs().argmax(1)
        first = torch.cat([bus for bus, *_ in net.ends]) + 2 * n
        second = 3 * n + torch.arange(len(first))
        return Forms(K, which, picks.sum(1), load, straight(*zero), first, second, net.rate.square().repeat(len(net.ends)))


@dataclass(frozen=True)
class Flows(Known):
    """Balance and limits of a network with their derivatives; s (R, loads) is the load of every row."""

    forms: Forms
    s: Tensor

    def derived(self, y: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Callable[[Tensor], Tensor]]:
        F, n = self.forms, y.shape[1]
        slopes = (y @ F.K.flatten(0, 1).mT).unflatten(1, (len(F.K), n))  # (R, F, n)
        q = 0.5 * (slopes * y[:, None]).sum(2)
        c = q[:, F.which] * F.sign + self.s.index_select(0, rows) @ F.load.mT + F.ends
        a, b, da, db = q[:, F.first] / F.top, q[:, F.second], slopes[:, F.first] / F.top[:, None], slopes[:, F.second]
        J = torch.cat([slopes[:, F.which] * F.sign[:, None], b[:, :, None] * da + a[:, :, None] * db], 1)

        def curvature(l: Tensor) -> Tensor:
            straight, flow = l.split([len(F.which), len(F.top)], 1)
            w = l.new_zeros(len(l), len(F.K)).index_add(1, F.which, straight * F.sign)
            w = w.index_add(1, F.first, flow * b / F.top).index_add(1, F.second, flow * a)
            crossed = da.mT @ (flow[:, :, None] * db)
            return (w @ F.K.flatten(1)).unflatten(1, (n, n)) + crossed + crossed.mT

        return torch.cat([c, a * b - 1], 1), J, curvature

    def restricted(self, rows: Tensor) -> Flows:
        return Flows(super().restricted(rows).parts, self.equalities, self.forms, self.s.index_select(0, rows))


class Supplied(Implicit):
    """The voltages that serve a load, which is the context, within all limits."""

    def __init__(self, net: Network):
        self.forms = Forms.of(net)  # before the functions are tried out
        context = len(net.loaded)
        super().__init__(len(net.nominal), eq=net.balance, ineq=net.limits, context=context, restarts=None, on_fail="best")

    def _constraints(self, context: Tensor | None) -> Constraints:
        assert context is not None
        plain = super()._constraints(context)
        return Flows(plain.parts, plain.equalities, self.forms, context.detach())


class Serves(nn.Module):
    """x, loads in parts of the nominal ones -> the voltages that serve them."""

    def __init__(self, net: Network):
        super().__init__()
        self.shape = (len(net.nominal),)
        self.all = Supplied(net)

    def forward(self, x: Tensor) -> ConstraintSet:
        return self.all.given(x)


def power_flow(case: str = "case30", rows: int = 2_000, seed: int = 0) -> Task:
    """min cost of the generators over the voltages that serve the load x within all limits; an IEEE network.

    Every load is 80 to 120 % of its nominal value, independently, but for a bus of `MOST`, so that the network can serve all of
    them. The cost is in units of the nominal optimum. Optimal points are by the interior point method of PYPOWER.
    """
    if case not in CASES:
        raise ValueError(f"power_flow asked for a case among {', '.join(CASES)}, got {case!r}.")
    data, nominal = _nominal(case)
    net = _network(data, nominal)
    random = generator(seed, stream=20)
    most = torch.full((len(net.loaded),), 1 + SPREAD, dtype=torch.float64)
    if case in MOST:
        bus, top = MOST[case]
        most[net.loaded == bus - 1] = top
    least = 1 - SPREAD
    x = least + (most - least) * torch.rand(rows, len(net.loaded), generator=random, dtype=torch.float64)
    unit = float(net.cost(torch.ones(len(net.loaded), dtype=torch.float64), net.nominal))

    def solve(x: Tensor) -> Tensor:
        loaded = {k: v.copy() if hasattr(v, "copy") else v for k, v in data.items()}
        loaded["bus"][net.loaded.numpy(), 2:4] *= x.numpy()[:, None]
        e, f = _voltages(_optimum(loaded))
        return torch.cat([e, f[net.moving]])

    name = "acopf" + case.removeprefix("case")
    M = Depends(Serves(net))
    title, cost = f"AC optimal power flow, {case}", lambda x, v: net.cost(x, v) / unit
    return Task(name, title, x, M, cost, solve, start=net.nominal, scale=SCALE, batch=BATCH.get(case), pull=PULL)


def _pypower() -> Any:
    """PYPOWER's functions; it comes without types, and its source has escapes that Python warns of."""
    with needed_for("Power flow"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pypower import api

    return api


@cache
def _nominal(case: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The data of a case, with buses numbered from 0, and its optimum."""
    api = _pypower()
    data = api.ext2int(getattr(api, case)())
    data = {k: data[k] for k in ("version", "baseMVA", "bus", "gen", "branch", "gencost")}
    return data, _optimum(data)


def _optimum(data: dict[str, Any]) -> dict[str, Any]:
    api = _pypower()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tight = {f"PDIPM_{k}TOL": 1e-9 for k in ("FEAS", "GRAD", "COMP", "COST")}
        found: Any = api.runopf(data, api.ppoption(VERBOSE=0, OUT_ALL=0, **tight))
    if not found["success"]:
        raise Unsolved("PYPOWER found no optimal power flow.")
    return found


def _voltages(found: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """Real and imaginary parts, turned so that the reference bus has the angle 0."""
    bus = torch.tensor(found["bus"], dtype=torch.float64)
    angle = torch.deg2rad(bus[:, 8] - bus[bus[:, 1] == 3, 8])
    return bus[:, 7] * angle.cos(), bus[:, 7] * angle.sin()


def _network(data: dict[str, Any], nominal: dict[str, Any]) -> Network:
    """The data of PYPOWER, whose columns are those of MATPOWER, as tensors per unit."""
    api = _pypower()
    base = data["baseMVA"]
    Y, near, far = (torch.tensor(m.toarray()) for m in api.makeYbus(base, data["bus"], data["branch"]))
    bus, gen, branch, price = (torch.tensor(data[k], dtype=torch.float64) for k in ("bus", "gen", "branch", "gencost"))
    at = gen[:, 0].long()
    if len(set(at.tolist())) < len(at) or bool((gen[:, 7] <= 0).any()) or bool((price[:, 3] != 3).any()):
        raise ValueError("power_flow asked for one generator at a bus, all of them on, with quadratic costs.")
    limited = ((branch[:, 5] > 0) & (branch[:, 5] < 9_000)).nonzero()[:, 0]
    loaded = (bus[:, 2:4].abs().sum(1) > 0).nonzero()[:, 0]
    free = torch.tensor([i for i in range(len(bus)) if i not in set(at.tolist())])
    sides = ((near, branch[:, 0].long()), (far, branch[:, 1].long()))
    (e, f), moving = _voltages(nominal), (bus[:, 1] != 3).nonzero()[:, 0]
    return Network(
        G=Y.real.contiguous(),
        B=Y.imag.contiguous(),
        ends=tuple((bus_of[limited], y.real[limited], y.imag[limited]) for y, bus_of in sides),
        rate=branch[limited, 5] / base,
        load=bus[loaded, 2:4].mT / base,
        loaded=loaded,
        generating=at,
        free=free,
        low=torch.stack([gen[:, 9], gen[:, 4]]) / base,
        high=torch.stack([gen[:, 8], gen[:, 3]]) / base,
        floor=bus[:, 12],
        ceiling=bus[:, 11],
        price=torch.stack([price[:, 4] * base**2, price[:, 5] * base, price[:, 6]]),
        nominal=torch.cat([e, f[moving]]),
        moving=moving,
    )
