// Engine's memory: which sequence gets bundles and banks, and which loses them.
#include <algorithm>
#include <exception>
#include <utility>

#include "base/error.hpp"
#include "engine/drafts.hpp"
#include "engine/engine.hpp"
#include "engine/runtime.hpp"

namespace mtlqwen {

// Whether all that live sequences have been asked so far, and this one and its next token, fit the
// pool, with a bank to read and one to write for each.
bool Engine::has_memory_for_locked(const Sequence& sequence) const {
  const KvPool& kv_pool = runtime_->kv_pool;
  const GdnBanks& banks = runtime_->banks;
  uint64_t wanted = kv_pool.blocks_of(static_cast<uint32_t>(sequence.request.size()) + 1);
  uint64_t wanted_banks = 2;
  for (const auto& [id, other] : sequences_) {
    if (!other.slot) continue;
    wanted += kv_pool.missing_bundles(*other.slot, static_cast<uint32_t>(other.request.size()),
                                      other.kv_valid);
    wanted_banks += other.bank ? 1 : 2;
  }
  wanted += wanted_banks * banks.bank_bundles();
  const uint64_t free = free_bundles_locked();
  const uint64_t reclaimable = runtime_->cache.reclaimable_bundles();
  if (wanted <= free + reclaimable) return true;
  // What it recalls it need not take, but then nobody can reclaim that.
  const uint64_t recalled = recallable_blocks_locked(sequence);
  return wanted <=
         free + recalled + (reclaimable - std::min(reclaimable, recalled + banks.bank_bundles()));
}

// Those of spare banks included.
uint64_t Engine::free_bundles_locked() const {
  const GdnBanks& banks = runtime_->banks;
  return runtime_->pool.n_free() + uint64_t{banks.n_spare()} * banks.bank_bundles();
}

// Memory for every row of the plan, the oldest sequence first. Who loses its slot for it leaves the batch. Drafts get what is
// left then: nobody loses a slot or a checkpoint for them.
void Engine::reserve_locked(Batch& batch) {
  for (Query& query : batch.queries) {
    Sequence& sequence = sequences_.at(query.sequence);
    while (sequence.slot && !reserve_one_locked(sequence, query)) {
      preempt_locked(*youngest_live_locked());
    }
  }
  std::erase_if(batch.queries,
                [&](const Query& query) { return !sequences_.at(query.sequence).slot; });
  batch.rows = 0;
  for (Query& query : batch.queries) {
    if (query.width > 0) reserve_draft_locked(query);
    query.first_row = std::exchange(batch.rows, batch.rows + query.count);
  }
}

// False: the pool is full, but not of this sequence alone. What cannot be mended by waiting ends the sequence.
bool Engine::reserve_one_locked(Sequence& sequence, Query& query) {
  if (!make_room_locked(query)) {
    query.writes.erase(query.writes.begin(), query.writes.end() - 1);  // no checkpoints, then
    if (!make_room_locked(query)) return false;
  }
  try {
    runtime_->kv_pool.reserve(query.slot, query.kv_valid + query.count - query.width,
                              query.kv_valid);
    for (StateWrite& write : query.writes) {
      pass_banks_.reserve(pass_banks_.size() + 1);
      write.bank = runtime_->banks.take();
      pass_banks_.push_back(write.bank);
    }
  } catch (const Error&) {
    finish_locked(sequence, FinishReason::kError, std::current_exception());
  }
  return true;
}

// What a query needs is counted anew each time: a bundle that loses its other owners need not be
// copied.
bool Engine::make_room_locked(const Query& query) {
  const auto n_banks = static_cast<uint32_t>(query.writes.size());
  for (;;) {
    const uint32_t n_bundles = runtime_->kv_pool.missing_bundles(
        query.slot, query.kv_valid + query.count - query.width, query.kv_valid);
    if (has_room_locked(n_bundles, n_banks)) return true;
    if (!runtime_->cache.evict_one()) return false;
  }
}

// A state for each row where they may be kept and fit; else the tape, and the one bank that the query has. A draft whose
// keys and values do not fit is dropped.
void Engine::reserve_draft_locked(Query& query) {
  const uint32_t n_tokens = query.kv_valid + query.count;
  const uint32_t n_bundles =
      runtime_->kv_pool.missing_bundles(query.slot, n_tokens, query.kv_valid);
  const uint64_t state_bytes = runtime_->banks.bank_bundles() * runtime_->pool.bundle_bytes();
  query.taped =
      query.count * state_bytes > candidate_bytes_ || !has_room_locked(n_bundles, query.width);
  if (query.taped && !has_room_locked(n_bundles, 0)) return drop_draft(query);
  try {
    runtime_->kv_pool.reserve(query.slot, n_tokens, query.kv_valid);
    for (uint32_t rows = query.count; !query.taped && rows > 1; --rows) {
      pass_banks_.reserve(pass_banks_.size() + 1);
      query.writes.push_back({.rows = rows, .bank = runtime_->banks.take()});
      pass_banks_.push_back(query.writes.back().bank);
    }
  } catch (const Error&) {  // what was taken is the pass's, or stays reserved
    return drop_draft(query);
  }
  query.writes.front().rows = query.taped ? query.count : 1;
  std::ranges::sort(query.writes, {}, &StateWrite::rows);
}

bool Engine::make_room_locked(uint32_t n_bundles, uint32_t n_banks) {
  while (!has_room_locked(n_bundles, n_banks)) {
    if (!runtime_->cache.evict_one()) return false;
  }
  return true;
}

// Whether evicting all that the cache holds alone would make the room.
bool Engine::has_reclaimable_locked(uint32_t n_bundles, uint32_t n_banks) const {
  const uint64_t wanted = n_bundles + uint64_t{n_banks} * runtime_->banks.bank_bundles();
  return wanted <= free_bundles_locked() + runtime_->cache.reclaimable_bundles();
}

// Spare banks that nobody asks for go back to the pool where it is short.
bool Engine::has_room_locked(uint32_t n_bundles, uint32_t n_banks) {
  GdnBanks& banks = runtime_->banks;
  if (n_banks > banks.n_free()) return false;
  n_bundles += (n_banks - std::min(n_banks, banks.n_spare())) * banks.bank_bundles();
  if (n_bundles > runtime_->pool.n_free()) banks.reclaim(n_banks);
  return n_bundles <= runtime_->pool.n_free();
}

Sequence* Engine::youngest_live_locked() {
  Sequence* youngest = nullptr;
  for (auto& [id, sequence] : sequences_) {
    if (sequence.slot) youngest = &sequence;
  }
  return youngest;
}

// Its memory goes, its request stays: it waits in its old place and is computed again, token by token the same.
void Engine::preempt_locked(Sequence& sequence) {
  free_slot_locked(sequence);
  sequence.kv_valid = 0;
  sequence.logit_row.reset();
  ++stats_.preemptions;
  if (trace_) trace_->add_preemption(sequence.id);
}

// What a pass wrote belongs to nobody else unless it was committed.
void Engine::drop_pass_banks_locked() {
  for (const uint32_t bank : pass_banks_) runtime_->banks.drop(bank);
  pass_banks_.clear();
}

// The bank that a pass wrote becomes the sequence's.
void Engine::keep_bank_locked(Sequence& sequence, uint32_t bank) {
  runtime_->banks.share(bank);
  if (sequence.bank) runtime_->banks.drop(*sequence.bank);
  sequence.bank = bank;
}

void Engine::free_slot_locked(Sequence& sequence) {
  sequence.boundaries.clear();
  runtime_->forward.drop(*sequence.slot);
  runtime_->kv_pool.release(*sequence.slot);
  if (sequence.bank) runtime_->banks.drop(*sequence.bank);
  sequence.bank.reset();
  slot_owner_[*sequence.slot] = 0;
  sequence.slot.reset();
}

// Every owner's count of what it holds against what is counted.
void Engine::check_memory_locked() const {
  std::vector<uint32_t> refs = runtime_->pool.no_refs();
  runtime_->kv_pool.add_refs(refs);
  runtime_->cache.check_integrity();
  runtime_->cache.add_refs(refs);
  runtime_->banks.add_refs(refs);
  runtime_->pool.check_integrity(refs);
  std::vector<uint32_t> owners = runtime_->banks.no_owners();
  for (const auto& [id, sequence] : sequences_) {
    if (sequence.bank) ++owners.at(*sequence.bank);
  }
  for (const uint32_t bank : pass_banks_) ++owners.at(bank);
  runtime_->cache.add_owners(owners);
  runtime_->banks.check_integrity(owners);
}

}  // namespace mtlqwen
