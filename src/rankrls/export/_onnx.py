"""Export of models as ONNX graphs."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from rankrls import __version__
from rankrls._validation import check_option
from rankrls.core.spaces.spaces import Kernel
from rankrls.export._linear import Folded, choose_output, fold
from rankrls.export._writers import write_bytes

__all__ = ["to_onnx"]

Array = NDArray[Any]

#: Kernels that are products and elementwise functions of the features.
KERNELS = ("linear", "rbf", "poly", "polynomial")

#: Supported by runtimes since 2021, and sufficient for all operators used.
OPSET, IR_VERSION = 13, 7

#: Maximum size of a protocol buffer.
MAX_BYTES = 2**31 - 2**20


def to_onnx(
    estimator: Any, path: Any = None, *, output: int | None = None, dtype: str = "float32"
) -> Any:
    """Export a model as an ONNX graph (requires ``pip install 'rankrls[onnx]'``).

    Parameters
    ----------
    estimator : fitted estimator
        As for `linear_scores`, with any SimpleImputer of NaN, and with the kernels linear, rbf and
        polynomial.
    path : str or path, optional
        File to which the model is written.
    output : int, optional
        Index of the output to export, for a model with several. If None, all outputs are exported.
    dtype : {"float32", "float64"}, default="float32"
        Type of the features and of the scores. The computation in between is in float64.

    Returns
    -------
    onnx.ModelProto
        Input "X" of shape (n_rows, n_features), output "scores" of shape (n_rows,), or
        (n_rows, n_outputs) for several outputs; opset 13, IR version 7. The scores equal those of
        ``predict``. The metadata have a JSON list "feature_names", if the model has names. A kernel
        model contains its training rows or basis vectors.
    """
    check_option("dtype", dtype, ("float32", "float64"))
    folded = fold(estimator)
    graph = _Graph(folded.matrix.shape[0], dtype)
    ranker, linear = folded.ranker, hasattr(folded.ranker, "coef_")
    n_outputs = len(np.atleast_2d(ranker.coef_)) if linear else ranker._model.n_outputs
    flat = output is not None or getattr(ranker, "_flat", linear and ranker.coef_.ndim == 1)
    columns = [choose_output(n_outputs, output)] if flat else list(range(n_outputs))
    X = graph.X
    if folded.fill is not None:
        X = graph.add("Where", graph.add("IsNaN", X), folded.fill, X)
    if linear:
        scored = [folded.linear(j, complete=True) for j in columns]
        scores = graph.add("MatMul", X, np.stack([one.weights for one in scored], axis=1))
        scores = graph.add("Add", scores, np.array([one.constant for one in scored]))
    else:
        scores = _kernel(graph, X, folded, columns)
    if flat:
        scores = graph.add("Reshape", scores, np.array([-1]))
    properties = {"producer": f"rankrls {__version__}", "estimator": type(ranker).__name__}
    if folded.feature_names is not None:
        properties["feature_names"] = json.dumps(folded.feature_names, ensure_ascii=False)
    model = graph.finish(scores, None if flat else n_outputs, properties)
    write_bytes(path, model.SerializeToString(deterministic=True))
    return model


def _kernel(graph: _Graph, X: str, folded: Folded, columns: list[int]) -> str:
    """Add f(x) = Σ a_i k(x, x_i) over the rows x_i with a coefficient."""
    model = folded.ranker._model
    kernel = model.kernel
    if callable(kernel.metric) or kernel.metric not in KERNELS:
        raise ValueError(
            f"kernel={kernel.name} is not exported to ONNX: it must be one of "
            f"{', '.join(map(repr, KERNELS))}"
        )
    (rows, shift), A = model.expansion, model.dual_coef[0][model.kept].astype(np.float64)
    A = A[:, columns]
    used = np.flatnonzero(A.any(axis=1))
    if not len(used):
        raise ValueError("every coefficient is zero, so all rows would have the same score")
    rows, A = rows[used], A[used]
    if (rows.shape[0] * rows.shape[1] + A.size) * 8 > MAX_BYTES:
        raise ValueError(
            f"the model has {rows.shape[0]:,} rows of {rows.shape[1]:,} features, more than an "
            "ONNX file holds (2 GiB): fit with solver='nystroem' and a smaller basis"
        )
    rows = np.asarray(rows.toarray() if sparse.issparse(rows) else rows, dtype=np.float64) + shift
    if not (np.isfinite(rows).all() and np.isfinite(A).all()):
        raise ValueError("the model has coefficients or rows that are not finite")
    if sparse.issparse(folded.matrix):  # one feature in each column
        X = graph.add("Gather", X, folded.matrix.indices.astype(np.int64), axis=1)
        X = graph.add("Mul", X, folded.matrix.data)
    else:
        X = graph.add("MatMul", X, folded.matrix)
    K = _kernel_matrix(graph, graph.add("Add", X, folded.shift), kernel, rows)
    return graph.add("MatMul", K, A)


def _kernel_matrix(graph: _Graph, X: str, kernel: Kernel, rows: Array) -> str:
    """Add k(x, r) for all rows r, with the kernels as defined in scikit-learn."""
    add = graph.add
    gamma = kernel.params.get("gamma")
    gamma = 1.0 / rows.shape[1] if gamma is None else float(gamma)
    if kernel.metric != "rbf":
        product = add("MatMul", X, gamma * rows.T)
        product = add("Add", product, float(kernel.params.get("coef0", 1.0)))
        return add("Pow", product, float(kernel.params["degree"]))
    # exp(−γ(‖x‖² + ‖r‖² − 2⟨x, r⟩)) with centred rows
    center = rows.mean(axis=0)
    rows = rows - center
    X = add("Sub", X, center)
    squares = add("ReduceSum", add("Mul", X, X), np.array([1]), keepdims=1)
    product = add("Add", add("MatMul", X, -2.0 * rows.T), squares)
    distance = add("Max", add("Add", product, np.einsum("ij,ij->i", rows, rows)), 0.0)
    return add("Exp", add("Mul", distance, -gamma))


class _Graph:
    """Nodes of a graph in the order in which they are computed; ``X`` is the input in float64."""

    def __init__(self, n_features: int, dtype: str) -> None:
        self._onnx = _onnx()
        self._dtype = np.dtype(dtype)
        self._n_features = n_features
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self.X = self._cast("X", np.dtype(np.float64))

    def add(self, operator: str, *inputs: str | Array | float, **attributes: Any) -> str:
        """Append a node of named values and constants; return the name of its only output."""
        name = f"{operator.lower()}_{len(self._nodes)}"
        names = [value if isinstance(value, str) else self._constant(value) for value in inputs]
        make = self._onnx.helper.make_node
        self._nodes.append(make(operator, names, [name], name=name, **attributes))
        return name

    def _constant(self, values: Array | float) -> str:
        values = np.asarray(values)
        name = f"constant_{len(self._constants)}"
        make = self._onnx.numpy_helper.from_array
        self._constants.append(make(np.ascontiguousarray(values).reshape(values.shape), name))
        return name

    def finish(self, scores: str, width: int | None, properties: dict[str, str]) -> Any:
        """Return the checked model; ``scores`` has ``width`` columns, or one axis if None."""
        helper = self._onnx.helper
        kind = helper.np_dtype_to_tensor_dtype(self._dtype)
        self._cast(scores, self._dtype)
        self._nodes[-1].output[0] = "scores"
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
            producer_version=__version__,
        )
        helper.set_model_props(model, properties)
        self._onnx.checker.check_model(model, full_check=True)
        return model

    def _cast(self, values: str, dtype: Any) -> str:
        if self._dtype == np.float64:
            return self.add("Identity", values)
        kind = self._onnx.helper.np_dtype_to_tensor_dtype(dtype)
        return self.add("Cast", values, to=kind)


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
