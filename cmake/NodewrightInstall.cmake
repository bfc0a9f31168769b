# cmake --install, first the program: bin/nodewright, lib/nodewright/ with the shared libraries it opens, share/nodewright/models/demo,
# the shells' completions and the manual page.
# These folders are fixed, since the program looks for them relative to itself.
if(NOT NODEWRIGHT_GRAPH_ONLY)
  add_dependencies(nodewright nodewright_carried_libraries)
  install(TARGETS nodewright RUNTIME DESTINATION bin)
  install(FILES ${NODEWRIGHT_CARRIED_LIBRARIES} DESTINATION lib/nodewright)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/models/demo/ DESTINATION share/nodewright/models/demo
          FILES_MATCHING PATTERN "*.json" PATTERN "*.jinja" PATTERN "*.safetensors" PATTERN "README.md")
  # A build that could not run the program has none.
  set(shell_files ${PROJECT_BINARY_DIR}/cli/shell)
  install(FILES ${shell_files}/nodewright.bash DESTINATION share/bash-completion/completions RENAME nodewright OPTIONAL)
  install(FILES ${shell_files}/_nodewright DESTINATION share/zsh/site-functions OPTIONAL)
  install(FILES ${shell_files}/nodewright.fish DESTINATION share/fish/vendor_completions.d OPTIONAL)
  install(FILES ${shell_files}/nodewright.1 DESTINATION share/man/man1 OPTIONAL)
endif()
install(TARGETS nodewright_cpu_driver LIBRARY DESTINATION lib/nodewright)

# The licence, and those of what is linked statically, where Debian's packages have them (cmake/make_dist.sh insists).
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION share/nodewright)
foreach(package libfmt-dev nlohmann-json3-dev libcli11-dev libutf8proc-dev libedit-dev libonig-dev libboost1.81-dev)
  install(FILES /usr/share/doc/${package}/copyright DESTINATION share/nodewright/licenses RENAME ${package} OPTIONAL)
endforeach()

# The graph library: find_package(nodewright) gives nodewright::graph.
include(CMakePackageConfigHelpers)
install(TARGETS nodewright_graph nodewright_runtime nodewright_error nodewright_kernel_sources nodewright_fmt
                nodewright_cuda_headers EXPORT nodewright ARCHIVE DESTINATION lib)
install(DIRECTORY ${PROJECT_BINARY_DIR}/include/nodewright DESTINATION include)
install(EXPORT nodewright NAMESPACE nodewright:: FILE nodewrightTargets.cmake DESTINATION lib/cmake/nodewright)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/nodewrightConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/nodewrightConfig.cmake INSTALL_DESTINATION lib/cmake/nodewright)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/nodewrightConfigVersion.cmake COMPATIBILITY SameMajorVersion)
install(FILES ${PROJECT_BINARY_DIR}/nodewrightConfig.cmake ${PROJECT_BINARY_DIR}/nodewrightConfigVersion.cmake
        DESTINATION lib/cmake/nodewright)
