// The manifest's format: one JSON object with sorted keys. A file's segments are one string of "<hex id>:<size>" and, for zeros,
// "0:<size>", its leaves one of "<hex id>:<size>:<bytes of the file>", separated by blanks: a DOM node each would cost ten times the
// memory.
#include <algorithm>
#include <charconv>
#include <unordered_set>

#include "base/file.h"
#include "storage/hash.h"
#include "storage/limits.h"
#include "storage/recipe.h"

namespace holdfast::storage {
namespace {

constexpr int kFormat = 2;

Status Bad(const std::string& what) { return Status(Code::kInvalidArgument, "manifest: " + what); }

// Paths go into messages: what a terminal or a log would choke on is left out, and not much of it.
std::string Shown(std::string_view path) {
  std::string shown;
  for (char c : path.substr(0, 120)) shown.push_back(static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c);
  return "\"" + shown + "\"";
}

// A number up to the next ':' or the end, which is then behind it.
template <class Integer>
bool TakeNumber(std::string_view* text, Integer* number) {
  auto [stop, error] = std::from_chars(text->data(), text->data() + text->size(), *number);
  if (error != std::errc()) return false;
  text->remove_prefix(static_cast<size_t>(stop - text->data()));
  if (text->starts_with(':')) {
    text->remove_prefix(1);
    return !text->empty();
  }
  return text->empty();
}

Status ParseReference(std::string_view token, SegmentRef* segment) {
  const size_t colon = token.find(':');
  if (colon == std::string_view::npos) return Bad("a segment is written <id>:<size>");
  segment->zero = token.substr(0, colon) == "0";
  if (!segment->zero) {
    HF_ASSIGN_OR_RETURN(segment->id, SegmentId::FromHex(token.substr(0, colon)));
  }
  token.remove_prefix(colon + 1);
  return TakeNumber(&token, &segment->size) && token.empty() ? Status::Ok() : Bad("a segment's size is not a number");
}

Status ParseReference(std::string_view token, LeafRef* leaf) {
  const size_t colon = token.find(':');
  if (colon == std::string_view::npos) return Bad("a leaf is written <id>:<size>:<bytes>");
  HF_ASSIGN_OR_RETURN(leaf->id, SegmentId::FromHex(token.substr(0, colon)));
  token.remove_prefix(colon + 1);
  return TakeNumber(&token, &leaf->size) && TakeNumber(&token, &leaf->bytes) && token.empty() ? Status::Ok()
                                                                                              : Bad("a leaf's size is not a number");
}

template <class Reference>
Result<std::vector<Reference>> ParseReferences(std::string_view text, size_t room) {
  std::vector<Reference> references;
  while (!text.empty()) {
    if (references.size() == room) return Bad("more than " + std::to_string(kMaxReferences) + " segments and leaves");
    const size_t end = std::min(text.find(' '), text.size());
    HF_RETURN_IF_ERROR(ParseReference(text.substr(0, end), &references.emplace_back()));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return references;
}

Result<FileEntry> ParseFile(const Json& json, size_t room) {
  FileEntry file;
  file.path = GetString(json, {"path"});
  int64_t size = GetInt(json, {"size"}, -1), mode = GetInt(json, {"mode"}, -1);
  if (size < 0 || mode < 0 || mode > 07777) return Bad("the file " + Shown(file.path) + " lacks a size or a mode");
  file.size = static_cast<uint64_t>(size);
  file.mode = static_cast<uint32_t>(mode);
  HF_ASSIGN_OR_RETURN(file.segments, ParseReferences<SegmentRef>(GetString(json, {"segments"}), room));
  HF_ASSIGN_OR_RETURN(file.leaves, ParseReferences<LeafRef>(GetString(json, {"leaves"}), room - file.segments.size()));
  return file;
}

Status CheckFile(const FileEntry& file) {
  HF_RETURN_IF_ERROR(CheckPath(file.path));
  if ((file.mode & ~0777U) != 0) return Bad("the file " + Shown(file.path) + " has mode bits beyond 0777");
  uint64_t sum = 0;
  for (const SegmentRef& segment : file.segments) {
    if (segment.size == 0 || segment.size > kMaxSegmentBytes) return Bad("a segment of " + Shown(file.path) + " has an impossible size");
    if (segment.zero && segment.id != SegmentId{}) return Bad("a zero segment of " + Shown(file.path) + " has an id");
    sum += segment.size;  // cannot overflow: counts and sizes are bounded
  }
  if (!file.segments.empty() && !file.leaves.empty()) return Bad(Shown(file.path) + " has both segments and leaves");
  for (const LeafRef& leaf : file.leaves) {
    if (leaf.size <= kLeafHeaderBytes || leaf.size > kMaxLeafBytes || leaf.bytes == 0 || leaf.bytes > kLeafSegments * kMaxSegmentBytes)
      return Bad("a leaf of " + Shown(file.path) + " has an impossible size");
    sum += leaf.bytes;
  }
  if (sum != file.size) {
    return Bad("the segments of " + Shown(file.path) + " have " + std::to_string(sum) + " bytes, the file " + std::to_string(file.size));
  }
  return Status::Ok();
}

}  // namespace

Status CheckPath(std::string_view path) {
  if (path.empty() || path.size() > kMaxPathBytes) return Bad("a path has 1 to " + std::to_string(kMaxPathBytes) + " bytes");
  // JSON cannot carry other bytes, and a path must come back as it was.
  bool ascii = std::all_of(path.begin(), path.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
  if (!ascii) {
    Result<Json> back = ParseJson(DumpJson(Json(std::string(path))));
    if (!back.ok() || *back != Json(std::string(path))) return Bad("the path " + Shown(path) + " is not UTF-8");
  }
  size_t depth = 0;
  for (size_t at = 0; at <= path.size();) {
    size_t slash = std::min(path.find('/', at), path.size());
    if (!IsSafeName(path.substr(at, slash - at))) return Bad("the path " + Shown(path) + " could leave its folder");
    if (++depth > kMaxPathDepth) return Bad("the path " + Shown(path) + " is too deep");
    at = slash + 1;
  }
  return Status::Ok();
}

Status CheckManifest(const Manifest& manifest) {
  HF_RETURN_IF_ERROR(CheckId(manifest.checkpoint_uid, "checkpoint uid"));
  HF_RETURN_IF_ERROR(CheckId(manifest.ns, "namespace"));
  if (manifest.checkpoint.size() > 253) return Bad("the checkpoint's name is too long");
  if (manifest.files.size() > kMaxFiles) return Bad("more than " + std::to_string(kMaxFiles) + " files");
  size_t references = 0;
  std::unordered_set<std::string_view> paths;
  for (const FileEntry& file : manifest.files) {
    references += file.segments.size() + file.leaves.size();
    if (references > kMaxReferences) return Bad("more than " + std::to_string(kMaxReferences) + " segments and leaves");
    HF_RETURN_IF_ERROR(CheckFile(file));
    if (!paths.insert(file.path).second) return Bad("the path " + Shown(file.path) + " occurs twice");
  }
  for (const FileEntry& file : manifest.files) {
    for (size_t slash = file.path.find('/'); slash != std::string::npos; slash = file.path.find('/', slash + 1)) {
      if (paths.contains(std::string_view(file.path).substr(0, slash))) return Bad("the path " + Shown(file.path) + " lies in a file");
    }
  }
  return Status::Ok();
}

uint64_t Manifest::TotalBytes() const {
  uint64_t total = 0;
  for (const FileEntry& file : files) total += file.size;
  return total;
}

std::string Manifest::Serialize() const {
  Json json = {{"format", kFormat},  {"ns", ns},     {"checkpoint", checkpoint}, {"checkpointUID", checkpoint_uid},
               {"created", created}, {"info", info}, {"files", Json::array()}};
  for (const FileEntry& file : files) {
    std::string segments;
    segments.reserve(file.segments.size() * 73);
    for (const SegmentRef& segment : file.segments) {
      if (!segments.empty()) segments.push_back(' ');
      segments += segment.zero ? "0" : segment.id.Hex();
      segments += ':';
      segments += std::to_string(segment.size);
    }
    std::string leaves;
    leaves.reserve(file.leaves.size() * 78);
    for (const LeafRef& leaf : file.leaves) {
      if (!leaves.empty()) leaves.push_back(' ');
      leaves += leaf.id.Hex() + ":" + std::to_string(leaf.size) + ":" + std::to_string(leaf.bytes);
    }
    Json entry = {{"path", file.path}, {"size", file.size}, {"mode", file.mode}};
    if (!segments.empty()) entry["segments"] = std::move(segments);
    if (!leaves.empty()) entry["leaves"] = std::move(leaves);
    json["files"].push_back(std::move(entry));
  }
  return DumpJson(json);
}

Result<Manifest> Manifest::Parse(std::string_view text) {
  if (text.size() > kMaxManifestBytes) return Bad("longer than " + std::to_string(kMaxManifestBytes) + " bytes");
  HF_ASSIGN_OR_RETURN(Json json, ParseJson(text));
  if (!json.is_object()) return Bad("not an object");
  if (GetInt(json, {"format"}) != kFormat)
    return Status(Code::kUnsupported, "manifest: format " + std::to_string(GetInt(json, {"format"})) + " is not known to this version");
  Manifest manifest;
  manifest.ns = GetString(json, {"ns"});
  manifest.checkpoint = GetString(json, {"checkpoint"});
  manifest.checkpoint_uid = GetString(json, {"checkpointUID"});
  manifest.created = GetString(json, {"created"});
  if (const Json* info = Find(json, {"info"})) manifest.info = *info;
  const Json& files = GetArray(json, {"files"});
  if (files.size() > kMaxFiles) return Bad("more than " + std::to_string(kMaxFiles) + " files");
  size_t room = kMaxReferences;
  for (const Json& entry : files) {
    HF_ASSIGN_OR_RETURN(FileEntry file, ParseFile(entry, room));
    room -= file.segments.size() + file.leaves.size();
    manifest.files.push_back(std::move(file));
  }
  HF_RETURN_IF_ERROR(CheckManifest(manifest));
  return manifest;
}

}  // namespace holdfast::storage
