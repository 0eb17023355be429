"""The sample cluster of the documentation, and the pages that the program prints for it."""
