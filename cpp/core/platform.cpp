// SPDX-License-Identifier: Apache-2.0
// Implements platform.h: first for Windows, then for Linux and macOS. Only the branch of Linux is tested.
#include "cpp/core/platform.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <utility>

#include "cpp/core/text.h"

#ifdef _WIN32
#ifndef NOMINMAX
#define NOMINMAX  // no macros min and max
#endif
#include <direct.h>
#include <io.h>
#include <malloc.h>
#include <process.h>
#include <windows.h>
#else
#include <dlfcn.h>
#include <pthread.h>
#include <sys/file.h>
#include <unistd.h>
#endif
#ifdef __linux__
#include <sched.h>
#include <sys/syscall.h>
#endif
#ifdef __APPLE__
#include <mach/mach.h>
#include <sys/sysctl.h>
#endif

namespace minidnn::platform {
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

}  // namespace

#ifdef _WIN32

void* load_library(const std::string& path, std::string& why) {
  HMODULE library = LoadLibraryA(path.c_str());
  if (!library) why = cat(path, ": error ", GetLastError(), " of Windows");
  return reinterpret_cast<void*>(library);
}

void* find_symbol(void* library, const char* name) {
  return reinterpret_cast<void*>(GetProcAddress(reinterpret_cast<HMODULE>(library), name));
}

std::string library_of(const void* address) {
  HMODULE library = nullptr;
  char path[MAX_PATH];
  constexpr DWORD kFlags = GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT;
  if (!GetModuleHandleExA(kFlags, static_cast<const char*>(address), &library)) return "";
  const DWORD size = GetModuleFileNameA(library, path, MAX_PATH);
  return size < MAX_PATH ? std::string(path, size) : "";
}

std::vector<std::string> mapped_files() { return {}; }

int64_t process_id() { return _getpid(); }
int at_fork(void (*)(), void (*)(), void (*)()) { return 0; }

namespace {
MEMORYSTATUSEX memory_status() {
  MEMORYSTATUSEX s{};
  s.dwLength = sizeof s;
  GlobalMemoryStatusEx(&s);
  return s;
}
}  // namespace
int64_t memory_bytes() { return int64_t(memory_status().ullTotalPhys); }
int64_t free_memory_bytes() { return int64_t(memory_status().ullAvailPhys); }

bool permit_amx() { return false; }

int64_t last_level_cache_bytes() { return 0; }
std::string processor_name() {
  char name[256];
  DWORD size = sizeof name;
  const LSTATUS error = RegGetValueA(HKEY_LOCAL_MACHINE, "HARDWARE\\DESCRIPTION\\System\\CentralProcessor\\0",
                                     "ProcessorNameString", RRF_RT_REG_SZ, nullptr, name, &size);
  return error == ERROR_SUCCESS && *name ? name : "cpu";
}

void* allocate_aligned(size_t bytes, size_t alignment) { return _aligned_malloc(bytes, alignment); }
void free_aligned(void* p) { _aligned_free(p); }

Cores::Cores() = default;
int Cores::count() const { return std::max(1, int(std::thread::hardware_concurrency())); }
bool Cores::restrict_without(int, std::thread::native_handle_type) const { return false; }
int current_core() { return -1; }
void ask_for_short_slices() {}

namespace {
using Status = struct _stat64;
FileStatus file_status(const Status& s) {
  FileStatus result;
  result.is_file = (s.st_mode & _S_IFMT) == _S_IFREG;
  result.is_folder = (s.st_mode & _S_IFMT) == _S_IFDIR;
  return result;
}
int open_descriptor(const std::string& path, File::Mode mode) {
  constexpr int kFlags[] = {_O_RDONLY, _O_RDWR | _O_APPEND | _O_CREAT, _O_WRONLY | _O_CREAT | _O_TRUNC,
                            _O_WRONLY | _O_CREAT | _O_EXCL, _O_WRONLY | _O_APPEND | _O_CREAT};
  return _open(path.c_str(), kFlags[int(mode)] | _O_BINARY | _O_NOINHERIT, _S_IREAD | _S_IWRITE);
}
int64_t read_some(int descriptor, char* to, size_t bytes) { return _read(descriptor, to, unsigned(bytes)); }
int64_t write_some(int descriptor, const char* from, size_t bytes) {
  return _write(descriptor, from, unsigned(std::min<size_t>(bytes, 1 << 30)));
}
int close_descriptor(int descriptor) { return _close(descriptor); }
constexpr int kStandardError = 2;
}  // namespace

FileStatus status(const std::string& path) {
  Status s{};
  return _stat64(path.c_str(), &s) == 0 ? file_status(s) : FileStatus{};
}
FileStatus File::status() const {
  Status s{};
  return _fstat64(descriptor_, &s) == 0 ? file_status(s) : FileStatus{};
}
int64_t File::size() const { return _filelengthi64(descriptor_); }
bool File::last_byte(char& byte) {
  return _lseeki64(descriptor_, -1, SEEK_END) >= 0 && _read(descriptor_, &byte, 1) == 1;
}
bool File::truncate(int64_t bytes) { return _chsize_s(descriptor_, bytes) == 0; }
bool File::lock() {
  OVERLAPPED whole{};
  auto handle = reinterpret_cast<HANDLE>(_get_osfhandle(descriptor_));
  if (LockFileEx(handle, LOCKFILE_EXCLUSIVE_LOCK, 0, MAXDWORD, MAXDWORD, &whole)) return true;
  errno = EIO;
  return false;
}
bool File::sync() { return _commit(descriptor_) == 0; }

bool may_write(const std::string& path) { return _access(path.c_str(), 2) == 0; }
bool make_folder(const std::string& path) { return _mkdir(path.c_str()) == 0; }
bool rename(const std::string& from, const std::string& to) {
  if (MoveFileExA(from.c_str(), to.c_str(), MOVEFILE_REPLACE_EXISTING)) return true;
  errno = EACCES;
  return false;
}
std::string user_cache_folder() { return environment("LOCALAPPDATA"); }

#else  // Linux and macOS

void* load_library(const std::string& path, std::string& why) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) why = dlerror();
  return library;
}

void* find_symbol(void* library, const char* name) { return dlsym(library, name); }

std::string library_of(const void* address) {
  Dl_info info{};
  return dladdr(address, &info) && info.dli_fname ? info.dli_fname : "";
}

int64_t process_id() { return getpid(); }
int at_fork(void (*before)(), void (*in_parent)(), void (*in_child)()) {
  return pthread_atfork(before, in_parent, in_child);
}

void* allocate_aligned(size_t bytes, size_t alignment) {
  void* memory = nullptr;
  return posix_memalign(&memory, alignment, bytes) == 0 ? memory : nullptr;
}
void free_aligned(void* p) { std::free(p); }

#ifdef __linux__

std::vector<std::string> mapped_files() {
  std::vector<std::string> paths;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (const size_t slash = line.find('/'); slash != line.npos) paths.push_back(line.substr(slash));
  return paths;
}

int64_t memory_bytes() { return int64_t(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE); }
int64_t free_memory_bytes() { return int64_t(sysconf(_SC_AVPHYS_PAGES)) * sysconf(_SC_PAGE_SIZE); }

bool permit_amx() {
#ifdef __x86_64__
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

int64_t last_level_cache_bytes() {
#ifdef _SC_LEVEL3_CACHE_SIZE
  return std::max<int64_t>(sysconf(_SC_LEVEL3_CACHE_SIZE), 0);
#else
  return 0;
#endif
}
std::string processor_name() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("model name")) continue;
    std::string name = line.substr(std::min(line.find(':') + 1, line.size()));
    std::ranges::replace(name, '\t', ' ');
    name.erase(0, name.find_first_not_of(' '));
    if (!name.empty()) return name;
  }
  return "cpu";
}

Cores::Cores() {
  static_assert(sizeof set_ == sizeof(cpu_set_t) && alignof(Cores) >= alignof(cpu_set_t));
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) std::memcpy(&set_, &set, sizeof set);
}
int Cores::count() const {
  cpu_set_t set;
  std::memcpy(&set, &set_, sizeof set);
  const int known = CPU_COUNT(&set);
  return known ? known : std::max(1, int(std::thread::hardware_concurrency()));
}
bool Cores::restrict_without(int core, std::thread::native_handle_type thread) const {
  cpu_set_t others;
  std::memcpy(&others, &set_, sizeof others);
  CPU_CLR(core, &others);
  return CPU_COUNT(&others) && pthread_setaffinity_np(thread, sizeof others, &others) == 0;
}
int current_core() { return sched_getcpu(); }

void ask_for_short_slices() {
  // The C library has no functions for these calls. This is the first version of Linux's struct sched_attr.
  struct {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;  // in ns; the runtime is the time slice
  } attributes{};
  constexpr uint64_t kSlice = 100'000;  // the shortest that Linux accepts
  // Linux may refuse the call, for example in a container. The thread then keeps its time slice.
  if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) != 0 || attributes.policy != SCHED_OTHER) return;
  attributes.runtime = kSlice;
  syscall(SYS_sched_setattr, 0, &attributes, 0);
}

std::string user_cache_folder() {
  const std::string home = environment("HOME");
  return home.empty() ? "" : home + "/.cache";
}

#else  // macOS

std::vector<std::string> mapped_files() { return {}; }

int64_t memory_bytes() {
  int64_t bytes = 0;
  size_t size = sizeof bytes;
  return sysctlbyname("hw.memsize", &bytes, &size, nullptr, 0) == 0 ? bytes : 0;
}
int64_t free_memory_bytes() {
  vm_statistics64_data_t statistics{};
  mach_msg_type_number_t count = HOST_VM_INFO64_COUNT;
  if (host_statistics64(mach_host_self(), HOST_VM_INFO64, reinterpret_cast<host_info64_t>(&statistics), &count) !=
      KERN_SUCCESS)
    return 0;
  return int64_t(statistics.free_count) * sysconf(_SC_PAGESIZE);
}

bool permit_amx() { return false; }

int64_t last_level_cache_bytes() { return 0; }
std::string processor_name() {
  char name[256]{};
  size_t size = sizeof name - 1;
  return sysctlbyname("machdep.cpu.brand_string", name, &size, nullptr, 0) == 0 && *name ? name : "cpu";
}

// macOS neither restricts threads to cores nor tells on which core they run.
Cores::Cores() = default;
int Cores::count() const { return std::max(1, int(std::thread::hardware_concurrency())); }
bool Cores::restrict_without(int, std::thread::native_handle_type) const { return false; }
int current_core() { return -1; }
void ask_for_short_slices() {}

std::string user_cache_folder() {
  const std::string home = environment("HOME");
  return home.empty() ? "" : home + "/Library/Caches";
}

#endif

namespace {
FileStatus file_status(const struct stat& s) {
  FileStatus result;
  result.is_file = S_ISREG(s.st_mode);
  result.is_folder = S_ISDIR(s.st_mode);
  if (s.st_uid != geteuid())
    result.foreign_owner = cat("it belongs to user ", s.st_uid, "; the process runs as user ", geteuid());
  result.others_may_write = s.st_mode & (S_IWGRP | S_IWOTH);
  return result;
}
// If the path names a FIFO, open() without O_NONBLOCK would block until another process opens the other end. A log may
// be a FIFO, and waits for its reader.
int open_descriptor(const std::string& path, File::Mode mode) {
  constexpr int kFlags[] = {O_RDONLY | O_NONBLOCK, O_RDWR | O_APPEND | O_CREAT | O_NONBLOCK,
                            O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK, O_WRONLY | O_CREAT | O_EXCL,
                            O_WRONLY | O_APPEND | O_CREAT};
  return open(path.c_str(), kFlags[int(mode)] | O_CLOEXEC, mode == File::Mode::log ? 0666 : 0600);
}
int64_t read_some(int descriptor, char* to, size_t bytes) { return read(descriptor, to, bytes); }
int64_t write_some(int descriptor, const char* from, size_t bytes) { return ::write(descriptor, from, bytes); }
int close_descriptor(int descriptor) { return ::close(descriptor); }
constexpr int kStandardError = STDERR_FILENO;
}  // namespace

FileStatus status(const std::string& path) {
  struct stat s{};
  return stat(path.c_str(), &s) == 0 ? file_status(s) : FileStatus{};
}
FileStatus File::status() const {
  struct stat s{};
  return fstat(descriptor_, &s) == 0 ? file_status(s) : FileStatus{};
}
int64_t File::size() const {
  struct stat s{};
  return fstat(descriptor_, &s) == 0 ? int64_t(s.st_size) : -1;
}
bool File::last_byte(char& byte) { return pread(descriptor_, &byte, 1, off_t(size() - 1)) == 1; }
bool File::truncate(int64_t bytes) { return ftruncate(descriptor_, off_t(bytes)) == 0; }
bool File::lock() { return flock(descriptor_, LOCK_EX) == 0; }
bool File::sync() { return fsync(descriptor_) == 0; }

bool may_write(const std::string& path) { return access(path.c_str(), W_OK) == 0; }
bool make_folder(const std::string& path) { return mkdir(path.c_str(), 0700) == 0; }
bool rename(const std::string& from, const std::string& to) { return std::rename(from.c_str(), to.c_str()) == 0; }

#endif

File::File(const std::string& path, Mode mode) : descriptor_(open_descriptor(path, mode)) {}
File File::standard_error() { return File(kStandardError); }
File::File(File&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
File& File::operator=(File&& other) noexcept {
  close();
  descriptor_ = std::exchange(other.descriptor_, -1);
  return *this;
}
File::~File() { close(); }

bool File::close() {
  const int descriptor = std::exchange(descriptor_, -1);
  return descriptor < 0 || descriptor == kStandardError || close_descriptor(descriptor) == 0;
}

bool File::read_all(std::string& text) {
  text.clear();
  for (char block[1 << 16];;) {
    const int64_t n = read_some(descriptor_, block, sizeof block);
    if (n == 0) return true;
    if (n > 0) text.append(block, size_t(n));
    else if (errno != EINTR) return false;
  }
}

// Most texts are written by one call of the system, so that lines of threads and processes do not mix.
bool File::write(const std::string& bytes) const {
  for (size_t done = 0; done < bytes.size();) {
    const int64_t n = write_some(descriptor_, bytes.data() + done, bytes.size() - done);
    if (n > 0) done += size_t(n);
    else if (n == 0 || errno != EINTR) return false;
  }
  return true;
}

}  // namespace minidnn::platform
