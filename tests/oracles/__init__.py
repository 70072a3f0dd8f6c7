"""Independent numpy re-statements of federated methods, written from the formulas alone."""
