"""Where training tells how it goes: a log is a function of the line of metrics that every evaluation makes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

Log = Callable[[dict], None]  # {"epoch": 100, "train": [...], "val": [...], "lr": [...]}, a number for every member


def tensorboard(folder: str | Path, names: list[str] | None = None) -> Log:
    """A log that writes TensorBoard event files, one curve for each member; names: of the members (0, 1, ...).

    Needs the package tensorboard, which torch's own writer stands on.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ModuleNotFoundError(
            "tensorboard(folder) needs the package tensorboard. Install it with: pip install tensorboard, or give "
            "StackTraining a function of your own, log=print."
        ) from error
    writer = SummaryWriter(str(folder))

    def log(line: dict) -> None:
        for quantity, values in line.items():
            if isinstance(values, list):
                for k, value in enumerate(values):
                    writer.add_scalar(f"{quantity}/{names[k] if names else k}", value, line["epoch"])
        writer.flush()

    return log
