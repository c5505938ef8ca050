#include "runtime/processor.h"

#include <sstream>

#include "base/file.h"

namespace holdfast::runtime {
namespace {

// Instructions and state of x86 that a program finds by CPUID and uses by itself; the rest of the flags is the kernel's own matter.
bool ForPrograms(const std::string& flag) {
  static const std::set<std::string> kFlags = {
      "3dnow",     "3dnowext", "3dnowprefetch", "abm",       "adx",     "aes",         "bmi1",   "bmi2",       "cldemote", "clflushopt",
      "clwb",      "clzero",   "cx16",          "cx8",       "enqcmd",  "erms",        "f16c",   "fma",        "fma4",     "fsgsbase",
      "fsrm",      "fxsr",     "gfni",          "hle",       "lahf_lm", "misalignsse", "mmx",    "mmxext",     "monitorx", "movbe",
      "movdir64b", "movdiri",  "ospke",         "pclmulqdq", "pku",     "pni",         "popcnt", "rdpid",      "rdpru",    "rdrand",
      "rdseed",    "rdtscp",   "rtm",           "serialize", "sha_ni",  "sha512",      "sm3",    "sm4",        "sse",      "sse2",
      "sse4_1",    "sse4_2",   "sse4a",         "ssse3",     "tbm",     "user_shstk",  "vaes",   "vpclmulqdq", "waitpkg",  "wbnoinvd",
      "xgetbv1",   "xop",      "xsave",         "xsavec",    "xsaveopt"};
  return kFlags.contains(flag) || flag.starts_with("avx") || flag.starts_with("amx_");
}

}  // namespace

std::string LineOf(const std::string& text, const std::string& key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos || line.substr(0, line.find_last_not_of(" \t", colon - 1) + 1) != key) continue;
    const size_t from = line.find_first_not_of(" \t", colon + 1);
    return from == std::string::npos ? "" : line.substr(from);
  }
  return "";
}

Processor ReadProcessor(const std::string& cpuinfo) {
  const std::string text = ReadFile(cpuinfo, 64 << 20).value_or("");
  Processor processor{.model = LineOf(text, "model name")};
  std::string list = LineOf(text, "flags");
  processor.x86 = !list.empty();
  if (!processor.x86) list = LineOf(text, "Features");
  std::istringstream words(list);
  for (std::string word; words >> word;) processor.flags.insert(word);
  return processor;
}

std::string FeaturesOf(const Processor& processor) {
  std::string features;
  for (const std::string& flag : processor.flags) {
    if (!processor.x86 || ForPrograms(flag)) features += (features.empty() ? "" : " ") + flag;
  }
  return features;
}

}  // namespace holdfast::runtime
