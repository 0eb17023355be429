"""``python -m tests.sample``: write ``docs/sample.json.gz`` and the pages that the tests compare."""

from tests.sample.files import write

if __name__ == "__main__":
    write()
