"""Preferences as data, and as a Laplacian L, a target r, a factor F and statistics."""
