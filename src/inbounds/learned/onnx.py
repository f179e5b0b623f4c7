"""What ONNX cannot hold of learned sets."""

from __future__ import annotations

import torch


def refuse_onnx(who: object) -> None:
    """Raise while a model is exported to ONNX: after minutes of tracing the exporter would name an operator that nobody wrote."""
    if torch.onnx.is_in_onnx_export():
        raise RuntimeError(
            f"torch.onnx.export was asked for the projection on {who!r}, but ONNX has no operators for the small systems of "
            "equations that Newton's method solves for each point. Export the network alone and project its outputs afterwards. "
            "Fitted spheres, ellipsoids and ellipses, solid or not, have a formula, which ONNX takes."
        )
