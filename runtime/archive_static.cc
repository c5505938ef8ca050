// Only for static linking. libarchive's pax writer refers to this function, which lives in an object file that refers to every format
// libarchive has, and with them to libxml2, ICU and a dozen more libraries. Defined here, that object file stays out. It is called for
// entries that a format cannot hold; tree_write.cc passes only those that pax can.
struct archive;
struct archive_entry;
// NOLINTNEXTLINE(bugprone-reserved-identifier): libarchive calls it
extern "C" void __archive_write_entry_filetype_unsupported(archive*, archive_entry*, const char*) {}
