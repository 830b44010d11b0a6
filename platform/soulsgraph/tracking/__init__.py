"""Trackers of runs: TensorBoard, Weights & Biases, MLflow, and any other that keeps to one small contract."""
