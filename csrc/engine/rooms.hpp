// The rooms of a step and the time spent in each.
#pragma once
#include <array>
#include <cstdint>

#include "engine/sequence.hpp"

namespace mtlqwen {

// In the order of a step.
enum class Room : uint8_t { kRetire, kAdmit, kPlan, kReserve, kPack, kForward, kCommit };
inline constexpr std::array<const char*, 7> kRoomNames = {"retire", "admit",   "plan",  "reserve",
                                                          "pack",   "forward", "commit"};

struct Interval {
  Clock::time_point begin{};
  Clock::time_point end{};
};

// One step's. A room that was not entered has an interval of nothing.
class RoomTimes {
 public:
  void enter(Room room) {
    leave();
    current_ = &intervals_[static_cast<size_t>(room)];
    current_->begin = Clock::now();
  }
  void leave() {
    if (current_ != nullptr) current_->end = Clock::now();
    current_ = nullptr;
  }
  [[nodiscard]] const std::array<Interval, kRoomNames.size()>& intervals() const {
    return intervals_;
  }
  [[nodiscard]] const Interval& of(Room room) const {
    return intervals_[static_cast<size_t>(room)];
  }

 private:
  std::array<Interval, kRoomNames.size()> intervals_{};
  Interval* current_ = nullptr;
};

}  // namespace mtlqwen
