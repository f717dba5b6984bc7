// What may be asked of an engine. Whoever asks for something else is told what he said and what would do.
#pragma once
#include <cstdint>
#include <vector>

#include "base/types.hpp"
#include "engine/options.hpp"

namespace mtlqwen {

// All throw std::invalid_argument.
void require_valid(const EngineOptions& options);
// vocab: rows of the model's embedding; n_valid: of them, those that are tokens.
void require_valid(const std::vector<int32_t>& token_ids, const RequestOptions& options,
                   uint32_t vocab, uint32_t n_valid);

}  // namespace mtlqwen
