"""HTML pages: values in, text out. The report and the status page are built from the same parts."""
