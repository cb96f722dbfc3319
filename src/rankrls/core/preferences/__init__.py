"""Preferences as data, and their quadratic form: Laplacian L, target r, factor F and statistics."""
