"""YAML from strangers: maps, lists and texts, and nothing that makes a small text large or means other than it says.

Without aliases a text cannot grow, without tags no constructor runs, without merges and keys given twice every reader
finds the same keys in it.
"""

from collections.abc import Hashable
from typing import Any

import yaml
from yaml.composer import ComposerError
from yaml.constructor import ConstructorError


def parse(text: str) -> object:
    """The document as dicts, lists and str. Raises ValueError for what is more or less than that."""
    loader = _Plain(text)
    try:
        return loader.get_single_data()
    except (yaml.YAMLError, ValueError, RecursionError):
        # Its words can quote the text.
        raise ValueError("expected YAML or JSON without aliases, merges and keys given twice") from None
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
            raise ConstructorError(problem="a merge, a key twice, or one that is no text")
        return super().construct_mapping(node, deep)
