// Where this build and its sources lie. Only places.cc is compiled with a path, so that another clone finds the other objects in ccache.
#pragma once

#include <string>

namespace holdfast::places {

extern const char* const kSources;             // the root of the repository
std::string Program(const std::string& name);  // one of this build, such as "holdfast-store"

}  // namespace holdfast::places
