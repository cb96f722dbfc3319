"""The numerical core: arrays, operators and formulas; no data frames, files or estimators."""
