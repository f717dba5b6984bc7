#include "cache/token_tree.hpp"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <utility>

#include "base/error.hpp"

namespace mtlqwen {
namespace {

using Tokens = std::span<const int32_t>;

constexpr uint32_t kNoLimit = std::numeric_limits<uint32_t>::max();

uint32_t common_length(Tokens a, Tokens b) {
  const size_t n = std::min(a.size(), b.size());
  return static_cast<uint32_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<ptrdiff_t>(n), b.begin()).first - a.begin());
}

bool starts_with(Tokens tokens, Tokens prefix) {
  return tokens.size() >= prefix.size() && std::equal(prefix.begin(), prefix.end(), tokens.begin());
}

// The deepest checkpoint behind the node, of at most `limit` tokens, whose tail `rest` starts with.
Checkpoint* deepest_behind(const BlockNode& node, Tokens rest, uint32_t limit) {
  Checkpoint* best = nullptr;
  for (Checkpoint* each = node.first_checkpoint; each != nullptr; each = each->next) {
    if (each->n_tokens() > limit) continue;
    if (best != nullptr && each->tail.size() < best->tail.size()) continue;
    if (starts_with(rest, each->tail)) best = each;
  }
  return best;
}

}  // namespace

TokenTree::TokenTree(uint32_t block_tokens, PrefixHash hash)
    : block_tokens_(block_tokens), hash_(hash), root_(std::make_unique<BlockNode>()) {
  if (block_tokens == 0) throw std::logic_error("[cache] token tree: blocks of no tokens");
}

BlockNode* TokenTree::walk(Tokens tokens) const {
  BlockNode* node = root_.get();
  while (tokens.size() - node->n_tokens >= block_tokens_) {
    const Tokens block = tokens.subspan(node->n_tokens, block_tokens_);
    BlockNode* next = child(node, hash_(node->hash, block), block);
    if (next == nullptr) break;
    node = next;
  }
  return node;
}

uint32_t TokenTree::known(const BlockNode* last, Tokens tokens) const {
  const Tokens rest = tokens.subspan(last->n_tokens);
  uint32_t longest = 0;
  for (const BlockNode* each = last->first_child; each != nullptr; each = each->next) {
    longest = std::max(longest, common_length(rest, each->tokens));
  }
  for (const Checkpoint* each = last->first_checkpoint; each != nullptr; each = each->next) {
    longest = std::max(longest, common_length(rest, each->tail));
  }
  return last->n_tokens + longest;
}

Checkpoint* TokenTree::deepest(BlockNode* last, Tokens tokens, uint32_t limit) const {
  for (const BlockNode* node = last; node != nullptr; node = node->parent) {
    if (node->n_tokens > limit) continue;
    Checkpoint* found = deepest_behind(*node, tokens.subspan(node->n_tokens), limit);
    if (found != nullptr) return found;
  }
  return nullptr;
}

Checkpoint* TokenTree::exact(BlockNode* last, Tokens tokens) const {
  const Tokens rest = tokens.subspan(last->n_tokens);
  if (rest.size() >= block_tokens_) return nullptr;
  Checkpoint* found = deepest_behind(*last, rest, kNoLimit);
  return found != nullptr && found->tail.size() == rest.size() ? found : nullptr;
}

const Checkpoint* TokenTree::shallower(const Checkpoint& checkpoint) const {
  const BlockNode* node = checkpoint.node;
  if (!checkpoint.tail.empty()) {
    const uint32_t below = checkpoint.n_tokens() - 1;
    if (const Checkpoint* found = deepest_behind(*node, checkpoint.tail, below)) return found;
  }
  for (; node->parent != nullptr; node = node->parent) {
    const Checkpoint* found = deepest_behind(*node->parent, node->tokens, kNoLimit);
    if (found != nullptr) return found;
  }
  return nullptr;
}

Checkpoint& TokenTree::insert(BlockNode* last, Tokens tokens) {
  BlockNode* node = last;
  try {
    while (tokens.size() - node->n_tokens >= block_tokens_) {
      node = add(node, tokens.subspan(node->n_tokens, block_tokens_));
    }
    const Tokens tail = tokens.subspan(node->n_tokens);
    auto fresh = std::make_unique<Checkpoint>();
    fresh->tail.assign(tail.begin(), tail.end());
    fresh->index = checkpoints_.size();
    checkpoints_.push_back(std::move(fresh));
  } catch (...) {
    while (node != last) node = remove(*node);
    throw;
  }
  Checkpoint& fresh = *checkpoints_.back();
  fresh.node = node;
  fresh.next = std::exchange(node->first_checkpoint, &fresh);
  tail_tokens_ += fresh.tail.size();
  return fresh;
}

BlockNode* TokenTree::remove(Checkpoint& checkpoint) noexcept {
  BlockNode* node = checkpoint.node;
  Checkpoint** link = &node->first_checkpoint;
  while (*link != &checkpoint) link = &(*link)->next;
  *link = checkpoint.next;
  tail_tokens_ -= checkpoint.tail.size();
  const size_t index = checkpoint.index;
  std::swap(checkpoints_[index], checkpoints_.back());
  checkpoints_[index]->index = index;
  checkpoints_.pop_back();
  return node;
}

BlockNode* TokenTree::remove(BlockNode& node) noexcept {
  BlockNode* parent = node.parent;
  (node.previous != nullptr ? node.previous->next : parent->first_child) = node.next;
  if (node.next != nullptr) node.next->previous = node.previous;
  auto [each, end] = nodes_.equal_range(node.hash);
  while (each != end && each->second.get() != &node) ++each;
  nodes_.erase(each);
  return parent;
}

BlockNode* TokenTree::child(const BlockNode* parent, uint64_t hash, Tokens tokens) const {
  const auto [first, end] = nodes_.equal_range(hash);
  for (auto each = first; each != end; ++each) {
    BlockNode* node = each->second.get();
    if (node->parent == parent && std::equal(tokens.begin(), tokens.end(), node->tokens.begin())) {
      return node;
    }
  }
  return nullptr;
}

BlockNode* TokenTree::add(BlockNode* parent, Tokens tokens) {
  auto fresh = std::make_unique<BlockNode>();
  fresh->parent = parent;
  fresh->next = parent->first_child;
  fresh->hash = hash_(parent->hash, tokens);
  fresh->n_tokens = parent->n_tokens + block_tokens_;
  fresh->tokens.assign(tokens.begin(), tokens.end());
  BlockNode* node = nodes_.emplace(fresh->hash, std::move(fresh))->second.get();
  if (node->next != nullptr) node->next->previous = node;
  parent->first_child = node;
  return node;
}

uint64_t TokenTree::bytes() const {
  return bytes_of(nodes_.size(), checkpoints_.size(), tail_tokens_);
}

uint64_t TokenTree::bytes_alone(uint64_t n_tokens) const {
  return bytes_of(n_tokens / block_tokens_, 1, n_tokens % block_tokens_);
}

uint64_t TokenTree::bytes_of(uint64_t nodes, uint64_t checkpoints, uint64_t tails) const {
  constexpr uint64_t kAllocation = 16;               // what malloc adds
  constexpr uint64_t kEntry = 6 * sizeof(uint64_t);  // of the hash table, with its bucket
  const uint64_t node = sizeof(BlockNode) + block_tokens_ * sizeof(int32_t) + kEntry;
  const uint64_t checkpoint = sizeof(Checkpoint) + sizeof(Checkpoint*);
  return nodes * (node + 3 * kAllocation) + checkpoints * (checkpoint + 2 * kAllocation) +
         tails * sizeof(int32_t);
}

void TokenTree::check_integrity() const {
  size_t n_children = 0;
  size_t n_checkpoints = 0;
  const auto visit = [&](const BlockNode& node) {
    check_node(node);
    for (const BlockNode* each = node.first_child; each != nullptr; each = each->next) ++n_children;
    for (const Checkpoint* each = node.first_checkpoint; each != nullptr; each = each->next) {
      ++n_checkpoints;
    }
  };
  visit(*root_);
  for (const auto& [hash, node] : nodes_) {
    if (hash != node->hash) throw std::logic_error("[cache] token tree: a node under another hash");
    visit(*node);
  }
  if (n_children != nodes_.size() || n_checkpoints != checkpoints_.size()) {
    throw std::logic_error(concat("[cache] token tree: ", n_children, " children and ",
                                  n_checkpoints, " checkpoints are linked, ", nodes_.size(),
                                  " and ", checkpoints_.size(), " exist"));
  }
  check_checkpoints();
}

void TokenTree::check_node(const BlockNode& node) const {
  const auto fail = [&](const char* what) {
    throw std::logic_error(concat("[cache] node of ", node.n_tokens, " tokens: ", what));
  };
  if (!node.is_needed()) fail("without children and checkpoints");
  if (node.parent != nullptr) {
    if (node.tokens.size() != block_tokens_) fail("not a whole block");
    if (node.n_tokens != node.parent->n_tokens + block_tokens_) fail("wrong depth");
    if (node.hash != hash_(node.parent->hash, node.tokens)) fail("wrong hash");
    if (child(node.parent, node.hash, node.tokens) != &node) fail("twice");
  }
  const BlockNode* previous = nullptr;
  for (const BlockNode* each = node.first_child; each != nullptr; each = each->next) {
    if (each->parent != &node || each->previous != previous) fail("children linked wrongly");
    previous = each;
  }
}

void TokenTree::check_checkpoints() const {
  const auto fail = [](const Checkpoint& checkpoint, const char* what) {
    throw std::logic_error(
        concat("[cache] checkpoint of ", checkpoint.n_tokens(), " tokens: ", what));
  };
  uint64_t tail_tokens = 0;
  for (size_t i = 0; i < checkpoints_.size(); ++i) {
    const Checkpoint& checkpoint = *checkpoints_[i];
    tail_tokens += checkpoint.tail.size();
    if (checkpoint.index != i) fail(checkpoint, "wrong index");
    if (checkpoint.tail.size() >= block_tokens_) fail(checkpoint, "a tail of a whole block");
    if (checkpoint.n_tokens() == 0) fail(checkpoint, "of nothing");
    if (deepest_behind(*checkpoint.node, checkpoint.tail, kNoLimit) != &checkpoint) {
      fail(checkpoint, "not linked, or twice");
    }
  }
  if (tail_tokens != tail_tokens_) throw std::logic_error("[cache] token tree: tails miscounted");
}

}  // namespace mtlqwen
