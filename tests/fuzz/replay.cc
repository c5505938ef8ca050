// Instead of libFuzzer: gives a target every file of the folders that are named, once. So every build with GCC plays what fuzzing has
// found.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int main(int argc, char** argv) {
  size_t played = 0;
  for (int i = 1; i < argc; ++i) {
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) {
      std::ifstream file(entry.path(), std::ios::binary);
      const std::vector<uint8_t> bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
      if (!file) {
        fprintf(stderr, "cannot read %s\n", entry.path().c_str());
        return 1;
      }
      printf("%s\n", entry.path().filename().c_str());  // the last one named is the one that failed
      fflush(stdout);
      LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
      ++played;
    }
  }
  printf("%zu inputs played\n", played);
  return played > 0 ? 0 : 1;
}
