"""Function spaces of models: weights of features, basis vectors or kernel rows."""
