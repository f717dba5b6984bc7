#include "model/dflash_config.hpp"

#include <algorithm>
#include <cmath>

#include "model/config_checker.hpp"

namespace mtlqwen {
namespace {

constexpr uint32_t kMaxBlock = 1024;

}  // namespace

void fail_other_drafter(const std::string& subject, const std::string& found) {
  throw ModelError(concat(subject, ": drafter is not one that runs (has ", found,
                          ", want a DFlash ", "drafter without); DFlash2 and DSpark do not run"));
}

void validate(const DflashConfig& config, const std::string& subject) {
  const ConfigChecker check(subject);
  check.width("hidden size", config.hidden);
  check.width("intermediate size", config.intermediate);
  check.require(config.vocab <= ConfigChecker::kMaxVocab, "vocabulary size", config.vocab,
                concat("at most ", ConfigChecker::kMaxVocab));
  check.epsilon(config.eps);
  check.count("number of layers", config.layers.size(), ConfigChecker::kMaxLayers);
  check.heads(config.n_heads, config.n_kv_heads, config.head_dim);
  check.rope_theta(config.rope_theta);
  check.require(config.block_size >= 2 && config.block_size <= kMaxBlock, "block size",
                config.block_size, concat("2 to ", kMaxBlock));
  const uint32_t n_ids = config.vocab == 0 ? ConfigChecker::kMaxVocab : config.vocab;
  check.require(config.mask_id < n_ids, "mask token id", config.mask_id,
                concat("0 to ", n_ids - 1));
  check.require(config.embedding_scale == 1.0F, "embedding scale", config.embedding_scale, "1");
  check.count("number of target layers", config.taps.size(), ConfigChecker::kMaxLayers);
  const auto unsorted = std::adjacent_find(config.taps.begin(), config.taps.end(),
                                           [](uint32_t a, uint32_t b) { return a >= b; });
  check.require(unsorted == config.taps.end(), config.taps_key,
                unsorted == config.taps.end() ? ""
                                              : concat(config.written_tap(unsorted[0]), " before ",
                                                       config.written_tap(unsorted[1])),
                "ascending, without repeats");
  check.require(config.taps.back() < ConfigChecker::kMaxLayers, config.taps_key,
                config.written_tap(config.taps.back()),
                concat("at most ", config.written_tap(ConfigChecker::kMaxLayers - 1)));
  check.width("target layers times hidden size", config.taps.size() * uint64_t{config.hidden});
}

void check_target(const DflashConfig& config, const ModelConfig& target,
                  const std::string& subject) {
  const auto require = [&](bool holds, std::string_view name, uint64_t got, uint64_t want,
                           std::string_view relation) {
    if (holds) return;
    throw ModelError(concat(subject, ": drafter belongs to another model: ", name, " (got ", got,
                            ", want ", relation, want, "); take the one made for this model"));
  };
  require(config.hidden == target.hidden, "hidden size", config.hidden, target.hidden, "");
  require(config.vocab == 0 || config.vocab == target.vocab, "vocabulary size", config.vocab,
          target.vocab, "");
  require(config.taps.back() < target.layers.size(),
          concat(config.taps_key, ", counted from ", config.first_tap),
          config.written_tap(config.taps.back()),
          config.written_tap(static_cast<uint32_t>(target.layers.size()) - 1), "at most ");
  require(config.mask_id < target.vocab, "mask token id", config.mask_id, target.vocab,
          "less than ");
}

// As the authors' code does it: halves go to the even neighbour, which is what nearbyint does too.
std::vector<uint32_t> default_taps(uint32_t target_layers, uint32_t n_layers) {
  if (n_layers == 1) return {target_layers / 2};
  std::vector<uint32_t> taps;
  const double span = static_cast<double>(target_layers) - 4.0;  // from 1 to target_layers - 3
  for (uint32_t i = 0; i < n_layers; ++i) {
    taps.push_back(static_cast<uint32_t>(std::nearbyint(1.0 + i * span / (n_layers - 1.0))));
  }
  return taps;
}

}  // namespace mtlqwen
