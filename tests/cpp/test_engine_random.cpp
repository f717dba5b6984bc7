// engine/: many threads use one engine at random, and it is closed at any moment. Meant for the
// sanitizers, above all ThreadSanitizer; what the tokens must be, the Python tests say.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "check.hpp"
#include "engine/engine.hpp"
#include "files.hpp"
#include "gpu/platform.hpp"

namespace mtlqwen::testing {
namespace {

constexpr char kModel[] = "python/mtlqwen/models/tiny/tiny-qwen3.5-Q8_0.gguf";
constexpr uint32_t kTokens = 6;
constexpr uint32_t kLongPrompt = 200;  // more than a block

std::string library_path;  // the program's first argument

std::unique_ptr<Engine> open_engine(uint32_t slots = 3) {
  return std::make_unique<Engine>(
      EngineOptions{.model = kModel, .kernels = library_path, .context = 256, .slots = slots},
      nullptr);
}

std::vector<int32_t> prompt(uint32_t n) {
  std::vector<int32_t> ids(n);
  for (uint32_t i = 0; i < n; ++i) ids[i] = static_cast<int32_t>(100 + 7 * i);
  return ids;
}

RequestOptions request(int32_t priority = 0) {
  RequestOptions options;
  options.max_tokens = kTokens;
  options.priority = priority;
  return options;
}

std::vector<int32_t> finish(Engine& engine, SequenceId id) {
  while (engine.step()) {}
  const Poll poll = engine.poll(id);
  check(poll.finish == FinishReason::kLength);
  return poll.token_ids;
}

// Until the engine says that it is closed.
template <class Work>
std::thread until_closed(Work work) {
  return std::thread([work] {
    try {
      for (;;) work();
    } catch (const std::logic_error&) {
      throw;  // std::invalid_argument among them: a defect
    } catch (const std::runtime_error& error) {
      if (std::string(error.what()).find("closed") == std::string::npos) throw;
    }
  });
}

std::thread stepper(Engine& engine) {
  return until_closed([&engine] {
    if (!engine.step()) std::this_thread::sleep_for(std::chrono::microseconds(200));
  });
}

// A caller: submits, reads, sometimes cancels or walks away.
std::thread caller(Engine& engine, uint32_t seed, std::atomic<uint32_t>& n_ended,
                   uint32_t longest = 40) {
  auto random = std::make_shared<std::mt19937>(seed);
  return until_closed([&engine, random, &n_ended, longest] {
    const auto draw = [&](uint32_t n) { return static_cast<uint32_t>((*random)() % n); };
    const auto priority = static_cast<int32_t>(draw(3));
    const SequenceId id = engine.submit(prompt(1 + draw(longest)), request(priority));
    const uint32_t moves = draw(30);
    for (uint32_t i = 0; i < moves; ++i) {
      if (engine.poll(id).finish != FinishReason::kNone) ++n_ended;
      if (draw(12) == 0) engine.cancel(id);
      if (draw(6) == 0) (void)engine.stats();
      std::this_thread::sleep_for(std::chrono::microseconds(draw(800)));
    }
    engine.release(id);
  });
}

void test_many_threads_use_one_engine() {
  const std::unique_ptr<Engine> engine = open_engine();
  const std::vector<int32_t> alone = finish(*engine, engine->submit(prompt(9), request()));
  std::atomic<uint32_t> n_ended = 0;
  std::vector<std::thread> threads;
  threads.push_back(stepper(*engine));
  for (uint32_t seed = 0; seed < 4; ++seed) threads.push_back(caller(*engine, seed, n_ended));
  for (int i = 0; i < 10; ++i) {
    const SequenceId id = engine->submit(prompt(9), request());
    Poll poll;
    std::vector<int32_t> ids;
    do {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      poll = engine->poll(id);
      ids.insert(ids.end(), poll.token_ids.begin(), poll.token_ids.end());
    } while (poll.finish == FinishReason::kNone);
    check(ids == alone);
    engine->release(id);
  }
  engine->close();
  for (std::thread& thread : threads) thread.join();
  check(n_ended > 0);
}

void test_an_engine_may_be_closed_at_any_moment() {
  std::mt19937 random(1);
  for (int i = 0; i < 10; ++i) {
    const std::unique_ptr<Engine> engine = open_engine();
    std::atomic<uint32_t> n_ended = 0;
    std::vector<std::thread> threads;
    threads.push_back(stepper(*engine));
    for (uint32_t seed = 0; seed < 2; ++seed) threads.push_back(caller(*engine, seed, n_ended));
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000));
    std::thread other([&] { engine->close(); });
    engine->close();
    other.join();
    for (std::thread& thread : threads) thread.join();
  }
}

// Saves what others computed, and loads it again.
std::thread keeper(Engine& engine, const std::string& path) {
  return until_closed([&engine, path] {
    const std::vector<int32_t> ids = prompt(kLongPrompt);
    (void)engine.save_checkpoint(path, ids, "note", true);
    check(engine.load_checkpoint(path).token_ids == ids);
  });
}

void test_checkpoints_go_to_files_and_back_beside_passes() {
  const TempDirectory directory;
  std::mt19937 random(2);
  std::atomic<uint32_t> n_ended = 0;
  for (int i = 0; i < 5; ++i) {
    const auto engine =
        std::make_unique<Engine>(EngineOptions{.model = kModel,
                                               .kernels = library_path,
                                               .context = 256,
                                               .slots = 3,
                                               .checkpoint_interval = 64,
                                               .cache_dir = (directory.path() / "cache").string()},
                                 nullptr);
    std::vector<std::thread> threads;
    threads.push_back(stepper(*engine));
    for (uint32_t seed = 0; seed < 3; ++seed) {
      threads.push_back(caller(*engine, seed, n_ended, kLongPrompt));
    }
    for (const char* name : {"a", "b"}) {
      threads.push_back(keeper(*engine, (directory.path() / name).string()));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50 + random() % 100));
    engine->close();
    for (std::thread& thread : threads) thread.join();
  }
  check(n_ended > 0);
}

void test_a_fault_fails_the_pass_and_not_the_engine() {
  const std::unique_ptr<Engine> engine = open_engine();
  const std::vector<int32_t> alone = finish(*engine, engine->submit(prompt(9), request()));
  for (const Fault kind : {Fault::kCommit, Fault::kMapping}) {
    inject_fault(kind, 1);
    const SequenceId id = engine->submit(prompt(9), request());
    const auto step = [&] { engine->step(); };
    const auto poll = [&] { (void)engine->poll(id); };
    if (kind == Fault::kCommit) {
      check_throws<DeviceError>(step, "[gpu] pass");
      check_throws<DeviceError>(poll, "[gpu] pass");
    } else {
      check_throws<CapacityError>(step, "mapped ranges");
      check_throws<CapacityError>(poll, "mapped ranges");
    }
    engine->check_integrity();
    check(finish(*engine, engine->submit(prompt(9), request())) == alone);
  }
}

}  // namespace
}  // namespace mtlqwen::testing

int main(int argc, char** argv) {
  using namespace mtlqwen::testing;
  if (argc > 1) library_path = argv[1];
  return run({{"many threads use one engine", test_many_threads_use_one_engine},
              {"an engine may be closed at any moment", test_an_engine_may_be_closed_at_any_moment},
              {"checkpoints go to files and back beside passes",
               test_checkpoints_go_to_files_and_back_beside_passes},
              {"a fault fails the pass and not the engine",
               test_a_fault_fails_the_pass_and_not_the_engine}},
             argc > 2 ? argv[2] : "");
}
