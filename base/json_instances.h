// What the precompiled headers take instead of <nlohmann/json.hpp>: the functions of nlohmann::json, its parser and its serializer are
// compiled once, in json_instances.cc, and not in every source that uses one.
#pragma once

#include <nlohmann/json.hpp>

extern template class nlohmann::basic_json<>;
extern template class nlohmann::detail::serializer<nlohmann::json>;
