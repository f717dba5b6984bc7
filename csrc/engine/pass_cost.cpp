#include "engine/pass_cost.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace mtlqwen {

namespace {

constexpr float kYoung = 3;        // passes until a cell speaks for itself
constexpr double kStep = 0.05;     // that a time counts for at least, as a log ratio
constexpr double kSurprise = 2.0;  // and so many times the mean surprise
constexpr double kSurpriseRate = 0.2;
constexpr double kMostSurprise = 1.0;
constexpr float kMostWeight = 8;       // a cell follows the last passes, so many
constexpr double kLevelRate = 0.1;     // of what an old cell did not expect goes to the level
constexpr double kOtherDrafter = 2.0;  // squared distances between cells
constexpr double kOtherCrowd = 0.5;
constexpr double kHeightScale = 16.0;  // squared heights of distance 1
constexpr double kNear = 0.02;         // distance of a cell from itself
constexpr double kPriorWeight = 0.05;  // the prior against one pass at distance 1

// 1 .. 8 rows have a height each; then come 9-10, 11-12, 13-14, 15-16, 17-20 ..
uint32_t height_of(uint32_t rows) {
  if (rows <= 8) return rows - 1;
  const auto bits = static_cast<uint32_t>(std::bit_width(rows - 1));
  return 8 + (bits - 4) * 4 + ((rows - 1) >> (bits - 3)) - 4;
}

}  // namespace

PassCost::Place PassCost::place_of(const PassShape& shape) {
  const auto drafter = static_cast<uint32_t>(shape.kind);
  return {.drafter = drafter == 0 ? 0 : drafter - 1,  // kNgram is kNone
          .crowd =
              std::min(static_cast<uint32_t>(std::bit_width(shape.n_sequences - 1)), kCrowds - 1),
          .height = std::min(height_of(shape.rows), kHeights - 1)};
}

uint32_t PassCost::index_of(const Place& place) {
  return (place.drafter * kCrowds + place.crowd) * kHeights + place.height;
}

double PassCost::expected(const PassShape& shape) const {
  const double rows = 1.0 + prior_.row * (shape.rows - 1.0);
  switch (shape.kind) {
  case DraftKind::kNone:
  case DraftKind::kNgram:
    return rows;
  case DraftKind::kMtp:
    return rows + prior_.mtp_step * shape.steps * (1.0 + prior_.row * (shape.n_sequences - 1.0));
  case DraftKind::kDflash:
    return rows + prior_.dflash + 0.1 * prior_.row * shape.rows;
  }
  return rows;
}

// Its own where the cell was measured; else the mean of the known ones, weighted by passes and by
// inverse distance.
double PassCost::residual_at(const Place& place) const {
  const Cell& own = cells_[index_of(place)];
  if (own.weight >= kYoung) return double{own.residual};
  double sum = 0;
  double weights = kPriorWeight;
  for (const Place& other : known_) {
    const double height = double{1} * other.height - place.height;
    const double crowd = double{1} * other.crowd - place.crowd;
    const double distance = height * height / kHeightScale + crowd * crowd * kOtherCrowd +
                            (other.drafter == place.drafter ? 0.0 : kOtherDrafter);
    const Cell& cell = cells_[index_of(other)];
    const double weight = cell.weight / (kNear + distance);
    sum += weight * cell.residual;
    weights += weight;
  }
  return sum / weights;
}

void PassCost::observe(const PassShape& shape, double seconds) {
  if (!(seconds > 0)) return;
  const double seen = std::log(seconds / expected(shape));
  if (!measured_) level_ = seen;
  measured_ = true;
  const Place place = place_of(shape);
  Cell& cell = cells_[index_of(place)];
  if (cell.weight == 0) {
    cell.residual = static_cast<float>(residual_at(place));
    known_.push_back(place);
  }
  const double surprise = seen - level_ - double{cell.residual};
  const bool young = cell.weight < kYoung;
  if (young && (cell.weight == 0 || surprise < 0)) cell.residual += static_cast<float>(surprise);
  cell.weight = std::min(cell.weight + 1, kMostWeight);
  if (young) return;
  const double step = kStep + kSurprise * double{cell.surprise};
  const double counted = std::clamp(surprise, -step, step);
  cell.surprise += static_cast<float>(
      kSurpriseRate * (std::min(std::abs(surprise), kMostSurprise) - double{cell.surprise}));
  level_ += kLevelRate * counted;
  cell.residual += static_cast<float>((1 - kLevelRate) * counted / double{cell.weight});
}

std::vector<double> PassCost::curve(const PassShape& shape, uint32_t most_rows) const {
  // The rows of a height share a residual.
  std::vector<double> seconds;
  seconds.reserve(most_rows - shape.rows + 1);
  PassShape at = shape;
  Place before{.height = kHeights};
  double factor = 1;
  for (; at.rows <= most_rows; ++at.rows) {
    const Place place = place_of(at);
    if (place.height != before.height) factor = std::exp(level_ + residual_at(place));
    before = place;
    const double least = seconds.empty() ? 0.0 : seconds.back();
    const bool known = cells_[index_of(place)].weight >= kYoung;
    seconds.push_back(known ? factor * expected(at) : std::max(factor * expected(at), least));
  }
  return seconds;
}

double PassCost::estimate(const PassShape& shape) const {
  PassShape from = shape;
  from.rows = shape.n_sequences;
  return curve(from, shape.rows).back();
}

float PassCost::n_measured(const PassShape& shape) const {
  return cells_[index_of(place_of(shape))].weight;
}

}  // namespace mtlqwen
