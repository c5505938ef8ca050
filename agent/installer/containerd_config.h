// How containerd's configuration is told of the runtime "holdfast": a drop-in of our own, and an `imports` entry in config.toml where there
// is none that takes it in. Pure text in, text out. Facts that it rests on (containerd 2.1.9 and 2.4.2): tables of imported files are
// merged key by key at every depth; a drop-in of a lower version than config.toml is not migrated by 2.1.9 (it must have the same version);
// an import without a wildcard that does not exist keeps containerd from starting.
#pragma once

#include <optional>
#include <string>

#include "base/status.h"

namespace holdfast::agent {

inline constexpr char kContainerdConfig[] = "/etc/containerd/config.toml";
inline constexpr char kDropIn[] = "/etc/containerd/conf.d/holdfast.toml";
inline constexpr char kDropInPattern[] = "/etc/containerd/conf.d/holdfast*.toml";  // matches nothing of other people's
inline constexpr char kRuntimeBinary[] = "/opt/holdfast/bin/holdfast-runc";

struct ContainerdPlan {
  std::string drop_in;                // the whole file
  std::optional<std::string> config;  // config.toml as it must become; nothing: it is right
};

// `config`: the text of config.toml, nothing when there is none. `dump`: what `containerd config dump` prints. `major`: containerd's
// version. kFailedPrecondition with the reason when the configuration is not understood.
Result<ContainerdPlan> PlanContainerdConfig(const std::optional<std::string>& config, const std::string& dump, int major);

// The way back. `config`: the text of config.toml; `backup`: what it was before an import was added to it, where that is known. The
// result: the text as it must become, nothing when it is to be removed, since it was written by us as a whole. As it was before, byte for
// byte, when nobody has changed it since; else our import alone is taken out. kNotFound: there is nothing of ours in it.
// kFailedPrecondition: it is not understood.
Result<std::optional<std::string>> WithoutImport(const std::string& config, const std::optional<std::string>& backup);
// Whether a drop-in was written by us.
bool IsOurDropIn(const std::string& text);

// True when a `containerd config dump` has the runtime "holdfast" with our binary.
bool HasRuntime(const std::string& dump);

// "containerd github.com/containerd/containerd/v2 2.1.9+unknown" → 2; 0 when it cannot be read.
int ContainerdMajor(const std::string& version_output);

}  // namespace holdfast::agent
