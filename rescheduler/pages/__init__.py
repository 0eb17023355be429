"""Render HTML pages from values. The report and the status page are built from the same parts."""
