// What every check of a checkpoint's images needs: reading them as CRIU does, and saying what is wrong. Hostile input.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/protobuf.h"
#include "base/status.h"

namespace holdfast::runtime {

constexpr size_t kMaxParsedImage = 64 << 20;  // of those that are read whole; pages never are

// Bits as the kernel has them (linux/capability.h).
constexpr uint64_t Capability(int number) { return uint64_t{1} << number; }
constexpr uint64_t kCapSetuid = Capability(7), kCapNetAdmin = Capability(12), kCapNetRaw = Capability(13), kCapSysAdmin = Capability(21),
                   kCapSysNice = Capability(23), kCapSysResource = Capability(24), kCapSyslog = Capability(34),
                   kCapAuditRead = Capability(37), kCapBpf = Capability(39);
// The bounding set that a spec gives.
uint64_t BoundingSet(const Json& spec);
std::string CapabilityNames(uint64_t capabilities);

// A message by its fields. What CRIU reads once must stand there once: of two, protobuf takes the last, or what both say together.
class Message {
 public:
  // False: damaged, of fields that CRIU does not have, or one twice that is not among the bits of `repeated`.
  bool Read(std::string_view bytes, uint64_t repeated = 0);
  bool Has(uint32_t number) const { return at_[number] >= 0; }
  uint64_t Number(uint32_t number, uint64_t otherwise = 0) const { return Has(number) ? fields_[at_[number]].value : otherwise; }
  uint32_t Word(uint32_t number) const { return static_cast<uint32_t>(Number(number)); }  // CRIU cuts it
  std::string_view Bytes(uint32_t number) const { return Has(number) ? fields_[at_[number]].content : std::string_view(); }
  // False when there is a NUL in it: CRIU's text ends there.
  bool Text(uint32_t number, std::string* text) const;
  const std::vector<protobuf::Field>& fields() const { return fields_; }

 private:
  std::vector<protobuf::Field> fields_;
  std::array<int, 64> at_ = {};
};
constexpr uint64_t Repeated(uint32_t number) { return uint64_t{1} << number; }

// kNotFound when there is none.
Result<std::string> ReadImage(const std::string& images, const std::string& name);
// The first entry of one that goes on with what is no entry; nothing when it is damaged.
std::optional<std::string_view> FirstEntry(std::string_view image, uint32_t magic);

// kDataLoss.
Status DamagedImage(const std::string& images, const std::string& name);
// kFailedPrecondition; `what`: "a task holds …", "… is mounted".
Status WiderImage(const std::string& name, const std::string& what);

// An absolute path without "..", "." and empty steps; "/" is one.
bool IsPlainPath(std::string_view path);
// Whether `path` is `folder` or lies beneath it.
bool IsWithin(std::string_view path, std::string_view folder);
// A name out of an image as a message may have it.
std::string Shown(std::string_view name);

}  // namespace holdfast::runtime
