// An immutable list that owns its objects.
#pragma once
#include <vector>

#include "NSObject.hpp"
#include "NSSharedPtr.hpp"

namespace NS {

class Array : public Copying<Array> {
 public:
  static Array* array(const Object* const* pObjects, UInteger count);

  template <class _Object = Object>
  _Object* object(UInteger index) const {
    return static_cast<_Object*>(object_at(index));
  }
  [[nodiscard]] UInteger count() const;

 private:
  Array() = default;
  [[nodiscard]] Object* object_at(UInteger index) const;  // null past the end
  std::vector<SharedPtr<Object>> objects_;
};

}  // namespace NS
