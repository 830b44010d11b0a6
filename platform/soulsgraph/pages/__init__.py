"""Self-contained HTML pages: a report of runs, a fight tick by tick. No page requests anything from anywhere."""
