#include "storage/server/metrics.h"

#include <cstdio>

namespace holdfast::storage {
namespace {

void Head(std::string& out, const char* name, const char* type, const char* help) {
  out += std::string("# HELP ") + name + " " + help + "\n# TYPE " + name + " " + type + "\n";
}

void Value(std::string& out, const char* name, const char* type, const char* help, uint64_t value) {
  Head(out, name, type, help);
  out += std::string(name) + " " + std::to_string(value) + "\n";
}

}  // namespace

void Metrics::Request(const std::string& operation, Code code, double seconds) {
  std::lock_guard lock(mutex_);
  Operation& known = operations_[operation];
  ++known.by_code[std::string(CodeName(code))];
  ++known.count;
  known.seconds += seconds;
}

void Metrics::Bytes(uint64_t received, uint64_t sent) {
  std::lock_guard lock(mutex_);
  received_ += received;
  sent_ += sent;
}

std::string Metrics::Render(const StoreUsage& usage) const {
  std::string out;
  std::lock_guard lock(mutex_);
  Head(out, "holdfast_store_requests_total", "counter", "Requests by operation and outcome.");
  for (const auto& [name, operation] : operations_) {
    for (const auto& [code, count] : operation.by_code) {
      out += "holdfast_store_requests_total{operation=\"" + name + "\",code=\"" + code + "\"} " + std::to_string(count) + "\n";
    }
  }
  Head(out, "holdfast_store_request_seconds", "summary", "How long requests took.");
  for (const auto& [name, operation] : operations_) {
    char sum[64];
    snprintf(sum, sizeof sum, "%.6f", operation.seconds);
    out += "holdfast_store_request_seconds_sum{operation=\"" + name + "\"} " + sum + "\n";
    out += "holdfast_store_request_seconds_count{operation=\"" + name + "\"} " + std::to_string(operation.count) + "\n";
  }
  Value(out, "holdfast_store_received_bytes_total", "counter", "Segment bytes received, as they came over the wire.", received_);
  Value(out, "holdfast_store_sent_bytes_total", "counter", "Segment bytes sent, as they went over the wire.", sent_);
  Value(out, "holdfast_store_object_bytes", "gauge", "Bytes of segments in use, as stored.", usage.object_bytes);
  Value(out, "holdfast_store_pack_bytes", "gauge", "Bytes of packs: segments in use, and dead ones not collected yet.", usage.pack_bytes);
  Value(out, "holdfast_store_packs", "gauge", "Packs.", usage.packs);
  Value(out, "holdfast_store_index_memory_bytes", "gauge", "Memory of the index of segments.", usage.index_memory_bytes);
  Value(out, "holdfast_store_objects", "gauge", "Stored segments.", usage.objects);
  Value(out, "holdfast_store_checkpoints", "gauge", "Committed checkpoints.", usage.manifests);
  Value(out, "holdfast_store_open_sessions", "gauge", "Checkpoints being written.", usage.open_sessions);
  Value(out, "holdfast_store_damaged_manifests", "gauge", "Checkpoints whose manifest could not be read at start.",
        usage.damaged_manifests);
  const ScrubStatus& scrub = usage.scrub;
  Value(out, "holdfast_store_scrub_passes_total", "counter", "Times that everything was read and hashed.", scrub.passes);
  Value(out, "holdfast_store_scrub_read_bytes_total", "counter", "Bytes that the scrub has read since the start.", scrub.read_bytes);
  Head(out, "holdfast_store_scrub_progress_ratio", "gauge", "How far the scrub's pass is; 1 between two of them.");
  char ratio[32];
  snprintf(ratio, sizeof ratio, "%.4f", scrub.done);
  out += std::string("holdfast_store_scrub_progress_ratio ") + ratio + "\n";
  auto seconds = [](const std::optional<WallTime>& at) {
    return at ? static_cast<uint64_t>(std::chrono::floor<std::chrono::seconds>(at->time_since_epoch()).count()) : 0;
  };
  Value(out, "holdfast_store_scrub_last_pass_timestamp_seconds", "gauge", "When the last whole pass ended; 0: never.",
        seconds(scrub.ended));
  Value(out, "holdfast_store_scrub_damaged_segments", "gauge", "Segments in use that cannot be read.", scrub.damaged_segments);
  Value(out, "holdfast_store_scrub_damaged_checkpoints", "gauge", "Checkpoints that cannot be read whole.", scrub.hurt_checkpoints);
  Value(out, "holdfast_store_scrub_mended_files_total", "counter",
        "Damaged indexes, keys and FORMAT files that were written anew: nothing was lost, but the disk is not to be trusted.",
        scrub.mended_files);
  Value(out, "holdfast_store_max_bytes", "gauge", "Limit of holdfast_store_pack_bytes, 0 for none.", usage.max_bytes);
  Value(out, "holdfast_store_room_bytes", "gauge", "What may still be written before new checkpoints are refused.", usage.room_bytes);
  Value(out, "holdfast_store_volume_bytes", "gauge", "Size of the volume.", usage.volume_total);
  Value(out, "holdfast_store_volume_free_bytes", "gauge", "Free bytes of the volume.", usage.volume_free);
  return out;
}

}  // namespace holdfast::storage
