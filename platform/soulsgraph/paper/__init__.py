"""The paper's study reproduced over seeds: units of work, records, expected ranges, report."""
