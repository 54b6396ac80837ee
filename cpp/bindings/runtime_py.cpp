// SPDX-License-Identifier: Apache-2.0
// Binds functions that report what this machine has: devices, NVRTC and kernel caches. Also binds the list of kernels
// that can be compiled ahead of time.
#include <atomic>
#include <chrono>

#include "cpp/bindings/casters.h"
#include "cpp/core/cpu/thread_pool.h"
#include "cpp/core/cpu/work_size.h"
#include "cpp/core/device/cuda_backend.h"
#include "cpp/engine/registry.h"
#include "cpp/simd/gemm_microkernel.h"
#include "cuda/runtime/driver.h"
#include "cuda/runtime/kernel_cache.h"
#include "cuda/runtime/nvrtc.h"

namespace minidnn {
namespace {

// The value of threading.get_ident() for Python's main thread.
unsigned long main_thread = 0;

// Python runs signal handlers, including the one that raises KeyboardInterrupt, only on its main thread.
void check_signals() {
  if (PyThread_get_thread_ident() != main_thread) return;
  py::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

void bind_cpu(py::module_& m) {
  m.def(
      "cpu_isas",
      [] {
        py::list all;
        for (cpu::Isa i : cpu::kAllIsas)
          if (cpu::has(i)) all.append(name(i));
        return all;
      },
      "The instruction sets of this machine that CPU engines are compiled for, the best first.");
  m.def(
      "cpu_isa", [] { return name(cpu::isa()); },
      "The one that CPU engines use: the best, or what PYMINIDNN_CPU_ISA names.");
  m.def("set_work_divisor", &cpu::set_work_divisor, py::arg("divisor"),
        "For tests, before the first call: CPU engines make chunks of work smaller than usual by this factor.");
  m.def(
      "cpu_peak_gflop_s",
      [] {
        double best = 0;
        for (int round = 0; round < 5; ++round) {
          std::atomic<int64_t> flop = 0;
          const auto begin = std::chrono::steady_clock::now();
          cpu::parallel_items(cpu::thread_count() * 4, [&](int64_t, int64_t) {
            float sink[64] = {};
            flop += gemm_kernels().fma(2'000'000, sink);
          });
          const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
          best = std::max(best, double(flop) / seconds.count() / 1e9);
        }
        return best;
      },
      "Measures the float32 peak of all threads, by multiply-adds in registers.");
}

void bind_kernels(py::module_& m) {
  py::class_<KernelSpec>(m, "KernelSpec", "One kernel instantiation of the manifest.")
      .def_readonly("file", &KernelSpec::file)
      .def_readonly("kernel", &KernelSpec::kernel)
      .def_readonly("min_arch", &KernelSpec::min_arch);
  m.def(
      "manifest",
      [] {
        std::vector<KernelSpec> all;
        for (const FamilyInfo& f : families())
          for (KernelSpec& s : f.kernels())
            if (std::ranges::find(all, s) == all.end()) all.push_back(std::move(s));
        return all;
      },
      "All kernels that plans of the engines can load.");
  m.def(
      "compile_kernel",
      [](const KernelSpec& spec, const std::string& arch, const std::optional<std::string>& folder) {
        if (folder) cuda::compile_to(spec, arch, *folder);
        else cuda::cubin(spec, arch);
      },
      py::arg("spec"), py::arg("arch"), py::arg("folder"), py::call_guard<ReleaseGil>(),
      "Compiles a kernel into `folder`, in the layout of packaged cubins, or into the user's cache if `folder` is "
      "None.");
  m.def(
      "compile_region",
      [](const std::string& source, const std::string& arch, bool by_vectors) {
        KernelSpec spec{"cuda/graph/elementwise.cu", "minidnn::graph_elementwise<minidnn::Region>"};
        if (source.find("in cuda/graph/row_reduction.cu") != std::string::npos)
          spec = {"cuda/graph/row_reduction.cu", by_vectors ? "minidnn::graph_rows<minidnn::Region, true>"
                                                            : "minidnn::graph_rows<minidnn::Region, false>"};
        spec.generated = source;
        std::shared_ptr<const cuda::Cubin> cubin;
        {
          const ReleaseGil release;
          cubin = cuda::cubin(spec, arch);
        }
        return py::bytes(cubin->code);
      },
      py::arg("source"), py::arg("arch"), py::arg("by_vectors") = true,
      "Compiles the text of Graph.source(), and returns the cubin. by_vectors: whether rows have whole vectors.");
}

}  // namespace

void bind_runtime(py::module_& m) {
  main_thread = py::module_::import("threading").attr("main_thread")().attr("ident").cast<unsigned long>();
  cpu::set_interrupt_check(&check_signals);
  m.def("set_package_folder", &cuda::set_package_folder, py::arg("folder"), py::arg("packages"),
        "The folder that has cpp/, cuda/ and perhaps cubins/, and further folders that have <arch>/<key>.cubin.");
  m.def("set_search_path", &cuda::set_search_path, py::arg("folders"));
  m.def("cuda_device_count", &cuda::device_count);
  m.def("why_no_cuda", &cuda::why_unavailable);
  m.def(
      "synchronize",
      [](const std::optional<std::string>& device) {
        const std::optional<Place> place = optional_place(device);
        ReleaseGil release;
        if (place) return memory_of(*place).synchronize_all();
        for (int i = 0; i < cuda::device_count(); ++i)
          if (cuda::in_use(i)) cuda::memory(i).synchronize_all();
      },
      py::arg("device") = py::none(),
      R"(Waits until all work on a device is done, also that of other streams and libraries.

device  "cuda:<index>", or "cpu", whose calls end with their work; None: every GPU that this process has used

Raises DeviceError.)");
  m.def(
      "device_info",
      [](const std::string& device) {
        const Device& d = device_at(place_from_python(device));
        py::dict info;
        info["model"] = d.model;
        info["arch"] = d.arch;
        info["memory_bytes"] = d.memory_bytes;
        info["copy_gb_s"] = d.copy_gb_s;
        info["fp32_gflop_s"] = d.fp32_gflop_s;
        info["units"] = d.sm_count;
        return info;
      },
      py::arg("device"),
      "Model, architecture and rates as estimates use them; units are SMs on a GPU, threads on the CPU.");
  m.def(
      "driver_version",
      [] {
        int v = cuda::driver_cuda_version();
        return cat(v / 1000, ".", v % 1000 / 10);
      },
      "The CUDA version of the driver; \"0.0\" without one.");
  m.def(
      "set_nvrtc_finder",
      [](py::object find) {
        // The function is never destroyed: NVRTC may be used while the interpreter shuts down.
        cuda::set_nvrtc_finder([find = find.release()] {
          py::gil_scoped_acquire gil;
          return find().cast<std::string>();
        });
      },
      py::arg("find"), "`find` returns the path of libnvrtc, or \"\". It must not raise.");
  m.def("why_no_nvrtc", &cuda::why_no_nvrtc, py::call_guard<ReleaseGil>());
  m.def("nvrtc_info", [] {
    const cuda::NvrtcInfo& info = []() -> const cuda::NvrtcInfo& {
      ReleaseGil unlocked;
      return cuda::nvrtc_info();
    }();
    return py::make_tuple(info.path, info.major, info.minor);
  });
  m.def("cache_folder", &cuda::cache_folder);
  m.def("cache_stats", [] {
    cuda::CacheStats s = cuda::cache_stats();
    py::dict d;
    d["memory"] = s.memory;
    d["packaged"] = s.packaged;
    d["disk"] = s.disk;
    d["nvrtc"] = s.nvrtc;
    d["compile_seconds"] = s.compile_seconds;
    return d;
  });
  bind_cpu(m);
  bind_kernels(m);
}

}  // namespace minidnn
