"""Build a release of the last commit: wheel, sdist, chart, SBOM and checksums, tested in a new virtual environment."""
