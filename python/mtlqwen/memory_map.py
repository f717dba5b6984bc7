"""Who holds an engine's memory, bundle by bundle, and what its prefix cache knows, as a tree.

Makes both from what the core tells; `pictures` draws them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from mtlqwen.cards import Bundle, amount, bundle, footer, frame
from mtlqwen.pictures import BY_CACHE, BY_SLOT, BY_STATE, Branch, pool_picture, tree_picture

Mark: TypeAlias = tuple[int, int, int, list[int]]  # block behind which it stands, tokens, uses, ids


class MemoryMap:
    """An engine's memory at one moment, as `Engine.memory_map` returns it.

    In a notebook: a picture of the pool and one of the prefix tree.

    Attributes:
        block_tokens: tokens of a block of keys and values.
        bundle_bytes: bytes of a bundle: the memory of one block, in all layers.
        n_bundles: bundles that the pool may have.
        holders: who holds each bundle up to the last one that was made, as a sum: 1 sequences, 2
            checkpoints, 4 states; 0: it is free.
        tree: the prefix tree, from the empty prefix on.
    """

    def __init__(self, facts: Mapping[str, Any], decode: Callable[[list[int]], str]) -> None:
        """Take what the core tells, and what makes text of token ids."""
        self.block_tokens: int = facts["block_tokens"]
        self.bundle_bytes: int = facts["bundle_bytes"]
        self.n_bundles: int = facts["n_bundles"]
        self.holders: bytes = facts["holders"]
        self.tree = grow_tree(facts["blocks"], facts["checkpoints"], decode)
        self._n_checkpoints = len(facts["checkpoints"])

    def held(self, holder: int) -> int:
        """Return how many bundles a kind of holder has."""
        return sum(bool(one & holder) for one in self.holders)

    def __repr__(self) -> str:
        """Return the sums in a line."""
        return (
            f"MemoryMap({self.n_bundles} bundles of {amount(self.bundle_bytes)}: "
            f"{self.held(BY_SLOT)} held by sequences, {self.held(BY_CACHE)} by checkpoints, "
            f"{self.held(BY_STATE)} by states; {self._n_checkpoints} checkpoints)"
        )

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> Bundle:
        size = amount(self.bundle_bytes)
        facts = [
            f"{len(self.holders)} of at most {self.n_bundles} bundles of {size}",
            f"{self.block_tokens} tokens a block",
            f"{self._n_checkpoints} checkpoints",
        ]
        pool = pool_picture(self.holders)
        return bundle(self, frame("Memory", pool, tree_picture(self.tree), footer(facts)))


def grow_tree(
    blocks: Sequence[Mark], checkpoints: Sequence[Mark], decode: Callable[[list[int]], str]
) -> Branch:
    """Return the tree of blocks (parents first) and checkpoints, chains of blocks as one branch."""
    root = Branch(0, "")
    behind = [root]  # the empty prefix, and every block
    for parent, n_tokens, _, token_ids in blocks:
        branch = Branch(n_tokens, decode(token_ids))
        behind[parent + 1].branches.append(branch)
        behind.append(branch)
    for parent, n_tokens, uses, token_ids in sorted(checkpoints):
        before = behind[parent + 1]
        if n_tokens == before.n_tokens:
            before.uses = uses - 1  # the core counts the making as well
        else:
            before.branches.append(Branch(n_tokens, decode(token_ids), uses - 1))
    for branch in reversed(behind):
        branch.branches = [_joined(one) for one in branch.branches]
    return root


def _joined(branch: Branch) -> Branch:
    """Return a branch with the only one behind it as one, if nothing stands between them."""
    if branch.uses is not None or len(branch.branches) != 1:
        return branch
    (only,) = branch.branches
    return Branch(only.n_tokens, branch.text, only.uses, only.branches)
