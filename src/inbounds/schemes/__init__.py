"""Ways to keep a network's output in a set: ours and the literature's, each a module around a backbone, all called alike.

scheme = DC3(net, M): M is a set, or `Depends(module)` where it depends on the input. `size(M)` says how many numbers the backbone
must give, scheme(x) is a point, scheme.loss(x, objective) is what a step of training lowers.
"""

from .base import Scheme
from .dc3 import DC3
from .hardnet import HardNet
from .mixture import Mixture
from .optnet import OptNet
from .penalty import Penalty
from .projected import Projected
from .rays import GaugeMap, Rayen, Scaled
from .repair import Repair
from .splitting import Splitting

__all__ = [
    "DC3",
    "GaugeMap",
    "HardNet",
    "Mixture",
    "OptNet",
    "Penalty",
    "Projected",
    "Rayen",
    "Repair",
    "Scaled",
    "Scheme",
    "Splitting",
]
