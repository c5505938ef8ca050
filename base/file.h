// Files as a crash leaves them: a written file is whole and durable, or not there.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace holdfast {

// Writes `path`.tmp, fsyncs it, renames it over `path` and fsyncs the directory.
Status WriteFileDurably(const std::string& path, std::string_view data, unsigned mode = 0600);
// Rename without fsync: whole or not there for other processes, not across a power cut. For /run.
Status WriteFileAtomically(const std::string& path, std::string_view data, unsigned mode = 0600);
// kNotFound when missing, kResourceExhausted when longer than `max_bytes`.
Result<std::string> ReadFile(const std::string& path, size_t max_bytes = 16 << 20);
Status MakeDirs(const std::string& path, unsigned mode = 0700);  // like mkdir -p
// Like rm -rf: never follows links, stays on the file system of `path`; OK when it does not exist.
Status RemoveAll(const std::string& path);
Result<std::vector<std::string>> ListDir(const std::string& path);  // names, sorted, without . and ..
bool Exists(const std::string& path);
Status SyncDir(const std::string& path);
// A single path component that cannot leave its folder: not empty, not . or .., no '/', no NUL, at most 253 bytes.
bool IsSafeName(std::string_view name);

}  // namespace holdfast
