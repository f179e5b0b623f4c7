"""The same training twice, by Lightning's Trainer and by a plain loop. A constrained network is a module like any other."""

import lightning as L
import torch
from torch import nn, utils

import inbounds as ib


class Head(L.LightningModule):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.net = ib.FAA(nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 9)), ib.Projection(ib.SO(3)))

    def training_step(self, batch, _=0):
        return ib.SO(3).angle(self.net(batch[0]), batch[1]).mean()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 0.01)


def main(epochs: int = 6):
    R = ib.SO(3).sample(512, generator=torch.Generator().manual_seed(1))
    data = utils.data.DataLoader(utils.data.TensorDataset(x := R[..., :2].flatten(1), R), batch_size=64)
    quiet = {k: False for k in ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")}
    L.Trainer(max_epochs=epochs, accelerator="cpu", **quiet).fit(one := Head(), data)
    optimizer = (two := Head()).configure_optimizers()
    for batch in list(data) * epochs:
        two.training_step(batch).backward()
        optimizer.step(), optimizer.zero_grad()
    off = max(float((p - q).detach().abs().max()) for p, q in zip(one.parameters(), two.parameters(), strict=True))
    y = one.net(x).detach()
    print(f"{ib.SO(3).angle(y, R).mean().rad2deg():.1f} degrees; the two loops' weights differ by {off:.0e}")
    return y, R, off


if __name__ == "__main__":
    main()
