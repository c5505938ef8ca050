#include "storage/archive.h"

#include <algorithm>

#include "storage/bytes.h"
#include "storage/codec.h"
#include "storage/hash.h"
#include "storage/limits.h"
#include "storage/recipe.h"

namespace holdfast::storage {
namespace {

constexpr std::string_view kMagic = "HFARCH01", kEnd = "HFAREND1";
constexpr size_t kMaxHeadBytes = 1 << 20;
constexpr size_t kFileHeadBytes = 13;  // after the path: mode (4), has leaves (1), size (8)
constexpr size_t kChunkHeadBytes = 9;  // kind (1), size (4), stored (4)
enum Chunk : uint8_t { kRawChunk = 0, kLz4Chunk = 1, kZeros = 2, kLeafEnd = 3, kFileEnd = 4 };

Status Bad(const std::string& what) { return {Code::kInvalidArgument, "archive: " + what}; }

class Writer {
 public:
  Writer(Store& store, const std::string& id, const WriteBytes& write) : store_(store), id_(id), write_(write) {}

  Status Run() {
    HF_ASSIGN_OR_RETURN(Manifest manifest, store_.GetManifest(id_));
    const std::string head = DumpJson({{"ns", manifest.ns},
                                       {"checkpoint", manifest.checkpoint},
                                       {"checkpointUID", manifest.checkpoint_uid},
                                       {"created", manifest.created},
                                       {"info", manifest.info},
                                       {"files", manifest.files.size()},
                                       {"bytes", manifest.TotalBytes()}});
    if (head.size() > kMaxHeadBytes) return Bad("what is known of the pod is longer than " + std::to_string(kMaxHeadBytes) + " bytes");
    std::string begin(kMagic);
    AppendInteger(static_cast<uint32_t>(head.size()), begin);
    HF_RETURN_IF_ERROR(Put(begin + head));
    for (const FileEntry& file : manifest.files) HF_RETURN_IF_ERROR(PutFile(file));
    std::string end(kEnd);
    hash_.Add(AsBytes(end));
    const std::array<uint8_t, 32> sum = hash_.Sum();
    end += AsText(sum);
    return write_(AsBytes(end));
  }

 private:
  Status Put(std::string_view bytes) {
    hash_.Add(AsBytes(bytes));
    return write_(AsBytes(bytes));
  }
  Status PutChunk(Chunk kind, uint32_t size, std::span<const std::byte> stored) {
    std::string head(1, static_cast<char>(kind));
    AppendInteger(size, head);
    AppendInteger(static_cast<uint32_t>(stored.size()), head);
    HF_RETURN_IF_ERROR(Put(head));
    return stored.empty() ? Status::Ok() : Put({reinterpret_cast<const char*>(stored.data()), stored.size()});
  }

  Status PutFile(const FileEntry& file) {
    std::string head;
    AppendInteger(static_cast<uint16_t>(file.path.size()), head);
    head += file.path;
    AppendInteger(file.mode, head);
    head.push_back(file.leaves.empty() ? '\0' : '\1');
    AppendInteger(file.size, head);
    HF_RETURN_IF_ERROR(Put(head));
    HF_RETURN_IF_ERROR(PutSegments(file.segments));
    for (const LeafRef& leaf : file.leaves) {
      std::vector<SegmentRef> segments;
      HF_RETURN_IF_ERROR(ReadLeaves(store_, id_, std::span(&leaf, 1), [&](size_t, std::vector<SegmentRef> read) {
        segments = std::move(read);
        return Status::Ok();
      }));
      HF_RETURN_IF_ERROR(PutSegments(segments));
      HF_RETURN_IF_ERROR(PutChunk(kLeafEnd, 0, {}));
    }
    return PutChunk(kFileEnd, 0, {});
  }

  Status PutSegments(std::span<const SegmentRef> segments) {
    compressed_.resize(kMaxSegmentBytes);
    return store_.GetSegments(id_, segments, [&](size_t i, std::span<const std::byte> content) -> Status {
      if (segments[i].zero) return PutChunk(kZeros, segments[i].size, {});
      const size_t n = TryCompress(content, compressed_);
      if (n == 0) return PutChunk(kRawChunk, segments[i].size, content);
      return PutChunk(kLz4Chunk, segments[i].size, std::span(compressed_).first(n));
    });
  }

  Store& store_;
  const std::string& id_;
  const WriteBytes& write_;
  StreamHash hash_;
  std::vector<std::byte> compressed_;
};

class Reader {
 public:
  explicit Reader(const ReadBytes& read) : read_(read) {}

  // What the archive says of itself.
  Status ReadHead(const std::string& ns) {
    HF_ASSIGN_OR_RETURN(std::string magic, Get(kMagic.size()));
    if (magic != kMagic) return Bad(magic.starts_with("HFARCH") ? "of a version that this one does not know" : "this is none");
    HF_ASSIGN_OR_RETURN(const uint32_t size, GetNumber<uint32_t>());
    if (size > kMaxHeadBytes) return Bad("its head is longer than " + std::to_string(kMaxHeadBytes) + " bytes");
    HF_ASSIGN_OR_RETURN(std::string text, Get(size));
    HF_ASSIGN_OR_RETURN(Json head, ParseJson(text));
    manifest.ns = ns.empty() ? GetString(head, {"ns"}) : ns;
    manifest.checkpoint = GetString(head, {"checkpoint"});
    manifest.created = GetString(head, {"created"});
    manifest.info = GetObject(head, {"info"});
    manifest.info["importedFrom"] = GetString(head, {"checkpointUID"}).substr(0, 200);
    const int64_t file_count = GetInt(head, {"files"}, -1), bytes = GetInt(head, {"bytes"}, -1);
    if (file_count < 0 || static_cast<uint64_t>(file_count) > kMaxFiles || bytes < 0)
      return Bad("it does not say how many files and bytes it has");
    files_ = static_cast<size_t>(file_count);
    bytes_left_ = static_cast<uint64_t>(bytes);
    HF_RETURN_IF_ERROR(CheckId(manifest.ns, "namespace"));
    if (manifest.checkpoint.empty() || manifest.checkpoint.size() > 253) return Bad("a checkpoint's name has 1 to 253 bytes");
    return Status::Ok();
  }

  // Its files, into the session.
  Status ReadFiles(Session& session) {
    session_ = &session;
    for (size_t i = 0; i < files_; ++i) HF_RETURN_IF_ERROR(ReadFile());
    if (bytes_left_ > 0) return Bad("it has fewer bytes than it says");
    HF_ASSIGN_OR_RETURN(std::string end, Get(kEnd.size()));
    if (end != kEnd) return Bad("something else stands where it should end");
    const std::array<uint8_t, 32> sum = hash_.Sum();
    std::array<uint8_t, 32> told;
    HF_RETURN_IF_ERROR(read_(std::as_writable_bytes(std::span(told))));
    if (told != sum) return {Code::kDataLoss, "archive: it is damaged: its content does not have the hash at its end"};
    return CheckManifest(manifest);
  }

  Manifest manifest;

 private:
  Result<std::string> Get(size_t size) {
    std::string bytes(size, '\0');
    HF_RETURN_IF_ERROR(read_(std::as_writable_bytes(std::span(bytes))));
    hash_.Add(AsBytes(bytes));
    return bytes;
  }
  template <class Integer>
  Result<Integer> GetNumber() {
    HF_ASSIGN_OR_RETURN(std::string bytes, Get(sizeof(Integer)));
    return GetInteger<Integer>(bytes.data());
  }

  Status ReadFile() {
    FileEntry file;
    HF_ASSIGN_OR_RETURN(const uint16_t path_bytes, GetNumber<uint16_t>());
    if (path_bytes == 0 || path_bytes > kMaxPathBytes) return Bad("a path has 1 to " + std::to_string(kMaxPathBytes) + " bytes");
    HF_ASSIGN_OR_RETURN(file.path, Get(path_bytes));
    HF_RETURN_IF_ERROR(CheckPath(file.path));
    HF_ASSIGN_OR_RETURN(std::string head, Get(kFileHeadBytes));
    file.mode = GetInteger<uint32_t>(head.data());
    const bool long_file = head[4] != 0;
    file.size = GetInteger<uint64_t>(head.data() + 5);
    if ((file.mode & ~0777U) != 0 || static_cast<uint8_t>(head[4]) > 1) return Bad("a file's head is none");
    if (file.size > bytes_left_) return Bad("its files have more bytes than it says");
    bytes_left_ -= file.size;
    HF_RETURN_IF_ERROR(long_file ? ReadLong(&file) : ReadShort(&file));
    manifest.files.push_back(std::move(file));
    return Status::Ok();
  }

  Status ReadShort(FileEntry* file) {
    uint64_t left = file->size;
    while (true) {
      HF_ASSIGN_OR_RETURN(const Chunk kind, ReadChunk(left, &file->segments));
      if (kind == kLeafEnd) return Bad("a list ends where none began");
      if (kind == kFileEnd) return left == 0 ? Status::Ok() : Bad("a file is shorter than it says");
      HF_RETURN_IF_ERROR(Refer());
    }
  }

  Status ReadLong(FileEntry* file) {
    uint64_t left = file->size;
    for (std::vector<SegmentRef> segments;;) {
      HF_ASSIGN_OR_RETURN(const Chunk kind, ReadChunk(left, &segments));
      if (segments.size() > kLeafSegments) return Bad("a list of more than " + std::to_string(kLeafSegments) + " segments");
      if (kind == kFileEnd) return left == 0 && segments.empty() ? Status::Ok() : Bad("a file is shorter than it says");
      if (kind != kLeafEnd) continue;
      if (segments.empty()) return Bad("a list of nothing");
      LeafRef leaf;
      for (const SegmentRef& segment : segments) leaf.bytes += segment.size;
      const std::string text = EncodeLeaf(segments);
      leaf.size = static_cast<uint32_t>(text.size());
      leaf.id = HashSegment(session_->hash_key(), AsBytes(text));
      HF_RETURN_IF_ERROR(Refer());
      HF_RETURN_IF_ERROR(session_->Put(leaf.id, Codec::kRaw, leaf.size, AsBytes(text)));
      file->leaves.push_back(leaf);
      segments.clear();
    }
  }

  // One piece of content of at most `left` bytes, given to the store and put into `segments`; or what ends.
  Result<Chunk> ReadChunk(uint64_t& left, std::vector<SegmentRef>* segments) {
    HF_ASSIGN_OR_RETURN(std::string head, Get(kChunkHeadBytes));
    const auto kind = static_cast<uint8_t>(head[0]);
    const auto size = GetInteger<uint32_t>(head.data() + 1), stored = GetInteger<uint32_t>(head.data() + 5);
    if (kind > kFileEnd) return Bad("a piece of a kind that there is not");
    if (kind >= kLeafEnd) return size == 0 && stored == 0 ? Result<Chunk>(static_cast<Chunk>(kind)) : Bad("an end with content");
    if (size == 0 || size > kMaxSegmentBytes || size > left) return Bad("a piece of an impossible size");
    left -= size;
    if (++pieces_ > kMaxSegments) return Bad("more than " + std::to_string(kMaxSegments) + " pieces");
    SegmentRef segment{.id = {}, .size = size, .zero = kind == kZeros};
    if (segment.zero) {
      if (stored != 0) return Bad("zeros with content");
      segments->push_back(segment);
      return kZeros;
    }
    const Codec codec = kind == kRawChunk ? Codec::kRaw : Codec::kLz4;
    HF_RETURN_IF_ERROR(CheckEncoding(static_cast<uint8_t>(codec), size, stored));
    HF_ASSIGN_OR_RETURN(std::string bytes, Get(stored));
    std::span<const std::byte> content = AsBytes(bytes);
    if (codec != Codec::kRaw) {
      HF_RETURN_IF_ERROR(Decode(codec, size, content, &unpacked_));
      content = AsBytes(unpacked_);
    }
    segment.id = HashSegment(session_->hash_key(), content);
    HF_RETURN_IF_ERROR(session_->Put(segment.id, codec, size, AsBytes(bytes)));
    segments->push_back(segment);
    return static_cast<Chunk>(kind);
  }

  // What the manifest lists is kept in memory until it is committed.
  Status Refer() {
    return ++references_ <= kMaxReferences ? Status::Ok() : Bad("more than " + std::to_string(kMaxReferences) + " segments and lists");
  }

  const ReadBytes& read_;
  StreamHash hash_;
  Session* session_ = nullptr;
  size_t files_ = 0, pieces_ = 0, references_ = 0;
  uint64_t bytes_left_ = 0;
  std::string unpacked_;
};

std::vector<std::string> Named(LocalStore& store, const std::string& ns, const std::string& name) {
  std::vector<std::string> ids;
  for (const std::string& id : store.CommittedIn(ns)) {
    Result<Manifest> manifest = store.GetManifest(id);
    if (manifest.ok() && manifest->checkpoint == name) ids.push_back(id);
  }
  return ids;
}

}  // namespace

Result<std::string> FindCheckpoint(LocalStore& store, const std::string& name) {
  const size_t slash = name.find('/');
  if (slash == std::string::npos) {
    HF_RETURN_IF_ERROR(CheckId(name, "checkpoint uid"));
    return name;
  }
  const std::string ns = name.substr(0, slash), checkpoint = name.substr(slash + 1);
  HF_RETURN_IF_ERROR(CheckId(ns, "namespace"));
  const std::vector<std::string> ids = Named(store, ns, checkpoint);
  if (ids.size() == 1) return ids[0];
  if (ids.empty()) return Status(Code::kNotFound, "the store has no checkpoint " + name.substr(0, 500));
  std::string all;
  for (const std::string& id : ids) all += " " + id;
  return Status(Code::kInvalidArgument, "several checkpoints have the name " + name + ": name one of their ids:" + all);
}

Status Export(Store& store, const std::string& manifest, const WriteBytes& write) { return Writer(store, manifest, write).Run(); }

Result<Imported> Import(LocalStore& store, const std::string& ns, const ReadBytes& read) {
  Reader reader(read);
  HF_RETURN_IF_ERROR(reader.ReadHead(ns));
  Manifest& manifest = reader.manifest;
  const std::string name = manifest.ns + "/" + manifest.checkpoint;
  if (const std::vector<std::string> there = Named(store, manifest.ns, manifest.checkpoint); !there.empty())
    return Status(Code::kAlreadyExists,
                  "the store has " + name + " already, as " + there[0] + ": delete it first, or name another --namespace");
  Salt random;
  HF_ASSIGN_OR_RETURN(random, NewSalt());
  manifest.checkpoint_uid = "import-" + ToHex(random);
  HF_ASSIGN_OR_RETURN(std::unique_ptr<Session> session, store.OpenSession(manifest.checkpoint_uid, manifest.ns));
  Status whole = reader.ReadFiles(*session);
  Result<CommitResult> committed = whole.ok() ? session->Commit(manifest) : Result<CommitResult>(whole);
  if (!committed.ok()) {
    [[maybe_unused]] Status aborted = session->Abort();  // else the store gives it up by itself
    return committed.status().With(name);
  }
  return Imported{.id = manifest.checkpoint_uid,
                  .ns = manifest.ns,
                  .checkpoint = manifest.checkpoint,
                  .bytes = manifest.TotalBytes(),
                  .new_bytes = committed->new_bytes};
}

}  // namespace holdfast::storage
