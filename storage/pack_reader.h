// Reading packs: a record by its place, the footer, or everything that is still whole.
#pragma once

#include "storage/fs.h"
#include "storage/pack_format.h"

namespace holdfast::storage {

// The bytes as the record's codec has them, authenticated. kDataLoss when they are damaged.
Status ReadRecord(const File& file, const PackId& id, const Secret& records_key, const PackRecord& record, std::string* bytes);
Result<std::string> ReadRecord(const File& file, const PackId& id, const Secret& records_key, const PackRecord& record);
// kDataLoss when the pack does not end in its footer.
Result<PackIndex> ReadFooter(const File& file, const PackId& id, const std::string& ns, const Secret& index_key);

struct ScannedPack {
  std::vector<PackRecord> records;  // those that authenticate, by offset
  uint64_t end = 0;                 // of the last of them, or of the header
  size_t damaged = 0;               // what looks like a record and is not whole
};
// Reads the whole pack without its index. After damage it goes on at the next record that it can find.
Result<ScannedPack> ScanPack(const File& file, const PackId& id, const Secret& records_key);

}  // namespace holdfast::storage
