"""A small builder of ONNX graphs that compute in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Graph"]

Array = NDArray[Any]

#: Supported by runtimes since 2021, and sufficient for all operators used.
OPSET, IR_VERSION = 13, 7


class Graph:
    """Nodes of a graph in the order in which they are computed.

    Parameters
    ----------
    n_features : int
        Number of columns of the input "X".
    dtype : {"float32", "float64"}
        Type of the input and of the output.

    Attributes
    ----------
    X : str
        Name of the input converted to float64.
    """

    def __init__(self, n_features: int, dtype: str) -> None:
        self._onnx = _onnx()
        self._dtype = np.dtype(dtype)
        self._n_features = n_features
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self.X = self._cast("X", np.dtype(np.float64))

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Append a node and return the name of its only output."""
        name = f"{operator.lower()}_{len(self._nodes)}"
        make = self._onnx.helper.make_node
        self._nodes.append(make(operator, list(inputs), [name], name=name, **attributes))
        return name

    def constant(self, values: Array) -> str:
        """Add a constant array and return its name."""
        name = f"constant_{len(self._constants)}"
        make = self._onnx.numpy_helper.from_array
        self._constants.append(make(np.ascontiguousarray(values).reshape(values.shape), name))
        return name

    def sum_rows(self, values: str) -> str:
        """Add sums over columns, shape (n_rows, 1), and return their name."""
        return self.add("ReduceSum", values, self.constant(np.array([1])), keepdims=1)

    def finish(
        self, scores: str, width: int | None, properties: dict[str, str], *, version: str
    ) -> Any:
        """Return the checked model; ``scores`` has ``width`` columns, or one axis if None."""
        helper = self._onnx.helper
        kind = helper.np_dtype_to_tensor_dtype(self._dtype)
        self._rename(self._cast(scores, self._dtype), "scores")
        shape: list[Any] = ["n_rows"] if width is None else ["n_rows", width]
        graph = helper.make_graph(
            self._nodes,
            "rankrls",
            [helper.make_tensor_value_info("X", kind, ["n_rows", self._n_features])],
            [helper.make_tensor_value_info("scores", kind, shape)],
            initializer=self._constants,
        )
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
            producer_name="rankrls",
            producer_version=version,
        )
        helper.set_model_props(model, properties)
        self._onnx.checker.check_model(model, full_check=True)
        return model

    def _cast(self, values: str, dtype: Any) -> str:
        if self._dtype == np.float64:
            return self.add("Identity", values)
        kind = self._onnx.helper.np_dtype_to_tensor_dtype(dtype)
        return self.add("Cast", values, to=kind)

    def _rename(self, old: str, new: str) -> None:
        assert self._nodes[-1].output[0] == old
        self._nodes[-1].output[0] = new


def _onnx() -> Any:
    """Import the onnx package, or raise an error that says how to install it."""
    try:
        import onnx
        import onnx.checker
        import onnx.helper
        import onnx.numpy_helper
    except ImportError as error:
        raise ImportError(
            "to_onnx needs onnx: pip install 'rankrls[onnx]' (or pip install onnx)"
        ) from error
    return onnx
