"""Export of linear models as model files of SVMrank and SVM-light."""

from __future__ import annotations

from typing import Any

import numpy as np

from rankrls.export._fold import fold
from rankrls.export._output_files import write_bytes
from rankrls.export._steps import take_apart

__all__ = ["to_svmrank"]

#: The version that svm_rank_classify 1.00 requires in the first line.
VERSION = "V6.20"


def to_svmrank(estimator: Any, path: Any = None, *, output: int | None = None) -> str:
    """Export a linear model as an SVMrank model file, for ``svm_rank_classify``.

    Parameters
    ----------
    estimator : fitted estimator with a linear kernel
        As for `linear_scores`. Scalers in a pipeline are folded into the weights.
    path : str or path, optional
        File to which the text is written.
    output : int, optional
        Index of the output to export, for a model with several.

    Returns
    -------
    str
        The text of the file.

    Notes
    -----
    The format is SVM-light's: ten lines of parameters (kernel type 0 is linear), the threshold b,
    and one line for each support vector, beginning with its coefficient. A linear model is one
    support vector, the weights ``1:w₁ 2:w₂ …``, with coefficient 1, as svm_rank_learn writes it.
    The first column of X is feature 1, as in files that `rankrls.datasets.load_letor` reads;
    weights of zero are omitted. The score of a document is ⟨w, x⟩ − b, where b accounts for the
    shift by scalers, so the scores equal those of ``predict`` up to SVMrank's 32-bit floats and the
    eight decimals that it prints (rescale y if tiny weights leave too few digits). The first line
    names the version V6.20 that svm_rank_classify 1.00 checks; for svm_classify of SVM-light 6.02
    change it to V6.02.

    Examples
    --------
    >>> import numpy as np
    >>> from rankrls import RankRLS
    >>> from rankrls.export import to_svmrank
    >>> X = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 1.0], [3.0, 3.0]])
    >>> print(to_svmrank(RankRLS().fit(X, [0, 1, 2, 3])).splitlines()[-1])
    1 1:0.91... 2:0.06... #
    """
    parts = take_apart(estimator)
    scores = fold(parts, output=output, target="the one vector of weights in the file")
    w = scores.weights
    with np.errstate(over="ignore"):
        rounded = w.astype(np.float32)
    if not np.isfinite(rounded).all() or not rounded.any():
        raise ValueError(
            "the weights are zero or infinite in SVMrank's 32-bit floats; check the model and the "
            "scale of the features"
        )
    header = [
        f"SVM-light Version {VERSION}",
        "0 # kernel type",
        "3 # kernel parameter -d ",
        "1 # kernel parameter -g ",
        "1 # kernel parameter -s ",
        "1 # kernel parameter -r ",
        "empty# kernel parameter -u ",
        f"{len(w)} # highest feature index ",
        "0 # number of training documents ",
        "2 # number of support vectors plus 1 ",
        f"{0.0 - scores.constant:.17g} # threshold b, each following line is a SV "
        "(starting with alpha*y)",
    ]
    words = " ".join(f"{i + 1}:{w[i]:.17g}" for i in np.flatnonzero(w))
    text = "\n".join([*header, f"1 {words} #"]) + "\n"
    write_bytes(path, text.encode("ascii"))
    return text
