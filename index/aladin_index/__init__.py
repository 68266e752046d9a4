"""The index: batch builder, ANN, token store, two-stage searcher, evaluation as served."""
