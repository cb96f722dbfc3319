"""Heat maps of conditional rankings."""

import numpy as np
import pytest
from scipy import sparse

from rankrls import ConditionalRankRLS

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

from matplotlib import pyplot  # noqa: E402

from rankrls.plotting import ConditionalRankingDisplay  # noqa: E402

rng = np.random.default_rng(0)
P, G = 12, 9
X, Z = rng.standard_normal((P, 3)), rng.standard_normal((G, 2))
Y, SQUARE = rng.standard_normal((P, G)), rng.standard_normal((P, P))
GAPS = np.where(rng.random((P, G)) < 0.3, np.nan, Y)


@pytest.fixture(autouse=True)
def _closed_figures():
    yield
    pyplot.close("all")


@pytest.mark.parametrize("condition_on", ["rows", "columns"])
def test_heat_maps(condition_on):
    model = ConditionalRankRLS(condition_on=condition_on).fit(X, GAPS, Z)
    display = ConditionalRankingDisplay.from_estimator(model, X, GAPS, Z)
    scores, truth = (image.get_array() for image in display.images_)
    axis = 1 if condition_on == "rows" else 0
    assert scores.shape == truth.shape == (P, G)
    # Ranks from 0 to 1 in every list; the best of a list is its 1.
    assert np.allclose(scores.max(axis=axis), 1)
    assert np.array_equal(scores.argmax(axis=axis), model.predict(X, Z).argmax(axis=axis))
    assert np.array_equal(np.ma.getmaskarray(truth), np.isnan(GAPS))
    assert display.axes_[0].get_title() == "ConditionalRankRLS"
    assert "conditioning" in (
        display.axes_[0].get_ylabel() if axis else display.axes_[0].get_xlabel()
    )


def test_heat_maps_of_given_scores():
    order = np.argsort(X[:, 0])
    _, axes = pyplot.subplots(1, 2)
    edges = sparse.coo_array(
        (np.array([1.0, 3.0, 5.0]), (np.array([0, 0, 1]), np.array([2, 2, 1]))), shape=(P, G)
    )
    display = ConditionalRankingDisplay.from_predictions(
        edges, Y, name="mine", axes=axes, scaling="none", row_order=order
    )
    assert np.array_equal(display.images_[0].get_array(), Y[order])
    assert display.axes_[0] is axes[0]
    assert display.axes_[0].get_title() == "mine"
    assert display.Y_true[0, 2] == 2.0  # the mean of two labels
    with pytest.raises(ValueError, match="axes must be two"):
        display.plot(axes=axes[0])


def test_bad_plots():
    for option in ("scaling", "condition_on"):
        with pytest.raises(ValueError, match=f"{option} must be one of"):
            ConditionalRankingDisplay.from_predictions(Y, Y, **{option: "x"})
    with pytest.raises(ValueError, match="Y_true has shape"):
        ConditionalRankingDisplay.from_predictions(Y, SQUARE)
