"""Builds a release of the last commit: wheel, sdist, chart, SBOM and checksums, checked in a fresh environment."""
