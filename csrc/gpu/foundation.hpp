// Strings, errors and autorelease pools of Foundation, in the words of the standard library.
#pragma once
#include <Foundation/Foundation.hpp>
#include <string>
#include <string_view>

namespace mtlqwen {

// Metal hands out autoreleased objects, which a thread without a pool leaks. Every public call of
// gpu/ that may meet one opens a scope; scopes nest. Must end on the thread that began it.
class AutoreleaseScope {
 public:
  AutoreleaseScope() : pool_(NS::AutoreleasePool::alloc()->init()) {}
  ~AutoreleaseScope() { pool_->release(); }
  AutoreleaseScope(const AutoreleaseScope&) = delete;
  AutoreleaseScope& operator=(const AutoreleaseScope&) = delete;

 private:
  NS::AutoreleasePool* pool_;
};

// Autoreleased.
[[nodiscard]] NS::String* ns_string(std::string_view text);
// "" for null.
[[nodiscard]] std::string to_text(const NS::String* string);
// What the device says went wrong; a sentence of ours where it says nothing.
[[nodiscard]] std::string to_text(const NS::Error* error);

}  // namespace mtlqwen
