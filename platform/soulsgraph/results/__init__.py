"""Results: intervals, tables, and where files come from."""
