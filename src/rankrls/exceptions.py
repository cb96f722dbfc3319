"""Warning classes, which can be used to filter warnings."""

__all__ = ["FeatureScaleWarning", "IdColumnWarning"]


class FeatureScaleWarning(UserWarning):
    """Warning about features of very different scales, for which no single alpha is suitable.

    Examples
    --------
    >>> import warnings
    >>> from rankrls.exceptions import FeatureScaleWarning
    >>> warnings.simplefilter("ignore", FeatureScaleWarning)  # the scales are intended
    """


class IdColumnWarning(UserWarning):
    """Warning that a column of X looks like an id or a row number instead of a feature."""
