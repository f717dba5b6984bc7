// Holds the autoreleased objects of one thread until it goes. Pools nest; releasing one releases those made after it, too.
// An object autoreleased on a thread without a pool leaks, as on a Mac.
#pragma once
#include <vector>

#include "NSObject.hpp"

namespace NS {

class AutoreleasePool : public Object {
 public:
  static AutoreleasePool* alloc();
  AutoreleasePool* init();

  void drain();  // the same as release()

 private:
  friend void mtlqwen::hostmetal::autorelease(const mtlqwen::hostmetal::Counted* object);
  AutoreleasePool() = default;
  ~AutoreleasePool() override;

  AutoreleasePool* outer_ = nullptr;
  std::vector<const mtlqwen::hostmetal::Counted*> objects_;
};

}  // namespace NS
