// The manifest's format: one JSON object with sorted keys. A file's segments are one string of "<hex id>:<size>" and, for zeros,
// "0:<size>", separated by blanks: a DOM node per segment would cost ten times the memory.
#include <algorithm>
#include <charconv>
#include <unordered_set>

#include "base/file.h"
#include "storage/hash.h"
#include "storage/limits.h"

namespace holdfast::storage {
namespace {

constexpr int kFormat = 1;

Status Bad(const std::string& what) { return Status(Code::kInvalidArgument, "manifest: " + what); }

// Paths go into messages: what a terminal or a log would choke on is left out, and not much of it.
std::string Shown(std::string_view path) {
  std::string shown;
  for (char c : path.substr(0, 120)) shown.push_back(static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c);
  return "\"" + shown + "\"";
}

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

Result<std::vector<SegmentRef>> ParseSegments(std::string_view text, size_t room) {
  std::vector<SegmentRef> segments;
  while (!text.empty()) {
    if (segments.size() == room) return Bad("more than " + std::to_string(kMaxSegments) + " segments");
    size_t end = std::min(text.find(' '), text.size());
    std::string_view token = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    size_t colon = token.find(':');
    if (colon == std::string_view::npos) return Bad("a segment is written <id>:<size>");
    SegmentRef ref;
    ref.zero = token.substr(0, colon) == "0";
    if (!ref.zero) {
      HF_ASSIGN_OR_RETURN(ref.id, SegmentId::FromHex(token.substr(0, colon)));
    }
    std::string_view size = token.substr(colon + 1);
    auto [stop, error] = std::from_chars(size.data(), size.data() + size.size(), ref.size);
    if (error != std::errc() || stop != size.data() + size.size()) return Bad("a segment's size is not a number");
    segments.push_back(ref);
  }
  return segments;
}

Result<FileEntry> ParseFile(const Json& json, size_t room) {
  FileEntry file;
  file.path = GetString(json, {"path"});
  int64_t size = GetInt(json, {"size"}, -1), mode = GetInt(json, {"mode"}, -1);
  if (size < 0 || mode < 0 || mode > 07777) return Bad("the file " + Shown(file.path) + " lacks a size or a mode");
  file.size = static_cast<uint64_t>(size);
  file.mode = static_cast<uint32_t>(mode);
  HF_ASSIGN_OR_RETURN(file.segments, ParseSegments(GetString(json, {"segments"}), room));
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
  if (sum != file.size) {
    return Bad("the segments of " + Shown(file.path) + " have " + std::to_string(sum) + " bytes, the file " + std::to_string(file.size));
  }
  return Status::Ok();
}

}  // namespace

Status CheckManifest(const Manifest& manifest) {
  HF_RETURN_IF_ERROR(CheckId(manifest.checkpoint_uid, "checkpoint uid"));
  HF_RETURN_IF_ERROR(CheckId(manifest.ns, "namespace"));
  if (manifest.checkpoint.size() > 253) return Bad("the checkpoint's name is too long");
  if (manifest.files.size() > kMaxFiles) return Bad("more than " + std::to_string(kMaxFiles) + " files");
  size_t segments = 0;
  std::unordered_set<std::string_view> paths;
  for (const FileEntry& file : manifest.files) {
    segments += file.segments.size();
    if (segments > kMaxSegments) return Bad("more than " + std::to_string(kMaxSegments) + " segments");
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
    json["files"].push_back({{"path", file.path}, {"size", file.size}, {"mode", file.mode}, {"segments", std::move(segments)}});
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
  size_t room = kMaxSegments;
  for (const Json& entry : files) {
    HF_ASSIGN_OR_RETURN(FileEntry file, ParseFile(entry, room));
    room -= file.segments.size();
    manifest.files.push_back(std::move(file));
  }
  HF_RETURN_IF_ERROR(CheckManifest(manifest));
  return manifest;
}

}  // namespace holdfast::storage
