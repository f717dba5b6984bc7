#include "engine/runtime.hpp"

#include <algorithm>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/math.hpp"
#include "base/version.hpp"
#include "io/checksum.hpp"
#include "model/dflash.hpp"
#include "model/fingerprint.hpp"
#include "model/layer_walk.hpp"
#include "model/mtp.hpp"

namespace mtlqwen {

namespace {

uint32_t choose_context(const ModelConfig& config, uint32_t wanted) {
  if (wanted > config.max_context) {
    throw CapacityError(concat("[engine] context: longer than the model allows (got ", wanted,
                               " tokens, want at most ", config.max_context,
                               "); pass a smaller context"));
  }
  return wanted == 0 ? config.max_context : wanted;
}

void lock(const TensorFiles& files) {
  for (uint32_t i = 0; i < files.n_files(); ++i) files.file(i).lock();
}

Weights open_weights(const EngineOptions& options) {
  Weights weights(options.model);
  if (options.lock_weights) lock(weights);
  return weights;
}

// What to read ahead: of locked files, nothing is left.
std::vector<std::span<uint8_t>> pages_to_read(const Runtime& runtime,
                                              const EngineOptions& options) {
  std::vector<std::span<uint8_t>> ranges;
  if (!options.prefetch_weights || options.lock_weights) return ranges;
  const auto add = [&](const TensorFiles& files) {
    for (uint32_t i = 0; i < files.n_files(); ++i) {
      ranges.emplace_back(files.file(i).pages(), files.file(i).page_bytes());
    }
  };
  add(runtime.weights);
  if (runtime.dflash) add(*runtime.dflash);
  return ranges;
}

DrafterKind choose_drafter(const EngineOptions& options, const Weights& weights) {
  if (!options.spec) {
    if (!options.drafter.empty()) return DrafterKind::kDflash;
    return weights.has_mtp() ? DrafterKind::kMtp : DrafterKind::kNgram;
  }
  if (options.spec == DrafterKind::kMtp && !weights.has_mtp()) {
    throw ModelError(concat("[engine] spec: the model has no prediction head that runs (",
                            weights.mtp_problem(), "); use another spec"));
  }
  if (options.spec == DrafterKind::kDflash && options.drafter.empty()) {
    throw std::invalid_argument(
        "[engine] spec: dflash without a drafter (got no path, want its file); name one, or use "
        "auto");
  }
  return *options.spec;
}

std::optional<DflashWeights> open_dflash(DrafterKind drafter, const EngineOptions& options,
                                         const Weights& weights) {
  // It may have been found beside the model, where nobody thought of a drafter.
  constexpr std::string_view kHint =
      "; no drafter is needed: spec=\"off\" runs without, drafter= names another";
  if (drafter != DrafterKind::kDflash) return std::nullopt;
  try {
    std::optional<DflashWeights> dflash(std::in_place, options.drafter, weights.config());
    if (options.lock_weights) lock(*dflash);
    return dflash;
  } catch (const FormatError& error) {
    throw FormatError(concat(error.what(), kHint));
  } catch (const ModelError& error) {
    throw ModelError(concat(error.what(), kHint));
  }
}

KvShape kv_shape(const Runtime& runtime, const EngineOptions& options, uint32_t context) {
  const ModelConfig& config = runtime.weights.config();
  uint64_t token_bytes = kv_bytes(config);
  if (runtime.dflash) {
    token_bytes = std::max(token_bytes, kv_bytes(Dflash::layers_of(runtime.dflash->config())));
  }
  const uint32_t of_layer = PlaneDealer::n_planes(kv_bytes(config), token_bytes);
  uint32_t n_planes = config.n_layers(LayerKind::kAttention) * of_layer;
  if (runtime.dflash) n_planes += Dflash::n_planes(runtime.dflash->config(), token_bytes);
  if (runtime.drafter_kind == DrafterKind::kMtp) n_planes += of_layer;
  return {.n_planes = n_planes,
          .token_bytes = token_bytes,
          .slots = options.slots,
          .context = context,
          .block_tokens = options.block_tokens};
}

std::optional<DeviceWeights> wrap_dflash(Device& device,
                                         const std::optional<DflashWeights>& dflash) {
  if (!dflash) return std::nullopt;
  return std::optional<DeviceWeights>(std::in_place, device, *dflash);
}

// The seed of the prediction head stands behind the states.
uint64_t bank_floats(const ModelConfig& config, DrafterKind drafter) {
  return gdn_bank_floats(config) + (drafter == DrafterKind::kMtp ? config.hidden : 0);
}

// Announces a stage on the way into a member's initialiser.
template <class T>
T&& announced(const std::function<void(const char*)>& stage, const char* name, T&& value) {
  stage(name);
  return std::forward<T>(value);
}

}  // namespace

Runtime::Runtime(const EngineOptions& options, const std::function<void(const char* stage)>& stage)
    : weights(open_weights(announced(stage, "weights", options))),
      drafter_kind(choose_drafter(options, weights)),
      dflash(open_dflash(drafter_kind, options, weights)),
      prefetcher(pages_to_read(*this, options)),
      context(choose_context(weights.config(), options.context)),
      device(announced(stage, "device", options.kernels)), device_weights(device, weights),
      dflash_weights(wrap_dflash(device, dflash)),
      budget_bytes(options.memory_budget.value_or(device.recommended_bytes())),
      pool(device, bundle_shape(kv_shape(*this, options, context))),
      kv_pool(device, pool, kv_shape(*this, options, context)),
      banks(device, pool, bank_floats(weights.config(), drafter_kind), 2 * options.slots,
            budget_bytes),
      forward({.device = device,
               .config = announced(stage, "kernels", weights.config()),
               .weights = device_weights,
               .kv_pool = kv_pool,
               .banks = banks,
               .slots = options.slots,
               .context = context,
               .deterministic = options.deterministic,
               .drafter = drafter_kind,
               .dflash = dflash ? &dflash->config() : nullptr,
               .dflash_weights = dflash_weights ? &*dflash_weights : nullptr,
               .draft_noise = options.draft_noise}),
      cache(pool, banks, options.block_tokens, cache_bytes(options)),
      deterministic_(options.deterministic), looks_back_(!options.spec) {
  if (options.threads != 0) device.set_threads(options.threads);
  divide_budget(options);
}

// States of other kernels are not the same bits, and those for another drafter lack what this one needs: of such files,
// the tokens alone are of use.
void Runtime::open_files() {
  if (origin) return;
  const Fingerprint contexts = fingerprint_of(
      weights, {.mtp = drafter_kind == DrafterKind::kMtp, .dflash = dflash ? &*dflash : nullptr});
  const std::string arithmetic = concat(kVersion, " ", device.arithmetic_name(),
                                        deterministic_ ? " deterministic " : " ", to_hex(contexts));
  const auto* text = reinterpret_cast<const uint8_t*>(arithmetic.data());
  const StateOrigin made{.model = fingerprint_of(weights),
                         .arithmetic = checksum({text, arithmetic.size()}),
                         .n_planes = kv_pool.layout().n_planes(),
                         .token_bytes = kv_pool.layout().token_bytes(),
                         .bank_bytes = bank_floats(weights.config(), drafter_kind) * sizeof(float)};
  transfer = std::make_unique<Transfer>(device, kv_pool, banks, made);
  origin = made;
}

uint32_t Runtime::most_width() const {
  switch (drafter_kind) {
  case DrafterKind::kNone:
    return 0;
  case DrafterKind::kNgram:
    return kMostWidth;
  case DrafterKind::kMtp:
    return kMtpSteps;
  case DrafterKind::kDflash:
    return std::min(kMostWidth, dflash->config().block_size - 1);
  }
  return 0;
}

// Where nobody was named, what the text itself says may come before what a drafter says.
std::vector<DraftOption> Runtime::draft_options() const {
  std::vector<DraftOption> options{{.kind = drafter_kind, .most = most_width()}};
  if (looks_back_ && drafter_kind != DrafterKind::kNgram) {
    options.push_back({.kind = DrafterKind::kNgram, .most = kMostWidth});
  }
  return options;
}

uint64_t Runtime::cache_bytes(const EngineOptions& options) const {
  const uint64_t fixed = std::min(device.allocated_bytes(), budget_bytes);
  return options.cache_memory.value_or((budget_bytes - fixed) / 4);
}

// What weights, arenas and the staging of files leave of the budget is the pool's. It has to hold one sequence, with the
// bank that a pass reads and the one that it writes; all slots and the cache are what it is used for.
void Runtime::divide_budget(const EngineOptions& options) {
  const uint64_t fixed = device.allocated_bytes() + Transfer::kStagingBytes;
  const uint64_t banks_of_one = 2 * banks.bank_bundles();
  const uint32_t least_context = options.context == 0 ? options.block_tokens : context;
  const uint64_t least =
      fixed + (kv_pool.blocks_of(least_context) + banks_of_one) * pool.bundle_bytes();
  if (budget_bytes < least) {
    throw CapacityError(concat("[engine] memory_budget: too small for the model and ",
                               least_context, " tokens of context (got ", budget_bytes,
                               " bytes, want at least ", least,
                               "); raise it, or lower slots or context"));
  }
  const uint64_t of_slot = kv_pool.blocks_of(kv_pool.slot_tokens()) + banks_of_one;
  pool.set_limit(budget_bytes - fixed,
                 options.slots * of_slot + ceil_div(cache.max_bytes(), pool.bundle_bytes()));
  if (kv_pool.layout().n_planes() == 0) return;
  const uint64_t blocks = pool.max_bundles() - banks_of_one;
  context = static_cast<uint32_t>(std::min<uint64_t>(context, blocks * options.block_tokens));
}

}  // namespace mtlqwen
