"""Warning classes, which can be used to filter warnings."""

__all__ = ["FeatureScaleWarning", "IdColumnWarning"]


class FeatureScaleWarning(UserWarning):
    """Warning that the features have very different scales, which a single alpha cannot suit.

    Examples
    --------
    >>> import warnings
    >>> from rankrls.exceptions import FeatureScaleWarning
    >>> warnings.simplefilter("ignore", FeatureScaleWarning)  # the scales are intended
    """


class IdColumnWarning(UserWarning):
    """Warning that a column of X looks like an id or a row number instead of a feature."""
