// Folders, contents and stores for the tests of storage/.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <random>

#include "base/file.h"
#include "storage/hash.h"
#include "storage/limits.h"
#include "storage/local_store.h"
#include "storage/recipe.h"

namespace holdfast::storage {

#define ASSERT_OK(expr)                                   \
  do {                                                    \
    const auto& hf_result = (expr);                       \
    ASSERT_TRUE(hf_result.ok()) << StatusText(hf_result); \
  } while (0)
#define EXPECT_OK(expr)                                   \
  do {                                                    \
    const auto& hf_result = (expr);                       \
    EXPECT_TRUE(hf_result.ok()) << StatusText(hf_result); \
  } while (0)

inline std::string StatusText(const Status& status) { return status.ToString(); }
template <class T>
std::string StatusText(const Result<T>& result) {
  return result.status().ToString();
}
inline Code CodeOf(const Status& status) { return status.code(); }
template <class T>
Code CodeOf(const Result<T>& result) {
  return result.status().code();
}

// The value of a result that must be there.
template <class T>
T Take(Result<T> result) {
  EXPECT_TRUE(result.ok()) << result.status().ToString();
  return std::move(*result);
}

class TempDir {
 public:
  TempDir() {
    std::string name = ::testing::TempDir() + "holdfast-storage-XXXXXX";
    path_ = mkdtemp(name.data());
  }
  ~TempDir() { [[maybe_unused]] Status removed = RemoveAll(path_); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline std::string RandomText(size_t size, unsigned seed) {
  std::mt19937_64 random(seed);
  std::string text(size + 8, '\0');
  for (size_t i = 0; i < size; i += 8) {
    uint64_t word = random();
    memcpy(text.data() + i, &word, 8);
  }
  text.resize(size);
  return text;
}

inline void WriteText(const std::string& path, const std::string& text, mode_t mode = 0600) {
  ASSERT_TRUE(MakeDirs(path.substr(0, path.rfind('/'))).ok());
  std::ofstream(path, std::ios::binary) << text;
  ASSERT_EQ(chmod(path.c_str(), mode), 0);
}

inline std::string ReadText(const std::string& path) { return ReadFile(path, 1 << 30).value_or("(cannot be read)"); }

inline std::unique_ptr<LocalStore> OpenStore(const std::string& dir, uint64_t max_bytes = 0, uint64_t reserve_bytes = 0) {
  Result<std::unique_ptr<LocalStore>> store = LocalStore::Open({.dir = dir, .max_bytes = max_bytes, .reserve_bytes = reserve_bytes});
  EXPECT_TRUE(store.ok()) << store.status().ToString();
  return store.ok() ? std::move(*store) : nullptr;
}

inline Manifest ManifestOf(const std::string& uid, const std::string& ns, std::vector<FileEntry> files) {
  Manifest manifest;
  manifest.ns = ns;
  manifest.checkpoint = "drain-" + uid;
  manifest.checkpoint_uid = uid;
  manifest.created = "2026-01-02T03:04:05Z";
  manifest.info = {{"pod", "web-0"}};
  manifest.files = std::move(files);
  return manifest;
}

// One file of the given contents, each a segment, put into `session`.
inline FileEntry PutFile(Session& session, const std::string& path, const std::vector<std::string>& contents) {
  FileEntry file;
  file.path = path;
  for (const std::string& content : contents) {
    SegmentRef ref{.id = HashSegment(session.hash_key(), AsBytes(content)), .size = static_cast<uint32_t>(content.size())};
    EXPECT_OK(session.Put(ref.id, Codec::kRaw, ref.size, AsBytes(content)));
    file.segments.push_back(ref);
    file.size += content.size();
  }
  return file;
}

// The same as a long file: `per_leaf` of its segments to a leaf.
inline FileEntry PutLong(Session& session, const std::string& path, const std::vector<std::string>& contents, size_t per_leaf) {
  const FileEntry all = PutFile(session, path, contents);
  FileEntry file{.path = path, .size = all.size, .mode = all.mode, .segments = {}, .leaves = {}};
  for (size_t i = 0; i < all.segments.size(); i += per_leaf) {
    const auto part = std::span(all.segments).subspan(i, std::min(per_leaf, all.segments.size() - i));
    const std::string text = EncodeLeaf(part);
    LeafRef leaf{.id = HashSegment(session.hash_key(), AsBytes(text)), .size = static_cast<uint32_t>(text.size()), .bytes = 0};
    for (const SegmentRef& segment : part) leaf.bytes += segment.size;
    EXPECT_OK(session.Put(leaf.id, Codec::kRaw, leaf.size, AsBytes(text)));
    file.leaves.push_back(leaf);
  }
  return file;
}

// A file's segments, read from its leaves where it has some. kDataLoss and the like in `status`.
inline std::vector<SegmentRef> SegmentsOf(Store& store, const std::string& uid, const FileEntry& file, Status* status) {
  std::vector<SegmentRef> all = file.segments;
  *status = ReadLeaves(store, uid, file.leaves, [&](size_t, const std::vector<SegmentRef>& segments) {
    all.insert(all.end(), segments.begin(), segments.end());
    return Status::Ok();
  });
  return all;
}

// Ingests `dir` and commits it as `uid`.
inline Result<CommitResult> Keep(Store& store, const std::string& uid, const std::string& dir, const std::string& ns = "default") {
  HF_ASSIGN_OR_RETURN(std::unique_ptr<Session> session, store.OpenSession(uid, ns));
  HF_ASSIGN_OR_RETURN(std::vector<FileEntry> files, Ingest(dir, *session, {}));
  return session->Commit(ManifestOf(uid, ns, std::move(files)));
}

inline std::vector<std::string> FilesBelow(const std::string& dir) {
  std::vector<std::string> paths;
  for (const std::string& name : ListDir(dir).value_or({})) {
    struct stat info;
    if (lstat((dir + "/" + name).c_str(), &info) != 0) continue;
    if (!S_ISDIR(info.st_mode)) {
      paths.push_back(name);
      continue;
    }
    for (const std::string& below : FilesBelow(dir + "/" + name)) paths.push_back(name + "/" + below);
  }
  return paths;
}

// Pack files of the store in `dir`, as paths below its packs/.
inline std::vector<std::string> PacksIn(const std::string& dir) { return FilesBelow(dir + "/packs"); }

// Flips one bit of the record that has `content`'s segment, in whatever pack of the store it lies.
inline bool DamageRecord(const std::string& dir, const SegmentId& id) {
  for (const std::string& pack : PacksIn(dir)) {
    const std::string path = dir + "/packs/" + pack;
    std::string bytes = ReadText(path);
    const std::string_view name(reinterpret_cast<const char*>(id.bytes.data()), id.bytes.size());
    const size_t at = bytes.find(name);
    if (at == std::string::npos) continue;
    bytes[at + 32] ^= 1;
    WriteText(path, bytes);
    return true;
  }
  return false;
}

// Runs `work` in a child with `point` armed; true when the point killed it.
inline bool DiesAt(const std::string& fault_dir, const char* point, const std::function<void()>& work) {
  WriteText(fault_dir + "/" + point, "kill");
  const pid_t child = fork();
  if (child == 0) {
    setenv("HOLDFAST_FAULT_DIR", fault_dir.c_str(), 1);  // NOLINT(concurrency-mt-unsafe): the child's only thread
    work();
    _exit(3);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

inline void ExpectSameTree(const std::string& a, const std::string& b) {
  std::vector<std::string> paths = FilesBelow(a);
  EXPECT_EQ(paths, FilesBelow(b));
  for (const std::string& path : paths) {
    EXPECT_TRUE(ReadText(a + "/" + path) == ReadText(b + "/" + path)) << path;
    struct stat left = {}, right = {};
    EXPECT_EQ(stat((a + "/" + path).c_str(), &left), 0);
    EXPECT_EQ(stat((b + "/" + path).c_str(), &right), 0);
    EXPECT_EQ(left.st_mode, right.st_mode) << path;
  }
}

}  // namespace holdfast::storage
