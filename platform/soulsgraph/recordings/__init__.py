"""Recordings: fights as Parquet files with a row a control tick, written as they are fought, read by any data tool."""
