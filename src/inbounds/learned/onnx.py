"""What ONNX cannot hold of learned sets."""

from __future__ import annotations

import torch


@torch.compiler.assume_constant_result
def refuse_onnx(kind: str) -> bool:
    """Raise while a model is exported to ONNX: after minutes of tracing the exporter would name an operator that nobody wrote.

    Dynamo calls it instead of tracing it, since it takes `is_in_onnx_export` for False (torch 2.13).
    """
    if torch.onnx.is_in_onnx_export():
        raise RuntimeError(
            f"torch.onnx.export was asked for the projection on a fitted set ({kind}), but ONNX has no operators for the small "
            "systems of equations that Newton's method solves for each point. Export the network alone and project its outputs "
            "afterwards. Fitted spheres and ellipsoids have a formula, which ONNX takes."
        )
    return False
