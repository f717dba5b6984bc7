// Engine: checkpoints to files and back.
#include <algorithm>
#include <stdexcept>
#include <utility>

#include "base/error.hpp"
#include "engine/archive.hpp"
#include "engine/device_guard.hpp"
#include "engine/engine.hpp"
#include "engine/runtime.hpp"

namespace mtlqwen {

namespace {

constexpr size_t kMostQueued = 64;  // prefixes that wait to be written; the oldest gives way
constexpr std::chrono::milliseconds kDiskPatience{10};
constexpr std::chrono::seconds kClosePatience{10};
constexpr uint64_t kLargestState = 1ULL << 30;  // bytes; passes wait while it is copied

}  // namespace

const StateOrigin& Engine::open_files() {
  const std::lock_guard lock(mutex_);
  runtime_->open_files();
  return *runtime_->origin;
}

// Only close() stops a copy. One that the device fails at is like a pass that failed: what was mapped
// before it may be what failed.
void Engine::run_copy(const std::function<void(Transfer&)>& copy) {
  try {
    copy(*runtime_->transfer);
  } catch (const FormatError&) {
    throw;
  } catch (const Aborted&) {
    const std::lock_guard lock(mutex_);
    require_open_locked();
    throw;
  } catch (const Error&) {
    const std::lock_guard lock(mutex_);
    fail_live_locked(std::current_exception());
    throw;
  }
}

// A checkpoint with an owner beside the cache: it can be read while others are evicted.
class Engine::Pin {
 public:
  Pin(Engine& engine, Recall recall) : engine_(engine), recall_(std::move(recall)) {
    Runtime& runtime = *engine_.runtime_;
    runtime.pool.share(recall_.bundles);
    runtime.banks.share(recall_.bank);
  }
  ~Pin() {
    const std::lock_guard lock(engine_.mutex_);
    engine_.runtime_->pool.drop(recall_.bundles);
    engine_.runtime_->banks.drop(recall_.bank);
  }
  Pin(const Pin&) = delete;
  Pin& operator=(const Pin&) = delete;

  [[nodiscard]] HostState read() const {
    HostState state;
    engine_.run_copy([&](Transfer& transfer) {
      state = transfer.read(recall_.n_tokens, recall_.bank, recall_.bundles);
    });
    return state;
  }

 private:
  Engine& engine_;
  const Recall recall_;
};

std::optional<HostState> Engine::read_state(std::span<const int32_t> token_ids, bool exactly) {
  std::optional<Pin> pin;
  {
    const std::lock_guard lock(mutex_);
    const auto limit = static_cast<uint32_t>(token_ids.size());
    Recall found = runtime_->cache.peek(token_ids, limit);
    if (found.n_tokens == 0 || (exactly && found.n_tokens != limit)) return std::nullopt;
    pin.emplace(*this, std::move(found));
  }
  return pin->read();
}

// Into the cache, where it fits. Only a checkpoint that the engine's own kernels could have left is
// taken: another one would change bits.
uint32_t Engine::publish_file(const CheckpointFile& file) {
  const CheckpointHeader& header = file.header();
  const std::span<const int32_t> tokens = header.token_ids.first(header.state_tokens);
  Runtime& runtime = *runtime_;
  if (tokens.empty() || header.origin.arithmetic != runtime.origin->arithmetic) return 0;
  std::vector<uint32_t> bundles;
  uint32_t bank = 0;
  {
    const std::lock_guard lock(mutex_);
    if (!runtime.cache.is_on() || tokens.size() >= context_) return 0;
    if (runtime.cache.contains(tokens)) return header.state_tokens;
    const uint32_t n_blocks = runtime.kv_pool.blocks_of(header.state_tokens);
    if (!has_reclaimable_locked(n_blocks, 1) || !make_room_locked(n_blocks, 1)) return 0;
    bank = runtime.banks.take();
    try {
      bundles = runtime.pool.take(n_blocks);
    } catch (...) {
      runtime.banks.drop(bank);
      throw;
    }
  }
  const auto give_up = [&] {
    const std::lock_guard lock(mutex_);
    runtime.pool.drop(bundles);
    runtime.banks.drop(bank);
  };
  bool is_kept = false;
  try {
    run_copy([&](Transfer& transfer) { transfer.write(file, bank, bundles); });
    const std::lock_guard lock(mutex_);
    runtime.banks.confirm();
    runtime.cache.publish(tokens, bank, bundles);
    is_kept = runtime.cache.contains(tokens);
  } catch (...) {
    give_up();
    throw;
  }
  give_up();
  return is_kept ? header.state_tokens : 0;
}

uint32_t Engine::save_checkpoint(const std::string& path, const std::vector<int32_t>& token_ids,
                                 const std::string& note, bool with_state) {
  std::optional<HostState> state;
  StateOrigin origin;
  {
    const DeviceGuard guard(*this);
    origin = open_files();
    if (with_state) state = read_state(token_ids, false);
  }
  const CheckpointHeader header{.origin = origin,
                                .token_ids = token_ids,
                                .note = note,
                                .state_tokens = state ? state->n_tokens : 0};
  write_checkpoint(path, header, state ? state->pieces(origin.n_planes) : StatePieces{});
  return header.state_tokens;
}

// Passes wait for the copy, not for the disk.
SavedCheckpoint Engine::load_checkpoint(const std::string& path) {
  StateOrigin origin;
  {
    const DeviceGuard guard(*this);
    origin = open_files();
  }
  const CheckpointFile file(path, origin);
  file.verify();
  const std::span<const int32_t> tokens = file.header().token_ids;
  if (std::ranges::any_of(tokens, [&](int32_t id) { return id < 0 || id >= int64_t{vocab_}; })) {
    throw FormatError(concat("[checkpoint] ", path, ": a token id is out of range (want 0 to ",
                             vocab_ - 1, "); the file is damaged"));
  }
  const DeviceGuard guard(*this);
  return {.token_ids = {tokens.begin(), tokens.end()},
          .note = std::string(file.header().note),
          .n_cached = publish_file(file)};
}

// What is likely to be wanted after a restart: the prompt up to its last boundary, and what it may
// share with others.
void Engine::queue_for_disk_locked(const Sequence& sequence) {
  if (!archive_) return;
  const auto queue = [&](uint32_t n_tokens) {
    if (n_tokens < runtime_->cache.block_tokens() || n_tokens > sequence.kv_valid) return;
    const StateOrigin& origin = *runtime_->origin;
    if (origin.bank_bytes + n_tokens * origin.token_bytes * origin.n_planes > kLargestState) return;
    to_disk_.emplace_back(sequence.request.begin(), sequence.request.begin() + n_tokens);
    if (to_disk_.size() > kMostQueued) to_disk_.pop_front();
  };
  const std::vector<uint32_t>& likely = sequence.options.checkpoint_at;
  if (!likely.empty()) queue(likely.front());
  const auto last = std::ranges::upper_bound(sequence.boundaries, sequence.n_prompt);
  if (last != sequence.boundaries.begin()) queue(*std::prev(last));
}

// Hands one state to the disk; false: none waits, or it was gone.
bool Engine::write_one_to_disk() {
  for (;;) {
    std::vector<int32_t> tokens;
    {
      const std::lock_guard lock(mutex_);
      if (to_disk_.empty()) return false;
      tokens = std::move(to_disk_.front());
      to_disk_.pop_front();
    }
    if (archive_->store().contains(tokens)) continue;
    std::optional<HostState> state = read_state(tokens, true);
    if (!state) continue;
    archive_->write(std::move(tokens), std::move(*state));
    return true;
  }
}

// Between passes, as long as the disk keeps up; an idle engine waits for it, but not long. What was
// asked to stop was the pass before.
bool Engine::feed_disk(bool idle) {
  if (!archive_) return false;
  {
    const std::lock_guard lock(mutex_);
    if (closed_ || to_disk_.empty()) return false;
    runtime_->device.clear_abort();
  }
  if (!archive_->has_room() && !(idle && archive_->wait_for_room(kDiskPatience))) return idle;
  return write_one_to_disk();
}

// The engine closes: what waits is written, as far as the disk gets. Where the device fails, it is
// lost: nobody could close the engine else.
void Engine::flush_disk() {
  if (!archive_) return;
  runtime_->device.clear_abort();
  try {
    for (const auto end = Clock::now() + kClosePatience; Clock::now() < end;) {
      if (archive_->wait_for_room(kDiskPatience) && !write_one_to_disk()) break;
    }
  } catch (const std::exception&) {
    // What was handed over by then is written all the same.
  }
  archive_.reset();
}

// Requests that are about to get a slot, and whose prefix may be on the disk.
void Engine::fetch_from_disk() {
  if (!archive_) return;
  std::vector<std::pair<std::vector<int32_t>, uint32_t>> wanted;  // a request, what is cached of it
  {
    const std::lock_guard lock(mutex_);
    if (!runtime_->cache.is_on()) return;
    for (auto& [id, sequence] : sequences_) {
      if (sequence.slot || sequence.finished() || sequence.looked_on_disk) continue;
      if (wanted.size() == slots_) break;
      sequence.looked_on_disk = true;
      if (!sequence.options.recall) continue;
      const auto limit = static_cast<uint32_t>(sequence.request.size()) - 1;
      wanted.emplace_back(sequence.request, runtime_->cache.depth(sequence.request, limit));
    }
  }
  for (const auto& [request, cached] : wanted) fetch_prefix(request, cached);
}

void Engine::fetch_prefix(const std::vector<int32_t>& request, uint32_t cached) {
  DiskStore& store = archive_->store();
  const auto limit = static_cast<uint32_t>(request.size()) - 1;
  const std::optional<CheckpointFile> file =
      store.find(request, limit, cached + runtime_->cache.block_tokens() - 1);
  if (!file) return;
  try {
    const uint32_t n_tokens = publish_file(*file);
    const std::lock_guard lock(mutex_);
    stats_.disk_hits += n_tokens != 0 ? 1 : 0;
  } catch (const FormatError&) {
    store.discard(file->path());
  } catch (const CapacityError&) {
    return;  // it is computed, then
  }
}

}  // namespace mtlqwen
