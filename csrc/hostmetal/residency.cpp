#include "hostmetal/residency.hpp"

#include <algorithm>

#include "hostmetal/error.hpp"
#include "hostmetal/memory.hpp"

namespace mtlqwen::hostmetal {

void ResidentIds::add(HostResidencySet& set) {
  sets_.push_back(set.published());
  live_.push_back(NS::RetainPtr(&set));
}

bool ResidentIds::contains(uint64_t id) const {
  return std::ranges::any_of(sets_,
                             [id](const Ids& ids) { return std::ranges::binary_search(*ids, id); });
}

bool ResidentIds::still_contains(uint64_t id) const {
  return std::ranges::any_of(
      live_, [id](const auto& set) { return std::ranges::binary_search(*set->published(), id); });
}

void HostResidencySet::change(const MTL::Allocation* allocation, bool add) {
  const std::shared_ptr<Memory> memory = MemoryOf::get(allocation);
  if (!memory) return;
  const std::lock_guard lock(mutex_);
  if (add) {
    members_.insert(memory->id);
  } else {
    members_.erase(memory->id);
  }
}

void HostResidencySet::publish() {
  const std::lock_guard lock(mutex_);
  published_ = std::make_shared<const std::vector<uint64_t>>(members_.begin(), members_.end());
}

ResidentIds::Ids HostResidencySet::published() const {
  const std::lock_guard lock(mutex_);
  return published_;
}

}  // namespace mtlqwen::hostmetal

namespace MTL {

using mtlqwen::hostmetal::host;

void ResidencySet::addAllocation(const Allocation* allocation) {
  if (this) host(this)->change(allocation, true);
}

void ResidencySet::removeAllocation(const Allocation* allocation) {
  if (this) host(this)->change(allocation, false);
}

void ResidencySet::commit() {
  if (this) host(this)->publish();
}

ResidencySetDescriptor* ResidencySetDescriptor::alloc() { return new ResidencySetDescriptor; }
ResidencySetDescriptor* ResidencySetDescriptor::init() { return this; }
}  // namespace MTL
