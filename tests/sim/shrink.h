// A failing plan, made smaller: fewer drains, faults, pods, as long as the same rule is broken.
#pragma once

#include <functional>
#include <string>

#include "tests/sim/world.h"

namespace holdfast::sim {

// `found`: what `play` said of `plan`; it plays at most `tries` more. `say`: a line for each step that it came nearer.
Plan Shrink(Plan plan, const Verdict& found, int tries, const std::function<Verdict(const Plan&)>& play,
            const std::function<void(const std::string&)>& say);

}  // namespace holdfast::sim
