// SPDX-License-Identifier: Apache-2.0
// Everything that the library asks of the operating system, beyond the C++ standard library. platform.cpp implements it
// for Linux, macOS and Windows; no other source has a branch for a system.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

namespace minidnn::platform {

// Opens a shared library. A name without a folder is searched for by the system's loader. Returns null if that fails;
// `why` is then the reason, which begins with the name on Linux.
void* load_library(const std::string& path, std::string& why);
// Returns the address of a function in a library, or null if the library does not have it.
void* find_symbol(void* library, const char* name);
// Returns the path of the library or program that contains an address, or "" if the system does not know it.
std::string library_of(const void* address);
// Returns the paths of the files that the process has mapped into its memory, such as shared libraries. A path may be
// there several times. Only Linux reports them.
std::vector<std::string> mapped_files();

int64_t process_id();
// Registers functions that fork() calls: in the parent process before it and after it, and in the child process. Each
// may be null. Windows has no fork(). Returns 0, or the error number of the system.
int at_fork(void (*before)(), void (*in_parent)(), void (*in_child)());

int64_t memory_bytes();            // the memory of the machine
int64_t free_memory_bytes();       // the part of it that nothing uses
int64_t last_level_cache_bytes();  // the size of the last cache before memory, or 0 if it is unknown
std::string processor_name();  // the model of the CPU, such as "AMD EPYC 9R14 96-Core Processor", or "cpu" if unknown
// Returns uninitialised memory, or null if there is none. free_aligned() frees it. The alignment is a power of two.
void* allocate_aligned(size_t bytes, size_t alignment);
void free_aligned(void*);

// The cores on which the process may run. Cores and threads are numbered by the system.
class Cores {
 public:
  Cores();            // those of the calling thread
  int count() const;  // at least 1
  // Restricts a thread to these cores without one of them. Returns whether it is restricted now: only Linux can do
  // this, and at least one core must remain.
  bool restrict_without(int core, std::thread::native_handle_type thread) const;

 private:
  alignas(8) std::array<unsigned char, 128> set_{};  // a cpu_set_t on Linux; unused on other systems
};
int current_core();  // the core on which the calling thread runs, or -1 if the system is not asked for it
// Asks the system to let the calling thread run soon after it wakes up, although other threads keep all cores busy.
// Linux does so for a thread with short time slices since 6.12. Other systems are not asked.
void ask_for_short_slices();

// What is known about a file or folder. If it does not exist, all fields have their defaults.
struct FileStatus {
  bool is_file = false, is_folder = false;  // neither: a device, a FIFO or nothing
  // Why the user of this process should not trust the content: "it belongs to user 5; the process runs as user 7", or
  // "". Windows reports no users.
  std::string foreign_owner;
  bool others_may_write = false;
};
FileStatus status(const std::string& path);

// An open file. Child processes do not inherit it. Functions that fail set errno.
class File {
 public:
  enum class Mode {
    read,     // an existing file
    append,   // reads from the start and writes to the end; creates the file for this user if it does not exist
    replace,  // writes; creates the file for this user, or empties it
    create,   // writes a new file for this user; fails if the file exists
    log,      // writes to the end; creates the file with the permissions that umask allows
  };
  File(const std::string& path, Mode);
  static File standard_error();
  File(File&&) noexcept;
  File& operator=(File&&) noexcept;
  File(const File&) = delete;
  ~File();

  explicit operator bool() const { return descriptor_ >= 0; }
  FileStatus status() const;
  int64_t size() const;  // bytes, or -1
  bool read_all(std::string& text);
  bool last_byte(char& byte);  // reads the last byte; fails if the file is empty
  bool write(const std::string& bytes) const;
  bool truncate(int64_t bytes);
  bool lock();  // waits until no other process has locked the file; closing the file unlocks it
  bool sync();  // waits until the content is on the disk
  bool close();

 private:
  explicit File(int descriptor) : descriptor_(descriptor) {}
  int descriptor_;
};

bool may_write(const std::string& path);    // whether the process may write to a file or folder; if not, sets errno
bool make_folder(const std::string& path);  // a folder for this user only; if it cannot be created, sets errno
bool rename(const std::string& from, const std::string& to);  // replaces `to` in one step; if it fails, sets errno
bool permit_amx();  // asks the kernel to let this process use the tile registers of AMX; returns whether it does
std::string user_cache_folder();  // the folder for caches of the user's programs, or "" if the environment names none

}  // namespace minidnn::platform
