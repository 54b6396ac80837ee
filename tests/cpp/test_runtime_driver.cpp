// SPDX-License-Identifier: Apache-2.0
// Tests the driver calls of cuda/runtime with a fake driver, which counts calls and fails on request. Subjects:
// restored contexts, out of memory, copies that wait, launches, refused cubins, graphs, fork, shutdown. The test needs
// a C++ compiler, but no GPU. It compiles fake_driver.cpp to a libcuda.so.1, and then runs with that library.
//   test_runtime_driver --source-root <repository> [--search-path <site-packages>]
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "cpp/core/device/allocator.h"
#include "cpp/core/device/cuda_backend.h"
#include "cuda/runtime/kernel_cache.h"
#include "cuda/runtime/launch.h"
#include "cuda/runtime/nvrtc.h"
#include "cuda/runtime/tensor_map.h"
#include "fake_driver.h"
#include "tests/cpp/check.h"

namespace fs = std::filesystem;
using namespace minidnn;
using namespace minidnn::cuda;

static Fake* fake = nullptr;

static void test_device() {
  CHECK(device_count() == 2 && why_unavailable().empty(), device_count(), ' ', why_unavailable());
  const Device& d = device(1);
  CHECK(name(d.place) == "cuda:1" && d.model == "Fake H100", name(d.place), ' ', d.model);
  CHECK(d.arch == 90 && d.sm_count == 132 && d.max_smem_bytes == 232448, d.arch);
  CHECK(d.copy_gb_s > 2950 && d.copy_gb_s < 3050, d.copy_gb_s);  // the computed copy bandwidth of an H100 is 3.0 TB/s
  // The float32 peak in the data sheet of the H100 is 66.9 TFLOP/s.
  CHECK(d.fp32_gflop_s > 66000 && d.fp32_gflop_s < 67500, d.fp32_gflop_s);
  CHECK(!in_use(0) && !in_use(1), "a description of a GPU does not use it");
  std::string error = error_of([] { device(2); });
  CHECK(has(error, "there is no cuda:2; there is cuda:0 to cuda:1"), error);
  CHECK(error_of([] { use(-1); }) == "there is no cuda:-1; there is cuda:0 to cuda:1", error_of([] { use(-1); }));
}

static void* current_context() {
  CUcontext current = nullptr;
  driver().cuCtxGetCurrent(&current);
  return current;
}

static void test_memory() {
  auto* foreign = reinterpret_cast<CUcontext>(0xbeefl);
  driver().cuCtxSetCurrent(foreign);  // as if another library, such as torch, had made its own context current
  Memory& m = memory(1);
  void *a = m.allocate(4096, nullptr), *b = m.allocate(0, nullptr);
  CHECK(a && b && fake->allocated_in == reinterpret_cast<void*>(0x1001l), fake->allocated_in);
  CHECK(in_use(1), "an allocation uses the GPU");
  CHECK(current_context() == foreign, "the caller's context is back: ", current_context());
  driver().cuCtxSetCurrent(nullptr);
  // the driver's memory pool holds 4096 bytes that no tensor uses
  CHECK(m.free_bytes() == (1 << 20) - 4097 + 4096, m.free_bytes());
  CHECK(current_context() == reinterpret_cast<void*>(0x1001l), "a thread without a context gets one");

  CHECK(m.allocate(size_t(1) << 30, nullptr) == nullptr, "more than there is");
  CHECK(fake->trims == 1, "the pool is trimmed before giving up: ", fake->trims);

  char host[16] = "fifteen letters";
  m.copy(a, host, sizeof host, nullptr);
  CHECK(fake->waits == 1, "host memory may be reused: ", fake->waits);
  m.copy(static_cast<char*>(a), b, 1, nullptr);
  m.copy(a, b, 0, nullptr);
  CHECK(fake->waits == 1 && fake->copies == 2, "device to device does not wait: ", fake->waits, ' ', fake->copies);
  CHECK(!m.reaches(host) && m.reaches(a) && !memory(0).reaches(a), "a device reads its own memory");

  auto stream = [](long i) { return reinterpret_cast<Stream>(i); };
  const Place here{true, 1};
  for (int i = 0; i < 3; ++i) m.order(stream(8), here, stream(16));
  m.order(stream(8), here, stream(8));
  CHECK(fake->events == 1, "events are used again: ", fake->events);
  CHECK(fake->recorded_in == fake->waited_in && fake->recorded_in == reinterpret_cast<void*>(0x1001l));

  // The machine has two GPUs, and each has its own context. A stream of one GPU waits for an event that was recorded in
  // the context of the other GPU. The default streams of both contexts have the same handle (null).
  m.order(nullptr, {true, 0}, nullptr);
  CHECK(fake->recorded_in == reinterpret_cast<void*>(0x1001l), fake->recorded_in);
  CHECK(fake->waited_in == reinterpret_cast<void*>(0x1000l), fake->waited_in);
  void* c = memory(0).allocate(16, nullptr);
  m.copy(a, host, sizeof host, nullptr);
  m.copy(c, a, sizeof host, nullptr);
  CHECK(fake->peer_copies == 1 && std::string(static_cast<char*>(c)) == host, fake->peer_copies);
  memory(0).release(c, 16, nullptr);
  const double us = time_us(1, nullptr, [] {});
  CHECK(us == 250, us);
  m.release(a, 4096, nullptr);
  m.release(b, 0, nullptr);
  CHECK(fake->free_bytes == 1 << 20, fake->free_bytes);
}

static void test_kernels(const fs::path& scratch) {
  fs::path root = scratch / "package";
  fs::create_directories(root / "cuda");
  std::ofstream(root / "cuda/k.cu") << "template <class T> __global__ void k(T* x, int n) { x[0] = T(n); }\n"
                                       "template <class T> __global__ void s(T* x, int n) {\n"
                                       "  __shared__ volatile T a[256];\n"
                                       "  extern __shared__ T b[];\n"
                                       "  a[n] = b[n], x[0] = a[0];\n"
                                       "}\n";
  set_package_folder(root);
  KernelSpec spec{"cuda/k.cu", "k<float>", "", {}, 80};
  if (!why_no_nvrtc().empty()) {
    std::cout << "skipped, loading and launching: " << why_no_nvrtc() << std::endl;
    return;
  }
  auto kernel = load_kernel(spec, 0, 100000);
  CHECK(kernel == load_kernel(spec, 0), "loaded once");
  CHECK(kernel != load_kernel(spec, 1), "for each device");
  CHECK(fake->allowed_smem == 100000 && kernel->smem_limit == 100000, fake->allowed_smem, ' ', kernel->smem_limit);
  CHECK(kernel->parameter_count == 2 && kernel->registers == 40, kernel->parameter_count, ' ', kernel->registers);
  std::string error = error_of([&] { load_kernel(spec, 0, 300000); });
  CHECK(has(error, "300000 bytes") && has(error, "a block may have 232448"), error);

  // If static and dynamic shared memory together exceed 48 KB, a driver call must allow this before the launch.
  KernelSpec with_static = spec;
  with_static.kernel = "s<float>";
  for (int bytes : {100, 48 * 1024 - 1024, 48 * 1024 - 1023, 48 * 1024, 48 * 1024 + 1}) {
    fake->allowed_smem = 0;
    auto s = load_kernel(with_static, 0, bytes);
    CHECK(s->static_smem == 1024, s->static_smem);
    CHECK(fake->allowed_smem == unsigned(bytes > 47 * 1024 ? bytes : 0), bytes, ": ", fake->allowed_smem);
    launch(*s, {.block = {128}, .smem_bytes = unsigned(bytes)}, nullptr, static_cast<float*>(nullptr), 3);
  }
  load_kernel(with_static, 0, 232448 - 1024);
  error = error_of([&] { load_kernel(with_static, 0, 232448 - 1023); });
  CHECK(has(error, "231425 bytes of dynamic and 1024 of static shared memory"), error);
  fake->launches = 0;

  float* x = nullptr;
  int n = 3;
  launch(*kernel, {.grid = {7}, .block = {128}, .smem_bytes = 64}, nullptr, x, n);
  CHECK(fake->launches == 1 && fake->grid_x == 7 && fake->smem_bytes == 64, fake->launches, ' ', fake->grid_x);
  launch(*kernel, {.grid = {0, 5, 1}, .block = {128}}, nullptr, x, n);
  CHECK(fake->launches == 1, "an empty grid launches nothing: ", fake->launches);
  launch(*kernel, {.grid = {8}, .block = {128}, .cluster = {2}, .programmatic = true}, nullptr, x, n);
  CHECK(fake->launches == 2 && fake->attributes == 2 && fake->grid_x == 8, fake->launches, ' ', fake->attributes);
  error = error_of([&] { launch(*kernel, {}, nullptr, x, int64_t(n)); });
  CHECK(error == "launching k<float>: its parameters have [8, 4] bytes, the arguments [8, 8]", error);
  error = error_of([&] { launch(*kernel, {}, nullptr, x); });
  CHECK(has(error, "the arguments [8]"), error);
  fake->launch_result = 1;
  error = error_of([&] { launch(*kernel, {.grid = {9, 2}, .block = {64}}, nullptr, x, n); });
  CHECK(has(error, "launching k<float> on cuda:0 with grid [9, 2, 1], block [64, 1, 1]"), error);
  CHECK(has(error, "CUDA_ERROR_OF_A_KIND (1): what the driver says"), error);
  fake->launch_result = 2;
  try {
    launch(*kernel, {}, nullptr, x, n);
    CHECK(false, "no error");
  } catch (const OutOfMemory&) {}
  fake->launch_result = 0;

  constexpr int kLaunches = 200000;
  auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kLaunches; ++i) launch(*kernel, {.grid = {7}, .block = {128}}, nullptr, x, n);
  std::chrono::duration<double, std::nano> taken = std::chrono::steady_clock::now() - begin;
  std::cout << "launch() costs " << taken.count() / kLaunches << " ns in addition to the driver's time" << std::endl;

  // If the driver refuses a cubin from the cache, the kernel is compiled again. If the driver refuses a cubin that was
  // just compiled, the library throws an error.
  spec.kernel = "k<double>";
  cubin(spec, "sm_90a");
  KernelSpec stored = spec;
  stored.options = {"-DSTORED"};
  compile_to(stored, "sm_90a", root / "cubins");
  int64_t compiled = cache_stats().nvrtc;
  fake->refused_modules = 1;
  CHECK(load_kernel(stored, 0)->function != nullptr && cache_stats().nvrtc == compiled + 1, cache_stats().nvrtc);
  fake->refused_modules = 1;
  error = error_of([&] { load_kernel(spec, 0); });
  CHECK(has(error, "loading kernel k<double> (sm_90a, nvrtc) on cuda:0: CUDA_ERROR_OF_A_KIND (209)"), error);
}

static void test_graphs() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  auto* begin = reinterpret_cast<FakeBegin*>(dlsym(library, "fake_begin"));
  auto* end = reinterpret_cast<FakeEnd*>(dlsym(library, "fake_end"));
  auto* destroy = reinterpret_cast<FakeDestroy*>(dlsym(library, "fake_destroy"));
  const Place here{true, 0};
  Memory& m = memory(0);
  Allocator& a = allocator_of(here);
  char address[2];
  Stream s = &address[0], other = &address[1];
  auto allocate = [&] { return a.allocate(1024, s, [] { return std::string("test"); }); };
  auto before = allocate();

  begin(s, 3);
  CHECK(m.capture(s).id == 3 && m.capture(other).id == 0 && m.capture(nullptr).id == 0, m.capture(s).id);
  CHECK(!m.order(s, here, other) && !m.order(other, here, s) && m.order(other, here, nullptr));
  allocate();
  auto kept = allocate();
  before->used_on(s);
  before->settle_before(other);
  kept->used_on(other);
  before.reset();
  end(s);
  CHECK(a.stats().allocated_bytes == 2 * 1024, a.stats().allocated_bytes);
  destroy(3);
  CHECK(a.stats().allocated_bytes == 1024, a.stats().allocated_bytes);
  kept.reset();
  CHECK(a.stats().allocated_bytes == 0, a.stats().allocated_bytes);
  a.release_cached();
  CHECK(fake->free_bytes == 1 << 20, fake->free_bytes);
  CHECK(fake->broken_captures == 0 && fake->calls_of_callbacks == 0, fake->broken_captures);
}

static void test_fork() {
  Memory& m = memory(0);
  void* p = m.allocate(64, nullptr);
  pid_t child = fork();
  if (child == 0) {
    failures = 0;
    std::string error = error_of([&] { m.allocate(64, nullptr); });
    CHECK(has(error, "does not survive a fork") && has(error, "'spawn'"), error);
    CHECK(device_count() == 0 && has(why_unavailable(), "fork"), why_unavailable());
    // If a forked child releases memory of the parent process, there is no error, and the parent keeps the memory.
    m.release(p, 64, nullptr);
    CHECK(fake->free_bytes == (1 << 20) - 64, fake->free_bytes);
    _exit(failures);
  }
  int status = -1;
  waitpid(child, &status, 0);
  CHECK(status == 0, "the child ended with ", status);
  m.release(p, 64, nullptr);
}

static void test_shutdown() {
  Memory& m = memory(0);
  void* p = m.allocate(64, nullptr);
  fake->shut_down = 1;
  m.release(p, 64, nullptr);  // after the driver's shutdown, release() throws no error, and the memory may leak
  std::string error = error_of([&] { m.fill(p, 0, 64, nullptr); });
  CHECK(has(error, "CUDA_ERROR_DEINITIALIZED"), error);
  fake->shut_down = 0;
}

static int run(const fs::path& scratch) {
  std::string why = why_unavailable();
  CHECK(why.empty(), why);
  fake = static_cast<Fake*>(dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), "fake"));
  if (!fake) return std::cout << "the driver in use is not the fake one" << std::endl, 1;
  test_device();
  test_memory();
  test_kernels(scratch);
  test_graphs();
  test_fork();
  test_shutdown();
  std::cout << (failures ? cat(failures, " checks failed") : "all checks passed") << std::endl;
  return failures != 0;
}

int main(int argc, char** argv) {
  std::string source_root = ".", search_path;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::string(argv[i]) == "--source-root") source_root = argv[i + 1];
    if (std::string(argv[i]) == "--search-path") search_path = argv[i + 1];
  }
  set_search_path({search_path});
  if (const char* scratch = std::getenv("MINIDNN_TEST_SCRATCH")) return run(scratch);

  char pattern[] = "/tmp/minidnn_driver_XXXXXX";
  const fs::path scratch = mkdtemp(pattern);
  std::string build = cat("c++ -std=c++20 -O1 -shared -fPIC ", source_root, "/tests/cpp/fake_driver.cpp -o ",
                          scratch.string(), "/libcuda.so.1 -ldl");
  int status = 0;
  if (std::system(build.c_str()) != 0) {
    std::cout << "skipped: cannot build the fake driver by: " << build << std::endl;
  } else {
    // This program starts itself again, with the fake driver first in the loader's search path.
    status = std::system(cat("env MINIDNN_TEST_SCRATCH=", scratch.string(), " LD_LIBRARY_PATH=", scratch.string(),
                             " PYMINIDNN_CACHE_DIR=", (scratch / "cache").string(), ' ',
                             fs::canonical("/proc/self/exe").string(), " --source-root ", source_root,
                             search_path.empty() ? "" : " --search-path ", search_path)
                             .c_str());
  }
  fs::remove_all(scratch);
  return status != 0;
}
