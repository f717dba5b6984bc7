// Where checkpoints stand: a tree of token blocks. Knows tokens only; memory is its owner's.
#pragma once
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "cache/prefix_hash.hpp"

namespace mtlqwen {

inline constexpr uint32_t kNoBundle = std::numeric_limits<uint32_t>::max();
inline constexpr uint32_t kNoBank = std::numeric_limits<uint32_t>::max();

struct Checkpoint;

// One whole block of token ids behind its parent's path. The root is the empty prefix.
struct BlockNode {
  BlockNode* parent = nullptr;
  BlockNode* first_child = nullptr;
  BlockNode* next = nullptr;  // its siblings
  BlockNode* previous = nullptr;
  Checkpoint* first_checkpoint = nullptr;
  uint64_t hash = kRootHash;    // of the path down to here
  uint32_t n_tokens = 0;        // of that path
  uint32_t bundle = kNoBundle;  // the owner's
  std::vector<int32_t> tokens;  // (block_tokens)

  [[nodiscard]] bool is_needed() const {
    return parent == nullptr || first_child != nullptr || first_checkpoint != nullptr;
  }
};

// Stands behind the path of `node` and the ids of `tail`, less than a block. What follows `index`
// is the owner's.
struct Checkpoint {
  BlockNode* node = nullptr;
  Checkpoint* next = nullptr;  // behind the same node
  std::vector<int32_t> tail;
  size_t index = 0;  // in TokenTree::checkpoints()
  uint32_t bank = kNoBank;
  uint32_t tail_bundle = kNoBundle;
  uint32_t uses = 1;
  double clock = 0.0;     // at the last use
  uint64_t last_use = 0;  // counts uses: orders equals

  [[nodiscard]] uint32_t n_tokens() const {
    return node->n_tokens + static_cast<uint32_t>(tail.size());
  }
};

// Nodes are found by the chained hash of their path; parent and tokens are compared each time.
// Invariants: a node has children or checkpoints behind it, or is the root; no two children of a
// node have the same tokens, no two checkpoints of a node the same tail. One thread at a time.
//
// `last` is always walk(tokens) of the same tokens and the same state of the tree.
class TokenTree {
 public:
  explicit TokenTree(uint32_t block_tokens, PrefixHash hash = &prefix_hash);

  // The deepest node of which the path is a prefix of the tokens. O(tokens).
  [[nodiscard]] BlockNode* walk(std::span<const int32_t> tokens) const;

  // Length of the longest prefix of the tokens that stands in the tree, parts of blocks and of
  // tails included. O(children and checkpoints of last).
  [[nodiscard]] uint32_t known(const BlockNode* last, std::span<const int32_t> tokens) const;

  // The deepest checkpoint of at most `limit` tokens that is a prefix; null: none. O(depth +
  // checkpoints on the path from there).
  [[nodiscard]] Checkpoint* deepest(BlockNode* last, std::span<const int32_t> tokens,
                                    uint32_t limit) const;

  // The checkpoint of exactly these tokens, or null. O(checkpoints of last).
  [[nodiscard]] Checkpoint* exact(BlockNode* last, std::span<const int32_t> tokens) const;

  // The deepest of the checkpoints that are true prefixes of this one, or null. As deepest().
  [[nodiscard]] const Checkpoint* shallower(const Checkpoint& checkpoint) const;

  // For tokens without a checkpoint, at least one. An exception leaves the tree as it was.
  Checkpoint& insert(BlockNode* last, std::span<const int32_t> tokens);

  // Removes it and returns its node. While that is no longer needed, the caller takes what it owns
  // there and removes it, too; the root is always needed.
  BlockNode* remove(Checkpoint& checkpoint) noexcept;
  BlockNode* remove(BlockNode& node) noexcept;  // returns the parent

  // In no order: it changes with every removal.
  [[nodiscard]] std::span<const std::unique_ptr<Checkpoint>> checkpoints() const {
    return checkpoints_;
  }
  using Nodes = std::unordered_multimap<uint64_t, std::unique_ptr<BlockNode>>;  // by hash
  [[nodiscard]] const Nodes& nodes() const { return nodes_; }                   // without the root

  // Host memory of what stands in the tree, and of one checkpoint with its path alone; an
  // allocation's own bytes are estimated.
  [[nodiscard]] uint64_t bytes() const;
  [[nodiscard]] uint64_t bytes_alone(uint64_t n_tokens) const;

  void check_integrity() const;  // throws std::logic_error that says which invariant fails

 private:
  [[nodiscard]] BlockNode* child(const BlockNode* parent, uint64_t hash,
                                 std::span<const int32_t> tokens) const;
  BlockNode* add(BlockNode* parent, std::span<const int32_t> tokens);
  [[nodiscard]] uint64_t bytes_of(uint64_t nodes, uint64_t checkpoints, uint64_t tails) const;
  void check_node(const BlockNode& node) const;
  void check_checkpoints() const;

  uint32_t block_tokens_;
  PrefixHash hash_;
  std::unique_ptr<BlockNode> root_;
  Nodes nodes_;
  std::vector<std::unique_ptr<Checkpoint>> checkpoints_;
  uint64_t tail_tokens_ = 0;  // of all checkpoints
};

}  // namespace mtlqwen
