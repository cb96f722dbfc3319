"""Options that would change nothing are refused: whoever gives one expects it to be used."""

from __future__ import annotations

from typing import Any

from rankrls.cli._options import AutoOptions, DataOptions, ModelOptions

__all__ = ["refuse_alpha_options", "refuse_auto_options", "refuse_columns", "refuse_model_options"]

#: Kernels that have each parameter.
KERNELS = {
    "gamma": ("rbf", "poly", "polynomial", "sigmoid", "laplacian", "chi2"),
    "degree": ("poly", "polynomial"),
    "coef0": ("poly", "polynomial", "sigmoid"),
}


#: What ``--auto`` does by itself, and the options that would say how.
AUTO = {
    "chooses kernels, losses and alphas itself": (
        *("kernel", "gamma", "degree", "coef0", "cost", "ties", "query_weighting", "solver"),
        *("n_components", "max_iter", "tol", "alpha", "alphas", "loss", "c"),
    ),
    "scales features and fills in missing ones itself": ("scale", "missing"),
    "holds out whole queries, one by one": ("cv",),
    "has no path of alphas to draw": ("plot",),
    "reads all rows at once": ("stream",),
}

#: Options that are not called as their parameter is.
SPELLED = {"c": "-c", "stream": "--stream or --in-memory", "n_components": "--basis"}


def refuse_auto_options(options: AutoOptions) -> None:
    """Raise for options that ``--auto`` has no use for, and for its own without it."""
    if not options.auto:
        if "effort" in options.given:
            raise ValueError("--effort is for --auto: add it, or leave --effort out")
        return
    for what, names in AUTO.items():
        for name in names:
            if name in options.given:
                option = SPELLED.get(name, "--" + name.replace("_", "-"))
                raise ValueError(f"--auto {what}: leave out {option}, or --auto")


def refuse_model_options(options: ModelOptions, loss: str = "squared") -> None:
    """Raise for an option that the kernel, the solver or the loss has no use for."""
    for name, kernels in KERNELS.items():
        if name in options.given and options.kernel not in kernels:
            words = " or ".join(kernel for kernel in kernels if kernel != "polynomial")
            raise ValueError(f"--{name} is for --kernel {words}; the kernel is {options.kernel}")
    for name in ("max_iter", "tol"):
        if name in options.given and loss == "squared" and options.solver != "cg":
            option = name.replace("_", "-")
            raise ValueError(
                f"--{option} is for solvers that iterate: add --solver cg, or leave it out"
            )
    for name in ("cost", "ties"):
        if name in options.given and loss == "hinge":
            raise ValueError(f"--{name} is for --loss squared: the hinge loss has no such choice")
    if "ties" in options.given and options.ties == "keep" and options.cost != "magnitude":
        raise ValueError(f"--ties keep is for --cost magnitude: --cost {options.cost} drops ties")
    if options.n_components is not None and options.solver not in ("auto", "nystroem"):
        raise ValueError(f"--basis is for --solver nystroem; got --solver {options.solver}")
    if options.kernel == "precomputed" and options.scale not in (None, "none"):
        raise ValueError("--scale is for features, not for kernel values (--kernel precomputed)")


def refuse_alpha_options(given: frozenset[str], alpha: Any, alphas: Any, loss: str, c: Any) -> None:
    """Raise for options of ``fit`` about alpha that do not go together."""
    if loss == "hinge" and alpha == "auto":
        raise ValueError("--alpha auto is for --loss squared, which can be cross-validated exactly")
    if alphas is not None and (alpha not in (None, "auto") or loss == "hinge"):
        raise ValueError("--alphas is what --alpha auto chooses from: add --alpha auto")
    for name in ("cv", "scoring"):
        if name in given and (alpha not in (None, "auto") or loss == "hinge"):
            raise ValueError(f"--{name} is for --alpha auto, which cross-validates")
    if c is not None and (loss != "hinge" or c == "auto"):
        raise ValueError("-c is SVMrank's C, for --loss hinge; for RankRLS give --alpha")
    if c is not None and alpha is not None:
        raise ValueError("-c and --alpha exclude each other")
    if "no_uncertainty" in given and loss == "hinge":
        raise ValueError("--no-uncertainty is for --loss squared: RankSVM has no such values")


def refuse_columns(options: DataOptions, command: str) -> None:
    """Raise for columns that ``predict`` and ``evaluate`` have no use for."""
    if options.weight is not None:
        raise ValueError(
            f"--weight counts in training only, and {command} has no use for it; if "
            f"{options.weight!r} is no feature, give it by --drop"
        )
    if command == "predict" and "unlabelled" in options.given:
        raise ValueError("--unlabelled is for training and evaluation: predict needs no labels")
    if options.feature_names:
        raise ValueError(f"--feature-names is for training: {command} goes by those of the model")
