// SPDX-License-Identifier: Apache-2.0
// Bindings of find(), explain(), engines() and the log, which report the engines of a call and choose among them.
#include "cpp/bindings/casters.h"
#include "cpp/engine/registry.h"

namespace minidnn {
namespace {

py::list trait_names(unsigned traits) {
  py::list names;
  if (traits & kNondeterministic) names.append("nondeterministic");
  if (traits & kReducedPrecision) names.append("reduced precision");
  if (traits & kNeedsJit) names.append("needs jit");
  return names;
}

}  // namespace

void bind_engine(py::module_& m) {
  py::class_<EngineReport>(m, "EngineReport", "What one engine reports for one problem.")
      .def_readonly("name", &EngineReport::name, "Such as 'cuda.softmax.persistent_rows'.")
      .def_readonly("revision", &EngineReport::revision,
                    "Increases when the engine changes; older tuning records are then ignored.")
      .def_property_readonly(
          "traits", [](const EngineReport& e) { return trait_names(e.traits); },
          "Any of 'nondeterministic', 'reduced precision' and 'needs jit'.")
      .def_readonly("why_not", &EngineReport::why_not,
                    "Empty if the engine supports the problem, else one sentence that says why not.")
      .def_readonly("config", &EngineReport::config, "The config that would run, or that was fastest.")
      .def_readonly("configs", &EngineReport::configs, "All configs of the engine for the problem, best guess first.")
      .def_readonly("estimate_us", &EngineReport::estimate_us, "The expected time in microseconds.")
      .def_readonly("cost_factor", &EngineReport::cost_factor,
                    "The factor in estimate_us that 'pyminidnn calibrate' has measured, or 1.")
      .def_readonly("measured_us", &EngineReport::measured_us, "0 if the engine was not measured.")
      .def_readonly("measurements", &EngineReport::measurements, "Every measured config with its time in microseconds.")
      .def_readonly("workspace_bytes", &EngineReport::workspace_bytes,
                    "Bytes that the call needs in addition to its tensors.");
  py::class_<Report>(m, "Report",
                     "How one problem would run: each engine with a refusal or a cost, and the chosen engine.")
      .def_readonly("family", &Report::family, "Such as 'softmax'.")
      .def_readonly("problem", &Report::problem, "The problem as text, a case line.")
      .def_readonly("device", &Report::device, "'cpu' or 'cuda:<index>'.")
      .def_readonly("engines", &Report::engines, "An EngineReport for each engine of the family.")
      .def_readonly("chosen", &Report::chosen, "The name of the engine that would run.")
      .def_readonly("not_kept", &Report::not_kept, "After find(): why the result is not in the tuning file, or \"\".");

  m.def("bytes_text", &bytes_text, py::arg("bytes"), "A number of bytes for people: \"233.5 kB\".");
  m.def(
      "dry_run",
      [](const py::function& call, const std::string& purpose, const py::object& progress) {
        DryRun::Progress forward;
        if (!progress.is_none())
          forward = [&](const std::string& problem, size_t done, size_t total) {
            py::gil_scoped_acquire gil;
            progress(problem, done, total);
          };
        using enum DryRun::Purpose;
        DryRun session(purpose == "find" ? find : purpose == "calibrate" ? calibrate : explain, std::move(forward));
        call();
        return session.reports();
      },
      py::arg("call"), py::arg("purpose"), py::arg("progress") = py::none(),
      "Reports on all problems that the call would run; the call itself is not run. The purpose is 'explain', 'find' "
      "(measures, and records the fastest) or 'calibrate' (measures engines that are not slow, and records nothing). "
      "progress(problem, done, total) is called after each measured config.");

  m.def("families", [] {
    std::vector<std::string> names;
    for (const FamilyInfo& f : families()) names.push_back(f.name);
    return names;
  });
  m.def(
      "engines",
      [](const std::string& family, bool cuda) {
        py::list all;
        for (const FamilyInfo& f : families())
          if (f.name == family)
            for (const EngineInfo& e : f.engines(cuda)) {
              py::dict d;
              d["name"] = e.name;
              d["revision"] = e.revision;
              d["traits"] = trait_names(e.traits);
              all.append(d);
            }
        return all;
      },
      py::arg("family"), py::arg("cuda"));

  m.def(
      "why_no_tuning", [] { return tuning().why_not_kept(); },
      "Why results of find() are kept in memory only, or \"\".");
  m.def("tuning_text", [] { return tuning().text(); }, "All tuning records, a line each.");
  m.def(
      "import_tuning", [](const std::string& text, bool replace) { return tuning().import_text(text, replace); },
      py::arg("text"), py::arg("replace"), "Adds the records of tuning_text(), and returns their number.");
  m.def("clear_tuning", [] { tuning().clear(); }, "Deletes all tuning records, also in the cache folder.");
  m.def("why_no_costs", [] { return costs().why_not_kept(); }, "Why cost factors are kept in memory only, or \"\".");
  m.def("costs_text", [] { return costs().text(); }, "All cost factors, a line each.");
  m.def(
      "import_costs", [](const std::string& text, bool replace) { return costs().import_text(text, replace); },
      py::arg("text"), py::arg("replace"), "Adds the cost factors of costs_text(), and returns their number.");
  m.def(
      "check_costs", [](const std::string& text) { costs().check_text(text); }, py::arg("text"),
      "Raises ShapeError if a line is no cost factor.");
  m.def("clear_costs", [] { costs().clear(); }, "Deletes all cost factors, also in the cache folder.");
  m.def("cost_kind", &cost_kind, py::arg("problem"), "The kind of a problem by which cost factors are kept.");
  m.def(
      "set_log_level", [](const std::string& level) { set_log("set_log_level: level", level); }, py::arg("level"),
      "Replaces PYMINIDNN_LOG, in the same words: 'off', 'info' (a line on stderr per call with its engine) or 'debug' "
      "(also why not the others), and 'us', 'nvtx', 'file=PATH', separated by commas. ShapeError for other words.");
  m.def("why_no_log", &why_no_log, "Why PYMINIDNN_LOG is not valid, or \"\".");
}

}  // namespace minidnn
