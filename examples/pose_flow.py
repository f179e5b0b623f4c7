"""A generative model of poses: the motion from a residue of a protein to the next one. Needs the extra [lab]."""

import torch
from torch import nn

import inbounds as ib
from inbounds.data import protein

POSES = ib.SE(3)


class Field(nn.Sequential):
    def forward(self, t, x):
        return super().forward(torch.cat([x.flatten(-2), t.expand_as(x)[..., 0, :1]], -1)).reshape(x.shape)


def apart(x, y):  # the energy distance of two clouds, which is 0 only for equal distributions
    return sum(s * float(torch.cdist(a.flatten(1), b.flatten(1)).mean()) for s, a, b in ((2, x, y), (-1, x, x), (-1, y, y)))


def main(steps: int = 120):
    torch.manual_seed(0)
    seen, new = (POSES.compose(POSES.inverse(x), y) for x, y in (protein()[part] for part in ("train", "test")))
    source = ib.distributions.WrappedNormal(POSES, torch.eye(4), torch.tensor(1.0))
    field = Field(nn.Linear(17, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 16))
    model = ib.FlowMatching(field, POSES, source)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        model.loss(seen[torch.randint(len(seen), (256,))]).backward()
        optimizer.step()
    y = model.sample(1000)
    learned, before = apart(y, new[:1000]), apart(source.sample((1000,)), new[:1000])
    print(f"energy distance {learned:.3f} from unseen proteins, before the flow {before:.3f}")
    return y, learned, before


if __name__ == "__main__":
    main()
