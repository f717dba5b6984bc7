// What both configs, a target's and a drafter's, are held to.
#pragma once
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.hpp"

namespace mtlqwen {

// Limits are what the kernels take (metal/attention.metal, metal/gdn.metal) and, for the rest,
// above every released model but low enough that widths fit 32 bits and sizes of tensors 64.
class ConfigChecker {
 public:
  static constexpr uint32_t kMaxWidth = 1U << 16;
  static constexpr uint32_t kMaxLayers = 1024;
  static constexpr uint32_t kMaxVocab = 1U << 22;
  static constexpr uint32_t kMaxContext = 1U << 24;

  // `subject` begins the messages, and outlives this.
  explicit ConfigChecker(const std::string& subject) : subject_(subject) {}

  template <class Got>
  void require(bool holds, std::string_view name, const Got& got, std::string_view want) const {
    if (holds) return;
    throw ModelError(
        concat(subject_, ": ", name, " is not one that runs (got ", got, ", want ", want, ")"));
  }

  // A count of at least 1.
  void count(std::string_view name, uint64_t got, uint32_t most) const {
    require(got >= 1 && got <= most, name, got, concat("1 to ", most));
  }

  // A width that rows of qblocks and float4 loads fill.
  void width(std::string_view name, uint64_t got) const {
    require(got >= 1 && got <= kMaxWidth && got % kWidthStep == 0, name, got,
            concat("a multiple of ", kWidthStep, ", at most ", kMaxWidth));
  }

  void epsilon(float got) const {
    require(got > 0.0F && got < 0.1F, "RMS norm epsilon", got, "more than 0, less than 0.1");
  }

  void rope_theta(double got) const {
    require(std::isfinite(got) && got > 1.0 && got <= 1e12, "rope theta", got,
            "more than 1, at most 1e12");
  }

  // Of attention.
  void heads(uint32_t n_heads, uint32_t n_kv_heads, uint32_t head_dim) const {
    count("number of attention heads", n_heads, kMaxWidth);
    count("number of K/V heads", n_kv_heads, kMaxWidth);
    const uint32_t group = n_heads / n_kv_heads;
    require(n_heads % n_kv_heads == 0 && group <= kMaxHeadGroup, "number of attention heads",
            n_heads, concat("1 to ", kMaxHeadGroup, " times the ", n_kv_heads, " K/V heads"));
    require(head_dim % kWidthStep == 0 && head_dim <= kMaxHeadDim && head_dim > 0, "head_dim",
            head_dim, concat("a multiple of ", kWidthStep, ", at most ", kMaxHeadDim));
    width("heads times head_dim", uint64_t{n_heads} * head_dim);
  }

 private:
  static constexpr uint32_t kMaxHeadDim = 256;
  static constexpr uint32_t kMaxHeadGroup = 8;  // query heads that share a K/V head
  static constexpr uint32_t kWidthStep = 32;    // a Q8_0 qblock, and the lanes of a simdgroup

  const std::string& subject_;
};

}  // namespace mtlqwen
