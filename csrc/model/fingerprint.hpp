// Tells models apart without reading them.
#pragma once
#include "io/checkpoint_file.hpp"
#include "model/weights.hpp"

namespace mtlqwen {

// Of the config and of every tensor that a pass needs: its name, format, shape and 64 bytes from
// each of 4 places. Another model, another training state of it or another quantisation differs, unless
// only bytes between the samples do. The same model in another file format differs too. Reads at
// most 4 pages of a tensor.
[[nodiscard]] Fingerprint fingerprint_of(const Weights& weights);

}  // namespace mtlqwen
