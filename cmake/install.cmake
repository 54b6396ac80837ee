# Installs the C and C++ library: headers, libraries, kernel sources, and files for find_package() and pkg-config.
include(CMakePackageConfigHelpers)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/minidnn)
install(TARGETS ${libraries} EXPORT minidnnTargets)
install(EXPORT minidnnTargets NAMESPACE minidnn:: DESTINATION ${package_folder})
install(FILES include/minidnn/minidnn.h include/minidnn/minidnn.hpp
  ${CMAKE_CURRENT_BINARY_DIR}/include/minidnn/version.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/minidnn)
install(FILES third_party/dlpack/dlpack.h third_party/dlpack/LICENSE
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/minidnn/dlpack)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install_kernels(${CMAKE_INSTALL_DATADIR}/minidnn/sources)

set(sources_folder ${CMAKE_INSTALL_DATADIR}/minidnn/sources)
configure_package_config_file(cmake/minidnnConfig.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/minidnnConfig.cmake
  INSTALL_DESTINATION ${package_folder} PATH_VARS sources_folder)
# Until 1.0, a minor version may change the interface.
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/minidnnConfigVersion.cmake COMPATIBILITY SameMinorVersion)
file(RELATIVE_PATH prefix_of_pc ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
configure_file(cmake/minidnn.pc.in minidnn.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/minidnnConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/minidnnConfigVersion.cmake
  DESTINATION ${package_folder})
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/minidnn.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
