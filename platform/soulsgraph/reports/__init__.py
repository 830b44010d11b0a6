"""What a run tells: TensorBoard, Parquet, and tables of win rates."""
