// Reference counting, as metal-cpp has it: objects come with one reference from alloc, new*, copy and Create*, and
// autoreleased from everything else. Every method may be called on a null pointer and then does nothing or returns zero,
// as a message to nil; the code that uses these headers is compiled with -fno-delete-null-pointer-checks for that.
#pragma once
#include <atomic>

#include "NSTypes.hpp"

namespace mtlqwen::hostmetal {

// The root of all classes. Thread safe; the last release deletes.
class Counted {
 public:
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 protected:
  Counted() = default;
  virtual ~Counted() = default;

 private:
  friend void retain(const Counted* object);
  friend void release(const Counted* object);
  friend NS::UInteger retain_count(const Counted* object);
  mutable std::atomic<NS::UInteger> references_{1};
};

// All accept null.
void retain(const Counted* object);
void release(const Counted* object);
void autorelease(const Counted* object);
NS::UInteger retain_count(const Counted* object);

}  // namespace mtlqwen::hostmetal

namespace NS {

template <class _Class, class _Base = class Object>
class Referencing : public _Base {
 public:
  _Class* retain() {
    mtlqwen::hostmetal::retain(this);
    return static_cast<_Class*>(this);
  }
  void release() { mtlqwen::hostmetal::release(this); }
  _Class* autorelease() {
    mtlqwen::hostmetal::autorelease(this);
    return static_cast<_Class*>(this);
  }
  [[nodiscard]] UInteger retainCount() const { return mtlqwen::hostmetal::retain_count(this); }

 protected:
  using _Base::_Base;
};

template <class _Class, class _Base = class Object>
class Copying : public Referencing<_Class, _Base> {
 protected:
  Copying() = default;
};

class Object : public Referencing<Object, mtlqwen::hostmetal::Counted> {
 protected:
  Object() = default;
};

}  // namespace NS
