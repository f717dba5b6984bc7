// The engine between threads: one steps, others submit, poll, cancel and close. For the sanitizers;
// what the tokens are is the business of tests/engine.
#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "engine/engine.hpp"

namespace {

using mtlqwen::Engine;
using mtlqwen::FinishReason;
using mtlqwen::Poll;
using mtlqwen::SequenceId;
using mtlqwen::testing::check;
using mtlqwen::testing::check_equal;
using mtlqwen::testing::check_throws;

std::string library_path;
constexpr char kModel[] = "python/mtlqwen/models/tiny/tiny-qwen3.5-Q8_0.gguf";

std::unique_ptr<Engine> open_engine(uint32_t slots) {
  return std::make_unique<Engine>(
      mtlqwen::EngineOptions{
          .model = kModel, .kernels = library_path, .context = 256, .slots = slots},
      mtlqwen::Progress{});
}

SequenceId submit(Engine& engine, int32_t first_id, uint32_t max_tokens) {
  mtlqwen::RequestOptions options;
  options.max_tokens = max_tokens;
  return engine.submit({first_id, first_id + 1, first_id + 2}, options);
}

// Steps until told to stop, as the driver thread of the Python package does.
class Driver {
 public:
  explicit Driver(Engine& engine) : thread_([this, &engine] { drive(engine); }) {}
  ~Driver() {
    stop_ = true;
    thread_.join();
  }
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

 private:
  void drive(Engine& engine) {
    try {
      while (!stop_) {
        if (!engine.step()) std::this_thread::yield();
      }
    } catch (const std::runtime_error&) {
      // the engine was closed
    }
  }

  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

Poll wait_for(Engine& engine, SequenceId id) {
  Poll all;
  while (all.finish == FinishReason::kNone) {
    Poll news = engine.poll(id);
    news.token_ids.insert(news.token_ids.begin(), all.token_ids.begin(), all.token_ids.end());
    all = std::move(news);
    std::this_thread::yield();
  }
  return all;
}

void test_submitters_share_one_driver() {
  const auto engine = open_engine(2);
  const Driver driver(*engine);
  std::vector<std::thread> submitters;
  std::vector<size_t> n_tokens(4);
  for (size_t i = 0; i < n_tokens.size(); ++i) {
    submitters.emplace_back([&, i] {
      const SequenceId id = submit(*engine, static_cast<int32_t>(10 * i + 10), 4);
      n_tokens[i] = wait_for(*engine, id).token_ids.size();
      engine->release(id);
    });
  }
  for (std::thread& submitter : submitters) submitter.join();
  for (const size_t n : n_tokens) check_equal(n, 4U);
  check_equal(engine->stats().live, 0U);
}

void test_cancel_meets_a_running_pass() {
  const auto engine = open_engine(4);
  const Driver driver(*engine);
  const SequenceId kept = submit(*engine, 10, 6);
  for (int32_t i = 0; i < 6; ++i) {
    const SequenceId dropped = submit(*engine, 20 + i, 100);
    std::this_thread::yield();
    engine->cancel(dropped);
    check(wait_for(*engine, dropped).finish == FinishReason::kCancelled);
    engine->release(dropped);
  }
  check_equal(wait_for(*engine, kept).token_ids.size(), 6U);
}

void test_close_meets_a_running_pass() {
  const auto engine = open_engine(2);
  const Driver driver(*engine);
  const SequenceId id = submit(*engine, 10, 200);
  while (engine->poll(id).token_ids.empty()) std::this_thread::yield();
  engine->close();
  engine->close();
  check_throws<std::runtime_error>([&] { submit(*engine, 10, 1); }, "closed");
}

void test_two_engines_do_not_meet() {
  std::vector<std::thread> users;
  std::vector<std::vector<int32_t>> tokens(2);
  for (std::vector<int32_t>& own : tokens) {
    users.emplace_back([&own] {
      const auto engine = open_engine(1);
      const SequenceId id = submit(*engine, 10, 8);
      while (engine->step()) {}
      own = engine->poll(id).token_ids;
    });
  }
  for (std::thread& user : users) user.join();
  check_equal(tokens[0].size(), 8U);
  check(tokens[0] == tokens[1]);
}

}  // namespace

int main(int n_arguments, char** arguments) {
  using namespace mtlqwen::testing;
  if (n_arguments < 2) return 2;
  library_path = arguments[1];
  return run({{"submitters share one driver", test_submitters_share_one_driver},
              {"cancel meets a running pass", test_cancel_meets_a_running_pass},
              {"close meets a running pass", test_close_meets_a_running_pass},
              {"two engines do not meet", test_two_engines_do_not_meet}},
             n_arguments > 2 ? arguments[2] : "");
}
