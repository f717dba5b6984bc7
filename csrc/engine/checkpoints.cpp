// Engine: the rooms recall and remember, and what plans for them.
#include <algorithm>
#include <exception>
#include <new>

#include "base/error.hpp"
#include "engine/archive.hpp"
#include "engine/boundaries.hpp"
#include "engine/engine.hpp"
#include "engine/runtime.hpp"

namespace mtlqwen {

namespace {

// Of one query in one pass. More are rare, and every one costs a bank while the pass runs.
constexpr uint32_t kMostWrites = 4;

uint32_t common_prefix(std::span<const int32_t> a, std::span<const int32_t> b) {
  return static_cast<uint32_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

void add_boundary(std::vector<uint32_t>& boundaries, uint32_t position) {
  const auto place = std::ranges::lower_bound(boundaries, position);
  if (place == boundaries.end() || *place != position) boundaries.insert(place, position);
}

// A request is run from its last token at the latest: somebody has to give the logits.
uint32_t most_recalled(const Sequence& sequence) {
  return static_cast<uint32_t>(sequence.request.size()) - 1;
}

}  // namespace

// True: a live sequence is computing a prefix of this one, and will leave a checkpoint at its end.
// It takes as long as that sequence needs for it; computing it twice would take both longer.
bool Engine::awaits_prefix_locked(Sequence& sequence) {
  if (!sequence.awaited) return false;
  const auto found = sequences_.find(sequence.awaited->sequence);
  const bool is_coming = found != sequences_.end() && found->second.slot &&
                         found->second.kv_valid < sequence.awaited->n_tokens;
  if (!is_coming) sequence.awaited.reset();
  return is_coming;
}

// Looks for such a sequence. Worth it from a block on.
bool Engine::await_prefix_locked(Sequence& sequence) {
  PrefixCache& cache = runtime_->cache;
  if (!cache.is_on() || !sequence.options.recall) return false;
  const uint32_t most = most_recalled(sequence);
  uint32_t best = cache.depth(sequence.request, most) + cache.block_tokens() - 1;
  Sequence* leader = nullptr;
  for (auto& [id, other] : sequences_) {
    if (!other.slot || other.pending() == 1) continue;
    const uint32_t shared = std::min(common_prefix(sequence.request, other.request), most);
    if (shared <= best || shared <= other.kv_valid) continue;
    best = shared;
    leader = &other;
  }
  if (leader == nullptr) return false;
  add_boundary(leader->boundaries, best);
  sequence.awaited = {.sequence = leader->id, .n_tokens = best};
  return true;
}

// A sequence that gets its slot takes over the deepest checkpoint of its request.
void Engine::recall_locked(Sequence& sequence) {
  PrefixCache& cache = runtime_->cache;
  Recall found;
  if (cache.is_on() && sequence.options.recall) {
    found = cache.find(sequence.request, most_recalled(sequence));
    try {
      adopt_locked(sequence, found);
    } catch (const Error&) {
      return finish_locked(sequence, FinishReason::kError, std::current_exception());
    }
  }
  const bool leaves = found.known >= found.n_tokens + cache.block_tokens();
  sequence.boundaries =
      choose_boundaries({.n_tokens = static_cast<uint32_t>(sequence.request.size()),
                         .likely = sequence.options.checkpoint_at,
                         .diverges = leaves ? found.known : 0,
                         .block_tokens = cache.block_tokens()});
  count_recall_locked(sequence, found);
}

void Engine::adopt_locked(Sequence& sequence, const Recall& found) {
  if (found.n_tokens == 0) return;
  runtime_->kv_pool.adopt(*sequence.slot, found.bundles);
  runtime_->banks.share(found.bank);
  sequence.bank = found.bank;
  sequence.kv_valid = found.n_tokens;
}

void Engine::count_recall_locked(Sequence& sequence, const Recall& found) {
  sequence.recalled = found.n_tokens;
  if (sequence.started == Clock::time_point{}) {
    sequence.cached_tokens = found.n_tokens;
  }
  stats_.cached_tokens += found.n_tokens;
  (found.evicted ? stats_.evicted_tokens : stats_.uncovered_tokens) += found.known - found.n_tokens;
  if (trace_) trace_->add_recall(sequence, found);
}

// Whole blocks of a waiting sequence that it would share.
uint32_t Engine::recallable_blocks_locked(const Sequence& sequence) const {
  const PrefixCache& cache = runtime_->cache;
  if (!cache.is_on() || !sequence.options.recall) return 0;
  return cache.depth(sequence.request, most_recalled(sequence)) / cache.block_tokens();
}

// What the rows of a query leave behind: the states at its boundaries, the last one always.
void Engine::plan_writes_locked(const Sequence& sequence, Query& query) const {
  const PrefixCache& cache = runtime_->cache;
  std::vector<uint32_t> positions;
  if (cache.is_on()) {
    positions = boundaries_between(sequence.boundaries, checkpoint_interval_, query.kv_valid,
                                   query.kv_valid + query.count, kMostWrites);
  }
  if (positions.size() == kMostWrites) query.count = positions.back() - query.kv_valid;
  for (const uint32_t position : positions) {
    query.writes.push_back({.rows = position - query.kv_valid, .bank = 0});
  }
  if (positions.empty() || positions.back() != query.kv_valid + query.count) {
    query.writes.push_back({.rows = query.count, .bank = 0});
  }
}

// The boundaries that a query has reached with its first `rows` rows, which hold. A draft ends at one at
// the latest.
void Engine::remember_locked(const Sequence& sequence, const Query& query, uint32_t rows) {
  for (const StateWrite& write : query.writes) {
    if (write.rows > rows) return;
    const uint32_t position = query.kv_valid + write.rows;
    if (is_boundary(sequence, position)) publish_locked(sequence, position, write.bank);
  }
}

// A sequence leaves its bank and its bundles, shared. What cannot be kept is not kept; nor is a block
// whose copy a stopped pass has not made.
void Engine::publish_locked(const Sequence& sequence, uint32_t n_tokens, uint32_t bank) {
  if (runtime_->kv_pool.has_pending_copy(*sequence.slot)) return;
  runtime_->device.clear_abort();  // who asked for it wanted the pass to end, which it has
  if (!runtime_->forward.settle(*sequence.slot)) return;
  PrefixCache& cache = runtime_->cache;
  const std::span<const uint32_t> bundles = runtime_->kv_pool.bundles(*sequence.slot);
  try {
    cache.publish(std::span(sequence.request).first(n_tokens), bank,
                  bundles.first(runtime_->kv_pool.blocks_of(n_tokens)));
  } catch (const std::bad_alloc&) {
    return;
  }
}

bool Engine::is_boundary(const Sequence& sequence, uint32_t position) const {
  return runtime_->cache.is_on() &&
         !boundaries_between(sequence.boundaries, checkpoint_interval_, position - 1, position, 1)
              .empty();
}

// Who ends leaves all that it computed, where that is a block or more beyond what is known: it costs
// nothing but the memory.
void Engine::remember_end_locked(const Sequence& sequence) {
  PrefixCache& cache = runtime_->cache;
  if (!cache.is_on() || sequence.kv_valid <= sequence.recalled) return;
  queue_for_disk_locked(sequence);
  const uint32_t known = cache.depth(sequence.request, sequence.kv_valid);
  if (sequence.kv_valid < known + cache.block_tokens()) return;
  publish_locked(sequence, sequence.kv_valid, *sequence.bank);
}

void Engine::add_cache_locked(Stats& stats) const {
  const PrefixCache& cache = runtime_->cache;
  stats.cache_bytes = cache.bytes();
  stats.cache_budget_bytes = cache.max_bytes();
  stats.cache_checkpoints = cache.n_checkpoints();
  stats.cache_hits = cache.counters().hits;
  stats.cache_misses = cache.counters().misses;
  stats.cache_published = cache.counters().published;
  stats.cache_evictions = cache.counters().evictions;
  if (!archive_) return;
  const Archive::Counters disk = archive_->counters();
  stats.disk_written = disk.written;
  stats.disk_failed = disk.failed;
}

}  // namespace mtlqwen
