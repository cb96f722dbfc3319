"""What a model may be: weights of features, of basis vectors, or of kernel rows."""
