// Engine's memory as pictures show it: who holds which bundle, and the prefix tree.
#include <algorithm>
#include <unordered_map>

#include "engine/engine.hpp"
#include "engine/runtime.hpp"

namespace mtlqwen {

namespace {

constexpr size_t kShownTokens = 16;  // of a block; a picture has room for no more

std::vector<int32_t> first_of(const std::vector<int32_t>& tokens) {
  const size_t n = std::min(tokens.size(), kShownTokens);
  return {tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(n)};
}

}  // namespace

MemoryMap Engine::memory_map() {
  const std::lock_guard lock(mutex_);
  require_open_locked();
  MemoryMap map{.block_tokens = runtime_->cache.block_tokens(),
                .n_bundles = runtime_->pool.max_bundles(),
                .bundle_bytes = runtime_->pool.bundle_bytes()};
  map_bundles_locked(map);
  map_tree_locked(map);
  return map;
}

void Engine::map_bundles_locked(MemoryMap& map) const {
  map.holders.assign(runtime_->pool.no_refs().size(), 0);
  const auto mark = [&](const auto& owner, BundleHolder holder) {
    std::vector<uint32_t> refs = runtime_->pool.no_refs();
    owner.add_refs(refs);
    for (size_t i = 0; i < refs.size(); ++i) {
      if (refs[i] != 0) map.holders[i] = static_cast<uint8_t>(map.holders[i] | holder);
    }
  };
  mark(runtime_->kv_pool, kHeldBySlot);
  mark(runtime_->cache, kHeldByCache);
  mark(runtime_->banks, kHeldByState);
}

void Engine::map_tree_locked(MemoryMap& map) const {
  const TokenTree& tree = runtime_->cache.tree();
  std::vector<const BlockNode*> nodes;
  nodes.reserve(tree.nodes().size());
  for (const auto& [hash, node] : tree.nodes()) nodes.push_back(node.get());
  std::ranges::sort(nodes, [](const BlockNode* a, const BlockNode* b) {
    return a->n_tokens != b->n_tokens ? a->n_tokens < b->n_tokens : a->tokens < b->tokens;
  });
  std::unordered_map<const BlockNode*, int32_t> place;  // the root is not in it
  const auto place_of = [&](const BlockNode* node) {
    const auto found = place.find(node);
    return found == place.end() ? -1 : found->second;
  };
  for (const BlockNode* node : nodes) {
    map.blocks.push_back({.parent = place_of(node->parent),
                          .n_tokens = node->n_tokens,
                          .tokens = first_of(node->tokens)});
    place.emplace(node, static_cast<int32_t>(place.size()));
  }
  for (const auto& checkpoint : tree.checkpoints()) {
    map.checkpoints.push_back({.parent = place_of(checkpoint->node),
                               .n_tokens = checkpoint->n_tokens(),
                               .uses = checkpoint->uses,
                               .tokens = first_of(checkpoint->tail)});
  }
}

}  // namespace mtlqwen
