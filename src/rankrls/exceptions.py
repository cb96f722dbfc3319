"""Warnings of this package that users may want to filter by class."""

__all__ = ["FeatureScaleWarning", "IdColumnWarning"]


class FeatureScaleWarning(UserWarning):
    """The features have very different scales, which one alpha cannot suit.

    Examples
    --------
    >>> import warnings
    >>> from rankrls.exceptions import FeatureScaleWarning
    >>> warnings.simplefilter("ignore", FeatureScaleWarning)  # the scales are meant to be so
    """


class IdColumnWarning(UserWarning):
    """A column of X looks like the id or the number of a row, not like a feature."""
