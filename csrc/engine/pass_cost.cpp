#include "engine/pass_cost.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

namespace mtlqwen {

namespace {

constexpr float kYoung = 2.5F;         // weight from which a cell speaks for itself
constexpr uint32_t kFirst = 3;         // times of a cell of which the least counts
constexpr float kKeepWeight = 0.998F;  // what was long ago is unknown again
constexpr double kStep = 0.05;         // that a time counts for at least, as a log ratio
constexpr double kSurprise = 2.0;      // and so many times the mean surprise
constexpr double kSurpriseRate = 0.2;
constexpr double kMostSurprise = 1.0;
constexpr double kNoiseRate = 0.02;
constexpr float kMostWeight = 12;      // a cell follows the last passes, so many
constexpr double kLevelRate = 0.3;     // of what an old cell did not expect goes to the level
constexpr double kOtherDrafter = 2.0;  // squared distances between cells
constexpr double kOtherCrowd = 0.5;
constexpr double kHeightScale = 16.0;  // squared heights of distance 1
constexpr double kNear = 0.02;         // distance of a cell from itself
constexpr double kLineWeight = 0.03;   // the prior line against one pass
constexpr double kLeastTerm = 0.01;    // of the prior: no term of the line vanishes
constexpr uint32_t kFitTurns = 6;
constexpr double kPriorWeight = 0.05;  // the prior against one pass at distance 1

// 1 .. 8 rows have a height each; then come 9-10, 11-12, 13-14, 15-16, 17-20 ..
uint32_t height_of(uint32_t rows) {
  if (rows <= 8) return rows - 1;
  const auto bits = static_cast<uint32_t>(std::bit_width(rows - 1));
  return 8 + (bits - 4) * 4 + ((rows - 1) >> (bits - 3)) - 4;
}

uint32_t upper_rows(uint32_t rows) {
  if (rows <= 8) return rows;
  const auto shift = static_cast<uint32_t>(std::bit_width(rows - 1)) - 3;
  return (((rows - 1) >> shift) + 1) << shift;
}

}  // namespace

PassCost::Place PassCost::place_of(const DecodeShape& shape) {
  const auto drafter = static_cast<uint32_t>(shape.kind);
  return {.drafter = drafter == 0 ? 0 : drafter - 1,  // kNgram is kNone
          .crowd =
              std::min(static_cast<uint32_t>(std::bit_width(shape.n_sequences - 1)), kCrowds - 1),
          .height = std::min(height_of(shape.rows), kHeights - 1)};
}

uint32_t PassCost::index_of(const Place& place) {
  return (place.drafter * kCrowds + place.crowd) * kHeights + place.height;
}

PassCost::PassCost(const PassCostPrior& prior)
    : prior_{1.0, prior.row, prior.mtp_step, prior.dflash, prior.dflash_row}, line_(prior_) {}

PassCost::Terms PassCost::terms_of(const DecodeShape& shape) {
  const double rows = shape.rows;
  Terms terms{1.0, rows - 1.0, 0.0, 0.0, 0.0};
  if (shape.kind == DrafterKind::kMtp) terms[2] = shape.steps;
  if (shape.kind == DrafterKind::kDflash) {
    terms[3] = 1.0;
    terms[4] = rows;
  }
  return terms;
}

double PassCost::line(const DecodeShape& shape) const {
  const Terms terms = terms_of(shape);
  return std::inner_product(terms.begin(), terms.end(), line_.begin(), 0.0);
}

// Least squares of the cells' relative errors, drawn to the prior, by Gauss-Seidel: every term in
// turn is given what the others leave, and none becomes negative.
void PassCost::fit() {
  std::array<Terms, kTerms> products{};
  Terms wanted{};
  for (uint32_t i = 0; i < kTerms; ++i) {
    products[i][i] = kLineWeight / (prior_[i] * prior_[i]);
    wanted[i] = kLineWeight / prior_[i];
  }
  for (const Place& place : known_) {
    const Cell& cell = cells_[index_of(place)];
    const double seconds = std::exp(double{cell.value});
    const Terms terms = terms_of(cell.shape);
    for (uint32_t i = 0; i < kTerms; ++i) {
      wanted[i] += double{cell.weight} * terms[i] / seconds;
      for (uint32_t j = 0; j < kTerms; ++j) {
        products[i][j] += double{cell.weight} * terms[i] * terms[j] / (seconds * seconds);
      }
    }
  }
  for (uint32_t turn = 0; turn < kFitTurns; ++turn) {
    for (uint32_t i = 0; i < kTerms; ++i) {
      double left = wanted[i] + products[i][i] * line_[i];
      for (uint32_t j = 0; j < kTerms; ++j) left -= products[i][j] * line_[j];
      line_[i] = std::max(left / products[i][i], kLeastTerm * prior_[i]);
    }
  }
  for (const Place& place : known_) {
    Cell& cell = cells_[index_of(place)];
    cell.residual = cell.value - static_cast<float>(std::log(line(cell.shape)));
  }
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

void PassCost::observe(const DecodeShape& shape, double seconds) {
  if (!(seconds > 0)) return;
  const double seen = std::log(seconds);
  if (known_.empty()) level_ = seen - std::log(line(shape));
  const Place place = place_of(shape);
  Cell& cell = cells_[index_of(place)];
  if (cell.n_seen == 0) known_.push_back(place);
  // A cell holds several shapes: what is learned is what the line does not say of this one.
  const double moved = cell.n_seen == 0 ? 0.0 : std::log(line(shape) / line(cell.shape));
  cell.shape = shape;
  cell.value += static_cast<float>(moved);
  const double surprise = seen - level_ - double{cell.value};
  for (const Place& other : known_) cells_[index_of(other)].weight *= kKeepWeight;
  if (cell.n_seen < kFirst) {
    if (cell.n_seen == 0 || surprise < 0) cell.value += static_cast<float>(surprise);
    ++cell.n_seen;
    ++cell.weight;
  } else {
    const double step = kStep + kSurprise * double{cell.surprise};
    const double counted = std::clamp(surprise, -step, step);
    cell.surprise += static_cast<float>(
        kSurpriseRate * (std::min(std::abs(surprise), kMostSurprise) - double{cell.surprise}));
    cell.weight = std::min(cell.weight + 1, kMostWeight);
    noise_ += kNoiseRate * (std::min(std::abs(surprise), kMostSurprise) - noise_);
    level_ += kLevelRate * counted;
    cell.value += static_cast<float>((1 - kLevelRate) * counted / double{cell.weight});
  }
  fit();
}

std::vector<double> PassCost::curve(const DecodeShape& shape, uint32_t most_rows) const {
  // All rows of a height are taken to last as long as its upper ones: kernels work on tiles of rows,
  // and what is wrong about it shows as soon as those are tried.
  std::vector<double> seconds;
  seconds.reserve(most_rows - shape.rows + 1);
  DecodeShape upper = shape;
  double least = 0;
  while (seconds.size() <= most_rows - shape.rows) {
    const auto rows = shape.rows + static_cast<uint32_t>(seconds.size());
    upper.rows = std::min(upper_rows(rows), most_rows);
    const Place place = place_of(upper);
    const double all = std::exp(level_ + residual_at(place)) * line(upper);
    const bool known = cells_[index_of(place)].weight >= kYoung;
    least = known ? all : std::max(all, least);
    seconds.resize(seconds.size() + upper.rows - rows + 1, least);
  }
  return seconds;
}

double PassCost::estimate(const DecodeShape& shape) const {
  DecodeShape from = shape;
  from.rows = shape.n_sequences;
  return curve(from, shape.rows).back();
}

float PassCost::n_measured(const DecodeShape& shape) const {
  return cells_[index_of(place_of(shape))].weight;
}

}  // namespace mtlqwen
