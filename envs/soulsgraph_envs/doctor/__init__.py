"""The doctor: what this machine can do, check by check, with the remedy beside each failure."""
