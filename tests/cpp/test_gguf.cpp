// The GGUF reader against whole, truncated and hostile files.
#include <functional>

#include "base/error.hpp"
#include "check.hpp"
#include "files.hpp"
#include "io/gguf.hpp"
#include "watch_new.hpp"

using namespace mtlqwen;
using namespace mtlqwen::testing;

namespace {

enum : uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kText, kList, kU64, kI64, kF64 };
enum : uint32_t { kTypeF32 = 0, kTypeQ8_0 = 8, kTypeQ4_K = 12, kTypeQ8_K = 15 };

constexpr uint64_t kHuge = 1ULL << 60;
constexpr uint64_t kModest = 1U << 16;  // no case here holds more than a few hundred bytes

Bytes header(uint64_t n_tensors, uint64_t n_values, uint32_t version = 3) {
  return Bytes().raw("GGUF").put(version).put(n_tensors).put(n_values);
}

void add_tensor(Bytes& out, std::string_view name, std::vector<uint64_t> ne, uint32_t type,
                uint64_t offset) {
  out.text(name).put(static_cast<uint32_t>(ne.size()));
  for (const uint64_t dim : ne) out.put(dim);
  out.put(type).put(offset);
}

// Every kind of value, nested arrays, three tensors of which one has a type without kernels.
Bytes whole_file() {
  Bytes out = header(3, 16);
  out.text("u8").put(kU8).put<uint8_t>(200);
  out.text("i8").put(kI8).put<int8_t>(-100);
  out.text("u16").put(kU16).put<uint16_t>(60000);
  out.text("i16").put(kI16).put<int16_t>(-30000);
  out.text("u32").put(kU32).put<uint32_t>(4000000000U);
  out.text("i32").put(kI32).put<int32_t>(-2000000000);
  out.text("f32").put(kF32).put(1.5F);
  out.text("bool").put(kBool).put<uint8_t>(1);
  out.text("text").put(kText).text("h\xC3\xA9");
  out.text("u64").put(kU64).put<uint64_t>(kHuge);
  out.text("i64").put(kI64).put<int64_t>(-5);
  out.text("f64").put(kF64).put(2.25);
  out.text("texts").put(kList).put(kText).put<uint64_t>(2).text("a").text("");
  out.text("bools").put(kList).put(kBool).put<uint64_t>(2).put<uint8_t>(0).put<uint8_t>(1);
  out.text("lists").put(kList).put(kList).put<uint64_t>(2);
  out.put(kI32).put<uint64_t>(1).put<int32_t>(-7).put(kF32).put<uint64_t>(0);
  out.text("empty").put(kList).put(kU32).put<uint64_t>(0);
  add_tensor(out, "plain", {2, 3}, kTypeF32, 0);
  add_tensor(out, "packed", {64, 2}, kTypeQ8_0, 32);
  add_tensor(out, "other", {32}, kTypeQ8_K, 192);
  return out.pad_to(32).zeros(32 + 2 * 2 * 34 + 24 + 18);
}

void reads_everything() {
  const TempDirectory directory;
  const GgufFile file = read_gguf(directory.write("a.gguf", whole_file()));
  const GgufMetadata& data = file.metadata;
  check_equal(data.values().size(), 16U);
  check_equal(data.get_u32("u8"), 200U);
  check_equal(data.get_u32("u32"), 4000000000U);
  check_equal(data.get_f32("f32"), 1.5F);
  check_equal(data.get_f32("f64"), 2.25F);
  check_equal(data.get_string("text"), "h\xC3\xA9");
  check(data.find_bool("bool") == true);
  check(*data.find_strings("texts") == std::vector<std::string>{"a", ""});
  check(*data.find_bools("bools") == std::vector<bool>{false, true});
  check(data.find_integers("empty")->empty());
  const GgufArray* lists = data.values().at("lists").array();
  check_equal(std::get<std::vector<GgufArray>>(lists->items).size(), 2U);
  const TensorInfo& packed = file.weights.tensors.at("packed");
  check(packed.shape == std::vector<uint64_t>{2, 64});
  check_equal(packed.bytes, 2U * 2U * 34U);
  check_equal((packed.offset - file.weights.tensors.at("plain").offset), 32U);
  check_equal(packed.offset % 32, 0U);
  check_equal(file.weights.unsupported.at("other").format, "Q8_K");
}

void getters_name_key_and_values() {
  const TempDirectory directory;
  const GgufFile file = read_gguf(directory.write("a.gguf", whole_file()));
  const GgufMetadata& data = file.metadata;
  check(!data.find_u32("missing"));
  check(data.find_string("missing") == nullptr);
  check_throws<ModelError>([&] { return data.get_u32("missing"); }, "key missing is missing");
  check_throws<ModelError>([&] { return data.get_u32("i8"); }, "got integer -100");
  check_throws<ModelError>([&] { return data.get_u32("u64"); }, "want an unsigned 32-bit integer");
  check_throws<ModelError>([&] { return data.get_string("u8"); }, "want a string");
  check_throws<ModelError>([&] { return data.get_f32("text"); }, "want a finite float");
  check_throws<ModelError>([&] { return data.find_bools("texts"); }, "got array of 2");
  check_throws<ModelError>([&] { return data.find_bool("u8"); }, "want a bool");
}

// Cut anywhere, the file must be refused: the last byte of data is the end of the last tensor.
void refuses_every_truncation() {
  const TempDirectory directory;
  Bytes file = whole_file();
  const size_t needed = file.size() - 24 - 18 + 24 + 1;  // of Q8_K only the start is checked
  for (size_t count = 0; count < needed; ++count) {
    largest_allocation = 0;
    check_throws<FormatError>([&] { return read_gguf(directory.write("a.gguf", file, count)); },
                              "");
    check(largest_allocation < kModest);
  }
  check_equal(read_gguf(directory.write("a.gguf", file, needed)).weights.tensors.size(), 2U);
}

// One byte of the header changed: read or refused, never worse.
void survives_every_changed_byte() {
  const TempDirectory directory;
  const Bytes whole = whole_file();
  size_t refused = 0;
  for (size_t i = 0; i < whole.size() - 210; ++i) {
    for (const int change : {0x01, 0x80, 0xFF}) {
      Bytes bytes = whole;
      bytes[i] = static_cast<uint8_t>(bytes[i] ^ change);
      largest_allocation = 0;
      try {
        static_cast<void>(read_gguf(directory.write("a.gguf", bytes)));
      } catch (const Error&) {
        ++refused;
      }
      check(largest_allocation < kModest);
    }
  }
  check(refused > whole.size());
}

void expect_refused(const Bytes& file, std::string_view part) {
  const TempDirectory directory;
  const std::filesystem::path path = directory.write("a.gguf", file);
  largest_allocation = 0;
  check_throws<FormatError>([&] { return read_gguf(path); }, part);
  check(largest_allocation < kModest);
}

void refuses_bad_headers() {
  expect_refused(Bytes().raw("GGML").zeros(40), "not a GGUF file");
  expect_refused(header(0, 0, 1), "got 1, want 2 or 3");
  expect_refused(header(0, 0, 0x03000000), "big-endian");
  expect_refused(header(kHuge, 0), "tensor count: too many");
  expect_refused(header(0, kHuge), "metadata count: too many");
  expect_refused(header(1 << 20, 0), "ends too early");
}

void refuses_bad_values() {
  const auto one = [] { return header(0, 1); };
  expect_refused(one().text("k").put<uint32_t>(13), "unknown kind of value");
  expect_refused(one().put(kHuge), "ends too early");
  expect_refused(one().text(""), "is empty");
  expect_refused(one().text("\xFF\xFE").put(kU8), "not UTF-8");
  expect_refused(one().text(std::string(2000, 'k')), "text is too long");
  expect_refused(one().text("k").put(kText).put(kHuge), "ends too early");
  expect_refused(one().text("k").put(kText).put(~0ULL), "ends too early");
  expect_refused(one().text("k").put(kText).text("\xC0\x80"), "not UTF-8");
  expect_refused(one().text("k").put(kBool).put<uint8_t>(2), "bad bool");
  expect_refused(one().text("k").put(kList).put(kU8).put(kHuge), "too many array elements");
  expect_refused(one().text("k").put(kList).put(kText).put<uint64_t>(1 << 20), "ends too early");
  expect_refused(one().text("k").put(kList).put<uint32_t>(99).put<uint64_t>(1), "unknown kind");
  Bytes deep = one().text("k").put(kList);
  for (int i = 0; i < 200; ++i) deep.put(kList).put<uint64_t>(1);
  expect_refused(deep.zeros(64), "nested deeper");
  expect_refused(header(0, 2).text("k").put(kU8).put<uint8_t>(0).text("k").put(kU8).zeros(1),
                 "occurs twice");
  for (const uint32_t bad : {0U, 3U, 48U, 1U << 20}) {
    expect_refused(header(0, 1).text("general.alignment").put(kU32).put(bad), "power of two");
  }
}

void refuses_bad_tensors() {
  const auto refused = [](std::string_view name, std::vector<uint64_t> ne, uint32_t type,
                          uint64_t offset, std::string_view part) {
    Bytes file = header(1, 0);
    add_tensor(file, name, std::move(ne), type, offset);
    expect_refused(file.pad_to(32).zeros(1024), part);
  };
  refused("", {32}, kTypeF32, 0, "has no name");
  refused("t", {}, kTypeF32, 0, "number of dimensions");
  refused("t", {1, 1, 1, 1, 1}, kTypeF32, 0, "number of dimensions");
  refused("t", {0}, kTypeF32, 0, "a dimension is 0");
  refused("t", {kHuge, 32}, kTypeF32, 0, "overflows");
  refused("t", {1ULL << 32, 1ULL << 32}, kTypeF32, 0, "overflows");
  refused("t", {1ULL << 63}, kTypeF32, 0, "overflows");
  refused("t", {33}, kTypeQ8_0, 0, "do not fill");
  refused("t", {128}, kTypeQ4_K, 0,
          "do not fill their Q4_K qblocks (got 128, want a multiple of 256)");
  refused("t", {32}, kTypeF32, 7, "not aligned");
  refused("t", {32}, kTypeF32, 2048, "leaves the file");
  refused("t", {32}, kTypeF32, 1024 - 96, "leaves the file");
  refused("t", {32}, kTypeF32, ~0ULL - 31, "leaves the file");
  refused("t", {1ULL << 40}, kTypeF32, 0, "leaves the file");
  refused("t", {32}, kTypeQ8_K, 1ULL << 40, "leaves the file");
  Bytes twice = header(2, 0);
  add_tensor(twice, "t", {8}, kTypeF32, 0);
  add_tensor(twice, "t", {8}, kTypeQ8_K, 32);
  expect_refused(twice.pad_to(32).zeros(128), "occurs twice");
  Bytes shared = header(2, 0);
  add_tensor(shared, "a", {16}, kTypeF32, 0);
  add_tensor(shared, "b", {16}, kTypeF32, 32);
  expect_refused(shared.pad_to(32).zeros(128), "share the data byte");
}

void names_unknown_types() {
  const TempDirectory directory;
  Bytes file = header(2, 0, 2);
  add_tensor(file, "a", {256}, kTypeQ8_K, 0);
  add_tensor(file, "b", {256}, 4000000000U, 0);
  const GgufFile read = read_gguf(directory.write("a.gguf", file.pad_to(32).zeros(64)));
  check_equal(read.weights.unsupported.at("a").format, "Q8_K");
  check_equal(read.weights.unsupported.at("b").format, "type 4000000000");
}

void honours_alignment() {
  const TempDirectory directory;
  Bytes file = header(1, 1).text("general.alignment").put(kU32).put<uint32_t>(256);
  add_tensor(file, "t", {8}, kTypeF32, 256);
  const GgufFile read = read_gguf(directory.write("a.gguf", file.pad_to(256).zeros(256 + 32)));
  check_equal(read.weights.tensors.at("t").offset, 512U);
}

}  // namespace

int main() {
  return run({{"reads everything", reads_everything},
              {"getters name key and values", getters_name_key_and_values},
              {"refuses every truncation", refuses_every_truncation},
              {"survives every changed byte", survives_every_changed_byte},
              {"refuses bad headers", refuses_bad_headers},
              {"refuses bad values", refuses_bad_values},
              {"refuses bad tensors", refuses_bad_tensors},
              {"names unknown types", names_unknown_types},
              {"honours alignment", honours_alignment}});
}
