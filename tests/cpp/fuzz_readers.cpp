// The readers of files against changed files: whatever comes, an error of ours or a result, and no
// more memory than the file's size allows. Ten minutes each under MTLQWEN_TEST_LONG=1, else seconds
// (a second argument says how many); a failure leaves its input in the folder that is named first.
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <new>

#include "check.hpp"
#include "files.hpp"
#include "fuzz.hpp"
#include "io/gguf.hpp"
#include "io/json.hpp"
#include "io/safetensors.hpp"
#include "model/config.hpp"
#include "model/dflash_config.hpp"

using namespace mtlqwen;
using namespace mtlqwen::testing;

// Before each piece stands its size.
constexpr std::size_t kHead = alignof(std::max_align_t);

[[gnu::noinline]] void* operator new(std::size_t size) {
  auto* memory = static_cast<uint8_t*>(std::malloc(kHead + size));
  if (memory == nullptr) throw std::bad_alloc();
  std::memcpy(memory, &size, sizeof(size));
  live_bytes += size;
  peak_bytes = std::max(peak_bytes, live_bytes);
  return memory + kHead;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  if (memory == nullptr) return;
  uint8_t* head = static_cast<uint8_t*>(memory) - kHead;
  std::size_t size = 0;
  std::memcpy(&size, head, sizeof(size));
  live_bytes -= size;
  std::free(head);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  operator delete(memory);
}

namespace {

#ifdef __SANITIZE_ADDRESS__
constexpr double kSeconds = 10;
#else
constexpr double kSeconds = 0.5;
#endif
constexpr double kLongSeconds = 600;
constexpr uint32_t kText = 8;
constexpr uint32_t kList = 9;
constexpr std::array<uint32_t, 13> kWidths = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

std::filesystem::path input_path(std::string_view name) {
  return std::filesystem::temp_directory_path() / concat("mtlqwen_fuzz_", ::getpid()) /
         std::string(name);
}

std::filesystem::path store(std::string_view name, const std::string& input) {
  std::filesystem::path path = input_path(name);
  std::filesystem::create_directories(path.parent_path());
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(input.data(), static_cast<std::streamsize>(input.size()));
  return path;
}

std::string to_string(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data().data()), bytes.size()};
}

// What the rest of the engine relies on.
void check_places(const WeightFile& file) {
  for (const auto& [name, tensor] : file.tensors) {
    const uint64_t size = file.file.bytes().size();
    check(tensor.offset <= size && tensor.bytes <= size - tensor.offset);
  }
}

// --- GGUF -----------------------------------------------------------------------------------------

void put_value(Bytes& out, uint32_t type, Random& random, uint32_t depth) {
  if (type == kText) {
    out.text(std::string(random.below(6), 'x'));
  } else if (type == kList) {
    const auto element = static_cast<uint32_t>(random.below(depth < 2 ? 13 : 8));
    const uint64_t count = random.below(5);
    out.put(element).put(count);
    for (uint64_t i = 0; i < count; ++i) put_value(out, element, random, depth + 1);
  } else {
    for (uint32_t i = 0; i < kWidths[type]; ++i) {
      out.put(static_cast<uint8_t>(type == 7 ? random.below(2) : random.below(256)));
    }
  }
}

// The metadata of a model or of a drafter, as far as its config is concerned.
uint64_t put_config(Bytes& out, const std::string& name, Random& random) {
  static constexpr std::array<std::string_view, 17> kKeys = {"embedding_length",
                                                             "feed_forward_length",
                                                             "context_length",
                                                             "block_count",
                                                             "attention.head_count",
                                                             "attention.head_count_kv",
                                                             "attention.key_length",
                                                             "attention.value_length",
                                                             "rope.dimension_count",
                                                             "ssm.conv_kernel",
                                                             "ssm.inner_size",
                                                             "ssm.state_size",
                                                             "ssm.time_step_rank",
                                                             "ssm.group_count",
                                                             "full_attention_interval",
                                                             "nextn_predict_layers",
                                                             "block_size"};
  static constexpr std::array<uint32_t, 17> kValues = {64, 96,  512, 4, 2, 1, 32, 32, 16,
                                                       4,  128, 64,  2, 1, 4, 0,  4};
  out.text("general.architecture").put(kText).text(name);
  for (size_t i = 0; i < kKeys.size(); ++i) {
    out.text(concat(name, ".", kKeys[i])).put(uint32_t{4}).put(kValues[i]);
  }
  out.text(concat(name, ".attention.layer_norm_rms_epsilon")).put(uint32_t{6}).put(1e-6F);
  out.text(concat(name, ".rope.freq_base")).put(uint32_t{6}).put(1e6F);
  out.text("tokenizer.ggml.token_type").put(kList).put(uint32_t{5}).put<uint64_t>(3);
  for (uint64_t i = 0; i < 3; ++i) out.put(static_cast<int32_t>(random.below(6)));
  return kKeys.size() + 4;
}

std::string gguf_seed(Random& random) {
  Bytes values;
  uint64_t n_values = 0;
  if (!random.chance(4)) {
    n_values += put_config(values, random.chance(4) ? "dflash" : "qwen35", random);
  }
  for (uint64_t i = random.below(8); i > 0; --i, ++n_values) {
    const auto type = static_cast<uint32_t>(random.below(13));
    values.text(concat("key", n_values)).put(type);
    put_value(values, type, random, 0);
  }
  Bytes tensors;
  uint64_t offset = 0;
  const uint64_t n_tensors = random.below(6);
  for (uint64_t i = 0; i < n_tensors; ++i) {
    const bool packed = random.chance(2);
    const uint64_t rows = 1 + random.below(4);
    const uint64_t width = packed ? 32 : 1 + random.below(9);
    tensors.text(i == 0 ? "token_embd.weight" : concat("blk.", i, ".w")).put(uint32_t{2});
    tensors.put(width).put(rows).put(uint32_t{packed ? 8U : 0U}).put(offset);
    offset += (rows * (packed ? 34 : 4 * width) + 31) / 32 * 32;
  }
  Bytes out;
  out.raw("GGUF").put(uint32_t{3}).put(n_tensors).put(n_values);
  out.raw(to_string(values)).raw(to_string(tensors));
  return to_string(out.pad_to(32).zeros(offset));
}

// A file that can be read may still be no model; then the config says so.
void read_gguf_input(const std::string& input) {
  const GgufFile file = read_gguf(store("input.gguf", input));
  check_places(file.weights);
  for (const bool has_head : {false, true}) {
    try {
      static_cast<void>(read_gguf_config(file, has_head));
    } catch (const ModelError&) {}
  }
  try {
    static_cast<void>(read_dflash_gguf_config(file));
  } catch (const ModelError&) {}
}

// --- JSON -----------------------------------------------------------------------------------------

std::string json_value(Random& random, uint32_t depth) {
  static constexpr std::array<std::string_view, 14> kScalars = {"0",
                                                                "-1",
                                                                "1e300",
                                                                "0.5",
                                                                "true",
                                                                "false",
                                                                "null",
                                                                "\"\"",
                                                                "\"silu\"",
                                                                "9223372036854775808",
                                                                "\"\\u00e9\\ud83d\\ude00\\n\"",
                                                                "18446744073709551615",
                                                                "-0.0e-9",
                                                                "\"full_attention\""};
  if (depth > 3 || random.chance(2)) return std::string(random.of(kScalars));
  const bool object = random.chance(2);
  std::string out(1, object ? '{' : '[');
  const uint64_t count = random.below(5);
  for (uint64_t i = 0; i < count; ++i) {
    if (i > 0) out += ", ";
    if (object) out += concat("\"key", i, "\": ");
    out += json_value(random, depth + 1);
  }
  return out + (object ? '}' : ']');
}

std::string config_seed(Random& random) {
  std::string out = random.chance(2) ? R"({"text_config": {)" : "{";
  const bool nested = out.size() > 1;
  out += R"("model_type": "qwen3_5_text", "hidden_size": 64, "intermediate_size": 96,
    "vocab_size": 288, "num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"],
    "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32, "rms_norm_eps": 1e-6,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0,
    "partial_rotary_factor": 0.5}, "linear_num_key_heads": 1, "linear_num_value_heads": 2,
    "linear_key_head_dim": 64, "linear_value_head_dim": 64, "linear_conv_kernel_dim": 4,
    "max_position_embeddings": 512, "eos_token_id": [1, 2], "hidden_act": "silu", "more": )";
  return out + json_value(random, 0) + (nested ? "}}" : "}");
}

// A change of one token: another value, one more level, one less bracket; or of bytes.
void mutate_json(std::string& data, Random& random, const std::string& other) {
  static constexpr std::string_view kBreaks = "{}[],:\"";
  if (data.empty() || random.chance(4)) return mutate_bytes(data, random, other);
  const size_t first =
      std::min(data.find_first_not_of(" \n{}[],:", random.below(data.size())), data.size() - 1);
  const size_t last = std::min(data.find_first_of(" \n{}[],:", first), data.size());
  switch (random.below(6)) {
  case 0:
    data.replace(first, last - first, json_value(random, 0));
    break;
  case 1:
    data.replace(first, last - first, std::to_string(telling_number(random, data.size())));
    break;
  case 2: {
    const std::string nest(1 + random.below(random.chance(4) ? 10'000 : 40), '[');
    data.insert(first, nest);
    break;
  }
  case 3:
    data[first] = kBreaks[random.below(kBreaks.size())];
    break;
  case 4:
    data.insert(first, data.substr(random.below(data.size()), 1 + random.below(64)));
    break;
  default:
    data.insert(first, random.of(std::array<std::string_view, 6>{
                           "\"\\ud800\"", "\"\\u12", "\xC0\x80", "1e999999999", "-", "\"\\q\""}));
  }
}

void read_json_input(const std::string& input) {
  const std::filesystem::path path = store("config.json", input);
  static_cast<void>(read_json(path));
  for (const bool has_head : {false, true}) {
    try {
      static_cast<void>(read_hf_config(path.parent_path(), has_head));
    } catch (const ModelError&) {}
  }
  try {
    static_cast<void>(read_dflash_hf_config(path.parent_path()));
  } catch (const ModelError&) {}
}

// --- safetensors ----------------------------------------------------------------------------------

std::string with_length(const std::string& header, const std::string& rest) {
  return to_string(Bytes().put<uint64_t>(header.size()).raw(header).raw(rest));
}

std::string safetensors_seed(Random& random) {
  static constexpr std::array<std::string_view, 4> kTypes = {"F32", "BF16", "F16", "U8"};
  static constexpr std::array<uint64_t, 4> kBytes = {4, 2, 2, 1};
  std::string header = R"({"__metadata__": {"format": "pt"})";
  uint64_t offset = 0;
  const uint64_t count = random.below(6);
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t type = random.below(kTypes.size());
    const uint64_t rows = random.below(5);
    const uint64_t bytes = rows * 3 * kBytes[type];
    header += concat(R"(, "layers.)", i, R"(.w": {"dtype": ")", kTypes[type], R"(", "shape": [)",
                     rows, R"(, 3], "data_offsets": [)", offset, ", ", offset + bytes, "]}");
    offset += bytes;
  }
  return with_length(header + "}", std::string(offset, '\0'));
}

// Mostly the header, with a length that fits it.
void mutate_safetensors(std::string& data, Random& random, const std::string& other) {
  uint64_t length = 0;
  if (data.size() >= sizeof(length)) std::memcpy(&length, data.data(), sizeof(length));
  if (random.chance(3) || data.size() < sizeof(length) || length > data.size() - sizeof(length)) {
    return mutate_bytes(data, random, other);
  }
  std::string header = data.substr(sizeof(length), length);
  const std::string rest = data.substr(sizeof(length) + length);
  mutate_json(header, random, other);
  data = with_length(header, rest);
}

void read_safetensors_input(const std::string& input) {
  check_places(read_safetensors(store("model.safetensors", input)));
}

std::string index_seed(Random& random) {
  std::string out = R"({"metadata": {"total_size": 1}, "weight_map": {"w": "a.safetensors")";
  if (random.chance(2)) out += R"(, "v": "b.safetensors")";
  return out + "}}";
}

// Beside two shards that are there.
void read_index_input(const std::string& input) {
  static const bool is_written = [] {
    const std::string tensor = R"(": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}})";
    store("shards/a.safetensors", with_length(R"({"w)" + tensor, "x"));
    store("shards/b.safetensors", with_length(R"({"v)" + tensor, "x"));
    return true;
  }();
  check(is_written);
  const auto path = store("shards/model.safetensors.index.json", input);
  static_cast<void>(read_safetensors_directory(path.parent_path()));
}

double seconds_of(int argc, char** argv) {
  if (argc > 2) return std::atof(argv[2]);
  const char* mode = std::getenv("MTLQWEN_TEST_LONG");
  return mode != nullptr && std::string_view(mode) == "1" ? kLongSeconds : kSeconds;
}

}  // namespace

int main(int argc, char** argv) {
  const double seconds = seconds_of(argc, argv);
  const auto folder = input_path("");
  std::printf("inputs are in %s\n", folder.c_str());
  std::fflush(stdout);
  // Bytes of memory for a byte of file: an array of bytes becomes one of 64-bit integers, each comma
  // of JSON a value of 40 bytes in a vector that grows by copying.
  const std::vector<Target> targets = {
      {"gguf", gguf_seed, mutate_bytes, read_gguf_input, 32},
      {"json", config_seed, mutate_json, read_json_input, 128},
      {"safetensors", safetensors_seed, mutate_safetensors, read_safetensors_input, 128},
      {"index", index_seed, mutate_json, read_index_input, 128},
  };
  std::vector<Test> tests;
  for (const Target& target : targets) {
    tests.push_back({target.name.c_str(), [&target, seconds] { fuzz(target, seconds); }});
  }
  const int status = run(tests);
  if (status == 0) std::filesystem::remove_all(folder);
  return status;
}
