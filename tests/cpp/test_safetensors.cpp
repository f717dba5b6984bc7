// Mapped files, JSON and safetensors against whole, truncated and hostile input.
#include <sys/stat.h>

#include "base/error.hpp"
#include "check.hpp"
#include "files.hpp"
#include "io/json.hpp"
#include "io/safetensors.hpp"
#include "watch_new.hpp"

using namespace mtlqwen;
using namespace mtlqwen::testing;

namespace {

constexpr uint64_t kModest = 1U << 16;
constexpr std::string_view kHeader =
    R"({"__metadata__":{"format":"pt"},)"
    R"("a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
    R"("b.\u00e9":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]},)"
    R"("s":{"dtype":"F16","shape":[],"data_offsets":[32,34]},)"
    R"("x":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[34,36]}}  )";

Bytes file_with(std::string_view header, size_t data_bytes) {
  return Bytes().put<uint64_t>(header.size()).raw(header).zeros(data_bytes);
}

void maps_whole_pages() {
  const TempDirectory directory;
  MappedFile file(directory.write("a", "hello"));
  check_equal(file.bytes().size(), 5U);
  check_equal(file.page_bytes(), os_page_bytes());
  check_equal(int{file.pages()[5]}, 0);
  file.pages()[0] = 'j';  // private: the file keeps its content
  check_equal(int{MappedFile(directory.path() / "a").pages()[0]}, int{'h'});
  MappedFile moved = std::move(file);
  check_equal(moved.bytes().size(), 5U);
  moved = MappedFile(directory.write("b", "other file"));
  check_equal(moved.bytes().size(), 10U);
}

void refuses_what_is_no_file() {
  const TempDirectory directory;
  const auto open = [&](const char* name) { return MappedFile(directory.path() / name); };
  check_throws<FormatError>([&] { open("missing"); }, "cannot be opened");
  check_throws<FormatError>([&] { open("."); }, "got a directory");
  static_cast<void>(directory.write("empty", ""));
  check_throws<FormatError>([&] { open("empty"); }, "is empty");
  check_equal(::mkfifo((directory.path() / "pipe").c_str(), 0600), 0);
  check_throws<FormatError>([&] { open("pipe"); }, "got a special file");
}

JsonValue json(std::string_view text) { return parse_json(text, "[json] test"); }

void reads_json() {
  const JsonValue value =
      json(" {\"b\": [1, -2.5e1, true, null, \"\\u00e9\\ud83d\\ude00\\n\"], \"a\": {}} ");
  check(value.find("a")->object()->empty());
  const JsonArray& items = *value.find("b")->array();
  check(items[0].unsigned_integer() == 1U);
  check(items[1].number() == -25.0);
  check(!items[1].unsigned_integer());
  check(items[2].boolean() == true);
  check(items[3].is_null());
  check_equal(*items[4].string(), "\xC3\xA9\xF0\x9F\x98\x80\n");
  check(value.find("c") == nullptr);
  check(json("9223372036854775807").unsigned_integer() == 9223372036854775807U);
  check(!json("-1").unsigned_integer());
  check(!json("9223372036854775808").unsigned_integer());  // a double, not exact
}

void refuses_bad_json() {
  for (const std::string_view text : {"",
                                      " ",
                                      "{",
                                      "[1,]",
                                      "{\"a\":1,}",
                                      "{a:1}",
                                      "[1 2]",
                                      "01",
                                      "1.",
                                      ".5",
                                      "+1",
                                      "1e",
                                      "-",
                                      "nul",
                                      "NaN",
                                      "Infinity",
                                      "1e400",
                                      "\"a",
                                      "\"\\x\"",
                                      "\"\\u12\"",
                                      "\"\\ud800\"",
                                      "\"\\udc00\"",
                                      "\"\\ud800\\u0041\"",
                                      "\"\n\"",
                                      "\"\xFF\"",
                                      "\"\xC0\xAF\"",
                                      "\"\xED\xA0\x80\"",
                                      "\"\xF4\x90\x80\x80\"",
                                      "{} {}",
                                      "{\"a\":1,\"a\":2}",
                                      "[1]]",
                                      "{\"a\" 1}",
                                      "\"\\u12G4\"",
                                      "[\"a\",",
                                      "tru"}) {
    check_throws<FormatError>([&] { return json(text); }, "[json] test: invalid JSON at byte");
  }
  check_throws<FormatError>([&] { return json(std::string_view("1\0", 2)); }, "after the end");
}

void bounds_json() {
  check_throws<FormatError>([] { return json(std::string(1'000'000, '[')); }, "nested deeper");
  std::string many = "[1";
  for (int i = 0; i < 100; ++i) many += ",1";
  many += "]";
  const auto parse = [&] { return parse_json(many, "x", {.depth = 4, .values = 100}); };
  check_throws<FormatError>(parse, "more than 100 values");
  check_throws<FormatError>([] { return json(std::string(100, '9')); }, "too long");
}

void reads_a_file() {
  const TempDirectory directory;
  const WeightFile file = read_safetensors(directory.write("a", file_with(kHeader, 36)));
  check_equal(file.tensors.size(), 3U);
  const TensorInfo& a = file.tensors.at("a");
  check(a.format == Format::kF32 && a.shape == std::vector<uint64_t>{2, 3});
  check_equal(a.offset, 8 + kHeader.size());
  check_equal(file.tensors.at("b.\xC3\xA9").bytes, 8U);
  check(file.tensors.at("s").shape.empty());
  check_equal(file.unsupported.at("x").format, "F8_E4M3");
}

void refuses_every_truncation() {
  const TempDirectory directory;
  const Bytes file = file_with(kHeader, 36);
  for (size_t count = 0; count < file.size(); ++count) {
    largest_allocation = 0;
    check_throws<FormatError>([&] { return read_safetensors(directory.write("a", file, count)); },
                              "");
    check(largest_allocation < kModest);
  }
}

void survives_every_changed_byte() {
  const TempDirectory directory;
  const Bytes whole = file_with(kHeader, 36);
  for (size_t i = 0; i < 8 + kHeader.size(); ++i) {
    for (const int change : {0x01, 0x10, 0x80, 0xFF}) {
      Bytes bytes = whole;
      bytes[i] = static_cast<uint8_t>(bytes[i] ^ change);
      largest_allocation = 0;
      try {
        static_cast<void>(read_safetensors(directory.write("a", bytes)));
      } catch (const FormatError&) {  // the only class that may come
      }
      check(largest_allocation < kModest);
    }
  }
}

void refuses_bad_headers() {
  const TempDirectory directory;
  const auto refused = [&](const Bytes& file, std::string_view part) {
    const std::filesystem::path path = directory.write("a", file);
    largest_allocation = 0;
    check_throws<FormatError>([&] { return read_safetensors(path); }, part);
    check(largest_allocation < kModest);
  };
  refused(Bytes().put(~0ULL), "not a safetensors file");
  refused(Bytes().put<uint64_t>(1ULL << 60).zeros(64), "not a safetensors file");
  refused(Bytes().put<uint64_t>(90'000'000).zeros(64), "ends too early");
  refused(file_with("[]", 0), "want an object");
  const auto entry = [&](std::string_view body, std::string_view part) {
    refused(file_with(concat("{\"t\":", body, "}"), 64), part);
  };
  entry("7", "want a string (got nothing)");
  entry(R"({"dtype":"F32"})", "want an array");
  entry(R"({"dtype":32,"shape":[1],"data_offsets":[0,4]})", "want a string (got 32)");
  entry(R"({"dtype":"F32","shape":[1],"data_offsets":[0]})", "want 2 integers");
  entry(R"({"dtype":"F32","shape":[1],"data_offsets":[0,-4]})", "at least 0");
  entry(R"({"dtype":"F32","shape":[1],"data_offsets":[4,0]})", "leaves the file");
  entry(R"({"dtype":"F32","shape":[99],"data_offsets":[0,396]})", "leaves the file");
  entry(R"({"dtype":"F32","shape":[2],"data_offsets":[0,4]})", "shape and size disagree");
  entry(R"({"dtype":"F32","shape":[1.0],"data_offsets":[0,4]})", "want integers");
  entry(R"({"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]})", "2^64");
  entry(R"({"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]})", "dimensions");
  entry(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]},"t":{})", "occurs twice");
  entry(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
        R"("u":{"dtype":"F32","shape":[1],"data_offsets":[4,8]})",
        "share the data byte");
}

std::string one_tensor(std::string_view name) {
  return concat("{\"", name, R"(":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})");
}

void reads_shards() {
  const TempDirectory directory;
  static_cast<void>(directory.write("m-1.safetensors", file_with(one_tensor("a"), 4)));
  static_cast<void>(directory.write("m-2.safetensors", file_with(one_tensor("b"), 4)));
  const auto index = [&](std::string_view map) {
    static_cast<void>(directory.write("model.safetensors.index.json", map));
    return read_safetensors_directory(directory.path());
  };
  const auto files =
      index(R"({"weight_map":{"b":"m-2.safetensors","a":"m-1.safetensors"},"metadata":{}})");
  check_equal(files.size(), 2U);
  check(files[0].tensors.contains("a") && files[1].tensors.contains("b"));
  const auto refused = [&](std::string_view map, std::string_view part) {
    check_throws<FormatError>([&] { return index(map); }, part);
  };
  refused(R"({"weight_map":{"a":"m-2.safetensors"}})", "tensor a is missing in m-2");
  refused(R"({"weight_map":{"a":"../m-1.safetensors"}})", "not the name of a shard");
  refused(R"({"weight_map":{"a":"/etc/passwd"}})", "not the name of a shard");
  refused(R"({"weight_map":{"a":7}})", "not the name of a shard");
  refused(R"({"weight_map":{"a":"gone.safetensors"}})", "cannot be opened");
  refused(R"({"weight_map":{}})", "no weight_map");
  refused(R"([])", "no weight_map");
  const TempDirectory empty;
  check_throws<FormatError>([&] { return read_safetensors_directory(empty.path()); },
                            "has no weights");
}

void refuses_a_name_in_two_shards() {
  const TempDirectory directory;
  const std::string both = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                           R"("b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})";
  static_cast<void>(directory.write("m-1.safetensors", file_with(one_tensor("a"), 4)));
  static_cast<void>(directory.write("m-2.safetensors", file_with(both, 8)));
  static_cast<void>(
      directory.write("model.safetensors.index.json",
                      R"({"weight_map":{"b":"m-2.safetensors","a":"m-1.safetensors"}})"));
  check_throws<FormatError>([&] { return read_safetensors_directory(directory.path()); },
                            "lies in another shard too");
}

}  // namespace

int main() {
  return run({{"maps whole pages", maps_whole_pages},
              {"refuses what is no file", refuses_what_is_no_file},
              {"reads json", reads_json},
              {"refuses bad json", refuses_bad_json},
              {"bounds json", bounds_json},
              {"reads a file", reads_a_file},
              {"refuses every truncation", refuses_every_truncation},
              {"survives every changed byte", survives_every_changed_byte},
              {"refuses bad headers", refuses_bad_headers},
              {"reads shards", reads_shards},
              {"refuses a name in two shards", refuses_a_name_in_two_shards}});
}
