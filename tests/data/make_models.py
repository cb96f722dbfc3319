"""How the kept model files were made, at the version that their format was current.

Not run by the tests: the files must stay as they are. For a new format, copy this to new names and
run it once: ``python tests/data/make_models.py``.
"""

import json
from pathlib import Path

import numpy as np
from scipy import sparse
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from rankrls import ConditionalRankRLS, GreedyRankRLS, RankRLS, RankRLSCV
from rankrls.io import save_model

HERE = Path(__file__).parent


def main():
    rng = np.random.default_rng(20)
    X = rng.standard_normal((12, 3)).round(3)
    y = rng.integers(0, 3, 12).astype(float)
    Y = np.column_stack([y, rng.permutation(y)])
    qid = np.repeat(["a", "b", "c"], 4)
    pairs = [[0, 1], [3, 2], [5, 9]]
    rows = sparse.csr_array(np.where(np.abs(X) > 0.5, X, 0.0))
    steps = make_pipeline(
        StandardScaler(), GreedyRankRLS(2), RankRLSCV([0.1, 1.0, 10.0], cv=3, random_state=0)
    )
    S = np.abs(y[:, None] - y)
    models = {
        "linear": (X, RankRLS(0.5).fit(X, Y, qid=qid)),
        "kernel": (X, RankRLS(kernel="rbf", ties="drop", gamma=0.5).fit(X, Y, qid=qid)),
        "relative": (X, RankRLS(kernel="rbf", cost="relative").fit(X, y, qid=qid)),
        "pairs": (X, RankRLS(kernel="poly", degree=2).fit(X, y, qid=qid, pairs=pairs)),
        "path": (X, RankRLS(1e-12, kernel="rbf").fit(np.vstack([X, X]), np.tile(y, 2))),
        "sparse": (rows, RankRLS(kernel="rbf", gamma=0.5).fit(rows, y, qid=qid)),
        "cg": (rows, RankRLS(0.0, early_stopping=True, random_state=0).fit(rows, y, qid=qid)),
        "nystroem": (X, RankRLS(kernel="rbf", basis=[0, 3, 5, 7]).fit(X, y, qid=qid)),
        "pipeline": (X, steps.fit(X, y)),
        "relation": (X, ConditionalRankRLS(kernel="rbf", relation="symmetric").fit(X, S)),
    }
    expected = {}
    for name, (features, model) in models.items():
        file = f"model_v1_{name}.rankrls"
        save_model(model, HERE / file)
        dense = features.toarray() if sparse.issparse(features) else features
        new = dense[:4] + 0.25
        expected[file] = entry = {"X": new.tolist(), "scores": model.predict(new).tolist()}
        if isinstance(model, RankRLS) and model.solver_ != "cg":
            entry["std"] = model.predict(new, return_std=True)[1].tolist()
            likelihood = model.log_marginal_likelihood()
            entry["log_marginal_likelihood"] = np.asarray(likelihood).tolist()
    (HERE / "model_v1.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
