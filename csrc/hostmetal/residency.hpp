// Who is resident.
#pragma once
#include <Metal/Metal.hpp>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

namespace mtlqwen::hostmetal {

class HostResidencySet;

// The members of some sets, as they were when a command buffer was committed.
class ResidentIds {
 public:
  // Sorted. Shared by a set and the commits that saw it.
  using Ids = std::shared_ptr<const std::vector<uint64_t>>;
  void add(HostResidencySet& set);
  [[nodiscard]] bool contains(uint64_t id) const;
  // Whether one of the sets has it at this moment.
  [[nodiscard]] bool still_contains(uint64_t id) const;

 private:
  std::vector<Ids> sets_;
  std::vector<NS::SharedPtr<HostResidencySet>> live_;  // the sets themselves, in that order
};

// Thread safe.
class HostResidencySet final : public MTL::ResidencySet {
 public:
  void change(const MTL::Allocation* allocation, bool add);
  void publish();
  [[nodiscard]] ResidentIds::Ids published() const;

 private:
  mutable std::mutex mutex_;
  std::set<uint64_t> members_;  // as changed since the last commit()
  ResidentIds::Ids published_ = std::make_shared<const std::vector<uint64_t>>();
};

[[nodiscard]] inline HostResidencySet* host(MTL::ResidencySet* set) {
  return static_cast<HostResidencySet*>(set);
}

}  // namespace mtlqwen::hostmetal
