#include "tests/places.h"

namespace holdfast::places {

const char* const kSources = HOLDFAST_SOURCES;
std::string Program(const std::string& name) { return HOLDFAST_PROGRAMS "/" + name; }

}  // namespace holdfast::places
