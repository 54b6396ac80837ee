// SPDX-License-Identifier: Apache-2.0
// Tests of cpp/core/platform.h. They use nothing of one system, so they also serve a new system.
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <thread>

#include "cpp/core/platform.h"
#include "cpp/core/text.h"
#include "tests/cpp/check.h"

using namespace minidnn;
using platform::File;
namespace fs = std::filesystem;

static std::string content(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

static void test_libraries() {
  std::string why;
  CHECK(!platform::load_library("a-library-that-does-not-exist", why) && !why.empty(), why);
  const std::string self = platform::library_of(reinterpret_cast<const void*>(&test_libraries));
  CHECK(self.find("test_platform") != self.npos, self);
  int on_the_stack = 0;
  CHECK(platform::library_of(&on_the_stack).empty(), platform::library_of(&on_the_stack));
#ifdef __linux__
  void* library = platform::load_library("libc.so.6", why);
  CHECK(library && platform::find_symbol(library, "strlen") && !platform::find_symbol(library, "no such function"),
        why);
#endif
}

static void test_machine() {
  bool maps_itself = false;
  for (const std::string& path : platform::mapped_files()) maps_itself |= path.find("test_platform") != path.npos;
#ifdef __linux__
  CHECK(maps_itself, "the program is a mapped file");
#else
  CHECK(!maps_itself, "only Linux reports mapped files");
#endif
  CHECK(platform::process_id() > 0, platform::process_id());
  CHECK(platform::memory_bytes() > 1 << 26, platform::memory_bytes());
  CHECK(0 < platform::free_memory_bytes() && platform::free_memory_bytes() < platform::memory_bytes(),
        platform::free_memory_bytes());
  CHECK(!platform::processor_name().empty() && platform::processor_name().find('\n') == std::string::npos,
        platform::processor_name());
  const platform::Cores cores;
  CHECK(1 <= cores.count() && cores.count() <= int(std::thread::hardware_concurrency()), cores.count());
  for (size_t alignment : {size_t(16), size_t(64), size_t(4096)}) {
    void* p = platform::allocate_aligned(100, alignment);
    CHECK(p && reinterpret_cast<uintptr_t>(p) % alignment == 0, alignment);
    platform::free_aligned(p);
  }
}

// A thread that may not run on a core does not run there.
static void test_restriction_to_cores() {
  const platform::Cores cores;
  std::atomic<int> avoided = -2;
  std::thread thread([&] {
    while (avoided == -2) std::this_thread::yield();
    for (int i = 0; i < 1000; ++i) {
      CHECK(avoided < 0 || platform::current_core() != avoided, i, " on core ", avoided.load());
      std::this_thread::yield();
    }
  });
  const int core = platform::current_core();
  const bool restricted = cores.restrict_without(core, thread.native_handle());
#ifdef __linux__
  CHECK(core >= 0 && restricted == (cores.count() > 1), core, " of ", cores.count());
#endif
  avoided = restricted ? core : -1;
  thread.join();
}

static void test_files(const std::string& folder) {
  const std::string path = folder + "/file.txt", other = folder + "/other.txt";
  CHECK(!File(path, File::Mode::read) && errno == ENOENT, errno);
  CHECK(!platform::status(path).is_file && !platform::status(path).is_folder, path);
  char last = 0;
  {
    File file(path, File::Mode::append);
    CHECK(file && file.size() == 0 && !file.last_byte(last) && file.lock(), std::strerror(errno));
    CHECK(file.write("one\n") && file.sync() && file.size() == 4 && file.last_byte(last) && last == '\n', last);
    const platform::FileStatus status = file.status();
    CHECK(status.is_file && !status.is_folder && status.foreign_owner.empty() && !status.others_may_write, path);
  }
  {
    File file(path, File::Mode::append);
    std::string text = "is replaced";
    CHECK(file.read_all(text) && text == "one\n", text);
    CHECK(file.write("two\nthree") && content(path) == "one\ntwo\nthree", content(path));
    CHECK(file.truncate(7) && content(path) == "one\ntwo", content(path));
    File moved = std::move(file);
    CHECK(moved && !file, "a file that is moved from is closed");
    CHECK(moved.close() && !moved && moved.close(), "a file may be closed twice");
  }
  CHECK(!File(path, File::Mode::create) && errno == EEXIST, errno);
  CHECK(File(path, File::Mode::log).write("\r\nend") && content(path) == "one\ntwo\r\nend", content(path));
  CHECK(File(other, File::Mode::create).write("new") && content(other) == "new", content(other));
  CHECK(platform::rename(other, path) && content(path) == "new" && !fs::exists(other), content(path));
  CHECK(!platform::rename(other, path) && errno != 0, "the file does not exist");
  CHECK(File(path, File::Mode::replace).write("n") && content(path) == "n", content(path));
  CHECK(platform::may_write(path) && platform::may_write(folder) && !platform::may_write(other) && errno == ENOENT,
        errno);
  CHECK(!File(folder, File::Mode::append) && errno != 0, "a folder is not opened for writing");
  const std::string inner = folder + "/inner";
  CHECK(platform::make_folder(inner) && platform::status(inner).is_folder, std::strerror(errno));
  CHECK(!platform::make_folder(inner) && errno == EEXIST, errno);
  CHECK(!platform::make_folder(inner + "/a/b") && errno == ENOENT, errno);
#ifndef _WIN32
  fs::permissions(path, fs::perms::others_write, fs::perm_options::add);
  CHECK(platform::status(path).others_may_write, path);
  CHECK((fs::status(inner).permissions() & (fs::perms::group_all | fs::perms::others_all)) == fs::perms::none, inner);
#endif
}

// While one object has locked a file, another one waits.
static void test_lock(const std::string& folder) {
  const std::string path = folder + "/lock";
  File first(path, File::Mode::append);
  CHECK(first.lock(), std::strerror(errno));
  std::atomic<bool> released = false, early = false;
  std::thread waiting([&] {
    File second(path, File::Mode::append);
    CHECK(second.lock(), std::strerror(errno));
    early = !released;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  released = true;
  first.close();
  waiting.join();
  CHECK(!early, "the lock was taken while another object had it");
}

int main() {
  const std::string folder = (fs::temp_directory_path() / cat("minidnn-platform-", platform::process_id())).string();
  fs::create_directory(folder);
  test_libraries();
  test_machine();
  test_restriction_to_cores();
  test_files(folder);
  test_lock(folder);
  fs::remove_all(folder);
  std::cout << (failures ? "FAILED" : "ok") << std::endl;
  return failures != 0;
}
