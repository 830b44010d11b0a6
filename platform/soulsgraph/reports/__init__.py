"""Reports of runs: TensorBoard, Parquet, and tables of win rates."""
