// Foundation: reference counts, autorelease pools, and the value classes.
#include <Foundation/Foundation.hpp>
#include <string>
#include <utility>

#include "hostmetal/error.hpp"

namespace {

thread_local NS::AutoreleasePool* innermost_pool = nullptr;

}  // namespace

namespace mtlqwen::hostmetal {

void retain(const Counted* object) {
  if (object) object->references_.fetch_add(1, std::memory_order_relaxed);
}

void release(const Counted* object) {
  if (object && object->references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete object;
}

NS::UInteger retain_count(const Counted* object) {
  return object ? object->references_.load(std::memory_order_relaxed) : 0;
}

void autorelease(const Counted* object) {
  if (object && innermost_pool) innermost_pool->objects_.push_back(object);
}

struct ErrorMaker {
  static NS::Error* make(const char* domain, NS::Integer code, const std::string& text) {
    auto* error = new NS::Error;
    error->domain_ = make_string(domain);
    error->code_ = code;
    error->description_ = make_string(text);
    return error;
  }
};

NS::Error* make_error(const char* domain, NS::Integer code, const std::string& text) {
  return ErrorMaker::make(domain, code, text);
}

NS::Error* make_error(const Failure& failure) {
  return make_error(failure.aborted ? kAbortDomain : kQueueDomain, failure.code, failure.text);
}

void report(NS::Error** error, const char* domain, NS::Integer code, const std::string& text) {
  if (error) *error = make_error(domain, code, text)->autorelease();
}

NS::SharedPtr<NS::String> make_string(std::string_view text) {
  return NS::TransferPtr(
      NS::String::alloc()->init(std::string(text).c_str(), NS::UTF8StringEncoding));
}

std::string text_of(const NS::String* string) {
  const char* bytes = string->utf8String();
  return bytes ? bytes : "";
}

}  // namespace mtlqwen::hostmetal

namespace NS {

String* String::alloc() { return new String; }

String* String::init(const char* pString, StringEncoding /*encoding*/) {
  if (this && pString) text_ = pString;
  return this;
}

String* String::string(const char* pString, StringEncoding encoding) {
  return alloc()->init(pString, encoding)->autorelease();
}

const char* String::utf8String() const { return this ? text_.c_str() : nullptr; }

bool String::isEqualToString(const String* pString) const {
  return this && pString && text_ == pString->text_;
}

Array* Array::array(const Object* const* pObjects, UInteger count) {
  auto* array = new Array;
  for (UInteger i = 0; i < count; ++i) {
    array->objects_.push_back(RetainPtr(const_cast<Object*>(pObjects[i])));
  }
  return array->autorelease();
}

UInteger Array::count() const { return this ? objects_.size() : 0; }

Object* Array::object_at(UInteger index) const {
  return index < count() ? objects_[index].get() : nullptr;
}

URL* URL::fileURLWithPath(const String* pPath) {
  auto* url = new URL;
  url->path_ = mtlqwen::hostmetal::text_of(pPath);
  return url->autorelease();
}

const char* URL::fileSystemRepresentation() const { return this ? path_.c_str() : nullptr; }

Integer Error::code() const { return this ? code_ : 0; }
ErrorDomain Error::domain() const { return this ? domain_.get() : nullptr; }
String* Error::localizedDescription() const { return this ? description_.get() : nullptr; }

AutoreleasePool* AutoreleasePool::alloc() { return new AutoreleasePool; }

AutoreleasePool* AutoreleasePool::init() {
  if (this) {
    outer_ = innermost_pool;
    innermost_pool = this;
  }
  return this;
}

void AutoreleasePool::drain() { release(); }

AutoreleasePool::~AutoreleasePool() {
  AutoreleasePool* pool = innermost_pool;
  while (pool && pool != this) pool = pool->outer_;
  const bool is_open = pool == this;  // of this thread
  while (is_open && innermost_pool != this) innermost_pool->release();
  // Destructors may autorelease more into this pool, which is still the innermost.
  while (!objects_.empty()) {
    const auto* object = objects_.back();
    objects_.pop_back();
    mtlqwen::hostmetal::release(object);
  }
  if (is_open) innermost_pool = outer_;
}

}  // namespace NS
