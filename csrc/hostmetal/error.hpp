// Errors of the software device: plain values inside, NS::Error at the surface.
#pragma once
#include <Foundation/Foundation.hpp>
#include <Metal/MTLTypes.hpp>
#include <string>
#include <string_view>

namespace mtlqwen::hostmetal {

inline constexpr char kLibraryDomain[] = "MTLLibraryErrorDomain";
inline constexpr char kQueueDomain[] = "MTL4CommandQueueErrorDomain";
inline constexpr char kAbortDomain[] = "mtlqwen.hostmetal.abort";

// Why a command buffer failed; no text: it did not.
struct Failure {
  MTL4::CommandQueueError code = MTL4::CommandQueueErrorNone;
  std::string text;
  bool aborted = false;

  explicit operator bool() const { return !text.empty(); }
};

inline Failure refused(std::string text) {
  return {.code = MTL4::CommandQueueErrorInternal, .text = std::move(text)};
}

// With one reference.
[[nodiscard]] NS::Error* make_error(const char* domain, NS::Integer code, const std::string& text);
[[nodiscard]] NS::Error* make_error(const Failure& failure);

// Stores an autoreleased error where the caller asked for it.
void report(NS::Error** error, const char* domain, NS::Integer code, const std::string& text);

[[nodiscard]] NS::SharedPtr<NS::String> make_string(std::string_view text);
[[nodiscard]] inline NS::String* autoreleased(std::string_view text) {
  return make_string(text)->retain()->autorelease();
}
// "" for null.
[[nodiscard]] std::string text_of(const NS::String* string);

// What a setter of a descriptor keeps: the object itself, with a reference more.
template <class T>
[[nodiscard]] NS::SharedPtr<T> keep(const T* object) {
  return NS::RetainPtr(const_cast<T*>(object));
}

}  // namespace mtlqwen::hostmetal
