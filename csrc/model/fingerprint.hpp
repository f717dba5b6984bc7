// Tells models apart without reading them.
#pragma once
#include "io/checkpoint_file.hpp"
#include "model/dflash_weights.hpp"
#include "model/weights.hpp"

namespace mtlqwen {

// Whose contexts the states of a model hold beside its own.
struct DrafterContexts {
  bool mtp = false;                       // the head in the model's own files
  const DflashWeights* dflash = nullptr;  // may be null
};

// Of the configs and of every tensor that a pass needs, drafters' too: its name, format, shape and
// 64 bytes from each of 4 places. Another model, another training state of it or another
// quantisation differs, unless only bytes between the samples do. The same model in another file
// format differs too. Reads at most 4 pages of a tensor.
[[nodiscard]] Fingerprint fingerprint_of(const Weights& weights,
                                         const DrafterContexts& drafters = {});

}  // namespace mtlqwen
