"""A parser for untrusted YAML: only maps, lists and strings.

Without aliases, a document cannot expand; without tags, no constructor runs; and without merges and duplicate keys, all
parsers agree on the keys.
"""

from collections.abc import Hashable
from typing import Any

import yaml
from yaml.composer import ComposerError
from yaml.constructor import ConstructorError


def parse(text: str) -> object:
    """Parse a document into dicts, lists and strings. Raises ValueError for invalid YAML and for all other features."""
    loader = _Plain(text)
    try:
        return loader.get_single_data()
    except (yaml.YAMLError, ValueError, RecursionError):
        # The library's message may quote the document.
        raise ValueError("expected YAML or JSON without aliases, merges and duplicate keys") from None
    finally:
        loader.dispose()


class _Plain(yaml.BaseLoader):
    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise ComposerError(problem="an alias")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002
        keys = [key.value if isinstance(key, yaml.ScalarNode) else "<<" for key, _ in node.value]
        if "<<" in keys or len(set(keys)) < len(keys):
            raise ConstructorError(problem="a merge, a duplicate key, or one that is not a string")
        return super().construct_mapping(node, deep)
